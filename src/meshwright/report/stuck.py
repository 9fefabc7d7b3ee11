"""Why a run hangs: which rank is stuck, in which collective, at which sequence number, and who has not arrived.

Reads the flight records that the ranks of backend "meshwright" write when they wait in vain (`flight-<rank>.json` in
the run's folder or in `flight/` below it), and asks the ranks that still live on this machine for their stacks.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from ..cluster.doctor.stacks import RankProcess, ask
from ..errors import InputError
from ..files import read_text
from ..units import format_bytes

_STATES = {
    "T": "is stopped (SIGSTOP, or a debugger)",
    "t": "is stopped by a debugger",
    "Z": "has ended",
    "D": "waits for a device or a file system",
}


class Call(msgspec.Struct, frozen=True):
    """One collective of one rank, as its record has it."""

    sequence: int
    operation: str
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    ended: bool

    def __str__(self) -> str:
        return f"{self.operation} #{self.sequence} of {format_bytes(self.size_bytes)}"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The flight record of one rank: its last calls, and the last step that it saw every rank enter."""

    rank: int
    group: str
    reason: str = ""
    arrivals: dict[int, int] = {}
    flights: tuple[Call, ...] = ()

    @property
    def last(self) -> Call | None:
        """The last collective that the rank began."""
        return max(self.flights, key=lambda call: call.sequence, default=None)


class StuckRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank that the others wait for."""

    rank: int
    group: str
    why: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a run that hangs."""

    stuck: tuple[StuckRank, ...]
    waiting: dict[str, tuple[int, ...]]  # "all_reduce #12 of 4 MiB": the ranks that wait in it
    reasons: dict[int, str]  # what each rank gave as its reason
    processes: tuple[RankProcess, ...] = ()

    def __str__(self) -> str:
        """Print it for a person: who is stuck, who waits, what each rank said, stacks last."""
        lines = [f"rank {stuck.rank} is stuck: {stuck.why}" for stuck in self.stuck]
        for call, ranks in self.waiting.items():
            lines.append(f"{_ranks(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {call}")
        lines += [f"rank {rank} says: {reason}" for rank, reason in sorted(self.reasons.items()) if reason]
        for process in self.processes:
            where = f", in the kernel's {process.waits_in}" if process.waits_in else ""
            lines.append(f"rank {process.rank} (pid {process.pid}, state {process.state}{where}):")
            lines += [f"    {line}" for line in (process.stack or "did not answer with its stack").splitlines()]
        return "\n".join(lines) if lines else "no rank is stuck"


def read_records(run_folder: Path) -> list[Record]:
    """Return the flight records of a run, one a rank and group."""
    if not run_folder.is_dir():
        raise InputError(f"{run_folder}: no such folder; expected the folder of a run")
    records = []
    for path in sorted([*run_folder.glob("flight-*.json"), *run_folder.glob("flight/flight-*.json")]):
        try:
            records.append(msgspec.json.decode(read_text(path), type=Record))
        except msgspec.MsgspecError as error:
            raise InputError(f"{path}: {error}") from None
    return records


def look_at(run_folder: Path) -> Verdict:
    """Return what the records and the live ranks of a run tell; InputError if there are neither."""
    records, processes = read_records(run_folder), ask(run_folder)
    if not records and not processes:
        raise InputError(
            f"{run_folder}: no flight record and no live rank; expected flight-*.json (written when a rank waits in"
            " vain) or a run that is still running on this machine"
        )
    return explain(records, processes)


def explain(records: Sequence[Record], processes: Sequence[RankProcess] = ()) -> Verdict:
    """Return who is stuck: by the records of each group, and by the state of the processes."""
    stuck: list[StuckRank] = []
    waiting: dict[str, tuple[int, ...]] = {}
    lives = {process.rank: process.pid for process in processes}
    for group in dict.fromkeys(record.group for record in records):
        members = [record for record in records if record.group == group]
        late, front = _late(members, group, lives)
        stuck += late
        waiting |= front
    named = {found.rank for found in stuck}
    stuck += [
        StuckRank(rank=process.rank, group="", why=f"pid {process.pid} {_STATES[process.state]}")
        for process in processes
        if process.state in _STATES and process.rank not in named
    ]
    return Verdict(
        stuck=tuple(stuck),
        waiting=waiting,
        reasons={record.rank: record.reason for record in records},
        processes=tuple(processes),
    )


def _late(
    records: Sequence[Record], group: str, lives: Mapping[int, int]
) -> tuple[list[StuckRank], dict[str, tuple[int, ...]]]:
    """Return who keeps the others of a group waiting, and who waits in what."""
    lasts = {record.rank: record.last for record in records}
    begun = {rank: call for rank, call in lasts.items() if call is not None}
    if not begun:
        return [], {}
    front = max(call.sequence for call in begun.values())
    at_front = {rank: call for rank, call in begun.items() if call.sequence == front and not call.ended}
    if not at_front:
        return [], {}
    (usual, _), *_ = Counter((call.operation, call.size_bytes) for call in at_front.values()).most_common(1)
    expected = Call(front, usual[0], usual[1], ended=False)
    found = []
    for rank in sorted({*begun, *(rank for record in records for rank in record.arrivals)}):
        why = _why(rank, begun.get(rank), expected, records, lives)
        if why:
            found.append(StuckRank(rank=rank, group=group, why=why))
    named = {stuck.rank for stuck in found}
    return found, {str(expected): tuple(sorted(at_front.keys() - named))}


def _why(rank: int, last: Call | None, expected: Call, records: Sequence[Record], lives: Mapping[int, int]) -> str:
    """Return what is wrong with one rank, or "" if it waits like the others."""
    if last is None:
        seen = [record.arrivals for record in records if rank in record.arrivals]
        step, furthest = max(a[rank] for a in seen), max(max(a.values()) for a in seen)
        if step >= furthest:
            return ""
        fate = f"pid {lives[rank]} lives" if rank in lives else "it has ended, or runs on another machine"
        return f"has not arrived at {expected} (step {step} of {furthest}) and left no record: {fate}"
    if last.sequence < expected.sequence:
        doing = f"{last} has ended, the next has not begun" if last.ended else f"it is still in {last}"
        return f"has not arrived at {expected}: {doing}"
    if (last.operation, last.size_bytes) != (expected.operation, expected.size_bytes):
        return f"is in {last}, where the others are in {expected}: the ranks do not make the same calls"
    return f"has left {expected}, which the others are still in" if last.ended else ""


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks))}"
