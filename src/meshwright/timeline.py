"""Timeline: who did what when, predicted or measured, and what it adds up to.

A Timeline is a flat list of spans. Overlap is computed from unions of intervals, never from sums, so that two
collectives in flight at once count once.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

Lane = Literal["compute", "comm", "data", "other"]
Interval = tuple[float, float]


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that one rank did, from `start_s` to `end_s` on a clock that all ranks share."""

    rank: int
    lane: Lane
    name: str  # "forward", "backward", "optimizer", "all_reduce", "data", ...
    start_s: float
    end_s: float
    step: int = 0
    bytes: int = 0  # payload of a communication, 0 for everything else
    detail: str = ""


class Timeline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The spans of some steps of a run, measured, predicted or simulated."""

    spans: tuple[Span, ...]
    source: Literal["measured", "predicted", "simulated"]
    schema: Literal["meshwright.timeline/1"] = "meshwright.timeline/1"


class Performance(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one training step costs: one struct for the prediction and for the measurement.

    Times are seconds of one optimiser step on one rank (the median over steps when measured). `exposed_comm_s` is
    communication during which the rank computes nothing, `hidden_comm_s` the rest of it; the bubble is idle time of a
    pipeline stage. `mfu` is None where the dense peak is not known.
    """

    step_time_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float
    exposed_comm_s: float
    hidden_comm_s: float
    bubble_s: float
    data_s: float
    tokens_per_s_per_gpu: float
    model_tflops_per_gpu: float
    mfu: float | None
    peak_memory_bytes_per_gpu: int
    error_band: float | None = None  # relative; predictions only
    not_modelled: tuple[str, ...] = ()  # predictions only
    calibration: tuple[str, ...] = ()  # what the prediction was calibrated with; predictions only


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint, sorted intervals that cover the same points."""
    merged: list[Interval] = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length_s(intervals: Iterable[Interval]) -> float:
    """Return the seconds that a union of intervals covers."""
    return sum(end - start for start, end in union(intervals))


def overlap_s(a: Sequence[Interval], b: Sequence[Interval]) -> float:
    """Return the seconds covered by both: |A| + |B| - |A u B|."""
    return max(0.0, length_s(a) + length_s(b) - length_s([*a, *b]))  # rounding may leave less than nothing


def intervals(spans: Iterable[Span], *, lane: Lane | None = None, name: str | None = None) -> list[Interval]:
    """Return the intervals of the spans of one lane and one name (None: of every one)."""
    return [
        (s.start_s, s.end_s) for s in spans if (lane is None or s.lane == lane) and (name is None or s.name == name)
    ]


def chrome_trace(timeline: Timeline) -> dict[str, Any]:
    """Return the timeline as Chrome trace events, which Perfetto and chrome://tracing open; one process a rank."""
    lanes: dict[str, int] = {"compute": 0, "comm": 1, "data": 2, "other": 3}
    origin = min((s.start_s for s in timeline.spans), default=0.0)
    events: list[dict[str, Any]] = []
    for rank in sorted({s.rank for s in timeline.spans}):
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
        events += [
            {"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": lane}}
            for lane, tid in lanes.items()
        ]
    for s in timeline.spans:
        args = {"step": s.step} | ({"bytes": s.bytes} if s.bytes else {}) | ({"detail": s.detail} if s.detail else {})
        events.append(
            {
                "ph": "X",
                "name": s.name,
                "cat": s.lane,
                "pid": s.rank,
                "tid": lanes[s.lane],
                "ts": (s.start_s - origin) * 1e6,
                "dur": (s.end_s - s.start_s) * 1e6,
                "args": args,
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"source": timeline.source}}


def summarize(
    steps: Sequence[dict[str, float]],
    *,
    ranks: int,
    tokens_per_step: int,
    model_flops_per_step: float,
    peak_flops_per_s: float | None,
    peak_memory_bytes: int,
    error_band: float | None = None,
    not_modelled: tuple[str, ...] = (),
    calibration: tuple[str, ...] = (),
) -> Performance:
    """Return what steps cost, given the parts (`step_parts`) of each step or rank: of each part the median."""
    parts = {name: statistics.median(step[name] for step in steps) for name in steps[0]}
    flops_per_s = model_flops_per_step / ranks / parts["step_time_s"]
    return Performance(
        **parts,
        bubble_s=0.0,
        tokens_per_s_per_gpu=tokens_per_step / ranks / parts["step_time_s"],
        model_tflops_per_gpu=flops_per_s / 1e12,
        mfu=flops_per_s / peak_flops_per_s if peak_flops_per_s else None,
        peak_memory_bytes_per_gpu=peak_memory_bytes,
        error_band=error_band,
        not_modelled=not_modelled,
        calibration=calibration,
    )


def step_parts(spans: Sequence[Span]) -> dict[str, float]:
    """Return the seconds of each part of one rank's step, which lasts from its first span to its last.

    Communication is exposed while the rank computes nothing; waiting for a slower rank is part of it.
    """
    compute = intervals(spans, lane="compute")
    comm = intervals(spans, lane="comm")
    hidden_s = overlap_s(compute, comm)
    return {
        "step_time_s": max(s.end_s for s in spans) - min(s.start_s for s in spans),
        "forward_s": length_s(intervals(spans, name="forward")),
        "backward_s": length_s(intervals(spans, name="backward")),
        "optimizer_s": length_s(intervals(spans, name="optimizer")),
        "exposed_comm_s": length_s(comm) - hidden_s,
        "hidden_comm_s": hidden_s,
        "data_s": length_s(intervals(spans, lane="data")),
    }


def parse_chrome_trace(trace: Any) -> Timeline:
    """Return the timeline that `chrome_trace` wrote; ValueError if it is not such a trace."""
    lanes = {"compute", "comm", "data", "other"}
    try:
        spans = tuple(
            Span(
                rank=int(event["pid"]),
                lane=event["cat"],
                name=str(event["name"]),
                start_s=event["ts"] * 1e-6,
                end_s=(event["ts"] + event["dur"]) * 1e-6,
                step=int(event["args"]["step"]),
                bytes=int(event["args"].get("bytes", 0)),
                detail=str(event["args"].get("detail", "")),
            )
            for event in trace["traceEvents"]
            if event["ph"] == "X"
        )
        source = trace["otherData"]["source"]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a timeline of Meshwright: {error!r}") from None
    if not {span.lane for span in spans} <= lanes:
        raise ValueError(f"not a timeline of Meshwright: a lane other than {', '.join(sorted(lanes))}")
    return Timeline(spans=spans, source=source)
