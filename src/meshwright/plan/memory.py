"""Peak bytes of live tensors on one rank under data parallelism."""

import math

from ..layout import Layout
from ..workload.graph import Workload

FLOAT32_BYTES = 4
ADAM_MOMENTS = 2


def peak_memory_bytes(workload: Workload, layout: Layout) -> int:
    """Return the peak bytes of live tensors of a rank, in float32 with AdamW.

    Weights, their two moments and (from the second step on, where they are kept in buckets) gradients live
    throughout. On top comes the larger of two moments: the start of backward, when all activations are kept and the
    gradient of the logits is made, or its end, when all gradients are there.
    """
    weights = FLOAT32_BYTES * workload.parameters
    steady = weights * (1 + ADAM_MOMENTS)
    kept = kept_activation_bytes(workload, layout)
    last = workload.layers[-1].operators[-1]
    gradient_of_logits = FLOAT32_BYTES * math.prod(last.shape)
    if layout.dp > 1:
        return steady + weights + kept + gradient_of_logits
    return steady + max(kept + gradient_of_logits, weights)


def kept_activation_bytes(workload: Workload, layout: Layout) -> int:
    """Return the bytes of activations that one micro-batch keeps for backward."""
    if layout.recompute != "full":
        return workload.saved_bytes
    kept = 0
    for layer in workload.layers:
        if layer.count > 1:  # each keeps its input only; one at a time is computed again
            rows, hidden = layer.operators[0].shape[:2]
            kept += layer.count * FLOAT32_BYTES * rows * hidden + layer.saved_bytes
        else:
            kept += layer.saved_bytes
    return kept
