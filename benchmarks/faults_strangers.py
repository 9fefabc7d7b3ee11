"""A job of each mode under a flood of strangers at every port that it listens on, with 1,024 descriptors a process.

Five kinds in turn: idle, junk, slow (a byte now and then), oversize (a head that announces far more than it may), and
replayed (a greeting of somebody who knew the secret, heard before). The same job runs undisturbed beside it. In
local_sgd and diloco workers take shares by their pace, so that two runs of several need not be equal: there the ranks
are an island, one worker, which also exchanges its weights with the server but has nobody to race with, and waits for
each exchange, since how far it trains on meanwhile is a matter of pace as well.
"""

import contextlib
import random
import signal
import socket
import struct
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks.faults_rig import ENVIRONMENT, PATIENCE_S, Row
from meshwright.handshake import CHALLENGE_BYTES, prove
from meshwright.layout import Layout
from meshwright.parallel.asynchronous.connection import CHECK, HEADER
from meshwright.train.asynchronous.meeting import find_servers
from meshwright.train.job.config import DataParallelConfig
from meshwright.train.run.run_folder import RunFolder
from testkit.fault_jobs import Job, steps_done
from testkit.train_jobs import losses, small_job, write_corpus, write_run

RANKS, STEPS, QUIET_STEPS = 2, 1_000_000, 50
DESCRIPTORS = 1024
HELD = {"idle": 600, "slow": 300, "replayed": 100}  # connections of these kinds that are open at a time
LOOK_EVERY = 500  # connections, before memory and descriptors are looked at again
MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    "parameter_server": {"mode": "parameter_server", "staleness": 0},
    "local_sgd": {"mode": "local_sgd", "sync_every": 5, "stream": False, "island": RANKS},
    "diloco": {"mode": "diloco", "sync_every": 5, "stream": False, "island": RANKS},
}


def strangers(place: Path, rng: random.Random, count: int) -> list[Row]:
    """Flood a job of each mode with strangers, one mode after the other."""
    corpus = write_corpus(place)
    return [_flooded(place, corpus, rng, mode, count) for mode in MODES]


def _flooded(place: Path, corpus: str, rng: random.Random, mode: str, count: int) -> Row:
    folder, job = _begin(place / mode, corpus, mode)
    quiet, alone = _begin(place / f"{mode}-alone", corpus, mode)
    job.wait_until(lambda: steps_done(folder) > QUIET_STEPS, PATIENCE_S)
    flood = Flood(folder, job, rng)
    first = steps_done(folder)
    flood.run(count)
    meanwhile = steps_done(folder) - first
    code = _stopped(job)
    found = losses(folder)
    alone.wait_until(lambda: steps_done(quiet) > len(found), PATIENCE_S)
    _stopped(alone)
    return {
        "fault": "strangers: idle, junk, slow, oversize, replayed",
        "system": mode,
        "times": flood.made,
        "let in": flood.let_in,
        "ports": len(flood.keys),
        "seconds": round(flood.took_s),
        "steps meanwhile": meanwhile,
        "losses equal": losses(quiet)[: len(found)] == found,
        "memory_MiB": round(flood.grown_bytes / 2**20, 2),
        f"most descriptors of {DESCRIPTORS}": flood.most_descriptors,
        "ranks failed or left": _failures(folder),
        "stopped normally": code == 130,
    }


def _begin(path: Path, corpus: str, mode: str) -> tuple[RunFolder, Job]:
    config = small_job(corpus, steps=STEPS, checkpoint_every=100, validate_every=10**6, record=False)
    launch = msgspec.structs.replace(config.launch, max_restarts=0)
    split = DataParallelConfig(**({"silence_s": 60.0} | MODES[mode] if MODES[mode] else {}))
    config = msgspec.structs.replace(config, launch=launch, data_parallel=split)
    folder = write_run(path, config, Layout(dp=RANKS, mbs=2))
    environment = ENVIRONMENT | {"XDG_CACHE_HOME": str(path.parent / "cache")}
    return folder, Job(["--resume", str(path)], environment, ("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"))


def _stopped(job: Job) -> int:
    """Tell a job to save and leave; return its exit code."""
    job.process.send_signal(signal.SIGTERM)
    return job.end(PATIENCE_S)[0]


def _failures(folder: RunFolder) -> int:
    text = "".join(path.read_text() for path in folder.events.glob("*.jsonl"))
    return sum('"failure"' in line or '"restart"' in line or '"left"' in line for line in text.splitlines())


class Flood:
    """Strangers at all ports of a job, and what its listening processes hold meanwhile."""

    def __init__(self, folder: RunFolder, job: Job, rng: random.Random) -> None:
        self._rng = rng
        secret = folder.secret()
        if folder.servers.exists():
            secret = find_servers(folder.servers, 1, 1.0)[0].word.encode()
        self.keys: dict[int, bytes] = {}  # by port: a greeting that was heard there
        self._listeners: list[psutil.Process] = []
        for process in job.members():
            ports = [c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
            self.keys |= {port: _heard(port, secret) for port in ports}
            self._listeners += [process] if ports else []
        self._before = {process.pid: process.memory_info().rss for process in self._listeners}
        self._held: dict[str, deque[socket.socket]] = {kind: deque() for kind in HELD}
        self.made, self.let_in, self.grown_bytes, self.most_descriptors, self.took_s = 0, 0, 0, 0, 0.0

    def run(self, count: int) -> None:
        """Send strangers, the same number of each kind to each port."""
        begin_s = time.monotonic()
        ports = sorted(self.keys)
        kinds = (self._idle, self._junk, self._slow, self._oversize, self._replayed)
        for number in range(count):
            with contextlib.suppress(OSError):  # it was let go, which is what is asked for
                port = ports[number // len(kinds) % len(ports)]
                stranger = socket.socket()
                stranger.settimeout(5)
                stranger.connect(("127.0.0.1", port))
                self.made += 1
                kinds[number % len(kinds)](stranger, port)
            if number % LOOK_EVERY == 0:
                self._look()
        self._look()
        self.took_s = time.monotonic() - begin_s
        for held in self._held.values():
            for stranger in held:
                with stranger:
                    self.let_in += self._is_let_in(stranger)

    def _look(self) -> None:
        for process in self._listeners:
            self.grown_bytes = max(self.grown_bytes, process.memory_info().rss - self._before[process.pid])
            self.most_descriptors = max(self.most_descriptors, process.num_fds())

    def _keep(self, kind: str, stranger: socket.socket) -> None:
        held = self._held[kind]
        held.append(stranger)
        if len(held) > HELD[kind]:
            with held.popleft() as oldest:
                self.let_in += self._is_let_in(oldest)

    def _is_let_in(self, stranger: socket.socket) -> bool:
        """Return whether a stranger got more than the challenge: a seal, which only those get who are let in."""
        stranger.setblocking(False)
        got = b""
        with contextlib.suppress(OSError):  # nothing is there, or it was let go
            while data := stranger.recv(4096):
                got += data
        return len(got) > CHALLENGE_BYTES

    def _idle(self, stranger: socket.socket, _port: int) -> None:
        self._keep("idle", stranger)

    def _junk(self, stranger: socket.socket, _port: int) -> None:
        with stranger:
            stranger.sendall(self._rng.randbytes(self._rng.randrange(1, 2000)))

    def _slow(self, stranger: socket.socket, _port: int) -> None:
        self._keep("slow", stranger)
        for held in list(self._held["slow"])[::50]:
            with contextlib.suppress(OSError):  # it was let go
                held.send(b"x")

    def _oversize(self, stranger: socket.socket, _port: int) -> None:
        with stranger:
            head = self._rng.choice([struct.pack(">I", 2**32 - 1), HEADER.pack(CHECK, 2**26, 2**40)])
            stranger.sendall(head + b" " * 2**16)

    def _replayed(self, stranger: socket.socket, port: int) -> None:
        stranger.sendall(self.keys[port])
        self._keep("replayed", stranger)


class _Tap:
    """A connection that keeps what was sent over it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.sent = b""

    def sendall(self, data: bytes) -> None:
        self.sent += data
        self._connection.sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _heard(port: int, secret: bytes) -> bytes:
    """Return the greeting of somebody who was let in at a port."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        tap: Any = _Tap(connection)
        prove(tap, secret, time.monotonic() + 5)
        return bytes(tap.sent)
