"""Bisection bandwidth: the least that crosses any cut into two halves."""

import itertools
from collections.abc import Mapping

MAX_EXACT = 16


def balanced_cut(count: int, rates: Mapping[tuple[int, int], float]) -> float:
    """Return the smallest sum of `rates` (by pair) that crosses a cut of `count` vertices into equal halves.

    Exact up to 16 vertices (6435 cuts); above that the cut between neighbours in order, found by exchanging pairs
    while it gets smaller, which is an upper bound.
    """
    if count < 2:
        return 0.0
    matrix = [[0.0] * count for _ in range(count)]
    for (a, b), rate in rates.items():
        matrix[a][b] += rate
        matrix[b][a] += rate
    if count <= MAX_EXACT:
        first_half = itertools.combinations(range(1, count), (count - 1) // 2)
        return min(_crossing(matrix, {0, *others}) for others in first_half)
    return _improved(matrix, set(range(count // 2)))


def _crossing(matrix: list[list[float]], half: set[int]) -> float:
    rest = [v for v in range(len(matrix)) if v not in half]
    return sum(matrix[a][b] for a in half for b in rest)


def _improved(matrix: list[list[float]], half: set[int]) -> float:
    """Exchange the pair that lowers the cut most, until none does."""
    while True:
        rest = [v for v in range(len(matrix)) if v not in half]
        gain = {
            v: sum(matrix[v][w] * (1 if (w in half) != (v in half) else -1) for w in range(len(matrix)) if w != v)
            for v in range(len(matrix))
        }
        best = max(((gain[a] + gain[b] - 2 * matrix[a][b], a, b) for a in half for b in rest), default=(0.0, 0, 0))
        if best[0] <= 1e-9:
            return _crossing(matrix, half)
        half = (half - {best[1]}) | {best[2]}
