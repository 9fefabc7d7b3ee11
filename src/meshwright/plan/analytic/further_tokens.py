"""Modules that predict further tokens: their seconds and what they keep, beside the output of a model.

As Megatron-LM has them (megatron/core/transformer/multi_token_prediction.py, after DeepSeek-V3's report, arXiv
2412.19437, 2.2): they follow the last layer, on the rank with the output. Each norms the stream before it and the
embedding of a later token, joins both by a projection of 2h to h, runs layers of its own and a norm, and multiplies by
the model's output once more for a loss of its own, whose logits are there until backward. Full recomputation keeps what
enters a module; by blocks of layers it leaves them out.
"""

from dataclasses import replace

import numpy as np

from ...workload.elements import HALF_BYTES
from ...workload.program import Comm
from .axis_traffic import Axis
from .coefficients import Coefficients
from .collective import axis_span
from .layer import BACKWARD_PASSES, layer_s, tensor_hidden
from .products import linear_s
from .quantities import RECOMPUTES, Grid, Machine, ModelQuantities, Number
from .saved_activations import element_bytes, layer_bytes, layer_parts, norm_bytes, residual_bytes, rows_cut

NONE, FULL = RECOMPUTES.index("none"), RECOMPUTES.index("full")
PASSES = 10.0  # reads and writes of T x h in the forward: three norms, and both streams joined to one


def further_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number, head: tuple[Number, Number]
) -> tuple[Number, Number]:
    """Return seconds of all modules' forward and backward for one micro-batch; `head` are those of one output."""
    layers = model.mtp_layers
    if layers is None:
        return 0.0, 0.0
    grid = _repeated(c, grid)
    tokens = grid.mbs * seq_len / grid.cp
    each = layer_s(machine, c, layers, grid, seq_len)
    joined = linear_s(machine, c, tokens, model.hidden / grid.tp, 2.0 * model.hidden)
    rate = machine.memory_rate * c.memory / c.element_wise
    moved = PASSES * HALF_BYTES * tokens * model.hidden / rows_cut(grid) / rate
    shown = 1.0 - tensor_hidden(machine, c, grid)
    sent = [seconds * shown for seconds in _sent_s(machine, c, grid, tokens * model.hidden)]
    ahead = joined[0] + moved + sent[0]
    back = joined[1] + BACKWARD_PASSES * moved + sent[1] + ahead * (grid.recompute == FULL)
    again = each.backward.total_s + each.again.total_s
    return (
        model.mtp * (layers.layers * each.forward.total_s + ahead + head[0]),
        model.mtp * (layers.layers * again + back + head[1]),
    )


def further_bytes(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number) -> Number:
    """Return the bytes that all modules keep of one micro-batch for backward, without their outputs' logits."""
    layers = model.mtp_layers
    if layers is None:
        return 0.0
    grid = _repeated(c, grid)
    kept: Number = 0.0
    for moe in (False, True):
        parts = layer_parts(machine, c, layers, grid, seq_len, moe)
        count = layers.moe_layers if moe else layers.layers - layers.moe_layers
        kept = kept + count * layer_bytes(machine, c, layers, grid, seq_len, parts, moe)
    streams = 2.0 * grid.mbs * seq_len / grid.cp * model.hidden / rows_cut(grid)  # the one before, and the embedding
    element = element_bytes(machine, c)
    entering = np.where(machine.product_bytes < HALF_BYTES, c.low_input_bytes, element)
    gathered = np.where(c.gathers_kept > 0, rows_cut(grid), 1.0)
    joined = streams * (sum(norm_bytes(machine, c)) + entering * gathered)
    least = streams * residual_bytes(machine, c)
    return model.mtp * np.where(grid.recompute == FULL, least, kept + joined)


def _repeated(c: Coefficients, grid: Grid) -> Grid:
    """Return the layouts with what they recompute of these modules: nothing where layers are repeated by blocks."""
    if not np.any(c.layers_again):
        return grid
    return replace(grid, recompute=np.where(c.layers_again > 0, NONE, grid.recompute))


def _sent_s(machine: Machine, c: Coefficients, grid: Grid, rows: Number) -> tuple[Number, Number]:
    """Return seconds of what a module's projection sends along tp, forward and backward; `rows` has T x h elements.

    What enters it is gathered where sequence parallelism cuts the rows, and its gradient is scattered, else summed.
    What leaves it is gathered, and so is its gradient where the rows are cut again.
    """
    split, cut = 1 * (grid.tp > 1), 1 * ((grid.tp > 1) & (grid.sp > 0))
    whole, wide = rows * c.residual_bytes, c.residual_bytes
    both = 2.0 * whole
    forward = (
        Comm(axis="tp", collective="all_gather", bytes=both, element_bytes=wide, calls=cut),
        Comm(axis="tp", collective="all_gather", bytes=whole, element_bytes=wide, calls=split),
    )
    backward = (
        Comm(axis="tp", collective="all_gather", bytes=whole, element_bytes=wide, calls=cut),
        Comm(axis="tp", collective="reduce_scatter", bytes=both, element_bytes=wide, calls=cut),
        Comm(axis="tp", collective="all_reduce", bytes=both, element_bytes=wide, calls=split - cut),
    )
    axis = Axis(c, axis_span(machine, c, grid, "tp"))
    return axis.total_s(forward), axis.total_s(backward)
