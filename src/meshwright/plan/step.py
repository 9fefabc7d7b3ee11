"""Time of one data-parallel step from the measured times of its operators and collectives.

The prediction is a Timeline like the one that a run records, so that both are read by the same functions. Compute
goes through forward and backward of every micro-batch; in the last backward, buckets of gradients travel as they
become ready, one after the other. Where communication works on the same cores as computation it takes its share of
them, so that what is hidden still makes backward longer.
"""

from collections.abc import Sequence

import msgspec

from ..cluster.graph import CollectiveFit, Measurements
from ..errors import InputError
from ..layout import Layout, micro_batches
from ..timeline import Performance, Span, Timeline, step_parts, summarize
from ..workload.graph import Operator, Workload

FLOAT32_BYTES = 4


class StepInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a step's price depends on besides the layout."""

    workload: Workload  # of one micro-batch of the layout
    global_batch: int
    measured: Measurements
    backend: str
    peak_flops_per_s: float | None  # of one rank
    data_s: float = 0.0  # to draw one micro-batch
    runtime_bytes: int = 0  # memory that a rank takes before the model


class Times:
    """Measured operator times of one rank count, interpolated over the rows of a micro-batch where needed."""

    def __init__(self, measured: Measurements, ranks: int) -> None:
        self._exact = {t.operator: (t.forward_s, t.backward_s) for t in measured.operators if t.ranks == ranks}
        self._ranks = ranks

    def __contains__(self, operator: Operator) -> bool:
        return operator.key in self._exact

    def of(self, operator: Operator) -> tuple[float, float]:
        """Return (forward, backward) seconds of an operator; InputError if it was not measured."""
        try:
            return self._exact[operator.key]
        except KeyError:
            raise InputError(f"{operator.key} was not measured on {self._ranks} ranks; --recalibrate") from None

    def total(self, workload: Workload) -> tuple[float, float]:
        """Return (forward, backward) seconds of a micro-batch."""
        pairs = [(layer.count, self.of(op)) for layer in workload.layers for op in layer.operators]
        return sum(n * t[0] for n, t in pairs), sum(n * t[1] for n, t in pairs)


def find_fit(measured: Measurements, collective: str, backend: str, ranks: int) -> CollectiveFit | None:
    """Return the fit of a collective over so many ranks, if there is one."""
    for candidate in measured.collectives:
        if (candidate.collective, candidate.backend, candidate.ranks) == (collective, backend, ranks):
            return candidate
    return None


def predict_step(layout: Layout, inputs: StepInputs, bucket_bytes: int) -> Timeline:
    """Return the timeline of one step of rank 0 under synchronous data parallelism.

    Raises InputError where a figure was not measured.
    """
    ranks, count = layout.world_size, micro_batches(layout, inputs.global_batch)
    times = Times(inputs.measured, ranks)
    forward_s, backward_s = times.total(inputs.workload)
    if layout.recompute == "full":
        backward_s += sum(
            layer.count * times.of(op)[0]
            for layer in inputs.workload.layers
            if layer.recomputable
            for op in layer.operators
        )
    copy_s = _copy_s(inputs)
    spans: list[Span] = []
    now = 0.0
    for index in range(count):
        now = _append(spans, "data", "data", now, inputs.data_s)
        now = _append(spans, "compute", "forward", now, forward_s)
        extra_s = copy_s if index or ranks > 1 else 0.0  # gradients are added, or copied into their buckets
        if index < count - 1 or ranks == 1:
            now = _append(spans, "compute", "backward", now, backward_s + extra_s)
        else:
            now = _overlapped_backward(spans, now, backward_s + extra_s, layout, inputs, bucket_bytes)
    update_s = sum(times.of(op)[0] for op in inputs.workload.update)
    now = _append(spans, "compute", "optimizer", now, update_s)
    if ranks > 1:  # the loss is averaged for the log
        now = _append(spans, "comm", "all_reduce", now, _fit(inputs, ranks).alpha_s, size_bytes=16)
    return Timeline(spans=tuple(spans), source="predicted")


def buckets(workload: Workload, bucket_bytes: int) -> list[int]:
    """Return the bytes of each gradient bucket in the order in which backward fills them (last layer first)."""
    filled: list[int] = []
    current = 0
    for shape in reversed(workload.parameter_shapes):
        size = FLOAT32_BYTES
        for extent in shape:
            size *= extent
        current += size
        if current >= bucket_bytes:
            filled.append(current)
            current = 0
    return [*filled, current] if current else filled


def performance(timeline: Timeline, layout: Layout, inputs: StepInputs, memory_bytes: int) -> Performance:
    """Return what a predicted timeline adds up to."""
    tokens = inputs.global_batch * inputs.workload.seq_len
    flops = inputs.workload.model_flops * inputs.global_batch / inputs.workload.micro_batch
    fit = find_fit(inputs.measured, "all_reduce", inputs.backend, layout.dp)
    return summarize(
        [step_parts(timeline.spans)],
        ranks=layout.world_size,
        tokens_per_step=tokens,
        model_flops_per_step=flops,
        peak_flops_per_s=inputs.peak_flops_per_s,
        peak_memory_bytes=memory_bytes,
        error_band=0.15 if fit is None else max(0.15, fit.residual * 0.5),
        not_modelled=NOT_MODELLED,
        calibration=(f"operators and collectives of machine {inputs.measured.fingerprint}",),
    )


NOT_MODELLED = (
    "other programs on the same cores",
    "differences in speed between ranks",
    "checkpoints and validation (outside the step)",
)


def _overlapped_backward(
    spans: list[Span], now: float, backward_s: float, layout: Layout, inputs: StepInputs, bucket_bytes: int
) -> float:
    """Append the last backward with its buckets in flight; return when both are over."""
    fit = _fit(inputs, layout.world_size)
    sizes = buckets(inputs.workload, bucket_bytes)
    total = sum(sizes)
    start, done, queue_free = now, 0.0, now
    pending: list[float] = []  # communication work, in seconds, that is still to be done
    for size in sizes:
        segment_s = backward_s * size / total  # gradients are taken to come evenly over backward
        now, queue_free = _advance(now, segment_s, queue_free, fit.busy_share)
        done += size
        work_s = fit.alpha_s + fit.beta_s_per_byte * size
        begin = max(now, queue_free)
        queue_free = begin + work_s
        pending.append(queue_free)
        spans.append(Span(0, "comm", "all_reduce", begin, queue_free, bytes=size))
    spans.append(Span(0, "compute", "backward", start, now))
    return max(now, queue_free)


def _advance(now: float, work_s: float, comm_until: float, share: float) -> tuple[float, float]:
    """Return when `work_s` of compute is done that starts now, and when the communication under way is done.

    While both are under way, communication takes `share` of the cores and compute gets the rest.
    """
    contended_s = max(0.0, comm_until - now)
    speed = 1.0 - share
    if speed * contended_s >= work_s:
        return now + work_s / speed if speed > 0 else comm_until + work_s, comm_until
    return now + work_s + share * contended_s, comm_until


def _copy_s(inputs: StepInputs) -> float:
    """Return the seconds of one pass of a rank's gradients through memory (read, read, write)."""
    bandwidth = inputs.measured.memory_bandwidth_bytes_per_s
    return 0.0 if not bandwidth else 3 * FLOAT32_BYTES * inputs.workload.parameters / bandwidth


def _fit(inputs: StepInputs, ranks: int) -> CollectiveFit:
    found = find_fit(inputs.measured, "all_reduce", inputs.backend, ranks)
    if found is None:
        raise InputError(f"all-reduce of {inputs.backend} over {ranks} ranks was not measured; --recalibrate")
    return found


def _append(spans: list[Span], lane: str, name: str, start: float, duration: float, *, size_bytes: int = 0) -> float:
    spans.append(Span(0, lane, name, start, start + duration, bytes=size_bytes))  # type: ignore[arg-type]
    return start + duration


def sizes_to_measure(parameter_bytes: int) -> Sequence[int]:
    """Return the all-reduce sizes that a plan may ask for: the smallest message up to all gradients at once."""
    sizes = [64, 4096, 2**16, 2**18, 2**20, 2**22, 2**24]
    return [size for size in sizes if size < parameter_bytes] + [parameter_bytes]
