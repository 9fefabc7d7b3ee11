"""Peak bytes of live tensors on one rank, in float32 or under autocast, with AdamW, under every split but pipelines.

`workload` is what one rank computes (`workload.transformer.describe` with the layout): tensor, context and expert
parallelism have made its operators and parameters smaller. ZeRO cuts what is left of weights, gradients and moments.
"""

import math
from typing import NamedTuple

from ...layout import Layout
from ...workload.conventions import SINGLE_BYTES, Conventions, engine
from ...workload.graph import Layer, Workload
from ...workload.stages import updated

ADAM_MOMENTS = 2
GATHERED_LAYERS = 2  # under ZeRO 3: the one that computes and the one that is prefetched


class _States(NamedTuple):
    """Bytes of weights, gradients and moments: throughout a step, and what comes on top in parts of it."""

    throughout: int
    at_loss: int  # when the loss's backward begins
    in_layers: int  # while a layer's backward runs
    at_end: int  # in the first layer's backward, when the gradients of all others are there
    at_second_half: int = 0  # when the second half of a split backward begins, with whole weights
    after_second_half: int = 0  # when it ends, with the gradients of all weights of a stage in place of activations


def peak_memory_bytes(workload: Workload, layout: Layout, *, micro_batches: int = 1) -> int:
    """Return the peak bytes of live tensors of a rank.

    To what lives throughout comes the highest of four moments of a micro-batch: the loss's backward, with all
    activations kept and two tensors of the logits' size; the last layer's backward; that of the first layer; and the
    second half of a zero-bubble pipeline's.
    """
    output = workload.layers[-1]
    deepest = max(workload.layers, key=lambda layer: layer.count)
    c = engine(workload.precision)
    kept = kept_activation_bytes(workload, layout)
    again = _recomputed_bytes(deepest, layout, c)
    states = _states(workload, layout, micro_batches)
    loss = kept + 2 * SINGLE_BYTES * math.prod(output.operators[-1].shape) + states.at_loss
    last_layer = kept - output.saved_bytes + again + _widest_bytes(deepest, c) + states.in_layers
    first_layer = deepest.saved_bytes + _widest_bytes(deepest, c) + states.at_end
    second_half = max(kept + states.at_second_half, states.after_second_half)
    return states.throughout + max(loss, last_layer, first_layer, second_half)


def host_memory_bytes(workload: Workload, layout: Layout) -> int:
    """Return the bytes of a rank in its host's memory: of what it updates weights, gradients and moments.

    The first two are pinned: the device copies from there and to there.
    """
    if layout.offload == "none":
        return 0
    return SINGLE_BYTES * (2 + ADAM_MOMENTS) * sum(updated(workload, layout).values())


def kept_activation_bytes(workload: Workload, layout: Layout) -> int:
    """Return the bytes of activations that one micro-batch keeps for backward."""
    c = engine(workload.precision)
    return sum(layer.count * kept_bytes(layer, layout, c) for layer in workload.layers)


def kept_bytes(layer: Layer, layout: Layout, c: Conventions) -> int:
    """Return what a layer keeps: everything; under selective recomputation its input and what products return."""
    if layout.recompute == "none" or not layer.recomputable:
        return layer.saved_bytes
    kept, each = _input_bytes(layer, c), int(c.product_bytes)
    if layout.recompute == "selective":
        for operator in layer.operators:
            if operator.kind == "linear":
                kept += each * operator.shape[0] * operator.shape[2]
            elif operator.kind in {"attention", "context_attention"}:
                batch, heads, _, length, width = operator.shape[:5]
                kept += batch * heads * length * (each * width + SINGLE_BYTES)  # the output, a log-sum-exp a row
    return kept


def _recomputed_bytes(layer: Layer, layout: Layout, c: Conventions) -> int:
    """Return what a layer's backward computes again before it starts."""
    if layout.recompute == "none":
        return 0
    return layer.saved_bytes - (kept_bytes(layer, layout, c) - _input_bytes(layer, c))


def _input_bytes(layer: Layer, c: Conventions) -> int:
    rows, hidden = layer.operators[0].shape[:2]
    return int(c.residual_bytes) * rows * hidden


def _states(workload: Workload, layout: Layout, micro_batches: int) -> _States:
    weights = SINGLE_BYTES * workload.parameters
    moments = ADAM_MOMENTS if layout.offload == "none" else 0
    stays = layout.offload != "parameters"  # else the shares of weights and gradients live in the host's memory
    ranks = layout.dp * layout.cp // layout.replicas
    share = -(-weights // ranks)
    if layout.zero == 0:
        if ranks > 1 or micro_batches > 1:  # gradients stay in their buckets, or until the last micro-batch
            return _States(weights * (2 + moments), 0, 0, 0)
        return _States(weights * (1 + moments), 0, 0, weights)
    if layout.zero == 1:  # weights and gradients in flat buckets, of the sums and the moments a part
        return _States(2 * weights + (1 + moments) * share, 0, 0, 0)
    layer = max(workload.layers, key=lambda item: item.count)
    one = SINGLE_BYTES * layer.parameters
    root = weights - layer.count * one  # embedding, last norm and output, gathered throughout
    gathered = weights if layout.zero == 2 else root
    ahead = 0 if layout.zero == 2 else GATHERED_LAYERS * one
    accumulated = share if micro_batches > 1 and stays else 0
    split = layout.schedule == "zb"
    return _States(
        throughout=share * (stays + moments) + root + accumulated,
        at_loss=gathered - root,
        in_layers=gathered - root + ahead + root + one,
        at_end=ahead + root + 2 * one + share * stays - accumulated,
        at_second_half=weights - root if split else 0,
        after_second_half=2 * weights - root if split else 0,
    )


def _widest_bytes(layer: Layer, c: Conventions) -> int:
    """Return the bytes of the largest gradient of an activation inside a layer."""
    rows_by_outputs = [op.shape[0] * op.shape[2] for op in layer.operators if op.kind == "linear"]
    return int(c.product_bytes) * max(rows_by_outputs, default=0)
