"""A simulated run as a Chrome trace that Perfetto opens, with an arrow for each message from sender to receiver."""

from typing import Any

from ..timeline import Span, Timeline, chrome_trace

SENDS, RECEIVES = ("send", " send"), ("recv", " recv")


def trace_with_flows(timeline: Timeline) -> dict[str, Any]:
    """Return the trace of `timeline.chrome_trace` with flow events between the sends and receives that are one message.

    They are one if they begin and end at the same moments and follow each other in the timeline.
    """
    trace = chrome_trace(timeline)
    origin = min((s.start_s for s in timeline.spans), default=0.0)
    arrows = []
    for number, (send, receive) in enumerate(zip(timeline.spans, timeline.spans[1:], strict=False)):
        if send.name.endswith(SENDS) and receive.name.endswith(RECEIVES) and _times(send) == _times(receive):
            start, end = (send.start_s - origin) * 1e6, (receive.end_s - origin) * 1e6
            shared = {"cat": "message", "name": "message", "id": number, "tid": 1}
            arrows.append({"ph": "s", "pid": send.rank, "ts": start, **shared})
            arrows.append({"ph": "f", "bp": "e", "pid": receive.rank, "ts": end, **shared})
    trace["traceEvents"] += arrows
    return trace


def _times(span: Span) -> tuple[float, float]:
    return span.start_s, span.end_s
