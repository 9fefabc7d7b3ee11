"""Waits of ranks for each other by HCCL: each names a neighbour, which may wait as well."""

from collections import defaultdict
from collections.abc import Mapping

from .facts import Fact, NotifyWait, of
from .position import HangPosition
from .where import GroupName
from .world import world_of

_OF_ALL = "hccl_world_group"


def by_notify(facts: list[Fact]) -> HangPosition | None:
    """Return who is waited for and does not say that it waits; None where nobody waits.

    HCCL counts inside a group: a place is a rank of the job where the group is that of all ranks, where the line names
    no group, or where the places on both sides of it are those ranks.
    """
    waits = of(facts, NotifyWait)
    if not waits:
        return None
    waiting = {wait.rank for wait in waits if wait.rank is not None}
    world = world_of(facts)
    known: dict[str, dict[int | None, int]] = defaultdict(dict)  # by group: the job's rank by its place there
    for wait in waits:
        if wait.rank is not None:
            known[wait.group][wait.place] = wait.rank
    wanted = {_rank_of(wait, world, known[wait.group]) for wait in waits}
    blamed = {rank for rank in wanted if rank is not None} - waiting
    certain = bool(blamed) and None not in wanted
    told = ", ".join(map(str, sorted(blamed)))
    first = waits[0]
    return HangPosition(
        kind="absent",
        blamed=tuple(sorted(blamed)) if certain else (),
        waiting=tuple(sorted(waiting)),
        group=GroupName(first.group) if first.group else None,
        why=f"HCCL waits for rank {told}, which does not wait itself"
        if certain
        else "HCCL's ranks wait for each other",
        certain=certain,
        evidence=tuple(wait.where for wait in waits),
        missing=() if certain else ("the logs of all ranks: HCCL names only the next one, by its place in the group",),
    )


def _rank_of(wait: NotifyWait, world: int | None, known: Mapping[int | None, int]) -> int | None:
    """Return the job's rank of the one that is waited for, None where it is not known.

    `known` are the ranks of its group by their places there.
    """
    if wait.remote is None or wait.size is None:
        return wait.remote
    if wait.size == world or wait.group.startswith(_OF_ALL):
        return wait.remote
    if wait.remote in known:
        return known[wait.remote]
    if len(known) > 1 and wait.remote < wait.size and all(place == rank for place, rank in known.items()):
        return wait.remote
    around = (wait.remote - 1, wait.remote + 1)
    return wait.remote if all(known.get(place) == place for place in around) else None
