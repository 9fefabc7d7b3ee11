"""Closed forms for equal stages and free transfers: what a planner of thousands of layouts asks first.

All take plain numbers, and NumPy arrays where the name is one for all of them. p ranks, v stages a rank, m
micro-batches.
"""

from typing import Any

from ..layout import PipelineSchedule


def bubble_share(name: PipelineSchedule, ranks: Any, virtual_stages: Any, micro_batches: Any) -> Any:
    """Return the idle share of a step whose backward takes twice the forward, half of it for the weights.

    (p-1) / (m + p-1) for GPipe and 1F1B (Huang et al. 2019), (p-1) / (v m + p-1) for interleaved 1F1B (Narayanan et
    al. 2021), and (p-1) / (3 v m + p-1) for zero-bubble (Qi et al. 2023: p-1 times F + I - W idle, which is one F).
    """
    parts = {"gpipe": 1, "1f1b": 1, "interleaved": 1, "zb": 3}[name]
    return (ranks - 1) / (parts * virtual_stages * micro_batches + ranks - 1)


def in_flight(name: PipelineSchedule, ranks: int, virtual_stages: int, micro_batches: int, rank: int) -> int:
    """Return the most passes whose activations `rank` holds at once; a pass is one micro-batch through one stage.

    All m for GPipe; p - r for 1F1B; (v-1) p + 2 (p - r) - 1 for interleaved (at most all m v); p v for zero-bubble.
    """
    every = virtual_stages * micro_batches
    if name == "gpipe":
        return every
    if name == "zb":
        return min(every, ranks * virtual_stages)
    if virtual_stages == 1:
        return min(every, ranks - rank)
    return min(every, (virtual_stages - 1) * ranks + 2 * (ranks - rank) - 1)
