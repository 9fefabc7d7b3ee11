"""Prove a schedule: replay it symbolically and compare with what the collective must end with.

What is tracked for each slot of each rank is which chunk it holds and the set of ranks that have contributed to it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ...errors import MeshwrightError
from ..schedules.goals import after, before, check_chunk_count, required_knowledge
from ..schedules.programs import check_rendezvous, programs
from ..schedules.schedule import Schedule, Transfer

# A slot is (chunk << ranks) | contributors; these stand for slots whose content can be no part of a result:
EMPTY, DOUBLED, MIXED = -1, -2, -3
_FAULT = {EMPTY: "nothing", DOUBLED: "a contribution twice", MIXED: "a mixture of different chunks"}

Slots = list[list[int]]
Payloads = tuple[tuple[tuple[int, ...], ...], ...]  # of each transfer of each round, the chunks that it carries


class ScheduleError(MeshwrightError):
    """A schedule that does not do what its collective asks; the message names round, rank and chunk."""


class Proof(msgspec.Struct, frozen=True):
    """A proof: of which schedule, and its size."""

    collective: str
    name: str
    ranks: int
    root: int
    rounds: int
    transfers: int


def verify(schedule: Schedule) -> Proof:
    """Prove `schedule`, or raise ScheduleError at the first thing that is wrong with it.

    Proved are: the result; that no contribution is lost or counted twice; that no write is unordered with another
    write or with a read of the same slot (reductions commute); and that the ranks' programs end when each send waits
    for its receive.
    """
    fault = check_chunk_count(schedule)
    if fault:
        raise _error(schedule, fault)
    slots, origins, _ = replay(schedule)
    for rank, slot, chunk, contributors in after(schedule):
        if slots[rank][slot] != (chunk << schedule.ranks) | contributors:
            raise _error(schedule, _wrong(schedule, rank, slot, slots[rank][slot], contributors, origins))
    wanted = list(required_knowledge(schedule))
    heard = ranks_known_at_the_end(schedule) if wanted else []
    for rank, ranks in wanted:
        if ranks & ~heard[rank]:
            raise _error(schedule, f"rank {rank} leaves before {_ranks(ranks & ~heard[rank])} entered")
    fault = check_rendezvous(programs(schedule))
    if fault:
        raise _error(schedule, fault)
    transfers = sum(map(len, schedule.rounds))
    return Proof(schedule.collective, schedule.name, schedule.ranks, schedule.root, len(schedule.rounds), transfers)


class SymbolicReplay(NamedTuple):
    """The result of a symbolic run of a schedule."""

    slots: Slots  # what every slot of every rank holds at the end
    origins: dict[tuple[int, int], str]  # (rank, slot): the step that made its content bad
    taken: list[list[list[int]]]  # what each transfer of each round carries


def payloads(schedule: Schedule) -> Payloads:
    """Return which chunks each transfer of each round carries; -1 stands for nothing that is part of a chunk."""
    shift = schedule.ranks
    return tuple(
        tuple(tuple(value >> shift if value >= 0 else -1 for value in values) for values in transfers)
        for transfers in replay(schedule).taken
    )


def carries_only_whole_chunks(schedule: Schedule) -> bool:
    """Return whether what is copied between ranks is always final: one rank's own data or all ranks' reduction."""
    everyone = (1 << schedule.ranks) - 1
    for transfers, carried in zip(schedule.rounds, replay(schedule).taken, strict=True):
        for t, values in zip(transfers, carried, strict=True):
            if not t.reduce and not t.is_local:
                for value in values:
                    if value >= 0 and value & everyone != everyone and (value & everyone).bit_count() > 1:
                        return False
    return True


def replay(schedule: Schedule) -> SymbolicReplay:
    """Run a schedule symbolically; ScheduleError on a race."""
    slots: Slots = [[EMPTY] * schedule.slots for _ in range(schedule.ranks)]
    origins: dict[tuple[int, int], str] = {}
    history: list[list[list[int]]] = []
    for rank, slot, chunk, contributors in before(schedule):
        slots[rank][slot] = (chunk << schedule.ranks) | contributors
    for number, transfers in enumerate(schedule.rounds):
        if len(transfers) != 1 or transfers[0].is_local:
            fault = find_race(transfers, schedule.slots)
            if fault:
                raise _error(schedule, f"round {number}: {fault}")
        taken = [[slots[t.src][c] for c in t.chunks] for t in transfers]
        history.append(taken)
        for t, values in zip(transfers, taken, strict=True):
            held = slots[t.dst]
            if not t.reduce:
                for slot, value in zip(t.to or t.chunks, values, strict=True):
                    held[slot] = value
                continue
            for slot, value in zip(t.to or t.chunks, values, strict=True):
                held[slot] = total = _reduced(held[slot], value, schedule.ranks)
                if total < 0:
                    origins.setdefault((t.dst, slot), f"round {number}, {t}")
    return SymbolicReplay(slots, origins, history)


def find_race(transfers: tuple[Transfer, ...], slots: int) -> str | None:
    """Return which two steps of one round no order separates, or None."""
    read: set[int] = set()
    reduced: set[int] = set()
    copied: set[int] = set()
    for t in transfers:
        read.update([t.src * slots + c for c in t.chunks])
        targets = [t.dst * slots + c for c in t.to or t.chunks]
        if t.reduce:
            reduced.update(targets)
        elif copied.isdisjoint(targets):
            copied.update(targets)
        else:
            return _race(transfers, copied.intersection(targets).pop(), slots, "two writes")
    if not copied.isdisjoint(reduced):
        return _race(transfers, (copied & reduced).pop(), slots, "a write and a reduction")
    if not copied.isdisjoint(read):
        return _race(transfers, (copied & read).pop(), slots, "a write and a read")
    return None


def ranks_known_at_the_end(schedule: Schedule) -> list[int]:
    """Return for each rank the set of ranks whose entry it knows of at the end."""
    heard = [1 << rank for rank in range(schedule.ranks)]
    for transfers in schedule.rounds:
        told = [heard[t.src] for t in transfers]
        for t, known in zip(transfers, told, strict=True):
            heard[t.dst] |= known
    return heard


def _reduced(held: int, value: int, ranks: int) -> int:
    if held < 0 or value < 0:
        return min(held, value)
    if held >> ranks != value >> ranks:
        return MIXED
    return DOUBLED if held & value & ((1 << ranks) - 1) else held | value


def _wrong(
    schedule: Schedule, rank: int, slot: int, held: int, contributors: int, origins: dict[tuple[int, int], str]
) -> str:
    place = f"rank {rank} ends with"
    if held < 0:
        where = origins.get((rank, slot))
        if where is None:  # it arrived bad: name a place where it became so
            where = next((text for (_, s), text in origins.items() if s == slot), None)
        return f"{place} {_FAULT[held]} in slot {slot}" + (f" ({where})" if where else "")
    everyone = (1 << schedule.ranks) - 1
    missing = contributors & ~held & everyone
    if held >> schedule.ranks != slot:
        return f"{place} chunk {held >> schedule.ranks} in slot {slot}"
    if missing:
        first = next(_set_bits(missing))
        return f"{place} chunk {slot} without the contribution of {_ranks(missing)} ({_lost(schedule, slot, first)})"
    return f"{place} in chunk {slot} the contribution of {_ranks(held & everyone & ~contributors)}"


def _lost(schedule: Schedule, chunk: int, contributor: int) -> str:
    """Return where a contribution to a chunk was last passed on, and where it was overwritten, if it was."""
    part = 1 << contributor
    slots: Slots = [[EMPTY] * schedule.slots for _ in range(schedule.ranks)]
    for rank, slot, number, contributors in before(schedule):
        slots[rank][slot] = (number << schedule.ranks) | contributors
    passed = overwritten = ""
    for number, transfers in enumerate(schedule.rounds):
        taken = [[slots[t.src][c] for c in t.chunks] for t in transfers]
        for t, values in zip(transfers, taken, strict=True):
            for slot, value in zip(t.targets, values, strict=True):
                held = slots[t.dst][slot]
                had, brings = (v >= 0 and v >> schedule.ranks == chunk and v & part != 0 for v in (held, value))
                if brings and not had:
                    passed = f"in round {number}, {t}"
                elif had and not brings and not t.reduce:
                    overwritten = f"at rank {t.dst} in round {number}, {t}"
                slots[t.dst][slot] = _reduced(held, value, schedule.ranks) if t.reduce else value
    words = f"that of rank {contributor} is " + (f"last passed on {passed}" if passed else "never passed on")
    return f"{words}; it is overwritten {overwritten}" if overwritten else words


def _race(transfers: tuple[Transfer, ...], key: int, slots: int, what: str) -> str:
    rank, slot = divmod(key, slots)
    guilty = [str(t) for t in transfers if _touches(t, rank, slot)]
    return f"{what} of slot {slot} of rank {rank} are unordered: {', '.join(guilty)}"


def _touches(t: Transfer, rank: int, slot: int) -> bool:
    return (t.dst == rank and slot in t.targets) or (t.src == rank and slot in t.chunks)


def _ranks(bits: int) -> str:
    numbers = list(_set_bits(bits))
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _set_bits(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _error(schedule: Schedule, fault: str) -> ScheduleError:
    return ScheduleError(f"{schedule.collective} {schedule.name} on {schedule.ranks} ranks: {fault}")
