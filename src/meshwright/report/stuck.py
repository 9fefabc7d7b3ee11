"""Why a run hangs: which rank is stuck, in which collective, at which sequence number, and who has not arrived.

Asks the ranks that still live on this machine for their stacks and for their flight records (`flight-<rank>.json` in
the run's folder or in `flight/` below it), and reads those that the ranks of backend "meshwright" wrote when they
waited in vain.
"""

import operator
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from ..cluster.doctor.stacks import RankProcess, ask
from ..errors import InputError
from ..files import read_text
from ..units import format_bytes, format_time

APART_S = 1.0  # between two looks at live ranks
ANSWER_S = 2.0  # for the record of a rank that has answered with its stack
_STATES = {
    "T": "is stopped (SIGSTOP, or a debugger)",
    "t": "is stopped by a debugger",
    "Z": "has ended",
    "D": "waits for a device or a file system",
}


class Call(msgspec.Struct, frozen=True):
    """One collective of one rank, as its record has it; it began at `started_s` of the machine's monotonic clock."""

    sequence: int
    operation: str
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    ended: bool
    started_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.operation} #{self.sequence} of {format_bytes(self.size_bytes)}"


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank wrote of one of its groups: its last calls, and the last step that it saw every rank enter."""

    name: str
    description: str = ""
    arrivals: dict[int, int] = {}
    flights: tuple[Call, ...] = ()


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The flight record of one rank."""

    rank: int
    pid: int = 0
    reason: str = ""
    written_s: float = 0.0  # of the machine's monotonic clock
    groups: tuple[GroupRecord, ...] = ()

    def lasts(self) -> dict[str, Call]:
        """Return the last collective that the rank began in each group."""
        last = operator.attrgetter("sequence")
        return {group.name: max(group.flights, key=last) for group in self.groups if group.flights}


class StuckRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank that the others wait for."""

    rank: int
    group: str
    why: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One collective and the ranks that wait in it, the longest of them for `waited_s`."""

    call: str
    group: str
    ranks: tuple[int, ...]
    waited_s: float

    def __str__(self) -> str:
        verb = "waits" if len(self.ranks) == 1 else "wait"
        since = f" for {format_time(self.waited_s)}" if self.waited_s else ""
        return f"{_ranks(self.ranks)} {verb} in {self.call}{since}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a run that hangs, or goes on."""

    stuck: tuple[StuckRank, ...]
    waiting: tuple[Waiting, ...]
    reasons: dict[int, str]  # what each rank gave as its reason
    moving: dict[int, str] = {}  # the ranks that made other calls when they were asked again, and the last of those
    processes: tuple[RankProcess, ...] = ()

    def __str__(self) -> str:
        """Print it for a person: who is stuck, who waits, what each rank said, stacks last."""
        lines = [f"rank {stuck.rank} is stuck: {stuck.why}" for stuck in self.stuck]
        lines += map(str, self.waiting)
        lines += [f"rank {rank} goes on: {call}" for rank, call in sorted(self.moving.items())]
        lines += [f"rank {rank} says: {reason}" for rank, reason in sorted(self.reasons.items()) if reason]
        if not self.stuck:
            known = (
                "no rank is stuck" if self.reasons else "no rank is known to be stuck: none recorded its collectives"
            )
            lines.insert(0, known)
        for process in self.processes:
            where = f", in the kernel's {process.waits_in}" if process.waits_in else ""
            lines.append(f"rank {process.rank} (pid {process.pid}, state {process.state}{where}):")
            lines += [f"    {line}" for line in (process.stack or "did not answer with its stack").splitlines()]
        return "\n".join(lines)


def read_records(run_folder: Path) -> list[Record]:
    """Return the flight records of a run, one a rank."""
    if not run_folder.is_dir():
        raise InputError(f"{run_folder}: no such folder; expected the folder of a run")
    records = []
    if (run_folder / "flight").is_symlink():
        raise InputError(f"{run_folder / 'flight'}: is a link, expected the folder that the ranks of a run make")
    for path in sorted([*run_folder.glob("flight-*.json"), *run_folder.glob("flight/flight-*.json")]):
        if path.is_symlink():
            raise InputError(f"{path}: is a link, expected the record that a rank writes")
        try:
            records.append(msgspec.json.decode(read_text(path), type=Record))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InputError(f"{path}: {error}") from None
    return records


def look_at(run_folder: Path, *, apart_s: float = APART_S) -> Verdict:
    """Return what the records and the live ranks of a run tell; InputError if there are neither.

    Live ranks are asked twice, `apart_s` seconds apart: one that makes other calls the second time is not stuck.
    """
    records, processes = _ask(run_folder)
    if not records and not processes:
        raise InputError(
            f"{run_folder}: no flight record and no live rank; expected flight-*.json (written when a rank waits in"
            " vain) or a run that is still running on this machine"
        )
    if not processes:
        return explain(records)
    time.sleep(apart_s)
    before = {record.rank: record.lasts() for record in records}
    records, processes = _ask(run_folder)
    return explain(records, processes, before)


def explain(
    records: Sequence[Record],
    processes: Sequence[RankProcess] = (),
    before: Mapping[int, Mapping[str, Call]] | None = None,
) -> Verdict:
    """Return who is stuck: by the records of each group, and by the state of the processes.

    `before` are the last calls of each rank a moment ago, by group: a group in which one has changed goes on.
    """
    lives = {process.rank: process for process in processes}
    lasts = {record.rank: record.lasts() for record in records}
    moved = {
        (rank, name)
        for rank, calls in (before or {}).items()
        for name in calls
        if rank in lasts and lasts[rank].get(name) != calls[name]
    }
    found: list[StuckRank] = []
    waiting: list[Waiting] = []
    names = dict.fromkeys(name for calls in lasts.values() for name in calls)
    for name in names:
        if all(name != other for _, other in moved):
            late, front = _late(records, name, lives, several=len(names) > 1)
            found += late
            waiting += front
    stuck = _first_causes(found, waiting)
    named = {rank.rank for rank in stuck}
    stuck += [
        StuckRank(rank=process.rank, group="", why=_fate(process))
        for process in processes
        if process.state in _STATES and process.rank not in named
    ]
    return Verdict(
        stuck=tuple(stuck),
        waiting=tuple(waiting),
        reasons={record.rank: record.reason for record in records},
        moving={rank: str(lasts[rank][name]) for rank, name in sorted(moved) if name in lasts[rank]},
        processes=tuple(processes),
    )


def _ask(run_folder: Path) -> tuple[list[Record], list[RankProcess]]:
    """Ask the live ranks, and return the records of the run and those ranks.

    A record of a rank that lives now as another process is of an earlier attempt and left out.
    """
    read_records(run_folder)  # says what is wrong with the folder, before anybody is disturbed
    asked_s = time.monotonic()
    processes = ask(run_folder)
    pids = {process.rank: process.pid for process in processes}
    answering = {process.rank for process in processes if process.stack}
    while True:
        records = [r for r in read_records(run_folder) if pids.get(r.rank, r.pid) == r.pid]
        late = answering - {record.rank for record in records if record.written_s >= asked_s}
        if not late or time.monotonic() > asked_s + ANSWER_S:
            return records, processes
        time.sleep(0.02)


def _late(
    records: Sequence[Record], name: str, lives: Mapping[int, RankProcess], *, several: bool
) -> tuple[list[StuckRank], list[Waiting]]:
    """Return who keeps the others of a group waiting, and who waits in what."""
    begun = {record.rank: calls[name] for record in records if name in (calls := record.lasts())}
    front = max(call.sequence for call in begun.values())
    at_front = {rank: call for rank, call in begun.items() if call.sequence == front and not call.ended}
    if not at_front:
        return [], []
    arrivals = [group.arrivals for record in records for group in record.groups if group.name == name]
    (usual, _), *_ = Counter((call.operation, call.size_bytes) for call in at_front.values()).most_common(1)
    expected = Call(front, usual[0], usual[1], ended=False)
    described = next(g.description or name for r in records for g in r.groups if g.name == name)
    where = f" (group {described})" if several else ""
    found = []
    for rank in sorted({*begun, *(rank for seen in arrivals for rank in seen)}):
        why = _why(rank, begun.get(rank), expected, arrivals, lives)
        if why:
            found.append(StuckRank(rank=rank, group=name, why=f"{why}{where}"))
    ranks = tuple(sorted(at_front.keys() - {stuck.rank for stuck in found}))
    written = {record.rank: record.written_s for record in records}
    waited_s = max(
        (written[rank] - at_front[rank].started_s for rank in ranks if at_front[rank].started_s), default=0.0
    )
    return found, [Waiting(call=f"{expected}{where}", group=name, ranks=ranks, waited_s=waited_s)] if ranks else []


def _first_causes(found: Sequence[StuckRank], waiting: Sequence[Waiting]) -> list[StuckRank]:
    """Return the ranks that do not only wait in another group for one that is late there; all of them in a circle."""
    late = {stuck.group for stuck in found}
    excused = {rank for group in waiting if group.group in late for rank in group.ranks}
    return [stuck for stuck in found if stuck.rank not in excused] or list(found)


def _why(
    rank: int,
    last: Call | None,
    expected: Call,
    arrivals: Sequence[Mapping[int, int]],
    lives: Mapping[int, RankProcess],
) -> str:
    """Return what is wrong with one rank, or "" if it waits like the others."""
    if last is None:
        seen = [steps for steps in arrivals if rank in steps]
        step, furthest = max(steps[rank] for steps in seen), max(max(steps.values()) for steps in seen)
        if step >= furthest:
            return ""
        fate = _fate(lives[rank]) if rank in lives else "it has ended, or runs on another machine"
        return f"has not arrived at {expected} (step {step} of {furthest}) and left no record: {fate}"
    if last.sequence < expected.sequence:
        doing = f"{last} has ended, the next has not begun" if last.ended else f"it is still in {last}"
        return f"has not arrived at {expected}: {doing}"
    if (last.operation, last.size_bytes) != (expected.operation, expected.size_bytes):
        return f"is in {last}, where the others are in {expected}: the ranks do not make the same calls"
    return f"has left {expected}, which the others are still in" if last.ended else ""


def _fate(process: RankProcess) -> str:
    return f"pid {process.pid} {_STATES.get(process.state, 'lives')}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks))}"
