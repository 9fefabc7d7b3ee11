"""One step of each rank as a Timeline, to be drawn: kernels of one phase that lie close together are one span."""

import statistics
from collections.abc import Sequence

import numpy as np

from ..timeline import Lane, Span, Timeline
from .intervals import Array, clipped, union
from .model import RankTrace, Window
from .usage import common_steps, steps_of

JOIN_S = 10e-6  # neighbours of one phase that are closer than this are drawn as one


def typical(ranks: Sequence[Sequence[RankTrace]]) -> Timeline:
    """Return the step whose length is nearest the median, on every rank that traced it."""
    wanted = common_steps(ranks) or {window.number for cycles in ranks for trace in cycles for window in trace.windows}
    lengths: dict[int, list[float]] = {}
    for cycles in ranks:
        for _, window in steps_of(cycles, wanted):
            lengths.setdefault(window.number, []).append(window.length_s)
    times = {number: statistics.median(found) for number, found in lengths.items()}
    middle = statistics.median(times.values())
    step = min(times, key=lambda number: (abs(times[number] - middle), number))
    origin_ns = min(trace.epoch_ns for cycles in ranks for trace in cycles)
    spans = [
        span
        for cycles in ranks
        for trace, window in steps_of(cycles, {step})
        for span in _spans(trace, window, origin_ns)
    ]
    return Timeline(tuple(spans), ranks[0][0].origin)


def _spans(trace: RankTrace, window: Window, origin_ns: int) -> list[Span]:
    assert trace.rank is not None
    rank, by_s = trace.rank, (trace.epoch_ns - origin_ns) * 1e-9
    found: list[tuple[Lane, str, Array, int, str]] = []
    for name, times in trace.phases.items():
        mine = clipped(times, window.start_s, window.end_s)
        near = union(mine[:, 0], mine[:, 1] + JOIN_S) - np.array([0.0, JOIN_S])
        found.append(("compute", name, near, 0, ""))
    found.append(
        ("data", "copy to the device" if trace.device == "device" else "data", _in(trace.copies, window), 0, "")
    )
    found.append(("other", "copy to the host", _in(trace.other, window), 0, ""))
    for call in trace.calls:
        if call.end_s <= window.start_s or call.start_s >= window.end_s:
            continue
        at = _in(union([call.start_s], [call.end_s]), window)
        found.append(("comm", call.name, at, call.bytes, call.detail))
    return [
        Span(rank, lane, name, start_s + by_s, end_s + by_s, window.number, size, detail)
        for lane, name, times, size, detail in found
        for start_s, end_s in times.tolist()
    ]


def _in(found: Array, window: Window) -> Array:
    return clipped(found, window.start_s, window.end_s)
