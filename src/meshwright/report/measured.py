"""The page of `bench`: time and bus bandwidth over size, the fits, and the verdicts."""

from collections.abc import Sequence
from typing import Any

from ..bench.table import Row
from ..cluster.graph import CollectiveFit
from ..units import format_bytes, format_rate, format_time
from .document import Cell, Figure, Lines, Page, Table, plain, section, table
from .figures import SERIES

Measured = tuple[str, Sequence[Row], CollectiveFit | None]


def bench_page(tables: Sequence[Measured], notes: Sequence[str]) -> Page:
    """Return the page of measured tables, each with its rows and its fit, and what was said of them."""
    verdicts = [note for note in notes if "verdict" in note]
    sections = (
        section("Measured", _times(tables), _rates(tables)),
        section("Fits and verdicts", Lines(tuple(notes)) if notes else None),
        *(section(name, _table(rows)) for name, rows, _ in tables),
    )
    best = "; ".join(
        f"{name} reaches {format_rate(max(row.busbw_bytes_per_s for row in rows))} of bus bandwidth on "
        f"{rows[0].ranks} ranks of {rows[0].backend}"
        for name, rows, _ in tables
    )
    kept = tuple(part for part in sections if part is not None)
    return Page(title="Measured collectives", verdict=verdicts[0] if verdicts else best, sections=kept, kind="bench")


def _times(tables: Sequence[Measured]) -> Figure:
    traces: list[dict[str, Any]] = []
    for index, (name, rows, fit) in enumerate(tables):
        colour = SERIES[index % len(SERIES)]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(name),
                "x": [row.bytes for row in rows],
                "y": [row.time_s for row in rows],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [(row.high_s or row.time_s) - row.time_s for row in rows],
                    "arrayminus": [row.time_s - (row.low_s or row.time_s) for row in rows],
                },
                "hovertext": [f"{format_bytes(row.bytes)}: {format_time(row.time_s)}" for row in rows],
                "hoverinfo": "text+name",
                "marker": {"color": colour},
            }
        )
        if fit is not None:
            fitted = [(row.bytes, fit.time_s(row.bytes)) for row in rows]
            line = {"color": colour, "dash": "dash", "width": 1.5}
            traces.append(
                {"type": "scatter", "mode": "lines", "name": f"{plain(name)}, fit", "line": line,
                 "x": [size for size, _ in fitted], "y": [time_s for _, time_s in fitted]}
            )  # fmt: skip
    return Figure(
        title="Time over size", traces=traces, layout=_axes("s"), note="bars: lowest and highest; both axes logarithmic"
    )


def _rates(tables: Sequence[Measured]) -> Figure:
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": plain(name),
            "x": [row.bytes for row in rows],
            "y": [row.busbw_bytes_per_s / 1e9 for row in rows],
            "line": {"color": SERIES[index % len(SERIES)]},
        }
        for index, (name, rows, _) in enumerate(tables)
    ]
    return Figure(title="Bus bandwidth over size, per direction", traces=traces, layout=_axes("GB/s"))


def _axes(unit: str) -> dict[str, Any]:
    return {
        "xaxis": {"type": "log", "title": {"text": "bytes"}, "exponentformat": "SI"},
        "yaxis": {"type": "log", "title": {"text": unit}, "exponentformat": "SI"},
    }


def _table(rows: Sequence[Row]) -> Table:
    columns = ("size", "time", "algbw", "busbw", "wrong")
    cells = [
        [
            Cell(format_bytes(row.bytes), row.bytes),
            Cell(format_time(row.time_s), row.time_s),
            Cell(format_rate(row.algbw_bytes_per_s), row.algbw_bytes_per_s),
            Cell(format_rate(row.busbw_bytes_per_s), row.busbw_bytes_per_s),
            Cell("not checked" if row.wrong is None else str(row.wrong)),
        ]
        for row in rows
    ]
    return table(columns, cells, title=f"{rows[0].backend}, {rows[0].ranks} ranks", sortable=True)
