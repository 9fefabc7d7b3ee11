"""Where the experts of a token lie: how many nodes a row of the residual stream is wanted on."""

import functools
import math

import numpy as np

from .program import Number


def nodes_reached(nodes: Number, top: Number, groups: Number = 1, top_groups: Number = 1) -> Number:
    """Return on how many of `nodes` nodes, on average, some of a token's `top` experts lie, drawn evenly.

    Group-limited routing (DeepSeek-AI 2024, arXiv 2405.04434): experts are drawn from `top_groups` of `groups` groups
    of neighbours alone. Numbers or arrays.
    """
    if not np.any(np.greater(groups, top_groups)):
        return nodes * (1.0 - (1.0 - 1.0 / nodes) ** top)
    wide = np.broadcast_arrays(nodes, top, groups, top_groups)
    rows, place = np.unique(np.stack([np.ravel(one) for one in wide]), axis=1, return_inverse=True)
    found = np.array([_reached(float(n), float(k), int(g), int(t)) for n, k, g, t in rows.T])
    return found[np.ravel(place)].reshape(wide[0].shape)


def nodes_beside(nodes: Number, top: Number, experts: Number) -> Number:
    """Return the same where a token's experts are the `top` after those of the token before, as benchmarks draw them.

    Of q experts a node, the rows of q tokens cross to the next one top times, gcd(top, q) of them between two tokens.
    """
    own = np.maximum(np.asarray(experts) / nodes, 1.0)
    shared = np.gcd(np.asarray(top).astype(np.int64), own.astype(np.int64))
    return np.minimum(1.0 + (top - shared) / own, np.minimum(nodes, top))


@functools.lru_cache(maxsize=4096)
def _reached(nodes: float, top: float, groups: int, top_groups: int) -> float:
    """Return the same of one placement: exact where groups divide over nodes or nodes over groups, else between."""
    eligible = nodes if top_groups >= groups else nodes * top_groups / groups
    if top_groups >= groups or nodes >= groups:
        return float(eligible * (1.0 - (1.0 - 1.0 / eligible) ** top))
    own = groups / nodes  # groups of a node
    low = math.floor(own)
    missed = sum(
        weight * _missed(whole, top, groups, top_groups)
        for whole, weight in ((low, low + 1.0 - own), (low + 1, own - low))
        if weight > 0
    )
    return nodes * (1.0 - missed)


def _missed(own: int, top: float, groups: int, top_groups: int) -> float:
    """Return how likely no expert of a token lies in `own` of the groups, those drawn among them hypergeometric."""
    ways = math.comb(groups, top_groups)
    shares = (
        math.comb(own, drawn) * math.comb(groups - own, top_groups - drawn) / ways * (1.0 - drawn / top_groups) ** top
        for drawn in range(min(own, top_groups) + 1)
        if top_groups - drawn <= groups - own
    )
    return float(sum(shares))
