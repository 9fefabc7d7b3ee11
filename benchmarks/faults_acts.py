"""How the campaign breaks a running job, and mends it: each kind of fault does one thing and notes what it did."""

import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import get_args

import msgspec

from benchmarks.faults_manifest import RANKS_PER_NODE, Fault, Kind
from benchmarks.faults_systems import System
from meshwright.cluster.emulation import Emulation
from meshwright.cluster.emulation.session import StartedJob

SLOWED = "20Mbps"  # a tenth of the NIC
DISK_BYTES = 96 * 2**20  # of the disk that the run folder is on, so that it can be filled
PATIENCE_S = 15.0  # for a target that is just starting again
OOM_S = 3.0  # for a rank without memory to ask for a page
FIRST_ENDED = "the first job had ended there, so that it could take over"
_MEMORY_V1, _MEMORY_V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class Done(msgspec.Struct, kw_only=True):
    """The ground truth of one fault: when it was done to what, and when it was mended."""

    fault: Fault
    begun_s: float = 0.0  # of the wall clock; 0: there was nothing to do it to
    ended_s: float = 0.0  # 0: for good
    step: int = 0  # steps done by then
    node: int = 0  # where the rank was
    starts: int = 0  # how often the job had been started by then
    whole: bool = True  # all ranks were there
    note: str = ""


def able() -> list[Kind]:
    """Return the kinds of fault that this machine lets us do."""
    lacks: set[Kind] = set()
    if os.geteuid():  # a disk of our own must be mounted, a clock and a cable are the emulation's
        lacks.add("full")
    if not _memory_cgroups():
        lacks.add("oom")
    return [kind for kind in get_args(Kind) if kind not in lacks]


def _memory_cgroups() -> Path | None:
    """Return the folder in which a group with a memory limit can be made, None where there is none."""
    for root, asked in ((_MEMORY_V1, "memory.limit_in_bytes"), (_MEMORY_V2, "memory.max")):
        probe = root / f"campaign-probe-{os.getpid()}"
        with contextlib.suppress(OSError):
            probe.mkdir()
            try:
                if (probe / asked).exists():
                    return root
            finally:
                probe.rmdir()
    return None


class Stage:
    """A job in its cluster, as faults see it."""

    def __init__(self, cluster: Emulation, system: System, seed: int) -> None:
        self.cluster, self.system = cluster, system
        self.rng = random.Random(f"acts {seed}")
        self.launchers: dict[int, int] = {}  # by node: the process that was started there, as this machine sees it
        self.spaces: dict[int, int] = {}  # by node: the inode of its process namespace
        self.extra: list[tuple[int, StartedJob, Done]] = []  # second jobs: node, job, and what was noted of it
        self.on_cables: dict[int, list[str]] = {}  # by node: what is done to its cable now, "cut" or "slow RATE"
        self.frozen: set[int] = set()  # process ids of the ranks that are stopped for good
        self.environment: dict[str, str] = {}

    def note_started(self, job: StartedJob) -> None:
        """Remember the launchers of a start, and by them the process namespaces of the nodes."""
        for program in self.cluster.status()["programs"]:
            if program["id"] in job.ids:
                node = int(program["node"].removeprefix("node"))
                self.launchers[node] = program["pid"]
                with contextlib.suppress(OSError):
                    self.spaces[node] = os.stat(f"/proc/{program['pid']}/ns/pid").st_ino

    def processes(self) -> Iterator[tuple[int, int]]:
        """Yield node and process of all that run in the nodes, except what keeps the nodes alive."""
        nodes = {space: node for node, space in self.spaces.items()}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    node = nodes.get(os.stat(f"/proc/{entry}/ns/pid").st_ino)
                    if node is not None and _inner_pid(int(entry)) != 1 and _state(int(entry)) != "Z":
                        yield node, int(entry)

    def find(self, rank: int) -> tuple[int, int] | None:
        """Return node and process of a rank, None where it does not run."""
        there = list(self.processes())
        if known := self.system.pids():
            places = [(node, pid) for node, pid in there if _inner_pid(pid) == known.get(rank)]
            wanted = f"node{rank // RANKS_PER_NODE}"
            return next((place for place in places if f"node{place[0]}" == wanted), None)
        marked = [(node, pid) for node, pid in there if _has_variable(pid, f"RANK={rank}")]
        pids = {pid for _, pid in marked}
        return next((place for place in marked if _parent(place[1]) not in pids), None)

    def note_seconds(self) -> None:
        """Note of second jobs whether the first ended before they did: then they may have the folder."""
        for node, job, done in self.extra:
            if None in job.codes() and _state(self.launchers[node]) == "Z":
                done.note = FIRST_ENDED

    def awaited(self, rank: int) -> tuple[int, int] | None:
        """Return node and process of a rank, waiting for it while it starts."""
        end = time.monotonic() + PATIENCE_S
        while (found := self.find(rank)) is None and time.monotonic() < end:
            time.sleep(0.05)
        return found


def act(stage: Stage, fault: Fault, starts: int) -> tuple[Done, Callable[[], None] | None]:
    """Do a fault; return what was done, and how to mend it where that is part of it."""
    done = Done(fault=fault, step=stage.system.rows(), node=fault.node, starts=starts)
    return done, _ACTS[fault.kind](stage, fault, done)


def _signal(stage: Stage, fault: Fault, done: Done) -> Callable[[], None] | None:
    assert fault.rank is not None
    place = stage.awaited(fault.rank)
    if place is None:
        done.note = "no such rank"
        return None
    done.node, pid = place
    number = signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP
    done.begun_s = time.time()
    _send(pid, number)
    if fault.kind == "freeze":
        stage.frozen.add(pid)
    return (lambda: None if pid in stage.frozen else _send(pid, signal.SIGCONT)) if fault.kind == "stop" else None


def _oom(stage: Stage, fault: Fault, done: Done) -> Callable[[], None] | None:
    """Put a rank into a cgroup that has no memory to give; the kernel ends it at the next page that it asks for."""
    assert fault.rank is not None
    root, place = _memory_cgroups(), stage.awaited(fault.rank)
    if root is None or place is None:
        done.note = "no such rank" if root else "no memory cgroups"
        return None
    done.node, pid = place
    group = root / f"campaign-{os.getpid()}-{stage.rng.getrandbits(32):08x}"
    group.mkdir()
    limit = group / ("memory.limit_in_bytes" if root == _MEMORY_V1 else "memory.max")
    limit.write_text("65536")
    done.begun_s = time.time()
    with contextlib.suppress(OSError):  # it has just ended
        (group / "cgroup.procs").write_text(str(pid))

    def remove() -> None:
        _send(pid, signal.SIGKILL)  # where it never asked for a page: a fault that was not done
        for _ in range(200):
            with contextlib.suppress(OSError):
                group.rmdir()
                return
            time.sleep(0.05)

    end = time.monotonic() + OOM_S
    while os.path.exists(f"/proc/{pid}") and _state(pid) != "Z" and time.monotonic() < end:
        time.sleep(0.02)
    if time.monotonic() > end:  # it waits for another, say: it is now that it bites
        done.begun_s, done.note = time.time(), "asked for no page, killed"
    remove()
    return None


def _link(stage: Stage, fault: Fault, done: Done) -> Callable[[], None]:
    """Cut the cable of a node or slow it; where faults of one cable overlap, the end of one does not mend another."""
    node, what = f"node{fault.node}", f"slow {SLOWED}" if fault.kind == "slow" else "cut"
    active = stage.on_cables.setdefault(fault.node, [])

    def do(what: str) -> None:
        verb, *rate = what.split()
        stage.cluster.fault(" ".join([verb, node, *rate]))

    def mend() -> None:
        active.remove(what)
        if "cut" in active:
            do(f"slow {stage.cluster.spec.nic_bytes_per_s}B/s" if active.count("cut") == len(active) else "cut")
        else:
            do("restore")
            for other in active:
                do(other)

    active.append(what)
    do(what)
    done.begun_s = time.time()
    return mend


def _full(stage: Stage, fault: Fault, done: Done) -> Callable[[], None]:
    """Write a file until the disk of the run folder has no room."""
    ballast = stage.system.path.parent / "ballast"
    done.begun_s = time.time()
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return lambda: ballast.unlink(missing_ok=True)


def _gone(stage: Stage, fault: Fault, done: Done) -> Callable[[], None] | None:
    """Move the checkpoints away, and back; what the job has made in their place meanwhile is kept among them."""
    kept, aside = stage.system.kept, stage.system.path.parent / "aside"
    aside.mkdir()
    moved = [*kept.glob("step-*")] if kept == stage.system.path else [kept]
    if not moved:
        done.note = "no checkpoint yet"
        aside.rmdir()
        return None
    done.begun_s = time.time()
    for path in moved:
        path.rename(aside / path.name)

    def back() -> None:
        for path in moved:
            if path.exists() and path == kept:  # made anew meanwhile: what is newer goes to what was there
                for inner in path.iterdir():
                    with contextlib.suppress(OSError):  # both have it
                        inner.rename(aside / path.name / inner.name)
                shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                (aside / path.name).rename(path)
        with contextlib.suppress(OSError):
            aside.rmdir()

    return back


def _damage(stage: Stage, fault: Fault, done: Done) -> None:
    """Take a byte off the newest checkpoint's data, or flip a bit of it."""
    end = time.monotonic() + PATIENCE_S
    while not (saved := stage.system.saved()) and time.monotonic() < end:
        time.sleep(0.05)
    if not saved:
        done.note = "no checkpoint yet"
        return
    files = [path for path in saved[-1].rglob("*") if path.is_file()] if saved[-1].is_dir() else [saved[-1]]
    data = max(files, key=lambda path: path.stat().st_size)
    size = data.stat().st_size
    with data.open("r+b") as file:
        if fault.flips:
            at = stage.rng.randrange(size // 2, size)
            file.seek(at)
            byte = file.read(1)[0] ^ 1 << stage.rng.randrange(8)
            file.seek(at)
            file.write(bytes([byte]))
        else:
            file.truncate(size - 1)
    done.begun_s, done.note = time.time(), saved[-1].name


def _launcher(stage: Stage, fault: Fault, done: Done) -> None:
    done.begun_s = time.time()
    if not _send(stage.launchers[fault.node], signal.SIGKILL):
        done.begun_s, done.note = 0.0, "it had ended"


def _second(stage: Stage, fault: Fault, done: Done) -> None:
    done.begun_s = time.time()
    job = stage.cluster.start_on(fault.node, stage.system.command(), env=stage.environment)
    stage.extra.append((fault.node, job, done))
    stage.note_seconds()


def _strangers(stage: Stage, fault: Fault, done: Done) -> Callable[[], None]:
    program = str(Path(__file__).with_name("faults_junk.py"))
    done.begun_s = time.time()
    job = stage.cluster.start_on(fault.node, [sys.executable, program, str(fault.for_s)])

    def count() -> None:
        with contextlib.suppress(TimeoutError):
            job.wait(timeout_s=30.0)
        done.note = f"{job.stdout(0).strip() or 0} connections"

    return count


def _clock(stage: Stage, fault: Fault, done: Done) -> None:
    done.begun_s = 1.0  # from before the start


_ACTS: Mapping[Kind, Callable[[Stage, Fault, Done], Callable[[], None] | None]] = {
    "kill": _signal,
    "stop": _signal,
    "freeze": _signal,
    "oom": _oom,
    "cut": _link,
    "slow": _link,
    "partition": _link,
    "full": _full,
    "gone": _gone,
    "clock": _clock,
    "damage": _damage,
    "launcher": _launcher,
    "second": _second,
    "strangers": _strangers,
}


def _send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _inner_pid(pid: int) -> int:
    """Return the number that a process has in its own namespace, -1 where it has gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return -1
    return int(next(line for line in text.splitlines() if line.startswith("NSpid:")).split()[-1])


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _has_variable(pid: int, variable: str) -> bool:
    try:
        return variable.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
