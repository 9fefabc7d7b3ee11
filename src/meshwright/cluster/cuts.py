"""Bisection bandwidth: the least that crosses any cut into two halves."""

import itertools
from collections.abc import Callable, Mapping

MAX_EXACT = 16
MAX_IMPROVED = 72


def least_cut(count: int, crossing: Callable[[set[int]], float]) -> float:
    """Return the smallest `crossing` of a half of the vertices 0 to `count` - 1.

    Exact up to 16 vertices (6435 cuts); above that the cut between neighbours in order, found by exchanging pairs
    while it gets smaller, which is an upper bound; above 72 vertices no pair is exchanged.
    """
    if count < 2:
        return 0.0
    if count <= MAX_EXACT:
        # of an odd number of vertices the first may be in either part
        sizes = {(count - 1) // 2, count // 2 - 1}
        return min(crossing({0, *others}) for size in sizes for others in itertools.combinations(range(1, count), size))
    half = set(range(count // 2))
    return _improved(count, half, crossing) if count <= MAX_IMPROVED else crossing(half)


def balanced_cut(count: int, rates: Mapping[tuple[int, int], float]) -> float:
    """Return the smallest sum of `rates` (by pair) that crosses a cut of `count` vertices into equal halves."""
    matrix = [[0.0] * count for _ in range(count)]
    for (a, b), rate in rates.items():
        matrix[a][b] += rate
        matrix[b][a] += rate

    def crossing(half: set[int]) -> float:
        rest = [v for v in range(count) if v not in half]
        return sum(matrix[a][b] for a in half for b in rest)

    return least_cut(count, crossing)


def _improved(count: int, half: set[int], crossing: Callable[[set[int]], float]) -> float:
    """Exchange the pair that lowers the cut, until none does."""
    best = crossing(half)
    while True:
        rest = set(range(count)) - half
        swaps = ((half - {a}) | {b} for a in half for b in rest)
        better = next((swapped for swapped in swaps if crossing(swapped) < best - 1e-9), None)
        if better is None:
            return best
        half, best = better, crossing(better)
