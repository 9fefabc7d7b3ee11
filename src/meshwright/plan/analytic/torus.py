"""The rate of an axis of the mesh on a torus: that of the links along the dimensions that it covers.

Ranks are numbered along the last side first, so that an axis of P ranks, `step` nodes apart, covers whole or part of
one dimension after another. Along a dimension that it covers to the end it has a ring each way round, else a line: one
ring there and back. Nodes that it steps over have axes of their own on the same links. All dimensions work at once,
each on a part of the bytes, as the slowest of them allows (Austin et al. 2025, "How to Scale Your Model", chapter 3).

An all-to-all of n ranks along a dimension sends n/4 of what a rank sends over the cut through it, on the one or two
links that a node has across.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .quantities import Number


@dataclass(frozen=True, slots=True)
class OnTorus:
    """One axis on a torus."""

    share: Number  # of all links of a node, that its rings use
    hops: Number  # steps of a gather
    cut: Number  # seconds of an all-to-all over the seconds that a rank's bytes take on all links of its node


def on_torus(sides: Sequence[int], ranks: Number, step: Number) -> OnTorus:
    """Return the share of a node's links, the steps and the cut of an axis of `ranks` nodes, `step` nodes apart."""
    dimensions, below = float(len(sides)), 1.0
    used: Number = 0.0
    hops: Number = 0.0
    slowest: Number = np.inf
    cut: Number = 0.0
    for side in reversed(sides):
        apart = np.clip(step / below, 1.0, side)
        along = np.clip(step * ranks / below, 1.0, side) / apart
        both = (along * apart >= side) & (side > 2)
        rate = np.where(both, 2.0, 1.0) / apart
        is_used = along > 1.0
        used = used + is_used
        hops = hops + np.where(is_used, along - 1.0, 0.0)
        slowest = np.where(is_used, np.minimum(slowest, rate), slowest)
        cut = np.maximum(cut, np.where(is_used, along / (4.0 * rate) * 2.0 * dimensions, 0.0))
        below *= side
    share = np.where(
        np.isfinite(slowest), used * np.where(np.isfinite(slowest), slowest, 1.0) / (2.0 * dimensions), 1.0
    )
    return OnTorus(share=share, hops=hops, cut=cut)
