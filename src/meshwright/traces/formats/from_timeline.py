"""A Timeline of Meshwright, measured, predicted or simulated, as the traces of its ranks."""

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ...timeline import Span, Timeline, by_rank
from ..intervals import Array, union, union_of_sets
from ..model import Computed, HostTimeline, RankTrace, TracedCall, Window

_GROUP = re.compile(r"(\d{1,9}) ranks(?: of (.*))?")


def ranks_of_timeline(timeline: Timeline, source: str = "timeline.json") -> list[list[RankTrace]]:
    """Return what each rank of a timeline did."""
    return [[_trace(spans, source, timeline.source)] for spans in by_rank(timeline.spans)]


def _trace(spans: Sequence[Span], source: str, origin: Literal["measured", "predicted", "simulated"]) -> RankTrace:
    ordered = sorted(spans, key=lambda span: span.start_s)
    compute = [span for span in ordered if span.lane == "compute"]
    table = sorted({span.name for span in compute})
    sets = {lane: _union([s for s in ordered if s.lane == lane]) for lane in ("compute", "comm", "data", "other")}
    return RankTrace(
        source=source,
        name=source,
        rank=ordered[0].rank,
        host_name="one clock",  # of all ranks of a timeline: none is moved
        device="host",
        label="",
        epoch_ns=0,
        compute=sets["compute"],
        phases={name: _union([span for span in compute if span.name == name]) for name in table},
        comm=sets["comm"],
        copies=sets["data"],
        other=sets["other"],
        computed=Computed(
            np.asarray([span.start_s for span in compute]),
            np.asarray([span.end_s for span in compute]),
            np.asarray([table.index(span.name) for span in compute], dtype=np.int32),
            table,
        ),
        calls=[_call(span) for span in ordered if span.lane == "comm"],
        host=HostTimeline(data=sets["data"], operators=union_of_sets([sets["compute"], sets["other"]])),
        windows=_windows(ordered),
        marked=True,
        origin=origin,
    )


def _union(spans: Sequence[Span]) -> Array:
    return union([span.start_s for span in spans], [span.end_s for span in spans])


def _call(span: Span) -> TracedCall:
    said = _GROUP.match(span.detail)
    if not said:
        return TracedCall(span.name, span.start_s, span.end_s, span.start_s, span.bytes, group_text=span.detail)
    text = said[2] or ""
    return TracedCall(span.name, span.start_s, span.end_s, span.start_s, span.bytes, text, text, int(said[1]))


def _windows(spans: Sequence[Span]) -> list[Window]:
    """Return the steps: to the start of the next one where that was recorded, otherwise to their own end."""
    ends: dict[int, tuple[float, float]] = {}
    for span in spans:
        start_s, end_s = ends.get(span.step, (span.start_s, span.end_s))
        ends[span.step] = min(start_s, span.start_s), max(end_s, span.end_s)
    found = []
    for step, (start_s, end_s) in sorted(ends.items()):
        after = ends.get(step + 1)
        until = after[0] if after is not None and after[0] > start_s else end_s
        if until > start_s:
            found.append(Window(step, start_s, until))
    return found
