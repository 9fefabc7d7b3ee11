"""Bytes of parameters, gradients and optimiser states that a rank holds, by what its stack does.

Megatron-LM in half precision: weight 2, sum of gradients 4, master weight and Adam's moments 12, of which ZeRO-1
divides the 12 over the data-parallel ranks, ZeRO-2 the gradient too, ZeRO-3 all (Rajbhandari et al. 2020, arXiv
1910.02054). PyTorch's FSDP holds its share of the weights in single precision, without a second copy: 4 + 4 + 8, and
gathers in half precision. In a pipeline that does not reshard, gradients are summed whole and weights stay gathered.
"""

from dataclasses import dataclass

import numpy as np

from .coefficients import Coefficients
from .loads import ZERO_BUBBLE, Load
from .quantities import Grid, Machine, Model, Number

SINGLE_BYTES = 4.0


@dataclass(frozen=True, slots=True)
class States:
    """Bytes that one rank holds throughout a step, and what comes on top while it computes."""

    parameters: Number
    gradients: Number
    optimizer: Number
    passing: Number  # gathered weights and whole gradients of the layers that are at work
    host: Number = 0.0  # in the memory of the rank's host
    pinned: Number = 0.0  # of that, what the device copies to and from


def states_of(machine: Machine, c: Coefficients, model: Model, grid: Grid, load: Load, shard: Number) -> States:
    """Return the states of a rank with this load; `shard` is the ranks over which ZeRO shards."""
    half = machine.product_bytes < SINGLE_BYTES
    ranks = np.minimum(grid.dp * grid.cp, shard)
    expert_ranks = np.maximum(ranks / grid.expert_cut, 1.0)
    dense, experts, unit = _parameters(model, grid, load)
    held, once = dense + experts, dense / ranks + experts / expert_ranks
    away = grid.offload == 2
    many = (ranks > 1) | away  # whose weights live on the host: one rank gathers them too
    each = ((grid.pp <= 1) | (c.reshards > 0)) & many  # else a pipeline keeps what it gathered, and sums whole
    split = (grid.zero >= 2) & many
    own = split & (c.shares_single > 0)  # FSDP: the share is the master copy
    whole = (grid.pp > 1) & (grid.schedule == ZERO_BUBBLE) & (c.whole_halves > 0)
    weight = np.where(half, c.held_weight_bytes, SINGLE_BYTES)
    share = np.where(half & own, SINGLE_BYTES * c.trained + weight * (1.0 - c.trained), weight)
    kept = (grid.zero == 3) & each
    summed = np.where(half, c.held_gradient_bytes, SINGLE_BYTES) * c.trained
    single = c.optimizer_bytes - c.master_bytes  # no second copy in single precision
    states = np.where(half, np.where(own, single, c.optimizer_bytes), single) * c.trained
    parameters = np.where(kept, share * once, weight * held + np.where(own, share * once, 0.0))
    gradients = summed * np.where(split & each, once, held)
    gathered = np.where(whole, held, np.minimum(held, 2.0 * unit + _ends(model, grid, load)))
    passing = np.where(kept, weight * gathered, 0.0)
    passing = passing + np.where(split & each, summed * np.where(whole, held, unit), 0.0)
    spare = c.spare_gradient_bytes * c.trained * np.where(split, 0.0, _dense_layer(model, grid, load))
    optimizer = states * np.where(grid.zero >= 1, once, held)
    found = States(parameters, gradients, optimizer, passing + spare)
    if not np.any(grid.offload):
        return found
    moved = np.where(grid.zero >= 1, once, held) * np.where(grid.offload > 0, 1.0, 0.0)
    return _offloaded(c, grid, found, (held, moved), unit, weight=weight, summed=summed, single=single, own=own)


def _offloaded(
    c: Coefficients, grid: Grid, found: States, counts: tuple[Number, Number], unit: Number, *,
    weight: Number, summed: Number, single: Number, own: Number,
) -> States:  # fmt: skip
    """Return the states without what lives on the host, and that: of all that is updated a weight, moments, a gradient.

    `counts` are the parameters of the rank and those of the share that its host holds. Gradients that leave
    beside backward are on the device for one layer at a time; what a pipeline keeps gathered stays there.
    """
    held, moved = counts
    states, weights = grid.offload == 1, grid.offload == 2
    each = (grid.pp <= 1) | (c.reshards > 0)
    leaves = each & (weights | (states & (c.host_beside > 0)))
    kept = weights & (grid.zero == 3) & each
    parameters = np.where(weights, np.where(kept, 0.0, weight * held), found.parameters)
    gradients = np.where(leaves, 0.0, found.gradients)
    passing = found.passing + np.where(leaves & states & (grid.zero < 2), summed * unit, 0.0)
    gradient, copy = c.host_gradient_bytes * c.trained * moved, c.host_weight_bytes * moved
    host = (single + SINGLE_BYTES) * c.trained * moved + gradient
    # weights beside their master copies; frozen ones have none
    host = host + np.where(weights, np.where(own, weight * (1.0 - c.trained) * moved, copy), 0.0)
    pinned = gradient + copy * np.where(weights, 1.0, c.trained)
    return States(parameters, gradients, np.where(grid.offload > 0, 0.0, found.optimizer), passing, host, pinned)


def _parameters(model: Model, grid: Grid, load: Load) -> tuple[Number, Number, Number]:
    """Return the parameters of a rank, those of its routed experts apart, and those of its largest layer."""
    expert = model.matrices * model.hidden * model.expert_ffn * model.experts / grid.expert_cut / grid.tp
    router = model.hidden * model.experts
    shared = model.matrices * model.hidden * model.shared_ffn / grid.tp
    attention = model.attention_weights / grid.tp + model.small_parameters
    network = model.matrices * model.hidden * model.ffn / grid.tp
    dense = load.layers * attention + load.dense * model.dense_share * network + load.moe * (shared + router)
    unit = attention + np.maximum(network * (load.dense > 0), (shared + router + expert) * (load.moe > 0))
    return dense + _ends(model, grid, load), load.moe * expert, unit


def _dense_layer(model: Model, grid: Grid, load: Load) -> Number:
    """Return the matrices of one layer, routed experts left out."""
    network = np.maximum(model.ffn * (load.dense > 0), model.shared_ffn * (load.moe > 0))
    return (model.attention_weights + model.matrices * model.hidden * network) / grid.tp


def _ends(model: Model, grid: Grid, load: Load) -> Number:
    """Return the parameters of embedding and output, those that this rank has; a tied matrix is on both ends."""
    table = model.vocab * model.hidden
    tied = model.head_parameters < table
    output = np.where(tied & (load.embedding > 0), 0.0, table) * load.output
    return (load.embedding * (table + model.positions * model.hidden) + output) / grid.tp
