"""One step on every rank as bars over time: what was predicted above what was measured, on one axis."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..layout import Layout
from ..mesh import position
from ..timeline import Span, Timeline, by_rank
from ..units import counted, format_bytes, format_rate, format_time, time_unit
from .colours import colours_of
from .document import Figure, figure_text

MAX_BARS = 4000
MAX_RANKS = 64
MAX_PREDICTED_RANKS = 16  # beyond, a prediction is drawn once a stage: rows of the like cost a browser seconds
MOST_WINDOWS = 80  # in which short spans share a bar: a phone has about three pixels for each
ROW_PX = 16
LEAST_SEEN = 0.003  # of the time drawn: a third of a row's pixel on a phone, three on a desk

Bar = tuple[str, Span, int]  # whose timeline, what is drawn, how many spans it stands for


def typical_step_number(timeline: Timeline) -> int | None:
    """Return the recorded step whose time is nearest the median of all; None for an empty timeline."""
    ends: dict[int, tuple[float, float]] = {}
    for span in timeline.spans:
        start, end = ends.get(span.step, (span.start_s, span.end_s))
        ends[span.step] = min(start, span.start_s), max(end, span.end_s)
    if not ends:
        return None
    times = {step: end - start for step, (start, end) in ends.items()}
    middle = statistics.median(times.values())
    return min(times, key=lambda step: (abs(times[step] - middle), step))


def on_every_rank(predicted: Timeline, layout: Layout, ranks: Collection[int]) -> Timeline:
    """Return a predicted step on each of `ranks`, where it has one rank for each position of a pipeline.

    The planner prices one rank a stage, since ranks of one stage do the same; a timeline of other ranks (all of
    them, or those of a simulation that differ) is returned as it is. Of more than `MAX_PREDICTED_RANKS` only the first
    of each stage gets it.
    """
    by_position = by_rank(predicted.spans)
    if {span.rank for span in predicted.spans} != set(range(layout.pp)) or layout.mode != "sync":
        return predicted
    stage = {rank: position(layout, rank).pp for rank in sorted(ranks, reverse=True) if rank < layout.world_size}
    if len(stage) > MAX_PREDICTED_RANKS:
        stage = {rank: position for position, rank in {stage[rank]: rank for rank in stage}.items()}
    spans = [replace(span, rank=rank) for rank in sorted(stage) for span in by_position[stage[rank]]]
    return Timeline(tuple(spans), predicted.source)


def lanes_figure(
    timelines: Mapping[str, Timeline],
    told: Callable[[Span], str] = lambda span: "",
) -> Figure | None:
    """Return one step of each timeline, rank by rank, the timelines of a rank in the order given.

    `told` says which link a span takes, where that is known.
    """
    steps = {source: typical_step_number(timeline) for source, timeline in timelines.items()}
    spans = {
        source: _from_zero([span for span in timeline.spans if span.step == steps[source]])
        for source, timeline in timelines.items()
        if steps[source] is not None
    }
    ranks = sorted({span.rank for found in spans.values() for span in found})
    if not ranks:
        return None
    shown = ranks[:MAX_RANKS]
    kept = [(s, span) for s, found in spans.items() for span in found if span.rank in set(shown)]
    kept, unseen = _seen(kept)
    rows = {key: i for i, key in enumerate(sorted({_row(s, span, list(spans)) for s, span in kept}))}
    bars, window_s, left_out = _at_most(kept, MAX_BARS)
    notes = [f"step {step} of the {source} timeline" for source, step in steps.items() if source == "measured"]
    notes += [f"no rows for {lane}, at most {format_time(most_s)} on any rank" for lane, most_s in unseen.items()]
    if len(shown) < len(ranks):
        notes.append(f"{len(shown)} of {counted(len(ranks), 'rank')}; timeline.json has all")
    ranks_of = {source: {span.rank for span in found} for source, found in spans.items()}
    if 0 < len(ranks_of.get("predicted", ())) < len(ranks_of.get("measured", ())):
        notes.append("a prediction holds for all ranks of a stage and is drawn on the first")
    if window_s:
        window = format_time(window_s)
        notes.append(f"what is shorter than {window} is drawn as one bar a name in each {window}, in right proportion")
    if left_out:
        notes.append(f"the {MAX_BARS:,} longest bars are drawn, {left_out:,} shorter ones are not")
    labels = [_label(key, list(spans)) for key in rows]
    unit, scale = time_unit(max(span.end_s for _, span in kept))
    return Figure(
        title="One step on each rank",
        traces=_traces(bars, rows, list(spans), told, scale),
        layout={
            "barmode": "overlay",
            "xaxis": {"title": {"text": unit}},
            "yaxis": {
                "autorange": "reversed",
                "tickmode": "array",
                "tickvals": list(range(len(labels))),
                "ticktext": labels,
                "fixedrange": True,
                "tickfont": {"size": 11},
            },
            "dragmode": "zoom",
        },
        height_px=130 + ROW_PX * len(labels),
        note="; ".join(notes) + ("; " if notes else "") + "drag to zoom, double-click to go back",
    )


def _seen(spans: list[tuple[str, Span]]) -> tuple[list[tuple[str, Span]], dict[str, float]]:
    """Return the spans without the lanes beside compute and comm that are too short to be seen on every rank.

    With them, the most seconds that such a lane takes on a rank.
    """
    end_s = max(span.end_s for _, span in spans)
    taken_s: dict[str, dict[tuple[str, int], float]] = {"data": defaultdict(float), "other": defaultdict(float)}
    for source, span in spans:
        if span.lane in taken_s:
            taken_s[span.lane][source, span.rank] += span.end_s - span.start_s
    most_s = {lane: max(taken.values()) for lane, taken in taken_s.items() if taken}
    unseen = {lane: most for lane, most in most_s.items() if most < LEAST_SEEN * end_s}
    kept = [(source, span) for source, span in spans if span.lane not in unseen]
    return (kept, unseen) if kept else (spans, {})


def _from_zero(spans: Sequence[Span]) -> list[Span]:
    origin = min((span.start_s for span in spans), default=0.0)
    return [
        Span(s.rank, s.lane, s.name, s.start_s - origin, s.end_s - origin, s.step, s.bytes, s.detail) for s in spans
    ]


_LANES = ("data", "compute", "comm", "other")


def _row(source: str, span: Span, sources: Sequence[str]) -> tuple[int, int, int]:
    return span.rank, sources.index(source), _LANES.index(span.lane)


def _label(key: tuple[int, int, int], sources: Sequence[str]) -> str:
    rank, source, lane = key
    return f"{figure_text(sources[source])} r{rank} {_LANES[lane]}" if len(sources) > 1 else f"r{rank} {_LANES[lane]}"


def _at_most(spans: Sequence[tuple[str, Span]], limit: int) -> tuple[list[Bar], float, int]:
    """Return the bars to draw, the window in which short ones share a bar, and how many were left out after that."""
    bars: list[Bar] = [(source, span, 1) for source, span in spans]
    if len(bars) <= limit:
        return bars, 0.0, 0
    total_s = max(span.end_s for _, span in spans)
    window_s = total_s / MOST_WINDOWS
    while len(bars := _shared(spans, window_s)) > limit and window_s < total_s:
        window_s *= 2
    bars.sort(key=lambda bar: bar[1].start_s - bar[1].end_s)
    return bars[:limit], window_s, max(0, len(bars) - limit)


def _shared(spans: Iterable[tuple[str, Span]], window_s: float) -> list[Bar]:
    """Return a bar for each span that is longer than a window, and one for all short ones of a name in a window.

    The bars of a window lie one after the other, each as long as its spans are together (or in that proportion, where
    they overlapped), so that none hides another and the eye sees the right shares.
    """
    windows: dict[tuple[str, int, str, int], list[Span]] = defaultdict(list)
    bars: list[Bar] = []
    for source, span in spans:
        if span.end_s - span.start_s >= window_s:
            bars.append((source, span, 1))
        else:
            windows[source, span.rank, span.lane, int(span.start_s / window_s)].append(span)
    for (source, *_), found in windows.items():
        bars += [(source, span, count) for span, count in _one_after_the_other(found)]
    return bars


def _one_after_the_other(found: Sequence[Span]) -> list[tuple[Span, int]]:
    """Return one span for each name, in the order of their first ones, and how many it stands for."""
    by_name: dict[str, list[Span]] = defaultdict(list)
    for span in sorted(found, key=lambda span: span.start_s):
        by_name[span.name].append(span)
    start_s = min(span.start_s for span in found)
    lasted_s = max(span.end_s for span in found) - start_s
    busy_s = sum(span.end_s - span.start_s for span in found)
    scale = min(1.0, lasted_s / busy_s) if busy_s else 1.0
    joined = []
    for group in by_name.values():
        end_s = start_s + scale * sum(span.end_s - span.start_s for span in group)
        size = sum(span.bytes for span in group)
        joined.append((replace(group[0], start_s=start_s, end_s=end_s, bytes=size), len(group)))
        start_s = end_s
    return joined


def _traces(
    bars: Sequence[Bar],
    rows: Mapping[tuple[int, int, int], int],
    sources: Sequence[str],
    told: Callable[[Span], str],
    scale: float,
) -> list[dict[str, object]]:
    """Return a trace for each name and source, so that the legend hides them together; a bar is in units of `scale`."""
    grouped: dict[tuple[str, str], list[tuple[Span, int]]] = defaultdict(list)
    for source, span, count in bars:
        grouped[span.name, source].append((span, count))
    shown: set[str] = set()
    traces = []
    colours = colours_of(name for name, _ in grouped)
    places = list(colours)  # which are in the order of a step
    for (name, source), found in sorted(grouped.items(), key=lambda item: (places.index(item[0][0]), item[0][1])):
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": figure_text(name),
                "legendgroup": figure_text(name),
                "showlegend": name not in shown,
                "y": [rows[_row(source, span, sources)] for span, _ in found],
                "x": [(span.end_s - span.start_s) / scale for span, _ in found],
                "base": [span.start_s / scale for span, _ in found],
                "hovertext": [hover_text(source, span, count, told(span)) for span, count in found],
                "hoverinfo": "text",
                "textposition": "none",
                "width": 0.85,
                "marker": {
                    "color": colours[name],
                    "opacity": 0.6 if source == "predicted" and len(sources) > 1 else 1.0,
                    "line": {"width": 0},
                },
            }
        )
        shown.add(name)
    return traces


def hover_text(source: str, span: Span, count: int = 1, link: str = "") -> str:
    """Return what a reader sees over a bar: what, when, bytes, link, rate."""
    duration_s = span.end_s - span.start_s
    lines = [
        f"<b>{figure_text(span.name)}</b>" + (f" x {count}" if count > 1 else ""),
        f"{figure_text(source)}, rank {span.rank}, {span.lane}",
        f"{format_time(duration_s)}, from {format_time(span.start_s)}",
    ]
    if span.bytes:
        rate = f", {format_rate(span.bytes / duration_s)}" if duration_s > 0 else ""
        lines.append(f"{format_bytes(span.bytes)}{rate} of payload")
    lines += [figure_text(text) for text in (link, span.detail) if text]
    return "<br>".join(lines)
