"""Time over size as an SVG, both axes logarithmic: medians with bars of p10 to p90, the fit, sizes left out of it."""

import math
from collections.abc import Sequence
from html import escape

from ..cluster.graph import CollectiveFit
from ..units import format_bytes, format_time
from .fit import clean_sweep
from .table import Row

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 440, 80, 50, 30, 20
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")


class _Axes:
    """Where a size and a time stand in the picture."""

    def __init__(self, rows: Sequence[Row]) -> None:
        sizes = [math.log2(row.bytes) for row in rows]
        times = [math.log10(t) for row in rows for t in (row.time_s, row.low_s or row.time_s, row.high_s or row.time_s)]
        self.low_size, self.high_size = min(sizes), max(max(sizes), min(sizes) + 1)
        self.low_time, self.high_time = math.floor(min(times)), max(math.ceil(max(times)), math.floor(min(times)) + 1)

    def x(self, size_bytes: float) -> float:
        share = (math.log2(size_bytes) - self.low_size) / (self.high_size - self.low_size)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, time_s: float) -> float:
        share = (math.log10(time_s) - self.low_time) / (self.high_time - self.low_time)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def plot_svg(tables: Sequence[tuple[str, Sequence[Row], CollectiveFit | None]]) -> str:
    """Return one picture with a colour for each table: its name, its rows and its fit."""
    axes = _Axes([row for _, rows, _ in tables for row in rows])
    body, legend = _grid(axes), list[str]()
    for i, (name, rows, fit) in enumerate(tables):
        colour = COLOURS[i % len(COLOURS)]
        outliers = clean_sweep([row for row in rows if row.bytes]).outliers if fit is not None else ()
        body += [_point(row, axes, colour, left_out=row in outliers) for row in rows]
        if fit is not None:
            body.append(_curve(fit, rows, axes, colour))
        less = f", x: {len(outliers)} left out of the fit" if outliers else ""
        legend.append(f'<text x="{LEFT + 12}" y="{TOP + 16 + 16 * i}" fill="{colour}">{escape(name + less)}</text>')
    if any(row.low_s or row.high_s for _, rows, _ in tables for row in rows):
        legend.append(f'<text x="{WIDTH - RIGHT}" y="{TOP - 10}" text-anchor="end" fill="#666">bars: p10 to p90</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            *body,
            *legend,
            "</svg>",
        ]
    )


def _grid(axes: _Axes) -> list[str]:
    lines = []
    step = max(1, round((axes.high_size - axes.low_size) / 8))
    for power in range(math.ceil(axes.low_size), math.floor(axes.high_size) + 1, step):
        x = axes.x(2.0**power)
        lines.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        label = escape(format_bytes(2.0**power))
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>')
    for power in range(axes.low_time, axes.high_time + 1):
        y = axes.y(10.0**power)
        lines.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(format_time(10.0**power))}</text>'
        )
    return lines


def _point(row: Row, axes: _Axes, colour: str, *, left_out: bool) -> str:
    x, y = axes.x(row.bytes), axes.y(row.time_s)
    low, high = axes.y(row.low_s or row.time_s), axes.y(row.high_s or row.time_s)
    title = escape(f"{format_bytes(row.bytes)}: {format_time(row.time_s)}" + (", left out of the fit" * left_out))
    cross = f'<path d="M{x - 4:.1f},{y - 4:.1f}l8,8m0,-8l-8,8" stroke-width="1.5"/>'
    mark = cross if left_out else f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
    spread = f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" opacity="0.5"/>'
    return f'<g stroke="{colour}"><title>{title}</title>{spread if low != high else ""}{mark}</g>'


def _curve(fit: CollectiveFit, rows: Sequence[Row], axes: _Axes, colour: str) -> str:
    low, high = math.log2(min(row.bytes for row in rows)), math.log2(max(row.bytes for row in rows))
    sizes = [2 ** (low + (high - low) * i / 100) for i in range(101)]
    points = [(size, fit.time_s(size)) for size in sizes]
    text = " ".join(f"{axes.x(size):.1f},{axes.y(time_s):.1f}" for size, time_s in points if time_s > 0)
    return f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="5 3"/>'
