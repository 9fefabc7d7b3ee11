"""Why a run hangs: which rank is stuck, in which collective, at which sequence number, and who has not arrived.

Who is stuck is told by `waits`, as for the records and logs of any other job; here are the ranks that still live.

Asks the ranks that still live on this machine for their stacks and for their flight records (`flight-<rank>.json` in
the run's folder or in `flight/` below it), and reads the records that ranks of backend "meshwright" wrote when they
timed out.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ..cluster.doctor.stacks import RankProcess, ranks_with_stacks
from ..errors import InputError
from ..files import read_text
from ..units import format_time
from .flight_records.flight import our_groups
from .flight_records.records import RankFlight, RecordedCall
from .nouns.position import HangPosition
from .nouns.where import Where
from .positions.waits import judged

APART_S = 1.0  # between two looks at live ranks
ANSWER_S = 2.0  # for the record of a rank that has answered with its stack
_STATES = {
    "T": "is stopped (SIGSTOP, or a debugger)",
    "t": "is stopped by a debugger",
    "Z": "has ended",
    "D": "waits for a device or a file system",
}
Begun = Sequence[tuple[int, RecordedCall]]  # the last call of each rank in a group


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


class LiveVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Knowledge about a run that hangs, or goes on."""

    stuck: tuple[StuckRank, ...]
    waiting: tuple[Waiting, ...]
    reasons: dict[int, str]  # what each rank gave as its reason
    moving: dict[int, str] = {}  # the ranks that made other calls when they were asked again, and the last of those
    processes: tuple[RankProcess, ...] = ()
    unsure: str = ""  # how the calls disagree where none of the ranks can be named

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
            lines.insert(0, f"which rank is stuck cannot be told: {self.unsure}" if self.unsure else known)
        for process in self.processes:
            where = f", in the kernel's {process.waits_in}" if process.waits_in else ""
            lines.append(f"rank {process.rank} (pid {process.pid}, state {process.state}{where}):")
            lines += [f"    {line}" for line in (process.stack or "did not answer with its stack").splitlines()]
        return "\n".join(lines)


def read_records(run_folder: Path) -> list[RankFlight]:
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
            records.append(msgspec.json.decode(read_text(path), type=RankFlight))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InputError(f"{path}: {error}") from None
    return records


def look_at(run_folder: Path, *, apart_s: float = APART_S) -> LiveVerdict:
    """Return what the records and the live ranks of a run tell; InputError if there are neither.

    Live ranks are asked twice, `apart_s` seconds apart: one that makes other calls the second time is not stuck.
    """
    records, processes = _ask(run_folder)
    if not records and not processes:
        raise InputError(
            f"{run_folder}: no flight record and no live rank; expected flight-*.json (written when a rank gives"
            " up waiting) or a run that is still running on this machine"
        )
    if not processes:
        return explain(records)
    time.sleep(apart_s)
    before = {record.rank: record.lasts() for record in records}
    records, processes = _ask(run_folder)
    return explain(records, processes, before)


def explain(
    records: Sequence[RankFlight],
    processes: Sequence[RankProcess] = (),
    before: Mapping[int, Mapping[str, RecordedCall]] | None = None,
) -> LiveVerdict:
    """Return who is stuck: by the records of each group, and by the state of the processes.

    `before` are the last calls of each rank a moment ago, by group: a group in which one has changed goes on.
    """
    lives = {process.rank: process for process in processes}
    each = [(record.rank, record.lasts()) for record in records]
    lasts = dict(each)
    moved = {
        (rank, name)
        for rank, calls in (before or {}).items()
        for name in calls
        if rank in lasts and lasts[rank].get(name) != calls[name]
    }
    names = list(dict.fromkeys(name for calls in lasts.values() for name in calls))
    still = [name for name in names if all(name != other for _, other in moved)]
    written = [(record, Where("", 0, "", rank=record.rank)) for record in records]
    position = judged(group for group in our_groups(written) if group.name.name in still)
    begun = {name: [(rank, calls[name]) for rank, calls in each if name in calls] for name in still}
    stuck = _named(position, records, begun, lives, several=len(names) > 1)
    named = {rank.rank for rank in stuck}
    waiting = [front for name in still for front in _waiting(records, name, begun[name], named, several=len(names) > 1)]
    stuck += [
        StuckRank(rank=process.rank, group="", why=_fate(process))
        for process in processes
        if process.state in _STATES and process.rank not in named
    ]
    return LiveVerdict(
        stuck=tuple(stuck),
        waiting=tuple(waiting),
        reasons={record.rank: record.reason for record in records},
        moving={rank: str(lasts[rank][name]) for rank, name in sorted(moved) if name in lasts[rank]},
        processes=tuple(processes),
        unsure=position.why if position and not stuck and position.kind not in {"stuck", "circle"} else "",
    )


def _ask(run_folder: Path) -> tuple[list[RankFlight], list[RankProcess]]:
    """Ask the live ranks, and return the records of the run and those ranks.

    A record of a rank that lives now as another process is of an earlier attempt and left out.
    """
    read_records(run_folder)  # says what is wrong with the folder, before anybody is disturbed
    asked_s = time.monotonic()
    processes = ranks_with_stacks(run_folder)
    pids = {process.rank: process.pid for process in processes}
    answering = {process.rank for process in processes if process.stack}
    while True:
        records = [r for r in read_records(run_folder) if pids.get(r.rank, r.pid) == r.pid]
        late = answering - {record.rank for record in records if record.written_s >= asked_s}
        if not late or time.monotonic() > asked_s + ANSWER_S:
            return records, processes
        time.sleep(0.02)


def _named(
    position: HangPosition | None, records: Sequence[RankFlight], begun: Mapping[str, Begun],
    lives: Mapping[int, RankProcess], *, several: bool,
) -> list[StuckRank]:  # fmt: skip
    """Return the ranks that the others wait for, in the words of the group in which each is late."""
    if position is None:
        return []
    blamed = set(position.waiting if position.kind == "circle" else position.blamed)
    found: dict[int, StuckRank] = {}
    for name, calls in begun.items():
        expected = _expected(calls)
        if expected is None:
            continue
        arrivals, last = _arrivals(records, name), dict(calls)
        for rank in sorted(blamed & {*last, *(rank for seen in arrivals for rank in seen)}):
            why = _why(rank, last.get(rank), expected, arrivals, lives)
            if why and rank not in found:
                found[rank] = StuckRank(rank=rank, group=name, why=f"{why}{_where(records, name, several=several)}")
    group = position.group.name if position.group else ""
    rest = [StuckRank(rank=rank, group=group, why=position.why) for rank in sorted(blamed - set(found))]
    return [*found.values(), *rest]


def _waiting(
    records: Sequence[RankFlight], name: str, calls: Begun, stuck: set[int], *, several: bool
) -> list[Waiting]:
    """Return the ranks in the group's latest call, without the stuck ones."""
    expected = _expected(calls)
    if expected is None:
        return []
    at_front = {rank: c for rank, c in dict(calls).items() if c.sequence == expected.sequence and not c.ended}
    ranks = tuple(sorted(at_front.keys() - stuck))
    written = {record.rank: record.written_s for record in records}
    waited_s = max(
        (written[rank] - at_front[rank].started_s for rank in ranks if at_front[rank].started_s), default=0.0
    )
    call = f"{expected}{_where(records, name, several=several)}"
    return [Waiting(call=call, group=name, ranks=ranks, waited_s=waited_s)] if ranks else []


def _expected(calls: Begun) -> RecordedCall | None:
    """Return the call of a group that came last and has not ended, as most make it."""
    front = max(call.sequence for _, call in calls)
    at_front = [(call.operation, call.size_bytes) for _, call in calls if call.sequence == front and not call.ended]
    if not at_front:
        return None
    (usual, _), *_ = Counter(at_front).most_common(1)
    return RecordedCall(front, usual[0], usual[1], ended=False)


def _arrivals(records: Sequence[RankFlight], name: str) -> list[Mapping[int, int]]:
    return [group.arrivals for record in records for group in record.groups if group.name == name]


def _where(records: Sequence[RankFlight], name: str, *, several: bool) -> str:
    described = next(g.description or name for r in records for g in r.groups if g.name == name)
    return f" (group {described})" if several else ""


def _why(
    rank: int,
    last: RecordedCall | None,
    expected: RecordedCall,
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
