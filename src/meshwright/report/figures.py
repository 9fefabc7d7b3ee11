"""The figures of a page as plain data: parts of a step, curves, memory, the mesh of ranks."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..layout import Layout
from ..mesh import position
from ..timeline import Performance
from ..units import format_bytes, format_time
from .compare import PARTS
from .document import Figure, plain
from .sampling import thinned, thinning_note

COLOURS = {
    "forward": "#4c78a8",
    "backward": "#f58518",
    "optimizer": "#54a24b",
    "all_reduce": "#e45756",
    "data": "#b279a2",
    "send_activation": "#72b7b2",
    "send_gradient": "#9d755d",
    "recv_activation": "#bab0ac",
    "recv_gradient": "#8d8786",
    "drain": "#eeca3b",
    "collectives": "#ff9da6",
}
SERIES = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#b279a2", "#72b7b2", "#eeca3b", "#9d755d")
MAX_MESH_RANKS = 4096


def colour_of(name: str) -> str:
    """Return the colour of what a span is called: the same in every figure and every run."""
    return COLOURS.get(name) or SERIES[sum(name.encode()) % len(SERIES)]


def parts_figure(performances: Mapping[str, Performance]) -> Figure:
    """Return the parts of a step, a bar of each for every performance."""
    traces = [
        {
            "type": "bar",
            "name": plain(name),
            "x": list(PARTS),
            "y": [getattr(performance, field) * 1e3 for field in PARTS.values()],
            "text": [format_time(getattr(performance, field)) for field in PARTS.values()],
            "hovertemplate": "%{x}: %{text}<extra>%{fullData.name}</extra>",
            "textposition": "none",
            "marker": {"color": SERIES[index % len(SERIES)]},
        }
        for index, (name, performance) in enumerate(performances.items())
    ]
    layout = {"yaxis": {"title": {"text": "ms"}, "rangemode": "tozero"}, "barmode": "group"}
    return Figure(title="Parts of a step", traces=traces, layout=layout)


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
                "name": plain(name),
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
            "marker": {"color": SERIES[1]},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"predicted {format_bytes(predicted_bytes)}",
            "x": [ranks[0] - 0.5, ranks[-1] + 0.5],
            "y": [predicted_bytes / 2**20] * 2,
            "line": {"color": SERIES[0], "dash": "dash"},
        },
    ]
    layout = {
        "xaxis": {"title": {"text": "rank"}, "dtick": max(1, len(ranks) // 16)},
        "yaxis": {"title": {"text": "MiB"}, "rangemode": "tozero"},
    }
    return Figure(title="Peak memory of each rank", traces=traces, layout=layout, height_px=280)


def mesh_figure(layout: Layout) -> Figure:
    """Return the ranks as a grid: data-parallel copies across; pipeline stages, context and tensor ranks down."""
    shown = min(layout.world_size, MAX_MESH_RANKS)
    places = [position(layout, rank) for rank in range(shown)]
    rows = [(place.pp * layout.cp + place.cp) * layout.tp + place.tp for place in places]
    columns = [place.dp for place in places]
    height, width = max(rows) + 1, max(columns) + 1
    stage: list[list[int | None]] = [[None] * width for _ in range(height)]
    text = [[""] * width for _ in range(height)]
    hover = [[""] * width for _ in range(height)]
    for rank, (row, column, place) in enumerate(zip(rows, columns, places, strict=True)):
        stage[row][column] = place.pp if layout.pp > 1 else place.dp
        text[row][column] = str(rank)
        hover[row][column] = f"rank {rank}: " + ", ".join(
            f"{axis} {getattr(place, axis) + 1} of {getattr(layout, axis)}" for axis in ("tp", "cp", "dp", "pp")
        )
    trace = {
        "type": "heatmap",
        "z": stage,
        "text": text if shown <= 512 else None,
        "texttemplate": "%{text}" if shown <= 512 else None,
        "hovertext": hover,
        "hoverinfo": "text",
        "colorscale": [[0, "#4c78a8"], [0.5, "#72b7b2"], [1, "#eeca3b"]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }
    layout_ = {
        "xaxis": {"title": {"text": "dp"}, "dtick": 1, "showgrid": False},
        "yaxis": {
            "title": {"text": ", then ".join(n for n in ("tp", "cp", "pp") if getattr(layout, n) > 1) or "one copy"},
            "autorange": "reversed",
            "dtick": 1,
            "showgrid": False,
        },
    }
    if max(width, height) > 32:
        for axis in layout_.values():
            axis["showticklabels"] = False
    left_out = layout.world_size - shown
    note = f"colour: {'pipeline stage' if layout.pp > 1 else 'data-parallel copy'}" + (
        f"; the first {shown:,} ranks, {left_out:,} are left out" if left_out else ""
    )
    return Figure(
        title=f"Mesh of {layout.world_size:,} ranks",
        traces=[trace],
        layout=layout_,
        height_px=max(150, min(700, 90 + 30 * height)),
        note=note,
    )
