"""Places inside a group as ranks of the job, where a line tells the ranks of the group that c10d's lines name."""

from msgspec.structs import replace

from ..nouns.facts import Fact, GroupProgress, Timeout, of
from ..nouns.identities import MadeGroup
from ..scripts.meshes import GUID


def with_told_members(facts: list[Fact]) -> list[Fact]:
    """Return the facts, time-outs and counts that bear a place alone with the rank that stands there.

    A time-out names no group: in a file whose counts are all of one group it is of that.
    """
    told = {one.name.removeprefix(GUID): one.ranks for one in of(facts, MadeGroup) if one.name.startswith(GUID)}
    if not told:
        return facts
    named: dict[str, set[str]] = {}
    for count in of(facts, GroupProgress):
        if count.rank is None and count.group:
            named.setdefault(count.where.file, set()).add(count.group.name)
    alone = {file: next(iter(names)) for file, names in named.items() if len(names) == 1}
    found: list[Fact] = []
    for fact in facts:
        if isinstance(fact, GroupProgress) and fact.rank is None and fact.group:
            rank = _at(fact.group_rank, told.get(fact.group.name, ()))
            fact = fact if rank is None else replace(fact, rank=rank, where=fact.where.by(rank))
        elif isinstance(fact, Timeout) and fact.counted_in_group:
            place = fact.rank
            rank = _at(place, told.get(alone.get(fact.where.file, ""), ()))
            if rank is not None:
                where = replace(fact.where, rank=rank)
                fact = replace(fact, rank=rank, group_rank=place, counted_in_group=False, where=where)
        found.append(fact)
    return found


def _at(place: int | None, ranks: tuple[int, ...]) -> int | None:
    return ranks[place] if place is not None and place < len(ranks) else None
