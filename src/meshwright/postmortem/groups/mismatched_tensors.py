"""Ranks that brought other tensors than the rest: to Horovod's stall check, to DDP before the first step."""

from collections import defaultdict

from ...units import shortened
from ..nouns.facts import Fact, Stalled, UnlikeModel, of
from ..nouns.position import HangPosition, minority
from ..nouns.where import Where
from ..nouns.world import MOST_RANKS, ranks_seen, world_of

_WHOSE = (
    "which of them have the model that was meant: the configuration, the revision (`git rev-parse HEAD`, `git status`)"
    " and the versions of libraries on a host of each"
)


def by_stalls(facts: list[Fact]) -> HangPosition | None:
    """Return who is missing from all tensors that others wait with; where each waits with another, who is alone."""
    stalls = of(facts, Stalled)
    if not stalls:
        return None
    ready = {rank for stall in stalls for rank in stall.ready}
    named = ready | {rank for stall in stalls for rank in stall.missing}
    size = max([world_of(facts) or 0, max(named | ranks_seen(facts)) + 1])
    missing = [set(stall.missing) or set(range(size)) - set(stall.ready) for stall in stalls]
    never = set.intersection(*missing)
    told = f"{stalls[0].tensor}{f' and {len(stalls) - 1} more tensors' if len(stalls) > 1 else ''}"
    evidence = tuple(dict.fromkeys(stall.where for stall in stalls))
    if never:
        ranks = ", ".join(map(str, sorted(never)))
        why = f"Horovod: rank{'s' * (len(never) > 1)} {ranks} did not submit {told}, with which the others wait"
        blamed, waiting = tuple(sorted(never)), tuple(sorted(ready))
        return HangPosition(kind="absent", blamed=blamed, waiting=waiting, why=why, evidence=evidence)
    if not any(missing):
        return HangPosition(
            kind="absent",
            waiting=tuple(sorted(ready)),
            why=f"Horovod: ranks {', '.join(map(str, sorted(ready)))} wait with {told}",
            certain=False,
            evidence=evidence,
            missing=("how many ranks there are: the launcher's command, or the log of every rank",),
        )
    return _split(stalls, size, evidence)


def _split(stalls: list[Stalled], size: int, evidence: tuple[Where, ...]) -> HangPosition:
    brought: dict[int, set[str]] = defaultdict(set)
    for stall in stalls:
        for rank in stall.ready or set(range(size)) - set(stall.missing):
            brought[rank].add(stall.tensor)
    calls = {rank: frozenset(tensors) for rank, tensors in brought.items()}
    blamed, certain = minority(calls) if calls else ((), False)
    told = "; ".join(
        f"{stall.tensor} without {', '.join(map(str, stall.missing))}" for stall in stalls if stall.missing
    )
    told = told or "; ".join(f"rank {rank} with {min(brought[rank])}" for rank in sorted(brought)[:8])
    return HangPosition(
        kind="desync",
        blamed=blamed,
        waiting=tuple(sorted(set(brought) - set(blamed))),
        why=f"Horovod: the ranks wait with different tensors: {told[:300]}",
        certain=certain,
        evidence=evidence,
        missing=() if certain else ("which of the ranks is wrong: the code of both, or all ranks of each tensor",),
    )


def by_models(facts: list[Fact]) -> HangPosition | None:
    """Return whose parameters differ from those of the many.

    Their number every rank compares with that of all others, and says of the first that differs what both have; their
    shapes each rank compares with rank 0's alone.
    """
    found = of(facts, UnlikeModel)
    if not found:
        return None
    counts = {rank: count for fact in found for rank, count in fact.counts.items() if rank < MOST_RANKS}
    unlike = {fact.rank for fact in found if fact.rank is not None and not fact.counts}
    world = world_of(facts) or max(ranks_seen(facts) | unlike | set(counts), default=0) + 1
    few = 2 * len(unlike) < world
    everyone = world > 2 and unlike == set(range(1, world))
    blamed = (0,) if everyone else tuple(sorted(unlike)) if few and unlike else ()
    blamed = blamed or (minority(counts)[0] if counts else ())
    several = f", on ranks {shortened(tuple(sorted(unlike)))}, not on rank 0" if len(unlike) > 1 else ""
    lacks = _WHOSE if several else "which ranks have the other model: the log of every rank"
    return HangPosition(
        kind="sizes",
        blamed=blamed,
        waiting=tuple(rank for rank in range(world) if blamed and rank not in blamed),
        why=f"{found[0].what}{', on all ranks but 0' if everyone else several}",
        certain=bool(blamed),
        evidence=tuple(fact.where for fact in found),
        missing=() if blamed else (lacks,),
    )
