"""Peak bytes of live tensors on one rank under data parallelism."""

import math

from ..layout import Layout
from ..workload.graph import Layer, Workload

FLOAT32_BYTES = 4
ADAM_MOMENTS = 2


def peak_memory_bytes(workload: Workload, layout: Layout) -> int:
    """Return the peak bytes of live tensors of a rank, in float32 with AdamW.

    Weights, their two moments and (with more than one rank, where they are kept in buckets) gradients live throughout.
    On top comes the highest of three moments of a micro-batch: the loss's backward, with all activations kept and two
    tensors of the logits' size; the last layer's backward; and, on one rank, that of the first layer, when the
    gradients of all others are there.
    """
    weights = FLOAT32_BYTES * workload.parameters
    steady = weights * (1 + ADAM_MOMENTS)
    output = workload.layers[-1]
    kept = kept_activation_bytes(workload, layout)
    loss = kept + 2 * FLOAT32_BYTES * math.prod(output.operators[-1].shape)
    deepest = max(workload.layers, key=lambda layer: layer.count)
    again = deepest.saved_bytes if layout.recompute == "full" else 0
    last_layer = kept - output.saved_bytes + again + _widest_bytes(deepest)
    if layout.dp > 1:
        return steady + weights + max(loss, last_layer)
    first_layer = weights + deepest.saved_bytes + _widest_bytes(deepest)
    return steady + max(loss, last_layer, first_layer)


def kept_activation_bytes(workload: Workload, layout: Layout) -> int:
    """Return the bytes of activations that one micro-batch keeps for backward: of recomputed layers, their input."""
    if layout.recompute != "full":
        return workload.saved_bytes
    kept = 0
    for layer in workload.layers:
        rows, hidden = layer.operators[0].shape[:2]
        kept += layer.count * FLOAT32_BYTES * rows * hidden if layer.recomputable else layer.saved_bytes
    return kept


def _widest_bytes(layer: Layer) -> int:
    """Return the bytes of the largest gradient of an activation inside a layer."""
    rows_by_outputs = [op.shape[0] * op.shape[2] for op in layer.operators if op.kind == "linear"]
    return FLOAT32_BYTES * max(rows_by_outputs, default=0)
