"""Time of one data-parallel step from the measured times of its operators and collectives.

The prediction is a Timeline like the one that a run records, so that both are read by the same functions. Compute
goes through forward and backward of every micro-batch; in the last backward, buckets of gradients travel as they
become ready, one after the other. Where communication works on the same cores as computation it takes its share of
them, so that what is hidden still makes backward longer.
"""

import math
import statistics
from collections.abc import Sequence

import msgspec

from ...cluster.graph import CollectiveFit, Measurements
from ...errors import InputError
from ...layout import Layout, Recompute, micro_batches
from ...mesh import size
from ...timeline import Performance, Span, Timeline, by_rank, step_parts, summarize
from ...units import counted
from ...workload.conventions import ENGINE
from ...workload.elements import DOUBLE_BYTES
from ...workload.graph import Layer, Operator, Workload
from ...workload.program import FLOAT, Comm
from ...workload.stages import step_program

LOSS_BYTES = 2 * DOUBLE_BYTES  # the loss and whether to stop, in float64


class StepInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a step's price besides the layout."""

    workload: Workload  # of one micro-batch of the layout
    global_batch: int
    measured: Measurements
    backend: str
    peak_flops_per_s: float | None  # of one rank
    data_s: float = 0.0  # to draw one micro-batch
    whole: Workload | None = None  # of the unsplit model, where `workload` is what one of its ranks computes
    busy_ranks: int | None = None  # that compute on the machine at once; None: those of the layout

    def at_work(self, layout: Layout) -> int:
        """Return how many ranks compute on the machine during a step of the layout."""
        return self.busy_ranks or layout.world_size


class Times:
    """Measured operator times of one rank count, at exactly the shapes that were measured."""

    def __init__(self, measured: Measurements, ranks: int) -> None:
        self._measured = [t for t in measured.operators if t.ranks == ranks]
        self._exact = {t.operator: (t.forward_s, t.backward_s) for t in self._measured}
        self._ranks = ranks

    @property
    def slowdown(self) -> float:
        """The slowdown of operators against a processor of their own."""
        return statistics.median(t.slowdown for t in self._measured)

    def of(self, operator: Operator) -> tuple[float, float]:
        """Return (forward, backward) seconds of an operator; InputError if it was not measured."""
        try:
            return self._exact[operator.key]
        except KeyError:
            raise InputError(
                f"{operator.key} was not measured on {counted(self._ranks, 'rank')}; --recalibrate"
            ) from None

    def of_layer(self, layer: Layer, recompute: Recompute) -> tuple[float, float]:
        """Return (forward, backward) seconds of a layer's operators and of what recomputation adds."""
        forward_s, backward_s = map(sum, zip(*map(self.of, layer.timed), strict=True))
        again_s = sum(self.of(operator)[0] for operator in layer.run_again(recompute))
        host_s = self.recomputing(layer, recompute)
        return forward_s + host_s[0], backward_s + again_s + host_s[1]

    def recomputing(self, layer: Layer, recompute: Recompute) -> tuple[float, float]:
        """Return the (forward, backward) seconds for which the host is busy with a layer's recomputation."""
        found = [self.of(operator) for operator in recomputing_operators(layer, recompute)]
        return found[0] if found else (0.0, 0.0)


def recomputing_operators(layer: Layer, recompute: Recompute) -> tuple[Operator, ...]:
    """Return what checkpointing does on the host around a layer that keeps less than autograd asks for."""
    if recompute == "none" or not layer.recomputable:
        return ()
    return (Operator(kind="recomputing", shape=(len(layer.operators), int(recompute == "selective"))),)


def collective_s(measured: Measurements, collective: str, backend: str, ranks: int, size_bytes: float) -> float:
    """Return the seconds of a collective from the fit whose sizes lie nearest."""
    return find_fit(measured, collective, backend, ranks, size_bytes).time_s(size_bytes)


def find_fit(
    measured: Measurements, collective: str, backend: str, ranks: int, size_bytes: float, *, dtype: str = FLOAT,
    cut: int | None = None,
) -> CollectiveFit:  # fmt: skip
    """Return the fit for this size and type, of messages at a cut; InputError if it was not measured so."""
    named = (f for f in measured.collectives if (f.collective, f.backend, f.ranks) == (collective, backend, ranks))
    found = [f for f in named if f.cut in (None, cut) and f.dtype == dtype]
    if not found:
        kind = "" if dtype == FLOAT else f" in {dtype}"
        raise InputError(
            f"{collective}{kind} of {backend} over {counted(ranks, 'rank')} was not measured; --recalibrate"
        )
    return min(found, key=lambda f: max(f.min_bytes - size_bytes, size_bytes - f.max_bytes, 0))


def predict_step(layout: Layout, inputs: StepInputs, bucket_bytes: int) -> Timeline:
    """Return the timeline of one step of rank 0 under synchronous data parallelism.

    Raises InputError where a figure was not measured.
    """
    ranks, count = layout.world_size, micro_batches(layout, inputs.global_batch)
    busy = inputs.at_work(layout)
    times = Times(inputs.measured, busy)
    each = [(layer.count, times.of_layer(layer, layout.recompute)) for layer in inputs.workload.layers]
    forward_s, backward_s = (sum(n * pair[i] for n, pair in each) for i in range(2))
    copy_s = gradients_copy_s(inputs, inputs.workload.parameters, busy)
    buckets = step_program(inputs.workload, layout, count, bucket_bytes=bucket_bytes).stages[0].gradients
    spans: list[Span] = []
    now = 0.0
    for index in range(count):
        now = append_span(spans, "data", "data", now, inputs.data_s)
        now = append_span(spans, "compute", "forward", now, forward_s)
        extra_s = copy_s if index or ranks > 1 else 0.0  # gradients are added, or copied into their buckets
        if index < count - 1 or ranks == 1:
            now = append_span(spans, "compute", "backward", now, backward_s + extra_s)
        else:
            now = overlapped_backward(spans, now, backward_s + extra_s, layout, inputs, buckets)
    update_s = sum(times.of(op)[0] for op in inputs.workload.update)
    now = append_span(spans, "compute", "optimizer", now, update_s)
    if ranks > 1:  # the loss is averaged for the log
        time_s = collective_s(inputs.measured, "all_reduce", inputs.backend, ranks, LOSS_BYTES)
        now = append_span(spans, "comm", "all_reduce", now, time_s, size_bytes=LOSS_BYTES)
    return Timeline(spans=tuple(spans), source="predicted")


def performance(timeline: Timeline, layout: Layout, inputs: StepInputs, memory_bytes: int) -> Performance:
    """Return what a predicted timeline adds up to."""
    tokens = inputs.global_batch * inputs.workload.seq_len
    whole = inputs.whole or inputs.workload
    flops = whole.model_flops * inputs.global_batch / whole.micro_batch
    timed_so = layout.world_size in {1, inputs.at_work(layout)}  # else others worked beside it than when it was timed
    return summarize(
        [step_parts(spans) for spans in by_rank(timeline.spans)],
        ranks=layout.world_size,
        tokens_per_step=tokens,
        model_flops_per_step=flops,
        peak_flops_per_s=inputs.peak_flops_per_s,
        peak_memory_bytes=memory_bytes,
        error_band=ERROR_BAND if layout.is_plain and timed_so else SPLIT_ERROR_BAND,
        not_modelled=NOT_MODELLED,
        calibration=(_origin(inputs.measured, inputs.at_work(layout)),),
    )


def _origin(measured: Measurements, ranks: int) -> str:
    """Return which machine was measured, when, and how busy it was."""
    made = next((f", {one}" for one in measured.conditions if one.ranks == ranks), "")
    return f"operators and collectives of machine {measured.fingerprint}{made}"


ERROR_BAND = 0.15  # the share within which step times of quiet machines are held to lie
SPLIT_ERROR_BAND = 0.5  # of layouts other than plain data parallelism, and of several ranks beside others
NOT_MODELLED = (
    "other programs on the same cores",
    "checkpoints and validation (outside the step)",
)


def overlapped_backward(
    spans: list[Span],
    now: float,
    backward_s: float,
    layout: Layout,
    inputs: StepInputs,
    buckets: Sequence[Comm],
) -> float:
    """Append the last backward with its buckets in flight; return when both are over."""
    total, rest_s = sum(bucket.size_bytes for bucket in buckets), backward_s
    start = queue_free = now
    share = 0.0
    for bucket in buckets:
        segment_s = backward_s * bucket.size_bytes / total  # gradients are taken to come evenly over backward
        now = advance(now, segment_s, queue_free, share)
        rest_s -= segment_s
        ranks = size(layout, bucket.axis)
        fit = find_fit(inputs.measured, bucket.collective, inputs.backend, ranks, bucket.size_bytes, dtype=bucket.dtype)
        begin, sent_s = max(now, queue_free), fit.time_s(bucket.size_bytes)
        delay_s = min(fit.delay_s, max(0.0, now + rest_s - begin))
        share = fit.busy_share * sent_s / (delay_s + sent_s)
        queue_free = begin + delay_s + sent_s
        spans.append(Span(0, "comm", bucket.collective, begin, queue_free, bytes=int(bucket.size_bytes)))
    spans.append(Span(0, "compute", "backward", start, now))
    # the slowest rank of all ends last, and the last bucket waits for it
    late_s = now * straggling(inputs.measured, layout.world_size, busy=inputs.at_work(layout))
    done = max(queue_free, now) + late_s
    spans[-2] = msgspec.structs.replace(spans[-2], end_s=done)
    return done


def straggling(measured: Measurements, ranks: int, *, together: int = 1, busy: int | None = None) -> float:
    """Return how much longer the slowest of `ranks` ranks takes than their mean, for equal work, of `busy` at work.

    Where `together` ranks keep pace, as in a pipeline, each such group goes at the mean pace of its ranks, which are
    taken for normal and independent: the largest of n lies Blom's score above the mean (Statistical Estimates and
    Transformed Beta-Variables, 1958).
    """
    measured_ranks = busy or ranks
    share = next((item.share for item in measured.straggling if item.ranks == measured_ranks), 0.0)
    if together == 1 and measured_ranks == ranks:
        return share
    return share * _largest_score(ranks // together) / (_largest_score(measured_ranks) * math.sqrt(together))


def _largest_score(count: int) -> float:
    """Return how many standard deviations the largest of `count` values lies above their mean."""
    return statistics.NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def advance(now: float, work_s: float, comm_until: float, share: float) -> float:
    """Return when `work_s` of compute is done that starts now, with communication under way until `comm_until`.

    While both are under way, communication takes `share` of the cores and compute gets the rest.
    """
    contended_s = max(0.0, comm_until - now)
    speed = 1.0 - share
    if speed > 0 and speed * contended_s >= work_s:
        return now + work_s / speed
    return now + work_s + share * contended_s


def gradients_copy_s(inputs: StepInputs, parameters: int, ranks: int) -> float:
    """Return the seconds of one pass over a rank's gradients through memory (read, read, write)."""
    bandwidth = inputs.measured.memory_bandwidth_bytes_per_s  # of all ranks together
    return 0.0 if not bandwidth else 3 * int(ENGINE.gradient_bytes) * parameters * ranks / bandwidth


def append_span(
    spans: list[Span], lane: str, name: str, start: float, duration: float, *, size_bytes: int = 0
) -> float:
    """Append a span of rank 0 and return its end."""
    spans.append(Span(0, lane, name, start, start + duration, bytes=size_bytes))  # type: ignore[arg-type]
    return start + duration


def sizes_to_measure(parameter_bytes: int) -> Sequence[int]:
    """Return the all-reduce sizes that a plan may ask for: the smallest message up to all gradients at once."""
    sizes = [64, 4096, 2**16, 2**18, 2**20, 2**22, 2**24]
    return [size for size in sizes if size < parameter_bytes] + [parameter_bytes]
