"""Waits of ranks for each other by HCCL: each names a neighbour, which may wait as well."""

from .facts import Fact, GroupName, NotifyWait, of
from .position import HangPosition
from .world import world_of


def by_notify(facts: list[Fact]) -> HangPosition | None:
    """Return who is waited for and does not say that it waits; None where nobody waits.

    HCCL counts inside a group: a place is a rank of the job where the group is that of all ranks, where the line names
    no group, or where the places on both sides of it are those ranks.
    """
    waits = of(facts, NotifyWait)
    if not waits:
        return None
    waiting = {wait.rank for wait in waits if wait.rank is not None}
    wanted = {_rank_of(wait, waits, facts) for wait in waits}
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


def _rank_of(wait: NotifyWait, waits: list[NotifyWait], facts: list[Fact]) -> int | None:
    """Return the job's rank of the one that is waited for, None where it is not known."""
    if wait.remote is None or wait.size is None:
        return wait.remote
    if wait.size == world_of(facts):
        return wait.remote
    known = {other.place: other.rank for other in waits if other.group == wait.group and other.rank is not None}
    if wait.remote in known:
        return known[wait.remote]
    around = (wait.remote - 1, wait.remote + 1)
    return wait.remote if all(known.get(place) == place for place in around) else None
