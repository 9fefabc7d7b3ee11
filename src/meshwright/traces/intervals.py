"""Sets of intervals as arrays: rows of (start, end) in seconds, sorted and disjoint.

`timeline.union` is the plain version of the same; this one is for millions of kernels.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
EMPTY: Array = np.zeros((0, 2))


def union(starts: npt.ArrayLike, ends: npt.ArrayLike) -> Array:
    """Return the points that any of the intervals covers; intervals without length cover none."""
    first, last = np.asarray(starts, dtype=float), np.asarray(ends, dtype=float)
    lasting = last > first
    first, last = first[lasting], last[lasting]
    if not len(first):
        return EMPTY
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    begins = first[1:] > last[:-1]
    return np.stack((first[np.r_[True, begins]], last[np.r_[begins, True]]), axis=1)


def union_of_sets(sets: Sequence[Array]) -> Array:
    """Return the points that any of the sets covers."""
    kept = [found for found in sets if len(found)]
    if not kept:
        return EMPTY
    every = np.concatenate(kept)
    return union(every[:, 0], every[:, 1])


def length_s(found: Array) -> float:
    """Return the seconds that a set covers."""
    return float((found[:, 1] - found[:, 0]).sum())


def clipped(found: Array, start_s: float, end_s: float) -> Array:
    """Return what of a set lies between two times."""
    low = np.searchsorted(found[:, 1], start_s, side="right")
    high = np.searchsorted(found[:, 0], end_s, side="left")
    return np.clip(found[low:high], start_s, end_s) if high > low else EMPTY


def without(found: Array, removed: Array) -> Array:
    """Return the points of the first set that are not in the second."""
    near = clipped(removed, found[0, 0], found[-1, 1]) if len(found) else removed
    if not len(near):
        return found
    return _combined(found, near, lambda a, b: a & ~b)


def intersection(a: Array, b: Array) -> Array:
    """Return the points that both sets cover."""
    if len(a) and len(b):
        low, high = max(a[0, 0], b[0, 0]), min(a[-1, 1], b[-1, 1])
        a, b = clipped(a, low, high), clipped(b, low, high)
    return _combined(a, b, lambda x, y: x & y) if len(a) and len(b) else EMPTY


def is_covered(found: Array, times_s: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return for each time whether the set covers it; the end of an interval is outside."""
    at: npt.NDArray[np.bool_] = np.searchsorted(found.ravel(), times_s, side="right") % 2 == 1
    return at


Keep = Callable[[npt.NDArray[np.bool_], npt.NDArray[np.bool_]], npt.NDArray[np.bool_]]


def _combined(a: Array, b: Array, keep: Keep) -> Array:
    """Return the pieces between neighbouring ends of both sets that `keep` wants."""
    edges = np.unique(np.concatenate((a.ravel(), b.ravel())))
    begins = edges[:-1]
    wanted = keep(is_covered(a, begins), is_covered(b, begins))
    return union(begins[wanted], edges[1:][wanted])


def trimmed(found: Array, by_s: float) -> Array:
    """Return a set of intervals without its first `by_s` seconds."""
    lengths = found[:, 1] - found[:, 0]
    before = np.cumsum(lengths) - lengths
    starts = found[:, 0] + np.clip(by_s - before, 0.0, lengths)
    return union(starts, found[:, 1])
