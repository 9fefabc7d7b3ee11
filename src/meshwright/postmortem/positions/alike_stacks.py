"""Ranks whose stacks stand where those of other ranks do, of which time-outs say what they call: they call the same.

Of calls that differ the watchdogs of a few ranks often tell, one of each kind; the stacks show how many make which.
"""

from collections import defaultdict

from msgspec.structs import replace

from ...units import shortened
from ..nouns.facts import Fact, StackTrace, Timeout, of
from ..nouns.position import HangPosition, minority
from .stands import WAITS, own_frames, stand_of


def with_alike_stacks(position: HangPosition | None, facts: list[Fact]) -> HangPosition | None:
    """Return a position of calls that differ, and of which no majority is told, with what the stacks say of the rest.

    A rank that waits calls what ranks with the same frames of the program call, or the collective that its stack names.
    """
    if position is None or position.kind != "desync" or position.certain or position.seq is None:
        return position
    told = [t for t in of(facts, Timeout) if t.seq == position.seq and t.group in {None, position.group}]
    calls = {fact.rank: fact.operation for fact in told if fact.rank is not None and fact.operation}
    stacks = {stack.rank: stack for stack in of(facts, StackTrace) if stack.rank is not None}
    stands = {rank: stand for rank, stack in stacks.items() if (stand := stand_of(stack)).kind in WAITS}
    known: dict[object, set[str]] = defaultdict(set)
    for rank in calls.keys() & stands.keys():
        known[own_frames(stacks[rank])].add(calls[rank])
    added: dict[int, str] = {}
    for rank in stands.keys() - calls.keys():
        ways = known.get(own_frames(stacks[rank]), {stands[rank].call} & set(calls.values()))
        if own_frames(stacks[rank]) and len(ways) == 1:
            added[rank] = next(iter(ways))
    calls |= added
    blamed, certain = minority(calls) if added else ((), False)
    if not certain:
        return position
    usual = next(calls[rank] for rank in calls if rank not in blamed)
    few = "; ".join(f"rank {rank} calls {calls[rank]}" for rank in blamed[:8])
    alike = shortened(tuple(sorted(added)))
    why = f"at #{position.seq} {few}, the others {usual}: so the stacks of ranks {alike} show, which stand like theirs"
    lines = tuple(stands[rank].where for rank in sorted(added))
    waiting = tuple(sorted(calls.keys() - set(blamed)))
    return replace(
        position,
        blamed=blamed,
        waiting=waiting,
        operation=usual,
        why=why,
        certain=True,
        evidence=(*position.evidence, *lines),
        missing=(),
    )
