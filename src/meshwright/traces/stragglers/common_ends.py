"""Groups of ranks that traces do not name, told by the ends of their collectives.

nsys and PyTorch before 2.3 say nothing of groups, and sibling groups (the tensor groups of all replicas) may share one
name. A collective ends on all of its ranks at once: the ends of two ranks of one group differ by what their clocks do,
call after call; those of ranks of two groups differ by this and that, as soon as some rank is late. The clocks follow
from the calls whose ends differ most steadily.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..intervals import Array
from .clock_offsets import clocks_ahead

LEAST_CALLS = 3  # of a kind, that tell whether ends differ steadily
MOST_RANKS = 128  # of which all pairs are compared
NEAR_S, NEAR_SHARE = 50e-6, 0.05  # of what calls last: ends so near are those of one collective
NEARER = (1.0, 0.25, 0.0625)  # of that, as sibling groups may end near one another
ALIKE_S = 2e-6  # between two spreads that are alike: then clocks that agree are more likely
_Pair = tuple[int, int]


class _Beside(NamedTuple):
    """How the ends of two ranks differ."""

    by_s: float  # of the first less the second, in the typical call
    spread_s: float


def groups_by_ends(kinds: Sequence[Mapping[int, Array]]) -> list[list[frozenset[int]]]:
    """Return the groups of ranks of each kind of collective; none of a kind whose ends do not tell.

    Each kind has of every rank the starts and ends of as many calls in their order, on clocks that may differ.
    """
    pairs = [_pairs(kind) for kind in kinds]
    clocks = _clocks(pairs)
    return [_groups(kind, found, clocks) for kind, found in zip(kinds, pairs, strict=True)]


def _pairs(kind: Mapping[int, Array]) -> dict[_Pair, _Beside]:
    calls = {len(found) for found in kind.values()}
    if len(kind) > MOST_RANKS or len(calls) > 1 or min(calls, default=0) < LEAST_CALLS:
        return {}
    found = {}
    for a, b in itertools.combinations(sorted(kind), 2):
        apart: npt.NDArray[np.float64] = kind[a][:, 1] - kind[b][:, 1]
        by_s = float(np.median(apart))
        found[a, b] = _Beside(by_s, float(np.median(np.abs(apart - by_s))))
    return found


def _clocks(pairs: Sequence[Mapping[_Pair, _Beside]]) -> dict[int, float]:
    """Return how far the clock of each rank is ahead, over the pairs of ranks whose ends differ most steadily."""
    every = [(pair, one) for found in pairs for pair, one in found.items()]
    ranks = dict.fromkeys(rank for pair, _ in every for rank in pair)
    return clocks_ahead(
        ranks, [(a, b, (ALIKE_S * round(one.spread_s / ALIKE_S), abs(one.by_s)), -one.by_s) for (a, b), one in every]
    )


def _groups(
    kind: Mapping[int, Array], pairs: Mapping[_Pair, _Beside], clocks: Mapping[int, float]
) -> list[frozenset[int]]:
    """Return the groups of a kind, if each rank ends together with all others of its own and with no other.

    Sibling groups that always end together are one: nobody is late in either without the other.
    """
    lasts_s = statistics.median(float(np.median(found[:, 1] - found[:, 0])) for found in kind.values())
    for share in NEARER:
        near_s = share * (NEAR_S + NEAR_SHARE * lasts_s)
        together: dict[int, set[int]] = {rank: {rank} for rank in kind}
        for (a, b), one in pairs.items():
            if one.spread_s <= near_s and abs(one.by_s - (clocks[a] - clocks[b])) <= near_s:
                together[a].add(b)
                together[b].add(a)
        groups = {frozenset(members) for members in together.values()}
        if sum(map(len, groups)) == len(kind) and min(map(len, groups)) > 1:  # no rank is in two
            return sorted(groups, key=min)
    return []
