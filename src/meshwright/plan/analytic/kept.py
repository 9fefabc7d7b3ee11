"""Bytes that one layer keeps for the backward of one micro-batch, by what a stack's kernels save.

Without recomputation a layer keeps, a token: what enters both norms and what leaves them (4 h), queries, keys and
values before and after the rotation, the attention's output and a log-sum a head, and of a network of width f what
enters and what leaves its activation function (Korthikanti et al. 2022, arXiv 2205.05198, section 4, with flash
attention and gates). Inputs of products are kept in 8 bits where the stack's fp8 kernels do so. A layer with experts
keeps besides the rows that were sent to its experts and those that came back.
"""

import numpy as np

from .coefficients import Coefficients
from .quantities import Grid, Machine, ModelQuantities, Number
from .states import expert_parameters

SELECTIVE = 1  # indices of quantities.RECOMPUTES
FULL = 2
SINGLE_BYTES = 4.0
SCORE_BYTES = 5.0  # softmax output, its mask and its dropout, without fused attention
MASK_BYTES = 2.0  # of the two dropouts of a layer, in stacks of that time
ROUTER_BYTES = 12.0  # of each expert and token: logit, its softmax, the map of choices, in single precision


def element_bytes(machine: Machine, c: Coefficients) -> Number:
    """Return the bytes of one element of what products return."""
    return np.where(machine.product_bytes < SINGLE_BYTES, c.product_bytes, SINGLE_BYTES)


def residual_bytes(machine: Machine, c: Coefficients) -> Number:
    """Return the bytes of one element of the residual stream."""
    return np.where(machine.product_bytes < SINGLE_BYTES, c.residual_bytes, SINGLE_BYTES)


def layer_bytes(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number, moe: bool
) -> Number:
    """Return what a layer, with experts if `moe`, keeps for the backward of one micro-batch."""
    everything = whole_layer_bytes(machine, c, model, grid, seq_len, moe)
    tokens = grid.mbs * seq_len / grid.cp
    residual = residual_bytes(machine, c) * tokens * model.hidden / rows_cut(grid)
    second = residual + _every_second(machine, c, model, grid, tokens, moe)
    products = residual + _products(machine, c, model, grid, tokens, moe)
    scores = _scores(c, model, grid, seq_len) * tokens
    some = np.where(c.selective_saves == 1, second, np.where(c.selective_saves == 2, products, everything - scores))
    return np.where(grid.recompute == FULL, residual, np.where(grid.recompute == SELECTIVE, some, everything))


def whole_layer_bytes(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number, moe: bool
) -> Number:
    """Return what a layer keeps without recomputation: what it computes again before its backward, with it."""
    element, residual = element_bytes(machine, c), residual_bytes(machine, c)
    entering: Number = np.where(machine.product_bytes < 2.0, c.low_input_bytes, element)
    tokens = grid.mbs * seq_len / grid.cp
    masks: Number = np.where(c.flash > 0, 0.0, MASK_BYTES)
    gathered: Number = np.where(c.gathers_kept > 0, 1.0, rows_cut(grid))
    outer: Number = (2.0 * residual * c.norm_copies + masks) * model.hidden / rows_cut(grid)
    outer = (outer + 2.0 * entering * model.hidden / gathered) * model.halves + element * model.latent_kept
    out = model.mixer_out
    again = np.where(entering < element, entering, 0.0)  # the attention keeps its output, the projection its own copy
    ring = element * model.kv_heads * (model.head_dim + model.value_dim) * grid.cp  # keys and values of all ranks
    joined: Number = np.where((grid.cp > 1) & (c.keys_ring == 0), ring, 0.0)
    inner = element * (model.attention_kept + out) + again * out + SINGLE_BYTES * model.heads + joined
    sent: Number = 0.0
    width: Number = _width(model, moe=False)
    network = _network(c, model, element, entering)
    if moe:
        routed = model.experts_per_token
        each = entering + element + c.weighted_kept * residual
        sent = each * model.hidden * model.stream * routed + ROUTER_BYTES * model.experts
        width = _width(model, moe)
    cut = inner + network * width
    sent = sent / np.where(c.routed_cut > 0, rows_cut(grid), 1.0)
    kept = tokens * (outer + sent + cut / grid.tp + _scores(c, model, grid, seq_len))
    return kept + c.cast_bytes * layer_matrices(model, grid, moe)


def widest_bytes(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> Number:
    """Return the largest gradient inside of a layer: of what one of its products returns."""
    rows = grid.mbs * seq_len / grid.cp
    inner = (model.matrices - 1.0) * _widest(model) / grid.tp
    return element_bytes(machine, c) * rows * np.maximum(np.maximum(model.hidden, model.projected / grid.tp), inner)


def delayed_bytes(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> Number:
    """Return the gradients that a layer keeps from the first to the second half of a split backward.

    They are those of all that has weights: of what its products return, and its norms.
    """
    element, rows = element_bytes(machine, c), grid.mbs * seq_len / grid.cp
    columns = (model.projected + (model.matrices - 1.0) * _widest(model)) / grid.tp + 2.0 * model.hidden
    return rows * (element * columns + 2.0 * residual_bytes(machine, c) * model.hidden / rows_cut(grid))


def layer_matrices(model: ModelQuantities, grid: Grid, moe: bool) -> Number:
    """Return the weights of the products of one layer of a rank."""
    width = model.shared_ffn if moe else model.ffn * model.dense_share
    found = (model.attention_weights + model.matrices * model.hidden * width) / grid.tp
    return found + model.hidden * model.experts + expert_parameters(model, grid) if moe else found


def working_bytes(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number, moe: bool
) -> Number:
    """Return what the backward of one layer has beside what was kept: gradients inside its network, what it repeats."""
    element = element_bytes(machine, c)
    tokens = grid.mbs * seq_len / grid.cp
    routed = np.maximum(model.expert_ffn * model.experts_per_token / model.stream, model.shared_ffn)
    width = routed if moe else model.ffn
    gradients = tokens * element * (model.matrices * width / grid.tp + 2.0 * model.hidden / rows_cut(grid))
    again = whole_layer_bytes(machine, c, model, grid, seq_len, moe)
    kept = layer_bytes(machine, c, model, grid, seq_len, moe)
    entry = residual_bytes(machine, c) * tokens * model.hidden / rows_cut(grid)
    repeated = np.maximum(again - kept + entry * (grid.recompute == FULL), 0.0)
    return gradients + repeated * (grid.recompute > 0)


def rows_cut(grid: Grid) -> Number:
    """Return how many ranks the rows between the products are cut over."""
    return np.where(grid.sp > 0, grid.tp, 1.0)


def _scores(c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> Number:
    """Return the bytes a token of scores that unfused attention keeps."""
    return np.where(c.flash > 0, 0.0, SCORE_BYTES * model.heads * seq_len / grid.tp)


def _network(c: Coefficients, model: ModelQuantities, element: Number, entering: Number) -> Number:
    """Return the bytes a token and unit of width: what enters the activation function, and the next product."""
    gates = model.matrices - 1.0
    return element * (gates + c.gate_kept * (gates > 1)) + entering


def _width(model: ModelQuantities, moe: bool) -> Number:
    if moe:  # experts of a narrower stream are wider than their weights say
        return model.expert_ffn * model.experts_per_token / model.stream + model.shared_ffn
    return model.ffn * model.dense_share


def _widest(model: ModelQuantities) -> Number:
    """Return the width of the wider kind of network that the model has."""
    dense = np.where(model.moe_layers < model.layers, _width(model, moe=False), 0.0)
    return np.maximum(dense, np.where(model.moe_layers > 0, _width(model, moe=True), 0.0))


def _every_second(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number, moe: bool
) -> Number:
    """Return what is kept where every second product's result and the attention's are (torchtitan, per operator).

    Of queries, keys, values, output, gate, up and down these are queries, values, gate and down.
    """
    element = element_bytes(machine, c)
    heads = model.heads * model.head_dim + model.kv_heads * model.value_dim + model.heads * model.value_dim
    cut = element * (heads + _width(model, moe)) + SINGLE_BYTES * model.heads
    return tokens * (cut / grid.tp + element * model.hidden / rows_cut(grid))


def _products(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number, moe: bool
) -> Number:
    """Return what is kept where the results of all products and of the attention are."""
    element = element_bytes(machine, c)
    heads = model.projected + model.mixer_out
    cut = element * (heads + (model.matrices - 1.0) * _width(model, moe)) + SINGLE_BYTES * model.heads
    return tokens * (cut / grid.tp + 2.0 * element * model.hidden)  # before sums along tp are cut
