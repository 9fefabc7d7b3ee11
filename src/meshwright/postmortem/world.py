"""Which ranks the files speak of, and how many there are."""

from collections.abc import Iterable

from .facts import Fact, Identity, WorldSize, of

MOST_RANKS = 2**17  # a larger number in a line is no rank
A_HOST = 8  # ranks that usually share a host: as many silent ones in a row are a log that was not collected


def ranks_seen(facts: Iterable[Fact]) -> set[int]:
    """Return every rank that some line names."""
    return {rank for fact in facts if isinstance(rank := getattr(fact, "rank", None), int) and 0 <= rank < MOST_RANKS}


def world_of(facts: list[Fact]) -> int | None:
    """Return the number of ranks where a line says it and no larger rank was seen; None where it is not known."""
    sizes = [fact.ranks for fact in of(facts, WorldSize)]
    sizes += [fact.ranks for fact in of(facts, Identity) if fact.ranks]
    largest = max((size for size in sizes if size <= MOST_RANKS), default=0)
    return largest if largest > max(ranks_seen(facts), default=0) else None
