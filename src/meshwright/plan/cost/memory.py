"""Peak memory of the fullest rank of every layout, term by term.

Per parameter in mixed precision: weight 2, gradient 4, master weight and Adam's moments 12: 18 bytes (under autocast
weight 4, gradient 4, moments 8: 16), of which ZeRO-1 divides the 12 over the data-parallel ranks, ZeRO-2 the gradient
too, ZeRO-3 all (Rajbhandari et al. 2020, arXiv 1910.02054); in a pipeline that does not reshard gradients are summed
whole and weights stay gathered. Activations of a layer for T tokens:
T h (10 + 24/t) bytes and 5 bytes a score where attention is not fused (Korthikanti et al. 2022, arXiv 2205.05198,
equation 2), with 24 h taken apart for grouped heads and gated networks; full recomputation keeps the layer's input,
2 T h.
"""

from dataclasses import dataclass

import numpy as np

from .coefficients import Coefficients
from .quantities import SCHEDULES, Grid, Machine, Model, Number
from .step import parameters_of_rank

GRADIENT_BYTES = 4.0  # of the sum over micro-batches
SINGLE_WEIGHT_BYTES, SINGLE_OPTIMIZER_BYTES = 4.0, 8.0  # in float32: no master copy
OUTER_BYTES = 10.0  # per token and hidden unit: inputs of norms and products, dropout masks
ZERO_BUBBLE = SCHEDULES.index("zb")
SCORE_BYTES = 5.0  # softmax output, its mask and its dropout
LOGIT_BYTES = 10.0  # half-precision logit, its single-precision copy and the gradient
CONTEXT_BYTES = 1.0e9  # CUDA context and libraries' workspaces
BUFFER_BYTES = 0.5e9  # communicators' buffers, more with every kind of group
RESERVE = 0.04  # what the allocator holds beyond what is in use


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the fullest rank by term; `total_bytes` adds the allocator's reserve to their sum."""

    total_bytes: Number
    parameters_bytes: Number
    gradients_bytes: Number
    optimizer_bytes: Number
    activations_bytes: Number
    logits_bytes: Number
    buffers_bytes: Number


def memory_bytes(
    machine: Machine,
    c: Coefficients,
    model: Model,
    grid: Grid,
    *,
    seq_len: Number,
    global_batch: Number,
    shard: Number,
) -> Memory:
    """Return the peak memory of the fullest rank."""
    half = machine.product_bytes < 4
    weight = np.where(half, c.weight_bytes, SINGLE_WEIGHT_BYTES)
    optimizer = np.where(half, c.optimizer_bytes, SINGLE_OPTIMIZER_BYTES)
    layers = np.ceil(model.layers / grid.pp)
    held = parameters_of_rank(model, grid, layers)
    experts = parameters_of_experts(model, grid, layers)
    ranks = np.minimum(grid.dp * grid.cp, shard)
    expert_ranks = np.maximum(ranks / grid.expert_cut, 1.0)
    dense = held - experts
    once = dense / ranks + experts / expert_ranks
    unit = held / layers  # ZeRO-3 gathers one layer while it computes another
    each = (grid.pp <= 1) | (c.reshards > 0)  # else a pipeline keeps what it gathered, and sums gradients whole
    whole = (grid.pp > 1) & (grid.schedule == ZERO_BUBBLE) & (c.whole_halves > 0)  # between the halves of a backward
    gathered = np.where(whole, held, 2.0 * unit) * (ranks > 1)
    summed = np.where(whole, held, 0.0) * (ranks > 1)
    parameters = weight * np.where((grid.zero == 3) & each, once + gathered, held)
    gradients = GRADIENT_BYTES * np.where((grid.zero >= 2) & each, once + summed, held)
    states = optimizer * np.where(grid.zero >= 1, once, held)
    tokens = grid.mbs * seq_len / grid.cp
    kept = layer_bytes(c, model, grid, seq_len)
    micro = global_batch / (grid.dp * grid.mbs)
    flight = in_flight(grid, micro)
    working = layer_bytes(c, model, grid, seq_len, whole=True) * (grid.recompute == 2)
    first = layers * kept * flight + working
    logits = LOGIT_BYTES * tokens * model.vocab / grid.tp
    one_flight = np.where(grid.vpp > 1, 1.0 + 1.0 / grid.vpp, 1.0)
    last = layers * kept * one_flight + working + logits
    both = np.where(grid.pp > 1, np.maximum(first, last), first + logits)
    on_last = np.logical_or(grid.pp <= 1, last >= first)
    groups = 1.0 * (grid.tp > 1) + (grid.pp > 1) + (grid.dp > 1) + (grid.cp > 1) + (grid.ep > 1)
    buffers = CONTEXT_BYTES + BUFFER_BYTES * groups
    total = (parameters + gradients + states + both) * (1.0 + RESERVE) + buffers
    return Memory(
        total_bytes=total,
        parameters_bytes=parameters,
        gradients_bytes=gradients,
        optimizer_bytes=states,
        activations_bytes=both - logits * on_last,
        logits_bytes=logits * on_last,
        buffers_bytes=total - parameters - gradients - states - both,
    )


def parameters_of_experts(model: Model, grid: Grid, layers: Number) -> Number:
    """Return the parameters of the routed experts that a rank holds, which fewer ranks replicate."""
    share = np.where(model.experts > 0, model.moe_layers / model.layers, 0.0)
    return layers * share * model.matrices * model.hidden * model.expert_ffn * model.experts / grid.expert_cut / grid.tp


def layer_bytes(c: Coefficients, model: Model, grid: Grid, seq_len: Number, *, whole: bool = False) -> Number:
    """Return the bytes that one layer keeps for the backward of one micro-batch; all of them if `whole`."""
    tokens = grid.mbs * seq_len / grid.cp
    share = np.where(model.experts > 0, model.moe_layers / model.layers, 0.0)
    routed = model.expert_ffn * model.experts_per_token + model.shared_ffn
    width = (1.0 - share) * model.ffn + share * routed
    qkv = (model.heads + 2.0 * model.kv_heads) * model.head_dim
    copies = 2.0 * model.hidden * share * model.experts_per_token * 2.0  # dispatched tokens and what comes back
    inner = 2.0 * (qkv + model.heads * model.value_dim + model.matrices * width) + copies
    outer = OUTER_BYTES * model.hidden / np.where(grid.sp > 0, grid.tp, 1.0)
    scores = np.where(c.flash > 0, 0.0, SCORE_BYTES * model.heads * seq_len / grid.tp)
    everything = tokens * (outer + inner / grid.tp + scores)
    if whole:
        return everything
    selective = tokens * (outer + inner / grid.tp)
    inputs = 2.0 * tokens * model.hidden / np.where(grid.sp > 0, grid.tp, 1.0)
    return np.where(grid.recompute == 2, inputs, np.where(grid.recompute == 1, selective, everything))


def in_flight(grid: Grid, micro_batches: Number) -> Number:
    """Return how many micro-batches' activations the first stage holds at once, in units of all its layers.

    GPipe all m; 1F1B and zero-bubble (H1) p; interleaved p (1 + (p - 1)/(p v)) (Narayanan et al. 2021, section 2.2;
    Korthikanti et al. 2022, section 4.2.3).
    """
    deep = np.where(grid.vpp > 1, grid.pp * (1.0 + (grid.pp - 1.0) / (grid.pp * grid.vpp)), grid.pp)
    return np.where(grid.schedule == 0, micro_batches, np.minimum(deep, micro_batches))
