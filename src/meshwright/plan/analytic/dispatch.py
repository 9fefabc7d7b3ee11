"""Doubt about how rows reach their experts, where neither a question nor a table of runs says it.

Megatron-core has dispatchers for which the host waits in each layer, for the counts of rows that experts on other ranks
get (alltoall of what no capacity bounds), and others for which it does not (megatron/core/transformer/moe:
token_dispatcher.py, fused_a2a.py). With a host that waits, the launches of a layer no longer hide behind its kernels.
The measured runs of these engines had the one and the other, release by release.
"""

from collections.abc import Collection

from ...layout import Layout
from ...workload.architecture import Architecture
from .coefficients import Book

WAITS = "counted"  # the trait of runs whose hosts wait
KNOWN = frozenset({WAITS, "graphed", "deepep", "beside"})  # traits that tell the dispatcher
CHOOSING = frozenset({"megatron", "bridge", "nemo"})  # engines of which it is an option
LEAST = 0.05  # of a step: less is no doubt


def is_unsaid(known: Book, stack: str, architecture: Architecture, layout: Layout, traits: Collection[str]) -> bool:
    """Return whether a step's dispatcher is a choice that nothing tells."""
    return bool(architecture.experts and layout.ep > 1) and (
        known.engine(stack) in CHOOSING and KNOWN.isdisjoint(traits)
    )


def doubt_of(own_s: float, waiting_s: float) -> tuple[tuple[str, ...], float]:
    """Return a sentence where a waiting host makes much of a step, and by how much of that step the price is less."""
    share = 1.0 - own_s / waiting_s
    if share < LEAST:
        return (), 0.0
    return (
        f"dispatcher of experts: not said; where the host waits for counts of rows (alltoall) {waiting_s:.3g} s a step",
    ), share
