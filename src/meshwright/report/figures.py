"""The figures of a page as plain data: parts of a step, curves, memory, the mesh of ranks."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..layout import Layout
from ..mesh import position
from ..timeline import Performance
from ..units import counted, format_bytes, format_time, time_unit
from .colours import MEASURED, PREDICTED, SERIES
from .colours import PARTS as PART_COLOURS
from .compare import PARTS
from .document import Figure, figure_text
from .sampling import thinned, thinning_note

LABELLED_SHARE = 0.07  # of the longest step: a narrower part has its time in the table and under the mouse
MAX_MESH_RANKS, CELL_PX = 4096, 30
MOST_NUMBERED = 32  # columns of a mesh whose cells have room for the number of their rank
MESH_SCALE = [[0, "#7fa7d6"], [0.5, "#8fd0c3"], [1, "#f2d772"]]  # black figures stand out on all of it
AXIS_WORDS = {"pp": "pipeline stage", "dp": "data-parallel copy", "cp": "context rank", "tp": "tensor rank"}


def parts_figure(performances: Mapping[str, Performance]) -> Figure:
    """Return the parts of a step in its order, a bar for every performance; parts that take no time are left out."""
    named = list(performances.items())
    parts = {name: field for name, field in PARTS.items() if any(getattr(p, field) for _, p in named)}
    longest_s = max((p.step_time_s for _, p in named), default=0.0)
    unit, scale = time_unit(longest_s)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": part,
            "y": [figure_text(name) for name, _ in named],
            "x": [getattr(p, field) / scale for _, p in named],
            "text": [
                format_time(getattr(p, field)) if getattr(p, field) >= LABELLED_SHARE * longest_s else ""
                for _, p in named
            ],
            "hovertext": [f"{figure_text(name)}, {part}: {format_time(getattr(p, field))}" for name, p in named],
            "hoverinfo": "text",
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "insidetextfont": {"color": "#14171c"},
            "marker": {"color": PART_COLOURS[part]},
        }
        for part, field in parts.items()
    ]
    layout = {
        "xaxis": {"title": {"text": unit}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "fixedrange": True},
        "barmode": "stack",
        "bargap": 0.35,
        "legend": {"traceorder": "normal"},
        "uniformtext": {"minsize": 9, "mode": "hide"},
    }
    return Figure(title="Parts of a step", traces=traces, layout=layout, height_px=130 + 46 * len(named))


def curve_figure(title: str, series: Mapping[str, tuple[Sequence[float], Sequence[float]]], y: str) -> Figure | None:
    """Return curves over steps, {name: (steps, values)}; long ones are thinned, and the note says so."""
    traces, notes = [], []
    for index, (name, (steps, values)) in enumerate(series.items()):
        if not values:
            continue
        kept = thinned(values)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(kept) <= 40 else "lines",
                "name": figure_text(name),
                "x": [steps[i] for i in kept],
                "y": [values[i] if math.isfinite(values[i]) else None for i in kept],
                "line": {"color": SERIES[index % len(SERIES)], "width": 1.5},
            }
        )
        bad = [steps[i] for i in kept if not math.isfinite(values[i])]
        if bad:
            notes.append(f"{name} is not a finite number at step {bad[0]:g}")
        notes.append(thinning_note(len(kept), len(values)))
    if not traces:
        return None
    layout = {"xaxis": {"title": {"text": "step"}}, "yaxis": {"title": {"text": y}}}
    note = "; ".join(dict.fromkeys(filter(None, notes)))
    return Figure(title=title, traces=traces, layout=layout, height_px=300, note=note)


def memory_figure(predicted_bytes: int, by_rank: Mapping[int, int]) -> Figure | None:
    """Return the peak memory of every rank beside what was predicted for one."""
    if not by_rank:
        return None
    ranks = sorted(by_rank)
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": "measured",
            "x": ranks,
            "y": [by_rank[rank] / 2**20 for rank in ranks],
            "hovertext": [f"rank {rank}: {format_bytes(by_rank[rank])}" for rank in ranks],
            "hoverinfo": "text",
            "marker": {"color": MEASURED},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"predicted {format_bytes(predicted_bytes)}",
            "x": [ranks[0] - 0.5, ranks[-1] + 0.5],
            "y": [predicted_bytes / 2**20] * 2,
            "line": {"color": PREDICTED, "dash": "dash", "width": 3},
        },
    ]
    layout = {
        "xaxis": {"title": {"text": "rank"}, "dtick": max(1, len(ranks) // 16)},
        "yaxis": {"title": {"text": "MiB"}, "rangemode": "tozero"},
    }
    return Figure(title="Peak memory of each rank", traces=traces, layout=layout, height_px=280)


def mesh_figure(layout: Layout) -> Figure | None:
    """Return the ranks as a grid of equal cells, a row for each data-parallel copy; None for one rank.

    Pipeline stages, then context ranks, then tensor ranks go across.
    """
    if layout.world_size == 1:
        return None
    shown = min(layout.world_size, MAX_MESH_RANKS)
    places = [position(layout, rank) for rank in range(shown)]
    columns = [(place.pp * layout.cp + place.cp) * layout.tp + place.tp for place in places]
    rows = [place.dp for place in places]
    across = [name for name in ("pp", "cp", "tp") if getattr(layout, name) > 1]
    if not across:  # plain data parallelism: rows read better than one column, or than one row without numbers
        rows, columns = [row // MOST_NUMBERED for row in rows], [row % MOST_NUMBERED for row in rows]
    height, width = max(rows) + 1, max(columns) + 1
    coloured = next((name for name in ("pp", "dp", "cp", "tp") if getattr(layout, name) > 1), "dp")
    cells: list[list[int | None]] = [[None] * width for _ in range(height)]
    text = [[""] * width for _ in range(height)]
    hover = [[""] * width for _ in range(height)]
    for rank, (row, column, place) in enumerate(zip(rows, columns, places, strict=True)):
        cells[row][column] = getattr(place, coloured)
        text[row][column] = str(rank)
        hover[row][column] = f"rank {rank}: " + ", ".join(
            f"{axis} {getattr(place, axis) + 1} of {getattr(layout, axis)}" for axis in ("tp", "cp", "dp", "pp")
        )
    labelled = width <= MOST_NUMBERED and shown <= 512
    trace = {
        "type": "heatmap",
        "z": cells,
        "text": text if labelled else None,
        "texttemplate": "%{text}" if labelled else None,
        "textfont": {"color": "#14171c"},
        "hovertext": hover,
        "hoverinfo": "text",
        "colorscale": MESH_SCALE,
        "showscale": False,
        "xgap": 1 if width > 64 else 2,
        "ygap": 1 if height > 64 else 2,
    }
    left_out = layout.world_size - shown
    note = f"colour: {AXIS_WORDS[coloured]}" + (
        f"; the first {shown:,} ranks, {left_out:,} are left out" if left_out else ""
    )
    cell_px = max(4, min(CELL_PX, 640 // height))
    return Figure(
        title=f"Mesh of {counted(layout.world_size, 'rank')}",
        traces=[trace],
        layout={
            "xaxis": _mesh_axis(" x ".join(across) or "dp", width)
            | {"constrain": "domain", "constraintoward": "left"}
            | ({} if across or height == 1 else {"showticklabels": False}),
            "yaxis": _mesh_axis("dp" if across else "", height)
            | {"autorange": "reversed", "scaleanchor": "x", "constrain": "domain"},
        },
        height_px=max(150, 100 + cell_px * height),
        note=note,
    )


def _mesh_axis(title: str, length: int) -> dict[str, Any]:
    return {
        "title": {"text": title},
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "showticklabels": length <= MOST_NUMBERED and bool(title),
        "dtick": max(1, length // 16),
    }
