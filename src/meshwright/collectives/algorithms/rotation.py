"""Schedules that look the same from every rank: what rank 0 sends says it all.

Rank r sends what rank 0 sends, with all ranks r further on (modulo the ranks). So the rounds of 100,000 ranks need not
be written out to know the bytes between any two ranks; which chunks they are does not show.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from ..schedules.schedule import Round
from .direct import at_once, direct_exchange, spread
from .ring import pass_around, reduce_around

Rounds = Callable[[int, Sequence[int]], Iterator[Round]]  # ranks, senders


def _both(first: Rounds, second: Rounds) -> Rounds:
    return lambda ranks, senders: chain(first(ranks, senders), second(ranks, senders))


def _merged(rounds: Rounds) -> Rounds:
    return lambda ranks, senders: at_once(rounds(ranks, senders))


ROTATING: dict[tuple[str, str], tuple[Rounds, Callable[[int], int]]] = {
    ("all_reduce", "ring"): (_both(reduce_around, pass_around), lambda ranks: ranks),
    ("all_reduce", "partitioned"): (_both(_merged(direct_exchange), _merged(spread)), lambda ranks: ranks),
    ("all_reduce", "partitioned_staggered"): (_both(direct_exchange, spread), lambda ranks: ranks),
    ("all_gather", "ring"): (pass_around, lambda ranks: ranks),
    ("all_gather", "direct"): (_merged(spread), lambda ranks: ranks),
    ("all_gather", "pairwise"): (spread, lambda ranks: ranks),
    ("reduce_scatter", "ring"): (reduce_around, lambda ranks: ranks),
    ("reduce_scatter", "direct"): (_merged(direct_exchange), lambda ranks: ranks),
    ("reduce_scatter", "pairwise"): (direct_exchange, lambda ranks: ranks),
}  # collective and algorithm: the rounds, and the number of chunks


def sent_by_rank_0(collective: str, name: str, ranks: int) -> tuple[Iterator[Round], int] | None:
    """Return what rank 0 sends, round by round, and the number of chunks; None if ranks differ in what they do."""
    found = ROTATING.get((collective, name))
    if found is None:
        return None
    rounds, chunks = found
    return (transfers for transfers in rounds(ranks, (0,)) if transfers), chunks(ranks)
