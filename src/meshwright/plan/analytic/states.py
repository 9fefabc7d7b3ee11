"""The parameters that a rank of every layout has, and the states that they mean (`workload.held`)."""

import numpy as np

from ...workload.held import Counts, states
from ...workload.program import States
from .coefficients import Coefficients
from .loads import ZERO_BUBBLE, RankLoad
from .quantities import Grid, Machine, ModelQuantities, Number

SINGLE_BYTES = 4.0


def states_of(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, load: RankLoad, shard: Number
) -> States:
    """Return the states of a rank with this load; `shard` is the ranks over which ZeRO shards."""
    ranks = np.minimum(grid.dp * grid.cp, shard)
    expert_ranks = np.maximum(ranks / grid.expert_cut, 1.0)
    dense, experts, unit = _parameters(model, grid, load)
    counts = Counts(
        held=dense + experts,
        own=dense / ranks + experts / expert_ranks,
        layer=unit,
        ends=_ends(model, grid, load),
        fused=_dense_layer(model, grid, load),
    )
    return states(
        counts, grid, c.conventions, sharded=ranks > 1, offload=grid.offload, halves=grid.schedule == ZERO_BUBBLE,
        single=machine.product_bytes >= SINGLE_BYTES,
    )  # fmt: skip


def _parameters(model: ModelQuantities, grid: Grid, load: RankLoad) -> tuple[Number, Number, Number]:
    """Return the parameters of a rank, those of its routed experts apart, and those of its largest layer."""
    expert = model.matrices * model.hidden * model.expert_ffn * model.experts / grid.expert_cut / grid.tp
    router = model.hidden * model.experts
    shared = model.matrices * model.hidden * model.shared_ffn / grid.tp
    attention = model.attention_weights / grid.tp + model.small_parameters
    network = model.matrices * model.hidden * model.ffn / grid.tp
    dense = load.layers * attention + load.dense * model.dense_share * network + load.moe * (shared + router)
    unit = attention + np.maximum(network * (load.dense > 0), (shared + router + expert) * (load.moe > 0))
    return dense + _ends(model, grid, load), load.moe * expert, unit


def _dense_layer(model: ModelQuantities, grid: Grid, load: RankLoad) -> Number:
    """Return the matrices of one layer, routed experts left out."""
    network = np.maximum(model.ffn * (load.dense > 0), model.shared_ffn * (load.moe > 0))
    return (model.attention_weights + model.matrices * model.hidden * network) / grid.tp


def _ends(model: ModelQuantities, grid: Grid, load: RankLoad) -> Number:
    """Return the parameters of embedding and output, those that this rank has; a tied matrix is on both ends."""
    table = model.vocab * model.hidden
    tied = model.head_parameters < table
    output = np.where(tied & (load.embedding > 0), 0.0, table) * load.output
    return (load.embedding * (table + model.positions * model.hidden) + output) / grid.tp
