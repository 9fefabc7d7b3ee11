"""Loads of the ranks of a pipeline: layers, with and without experts, embedding and output where they are.

Of each layout three ranks are looked at, and the most loaded counts: the first, with the embedding and most
micro-batches in flight; the first after the dense layers, with nothing but layers; and the last, with the output.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ...layout import Layout
from ...pipelines import layers_before
from .coefficients import Coefficients
from .distinct import CUT, once_each
from .quantities import RECOMPUTES, SCHEDULES, Array, Grid, ModelQuantities, Number

GPIPE, ZERO_BUBBLE = SCHEDULES.index("gpipe"), SCHEDULES.index("zb")
SELECTIVE, FULL = RECOMPUTES.index("selective"), RECOMPUTES.index("full")


@dataclass(frozen=True, slots=True)
class RankLoad:
    """The load of one rank of the pipeline of every layout; numbers of layers may be fractions where stages are cut."""

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


def loads(
    model: ModelQuantities, grid: Grid, micro_batches: Number, stages: Sequence[int] = (), output: Number | None = None
) -> list[RankLoad]:
    """Return the loads of the three ranks that may be the most loaded; of every rank where the stages are known.

    `stages` are the layers of the virtual stages in the order of the model, the same for all layouts of the grid;
    `output` as `output_cost` returns it, where stages are cut by cost.
    """
    if stages:
        return _known_loads(model, grid, micro_batches, stages)
    if output is not None:
        return _costed_loads(model, grid, micro_batches, output)
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


def output_cost(c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> Number | None:
    """Return what output and loss cost in layers, by FLOPs as `workload.chain` counts them.

    None for a stack that does not cut by cost.
    """
    if not np.any(c.cut_by_cost):
        return None
    width = model.ffn * model.plain_share
    width = width + model.moe_share * (model.expert_ffn * model.experts_per_token + model.shared_ffn)
    routers = model.experts * model.moe_share
    weights = model.attention_weights + model.matrices * model.hidden * width + model.hidden * routers
    scores = 2.0 * seq_len * model.heads * (model.head_dim + model.value_dim)
    rest = 10.0 * model.hidden + 3.0 * (model.heads + model.kv_heads) * model.head_dim + 5.0 * width
    forward = 2.0 * weights + scores + rest
    again = np.where(grid.recompute == FULL, forward, np.where(grid.recompute == SELECTIVE, rest, 0.0))
    return 3.0 * (2.0 * model.hidden * model.vocab + 5.0 * model.vocab + 4.0 * model.hidden) / (3.0 * forward + again)


def costed_layers(model: ModelQuantities, grid: Grid, places: Array, output: Number) -> Array:
    """Return the layers of ranks in pipelines whose stages are cut by cost: [ranks, layouts], as `places` are."""
    stages = grid.pp * grid.vpp
    chunk = np.arange(np.max(grid.vpp), dtype=float).reshape(-1, *(1,) * places.ndim)
    stage = places + chunk * grid.pp
    stage = np.where((chunk == 1) & is_folded(grid), stages - 1.0 - places, stage)
    first, behind = (layers_before(model.layers, stages, stage + more, output) for more in (0.0, 1.0))
    return np.where(chunk < grid.vpp, behind - first, 0.0).sum(axis=0)  # type: ignore[no-any-return]


def cut_layers(model: ModelQuantities, layout: Layout, output: Number | None) -> tuple[int, ...]:
    """Return the layers of each virtual stage of one layout that is cut by cost; () where it is not."""
    if output is None or layout.pp == 1:
        return ()
    stages, cost = layout.pp * layout.vpp, float(np.ravel(output)[0])
    return tuple(int(n) for n in np.diff(layers_before(model.layers, stages, np.arange(stages + 1.0), cost)))


class CutRank(NamedTuple):
    """The layers of a rank of pipelines that are cut by cost, and those of them without experts."""

    place: Number
    layers: Number
    dense: Number


def _costed_loads(model: ModelQuantities, grid: Grid, micro_batches: Number, output: Number) -> list[RankLoad]:
    ranks = once_each(model, grid, CUT, partial(_cut_ranks, model), output)
    return [
        RankLoad.of(grid, place, dense=dense, moe=layers - dense, micro_batches=micro_batches)
        for place, layers, dense in ranks
    ]


def cut_pace(model: ModelQuantities, grid: Grid, output: Number) -> tuple[Number, Number]:
    """Return the layers of the rank that has most, and those of the one with the output, where cost cuts stages."""
    return once_each(model, grid, CUT, partial(_cut_pace, model), output)


def _cut_pace(model: ModelQuantities, grid: Grid, output: Number) -> tuple[Number, Number]:
    ranks = [rank.layers for rank in _cut_ranks(model, grid, output)]
    return np.max(np.broadcast_arrays(*ranks), axis=0), np.where(is_folded(grid), ranks[0], ranks[-1])


def _cut_ranks(model: ModelQuantities, grid: Grid, output: Number) -> list[CutRank]:
    """Return the first rank, its neighbour or that of the last, those where stages are longest first, and the last.

    Where backward is split, most waits on the last ranks.
    """
    stages, last = grid.pp * grid.vpp, grid.pp - 1.0
    longest, of_last = (
        layers_before(model.layers, stages, stages - 1.0, output)
        - layers_before(model.layers, stages, np.maximum(stages - 2.0, 0.0), output),
        model.layers - layers_before(model.layers, stages, stages - 1.0, output),
    )
    grows = np.ceil((longest * (stages - 1.0) - model.layers + of_last - 1.0) / np.maximum(longest - 1.0, 1.0))
    grows = np.clip(np.where(longest > 1, grows, 1.0), 1.0, stages - 1.0)
    grows = np.where(is_folded(grid), np.minimum(grows, stages - 1.0 - grows), grows % grid.pp)
    second = np.where(grid.schedule == ZERO_BUBBLE, np.maximum(last - 1.0, 0.0), np.minimum(1.0, last))
    few = (0.0 * stages, second, np.maximum(grows - 1.0, 0.0), grows, last)
    places = np.stack(np.broadcast_arrays(*few))
    layers = costed_layers(model, grid, places, output)
    start = layers_before(model.layers, stages, places, output)
    dense = np.broadcast_to(without_experts(model, start, layers / grid.vpp, layers), layers.shape)
    return [CutRank(*rank) for rank in zip(places, layers, dense, strict=True)]


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

    Leading ones are where they are; others, among layers with experts, are spread evenly.
    """
    dense = np.where(model.experts > 0, model.leading, 0.0)
    mixed = (model.layers - model.moe_layers - dense) / np.maximum(model.layers - dense, 1.0)
    leading = np.clip(dense - start, 0.0, first)
    return np.where(model.experts > 0, leading + mixed * (count - leading), count)


def delayed(grid: Grid, place: Number) -> tuple[tuple[Number, Number], ...]:
    """Return the moments at which a rank of a split backward may keep most: (fewer in flight, waiting) at each.

    Both are micro-batches in units of all its layers: how many fewer than at most are in flight, and how many of these
    wait for the second half of their backward. In a V there are two such moments: when most are in flight, and when
    most wait, as the orders of `pipelines.schedule` have them. () where no backward is split.
    """
    split = (grid.schedule == ZERO_BUBBLE) & (grid.pp > 1)
    if not np.any(split):
        return ()
    folded, behind = is_folded(grid), grid.pp - 1.0 - place
    first = 0.0, np.where(split, np.where(folded, 0.5, place + 1.0), 0.0)
    if not np.any(folded):
        return (first,)
    waiting = np.maximum(grid.pp - 0.5 - behind, 0.0)
    return first, (np.where(folded, (behind + 1.0) / 2.0, 0.0), np.where(folded, waiting, first[1]))


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
