"""Time of matrix products by their shape: a ceiling by device and precision, less where a dimension is short.

time = 2MNK / (peak x ceiling) x (1 + k/K)(1 + s/M + s/N), the form of the study in
`docs/generated/validation.md`; never less than the bytes of the three matrices over the memory's rate (the roofline of
Williams et al. 2009).
"""

import numpy as np

from ...workload.elements import HALF_BYTES
from .coefficients import Coefficients
from .quantities import Machine, Number


def product_s(machine: Machine, c: Coefficients, m: Number, n: Number, k: Number) -> Number:
    """Return the seconds of a product [m, k] x [k, n] in the precision of the machine."""
    ideal = 2.0 * m * n * k / (machine.peak * c.product)
    shaped = ideal * (1.0 + c.product_depth / k) * (1.0 + c.product_width / m + c.product_width / n)
    moved = (m * k + k * n + m * n) * machine.product_bytes / (machine.memory_rate * c.memory)
    casts = c.cast * (machine.product_bytes < HALF_BYTES) * (m * k + k * n) / (machine.memory_rate * c.memory)
    return np.maximum(shaped, moved) + casts


def linear_s(machine: Machine, c: Coefficients, rows: Number, columns: Number, depth: Number) -> tuple[Number, Number]:
    """Return seconds of the forward and the backward of a layer y = x W, x [rows, depth] and W [depth, columns].

    Backward is two products: the input's gradient [rows, columns] x [columns, depth], the weight's
    [depth, rows] x [rows, columns], which a frozen one does not need.
    """
    forward = product_s(machine, c, rows, columns, depth)
    inputs = product_s(machine, c, rows, depth, columns)
    weights = product_s(machine, c, depth, columns, rows)
    return forward, inputs + weights * c.trained
