"""The grid of a pipeline: which rank computes which stage of which micro-batch when."""

from ..errors import InputError
from ..layout import Layout
from ..pipelines import StageTimes, bubble_share, picture, schedule, timed
from ..timeline import Performance
from ..units import format_time
from .document import Figure

COLOURS = {"F": "#4c78a8", "B": "#f58518", "I": "#f58518", "W": "#eeca3b"}
NAMES = {"F": "forward", "B": "backward", "I": "backward, inputs", "W": "backward, weights"}
MAX_ACTIONS = 4000
MAX_TEXTS = 600
MAX_ROWS = 16  # ranks that a terminal shows


def pipeline_figure(layout: Layout, micro_batches: int, predicted: Performance) -> Figure | None:
    """Return the schedule drawn to scale: equal stages, forward and backward as long as predicted; None without pp."""
    if layout.pp == 1:
        return None
    shown = min(micro_batches, max(layout.pp * 2, MAX_ACTIONS // (3 * layout.pp * layout.vpp)))
    shown -= shown % layout.pp if shown > layout.pp and layout.schedule == "interleaved" else 0
    try:
        grid = schedule(layout.schedule, layout.pp, layout.vpp, shown)
    except InputError as error:
        return Figure(title="Pipeline", traces=[], height_px=60, note=f"not drawn: {error}")
    stages, passes = layout.pp * layout.vpp, micro_batches * layout.vpp
    forward_s, backward_s = predicted.forward_s / passes, predicted.backward_s / passes
    even = StageTimes.even(stages, forward_s=forward_s, backward_s=backward_s, weight_s=backward_s / 2)
    timing = timed(grid, even)
    traces = []
    for kind, colour in COLOURS.items():
        found = [(grid.rank_of_stage[a.stage], a, span) for a, span in timing.intervals.items() if a.kind == kind]
        if found:
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": NAMES[kind],
                    "y": [rank for rank, _, _ in found],
                    "x": [(end - start) * 1e3 for _, _, (start, end) in found],
                    "base": [start * 1e3 for _, _, (start, _) in found],
                    "text": [str(a.micro_batch) for _, a, _ in found] if len(timing.intervals) <= MAX_TEXTS else None,
                    "textposition": "inside",
                    "textangle": 0,
                    "insidetextanchor": "middle",
                    "hovertext": [
                        f"<b>{a}</b>: stage {a.stage}, {NAMES[a.kind]}, micro-batch {a.micro_batch}<br>"
                        f"{format_time(end - start)}, from {format_time(start)}"
                        for _, a, (start, end) in found
                    ],
                    "hoverinfo": "text",
                    "width": 0.9,
                    "marker": {"color": colour, "line": {"width": 1, "color": "rgba(128,128,128,0.6)"}},
                }
            )
    less = f"the first {shown} of {micro_batches} micro-batches; " if shown < micro_batches else ""
    formula = bubble_share(layout.schedule, layout.pp, layout.vpp, shown)
    predicted_text = format_time(predicted.bubble_s)
    note = (
        f"{less}equal stages, transfers not drawn; a rank idles {timing.bubble_share:.1%} of what is drawn (the "
        f"formula says {formula:.1%}, with backward twice the forward); the prediction has {predicted_text}"
    )
    return Figure(
        title=f"Pipeline: {layout.schedule}, {layout.pp} ranks, {stages} stages, {micro_batches} micro-batches",
        traces=traces,
        layout={
            "barmode": "overlay",
            "xaxis": {"title": {"text": "ms"}},
            "yaxis": {"title": {"text": "pipeline rank"}, "autorange": "reversed", "dtick": 1, "fixedrange": True},
        },
        height_px=120 + 30 * layout.pp,
        note=note,
    )


def pipeline_lines(layout: Layout, micro_batches: int, width: int) -> list[str]:
    """Return the schedule as text of at most `width` columns, one row a rank, forward one tick and backward two.

    As many micro-batches as fit are drawn, two for each rank at least; nothing without a pipeline.
    """
    if layout.pp == 1:
        return []
    tries = sorted(
        {micro_batches, *(n * layout.pp for n in range(2, 9) if n * layout.pp < micro_batches)}, reverse=True
    )
    for shown in tries:
        try:
            *rows, idle = picture(schedule(layout.schedule, layout.pp, layout.vpp, shown)).splitlines()
        except InputError as error:
            return [f"pipeline not drawn: {error}"]
        if max(map(len, rows)) <= width:
            break
    less = (
        f"the first {shown} of {micro_batches:,} micro-batches" if shown < micro_batches else f"{shown} micro-batches"
    )
    cut = [row if len(row) <= width else row[: width - 2].rsplit(" ", 1)[0] + " …" for row in rows[:MAX_ROWS]]
    more = [f"... {len(rows) - MAX_ROWS} more ranks"] if len(rows) > MAX_ROWS else []
    return [f"pipeline {layout.schedule}, {less}: stage, pass, micro-batch", *cut, *more, f"{idle} as drawn"]
