"""Places inside a group as ranks of the job, where a line tells the ranks of the group that c10d's lines name."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from ..nouns.facts import Fact, GroupProgress, Timeout, of
from ..nouns.identities import MadeGroup
from ..scripts.meshes import GUID


def with_told_members(facts: list[Fact]) -> list[Fact]:
    """Return the facts, time-outs and counts that bear a place alone with the rank that stands there.

    A time-out names no group: it is of the one of which its file has counts, of all or at that place and call. A group
    that lines tell differently is not read.
    """
    ranks = defaultdict[str, set[tuple[int, ...]]](set)
    for one in of(facts, MadeGroup):
        if one.name.startswith(GUID):
            ranks[one.name.removeprefix(GUID)].add(one.ranks)
    told = {name: next(iter(own)) for name, own in ranks.items() if len(own) == 1}
    for count in of(facts, GroupProgress):
        name = count.group.name if count.group else ""
        at = _at(count.group_rank, told.get(name, ()))
        if count.group_rank is not None and (at is None or count.rank not in {None, at}):
            told.pop(name, None)  # the list counts its groups otherwise, or has a part of one
    told = _as_torch_counts(told)
    if not told:
        return facts
    counts = [one for one in of(facts, GroupProgress) if one.rank is None and one.group]
    found: list[Fact] = []
    for fact in facts:
        if isinstance(fact, GroupProgress) and fact.rank is None and fact.group:
            rank = _at(fact.group_rank, told.get(fact.group.name, ()))
            fact = fact if rank is None else replace(fact, rank=rank, where=fact.where.by(rank))
        elif isinstance(fact, Timeout) and fact.counted_in_group:
            place = fact.rank
            rank = _at(place, told.get(_group_of(fact, counts), ()))
            if rank is not None:
                where = replace(fact.where, rank=rank)
                fact = replace(fact, rank=rank, group_rank=place, counted_in_group=False, where=where)
        found.append(fact)
    return found


def _as_torch_counts(told: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the members of groups without those of numbers that a script counts in its own way.

    Torch's number 0 is the group of all ranks: where a list has others there than all that it names, none is torch's.
    """
    everyone = {rank for ranks in told.values() for rank in ranks}
    if "0" not in told or set(told["0"]) == everyone:
        return told
    return {name: ranks for name, ranks in told.items() if not name.isdecimal()}


def _group_of(timeout: Timeout, counts: Sequence[GroupProgress]) -> str:
    """Return the name of the group of a time-out: the only one of its file's counts, or of those at its place and call.

    "" where neither tells.
    """
    here = [one for one in counts if one.where.file == timeout.where.file]
    own = [one for one in here if one.group_rank == timeout.rank and _is_in(one, timeout.seq)]
    for alike in (here, own):
        names = {one.group.name for one in alike if one.group}
        if len(names) == 1:
            return names.pop()
    return ""


def _is_in(count: GroupProgress, seq: int | None) -> bool:
    """Whether counts are those of a rank that has begun a call and not ended it."""
    if seq is None or count.completed is None or count.enqueued is None:
        return False
    return count.completed < seq <= count.enqueued


def _at(place: int | None, ranks: tuple[int, ...]) -> int | None:
    return ranks[place] if place is not None and place < len(ranks) else None
