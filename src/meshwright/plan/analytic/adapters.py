"""Time of low-rank adapters beside frozen matrices: what their kernels move through memory.

y = x W + s (x A) B for x of T rows and W [in, out]; A and B are so narrow that their products are bound by memory.
Forward: x is read, (x A) B written, both halves read and their sum written, T (in + 4 out) elements. Backward: B's
gradient and that of x A read y's, A's gradient reads x, and x's second gradient is written and added to that of W,
T (5 in + 2 out). So LoRA is computed by PyTorch's own operators, scale and dropout folded into them (Hu et al. 2021,
arXiv 2106.09685; NeMo Automodel, nemo_automodel/components/_peft/lora.py).
"""

import numpy as np

from .coefficients import Coefficients
from .quantities import Grid, Machine, ModelQuantities, Number

HALF_BYTES = 2.0
FORWARD_IN, FORWARD_OUT = 1.0, 4.0
BACKWARD_IN, BACKWARD_OUT = 5.0, 2.0


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
    width = (plain * model.ffn + experts * model.shared_ffn) / grid.tp
    gates = model.matrices - 1.0
    networks = plain + experts * (model.shared_ffn > 0)
    into = 3.0 - 2.0 * c.joined_adapters, gates - (gates - 1.0) * c.joined_adapters
    entering = (into[0] + into[1] * networks) * model.hidden + model.mixer_out / grid.tp + width
    leaving = model.projected / grid.tp + gates * width + (1.0 + networks) * model.hidden
    each = np.where(c.trained < 1.0, HALF_BYTES * tokens / (machine.memory_rate * c.memory), 0.0)
    return (
        each * (FORWARD_IN * entering + FORWARD_OUT * leaving),
        each * (BACKWARD_IN * entering + BACKWARD_OUT * leaving),
    )
