"""The grid of a pipeline: which rank computes which stage of which micro-batch when."""

from typing import Any

from ..errors import InputError
from ..layout import Layout
from ..pipelines import StageTimes, Timing, bubble_share, picture, schedule, timed
from ..timeline import Performance
from ..units import counted, format_time, time_unit
from .colours import COLOURS
from .document import Figure

KIND_COLOURS = {
    "F": COLOURS["forward"],
    "B": COLOURS["backward"],
    "I": COLOURS["backward_input"],
    "W": COLOURS["backward_weight"],
}
NAMES = {"F": "forward", "B": "backward", "I": "backward, inputs", "W": "backward, weights"}
MAX_PASSES = 32  # of a rank: more are too narrow for their numbers, so that a period stands for the like
MAX_TEXTS = 600
MAX_ROWS = 16  # ranks that a terminal shows


def pipeline_figure(layout: Layout, micro_batches: int, predicted: Performance) -> Figure | None:
    """Return the schedule drawn to scale: equal stages, forward and backward as long as predicted; None without pp.

    Of many micro-batches the first and last are drawn, with one period of the steady state between them marked: every
    further micro-batch repeats it.
    """
    if layout.pp == 1:
        return None
    stages, passes = layout.pp * layout.vpp, micro_batches * layout.vpp
    forward_s, backward_s = predicted.forward_s / passes, predicted.backward_s / passes
    even = StageTimes.even(stages, forward_s=forward_s, backward_s=backward_s, weight_s=backward_s / 2)
    try:
        timing, shown, period = _drawn(layout, micro_batches, even)
    except InputError as error:
        return Figure(title="Pipeline", traces=[], height_px=60, note=f"not drawn: {error}")
    unit, scale = time_unit(timing.step_s)
    less = ""
    if shown < micro_batches:
        less = f"drawn with {shown} of {counted(micro_batches, 'micro-batch')}: warm-up, steady state, drain"
        less += f"; each of the other {micro_batches - shown:,} repeats the marked period" if period else ""
    formula = bubble_share(layout.schedule, layout.pp, layout.vpp, micro_batches)
    notes = (
        less,
        "equal stages, transfers not drawn",
        f"a rank idles {timing.bubble_share:.1%} of what is drawn",
        f"the formula says {formula:.1%} for {counted(micro_batches, 'micro-batch')}, with backward "
        "twice the forward; the "
        f"prediction has {format_time(predicted.bubble_s)}",
    )
    layout_: dict[str, Any] = {
        "barmode": "overlay",
        "xaxis": {"title": {"text": unit}},
        "yaxis": {"title": {"text": "pipeline rank"}, "autorange": "reversed", "dtick": 1, "fixedrange": True},
        "uniformtext": {"minsize": 9, "mode": "hide"},
    }
    if period and shown < micro_batches:
        layout_ |= _marked(period[0] / scale, period[1] / scale, f"x {micro_batches - shown + 1:,}")
    return Figure(
        title=(
            f"Pipeline: {layout.schedule}, {counted(layout.pp, 'rank')}, {counted(stages, 'stage')}, "
            f"{counted(micro_batches, 'micro-batch')}"
        ),
        traces=_bars(timing, scale),
        layout=layout_,
        height_px=130 + 30 * layout.pp,
        note="; ".join(filter(None, notes)),
    )


def _drawn(layout: Layout, micro_batches: int, even: StageTimes) -> tuple[Timing, int, tuple[float, float] | None]:
    """Return the timed grid of as many micro-batches as are drawn, that number, and one period of its steady state.

    The steady state lasts from where every rank has begun to go backward to where one has no forward left; a schedule
    without one (GPipe) has no period.
    """
    period_s = layout.vpp * (even.forward_s[0] + even.backward_s[0])
    fewer = range(2 * layout.pp, 5 * layout.pp, layout.pp) if micro_batches * layout.vpp > MAX_PASSES else ()
    for shown in [count for count in fewer if count < micro_batches] or [micro_batches]:
        timing = timed(schedule(layout.schedule, layout.pp, layout.vpp, shown), even)
        rows = timing.grid.rows
        begin = max(min(timing.intervals[a][0] for a in row if a.kind in "BI") for row in rows)
        end = min(max(timing.intervals[a][1] for a in row if a.kind == "F") for row in rows)
        period = (begin, begin + period_s) if end - begin >= period_s * 0.999 else None
        if period or layout.schedule == "gpipe":
            break
    return timing, shown, period


def _bars(timing: Timing, scale: float) -> list[dict[str, Any]]:
    grid, traces = timing.grid, []
    for kind, colour in KIND_COLOURS.items():
        found = [(grid.rank_of_stage[a.stage], a, span) for a, span in timing.intervals.items() if a.kind == kind]
        if found:
            traces.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": NAMES[kind],
                    "y": [rank for rank, _, _ in found],
                    "x": [(end - start) / scale for _, _, (start, end) in found],
                    "base": [start / scale for _, _, (start, _) in found],
                    "text": [str(a.micro_batch) for _, a, _ in found] if len(timing.intervals) <= MAX_TEXTS else None,
                    "textposition": "inside",
                    "textangle": 0,
                    "insidetextanchor": "middle",
                    "insidetextfont": {"color": "#14171c"},
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
    return traces


def _marked(begin: float, end: float, text: str) -> dict[str, Any]:
    """Return the frame around a stretch of the horizontal axis, with a text above it."""
    across = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1, "x0": begin, "x1": end}
    return {
        "shapes": [{"type": "rect", **across, "line": {"color": "#b83a4b", "width": 2, "dash": "dot"}}],
        "annotations": [
            {
                "text": text,
                "x": (begin + end) / 2,
                "y": 1,
                "xref": "x",
                "yref": "paper",
                "yanchor": "bottom",
                "showarrow": False,
            }
        ],
        "legend": {"y": 1.1},
    }


def pipeline_lines(layout: Layout, micro_batches: int, width: int) -> list[str]:
    """Return the schedule as text of at most `width` columns, one row a rank, forward one tick and backward two.

    As many micro-batches as fit are drawn, two for each rank at least; nothing without a pipeline.
    """
    if layout.pp == 1:
        return []
    tries = sorted(
        {micro_batches, *(n * layout.pp for n in range(2, 9) if n * layout.pp < micro_batches)}, reverse=True
    )
    idles = []  # of all micro-batches first
    for shown in tries:
        try:
            *rows, idle = picture(schedule(layout.schedule, layout.pp, layout.vpp, shown)).splitlines()
            idles.append(idle)
        except InputError as error:
            return [f"pipeline not drawn: {error}"]
        if max(map(len, rows)) <= width:
            break
    less = (
        f"the first {shown} of {counted(micro_batches, 'micro-batch')}"
        if shown < micro_batches
        else f"{counted(shown, 'micro-batch')}"
    )
    whose = f"with all {micro_batches}" if shown < micro_batches else "as drawn"
    cut = [row if len(row) <= width else row[: width - 2].rsplit(" ", 1)[0] + " …" for row in rows[:MAX_ROWS]]
    more = [f"... {len(rows) - MAX_ROWS} more ranks"] if len(rows) > MAX_ROWS else []
    return [f"pipeline {layout.schedule}, {less}: stage, pass, micro-batch", *cut, *more, f"{idles[0]} {whose}"]
