"""Clocks of hosts or ranks, moved together by how far they are apart pair by pair."""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import TypeVar

Clock = TypeVar("Clock", bound=Hashable)


def clocks_ahead(
    clocks: Iterable[Clock], pairs: Iterable[tuple[Clock, Clock, tuple[float, ...], float]]
) -> dict[Clock, float]:
    """Return how far each clock is ahead, in seconds, over the pairs of the least weight.

    A pair has two clocks, a weight, and how far the second is ahead of the first. Clocks that no row of pairs joins
    have nothing in common: each set of joined ones has a clock, the first of them, that counts as right.
    """
    beside: dict[Clock, list[tuple[tuple[float, ...], Clock, float]]] = defaultdict(list)
    for one, other, weight, by_s in pairs:
        beside[one].append((weight, other, by_s))
        beside[other].append((weight, one, -by_s))
    found: dict[Clock, float] = {}
    order = itertools.count()
    for start in clocks:
        reached: list[tuple[tuple[float, ...], int, Clock, float]] = [((), next(order), start, 0.0)]
        while reached:
            _, _, clock, ahead_s = heapq.heappop(reached)
            if clock in found:
                continue
            found[clock] = ahead_s
            for weight, other, by_s in beside[clock]:
                if other not in found:
                    heapq.heappush(reached, (weight, next(order), other, ahead_s + by_s))
    return found
