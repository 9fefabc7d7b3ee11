"""A `meshwright train` in a session of its own, and what its run folder says."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil

from meshwright.train.run.events import read_events


def hear_signals() -> None:
    """Undo what a shell, or nohup, does to the jobs that it runs in the background, the tests themselves perhaps."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Job:
    """A `meshwright train` in a session of its own."""

    def __init__(self, arguments: list[str], environment: dict[str, str], prefix: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "meshwright", "train", *arguments],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=hear_signals,
        )

    def members(self) -> list[psutil.Process]:
        """Return the live processes of the session."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.NoSuchProcess):
                continue
        return found

    def wait_until(self, condition, timeout_s: float = 200) -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end
            time.sleep(0.01)

    def end(self, timeout_s: float = 300) -> tuple[int, list[str]]:
        """Wait for the end; return the exit code and what meshwright said last on standard error."""
        _, errors = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, errors.splitlines()

    def kill(self) -> None:
        """Kill what is left of the session."""
        for process in self.members():
            process.kill()
        self.process.communicate()

    def nobody_is_left(self) -> bool:
        end = time.monotonic() + 10
        while self.members() and time.monotonic() < end:
            time.sleep(0.05)
        return not self.members()


def steps_done(folder) -> int:
    """Return how many steps metrics.jsonl has."""
    return len(folder.metrics.read_text().splitlines()) if folder.metrics.exists() else 0


def pid_of(folder, rank: int) -> int:
    """Return the process of a rank of a run."""
    return json.loads((folder.ranks / f"{rank}.json").read_text())["pid"]


def kill(folder, rank: int, signum: int = signal.SIGKILL) -> float:
    """Send a signal to a rank and return the wall clock before that."""
    pid = pid_of(folder, rank)
    now = time.time()
    os.kill(pid, signum)
    return now


def events(folder, kind=None):
    """Return the events of a run, of one kind or of all."""
    return [event for event in read_events(folder.events) if kind in (None, event.kind)]


def final_weights(folder) -> dict[str, bytes]:
    """Return every tensor of the newest checkpoint, as bytes."""
    from meshwright.train.checkpoint.folder import latest_checkpoint
    from meshwright.train.checkpoint.manifest import read_manifest
    from meshwright.train.checkpoint.pieces import read_whole

    path = latest_checkpoint(folder.checkpoints)
    manifest = read_manifest(path)
    names = [name for name in manifest.tensors if not name.startswith("rng/")]
    return {name: tensor.numpy().tobytes() for name, tensor in read_whole(path, manifest, names)}
