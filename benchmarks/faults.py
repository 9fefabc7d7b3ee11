"""Faults: ranks killed, files damaged, writers killed, junk connections, a soak; beside plain Gloo and DCP.

Each row is one kind of fault, how often it was done, and what came of it. `python -m benchmarks faults --kills 50
--soak 5000` does all that can be done; without options it takes about ten minutes on two cores. Options: --kills N
(default 8), --flips N (500), --writer-kills N (200), --junk N (1000), --soak STEPS (0), --seed N.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks.result import Result
from meshwright.layout import Layout
from meshwright.train.run_folder import RunFolder
from tests.faults.jobs import Job, events, final_weights, kill, pid_of, steps_done
from tests.multiproc.train.jobs import losses, small_job, write_corpus, write_run

STEPS, EVERY, RANKS = 200, 20, 4
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}
KEYS = ("fault", "system", "times")
Row = dict[str, Any]


def run(arguments: list[str]) -> Result:
    """Do every kind of fault in turn and return one row each."""
    parser = argparse.ArgumentParser(prog="benchmarks faults")
    for name, default in (
        ("kills", 8),
        ("flips", 500),
        ("writer-kills", 200),
        ("junk", 1000),
        ("soak", 0),
        ("seed", 1),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        corpus = write_corpus(place)
        rows = [
            _kills(place, corpus, rng, options.kills),
            _peer_kills(place, rng, min(options.kills, 8)),
            *_damage(place, rng, options.flips),
            *_writer_kills(place, options.writer_kills),
            _junk(place, corpus, options.junk),
        ]
        if options.soak:
            rows.append(_soak(place, corpus, rng, options.soak))
    notes = [f"{RANKS} ranks on one machine, {STEPS} steps, a checkpoint every {EVERY}; seed {options.seed}"]
    return Result("Faults", [_told(row) for row in rows], notes)


def _told(row: Row) -> Row:
    """Return a row with what came of it in one column: each fault has figures of its own."""
    told = ", ".join(f"{name} {value}" for name, value in row.items() if name not in KEYS)
    return {name: row[name] for name in KEYS} | {"what came of it": told}


def _begin(path: Path, corpus: str, *, layout: str = "dp=4,mbs=2", **train: Any) -> tuple[RunFolder, Job]:
    settings = {"steps": STEPS, "checkpoint_every": EVERY, "validate_every": 10**6, "record": False}
    job = small_job(corpus, **(settings | train))
    launch = msgspec.structs.replace(job.launch, max_restarts=10**6)
    folder = write_run(path, msgspec.structs.replace(job, launch=launch), Layout.parse(layout))
    return folder, Job(["--resume", str(folder.path)], ENVIRONMENT | {"XDG_CACHE_HOME": str(path.parent / "cache")})


def _kills(place: Path, corpus: str, rng: random.Random, count: int) -> Row:
    """SIGKILL a random rank at a random step; compare losses and weights with a run that nothing happened to."""
    folder, job = _begin(place / "whole", corpus)
    assert job.end(timeout_s=300)[0] == 0
    right = (losses(folder), final_weights(folder))
    named_s: list[float] = []
    lost, equal, named = [], 0, 0
    for number in range(count):
        folder, job = _begin(place / f"kill-{number}", corpus)
        at, rank = rng.randrange(2, STEPS - 20), rng.randrange(RANKS)
        job.wait_until(lambda folder=folder, at=at: steps_done(folder) > at, timeout_s=300)  # type: ignore[misc]
        killed_s, done = kill(folder, rank), steps_done(folder)
        code, _ = job.end(timeout_s=300)
        found = [event for event in events(folder, "failure") if event.culprit == rank]
        named_s += [event.time_s - killed_s for event in found]
        named += {event.rank for event in found} == set(range(RANKS)) - {rank}
        resumed_at = [event.step or 0 for event in events(folder, "resume")]
        lost.append(done - resumed_at[0] if resumed_at else done)
        equal += code == 0 and (losses(folder), final_weights(folder)) == right
        shutil.rmtree(folder.path)
    return {
        "fault": "SIGKILL of a rank",
        "system": "meshwright",
        "times": count,
        "named by all survivors": named,
        "median_s": round(statistics.median(named_s), 3),
        "worst_s": round(max(named_s), 3),
        "resumed bit-identical": equal,
        "most steps lost": max(lost),
    }


def _peer_kills(place: Path, rng: random.Random, count: int) -> Row:
    """Do the same to DDP over Gloo with DCP under torchrun."""
    took_s, named, resumed = [], 0, 0
    for number in range(count):
        folder = place / f"peer-{number}"
        folder.mkdir()
        program = [str(Path(__file__).with_name("faults_peer.py")), str(folder), str(STEPS), str(EVERY)]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        process = subprocess.Popen(
            [*torchrun, f"--nproc-per-node={RANKS}", "--max-restarts=3", *program],
            env=os.environ | ENVIRONMENT | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        at, rank = rng.randrange(2, STEPS - 20), rng.randrange(RANKS)
        steps = folder / "steps"
        _until(lambda steps=steps, at=at: steps.exists() and len(steps.read_text().splitlines()) > at)  # type: ignore[misc]
        killed_s = time.time()
        os.kill(json.loads((folder / f"pid-{rank}.json").read_text()), signal.SIGKILL)
        resumed += process.wait(timeout=300) == 0
        said = [json.loads(path.read_text()) for path in folder.glob("said-*.json")]
        took_s += [event["time_s"] - killed_s for event in said]
        named += any(f"rank {rank}" in event["message"].lower() for event in said)
    return {
        "fault": "SIGKILL of a rank",
        "system": "Gloo + DCP",
        "times": count,
        "named by all survivors": named,
        "median_s": round(statistics.median(took_s), 3) if took_s else None,
        "worst_s": round(max(took_s), 3) if took_s else None,
        "resumed": resumed,
    }


def _tensors() -> dict[str, Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    return {f"w{i}": torch.randn(256, 256, generator=generator) for i in range(8)}


def _damage(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Flip single bits and cut files short; count what is refused, and what loads without a word."""
    import torch
    import torch.distributed.checkpoint as dcp

    from meshwright.errors import InputError
    from meshwright.train.checkpoint.manifest import Facts, read_manifest
    from meshwright.train.checkpoint.pieces import Piece, read_pieces
    from meshwright.train.checkpoint.saver import Saver

    tensors = _tensors()
    (place / "ours").mkdir()
    saver = Saver(place / "ours")
    saver.save(Facts(step=1), [Piece(n, tuple(t.shape), (0, 0), t) for n, t in tensors.items()])
    saver.finish()
    ours = place / "ours" / "step-00000001"

    def load_ours() -> str:
        into = [Piece(n, tuple(t.shape), (0, 0), torch.empty_like(t)) for n, t in tensors.items()]
        try:
            read_pieces(ours, read_manifest(ours), into)
        except InputError as error:
            return "refused, file named" if any(f.name in str(error) for f in ours.iterdir()) else "refused"
        return "loaded"

    theirs = place / "theirs"
    dcp.save(tensors, checkpoint_id=theirs, no_dist=True)

    def load_theirs() -> str:
        state = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
        try:
            dcp.load(state, checkpoint_id=theirs, no_dist=True)
        except Exception as error:
            return "refused, file named" if any(f.name in str(error) for f in theirs.iterdir()) else "refused"
        return "loaded" if all(torch.equal(state[n], tensors[n]) for n in tensors) else "loaded wrong"

    rows = []
    for system, folder, load in (("meshwright", ours, load_ours), ("DCP", theirs, load_theirs)):
        outcomes = [_damaged(folder, load, rng, cut=number >= count) for number in range(count + count // 10)]
        rows.append(
            {"fault": "bit flips and truncations", "system": system, "times": len(outcomes)} | _counted(outcomes)
        )
    return rows


def _damaged(folder: Path, load: Callable[[], str], rng: random.Random, *, cut: bool) -> str:
    file = rng.choices(files := sorted(folder.iterdir()), [f.stat().st_size for f in files])[0]
    whole = file.read_bytes()
    at = rng.randrange(len(whole))
    file.write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
    outcome = load()
    file.write_bytes(whole)
    return outcome


def _counted(outcomes: list[str]) -> dict[str, int]:
    return {name: outcomes.count(name) for name in ("refused, file named", "refused", "loaded", "loaded wrong")}


def _writer_kills(place: Path, count: int) -> list[Row]:
    """Kill a process that saves over the newest checkpoint of a run, at instants spread over the write."""
    import torch
    import torch.distributed.checkpoint as dcp

    from meshwright.train.checkpoint.folder import checkpoints
    from meshwright.train.checkpoint.manifest import Facts, read_manifest
    from meshwright.train.checkpoint.pieces import Piece, verify
    from meshwright.train.checkpoint.saver import Saver

    tensors = _tensors()
    pieces = [Piece(n, tuple(t.shape), (0, 0), t) for n, t in tensors.items()]
    ours, theirs = place / "writer-ours", place / "writer-theirs"
    ours.mkdir()

    def save_ours() -> None:
        steps = [int(path.name[5:]) for path in checkpoints(ours)]
        saver = Saver(ours, keep_last=2)
        saver.save(Facts(step=max(steps, default=0) + 1), pieces)
        saver.finish()

    def good_ours() -> bool:
        return all(verify(path, read_manifest(path)) for path in checkpoints(ours)) and bool(checkpoints(ours))

    def save_theirs() -> None:
        dcp.save(tensors, checkpoint_id=theirs, no_dist=True)

    def good_theirs() -> bool:
        state = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
        try:
            dcp.load(state, checkpoint_id=theirs, no_dist=True)
        except Exception:
            return False
        return all(torch.equal(state[n], tensors[n]) for n in tensors)

    rows = []
    for system, save, good in (("meshwright", save_ours, good_ours), ("DCP, same folder", save_theirs, good_theirs)):
        save()
        start = time.monotonic()
        save()
        whole_s = time.monotonic() - start
        left_good = 0
        for number in range(count):
            pid = os.fork()
            if pid == 0:
                try:
                    save()
                finally:
                    os._exit(0)
            time.sleep(1.2 * whole_s * number / count)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            left_good += good()
            if not good():
                save()
        rows.append({"fault": "writer killed", "system": system, "times": count, "a good one loads": left_good})
    return rows


def _junk(place: Path, corpus: str, count: int) -> Row:
    """Open junk connections to every port that a job listens on while it runs; compare its steps with those before."""
    folder, job = _begin(place / "junk", corpus, layout="dp=2,mbs=4", steps=1500, checkpoint_every=0)
    job.wait_until(lambda: steps_done(folder) > 500, timeout_s=300)
    ports = sorted(
        {
            c.laddr.port
            for process in job.members()
            for c in process.net_connections("tcp")
            if c.status == psutil.CONN_LISTEN
        }
    )
    first, rng = steps_done(folder), random.Random(0)
    connections = []
    for number in range(count):
        with socket.socket() as stranger:
            stranger.settimeout(1)
            try:
                stranger.connect(("127.0.0.1", ports[number % len(ports)]))
                stranger.sendall(rng.randbytes(rng.randrange(1, 2000)))
            except OSError:
                continue
            connections.append(number)
    last = steps_done(folder)
    code, _ = job.end(timeout_s=300)
    times = [row["step_time_s"] for row in folder.metric_rows()]
    quiet, busy = statistics.median(times[100:first]), statistics.median(times[first : max(last, first + 20)])
    return {
        "fault": "junk connections",
        "system": "meshwright",
        "times": len(connections),
        "ports": len(ports),
        "ended normally": code == 0,
        "step over quiet": round(busy / quiet, 3),
        "afterwards over quiet": round(statistics.median(times[last:]) / quiet, 3) if last < len(times) else None,
    }


def _soak(place: Path, corpus: str, rng: random.Random, steps: int) -> Row:
    """Run for long with a random fault about every 500 steps; watch memory and descriptors of rank 0."""
    folder, job = _begin(place / "soak", corpus, steps=steps, checkpoint_every=100)
    faults = 0
    seen: list[tuple[int, float, int, int]] = []  # pid, hours, bytes, descriptors
    start = time.monotonic()
    following = rng.randrange(250, 750)
    while job.process.poll() is None:
        done = steps_done(folder)
        if done and done >= following and done < steps - 200:
            rank = rng.randrange(RANKS)
            if rng.random() < 0.5:
                kill(folder, rank)
            else:
                kill(folder, rank, signal.SIGSTOP)
                time.sleep(2)
                kill(folder, rank, signal.SIGCONT)
            faults += 1
            following = done + rng.randrange(250, 750)
        try:
            process = psutil.Process(pid_of(folder, 0))
            hours = (time.monotonic() - start) / 3600
            seen.append((process.pid, hours, process.memory_info().rss, process.num_fds()))
        except (psutil.Error, OSError):
            pass
        time.sleep(1)
    code, _ = job.end(timeout_s=60)
    last = [entry for entry in seen if entry[0] == seen[-1][0]][20:]
    grown = (last[-1][2] - last[0][2]) / 2**20 if len(last) > 1 else 0.0
    hours = last[-1][1] - last[0][1] if len(last) > 1 else 0.0
    return {
        "fault": "soak",
        "system": "meshwright",
        "times": faults,
        "steps": steps_done(folder),
        "ended normally": code == 0,
        "memory MiB per hour": round(grown / hours, 2) if hours else None,
        "descriptors": sorted({entry[3] for entry in last}),
    }


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)
