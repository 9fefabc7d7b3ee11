"""Loads of the ranks of a pipeline: layers, with and without experts, embedding and output where they are.

Of each layout three ranks are looked at, and the most loaded counts: the first, with the embedding and most
micro-batches in flight; the first after the dense layers, with nothing but layers; and the last, with the output.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...layout import Layout
from ...pipelines import layers_before
from .coefficients import Coefficients
from .distinct import CUT, once_each
from .quantities import RECOMPUTES, SCHEDULES, Array, Grid, ModelQuantities, Number

GPIPE, INTERLEAVED, ZERO_BUBBLE = (SCHEDULES.index(name) for name in ("gpipe", "interleaved", "zb"))
SAME_ROUNDS = 3.0  # of micro-batches, in pp: more of them repeat what an interleaved schedule has in flight
SELECTIVE, FULL = RECOMPUTES.index("selective"), RECOMPUTES.index("full")


class PeakLoad(NamedTuple):
    """One moment of a rank of a pipeline: what it keeps, in micro-batches."""

    layers: Number  # in flight, in units of all its layers
    outputs: Number  # whose output is kept, if it has that
    waiting: Number = 0.0  # for the second half of their backward, in units of all its layers
    waiting_outputs: Number = 0.0


class Chunks(NamedTuple):
    """The virtual stages of a rank where they are not equally long."""

    early: Number  # of the layers of a rank of two stages, the share of the first one
    begin: Number  # in flight when an interleaved schedule begins its first backward, in units of all its layers
    most: Number  # the most after that


@dataclass(frozen=True, slots=True)
class RankLoad:
    """The load of one rank of the pipeline of every layout; numbers of layers may be fractions where stages are cut."""

    dense: Number  # layers without experts
    moe: Number  # layers with experts
    embedding: Number  # 1 where it is there
    output: Number  # likewise
    in_flight: Number  # micro-batches whose activations are kept at once, in units of all its layers
    place: Number  # in the pipeline
    at_once: tuple[PeakLoad, ...]  # the moments at which it may keep most, of an engine that frees what it has used

    @classmethod
    def of(
        cls, grid: Grid, place: Number, *, dense: Number, moe: Number, micro_batches: Number | None,
        chunks: Chunks | None = None,
    ) -> "RankLoad":  # fmt: skip
        """Return the load of the ranks at a place in the pipeline, which have these layers, in equal chunks or not.

        Without micro-batches none is said to be in flight.
        """
        most = 0.0 if micro_batches is None else in_flight(grid, place, micro_batches)
        return cls(
            dense=dense,
            moe=moe,
            embedding=1.0 * (place == 0),
            output=1.0 * np.where(is_folded(grid), place == 0, place == grid.pp - 1.0),
            in_flight=most,
            place=place,
            at_once=() if micro_batches is None else kept_at_once(grid, place, micro_batches, chunks, most),
        )

    @property
    def layers(self) -> Number:
        """All its layers."""
        return self.dense + self.moe


def loads(
    model: ModelQuantities, grid: Grid, micro_batches: Number, stages: Sequence[int] = (), output: Number | None = None,
    *, moments: bool = True,
) -> list[RankLoad]:  # fmt: skip
    """Return the loads of the three ranks that may be the most loaded; of every rank where the stages are known.

    Without `moments` nobody asks what they keep at once.

    `stages` are the layers of the virtual stages in the order of the model, the same for all layouts of the grid;
    `output` as `output_cost` returns it, where stages are cut by cost.
    """
    if stages:
        return _known_loads(model, grid, micro_batches, stages)
    if output is not None:
        return _costed_loads(model, grid, micro_batches, output, moments=moments)
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


def chunk_layers(model: ModelQuantities, grid: Grid, places: Array, output: Number) -> Array:
    """Return the layers of each virtual stage of ranks, cut by cost: [virtual stages, ranks, layouts]."""
    return _chunks_at(model, grid, places, output)[1]


def _chunks_at(model: ModelQuantities, grid: Grid, places: Array, output: Number) -> tuple[Array, Array]:
    """Return the layers before each of these virtual stages, and those of each."""
    stages = grid.pp * grid.vpp
    chunk = np.arange(np.max(grid.vpp), dtype=float).reshape(-1, *(1,) * places.ndim)
    stage = places + chunk * grid.pp
    stage = np.where((chunk == 1) & is_folded(grid), stages - 1.0 - places, stage)
    first, behind = (layers_before(model.layers, stages, stage + more, output, vpp=grid.vpp) for more in (0.0, 1.0))
    return np.asarray(first), np.where(chunk < grid.vpp, behind - first, 0.0)


def cut_layers(model: ModelQuantities, layout: Layout, output: Number | None) -> tuple[int, ...]:
    """Return the layers of each virtual stage of one layout that is cut by cost; () where it is not."""
    if output is None or layout.pp == 1:
        return ()
    stages, cost = layout.pp * layout.vpp, float(np.ravel(output)[0])
    every = np.arange(stages + 1.0)
    return tuple(int(n) for n in np.diff(layers_before(model.layers, stages, every, cost, vpp=layout.vpp)))


class CutRank(NamedTuple):
    """The layers of a rank of pipelines that are cut by cost, and those of them without experts."""

    place: Number
    layers: Number
    dense: Number


def _costed_loads(
    model: ModelQuantities, grid: Grid, micro_batches: Number, output: Number, *, moments: bool
) -> list[RankLoad]:
    ranks = once_each(model, grid, CUT, partial(_cut_ranks, model), output)
    if not moments:
        return [
            RankLoad.of(grid, place, dense=dense, moe=layers - dense, micro_batches=None)
            for place, layers, dense in ranks
        ]
    rounds = np.where(grid.vpp > 1, np.minimum(np.ceil(micro_batches / grid.pp), SAME_ROUNDS), SAME_ROUNDS)
    chunks = once_each(model, grid, CUT, partial(_cut_chunks, model), output, rounds, also=(rounds,))
    return [
        RankLoad.of(grid, place, dense=dense, moe=layers - dense, micro_batches=micro_batches, chunks=each)
        for (place, layers, dense), each in zip(ranks, chunks, strict=True)
    ]


def _cut_chunks(model: ModelQuantities, grid: Grid, output: Number, rounds: Number) -> list[Chunks]:
    """Return the virtual stages of the ranks of `_cut_ranks`; `rounds`: micro-batches, in rounds of pp."""
    places = _cut_places(model, grid, output)
    found = unequal_chunks(grid, places, chunk_layers(model, grid, places, output), rounds)
    return [Chunks(*each) for each in zip(*np.broadcast_arrays(*found), strict=True)]


def unequal_chunks(grid: Grid, places: Array, layers: Array, rounds: Number) -> Chunks:
    """Return the virtual stages of ranks at `places` that have these `layers`, the virtual stage in front.

    An interleaved schedule has warm-up forwards, then one forward and one backward in turn, both in rounds of pp
    through one virtual stage after the other, backwards from the last (`pipelines.orders`). What is in flight grows or
    falls evenly between the ends of these rounds, so that one of them has most.
    """
    whole, depth = np.maximum(layers.sum(axis=0), 1.0), len(layers)
    last = grid.pp * grid.vpp * rounds - 1.0  # forwards are numbered from 0
    first = np.minimum((grid.vpp - 1.0) * grid.pp + 2.0 * (grid.pp - places - 1.0), last)

    ahead, back = (_Passes.of(order) for order in (layers, _backwards(layers, grid.vpp)))

    def passed(count: Number, passes: _Passes) -> Number:
        """Return the layers of the first passes, whole rounds through all virtual stages and a part of one."""
        turns = np.floor(count / (grid.pp * grid.vpp))
        rest = count - turns * grid.pp * grid.vpp
        at = np.minimum(np.floor(rest / grid.pp), depth - 1.0)
        before, each = (np.take_along_axis(table, at.astype(int)[None], axis=0)[0] for table in passes)
        found: Number = turns * grid.pp * whole + grid.pp * before + (rest - at * grid.pp) * each
        return found

    def flying(forward: Number) -> Number:
        found: Number = (passed(forward + 1.0, ahead) - passed(forward - first, back)) / whole
        return found

    begin = flying(first)
    most, to_end = begin, np.ceil((first + 1.0) / grid.pp) * grid.pp - 1.0
    for turn in range(depth + 1 if np.any(_is_looped(grid)) else 0):
        for moment in (first + turn * grid.pp, to_end + turn * grid.pp):
            most = np.maximum(most, flying(np.minimum(moment, last)))
    return Chunks(layers[0] / whole, begin, most)


class _Passes(NamedTuple):
    """The virtual stages in the order of their passes: the layers of all before each, and its own."""

    before: Array
    each: Array

    @classmethod
    def of(cls, order: Array) -> "_Passes":
        return cls(np.cumsum(order, axis=0) - order, order)


def _backwards(layers: Array, vpp: Number) -> Array:
    """Return the virtual stages from the last to the first; of fewer than there is room for the rest are empty."""
    depth = len(layers)
    number = np.arange(depth).reshape(-1, *(1,) * (layers.ndim - 1))
    places = (np.asarray(vpp, dtype=int) - 1 - number) % depth
    return np.take_along_axis(layers, np.broadcast_to(places, layers.shape), axis=0)


def _is_looped(grid: Grid) -> Number:
    return (grid.vpp > 1) & (grid.schedule == INTERLEAVED)


def cut_pace(model: ModelQuantities, grid: Grid, output: Number) -> tuple[Number, Number]:
    """Return the layers of the rank that has most, and those of the one with the output, where cost cuts stages."""
    return once_each(model, grid, CUT, partial(_cut_pace, model), output)


def _cut_pace(model: ModelQuantities, grid: Grid, output: Number) -> tuple[Number, Number]:
    ranks = [rank.layers for rank in _cut_ranks(model, grid, output)]
    return np.max(np.broadcast_arrays(*ranks), axis=0), np.where(is_folded(grid), ranks[0], ranks[-1])


def _cut_places(model: ModelQuantities, grid: Grid, output: Number) -> Array:
    """Return the first rank, its neighbour or that of the last, those where stages are longest first, and the last.

    Where backward is split, most waits on the last ranks. Behind leading layers without experts the ranks of the first
    stages that have none of these count as well, the longest among them.
    """
    stages, last = grid.pp * grid.vpp, grid.pp - 1.0
    starts = partial(layers_before, model.layers, stages, output=output, vpp=grid.vpp)
    longest, of_last = (
        starts(stages - 1.0) - starts(np.maximum(stages - 2.0, 0.0)),
        model.layers - starts(stages - 1.0),
    )
    spare = longest * (stages - 1.0) - model.layers + of_last  # layers that the stages before the last have fewer
    grows = np.where(
        grid.vpp > 1, spare, np.where(longest > 1, np.ceil((spare - 1.0) / np.maximum(longest - 1.0, 1.0)), 1.0)
    )
    grows = np.clip(grows, 1.0, stages - 1.0)
    at = _rank_of_stage(grid, grows)
    second = np.where(grid.schedule == ZERO_BUBBLE, np.maximum(last - 1.0, 0.0), np.minimum(1.0, last))
    few = [0.0 * stages, second, np.maximum(at - 1.0, 0.0), at]
    if np.any(model.leading * (model.experts > 0)):
        few += _behind_dense(model, grid, output, grows)
    return np.stack(np.broadcast_arrays(*few, last))


def _behind_dense(model: ModelQuantities, grid: Grid, output: Number, grows: Number) -> list[Number]:
    """Return the ranks of the first stage without leading dense layers, of the next, and of the first longest one."""
    stages = grid.pp * grid.vpp
    each = np.arange(1.0, np.max(stages)).reshape(-1, *(1,) * max(np.ndim(stages), 1))
    starts = layers_before(model.layers, stages, each, output, vpp=grid.vpp)
    behind = np.minimum(1.0 + np.sum(starts < model.leading, axis=0), stages - 1.0)
    few = (behind, np.minimum(behind + 1.0, stages - 1.0), np.maximum(behind, grows))
    return [_rank_of_stage(grid, stage) for stage in few]


def _rank_of_stage(grid: Grid, stage: Number) -> Number:
    """Return the rank of a pipeline that has this virtual stage."""
    return np.where(is_folded(grid), np.minimum(stage, grid.pp * grid.vpp - 1.0 - stage), stage % grid.pp)


def _cut_ranks(model: ModelQuantities, grid: Grid, output: Number) -> list[CutRank]:
    """Return the ranks at these places."""
    places = _cut_places(model, grid, output)
    start, each = _chunks_at(model, grid, places, output)
    layers = each.sum(axis=0)
    dense = np.broadcast_to(without_experts(model, start, each, each), each.shape).sum(axis=0)
    return [CutRank(*rank) for rank in zip(places, layers, dense, strict=True)]


def rank_layers(model: ModelQuantities, ranks: int, stages: Sequence[int], *, folded: bool) -> tuple[Array, Array]:
    """Return the layers of each rank of a pipeline, and those of them without experts, from its virtual stages.

    `folded`: stages go down the ranks and up again, a V, so that the first rank has the last stage too.
    """
    counts = np.array(stages, float)
    without = without_experts(model, np.cumsum(counts) - counts, counts, counts)
    layers, dense = (rank_chunks(each, ranks, folded=folded).sum(axis=0) for each in (counts, without))
    return layers, dense


def rank_chunks(stages: Sequence[float] | Number, ranks: int, *, folded: bool) -> Array:
    """Return what virtual stages have, in the order of the model, by rank: [virtual stages of a rank, ranks]."""
    table = np.reshape(np.array(stages, float), (-1, ranks))
    return np.stack([row[::-1] if folded and number % 2 else row for number, row in enumerate(table)])


def is_folded(grid: Grid) -> Number:
    """Return which layouts have their stages in a V: the first rank has the last stage too."""
    return (grid.schedule == ZERO_BUBBLE) & (grid.vpp > 1)


def _known_loads(model: ModelQuantities, grid: Grid, micro_batches: Number, stages: Sequence[int]) -> list[RankLoad]:
    ranks = int(np.atleast_1d(grid.pp)[0])
    folded = bool(np.atleast_1d(is_folded(grid))[0])
    layers, dense = rank_layers(model, ranks, stages, folded=folded)
    places = np.arange(float(ranks))[:, None]
    chunks = unequal_chunks(grid, places, rank_chunks(stages, ranks, folded=folded)[..., None], micro_batches / grid.pp)
    return [
        RankLoad.of(
            grid,
            0.0 * grid.pp + place,
            dense=dense[place] + 0.0 * grid.pp,
            moe=layers[place] - dense[place] + 0.0 * grid.pp,
            micro_batches=micro_batches,
            chunks=Chunks(*(np.asarray(each)[place] for each in chunks)),
        )
        for place in range(ranks)
    ]


def without_experts(model: ModelQuantities, start: Number, first: Number, count: Number) -> Number:
    """Return the layers without experts among `count` of a rank, the `first` of which begin at layer `start`.

    Leading ones are where they are; others, among layers with experts, are spread evenly.
    """
    dense = np.where(model.experts > 0, model.leading, 0.0)
    mixed = (model.layers - model.moe_layers - dense) / np.maximum(model.layers - dense, 1.0)
    leading = np.clip(dense - start, 0.0, first)
    return np.where(model.experts > 0, leading + mixed * (count - leading), count)


def kept_at_once(
    grid: Grid, place: Number, micro_batches: Number, chunks: Chunks | None = None, most: Number | None = None
) -> tuple[PeakLoad, ...]:
    """Return the moments at which a rank may keep most, as the orders of `pipelines.schedule` have them.

    The output is the last virtual stage's: of an interleaved schedule one is kept at once, when backwards begin. A
    split backward keeps gradients from its first half to its second, for which r + 1 micro-batches wait on rank r. In a
    V three moments count: its last stage's first half when most are in flight, its first stage's likewise, and the end,
    where most wait. Without `chunks` virtual stages are equally long. `most`: what `in_flight` returns.
    """
    most = in_flight(grid, place, micro_batches) if most is None else most
    split, folded, looped = (grid.schedule == ZERO_BUBBLE) & (grid.pp > 1), is_folded(grid), _is_looped(grid)
    outputs = np.where(split | ((grid.schedule == GPIPE) & (grid.pp > 1)), most, 1.0)
    waits: Number = np.where(split, place + 1.0, 0.0) if np.any(split) else 0.0
    found = [PeakLoad(most, outputs, waits, waits)]
    if chunks is not None and np.any(looped):
        later = found[0]._replace(layers=np.where(looped, chunks.most, most), outputs=np.where(looped, 0.0, outputs))
        found = [found[0]._replace(layers=np.where(looped, chunks.begin, most)), later]
    if not np.any(folded):
        return tuple(found)
    rows = np.flatnonzero(folded)
    found += found[-1:] * (3 - len(found))
    shape = np.shape(most)
    pp, at, micro = (np.broadcast_to(one, shape)[rows] for one in (grid.pp, place, micro_batches))
    early = np.broadcast_to(0.5 if chunks is None else chunks.early, shape)[rows]
    late = 1.0 - early
    moments = (
        PeakLoad((2.0 * pp - at - 1.0) * early + (at + 1.0) * late, at + 1.0, late, 1.0),
        PeakLoad(np.minimum(2.0 * pp - at, micro) * early + at * late, at, early, 0.0),
        PeakLoad(pp * early + at * late, at, (at + 1.0) * early + at * late, at),
    )
    return tuple(
        PeakLoad(*(_with_rows(np.broadcast_to(old, shape), rows, new) for old, new in zip(*both, strict=True)))
        for both in zip(found, moments, strict=True)
    )


def _with_rows(base: Number, rows: npt.NDArray[np.intp], values: Number) -> Array:
    """Return an array with other `values` in these rows: one for all of them, or one for each."""
    found = np.array(base, dtype=float)
    found[rows] = values
    return found


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
