"""Shared parts of the benchmark of faults: small jobs, the peer under torchrun, and rows of a table."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from meshwright.layout import Layout
from meshwright.train.run.run_folder import RunFolder
from testkit.fault_jobs import Job, final_weights
from testkit.train_jobs import losses, small_job, write_corpus, write_run

STEPS, EVERY, RANKS = 200, 20, 4
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
PATIENCE_S = 600.0
PEER_PATIENCE_S = 90.0  # three times its timeout; a peer that has not ended by then hangs
Row = dict[str, Any]


class Rig:
    """A folder for the runs of one part, and the run that nothing happened to."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.corpus = write_corpus(place)
        self._undisturbed: dict[int, Any] = {}

    def begin(self, name: str, *, layout: str = f"dp={RANKS},mbs=2", timeout_s: float = 30.0, **train: Any) -> Any:
        """Start a job that restarts as often as it must; return its run folder and the process."""
        settings = {"steps": STEPS, "checkpoint_every": EVERY, "validate_every": 10**6, "record": False}
        job = small_job(self.corpus, **(settings | train))
        launch = msgspec.structs.replace(job.launch, max_restarts=10**6, timeout_s=timeout_s)
        path = self.place / name
        folder = write_run(path, msgspec.structs.replace(job, launch=launch), Layout.parse(layout))
        cache = {"XDG_CACHE_HOME": str(self.place / "cache")}
        return folder, Job(["--resume", str(folder.path)], ENVIRONMENT | cache)

    def undisturbed(self, steps: int = STEPS) -> Any:
        """Return losses and final weights of a run that nothing happened to."""
        if steps not in self._undisturbed:
            folder, job = self.begin(f"whole-{steps}", steps=steps)
            code, errors = job.end(timeout_s=PATIENCE_S)
            if code:
                raise RuntimeError(f"the undisturbed run failed: {errors}")
            self._undisturbed[steps] = outcome(folder)
        return self._undisturbed[steps]


def outcome(folder: RunFolder) -> tuple[list[float], dict[str, bytes]]:
    """Return what a run came to: every loss, and the weights at its end."""
    return losses(folder), final_weights(folder)


class Peer:
    """DDP over Gloo with DCP under torchrun, in a session of its own."""

    def __init__(self, folder: Path, *, timeout_s: float = 30.0, ranks: int = RANKS, steps: int = STEPS) -> None:
        folder.mkdir()
        self.folder = folder
        program = Path(__file__).with_name("faults_peer.py")
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        numbers = [str(steps), str(EVERY), str(timeout_s)]
        self.process = subprocess.Popen(
            [*torchrun, f"--nproc-per-node={ranks}", "--max-restarts=3", str(program), str(folder), *numbers],
            env=os.environ | ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def steps_done(self) -> int:
        """Return how many steps rank 0 has written down, over all attempts."""
        path = self.folder / "steps"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def step_times_s(self) -> list[float]:
        """Return how long each step took."""
        return [float(line.split()[1]) for line in (self.folder / "steps").read_text().splitlines()]

    def signal(self, rank: int, signum: int) -> float:
        """Send a signal to a rank and return the wall clock before that."""
        now = time.time()
        os.kill(json.loads((self.folder / f"pid-{rank}.json").read_text()), signum)
        return now

    def said(self) -> list[dict[str, Any]]:
        """Return when each rank that got an error got it, and what it said."""
        return [json.loads(path.read_text()) for path in self.folder.glob("said-*.json")]

    def ended(self, patience_s: float = PEER_PATIENCE_S) -> int | None:
        """Return the exit code, or None for one that had to be killed."""
        try:
            return self.process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            for path in self.folder.glob("pid-*.json"):
                end_process(json.loads(path.read_text()))
            end_process(self.process.pid)
            self.process.wait()
            return None


def end_process(pid: int) -> None:
    """SIGKILL a process where it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until something holds; TimeoutError if it does not come true."""
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)
