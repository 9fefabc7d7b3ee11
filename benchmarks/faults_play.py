"""One scenario of the campaign from its first start to its end, with an operator who starts again what has ended."""

import bisect
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.faults_acts import DISK_BYTES, FIRST_ENDED, Done, Stage, act
from benchmarks.faults_manifest import NODES, RANKS_PER_NODE, Fault, Scenario
from benchmarks.faults_systems import STEPS, Named, System
from meshwright.cluster.emulation import Emulation, EmulationSpec
from meshwright.cluster.emulation.session import StartedJob

NIC_BYTES_PER_S = 25e6
STUCK_S = 120.0  # without a step, an end of a node or a fault: that is a hang
PATIENCE_S = 600.0  # for a scenario
MOST_STARTS = 6
LEAVE_S = 35.0  # for ranks whose launcher was killed to save and leave
LOOK_S, LOOK_AT_DISK_S = 0.03, 0.5
FROZEN_S = 8.0  # a look that takes so much longer: somebody stopped all of us
CACHE = "cache"  # of all scenarios, beside their folders
WAS = "was"  # the run folder without its checkpoints, once the disk has gone
Begin = Callable[[Emulation, Path], System]


@dataclass
class Played:
    """What became of a job, and what was done to it."""

    truth: list[Done] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)
    named: list[Named] = field(default_factory=list)
    codes: list[tuple[int | None, ...]] = field(default_factory=list)  # of each start
    ends_s: list[float] = field(default_factory=list)  # wall clock: a life was seen to be over
    resumed: list[tuple[int, int]] = field(default_factory=list)  # step gone on from, newest whole checkpoint then
    rows: list[tuple[float, int]] = field(default_factory=list)  # wall clock and steps done
    second: list[tuple[int | None, str]] = field(default_factory=list)  # exit code and last words of second jobs
    texts: list[tuple[int, str]] = field(default_factory=list)  # node and all that it printed
    hangs: int = 0
    was_frozen: bool = False  # we ourselves stood still: what followed says nothing of the job
    set_aside: int = 0
    orphans: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all steps are done and a node ended well."""
        return len(self.losses) == STEPS and bool(self.codes) and 0 in self.codes[-1]

    @property
    def took_s(self) -> float:
        """Return the seconds from the first step to the last."""
        first = next((time_s for time_s, rows in self.rows if rows), 0.0)
        last = next((time_s for time_s, rows in self.rows if rows >= STEPS), 0.0)
        return last - first if first and last else float("inf")

    def life(self, time_s: float) -> int:
        """Return in which life of the job a moment was."""
        return bisect.bisect_left(self.ends_s, time_s)


def play(begin: Begin, scenario: Scenario, place: Path) -> Played:
    """Play a scenario on a cluster of its own, in an empty folder."""
    spec = EmulationSpec(nodes=NODES, ranks_per_node=RANKS_PER_NODE, nic_bytes_per_s=NIC_BYTES_PER_S)
    temporary = place / "tmp"
    temporary.mkdir()
    with disk(place / "disk") as where:
        with Emulation(spec) as cluster:
            system = begin(cluster, where)
            stage = Stage(cluster, system, scenario.seed)
            stage.environment = environment_of(place)
            played = _Player(stage, scenario).run()
        shutil.copytree(system.path, place / WAS, ignore=_bulky, symlinks=True)
        (place / WAS / "said").write_text("".join(f"---- node{node}\n{text}\n" for node, text in played.texts))
        played.leftovers += sorted(path.name for path in temporary.iterdir())
        hidden = list(system.kept.glob(".*")) if system.kept.exists() else []
        locks = list(system.path.glob("*lock*")) + list(system.path.glob(".heir*"))
        played.leftovers += sorted(path.name for path in [*hidden, *locks])
    return played


def environment_of(place: Path) -> dict[str, str]:
    """Return the variables of the processes of a scenario that is played in a folder."""
    return {
        **{"OMP_NUM_THREADS": "1", "TMPDIR": str(place / "tmp")},
        **{"XDG_CACHE_HOME": str(place.parent / CACHE), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    }


def no_sockets(folder: str, names: list[str]) -> list[str]:
    """Return what of a folder cannot be copied."""
    return [name for name in names if not ((path := Path(folder, name)).is_file() or path.is_dir())]


def _bulky(folder: str, names: list[str]) -> list[str]:
    """Return what of a run folder is not kept: checkpoints, and what cannot be copied."""
    return [*no_sockets(folder, names), *(name for name in names if "step-" in name)]


@contextlib.contextmanager
def disk(path: Path) -> Iterator[Path]:
    """Give a folder for the run: on a small disk of its own in memory, which others do not keep busy, if we may."""
    path.mkdir()
    if os.geteuid():
        yield path
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "campaign", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


class _Player:
    """Does the faults in their time, mends them, and starts the job again when all of its nodes have ended."""

    def __init__(self, stage: Stage, scenario: Scenario) -> None:
        self._stage, self._scenario, self._system = stage, scenario, stage.system
        self._played = Played()
        self._coming: list[Fault] = list(scenario.faults)
        self._mends: list[tuple[float, Done, Callable[[], None]]] = []
        self._begun: float | None = None  # monotonic: the step at which the faults begin was done
        self._rows, self._saved, self._looked = 0, 0, 0.0
        self._moved = self._started = time.monotonic()

    def run(self) -> Played:
        """Run to the end of the job, or of our patience."""
        self._do([fault for fault in self._coming if fault.kind == "clock"])
        job = self._start()
        try:
            while not self._played.was_frozen and not self._is_over(job):
                self._look()
                self._faults()
                if None not in self._codes(job) and not self._mends:
                    self._note_end(job)
                    job = self._start()
                self._pause()
        finally:
            for _, done, mend in self._mends:
                mend()
                done.ended_s = time.time()
        if not self._played.was_frozen:
            self._look()
            self._conclude(job)
        return self._played

    def _pause(self) -> None:
        before = time.monotonic()
        time.sleep(LOOK_S)
        if time.monotonic() - before > FROZEN_S:
            self._played.was_frozen = True

    def _start(self) -> StartedJob:
        job = self._system.start(self._stage.cluster, self._stage.environment)
        self._stage.note_started(job)
        self._moved = time.monotonic()
        return job

    def _is_over(self, job: StartedJob) -> bool:
        """Return whether the job has done its steps and ended, or will not; one that hangs is killed."""
        played, now = self._played, time.monotonic()
        codes = self._codes(job)
        ended = None not in codes
        if ended and 0 in codes and len(self._system.losses()) == STEPS:
            return True
        if now - self._started > PATIENCE_S:
            played.hangs += 1
            self._kill_all()
            return True
        if not ended and not self._mends and now - self._moved > STUCK_S:
            played.hangs += 1
            self._kill_all()
            self._moved = now
        return ended and not self._mends and len(played.codes) + 1 >= MOST_STARTS

    def _kill_all(self) -> None:
        for _, pid in self._stage.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _look(self) -> None:
        """Note steps, checkpoints, and that a life has ended and another goes on from a step before."""
        rows, now = self._system.rows(), time.monotonic()
        self._stage.note_seconds()
        if rows < self._rows:
            self._look_at_disk()  # what was damaged has been set aside by now
            self._played.resumed.append((rows, self._saved))
            self._played.ends_s.append(time.time())
        if rows != self._rows:
            self._played.rows.append((time.time(), rows))
            self._rows, self._moved = rows, now
        if now - self._looked > LOOK_AT_DISK_S:
            self._look_at_disk()
        if self._begun is None and rows > self._scenario.at_step:
            self._begun = now

    def _look_at_disk(self) -> None:
        self._looked = time.monotonic()
        saved = [int(path.name.removeprefix("step-")) for path in self._system.saved()]
        self._saved = max(saved, default=0)

    def _codes(self, job: StartedJob) -> tuple[int | None, ...]:
        """Return the exit codes of the nodes, and of second jobs that could take over."""
        heirs = (extra.codes()[0] for _, extra, done in self._stage.extra if done.note == FIRST_ENDED)
        return (*job.codes(), *heirs)

    def _faults(self) -> None:
        now = time.monotonic()
        if self._begun is not None:
            self._do([fault for fault in self._coming if self._begun + fault.after_s <= now])
        for due in [mend for mend in self._mends if mend[0] <= now]:
            due[2]()
            due[1].ended_s = time.time()
            self._mends.remove(due)
            self._moved = time.monotonic()

    def _do(self, faults: list[Fault]) -> None:
        for fault in faults:
            self._coming.remove(fault)
            whole = all(self._stage.find(rank) for rank in range(NODES * RANKS_PER_NODE))
            done, mend = act(self._stage, fault, len(self._played.codes))
            done.whole = whole
            self._played.truth.append(done)
            if mend is not None:
                self._mends.append((time.monotonic() + fault.for_s, done, mend))
            self._moved = time.monotonic()
            if fault.kind == "damage":
                self._saved = 0  # what is whole is one less; the next look says what is left

    def _note_end(self, job: StartedJob) -> None:
        played = self._played
        played.codes.append(self._codes(job))
        played.ends_s.append(time.time())
        played.texts += [(node, job.stdout(node) + job.stderr(node)) for node in range(NODES)]

    def _conclude(self, job: StartedJob) -> None:
        self._note_end(job)
        played, stage, system = self._played, self._stage, self._system
        for node, extra, _ in stage.extra:
            with contextlib.suppress(TimeoutError):
                extra.wait(timeout_s=5.0)
            text = extra.stdout(0) + extra.stderr(0)
            played.second.append((extra.codes()[0], text.strip().rpartition("\n")[2][:300]))
            played.texts.append((node, text))
        self._kill_second()
        end = time.monotonic() + LEAVE_S
        while (left := list(stage.processes())) and time.monotonic() < end:
            time.sleep(0.2)
        played.orphans = [_command(pid) for _, pid in left]
        played.losses, played.set_aside = system.losses(), system.set_aside()
        addresses = [stage.cluster.address(node) for node in range(NODES)]
        played.named = system.named(played.texts, addresses)

    def _kill_second(self) -> None:
        """End second jobs that wait on: a person would; that they did is in their exit code, which is missing."""
        for _, extra, _ in self._stage.extra:
            if None in extra.codes():
                extra.send_signal(signal.SIGKILL)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    except OSError:
        return ""
