"""Time of one step of a model split over tensor, context, expert and data ranks with ZeRO, from measured times.

Compute is that of one rank (`workload.transformer.describe_workload` with the layout), what is sent is of its program
(`workload.split`). Collectives inside forward and backward block: the layer waits for them. Gradients in buckets
overlap with the last backward as under plain data parallelism. FSDP2 copies weights out of
flat buffers and gradients into them; the copies and its host overhead count as compute. The slowest rank sets the pace.

Each collective is timed as a layer calls it, and a bucket's all-reduce or (ZeRO 1) reduce-scatter beside computation.
The weights of the layer to come travel beside computation too and take cores from it, as an all-reduce does there.
What lives in the host's memory crosses at the rates measured with all ranks copying; gradients that leave behind a
layer do so beside the computation that follows, and the host's processors update what is theirs.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...cluster.graph import blocking
from ...layout import Layout, micro_batches
from ...mesh import size
from ...timeline import Span, Timeline
from ...workload.graph import Operator, OperatorKind, Workload
from ...workload.program import Comm, Pass, called_in
from ...workload.stages import step_program, updated
from ...workload.weight_traffic import ROOT
from .data_parallel import (
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
LOSS = Comm(axis="world", collective="all_reduce", bytes=LOSS_BYTES, calls=0, once=1)  # the loss and whether to stop


class LayerPart(NamedTuple):
    """One layer in a pass: gather its weights, compute, wait for its activations, scatter its gradients."""

    compute_s: float
    weights: tuple[Comm, ...] = ()
    activations: tuple[Comm, ...] = ()
    gradients: tuple[Comm, ...] = ()


class SplitStep:
    """The timeline of one step of rank 0, as it is put together."""

    def __init__(self, layout: Layout, inputs: StepInputs, bucket_bytes: int) -> None:
        self.layout, self.inputs = layout, inputs
        self.times = Times(inputs.measured, inputs.at_work(layout))
        self.count = micro_batches(layout, inputs.global_batch)
        self.stage = step_program(inputs.workload, layout, self.count, bucket_bytes=bucket_bytes).stages[0]
        units = list(self.stage.units)
        self.root = units.pop(0) if units[0].name == ROOT else None
        self.units = units
        self.layers = [layer for layer in inputs.workload.layers for _ in range(layer.count)]
        self.spans: list[Span] = []
        self.now = 0.0
        self.host_free = 0.0  # when what was sent to the host beside computation has arrived

    def timeline(self) -> Timeline:
        """Return the whole step."""
        for index in range(self.count):
            self._forward(index)
            self._backward(index)
        self._wait([comm for comm in self.stage.sums if comm.axis not in {"world", "host"}])
        self.now = max(self.now, self.host_free)
        self._wait([comm for comm in self.stage.sums if comm.axis == "host"])
        update_s = sum(self.times.of(op)[0] for op in update_operators(self.inputs.workload, self.layout))
        self._compute("optimizer", update_s)
        self._wait(self.stage.parameters)
        if not self.stage.gradients and self.layout.world_size > 1:
            # the last bucket waits for the slowest rank; without buckets every collective does
            busy = self.inputs.at_work(self.layout)
            late_s = self.now * straggling(self.inputs.measured, self.layout.world_size, busy=busy)
            self.now = append_span(self.spans, "comm", "waiting", self.now, late_s)
        self._wait([*(comm for comm in self.stage.sums if comm.axis == "world"), LOSS])
        return Timeline(spans=tuple(self.spans), source="predicted")

    def _forward(self, index: int) -> None:
        self.now = append_span(self.spans, "data", "data", self.now, self.inputs.data_s)
        sharded_s = sharding_s(self.layout, self.inputs.workload, self.times, index)[0]
        if self.root is not None and (gathered := called_in(self.root.forward.ahead, special=index == 0)):
            self._wait(gathered)
            self._compute("forward", self._copy_s(gathered))
        self._compute("forward", sharded_s)
        parts = [self._part(i, index, forward=True, sharded_s=sharded_s) for i in range(len(self.units))]
        first = next((place for place, part in enumerate(parts) if part.weights), 0)
        self._wait(parts[first].weights)  # nobody asked for them ahead
        parts[first] = parts[first]._replace(weights=())
        self._pass("forward", parts)

    def _backward(self, index: int) -> None:
        inputs, layout = self.inputs, self.layout
        last = index == self.count - 1
        sharded_s = sharding_s(layout, inputs.workload, self.times)[1]
        places = reversed(range(len(self.units)))
        parts = [self._part(place, index, forward=False, sharded_s=sharded_s) for place in places]
        buckets = self.stage.gradients
        moved = inputs.workload.parameters if buckets or index else 0  # into their buckets, or added
        scattered = () if self.root is None else called_in(self.root.backward.behind, special=False)
        rest_s = gradients_copy_s(inputs, moved, inputs.at_work(layout)) + self._copy_s(scattered)
        rest_s += sharding_s(layout, inputs.workload, self.times, index)[1]
        if last and buckets:
            for part in parts:
                self._wait(part.activations, part.compute_s)
            rest_s += sum(part.compute_s for part in parts)
            self.now = overlapped_backward(self.spans, self.now, rest_s, layout, inputs, buckets)
            return
        self._pass("backward", parts, adding=index > 0)
        self._compute("backward", rest_s)
        self._wait(() if self.root is None else called_in(self.root.backward.behind, special=last))

    def _part(self, place: int, index: int, *, forward: bool, sharded_s: float) -> LayerPart:
        """Return what a layer does in one direction of a micro-batch; `sharded_s`: what FSDP2 does on the host."""
        layer, unit = self.layers[place], self.units[place]
        each: Pass = unit.forward if forward else unit.backward
        weights = called_in(each.ahead, special=index == 0)
        gradients = called_in(each.behind, special=index == self.count - 1)
        compute_s = self.times.of_layer(layer, self.layout.recompute)[0 if forward else 1]
        compute_s += sharded_s if layer.recomputable else 0.0
        return LayerPart(compute_s + self._copy_s(weights + gradients), weights, called_in(each.comms), gradients)

    def _pass(self, name: str, parts: Sequence[LayerPart], *, adding: bool = False) -> None:
        """Append a pass through the parts, the weights of each travelling while the one before computes.

        Gradients leave for the host beside the computation that follows, unless the host is `adding` them to others.
        """
        self._wait(parts[0].weights)
        for part, following in itertools.pairwise([*parts, LayerPart(0.0)]):
            began, share = self.now, 0.0
            for comm in following.weights:
                share = max(share, self._busy_share(comm))
                self._wait((comm,))
            arrived, self.now = self.now, began
            self._compute(name, advance(began, part.compute_s, arrived, share) - began)
            self._wait(part.activations, part.compute_s)
            self.now = max(self.now, arrived)
            self._wait([comm for comm in part.gradients if comm.axis != "host"])
            leaving = [comm for comm in part.gradients if comm.axis == "host"]
            if adding:
                self._wait(leaving)
            else:
                self._leave(leaving)

    def _busy_share(self, comm: Comm) -> float:
        """Return the share of the cores that weights on their way take: of a copy from the host none."""
        if comm.axis == "host":
            return 0.0
        ranks = size(self.layout, comm.axis)
        return find_fit(self.inputs.measured, "all_reduce", self.inputs.backend, ranks, comm.size_bytes).busy_share

    def _leave(self, comms: Iterable[Comm]) -> None:
        """Append what goes to the host beside the computation that follows, one after the other."""
        for comm in comms:
            begin, sent_s = max(self.now, self.host_free), blocked_by_s(self.inputs, self.layout, comm)
            self.host_free = append_span(
                self.spans, "comm", comm.collective, begin, sent_s, size_bytes=comm.size_bytes
            )  # fmt: skip

    def _wait(self, comms: Sequence[Comm], computed_s: float = 0.0) -> None:
        """Append the collectives that a rank waits for, `computed_s` of computation being spread between them."""
        for comm in comms:
            blocked_s = blocked_by_s(self.inputs, self.layout, comm, computed_s / len(comms))
            self.now = append_span(
                self.spans, "comm", comm.collective, self.now, blocked_s, size_bytes=comm.size_bytes
            )  # fmt: skip

    def _compute(self, name: str, seconds: float) -> None:
        self.now = append_span(self.spans, "compute", name, self.now, seconds)

    def _copy_s(self, comms: Iterable[Comm]) -> float:
        return copy_s(self.inputs, self.layout, comms)


def predict_spmd_step(layout: Layout, inputs: StepInputs, bucket_bytes: int) -> Timeline:
    """Return the timeline of one step of rank 0; InputError where a figure was not measured."""
    return SplitStep(layout, inputs, bucket_bytes).timeline()


def update_operators(workload: Workload, layout: Layout) -> tuple[Operator, ...]:
    """Return the operators of the optimiser: under ZeRO over this rank's share of the parameters."""
    if layout.offload != "none":
        shape = (len(workload.parameter_shapes), sum(updated(workload, layout).values()))
        norm: OperatorKind = "host_grad_norm" if layout.offload == "parameters" else "grad_norm"
        return (Operator(kind=norm, shape=shape), Operator(kind="host_adamw", shape=shape))
    if not layout.zero:
        return workload.update
    shape = (len(workload.parameter_shapes), workload.parameters // (layout.dp * layout.cp // layout.replicas))
    return (Operator(kind="grad_norm", shape=shape), Operator(kind="adamw", shape=shape))


def sharding_operators(workload: Workload, layout: Layout) -> tuple[Operator, ...]:
    """Return what FSDP2 does on the host around a group of parameters that it gathers: a layer, or the root.

    Where it gathers their weights, and under ZeRO 2 also where they are there already: after the first forward.
    """
    if layout.zero < 2 or size(layout, "shard") == 1:
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
    every = [operator for layer in workload.layers for operator in layer.timed]
    again = [operator for layer in workload.layers for operator in recomputing_operators(layer, layout.recompute)]
    found = [*every, *again, *update_operators(workload, layout), *sharding_operators(workload, layout)]
    return [*found, RESUMING] if layout.pp > 1 else found


def blocked_by_s(inputs: StepInputs, layout: Layout, comm: Comm, computed_s: float = 0.0) -> float:
    """Return the seconds for which a collective blocks a rank that has computed before; InputError if not measured."""
    crossing = comm.axis == "host"  # all ranks at work cross to it at once
    ranks = inputs.at_work(layout) if crossing else size(layout, comm.axis)
    if ranks == 1 and comm.axis != "host":
        return 0.0
    fit = find_fit(inputs.measured, blocking(comm.collective), inputs.backend, ranks, comm.size_bytes, dtype=comm.dtype)
    blocked_s = fit.time_s(comm.size_bytes)
    return blocked_s - fit.hides * min(computed_s, blocked_s)


def copy_s(inputs: StepInputs, layout: Layout, comms: Iterable[Comm]) -> float:
    """Return the seconds in which what was gathered or is scattered is copied out of its buffer or into it."""
    bandwidth = inputs.measured.memory_bandwidth_bytes_per_s  # of all ranks together
    comms = [comm for comm in comms if comm.axis != "host"]
    return sum(2 * comm.size_bytes * size(layout, comm.axis) / bandwidth for comm in comms) if bandwidth else 0.0
