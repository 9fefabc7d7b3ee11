"""The ring: each rank talks to its right neighbour only, one chunk a round."""

from collections.abc import Iterator, Sequence
from itertools import chain

from ..schedules.schedule import Round, Schedule, Transfer, make


def reduce_around(ranks: int, senders: Sequence[int] | None = None) -> Iterator[Round]:
    """Chunk c starts at rank c+1 and gathers contributions on its way round, until it is complete at rank c.

    With `senders`, only what those ranks send.
    """
    senders = senders or range(ranks)
    for step in range(1, ranks):
        yield tuple(Transfer(r, (r + 1) % ranks, ((r - step) % ranks,), reduce=True) for r in senders)


def pass_around(ranks: int, senders: Sequence[int] | None = None) -> Iterator[Round]:
    """Chunk c starts at rank c and is passed on until everyone has it. With `senders`, only what those ranks send."""
    senders = senders or range(ranks)
    for step in range(ranks - 1):
        yield tuple(Transfer(r, (r + 1) % ranks, ((r - step) % ranks,)) for r in senders)


def ring_all_reduce(ranks: int) -> Schedule:
    """All-reduce in 2(P-1) rounds of N/P: every link carries the least that is possible."""
    return make("all_reduce", "ring", ranks, chain(reduce_around(ranks), pass_around(ranks)), chunks=ranks)


def ring_reduce_scatter(ranks: int) -> Schedule:
    """Reduce-scatter in P-1 rounds of N/P."""
    return make("reduce_scatter", "ring", ranks, reduce_around(ranks), chunks=ranks)


def ring_all_gather(ranks: int) -> Schedule:
    """All-gather in P-1 rounds of N/P."""
    return make("all_gather", "ring", ranks, pass_around(ranks), chunks=ranks)
