"""All-reduce without a root: each rank collects everybody's data and reduces it for itself, in a slot of its own."""

from collections.abc import Iterator
from itertools import chain

from ..schedules.schedule import Round, Schedule, Transfer, make

OWN, SUM = (0,), (1,)


def naive(ranks: int) -> Schedule:
    """All-reduce in P(P-1) rounds: one rank's reduce after another, one message at a time."""
    rounds = ((_give(r, (r + step) % ranks),) for r in range(ranks) for step in range(1, ranks))
    return _collected("naive", ranks, rounds)


def staggered(ranks: int) -> Schedule:
    """All-reduce in P-1 rounds: the same messages, with later ones moved early to where links are free."""
    rounds = (tuple(_give(r, (r + step) % ranks) for r in range(ranks)) for step in range(1, ranks))
    return _collected("staggered", ranks, rounds)


def _give(src: int, dst: int) -> Transfer:
    return Transfer(src, dst, OWN, reduce=True, to=SUM)


def _collected(name: str, ranks: int, rounds: Iterator[Round]) -> Schedule:
    first = [tuple(Transfer(r, r, OWN, to=SUM) for r in range(ranks))]
    last = [tuple(Transfer(r, r, SUM, to=OWN) for r in range(ranks))]
    if ranks == 1:
        return make("all_reduce", name, ranks, (), chunks=1)
    return make("all_reduce", name, ranks, chain(first, rounds, last), chunks=1, scratch=1)
