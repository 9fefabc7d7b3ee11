"""The page of `bench`: time and bus bandwidth over size, the fits, and the verdicts."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from ...bench.fit import clean_sweep
from ...bench.table import Row
from ...cluster.graph import CollectiveFit
from ...units import counted, format_bytes, format_rate, format_time
from ..colours import SERIES
from ..document import Cell, Figure, Lines, Page, Table, figure_text, section, table

FEW_DECADES = 30  # the largest over the smallest value below which powers of ten alone are too few ticks
MAX_TICKS = 9
LEFT_OUT = ", left out of the fit"
HOLLOW = {"symbol": "x-thin-open", "size": 9}  # the marks of sizes that a fit leaves out
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
        f"{counted(rows[0].ranks, 'rank')} of {rows[0].backend}"
        for name, rows, _ in tables
    )
    kept = tuple(part for part in sections if part is not None)
    return Page(title="Measured collectives", verdict=verdicts[0] if verdicts else best, sections=kept, kind="bench")


def _times(tables: Sequence[Measured]) -> Figure:
    rows_of_all = [row for _, rows, _ in tables for row in rows]
    traces: list[dict[str, Any]] = []
    for (name, rows, fit), colour in zip(tables, itertools.cycle(SERIES), strict=False):
        kept, outliers = _in_fit(rows, fit)
        traces.append(_points(figure_text(name), kept, {"color": colour}))
        if outliers:
            traces.append(_points(f"{figure_text(name)}{LEFT_OUT}", outliers, {"color": colour} | HOLLOW))
        if fit is not None:
            fitted = [(row.bytes, fit.time_s(row.bytes)) for row in rows]
            line = {"color": colour, "dash": "dash", "width": 1.5}
            traces.append(
                {"type": "scatter", "mode": "lines", "name": f"{figure_text(name)}, fit", "line": line,
                 "x": [size for size, _ in fitted], "y": [time_s for _, time_s in fitted]}
            )  # fmt: skip
    spread = "bars: 10th to 90th percentile; " if any(row.low_s or row.high_s for row in rows_of_all) else ""
    layout = _axes("time", traces, format_time)
    return Figure(title="Time over size", traces=traces, layout=layout, note=f"{spread}both axes logarithmic")


def _in_fit(rows: Sequence[Row], fit: object | None) -> tuple[list[Row], list[Row]]:
    """Return the rows that count in the fit, and the rows left out of it; without a fit all count."""
    outliers = list(clean_sweep([row for row in rows if row.bytes]).outliers) if fit is not None else []
    return [row for row in rows if row not in outliers], outliers


def _points(name: str, rows: Sequence[Row], marker: dict[str, Any]) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [row.bytes for row in rows],
        "y": [row.time_s for row in rows],
        "hovertext": [f"{format_bytes(row.bytes)}: {format_time(row.time_s)}" for row in rows],
        "hoverinfo": "text+name",
        "marker": marker,
    }
    if any(row.low_s or row.high_s for row in rows):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [(row.high_s or row.time_s) - row.time_s for row in rows],
            "arrayminus": [row.time_s - (row.low_s or row.time_s) for row in rows],
        }
    return trace


def _rates(tables: Sequence[Measured]) -> Figure:
    traces: list[dict[str, Any]] = []
    for (name, rows, fit), colour in zip(tables, itertools.cycle(SERIES), strict=False):
        kept, outliers = _in_fit(rows, fit)
        looks: dict[str, Any] = {"mode": "lines+markers", "line": {"color": colour}}
        traces.append(_reached(figure_text(name), kept) | looks)
        if outliers:
            crosses = {"mode": "markers", "marker": {"color": colour} | HOLLOW}
            traces.append(_reached(f"{figure_text(name)}{LEFT_OUT}", outliers) | crosses)
    layout = _axes("bus bandwidth", traces, format_rate)
    return Figure(title="Bus bandwidth over size, per direction", traces=traces, layout=layout)


def _reached(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    sizes, rates = [row.bytes for row in rows], [row.busbw_bytes_per_s for row in rows]
    return {"type": "scatter", "name": name, "showlegend": True, "x": sizes, "y": rates}


def _axes(quantity: str, traces: Sequence[dict[str, Any]], shown: Callable[[float], str]) -> dict[str, Any]:
    """Return logarithmic axes with ticks as tables print them: powers of two of sizes, powers of ten of `quantity`.

    Where few powers of ten lie between the values, twice and five times each has a tick too.
    """
    low, high = _powers([size for trace in traces for size in trace["x"] if size], 2)
    sizes = [2**power for power in range(low, high + 1, max(1, math.ceil((high - low) / MAX_TICKS)))]
    measured = [value for trace in traces for value in trace["y"] if value > 0]
    low, high = _powers(measured, 10)
    few = max(measured, default=1.0) < FEW_DECADES * min(measured, default=1.0)
    values = [times * 10.0**power for power in range(low, high + 1) for times in ((1, 2, 5) if few else (1,))]
    return {"xaxis": _axis("size", sizes, format_bytes), "yaxis": _axis(quantity, values, shown)}


def _axis(quantity: str, ticks: Sequence[float], shown: Callable[[float], str]) -> dict[str, Any]:
    texts = [shown(tick) for tick in ticks]
    title = {"text": quantity, "standoff": 12}  # pixels: it stays off the ticks, which are longer than numbers
    return {"type": "log", "title": title, "tickmode": "array", "tickvals": ticks, "ticktext": texts}


def _powers(values: Sequence[float], base: int) -> tuple[int, int]:
    """Return the powers of `base` between which all values lie."""
    return math.floor(math.log(min(values, default=1), base)), math.ceil(math.log(max(values, default=base), base))


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
    return table(columns, cells, title=f"{rows[0].backend}, {counted(rows[0].ranks, 'rank')}", sortable=True)
