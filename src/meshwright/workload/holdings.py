"""Memory of each rank of our own engine, from the operators of a workload: live tensors, with AdamW.

`workload` is what one rank computes (`transformer.describe_workload` with the layout), in float32 or autocast: tensor,
context and expert parallelism have made its operators and parameters smaller; `held.states` says what ZeRO and offload
leave. A rank of a pipeline has besides what its micro-batches in flight keep for backward.
"""

import itertools
import math
from collections.abc import Sequence

import msgspec

from ..layout import Layout
from ..mesh import size
from ..pipelines import SLACK, StageTarget, best_cut, peak_in_flight, schedule
from .chain import chain_units
from .conventions import LOGIT_GRADIENT_BYTES, Conventions, engine
from .elements import SINGLE_BYTES
from .graph import Layer, Workload
from .held import Counts, KeptActivations, gathered, moments, peak, states
from .program import Held


def peak_memory_bytes(workload: Workload, layout: Layout, *, micro_batches: int = 1) -> int:
    """Return the peak bytes of live tensors of the fullest rank."""
    return int(peak(held_by(workload, layout, micro_batches)).allocated)


def held_by(workload: Workload, layout: Layout, micro_batches: int = 1, bounds: Sequence[int] = ()) -> tuple[Held, ...]:
    """Return what each rank of the pipeline holds; `bounds` as in `stages.step_program`, or the best by counted costs.

    One micro-batch is in backward at a time, beside what those in flight keep.
    """
    if layout.pp == 1:
        return (_held(workload, layout, micro_batches),)
    grid = schedule(layout.schedule, layout.pp, layout.vpp, micro_batches)
    cut = (
        bounds or best_cut(chain_units(workload, recompute=layout.recompute), StageTarget.of(grid), slack=SLACK).bounds
    )
    each = [layer for layer in workload.layers for _ in range(layer.count)]
    of_stage = [each[first:end] for first, end in itertools.pairwise(cut)]
    c = engine(workload.precision)
    kept = [sum(kept_bytes(layer, layout, c) for layer in layers) for layers in of_stage]
    waiting = [sum(_gradients(layer, c) for layer in layers) for layers in of_stage]
    in_flight = peak_in_flight(grid, kept, waiting.__getitem__)
    found = []
    for rank in range(grid.ranks):
        stages = grid.stages_of(rank)
        own = part_of(workload, [layer for stage in stages for layer in of_stage[stage]])
        # the first stage sends no gradient back, so that it does not split its backward
        as_run = layout if rank else msgspec.structs.replace(layout, schedule="1f1b", vpp=1)
        found.append(_held(own, as_run, micro_batches, int(in_flight[rank]) - sum(kept[stage] for stage in stages)))
    return tuple(found)


def part_of(workload: Workload, held: Sequence[Layer]) -> Workload:
    """Return the part of a workload that has these layers; a tied output without the embedding has a copy of it."""
    embedding, output = workload.layers[0], workload.layers[-1]
    hidden, vocabulary = next(op.shape[1:] for op in output.operators if op.kind == "linear")
    layers: list[Layer] = []
    for layer in held:
        if layer is output and layer.parameters < hidden * vocabulary and embedding not in held:
            layer = msgspec.structs.replace(layer, parameters=layer.parameters + embedding.parameters)
        if layers and layers[-1].name == layer.name:
            layers[-1] = msgspec.structs.replace(layers[-1], count=layers[-1].count + 1)
        else:
            layers.append(msgspec.structs.replace(layer, count=1))
    shapes = tuple((layer.count * layer.parameters,) for layer in layers)
    return msgspec.structs.replace(workload, layers=tuple(layers), parameter_shapes=shapes)


def _held(workload: Workload, layout: Layout, micro_batches: int, beside: int = 0) -> Held:
    """Return what a rank with this workload holds, `beside` what other micro-batches than that in backward keep."""
    end, c = workload.layers[-1], engine(workload.precision)
    deepest = max(workload.layers, key=lambda layer: (layer.recomputable, layer.count))  # the ends only if alone
    p, alone = _counts(workload, layout, deepest)
    s = states(p, layout, c, sharded=layout.zero >= 2, offload=layout.offloaded)
    weights = gathered(
        s, p, layout, layers=deepest.count, alone=alone, single=layout.dp * layout.cp == 1,
        halves=layout.schedule == "zb",
    )  # fmt: skip
    kept = KeptActivations(
        activations=kept_activation_bytes(workload, layout) + beside,
        last=end.saved_bytes,
        first=deepest.saved_bytes + beside,
        beside=beside,
        logits=LOGIT_GRADIENT_BYTES * _returned(end),
        again=_recomputed_bytes(deepest, layout, c),
        widest=_widest_bytes(deepest, c),
    )
    return moments(kept, weights, once=micro_batches == 1)


def _counts(workload: Workload, layout: Layout, deepest: Layer) -> tuple[Counts, int]:
    """Return the parameters of a rank, and those of a layer's experts that ZeRO leaves whole, since one rank has them.

    ZeRO cuts experts over the ranks that share them, all else over those of data parallelism.
    """
    held = workload.parameters
    experts = sum(layer.count * layer.expert_parameters for layer in workload.layers) if layout.ep > 1 else 0
    over = size(layout, "edp")
    own = -(-(held - experts) // size(layout, "shard" if layout.zero >= 2 else "data")) + -(-experts // over)
    counts = Counts(held, own, deepest.parameters, held - deepest.count * deepest.parameters)
    return counts, deepest.expert_parameters if layout.ep > 1 and over == 1 else 0


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


def _returned(layer: Layer) -> int:
    """Return how many elements a layer returns: of an embedding, whose shape has its words too, rows by width."""
    last = layer.operators[-1]
    return math.prod((last.shape[0], last.shape[-1]) if last.kind == "embedding" else last.shape)


def _input_bytes(layer: Layer, c: Conventions) -> int:
    rows, hidden = layer.operators[0].shape[:2]
    return int(c.residual_bytes) * rows * hidden


def _widest_bytes(layer: Layer, c: Conventions) -> int:
    """Return the bytes of the largest gradient of an activation inside a layer."""
    rows_by_outputs = [op.shape[0] * op.shape[2] for op in layer.operators if op.kind == "linear"]
    return int(c.product_bytes) * max(rows_by_outputs, default=0)


def _gradients(layer: Layer, c: Conventions) -> int:
    """Return the bytes that wait in a split backward: of all that has weights, the gradient of what it returned."""
    columns = {"linear": (2, int(c.product_bytes)), "rms_norm": (1, int(c.residual_bytes))}
    found = [(op.shape, *columns[op.kind]) for op in layer.operators if op.kind in columns]
    return sum(each * shape[0] * shape[column] for shape, column, each in found)
