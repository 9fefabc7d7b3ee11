"""The curve of five constants beside a straight line, on collectives that others measured and published.

For every table: the largest error of either, and that of curves fitted without each size in turn at that size. Then
the sizes that no rising curve can follow, each beside the sizes next to it.
"""

import argparse
from typing import Any

from benchmarks.result import Result
from meshwright.bench.fit import clean_sweep, fit_sweep, left_out_errors
from meshwright.bench.table import Row
from meshwright.units import format_bytes


def run(arguments: list[str]) -> Result:
    """Fit every table; return a row a table, and a row a size that was left out."""
    from benchmarks.published_sweeps import sweeps

    found = sweeps()
    parser = argparse.ArgumentParser(prog="python -m benchmarks fits")
    parser.add_argument("--tables", type=lambda text: text.split(","), default=list(found), help="separated by commas")
    chosen = {name: found[name] for name in parser.parse_args(arguments).tables}
    rows = [_fitted(name, table) for name, table in chosen.items()]
    rows += [_glitch(name, table, row) for name, table in chosen.items() for row in clean_sweep(table).outliers]
    return Result("fits of published sweeps", rows, ["target: within 15 % at every size but named glitches"])


def _fitted(name: str, table: list[Row]) -> dict[str, Any]:
    fit = fit_sweep(table)
    return {
        "part": "fits",
        "table": name,
        "sizes": len(table),
        "named_glitches": len(clean_sweep(table).outliers),
        "line_error_percent": round(100 * fit.residual, 1),
        "curve_error_percent": round(100 * fit.curve_residual, 1),
        "left_out_error_percent": round(100 * max(map(abs, left_out_errors(table).values())), 1),
    }


def _glitch(name: str, table: list[Row], row: Row) -> dict[str, Any]:
    """Return a size beside half and twice of it, and how near a curve that never falls comes to it and a larger one."""
    times_s = {other.bytes: other.time_s for other in table}
    ratio = row.time_s / min(time_s for size, time_s in times_s.items() if size > row.bytes)
    return {
        "part": "glitches",
        "table": name,
        "size": format_bytes(row.bytes),
        "time_us": round(row.time_s * 1e6, 1),
        "half_the_size_us": round(times_s[row.bytes // 2] * 1e6, 1),
        "twice_the_size_us": round(times_s[row.bytes * 2] * 1e6, 1),
        "least_error_percent": round(100 * (ratio - 1) / (ratio + 1), 1),
    }
