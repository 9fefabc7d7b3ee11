"""Time of one step of a model split over tensor, context, expert and data ranks with ZeRO, from measured times.

Compute is that of one rank (`workload.transformer.describe` with the layout). Collectives inside forward and backward
block: the layer waits for them. Gradients in buckets overlap with the last backward as under plain data parallelism.
What ZeRO 2 and 3 gather and scatter is copied out of its buffer and into it, and what FSDP2 does around it on the host
is computation. The slowest rank sets the pace of all.

What each layer sends, C the bytes of its activations [rows, features] on a rank without sequence parallelism:

    tp    an all-reduce of C after attention and after the network, one before each in backward; the embedding one, the
          output one. Under sequence parallelism each is a reduce-scatter and, where rows are wanted whole, an
          all-gather; once a step the gradients of the norms are summed
    cp    an all-gather of keys and values forwards, a reduce-scatter of their gradients backwards
    ep    rows to their experts and back, forwards and backwards
    zero  2: weights once a step, gradients each micro-batch; 3: weights twice each micro-batch, those outside of the
          stack of layers (the root: embedding, last norm and output, in one piece) once
    pp    C at every cut, forwards and backwards

Each is timed as a layer calls it, and a bucket's all-reduce or (ZeRO 1) reduce-scatter beside computation. The weights
of the layer to come travel beside computation too and take cores from it, as an all-reduce does there.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from ..cluster.graph import blocking
from ..layout import Layout, micro_batches
from ..timeline import Span, Timeline
from ..workload.graph import Layer, Operator, Workload
from .step import (
    FLOAT32_BYTES,
    LOSS_BYTES,
    StepInputs,
    Times,
    advance,
    append_span,
    find_fit,
    gradients_copy_s,
    overlapped_backward,
    recomputing_operators,
    straggling,
)

RESUMING = Operator(kind="resuming", shape=())  # before each action of a pipeline
LOSS_VALUES = 3  # of a row travel where the vocabulary is cut: highest logit, sum, chosen logit


class Transfer(NamedTuple):
    """A blocking collective of a layer."""

    name: str
    ranks: int
    size_bytes: int  # of the larger of input and output


class Transfers(NamedTuple):
    """What one layer sends in the forward and in the backward of a micro-batch."""

    forward: tuple[Transfer, ...]
    backward: tuple[Transfer, ...]


class Part(NamedTuple):
    """What one layer does in a pass: gather its weights, compute, wait for its activations, scatter its gradients."""

    compute_s: float
    weights: tuple[Transfer, ...] = ()
    activations: tuple[Transfer, ...] = ()
    gradients: tuple[Transfer, ...] = ()


def predict_split_step(layout: Layout, inputs: StepInputs, bucket_bytes: int) -> Timeline:
    """Return the timeline of one step of rank 0; InputError where a figure was not measured."""
    times = Times(inputs.measured, layout.world_size)
    spans: list[Span] = []
    now, count = 0.0, micro_batches(layout, inputs.global_batch)
    data = layout.dp * layout.cp
    buckets = data > 1 and layout.zero <= 1
    root = _root_parameters(inputs.workload)
    each = [layer for layer in inputs.workload.layers for _ in range(layer.count)]
    for index in range(count):
        now = append_span(spans, "data", "data", now, inputs.data_s)
        first, last = index == 0, index == count - 1
        if layout.zero == 3 or first:
            gathered = weights_sent(layout, root)
            now = _wait(spans, now, inputs, gathered)
            now = append_span(spans, "compute", "forward", now, moved_s(inputs, gathered))
        now = append_span(spans, "compute", "forward", now, sharding_s(layout, inputs.workload, times, index)[0])
        forward = [_forward(layer, layout, inputs, times, index) for layer in each]
        sharded = next((place for place, part in enumerate(forward) if part.weights), 0)
        now = _wait(spans, now, inputs, forward[sharded].weights)  # nobody asked for them ahead
        forward[sharded] = forward[sharded]._replace(weights=())
        now = _pass(spans, now, "forward", forward, inputs)
        backward = [_backward(layer, layout, inputs, times, last=last) for layer in reversed(each)]
        moved = inputs.workload.parameters if buckets or index else 0  # into their buckets, or added
        rest_s = gradients_copy_s(inputs, moved, layout.world_size)
        rest_s += moved_s(inputs, gradients_sent(layout, root, last=False))
        rest_s += sharding_s(layout, inputs.workload, times, index)[1]
        if last and buckets:
            for part in backward:
                now = _wait(spans, now, inputs, part.activations, part.compute_s)
            rest_s += sum(part.compute_s for part in backward)
            now = overlapped_backward(spans, now, rest_s, layout, inputs, bucket_bytes, beside(layout)[-1])
        else:
            now = _pass(spans, now, "backward", backward, inputs)
            now = append_span(spans, "compute", "backward", now, rest_s)
            now = _wait(spans, now, inputs, gradients_sent(layout, root, last=last))
    now = _wait(spans, now, inputs, norms_sent(layout, inputs.workload))
    update_s = sum(times.of(operator)[0] for operator in update_operators(inputs.workload, layout))
    now = append_span(spans, "compute", "optimizer", now, update_s)
    if layout.zero == 1 and data > 1:
        weights = Transfer("all_gather", data, FLOAT32_BYTES * inputs.workload.parameters)
        now = _wait(spans, now, inputs, (weights,))
    if not buckets and layout.world_size > 1:  # whose last one waits for the slowest rank; here every collective does
        now = append_span(spans, "comm", "waiting", now, now * straggling(inputs.measured, layout.world_size))
    _wait(spans, now, inputs, (Transfer("all_reduce", layout.world_size, LOSS_BYTES),) * 2)  # the norm, the loss
    return Timeline(spans=tuple(spans), source="predicted")


def _forward(layer: Layer, layout: Layout, inputs: StepInputs, times: Times, index: int) -> Part:
    """Return what a layer does in the forward of a micro-batch, the first of a step or one after it."""
    weights: tuple[Transfer, ...] = ()
    compute_s = times.of_layer(layer, layout.recompute)[0]
    if layer.recomputable:
        weights = weights_sent(layout, layer.parameters) if layout.zero == 3 or not index else ()
        compute_s += sharding_s(layout, inputs.workload, times, index)[0]
    return Part(compute_s + moved_s(inputs, weights), weights, transfers(layout, inputs.workload, layer).forward)


def _backward(layer: Layer, layout: Layout, inputs: StepInputs, times: Times, *, last: bool) -> Part:
    """Return what a layer does in the backward of a micro-batch, or of the last one of a step."""
    weights: tuple[Transfer, ...] = ()
    gradients: tuple[Transfer, ...] = ()
    compute_s = times.of_layer(layer, layout.recompute)[1]
    if layer.recomputable:
        weights = weights_sent(layout, layer.parameters) if layout.zero == 3 else ()
        gradients = gradients_sent(layout, layer.parameters, last=last)
        compute_s += sharding_s(layout, inputs.workload, times)[1]
    return Part(
        compute_s + moved_s(inputs, weights + gradients),
        weights,
        transfers(layout, inputs.workload, layer).backward,
        gradients,
    )


def _pass(spans: list[Span], now: float, name: str, parts: Sequence[Part], inputs: StepInputs) -> float:
    """Append a pass through the parts, the weights of each travelling while the one before computes; return its end."""
    now = _wait(spans, now, inputs, parts[0].weights)
    for part, following in itertools.pairwise([*parts, Part(0.0)]):
        arrived, share = now, 0.0
        for item in following.weights:
            beside = find_fit(inputs.measured, "all_reduce", inputs.backend, item.ranks, item.size_bytes)
            share = beside.busy_share
            arrived = _wait(spans, arrived, inputs, (item,))
        now = append_span(spans, "compute", name, now, advance(now, part.compute_s, arrived, share) - now)
        now = max(_wait(spans, now, inputs, part.activations, part.compute_s), arrived)
        now = _wait(spans, now, inputs, part.gradients)
    return now


def transfers(layout: Layout, workload: Workload, layer: Layer) -> Transfers:
    """Return what activations one layer sends."""
    forward: list[Transfer] = []
    backward: list[Transfer] = []
    rows = workload.micro_batch * workload.seq_len // layout.cp
    hidden = workload.parameter_shapes[0][1]
    if layout.tp > 1:
        names = ("all_gather", "reduce_scatter") if layout.sp else ("all_reduce",)
        joined = [Transfer(name, layout.tp, FLOAT32_BYTES * rows * hidden) for name in names]
        *gathering, summing = joined
        if layer.recomputable:
            forward += 2 * joined
            backward += 2 * joined
        elif layer is workload.layers[-1]:
            forward += gathering + [Transfer("all_reduce", layout.tp, FLOAT32_BYTES * rows)] * LOSS_VALUES
            backward.append(summing)
        else:
            forward.append(summing)
            backward += gathering
    for operator in layer.operators:
        if operator.kind == "context_attention":
            batch, _, kv_heads, length, width, ranks = operator.shape
            both = FLOAT32_BYTES * 2 * batch * length * ranks * kv_heads * width
            forward.append(Transfer("all_gather", layout.cp, both))
            backward.append(Transfer("reduce_scatter", layout.cp, both))
        if operator.kind == "swiglu" and layout.ep > 1:
            routed = Transfer("all_to_all", layout.ep, FLOAT32_BYTES * operator.shape[0] * hidden)
            forward += [routed, routed]
            backward += [routed, routed]
    if layout.recompute == "full" and layer.recomputable:
        backward = forward + backward
    return Transfers(tuple(forward), tuple(backward))


def largest_bytes(layout: Layout, workload: Workload) -> dict[int, int]:
    """Return, by the number of ranks, the size of the largest collective of a step."""
    every = _sent(layout, workload)
    every.append(Transfer("all_reduce", layout.dp * layout.cp, FLOAT32_BYTES * workload.parameters))
    return {
        ranks: max(item.size_bytes for item in every if item.ranks == ranks)
        for ranks in sorted({item.ranks for item in every})
        if ranks > 1
    }


def beside(layout: Layout) -> tuple[str, ...]:
    """Return the collectives that go on beside computation, that of gradients in their buckets last."""
    return ("all_reduce", "reduce_scatter") if layout.zero == 1 else ("all_reduce",)


def waited_for(layout: Layout, workload: Workload) -> dict[int, set[str]]:
    """Return, by the number of ranks, the collectives for which ranks wait in a step: none under data parallelism."""
    found: dict[int, set[str]] = {}
    if layout.is_plain or layout.world_size == 1:
        return found
    for item in _sent(layout, workload):
        found.setdefault(item.ranks, set()).add(item.name)
    return {ranks: names for ranks, names in found.items() if ranks > 1}


def _sent(layout: Layout, workload: Workload) -> list[Transfer]:
    """Return one of each collective of a step for which ranks wait."""
    root = _root_parameters(workload)
    found = [
        Transfer("all_reduce", layout.world_size, LOSS_BYTES),
        *weights_sent(layout, root),
        *gradients_sent(layout, root, last=True),
        Transfer("send_recv", layout.pp, activation_bytes(layout, workload)),
    ]
    if layout.zero == 1:
        found.append(Transfer("all_gather", layout.dp * layout.cp, FLOAT32_BYTES * workload.parameters))
    for layer in workload.layers:
        sent = transfers(layout, workload, layer)
        weights = weights_sent(layout, layer.parameters), gradients_sent(layout, layer.parameters, last=True)
        found += [*sent.forward, *sent.backward, *weights[0], *weights[1]]
    return found


def activation_bytes(layout: Layout, workload: Workload) -> int:
    """Return the bytes of one micro-batch that cross a cut of a pipeline, on one rank of tp and cp."""
    rows = workload.tokens // layout.cp // (layout.tp if layout.sp else 1)
    return FLOAT32_BYTES * rows * workload.parameter_shapes[0][1]


def update_operators(workload: Workload, layout: Layout) -> tuple[Operator, ...]:
    """Return the operators of the optimiser: under ZeRO over this rank's share of the parameters."""
    if not layout.zero:
        return workload.update
    shape = (len(workload.parameter_shapes), workload.parameters // (layout.dp * layout.cp // layout.replicas))
    return (Operator(kind="grad_norm", shape=shape), Operator(kind="adamw", shape=shape))


def sharding_operators(workload: Workload, layout: Layout) -> tuple[Operator, ...]:
    """Return what FSDP2 does on the host around a group of parameters that it gathers: a layer, or the root.

    Where it gathers their weights, and under ZeRO 2 also where they are there already: after the first forward.
    """
    if not weights_sent(layout, 1):
        return ()
    groups = 1 + sum(layer.count for layer in workload.layers if layer.recomputable)
    tensors = max(1, round(len(workload.parameter_shapes) / groups))
    return tuple(Operator(kind="sharding", shape=(tensors, zero)) for zero in range(3, layout.zero - 1, -1))


def sharding_s(layout: Layout, workload: Workload, times: Times, index: int = 0) -> tuple[float, float]:
    """Return the seconds of that in forward and backward, of the micro-batch `index` of a step."""
    found = sharding_operators(workload, layout)
    if not found:
        return 0.0, 0.0
    return times.of(found[-1 if index else 0])[0], times.of(found[-1])[1]


def operators_of(workload: Workload, layout: Layout) -> list[Operator]:
    """Return every operator of a step, once for each place: what has to be measured."""
    every = [operator for layer in workload.layers for operator in layer.operators]
    again = [operator for layer in workload.layers for operator in recomputing_operators(layer, layout.recompute)]
    found = [*every, *again, *update_operators(workload, layout), *sharding_operators(workload, layout)]
    return [*found, RESUMING] if layout.pp > 1 else found


def _root_parameters(workload: Workload) -> int:
    """Return the parameters outside of the stack of layers, which FSDP2 gathers and scatters in one piece."""
    return sum(layer.count * layer.parameters for layer in workload.layers if not layer.recomputable)


def weights_sent(layout: Layout, parameters: int) -> tuple[Transfer, ...]:
    """Return the all-gather of some weights under ZeRO 2 and 3."""
    ranks = layout.dp * layout.cp // layout.replicas
    if layout.zero < 2 or ranks == 1:
        return ()
    return (Transfer("all_gather", ranks, FLOAT32_BYTES * parameters),)


def gradients_sent(layout: Layout, parameters: int, *, last: bool) -> tuple[Transfer, ...]:
    """Return the reduce-scatter of the weights' gradients under ZeRO 2 and 3, and once a step the sum over replicas."""
    found = [item._replace(name="reduce_scatter") for item in weights_sent(layout, parameters)]
    if found and last and layout.replicas > 1:
        found.append(Transfer("all_reduce", layout.replicas, FLOAT32_BYTES * parameters // found[0].ranks))
    return tuple(found)


def norms_sent(layout: Layout, workload: Workload) -> tuple[Transfer, ...]:
    """Return the sum of the norms' gradients, of which each rank has its rows' part under sequence parallelism."""
    if not layout.sp:
        return ()
    weights = sum(shape[0] for shape in workload.parameter_shapes if len(shape) == 1)
    return (Transfer("all_reduce", layout.tp, FLOAT32_BYTES * weights),)


def _wait(
    spans: list[Span], now: float, inputs: StepInputs, sent: tuple[Transfer, ...], computed_s: float = 0.0
) -> float:
    """Append the collectives that a rank waits for, `computed_s` of computation being spread between them."""
    for item in sent:
        if item.ranks > 1:
            blocked_s = sent_s(inputs, item, computed_s / len(sent))
            now = append_span(spans, "comm", item.name, now, blocked_s, size_bytes=item.size_bytes)
    return now


def sent_s(inputs: StepInputs, item: Transfer, computed_s: float = 0.0) -> float:
    """Return the seconds for which a collective blocks a rank that has computed before; InputError if not measured."""
    if item.ranks == 1:
        return 0.0
    fit = find_fit(inputs.measured, blocking(item.name), inputs.backend, item.ranks, item.size_bytes)
    blocked_s = fit.time_s(item.size_bytes)
    return blocked_s - fit.hides * min(computed_s, blocked_s)


def moved_s(inputs: StepInputs, sent: tuple[Transfer, ...]) -> float:
    """Return the seconds in which what was gathered or is scattered is copied out of its buffer or into it."""
    bandwidth = inputs.measured.memory_bandwidth_bytes_per_s  # of all ranks together
    if not bandwidth:
        return 0.0
    return sum(2 * item.size_bytes * item.ranks / bandwidth for item in sent if item.ranks > 1)
