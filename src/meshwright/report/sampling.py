"""Fewer points of a long curve, with every spike kept."""

import itertools
from collections.abc import Sequence

import numpy as np

MAX_POINTS = 2000


def thinned(values: Sequence[float], limit: int = MAX_POINTS) -> list[int]:
    """Return the indices to draw: all, or of equal stretches the lowest and the highest (and the first gap).

    A value that is not finite ranks as the highest of its stretch, so that a loss of NaN is seen.
    """
    if len(values) <= limit:
        return list(range(len(values)))
    data = np.asarray(values, dtype=float)
    edges = np.linspace(0, len(data), limit // 2 + 1).astype(int)
    kept: set[int] = {0, len(data) - 1}
    for start, end in itertools.pairwise(edges):
        part = data[start:end]
        finite = np.isfinite(part)
        if not finite.all():
            kept.add(int(start + np.argmin(finite)))
        if finite.any():
            kept |= {
                int(start + np.argmin(np.where(finite, part, np.inf))),
                int(start + np.argmax(np.where(finite, part, -np.inf))),
            }
    return sorted(kept)


def thinning_note(drawn: int, total: int) -> str:
    """Return what a reader must know of a curve that was thinned, "" if it was not."""
    if drawn == total:
        return ""
    return (
        f"{drawn:,} of {total:,} points are drawn: of each {total // (MAX_POINTS // 2):,} steps the lowest and the "
        "highest, so that no spike is lost"
    )
