"""Recursive halving and doubling: partners at distance P/2, P/4, ... exchange ever smaller halves, and back."""

from collections.abc import Iterator
from itertools import chain

from ..schedules.compose import transposed
from ..schedules.schedule import Round, Schedule, Transfer, make
from .dissemination import dissemination_all_gather


def double(ranks: int) -> Iterator[Round]:
    """Partners at distance 1, 2, 4, ... exchange all that they have, for a power of two of ranks with a chunk each."""
    distance = 1
    while distance < ranks:
        yield tuple(Transfer(r, r ^ distance, _block(r, distance)) for r in range(ranks))
        distance *= 2


def halve(ranks: int) -> Iterator[Round]:
    """Partners at distance P/2, P/4, ... each reduce one half of what they have left: `double` run backwards."""
    distance = ranks // 2
    while distance:
        yield tuple(Transfer(r, r ^ distance, _block(r ^ distance, distance), reduce=True) for r in range(ranks))
        distance //= 2


def halving_doubling(ranks: int) -> Schedule:
    """All-reduce in 2 log2 P rounds and least bytes; where P is no power of two, spare ranks join in through a partner.

    The spare ranks, those from the largest power of two on, give everything to the rank that is so much below them
    before the first round, and get the result after the last.
    """
    core = 1 << (ranks.bit_length() - 1)
    whole = tuple(range(core))
    join = [tuple(Transfer(r, r - core, whole, reduce=True) for r in range(core, ranks))]
    leave = [tuple(Transfer(r - core, r, whole) for r in range(core, ranks))]
    rounds = chain(join, halve(core), double(core), leave)
    return make("all_reduce", "halving_doubling", ranks, rounds, chunks=core)


def recursive_doubling(ranks: int) -> Schedule:
    """All-reduce in log2 P rounds of N: partners at distance 1, 2, 4, ... exchange and reduce everything."""
    core = 1 << (ranks.bit_length() - 1)
    join = [tuple(Transfer(r, r - core, (0,), reduce=True) for r in range(core, ranks))]
    leave = [tuple(Transfer(r - core, r, (0,)) for r in range(core, ranks))]
    swaps = [tuple(Transfer(r, r ^ (1 << k), (0,), reduce=True) for r in range(core)) for k in range(_log2(core))]
    return make("all_reduce", "recursive_doubling", ranks, chain(join, swaps, leave), chunks=1)


def doubling_all_gather(ranks: int) -> Schedule:
    """All-gather in log2 P rounds: partners exchange all that they have; any P through dissemination."""
    if ranks & (ranks - 1):
        return dissemination_all_gather(ranks)
    return make("all_gather", "doubling", ranks, double(ranks), chunks=ranks)


def halving_reduce_scatter(ranks: int) -> Schedule:
    """Reduce-scatter in log2 P rounds: the doubling all-gather, backwards."""
    return transposed(doubling_all_gather(ranks), "reduce_scatter", reduce=True)


def _block(rank: int, size: int) -> tuple[int, ...]:
    start = rank & ~(size - 1)
    return tuple(range(start, start + size))


def _log2(power: int) -> int:
    return power.bit_length() - 1
