"""Dissemination (Bruck): in round k everyone talks to the rank at distance 2^k; log2 P rounds for any P."""

from collections.abc import Iterator

from ..schedules.compose import transposed
from ..schedules.schedule import Round, Schedule, Transfer, make


def dissemination_all_gather(ranks: int) -> Schedule:
    """All-gather in ceil(log2 P) rounds: each rank sends down all chunks that it holds and its peer lacks."""

    def rounds() -> Iterator[Round]:
        held = 1  # rank r holds chunks r, r+1, ..., r+held-1
        while held < ranks:
            sent = range(min(held, ranks - held))
            yield tuple(
                Transfer(r, (r - held) % ranks, tuple(sorted((r + i) % ranks for i in sent))) for r in range(ranks)
            )
            held += len(sent)

    return make("all_gather", "dissemination", ranks, rounds(), chunks=ranks)


def dissemination_reduce_scatter(ranks: int) -> Schedule:
    """Reduce-scatter in ceil(log2 P) rounds: the dissemination all-gather, backwards."""
    return transposed(dissemination_all_gather(ranks), "reduce_scatter", reduce=True)


def bruck_all_to_all(ranks: int) -> Schedule:
    """All-to-all in ceil(log2 P) rounds: a chunk travels the binary digits of its distance, the lowest first."""

    def rounds() -> Iterator[Round]:
        step = 1
        while step < ranks:
            far = [distance for distance in range(ranks) if distance & step]
            yield tuple(
                Transfer(r, (r + step) % ranks, tuple(sorted(_chunk(r, d, step, ranks) for d in far)))
                for r in range(ranks)
            )
            step *= 2

    return make("all_to_all", "bruck", ranks, rounds(), chunks=ranks * ranks)


def _chunk(rank: int, distance: int, step: int, ranks: int) -> int:
    """Return the chunk with so far to go that waits at `rank` once the digits below `step` are travelled."""
    src = (rank - distance % step) % ranks
    return src * ranks + (src + distance) % ranks


def dissemination_barrier(ranks: int) -> Schedule:
    """Barrier in ceil(log2 P) rounds, nobody in the middle: in round k everyone signals the rank 2^k further on."""

    def rounds() -> Iterator[Round]:
        step = 1
        while step < ranks:
            yield tuple(Transfer(r, (r + step) % ranks) for r in range(ranks))
            step *= 2

    return make("barrier", "dissemination", ranks, rounds(), chunks=0)
