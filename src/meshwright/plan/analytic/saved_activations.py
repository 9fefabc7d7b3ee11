"""Bytes that one layer keeps for the backward of one micro-batch, by what a stack's kernels save.

Without recomputation a layer keeps, a token: what enters both norms and what leaves them (4 h), queries, keys and
values before and after the rotation, the attention's output and a log-sum a head, and of a network of width f what
enters and what leaves its activation function (Korthikanti et al. 2022, arXiv 2205.05198, section 4, with flash
attention and gates). Inputs of products are kept in 8 bits where the stack's fp8 kernels do so. A layer with experts
keeps besides the rows that were sent to its experts and the rows that came back.
"""

from typing import NamedTuple

import numpy as np

from ...workload.elements import BOOL_BYTES, HALF_BYTES, SINGLE_BYTES
from ...workload.recomputed import AWAY_PLACES, INPUT, PLACES, RESULT_PLACES
from .adapters import CAST_KEPT_BYTES, entering_elements, is_cast
from .coefficients import Coefficients
from .quantities import Grid, Machine, ModelQuantities, Number
from .states import expert_parameters

SELECTIVE = 1  # indices of quantities.RECOMPUTES
FULL = 2
SCORE_BYTES = 2.0 * HALF_BYTES + BOOL_BYTES  # softmax output, its mask and its dropout, without fused attention
MASK_BYTES = 2.0 * BOOL_BYTES  # of the two dropouts of a layer, in stacks of that time
# of each expert and token: logit, its softmax, the map of choices, in single precision
ROUTER_BYTES = 3.0 * SINGLE_BYTES


def element_bytes(machine: Machine, c: Coefficients) -> Number:
    """Return the bytes of one element of what products return."""
    return np.where(machine.product_bytes < SINGLE_BYTES, c.product_bytes, SINGLE_BYTES)


def residual_bytes(machine: Machine, c: Coefficients) -> Number:
    """Return the bytes of one element of the residual stream."""
    return np.where(machine.product_bytes < SINGLE_BYTES, c.residual_bytes, SINGLE_BYTES)


def norm_bytes(machine: Machine, c: Coefficients) -> tuple[Number, Number]:
    """Return the bytes that a norm keeps of an element of its rows: of what enters it, and of its inner results.

    The second where a norm is several operators: its input in single precision, beside its result before the weight.
    """
    return residual_bytes(machine, c) * c.norm_copies, c.norms_single * SINGLE_BYTES


class LayerParts(NamedTuple):
    """Bytes that a layer keeps for the backward of one micro-batch, without recomputation, part by part."""

    entries: Number  # what enters both halves, and the ranks of latent attention
    norms: Number  # what their norms return
    lifted: Number  # what comes out of latent attention's ranks
    attention: Number  # the rest of it
    sent: Number  # rows on their way to experts and back
    gates: Number  # what enters the activation functions, of dense layers or of routed experts
    acted: Number  # what they return
    shared: Number  # both, of the network that every token visits beside its experts
    scores: Number
    cast: Number  # copies of the weights in the type of the products, where autocast keeps them
    adapted: Number  # what adapters keep of their own, beside what else they would read

    @property
    def all(self) -> Number:
        """Everything."""
        return sum(self)


def layer_bytes(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number, parts: LayerParts, moe: bool
) -> Number:
    """Return what a layer, with experts if `moe`, keeps of its `parts` for the backward of one micro-batch."""
    every = parts.all
    tokens = grid.mbs * model.rows(seq_len) / grid.cp
    residual = residual_bytes(machine, c) * tokens * model.hidden / rows_cut(grid)
    second = residual + _every_second(machine, c, model, grid, tokens, moe)
    products = residual + _products(machine, c, model, grid, tokens, moe)
    every_second = (c.selective_saves == 1) | (c.selective_saves == 3)
    some = np.where(every_second, second, np.where(c.selective_saves == 2, products, every - parts.scores))
    if np.any(c.modules_again):
        some = np.where(c.modules_again > 0, every - _discarded(c, parts, moe), some)
    if np.any(c.results_kept):
        some = np.where(c.results_kept > 0, residual + _results(machine, c, model, grid, tokens, moe), some)
    least = residual
    if np.any(c.layers_again):
        least = every + repeated_share(c, model, grid) * (residual - every)
    if np.any(c.results_away):
        away = away_bytes(machine, c, model, grid, seq_len, moe)
        least, some = least - away, some - away
    return np.where(grid.recompute == FULL, least, np.where(grid.recompute == SELECTIVE, some, every))


def away_bytes(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number, moe: bool
) -> Number:
    """Return what of a layer, with experts if `moe`, lies in the host's memory from its forward to its backward.

    Only what recomputation keeps may: what enters a layer, and results that are kept by their names.
    """
    tokens = grid.mbs * model.rows(seq_len) / grid.cp
    entry = residual_bytes(machine, c) * tokens * model.hidden / rows_cut(grid) * is_away(c, INPUT)
    named = (grid.recompute == SELECTIVE) & (c.results_kept > 0)
    results = _results(machine, c, model, grid, tokens, moe, away=True) if np.any(named) else 0.0
    full = (grid.recompute == FULL) * repeated_share(c, model, grid)
    return np.where(named, entry + results, full * entry)


def is_away(c: Coefficients, name: str) -> Number:
    """Return 1 where something that is kept lies in the host's memory, by its name, else 0."""
    return _bit(c.results_away, AWAY_PLACES[name])


def repeated_share(c: Coefficients, model: ModelQuantities, grid: Grid) -> Number:
    """Return the share of a rank's layers that full recomputation repeats, of stages as even as they go."""
    return np.where(c.layers_again > 0, np.minimum(c.layers_again * grid.pp * grid.vpp / model.layers, 1.0), 1.0)


def is_again(c: Coefficients, module: str) -> Number:
    """Return 1 where selective recomputation computes a module again, by name, else 0."""
    return _bit(c.modules_again, PLACES[module])


def is_kept(c: Coefficients, result: str) -> Number:
    """Return 1 where a result is one of those kept by selective recomputation, else 0."""
    return _bit(c.results_kept, 1 + RESULT_PLACES[result])


def _bit(number: Number, place: int) -> Number:
    return np.floor(number / 2.0**place) % 2.0


def _results(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number, moe: bool, away: bool = False
) -> Number:
    """Return the bytes of a layer's results that are kept by name, or of those the ones `away` from the device.

    Of routed experts there are none.
    """

    def of(name: str) -> Number:
        return is_kept(c, name) * (is_away(c, name) if away else 1.0)

    element = element_bytes(machine, c)
    width = model.shared_ffn if moe else model.ffn * model.dense_share
    cut = of("qkv_proj") * element * model.projected
    cut = cut + of("context") * (element * model.mixer_out + SINGLE_BYTES * model.heads)
    cut = cut + of("mlpwi") * element * (model.matrices - 1.0) * width
    whole = (of("out_proj") + of("mlpwo")) * element * model.hidden
    return tokens * (cut / grid.tp + whole / rows_cut(grid))


def _discarded(c: Coefficients, parts: LayerParts, moe: bool) -> Number:
    """Return the bytes of a layer that its named modules do not keep."""
    found = {"core_attn": parts.scores, "layernorm": parts.norms, "mla_up_proj": parts.lifted}
    if moe:
        inside = 1.0 - is_again(c, "moe")  # of a network that is computed again as a whole nothing else is discarded
        found["moe_act"], found["shared_experts"] = parts.acted * inside, parts.shared * inside
        found["moe"] = parts.sent + parts.gates + parts.acted + parts.shared
    else:
        found["mlp"] = parts.gates + parts.acted
    return sum(is_again(c, name) * bytes_ for name, bytes_ in found.items())


def layer_parts(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number, moe: bool
) -> LayerParts:
    """Return what a layer keeps without recomputation: what it computes again before its backward, with it."""
    element, residual = element_bytes(machine, c), residual_bytes(machine, c)
    entering: Number = np.where(machine.product_bytes < HALF_BYTES, c.low_input_bytes, element)
    tokens = grid.mbs * model.rows(seq_len) / grid.cp
    masks: Number = np.where(c.flash > 0, 0.0, MASK_BYTES)
    gathered: Number = np.where(c.gathers_kept > 0, 1.0, rows_cut(grid))
    halves = model.halves
    copies, inner_copies = norm_bytes(machine, c)
    singles = 2.0 * inner_copies * model.hidden / rows_cut(grid) * halves
    entries = (2.0 * copies + masks) * model.hidden / rows_cut(grid) * halves
    out = model.mixer_out
    again = np.where(entering < element, entering, 0.0)  # the attention keeps its output, the projection its own copy
    lifted = element * model.lifted_kept
    ring = element * model.kv_heads * (model.head_dim + model.value_dim) * grid.cp  # keys and values of all ranks
    joined: Number = np.where((grid.cp > 1) & (c.keys_ring == 0), ring, 0.0)
    inner = element * (model.attention_kept - (1.0 - c.one_projection) * model.turned + out) + again * out
    inner = inner + SINGLE_BYTES * model.heads + joined
    gates = element * (model.matrices - 1.0 + c.gate_kept * (model.matrices > 2.0))
    width: Number = model.ffn * model.dense_share
    sent: Number = 0.0
    shared: Number = 0.0
    entered = gathered  # over how many ranks the rows that enter a network are cut
    if moe:
        entered = np.where(c.router_cut > 0, rows_cut(grid), gathered)
        routed = model.experts_per_token * c.imbalance
        each = entering + c.returned_kept * element + c.weighted_kept * residual
        alone = np.where((c.router_cut > 0) & (c.routed_cut == 0), rows_cut(grid), 1.0)
        sent = each * model.hidden * model.stream * routed + ROUTER_BYTES * model.experts / alone
        width, shared = _routed_width(c, model), model.shared_ffn
        gates = np.where(c.gate_bytes > 0, gates / element * c.gate_bytes, gates)
    read = entering * model.hidden * (1.0 / gathered + 1.0 / entered) * halves
    acted = entering * width / grid.tp * (1.0 - _overwritten(c, model, moe))
    return LayerParts(
        entries=tokens * (entries + element * model.latent_kept),
        norms=tokens * (read + singles),
        lifted=tokens * lifted / grid.tp,
        attention=tokens * (inner - lifted) / grid.tp,
        sent=tokens * sent / np.where(c.routed_cut > 0, rows_cut(grid), 1.0),
        gates=tokens * gates * width / grid.tp,
        acted=tokens * acted,
        shared=tokens * (gates + entering) * shared / grid.tp,
        scores=tokens * _scores(c, model, grid, seq_len),
        cast=c.cast_bytes * layer_matrices(model, grid, moe) if np.any(c.cast_bytes) else 0.0,
        adapted=tokens * _adapted(c, model, grid, read, acted, moe) if np.any(c.adapters_cast) else 0.0,
    )


def _adapted(c: Coefficients, model: ModelQuantities, grid: Grid, read: Number, acted: Number, moe: bool) -> Number:
    """Return the bytes a token of adapters that cast what enters them, less what frozen products need not keep.

    That is what norms return, `read`, and what enters the last product of a dense network, `acted`.
    """
    width = model.shared_ffn if moe else model.ffn * model.dense_share
    own = CAST_KEPT_BYTES * entering_elements(c, model, grid, width, 1.0 * (width > 0))
    return is_cast(c, grid) * np.maximum(own - read - (0.0 if moe else acted), 0.0)


def widest_bytes(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> Number:
    """Return the largest gradient inside of a layer: of what one of its products returns."""
    rows = grid.mbs * model.rows(seq_len) / grid.cp
    inner = (model.matrices - 1.0) * _widest(c, model) / grid.tp
    return element_bytes(machine, c) * rows * np.maximum(np.maximum(model.hidden, model.projected / grid.tp), inner)


def delayed_bytes(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> Number:
    """Return the gradients that a layer keeps from the first to the second half of a split backward.

    They are those of all that has weights: of what its products return, and its norms.
    """
    element, rows = element_bytes(machine, c), grid.mbs * model.rows(seq_len) / grid.cp
    routed = np.where(model.moe_layers > 0, model.experts_per_token * c.imbalance * model.stream, 1.0)
    columns = (model.projected + (model.matrices - 1.0) * _widest(c, model)) / grid.tp
    columns = columns + model.hidden * (1.0 + np.maximum(routed, 1.0)) + model.experts / rows_cut(grid)
    return rows * (element * columns + 2.0 * residual_bytes(machine, c) * model.hidden / rows_cut(grid))


def layer_matrices(model: ModelQuantities, grid: Grid, moe: bool) -> Number:
    """Return the weights of the products of one layer of a rank."""
    width = model.shared_ffn if moe else model.ffn * model.dense_share
    found = (model.attention_weights + model.matrices * model.hidden * width) / grid.tp
    return found + model.hidden * model.experts + expert_parameters(model, grid) if moe else found


def working_bytes(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number,
    again: Number, kept: Number, moe: bool,
) -> Number:  # fmt: skip
    """Return what the backward of one layer has beside what was kept: gradients inside its network, what it repeats.

    `again` is what it keeps without recomputation, `kept` what it kept.
    """
    element = element_bytes(machine, c)
    tokens = grid.mbs * model.rows(seq_len) / grid.cp
    width = np.maximum(_routed_width(c, model), model.shared_ffn) if moe else model.ffn
    inside = model.matrices - (model.matrices - 1.0) * _overwritten(c, model, moe)
    gradients = tokens * element * (inside * width / grid.tp + 2.0 * model.hidden / rows_cut(grid))
    entry = residual_bytes(machine, c) * tokens * model.hidden / rows_cut(grid)
    repeated = np.maximum(again - kept + entry * (grid.recompute == FULL), 0.0)
    if np.any(c.layers_again):  # `kept` is that of the layers on average, and one of them is repeated at a time
        repeated = np.where((c.layers_again > 0) & (grid.recompute == FULL), again, repeated)
    return gradients + repeated * (grid.recompute > 0)


def _overwritten(c: Coefficients, model: ModelQuantities, moe: bool) -> Number:
    """Return 1 where a gated network's backward makes its gradients in the place of what the network kept, else 0."""
    return 0.0 if moe else np.where((c.gates_overwritten > 0) & (c.trained < 1.0) & (model.matrices > 2.0), 1.0, 0.0)


def rows_cut(grid: Grid) -> Number:
    """Return how many ranks the rows between the products are cut over."""
    return np.where(grid.sp > 0, grid.tp, 1.0)


def _scores(c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> Number:
    """Return the bytes a token of scores that unfused attention keeps."""
    return np.where(c.flash > 0, 0.0, SCORE_BYTES * model.heads * model.rows(seq_len) / grid.tp)


def _routed_width(c: Coefficients, model: ModelQuantities) -> Number:
    """Return the width of a token's routed experts together, on the rank that has most of their rows.

    Experts of a narrower stream are wider than their weights say.
    """
    return model.expert_ffn * (model.experts_per_token * c.imbalance) / model.stream


def _width(c: Coefficients, model: ModelQuantities, moe: bool) -> Number:
    if moe:
        return _routed_width(c, model) + model.shared_ffn
    return model.ffn * model.dense_share


def _widest(c: Coefficients, model: ModelQuantities) -> Number:
    """Return the width of the wider kind of network that the model has."""
    dense = np.where(model.moe_layers < model.layers, _width(c, model, moe=False), 0.0)
    return np.maximum(dense, np.where(model.moe_layers > 0, _width(c, model, moe=True), 0.0))


def _every_second(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number, moe: bool
) -> Number:
    """Return what is kept where every second product's result and the attention's are (torchtitan, per operator).

    Of queries, keys, values, output, gate, up and down these are queries, values, gate and down; nobody reads the last
    again, so that a compiled layer does not keep it. Grouped products of routed experts are not among the operators
    whose results are kept, exchanges between experts are (models/llama4/infra/parallelize.py, _op_sac_save_list).
    """
    element = element_bytes(machine, c)
    heads = model.heads * model.head_dim + model.kv_heads * model.value_dim + model.heads * model.value_dim
    width = model.shared_ffn if moe else model.ffn * model.dense_share
    cut = element * (heads + width) + SINGLE_BYTES * model.heads
    last = element * model.hidden / rows_cut(grid) * (c.selective_saves == 1)
    rows = 2.0 * model.experts_per_token * c.imbalance * model.stream if moe else 0.0  # there and back
    exchanged = np.where(grid.ep > 1, element * model.hidden * rows, 0.0)
    return tokens * (cut / grid.tp + last + exchanged / np.where(c.routed_cut > 0, rows_cut(grid), 1.0))


def _products(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number, moe: bool
) -> Number:
    """Return what is kept where the results of all products and of the attention are."""
    element = element_bytes(machine, c)
    heads = model.projected + model.mixer_out
    cut = element * (heads + (model.matrices - 1.0) * _width(c, model, moe)) + SINGLE_BYTES * model.heads
    whole: Number = 2.0 * model.hidden  # of attention and network, before sums along tp are cut
    if moe:
        returned = model.experts_per_token * c.imbalance * model.stream + (model.shared_ffn > 0)
        whole = model.hidden * (1.0 + returned) + model.experts / rows_cut(grid)
    return tokens * (cut / grid.tp + element * whole)
