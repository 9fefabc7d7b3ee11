"""Back of an envelope: a data-parallel step from a parameter count alone, line by line.

    FLOPs     parameters x 2 x 3 x tokens, 4 instead of 3 with full recomputation (forward twice)
    compute   FLOPs of one GPU / (share of the peak that is reached x dense peak)
    traffic   gradients in float32, all-reduced over the copies of the state: 2(n-1)/n of what a GPU or a node holds of
              them leaves it where n hold the same; one copy is spread over as many GPUs as its memory needs
    memory    18 bytes a parameter in mixed half precision with Adam: 2 weight, 4 gradient, 4 master, 4 + 4 moments;
              of another optimiser its own moments in place of the last
    days      tokens / tokens of a step x seconds of a step; an MFU that is given contains what communication costs, so
              the step is its compute time then, and the link time a bound beside it
    GPUs      FLOPs of all tokens / (share of the peak x dense peak x days), where the days are given

By an MFU days and GPU-hours need no batch: where none is given they are all that is said, beside the memory.

Attention's own FLOPs, what GPUs that share one state send one another, pipeline bubbles and efficiency curves are left
out: that is what a plan with --model is for.
"""

import math
from typing import Literal

import msgspec

from ...cluster.graph import NodeGroup
from ...errors import InputError
from ...timeline import Span, Timeline, step_parts
from ...units import counted, format_bytes, format_days, format_network_rate, format_rate, format_time
from ..analytic.price import peak_flops_per_s

ADAM_BYTES_PER_PARAMETER, ADAM_MOMENT_BYTES = 18, 8
GRADIENT_BYTES = 4
TOKEN_BYTES = 4  # an index into the vocabulary, as int32
EXPECTED_SHARE = 0.8  # of the advertised rate: the careful end of 80 to 90 %
DAY_S = 86400.0
GPUS_FOR_DAYS = "GPUs for these days"  # the name of a line


class ArithmeticLine(msgspec.Struct, frozen=True):
    """One line of the arithmetic: what, how, and what comes out (in SI units, and as text)."""

    name: str
    formula: str
    value: float
    text: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The question."""

    parameters: float
    multiplied: float | None = None  # weights that a token is multiplied with, where not all are: experts
    seq_len: int | None  # None beside no batch, where an MFU prices all tokens
    global_batch: int | None
    gpus: int
    precision: str = "bf16"
    peak_share: float = 0.5  # of the dense peak that is reached, recomputed FLOPs counted
    whole_step: bool = False  # the share is of the whole step, as an MFU is: it contains what communication costs
    recompute: Literal["none", "full"] = "none"
    tokens: float | None = None  # budget of the whole training
    days: float | None = None  # in which it shall be done: how many GPUs that takes
    moment_bytes: float = ADAM_MOMENT_BYTES  # of a parameter, of an optimiser other than Adam
    layers: int | None = None
    flops_per_sample: float | None = None  # forward, where 2 FLOPs a parameter and token do not hold (convolutions)
    sample_bytes: int | None = None  # default: seq_len tokens

    def __post_init__(self) -> None:
        if (
            min(self.parameters, self.gpus, *(size for size in (self.seq_len, self.global_batch) if size is not None))
            <= 0
        ):
            raise ValueError("params, seq-len, global-batch and gpus must be more than 0")
        if None in (self.seq_len, self.global_batch) and not (self.whole_step and self.tokens):
            raise ValueError("seq-len and global-batch: expected both, or an MFU and the tokens of the training")
        if self.days is not None and not 0 < self.days < math.inf:
            raise ValueError(f"target-days: expected more than 0, got {self.days}")
        if not 0 < self.peak_share <= 1:
            raise ValueError(f"mfu: {no_share(self.peak_share)}")

    @property
    def batch(self) -> tuple[int, int]:
        """Sequences of a step, and tokens of each."""
        assert self.global_batch is not None
        assert self.seq_len is not None
        return self.global_batch, self.seq_len


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The arithmetic, and the step one thing after another and overlapped."""

    lines: tuple[ArithmeticLine, ...]
    in_sequence: Timeline
    overlapped: Timeline
    verdict: str
    warnings: tuple[str, ...] = ()

    def value(self, name: str) -> float:
        """Return the value of a line."""
        return next(line.value for line in self.lines if line.name == name)


def no_share(value: float) -> str:
    """Return why a value is no share of a peak, and the share that it may mean: 45 is 45 %."""
    hint = f"; did you mean {value / 100:g}?" if 5 <= value <= 100 else ""
    return f"expected more than 0 and at most 1, got {value:g}{hint}"


def step_flops(parameters: float, tokens: float, *, recompute: bool = False) -> float:
    """Return the FLOPs of a step: 2 a parameter and token forward, twice that backward, once more if recomputed."""
    return parameters * 2 * (4 if recompute else 3) * tokens


def all_reduce_traffic_bytes(size_bytes: float, members: int) -> float:
    """Return what leaves each member in an all-reduce: 2(n-1)/n of the bytes."""
    return 2 * (members - 1) / members * size_bytes


def state_bytes(parameters: float, moment_bytes: float = ADAM_MOMENT_BYTES) -> float:
    """Return the bytes of weights, gradients and an optimiser's state, Adam's or another, in mixed half precision."""
    return (ADAM_BYTES_PER_PARAMETER - ADAM_MOMENT_BYTES + moment_bytes) * parameters


def training_days(tokens: float, tokens_per_step: float, step_time_s: float) -> float:
    """Return how long a token budget lasts; InputError for one of less than a step."""
    check_budget(tokens, tokens_per_step)
    return tokens / tokens_per_step * step_time_s / DAY_S


def check_budget(tokens: float, tokens_per_step: float) -> None:
    """Raise InputError for a budget of tokens that is less than one step."""
    if tokens < tokens_per_step:
        raise InputError(
            f"--tokens {tokens:,.0f}: fewer than the {tokens_per_step:,.0f} of one step; 15T are 15 trillion"
        )


def gpu_hours(days: float, gpus: int) -> float:
    """Return the GPU-hours that a rent is paid for."""
    return days * 24 * gpus


def envelope(question: Question, group: NodeGroup) -> Envelope:
    """Return the arithmetic of a question on nodes like `group`; InputError where they lack the precision."""
    peak = peak_flops_per_s(group.gpu.peak_flops_per_s, question.precision, where=group.gpu.model)
    if question.seq_len is None or question.global_batch is None:
        return _of_all_tokens(question, group, peak)
    compute = _compute(question, peak)
    flops_s = compute[-1].value
    passes = 4 if question.recompute == "full" else 3
    forward_s, backward_s = flops_s / passes, flops_s * (passes - 1) / passes
    traffic = _traffic(question, group)
    comm_s = sum(line.value for line in traffic if line.name.startswith("link time"))
    data = _data(question, group)
    spans = _Step(data.value, forward_s, backward_s, comm_s)
    overlapped = spans.overlapped()
    step_s = step_parts(overlapped.spans)["step_time_s"]
    if question.whole_step:
        step_s = flops_s
    lines = [*compute, *traffic, data, *_memory(question, group), *_budget(question, step_s, comm_s)]
    lines += _gpus_for_days(question, compute[0].value / (math.prod(question.batch)), peak)
    return Envelope(
        lines=tuple(lines),
        in_sequence=spans.in_sequence(),
        overlapped=overlapped,
        verdict=_verdict(
            question,
            comm_s,
            backward_s,
            flops_s,
            step_s,
            unjoined=not group.node_bandwidth_bytes_per_s and question.gpus > group.gpus,
        ),
        warnings=tuple(_warnings(question, group, flops_s, comm_s, backward_s)),
    )


def _of_all_tokens(q: Question, group: NodeGroup, peak: float) -> Envelope:
    """Return the arithmetic of all tokens by an MFU, without a step."""
    passes, reached = 4 if q.recompute == "full" else 3, q.peak_share * peak
    if q.flops_per_sample is None:
        each = step_flops(q.multiplied or q.parameters, 1, recompute=passes == 4)
        how = f"{_count(q.multiplied or q.parameters)} parameters x 2 x {passes} passes"
    else:
        each, how = q.flops_per_sample * passes, f"{_flop(q.flops_per_sample)} x {passes} passes"
    assert q.tokens is not None
    token_s = each / (q.gpus * reached)
    rate = f"/ ({counted(q.gpus, 'GPU')} x {q.peak_share:g} x {peak / 1e12:g} = {q.gpus * reached / 1e12:,.4g} TFLOP/s)"
    lines = [
        ArithmeticLine("FLOPs of a token", how, each, _flop(each)),
        ArithmeticLine("FLOPs of all tokens", f"x {_count(q.tokens)}", each * q.tokens, f"{each * q.tokens:.4g} FLOP"),
        ArithmeticLine("time of a token", rate, token_s, format_time(token_s)),
        *_memory(q, group),
        *_training(q, q.tokens * token_s / DAY_S, f"{_count(q.tokens)} tokens x time of a token"),
        *_gpus_for_days(q, each, peak),
    ]
    nothing = Timeline(spans=(), source="predicted")
    verdict = "the MFU given contains what communication costs; of a step nothing is said without --global-batch"
    verdict += "" if q.seq_len else " and --seq-len"
    warnings = (*_short_of_memory(q, group), *_recomputed(q))
    return Envelope(lines=tuple(lines), in_sequence=nothing, overlapped=nothing, verdict=verdict, warnings=warnings)


def _training(q: Question, days: float, how: str) -> list[ArithmeticLine]:
    hours = gpu_hours(days, q.gpus)
    return [
        ArithmeticLine("training", how, days, format_days(days)),
        ArithmeticLine("GPU-hours", f"{counted(q.gpus, 'GPU')} x days x 24", hours, f"{hours:,.0f}"),
    ]


def _compute(q: Question, peak: float) -> list[ArithmeticLine]:
    passes = 4 if q.recompute == "full" else 3
    if q.flops_per_sample is None:
        tokens = math.prod(q.batch)
        flops = step_flops(q.multiplied or q.parameters, tokens, recompute=passes == 4)
        what = "parameters" if q.multiplied is None else f"weights a token, of {_count(q.parameters)},"
        how = f"{_count(q.multiplied or q.parameters)} {what} x 2 x {passes} passes x {tokens:,} tokens"
    else:
        flops = q.flops_per_sample * passes * q.batch[0]
        how = f"{_flop(q.flops_per_sample)} x {passes} passes x {q.batch[0]:,} samples"
    share = flops / q.gpus
    reached = q.peak_share * peak
    return [
        ArithmeticLine("FLOPs of a step", how, flops, _flop(flops)),
        ArithmeticLine("FLOPs of one GPU", f"/ {counted(q.gpus, 'GPU')}", share, _flop(share)),
        ArithmeticLine(
            "compute time",
            f"/ ({q.peak_share:g} x {peak / 1e12:g} = {reached / 1e12:.4g} TFLOP/s)",
            share / reached,
            format_time(share / reached),
        ),
    ]


def _traffic(q: Question, group: NodeGroup) -> list[ArithmeticLine]:
    """Return the lines of the gradients' all-reduce: inside a node, then between nodes."""
    held = min(q.gpus, _sharers(q, group))
    size = GRADIENT_BYTES * q.parameters
    spread = f", spread over {held} GPUs" if held > 1 else ""
    each = size / held
    lines = [
        ArithmeticLine("gradients", f"{GRADIENT_BYTES} bytes (float32) a parameter{spread}", each, _gigabytes(each))
    ]
    inside = min(q.gpus, group.scale_up_gpus)
    copies = inside // held
    if copies > 1:
        sent = all_reduce_traffic_bytes(each, copies)
        rate = group.gpu_bandwidth_bytes_per_s
        how = f"2 x {copies - 1}/{copies} of them leave each GPU at {format_rate(rate)} ({group.gpu_link})"
        lines.append(ArithmeticLine("traffic in the node", how, sent, _gigabytes(sent)))
        lines += _link_time("in the node", sent, rate)
    nodes = -(-q.gpus // group.scale_up_gpus)
    copies = q.gpus // held if held > inside else nodes
    if nodes > 1 and copies > 1:
        rate = group.node_bandwidth_bytes_per_s * group.scale_up_gpus / group.gpus
        if not rate and q.whole_step:
            return lines
        if not rate:
            raise InputError(f"{group.type}: no network between nodes is known; give --inter")
        in_node = size * min(1.0, inside / held)
        sent = all_reduce_traffic_bytes(in_node, copies)
        what = f"the {_gigabytes(in_node)} of a node" if held > 1 else "them"
        how = f"2 x {copies - 1}/{copies} of {what} leave each node at {format_network_rate(rate)}"
        lines.append(ArithmeticLine("traffic between nodes", how, sent, _gigabytes(sent)))
        lines += _link_time("between nodes", sent, rate)
    return lines


def _sharers(q: Question, group: NodeGroup) -> int:
    """Return the GPUs that one copy of the state is spread over: as many as its memory needs, 1 where it is unknown."""
    if not group.gpu.memory_bytes:
        return 1
    return max(1, int(-(-state_bytes(q.parameters, q.moment_bytes) // group.gpu.memory_bytes)))


def _link_time(where: str, sent_bytes: float, rate: float) -> list[ArithmeticLine]:
    full, careful = sent_bytes / rate, sent_bytes / (EXPECTED_SHARE * rate)
    return [
        ArithmeticLine(f"link time {where}", "traffic / rate", full, format_time(full)),
        ArithmeticLine(f"at {EXPECTED_SHARE:.0%} of the rate {where}", "what to expect", careful, format_time(careful)),
    ]


def _data(q: Question, group: NodeGroup) -> ArithmeticLine:
    sample = q.sample_bytes or TOKEN_BYTES * q.batch[1]
    rate = group.host_bandwidth_bytes_per_s
    size = sample * q.batch[0] / q.gpus
    time_s = size / rate if rate else 0.0
    how = f"{format_bytes(size)} a GPU" + (f" at {format_rate(rate)} from the host" if rate else ", rate not known")
    return ArithmeticLine("data loading", how, time_s, format_time(time_s))


def _memory(q: Question, group: NodeGroup) -> list[ArithmeticLine]:
    need = state_bytes(q.parameters, q.moment_bytes)
    have = group.gpu.memory_bytes or 0
    lines = [
        ArithmeticLine(
            "memory",
            f"{state_bytes(1, q.moment_bytes):g} bytes a parameter, before activations",
            need,
            _gigabytes(need),
        )
    ]
    if have:
        devices = _sharers(q, group)
        how = f"/ {_gigabytes(have)} of {group.gpu.model}: GPUs that must share the state"
        lines.append(ArithmeticLine("GPUs for the state", how, devices, f"{devices}"))
    if q.layers:
        layer = 4 * q.parameters / q.layers
        cut = f"; more than half of a GPU's {_gigabytes(have)}: a layer itself must be cut" if layer > have / 2 else ""
        lines.append(
            ArithmeticLine("one layer", f"4 bytes x parameters / {q.layers} layers{cut}", layer, _gigabytes(layer))
        )
    return lines


def _budget(q: Question, step_s: float, comm_s: float) -> list[ArithmeticLine]:
    if q.tokens is None:
        return []
    tokens = math.prod(q.batch)
    days = training_days(q.tokens, tokens, step_s)
    token_s = step_s / tokens
    how = f"{_count(q.tokens)} tokens / {tokens:,} x "
    step = "compute time: the MFU given contains communication" if q.whole_step else "step"
    lines = [
        ArithmeticLine("time of a token", f"step / {tokens:,} tokens", token_s, format_time(token_s)),
        *_training(q, days, how + step),
    ]
    if comm_s:
        alone = training_days(q.tokens, tokens, comm_s)
        text = f"at least {format_days(alone)}"
        lines.append(ArithmeticLine("training, by the links alone", f"{how}link time: a bound", alone, text))
    return lines


def _gpus_for_days(q: Question, each: float, peak: float) -> list[ArithmeticLine]:
    """Return the line of the GPUs that a budget of tokens takes in some days, by the FLOPs of each."""
    if q.days is None or q.tokens is None:
        return []
    reached = q.peak_share * peak
    gpus = math.ceil(each * q.tokens / (reached * q.days * DAY_S))
    how = f"{_count(q.tokens)} tokens x {_flop(each)} / ({reached / 1e12:.4g} TFLOP/s x {format_days(q.days)})"
    return [ArithmeticLine(GPUS_FOR_DAYS, how, gpus, f"{gpus:,}")]


def _verdict(q: Question, comm_s: float, backward_s: float, compute_s: float, step_s: float, *, unjoined: bool) -> str:
    if unjoined:
        return f"the links between nodes are not known, and an MFU contains them; a step takes {format_time(step_s)}"
    if not comm_s:
        alone = "one GPU" if q.gpus == 1 else "one copy of the state"
        return f"{alone}: nothing to exchange; a step takes {format_time(step_s)}"
    if comm_s <= backward_s:
        return (
            f"communication ({format_time(comm_s)}) fits behind backward ({format_time(backward_s)}): "
            f"not a bottleneck; a step takes {format_time(step_s)}"
        )
    exposed = comm_s - backward_s
    worse = "a bottleneck" if comm_s > compute_s else "shorter than compute, yet not wholly hidden"
    step = f"a step takes {format_time(step_s)}"
    if q.whole_step:
        doubt = " and that is out of reach if all of this is sent" if comm_s > compute_s else ""
        step = f"by the MFU given {step}{doubt}"
    return (
        f"communication ({format_time(comm_s)}) outlasts backward ({format_time(backward_s)}) by "
        f"{format_time(exposed)}: {worse}; {step}"
    )


def _warnings(q: Question, group: NodeGroup, compute_s: float, comm_s: float, backward_s: float) -> list[str]:
    found = []
    if q.batch[0] % q.gpus:
        found.append(
            f"a global batch of {q.global_batch} does not divide over {q.gpus} GPUs: the figures are arithmetic only"
        )
    found += _short_of_memory(q, group)
    sharers = _sharers(q, group)
    if 1 < sharers <= q.gpus:
        found.append(f"what the {sharers} GPUs that share one state send one another is not counted")
    found += _recomputed(q)
    nodes = -(-q.gpus // group.gpus)
    if nodes > 1:
        found.append(
            f"the batch is fixed: with it grown {nodes}-fold for {nodes} nodes compute would take "
            f"{format_time(compute_s * nodes)}"
        )
    careful = comm_s / EXPECTED_SHARE
    if comm_s <= backward_s < careful:
        found.append(f"at {EXPECTED_SHARE:.0%} of the rates communication takes {format_time(careful)} and is exposed")
    return found


def _short_of_memory(q: Question, group: NodeGroup) -> list[str]:
    sharers = _sharers(q, group)
    if sharers <= q.gpus:
        return []
    return [f"the state needs {counted(sharers, 'GPU')}, and there {_are(q.gpus)}: it does not fit"]


def _recomputed(q: Question) -> list[str]:
    if q.recompute != "full":
        return []
    return [f"{q.peak_share:g} counts the recomputed forward (hardware FLOPs); as MFU it is {q.peak_share * 3 / 4:g}"]


class _Step:
    """One step as spans: data, forward, backward, and the all-reduce of the gradients."""

    def __init__(self, data_s: float, forward_s: float, backward_s: float, comm_s: float) -> None:
        self._data_s, self._forward_s, self._backward_s, self._comm_s = data_s, forward_s, backward_s, comm_s

    def in_sequence(self) -> Timeline:
        """Return the step with nothing overlapped."""
        forward = self._data_s + self._forward_s
        backward = forward + self._backward_s
        return self._timeline(0.0, self._data_s, forward, backward, backward)

    def overlapped(self) -> Timeline:
        """Return the step with the data drawn ahead and gradients travelling from the start of backward on."""
        forward = max(self._forward_s, self._data_s - self._backward_s)
        return self._timeline(0.0, forward - self._forward_s, forward, forward + self._backward_s, forward)

    def _timeline(self, data: float, start: float, forward: float, backward: float, comm: float) -> Timeline:
        spans = [
            Span(0, "data", "data", data, data + self._data_s),
            Span(0, "compute", "forward", start, forward),
            Span(0, "compute", "backward", forward, backward),
            Span(0, "comm", "all_reduce", comm, comm + self._comm_s),
        ]
        return Timeline(spans=tuple(span for span in spans if span.end_s > span.start_s), source="predicted")


def _count(number: float) -> str:
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if number >= scale:
            return f"{number / scale:.4g} {unit}"
    return f"{number:g}"


def _flop(flops: float) -> str:
    for unit, scale in (("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9)):
        if flops >= scale:
            return f"{flops / scale:.5g} {unit}"
    return f"{flops:.5g} FLOP"


def _gigabytes(size: float) -> str:
    unit, scale = ("TB", 1e12) if size >= 1e12 else ("GB", 1e9) if size >= 1e9 else ("MB", 1e6)
    return f"{size / scale:.4g} {unit}"


def _are(gpus: int) -> str:
    return "is 1" if gpus == 1 else f"are {gpus:,}"
