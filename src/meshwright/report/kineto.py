"""Traces of torch.profiler (Kineto) as a Timeline, so that a run that Meshwright did not start is explained too.

On a GPU the spans are its kernels: those of NCCL and RCCL are communication, copies from the host are data, and every
other kernel belongs to the phase (forward, backward, optimizer) in which the host launched it. Without GPU kernels
they are the operators of the host. Steps are the profiler's own ("ProfilerStep#3").
"""

import bisect
import gzip
import math
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..errors import InputError
from ..files import MAX_BYTES, read_text
from ..timeline import Interval, Lane, Span, Timeline, union

MAX_EVENTS = 4_000_000
JOIN_S = 10e-6  # neighbours of one phase that are closer than this become one span

_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "broadcast": "broadcast",
    "barrier": "barrier",
    "scatter": "scatter",
    "gather": "gather",
    "reduce": "reduce",
    "send": "send",
    "recv": "recv",
}
_DTYPE_BYTES = {
    "double": 8, "float": 4, "half": 2, "bfloat16": 2, "long": 8, "int": 4, "short": 2, "byte": 1, "char": 1, "bool": 1,
}  # fmt: skip
_LIBRARY = re.compile(r"(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl|meshwright):", re.ASCII)
_KERNEL = re.compile(r"nccl|rccl|oneccl|msccl", re.IGNORECASE)
_STEP = re.compile(r"ProfilerStep#(\d{1,12})$")


class _Event(msgspec.Struct, frozen=True):
    """One event of a trace; keys that are not read here are skipped."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: float = 0.0  # microseconds
    dur: float = 0.0
    args: Any = None

    @property
    def start_s(self) -> float:
        return self.ts * 1e-6

    @property
    def end_s(self) -> float:
        return (self.ts + self.dur) * 1e-6

    def arg(self, key: str) -> Any:
        """Return one of its arguments, None where it has none."""
        return self.args.get(key) if isinstance(self.args, dict) else None


class _Distributed(msgspec.Struct, frozen=True):
    rank: int | None = None


class _Trace(msgspec.Struct, frozen=True):
    traceEvents: list[_Event]
    distributedInfo: _Distributed = _Distributed()
    baseTimeNanoseconds: int = 0


class Profile(NamedTuple):
    """One profiled rank."""

    rank: int | None  # None where the trace names none
    spans: tuple[Span, ...]  # as of rank 0


def read_profiles(paths: Sequence[Path]) -> Timeline:
    """Return the timeline of the traces of one or more ranks; InputError if one is no trace or two are one rank."""
    profiles = [read_profile(path) for path in paths]
    ranks = [index if profile.rank is None else profile.rank for index, profile in enumerate(profiles)]
    if len(set(ranks)) < len(ranks):
        twice = next(rank for rank in ranks if ranks.count(rank) > 1)
        raise InputError(f"{paths[ranks.index(twice, ranks.index(twice) + 1)]}: rank {twice} a second time")
    spans = (
        msgspec.structs.replace(span, rank=rank)
        for rank, profile in zip(ranks, profiles, strict=True)
        for span in profile.spans
    )
    return Timeline(spans=tuple(spans), source="measured")


def read_profile(path: Path) -> Profile:
    """Return what one trace holds (.json or .json.gz); InputError if it is not a trace of torch.profiler."""
    text = _read(path)
    try:
        trace = msgspec.json.decode(text, type=_Trace)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a trace of torch.profiler: {error}") from None
    if len(trace.traceEvents) > MAX_EVENTS:
        raise InputError(
            f"{path}: {len(trace.traceEvents):,} events, at most {MAX_EVENTS:,} are read; profile fewer steps"
        )
    events = [event for event in trace.traceEvents if event.ph == "X"]
    if not all(math.isfinite(e.ts) and math.isfinite(e.dur) and e.dur >= 0 for e in events):
        raise InputError(f"{path}: an event's ts or dur is not a number of microseconds of 0 or more")
    # of an operator that began before the profiler Kineto gives 0 for the beginning, so that it lasts since 1970
    base_us = trace.baseTimeNanoseconds / 1000 or math.inf
    spans = _spans([event for event in events if event.dur < base_us])
    if not spans:
        raise InputError(f"{path}: no operator and no kernel in it; expected a trace of torch.profiler")
    offset_s = trace.baseTimeNanoseconds * 1e-9
    moved = (msgspec.structs.replace(s, start_s=s.start_s + offset_s, end_s=s.end_s + offset_s) for s in spans)
    return Profile(trace.distributedInfo.rank, tuple(moved))


def _read(path: Path) -> bytes:
    if path.suffix != ".gz":
        return read_text(path).encode()
    try:
        with gzip.open(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES} bytes when unpacked, refused")
    return data


class _Phases:
    """When the host was in backward, in the optimizer, and in which step."""

    def __init__(self, events: Sequence[_Event]) -> None:
        self.backward = _intervals(e for e in events if e.name.startswith("autograd::engine::evaluate_function"))
        self.optimizer = _intervals(e for e in events if e.name.startswith("Optimizer."))
        self.data = _intervals(e for e in events if e.name.startswith("enumerate(DataLoader)"))
        steps = sorted((e.start_s, int(m.group(1))) for e in events if (m := _STEP.match(e.name)))
        self._starts = [start for start, _ in steps]
        self._steps = [number for _, number in steps]

    def of(self, time_s: float) -> str:
        """Return the phase in which the host was."""
        if _inside(self.optimizer, time_s):
            return "optimizer"
        return "backward" if _inside(self.backward, time_s) else "forward"

    def step(self, time_s: float) -> int:
        """Return the step; what lies before the first belongs to it."""
        index = max(0, bisect.bisect_right(self._starts, time_s) - 1)
        return self._steps[index] if self._steps else 0


def _spans(events: Sequence[_Event]) -> list[Span]:
    """Return the spans of a rank: of its GPU if there are any."""
    phases = _Phases([e for e in events if e.cat in {"cpu_op", "user_annotation"}])
    kernels = [e for e in events if e.cat in {"kernel", "gpu_memcpy", "gpu_memset"}]
    return _joined(_of_gpu(kernels, events, phases) if kernels else _of_host(events, phases))


def _of_gpu(kernels: Sequence[_Event], events: Sequence[_Event], phases: _Phases) -> list[Span]:
    launched = {
        e.arg("correlation"): e.start_s for e in events if e.cat in {"cuda_runtime", "cuda_driver", "hip_runtime"}
    }
    spans = []
    for kernel in kernels:
        when = launched.get(kernel.arg("correlation"), kernel.start_s)
        lane, name, size, detail = _classify(kernel, phases.of(when))
        spans.append(Span(0, lane, name, kernel.start_s, kernel.end_s, phases.step(when), size, detail))
    return spans


def _classify(kernel: _Event, phase: str) -> tuple[Lane, str, int, str]:
    """Return lane, name, payload in bytes and detail of a GPU event."""
    if _KERNEL.search(kernel.name) or kernel.arg("Collective name"):
        return "comm", _collective(str(kernel.arg("Collective name") or kernel.name)), _payload(kernel), _group(kernel)
    if kernel.cat == "gpu_memcpy":
        if "HtoD" in kernel.name or "Host -> Device" in kernel.name:
            return "data", "copy to the device", int(_number(kernel.arg("bytes"))), ""
        if "DtoH" in kernel.name or "Device -> Host" in kernel.name:
            return "other", "copy to the host", int(_number(kernel.arg("bytes"))), ""
    return "compute", phase, 0, ""


def _collective(name: str) -> str:
    """Return our name of a collective: "ncclDevKernel_AllReduce_Sum_f32_RING_LL" is all_reduce."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    return next((ours for theirs, ours in _COLLECTIVES.items() if theirs in plain), "communication")


def _payload(event: _Event) -> int:
    """Return the payload as nccl-tests count it: the larger of what goes in and what comes out."""
    elements = max(_number(event.arg("In msg nelems")), _number(event.arg("Out msg nelems")))
    return int(elements * _DTYPE_BYTES.get(str(event.arg("dtype")).lower(), 0))


def _group(event: _Event) -> str:
    size = _number(event.arg("Group size"))
    named = str(event.arg("Process Group Description") or "")
    return f"{size:.0f} ranks" + (f" of {named}" if named else "") if size else ""


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 2**60 else 0.0


def _of_host(events: Sequence[_Event], phases: _Phases) -> list[Span]:
    """Return the spans of a host: its operators, and collectives as their library marked them."""
    marked = [e for e in events if _LIBRARY.match(e.name)]
    comm = marked or [e for e in events if e.name.startswith("c10d::")]
    launches = _intervals(e for e in events if e.name.startswith("c10d::"))
    operators = _intervals(e for e in events if e.cat == "cpu_op")
    optimizer, data = phases.optimizer, phases.data
    backward = _without(phases.backward, [*launches, *optimizer])
    forward = _without(operators, [*launches, *phases.backward, *optimizer, *data])
    named: tuple[tuple[Lane, str, list[Interval]], ...] = (
        ("data", "data", data),
        ("compute", "forward", forward),
        ("compute", "backward", backward),
        ("compute", "optimizer", optimizer),
    )
    spans = [Span(0, lane, name, start, end, phases.step(start)) for lane, name, found in named for start, end in found]
    return spans + [
        Span(0, "comm", _collective(e.name.split(":")[-1]), e.start_s, e.end_s, phases.step(e.start_s),
             _payload(e), _group(e))
        for e in comm
    ]  # fmt: skip


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Join neighbours of one phase, unless something else lies between them; communication stays as it is."""
    joined: list[Span] = []
    last: dict[Lane, int] = {}
    for span in sorted(spans, key=lambda s: s.start_s):
        index = last.get(span.lane)
        if index is not None and span.lane == "compute":
            before = joined[index]
            if (before.name, before.step) == (span.name, span.step) and span.start_s - before.end_s <= JOIN_S:
                joined[index] = msgspec.structs.replace(before, end_s=max(before.end_s, span.end_s))
                continue
        last[span.lane] = len(joined)
        joined.append(span)
    return joined


def _intervals(events: Iterable[_Event]) -> list[Interval]:
    return union((e.start_s, e.end_s) for e in events)


def _inside(found: Sequence[Interval], time_s: float) -> bool:
    index = bisect.bisect_right(found, (time_s, math.inf)) - 1
    return index >= 0 and time_s < found[index][1]


def _without(found: Sequence[Interval], removed: Iterable[Interval]) -> list[Interval]:
    """Return the points of `found` that are not in `removed`; both may overlap themselves."""
    left: list[Interval] = []
    holes = union(removed)
    starts = [start for start, _ in holes]
    for start, end in union(found):
        at = max(0, bisect.bisect_right(starts, start) - 1)
        while at < len(holes) and holes[at][0] < end:
            hole_start, hole_end = holes[at]
            if hole_start > start:
                left.append((start, hole_start))
            start = max(start, hole_end)
            at += 1
        if start < end:
            left.append((start, end))
    return left
