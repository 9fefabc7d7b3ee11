"""The parameters that a rank of every layout has, and the states that they mean (`workload.held`)."""

import numpy as np

from ...workload.architecture import MTP_NORMS
from ...workload.elements import SINGLE_BYTES
from ...workload.held import Counts, states
from ...workload.program import States
from .coefficients import Coefficients
from .loads import ZERO_BUBBLE, RankLoad, is_folded
from .quantities import Grid, Machine, ModelQuantities, Number


def states_of(machine: Machine, c: Coefficients, grid: Grid, counts: Counts, shard: Number) -> States:
    """Return the states that these parameters of a rank mean; `shard` is the ranks over which ZeRO shards."""
    alone = (c.frees_early > 0) & (grid.zero >= 2)  # our engine takes a share of the weights on one rank too
    return states(
        counts, grid, c,
        sharded=(grid.sharing(shard)[0] > 1) | alone, offload=grid.offload,
        halves=grid.schedule == ZERO_BUBBLE, single=machine.product_bytes >= SINGLE_BYTES,
    )  # fmt: skip


def counts_of(c: Coefficients, model: ModelQuantities, grid: Grid, load: RankLoad, shard: Number) -> Counts:
    """Return the parameters of a rank with this load, and what ZeRO leaves of them."""
    ranks, expert_ranks = grid.sharing(shard, copied=c.experts_copied)
    dense, experts, unit = _parameters(model, grid, load)
    if model.mtp_layers is not None:
        further = further_parameters(model, grid)
        dense, experts = dense + load.output * further[0], experts + load.output * further[1]
    ends = end_parameters(model, grid, embedding=load.embedding, output=load.output)
    return Counts(
        held=dense + experts,
        own=dense / ranks + experts / expert_ranks,
        layer=unit,
        ends=ends,
        fused=_dense_layer(model, grid, load),
        matrix=model.hidden * np.maximum(model.ffn, model.hidden) / grid.tp,
        stacked=_stacked(model, grid, load),
        own_ends=ends / ranks,
        frozen=load.embedding * model.tower,
        own_frozen=load.embedding * model.tower / ranks,
    )


def _stacked(model: ModelQuantities, grid: Grid, load: RankLoad) -> Number:
    """Return the parameters of a rank's largest weight in a layer, the same matrix of all experts being one."""
    expert = model.expert_ffn * model.experts / grid.expert_cut * (load.moe > 0)
    return model.hidden * np.maximum(np.maximum(model.ffn * (load.dense > 0), model.hidden), expert) / grid.tp


def experts_alone(c: Coefficients, model: ModelQuantities, grid: Grid, shard: Number) -> Number:
    """Return the parameters of a layer's experts that no other rank has, so that ZeRO does not cut them."""
    alone = grid.sharing(shard, copied=c.experts_copied)[1] <= 1.0
    return np.where((grid.ep > 1) & alone, expert_parameters(model, grid), 0.0)


def expert_parameters(model: ModelQuantities, grid: Grid) -> Number:
    """Return the parameters of the experts of one layer that a rank has."""
    return model.matrices * model.hidden * model.expert_ffn * model.experts / grid.expert_cut / grid.tp


def further_parameters(model: ModelQuantities, grid: Grid) -> tuple[Number, Number]:
    """Return the parameters of the modules that predict further tokens, those of their routed experts apart.

    On another rank than the first they have a copy of the embedding, unless the output is tied to it.
    """
    layers = model.mtp_layers
    if layers is None:
        return 0.0, 0.0
    dense, experts, _ = _parameters(layers, grid, _alone(layers))
    joins = model.hidden * (2.0 * model.hidden / grid.tp + MTP_NORMS)
    table = model.vocab * model.hidden
    apart = (grid.pp > 1) & np.logical_not(is_folded(grid)) & (model.head_parameters >= table)
    copy = np.where((model.mtp > 0) & apart, table / grid.tp, 0.0)
    return model.mtp * (dense + joins) + copy, model.mtp * experts


def _alone(layers: ModelQuantities) -> RankLoad:
    """Return the load of a rank with all these layers, and with neither embedding nor output."""
    return RankLoad(
        dense=layers.layers - layers.moe_layers, moe=layers.moe_layers, embedding=0.0, output=0.0, in_flight=0.0,
        place=0.0, at_once=(),
    )  # fmt: skip


def _parameters(model: ModelQuantities, grid: Grid, load: RankLoad) -> tuple[Number, Number, Number]:
    """Return the parameters of a rank, those of its routed experts apart, and those of its largest layer."""
    expert = expert_parameters(model, grid)
    router = model.hidden * model.experts
    shared = model.matrices * model.hidden * model.shared_ffn / grid.tp
    attention = model.attention_weights / grid.tp + model.small_parameters
    network = model.matrices * model.hidden * model.ffn / grid.tp
    dense = load.layers * attention + load.dense * model.dense_share * network + load.moe * (shared + router)
    dense, expert_held = model.held_share * dense, model.held_share * expert
    unit = attention + np.maximum(network * (load.dense > 0), (shared + router + expert) * (load.moe > 0))
    ends = end_parameters(model, grid, embedding=load.embedding, output=load.output)
    return dense + ends, load.moe * expert_held, unit


def _dense_layer(model: ModelQuantities, grid: Grid, load: RankLoad) -> Number:
    """Return the matrices of one layer, routed experts left out."""
    network = np.maximum(model.ffn * (load.dense > 0), model.shared_ffn * (load.moe > 0))
    return (model.attention_weights + model.matrices * model.hidden * network) / grid.tp


def end_parameters(model: ModelQuantities, grid: Grid, *, embedding: Number, output: Number) -> Number:
    """Return the parameters outside of layers of a rank that has the embedding or the output (1), or has not (0).

    A tied matrix is on both ends of a pipeline, and once on a rank that is both.
    """
    table = model.vocab * model.hidden
    again = np.where(np.logical_and(has_tied_output(model), np.greater(embedding, 0)), 0.0, table) * output
    return (embedding * (table + model.positions * model.hidden + model.beside) + again) / grid.tp


def staying_parameters(
    c: Coefficients, model: ModelQuantities, grid: Grid, *, embedding: Number, output: Number
) -> Number:
    """Return those of `end_parameters` that stay whole from forward to backward under ZeRO 3 (`root_stays`)."""
    if not np.any(c.root_stays):
        return 0.0
    every = end_parameters(model, grid, embedding=embedding, output=output)
    last = np.where(has_tied_output(model), every, model.vocab * model.hidden * output / grid.tp)
    return np.where(c.root_stays == 1, every, np.where(c.root_stays == 2, last, 0.0))


def has_tied_output(model: ModelQuantities) -> Number:
    """Return whether the output uses the embedding's matrix."""
    return model.head_parameters < model.vocab * model.hidden
