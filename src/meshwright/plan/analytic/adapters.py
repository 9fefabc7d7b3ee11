"""Time of low-rank adapters beside frozen matrices: what their kernels move through memory.

y = x W + s (x A) B for x of T rows and W [in, out]; A and B are so narrow that their products are bound by memory.
Forward: x is read, (x A) B written, both halves read and their sum written, T (in + 4 out) elements. Backward: B's
gradient and that of x A read y's, A's gradient reads x, and x's second gradient is written and added to that of W,
T (5 in + 2 out). So LoRA is computed by PyTorch's own operators, scale and dropout folded into them (Hu et al. 2021,
arXiv 2106.09685; NeMo Automodel, nemo_automodel/components/_peft/lora.py).

Adapters in single precision under autocast (PEFT) cast what enters each of them, drop some of it and cast it back:
21 bytes an element forward, and as many for its gradient. The copy in half precision and a byte of the mask stay until
backward; the rows themselves need not, since a frozen product's backward does not read what entered it.

Frozen weights in few bits are unpacked before each product that reads them: read once and written in half precision, by
one kernel at the memory's rate, which is the least that it takes.
"""

import numpy as np

from ...workload.elements import BOOL_BYTES, HALF_BYTES, SINGLE_BYTES
from .coefficients import Coefficients
from .quantities import Grid, Machine, ModelQuantities, Number
from .states import expert_parameters

FORWARD_IN, FORWARD_OUT = 1.0, 4.0
BACKWARD_IN, BACKWARD_OUT = 5.0, 2.0
# bytes of an element: 2 read and 4 written, 4 read, 4 and 1 written, 4 read and 2 written; backward the same way back
CAST_BYTES = 2.0 * HALF_BYTES + 4.0 * SINGLE_BYTES + BOOL_BYTES
CAST_KEPT_BYTES = float(HALF_BYTES + BOOL_BYTES)  # the cast copy, and the mask of what is dropped


def adapters_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number
) -> tuple[Number, Number]:
    """Return seconds of the adapters of the mean layer, forward and backward; 0 where nothing is frozen.

    Queries, keys and values have an adapter each, or one together, and so have all matrices of networks but those of
    routed experts. Tensor parallelism does not cut what enters the former nor what leaves the last matrix of a half:
    the whole residual stream is read for each adapter and written again, so that at a high degree adapters take about
    as long as the weights' gradients that they save.
    """
    if np.all(c.trained >= 1.0):
        return 0.0, 0.0
    experts, plain = model.moe_share, model.plain_share
    width = plain * model.ffn + experts * model.shared_ffn
    networks = plain + experts * (model.shared_ffn > 0)
    entering = entering_elements(c, model, grid, width, networks)
    leaving = (model.projected + (model.matrices - 1.0) * width) / grid.tp + (1.0 + networks) * model.hidden
    each = np.where(c.trained < 1.0, HALF_BYTES * tokens / (machine.memory_rate * c.memory), 0.0)
    cast = CAST_BYTES / HALF_BYTES * is_cast(c, grid)
    return (
        each * ((FORWARD_IN + cast) * entering + FORWARD_OUT * leaving),
        each * ((BACKWARD_IN + cast) * entering + BACKWARD_OUT * leaving),
    )


def unpacking_s(machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid) -> Number:
    """Return seconds in which the mean layer's frozen weights unpack once; 0 where they lie as they multiply."""
    if not np.any(c.base_bytes):
        return 0.0
    width = model.plain_share * model.ffn + model.moe_share * model.shared_ffn
    weights = (model.attention_weights + model.matrices * model.hidden * width) / grid.tp
    weights = weights + model.moe_share * expert_parameters(model, grid)
    moved = weights * (c.base_bytes + HALF_BYTES) / (machine.memory_rate * c.memory)
    return np.where(c.base_bytes > 0, moved, 0.0)


def entering_elements(c: Coefficients, model: ModelQuantities, grid: Grid, width: Number, networks: Number) -> Number:
    """Return the elements of a token that enter the adapters of a layer, each counted for every adapter that reads it.

    `width`: of the layer's network, without routed experts; `networks`: 1 where it has one, or the share of layers.
    """
    gates = model.matrices - 1.0
    into = 3.0 - 2.0 * c.joined_adapters, gates - (gates - 1.0) * c.joined_adapters
    return (into[0] + into[1] * networks) * model.hidden + (model.mixer_out + width) / grid.tp


def is_cast(c: Coefficients, grid: Grid) -> Number:
    """Return 1 where adapters are trained in single precision beside weights in half, else 0.

    Where weights are sharded all have one type: FSDP joins them, and DeepSpeed casts all.
    """
    return np.where((c.trained < 1.0) & (c.adapters_cast > 0) & (grid.zero < 2), 1.0, 0.0)
