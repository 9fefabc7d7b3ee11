"""Loads of the ranks of a pipeline: layers, with and without experts, embedding and output where they are.

Of each layout three ranks are looked at, and the most loaded counts: the first, with the embedding and most
micro-batches in flight; the first after the dense layers, with nothing but layers; and the last, with the output.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .quantities import SCHEDULES, Array, Grid, ModelQuantities, Number

GPIPE, ZERO_BUBBLE = SCHEDULES.index("gpipe"), SCHEDULES.index("zb")
RANKS = 3  # first, between, last


@dataclass(frozen=True, slots=True)
class RankLoad:
    """What one rank of the pipeline of every layout holds; numbers of layers may be fractions where stages are cut."""

    dense: Number  # layers without experts
    moe: Number  # layers with experts
    embedding: Number  # 1 where it is there
    output: Number  # likewise
    in_flight: Number  # micro-batches whose activations are kept at once, in units of all its layers
    place: Number  # in the pipeline

    @classmethod
    def of(cls, grid: Grid, place: Number, *, dense: Number, moe: Number, micro_batches: Number) -> "RankLoad":
        """Return the load of the ranks at a place in the pipeline, which have these layers."""
        return cls(
            dense=dense,
            moe=moe,
            embedding=1.0 * (place == 0),
            output=1.0 * np.where(is_folded(grid), place == 0, place == grid.pp - 1.0),
            in_flight=in_flight(grid, place, micro_batches),
            place=place,
        )

    @property
    def layers(self) -> Number:
        """All its layers."""
        return self.dense + self.moe


def loads(model: ModelQuantities, grid: Grid, micro_batches: Number, stages: Sequence[int] = ()) -> list[RankLoad]:
    """Return the loads of the three ranks that may be the most loaded; of every rank where the stages are known.

    `stages` are the layers of the virtual stages in the order of the model, the same for all layouts of the grid.
    """
    if stages:
        return _known_loads(model, grid, micro_batches, stages)
    most = np.ceil(model.layers / grid.pp)
    ends = model.layers - most * (grid.pp - 2.0)  # layers that do not divide: the ends have fewer
    ends = np.where(ends >= 2.0, ends, 2.0 * np.floor(model.layers / grid.pp))
    first = np.where(grid.pp > 1, np.minimum(most, np.ceil(ends / 2.0)), most)
    last = np.where(grid.pp > 1, np.minimum(most, ends - first), most)
    dense = np.where(model.experts > 0, model.leading, 0.0)
    between = np.clip(np.ceil(dense * grid.vpp / most), 1.0, grid.pp - 1.0)
    between = np.where(grid.pp > 1, between, 0.0)
    found = []
    for place, count in ((0.0 * grid.pp, first), (between, np.where(grid.pp > 2, most, last)), (grid.pp - 1.0, last)):
        without = without_experts(model, place * count / grid.vpp, count / grid.vpp, count)
        found.append(RankLoad.of(grid, place, dense=without, moe=count - without, micro_batches=micro_batches))
    return found


def rank_layers(model: ModelQuantities, ranks: int, stages: Sequence[int], *, folded: bool) -> tuple[Array, Array]:
    """Return the layers of each rank of a pipeline, and those of them without experts, from its virtual stages.

    `folded`: stages go down the ranks and up again, a V, so that the first rank has the last stage too.
    """
    counts = np.array(stages, float)
    without = without_experts(model, np.cumsum(counts) - counts, counts, counts)
    tables = [np.reshape(each, (-1, ranks)) for each in (counts, without)]
    if folded:
        tables = [np.stack([row[:: -1 if number % 2 else 1] for number, row in enumerate(each)]) for each in tables]
    layers, dense = (each.sum(axis=0) for each in tables)
    return layers, dense


def is_folded(grid: Grid) -> Number:
    """Return which layouts have their stages in a V: the first rank has the last stage too."""
    return (grid.schedule == ZERO_BUBBLE) & (grid.vpp > 1)


def _known_loads(model: ModelQuantities, grid: Grid, micro_batches: Number, stages: Sequence[int]) -> list[RankLoad]:
    ranks = int(np.atleast_1d(grid.pp)[0])
    folded = bool(np.atleast_1d(is_folded(grid))[0])
    return [
        RankLoad.of(
            grid,
            0.0 * grid.pp + place,
            dense=dense + 0.0 * grid.pp,
            moe=layers - dense + 0.0 * grid.pp,
            micro_batches=micro_batches,
        )
        for place, (layers, dense) in enumerate(zip(*rank_layers(model, ranks, stages, folded=folded), strict=True))
    ]


def without_experts(model: ModelQuantities, start: Number, first: Number, count: Number) -> Number:
    """Return the layers without experts among `count` of a rank, the `first` of which begin at layer `start`.

    Those that lead the model are where they are; others, among layers with experts, are spread evenly.
    """
    dense = np.where(model.experts > 0, model.leading, 0.0)
    mixed = (model.layers - model.moe_layers - dense) / np.maximum(model.layers - dense, 1.0)
    leading = np.clip(dense - start, 0.0, first)
    return np.where(model.experts > 0, leading + mixed * (count - leading), count)


def delayed(grid: Grid, place: Number) -> Number:
    """Return how many micro-batches wait on a rank for the second half of their backward, in units of its layers."""
    folds = np.where(place == grid.pp - 1.0, (grid.pp + 1.0) / 2.0, 0.5)
    split = (grid.schedule == ZERO_BUBBLE) & (grid.pp > 1)
    return np.where(split, np.where(grid.vpp > 1, folds, place + 1.0), 0.0)


def in_flight(grid: Grid, place: Number, micro_batches: Number) -> Number:
    """Return how many micro-batches' activations a rank of a pipeline holds at once, in units of all its layers.

    GPipe all m; 1F1B p - r on rank r; zero-bubble p on each, whose weights' halves wait; interleaved
    (2 (p - r - 1) + (v - 1) p + 1) / v (Narayanan et al. 2021, section 2.2; Korthikanti et al. 2022, section 4.2.3).
    """
    deep = np.where(
        grid.vpp > 1,
        (2.0 * (grid.pp - place - 1.0) + (grid.vpp - 1.0) * grid.pp + 1.0) / grid.vpp,
        grid.pp - place,
    )
    deep = np.where(grid.schedule == ZERO_BUBBLE, grid.pp, deep)
    return np.where((grid.schedule == GPIPE) & (grid.pp > 1), micro_batches, np.minimum(deep, micro_batches))
