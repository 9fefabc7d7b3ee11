"""Pictures for docs/: SVG written by hand, so that they need no browser and change only when the figures do."""

from collections.abc import Callable
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 440, 70, 40, 170, 50
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")


def log_log_svg(
    title: str,
    x_name: str,
    y_name: str,
    lines: dict[str, list[tuple[float, float, float]]],
    x_tick: Callable[[float], str] = "{:g}".format,
    y_tick: Callable[[float], str] = "{:g}".format,
) -> str:
    """Return a plot of (x, measured, predicted) by name: dots for what was measured, lines for what was predicted.

    `x_tick` and `y_tick` print the powers of ten beside the axes, with their units.
    """
    points = [point for line in lines.values() for point in line]
    x_low, x_high = (f(log10(end(p[0] for p in points))) for f, end in ((floor, min), (ceil, max)))
    values = [value for p in points for value in p[1:] if value > 0]
    y_low, y_high = floor(log10(min(values))), ceil(log10(max(values)))

    def at(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - x_low) / (x_high - x_low)
        up = (log10(y) - y_low) / (y_high - y_low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
    ]
    for power in range(x_low, x_high + 1):
        x, y = at(10.0**power, 10.0**y_low)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{x_tick(10.0**power)}</text>')
    for power in range(y_low, y_high + 1):
        x, y = at(10.0**x_low, 10.0**power)
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{y_tick(10.0**power)}</text>')
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_name)}</text>'
    )
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'transform="rotate(-90 14 {middle})" text-anchor="middle"'
    parts.append(f'<text x="14" y="{middle}" {turned}>{escape(y_name)}</text>')
    for number, (name, line) in enumerate(lines.items()):
        color = COLORS[number % len(COLORS)]
        ends = " ".join("{:.1f},{:.1f}".format(*at(x, predicted)) for x, _, predicted in line if predicted > 0)
        parts.append(f'<polyline points="{ends}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        dots = (at(x, measured) for x, measured, _ in line if measured > 0)
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in dots]
        parts.append(
            f'<text x="{WIDTH - RIGHT + 12}" y="{TOP + 18 * number + 10}" fill="{color}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def lines_svg(series: dict[str, list[tuple[float, float]]], *, x: str, y: str) -> str:
    """Return a plot of (x, y) lines by name on even axes; x starts at 0, and the name stands at the end of its line."""
    every = [point for line in series.values() for point in line]
    right = max(p[0] for p in every)
    low, high = floor(min(p[1] for p in every) * 2) / 2, ceil(max(p[1] for p in every) * 2) / 2

    def at(across: float, up: float) -> tuple[float, float]:
        share = (up - low) / (high - low)
        return LEFT + across / right * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for step in range(6):
        across, up = right * step / 5, low + (high - low) * step / 5
        (x_at, bottom), (left, y_at) = at(across, low), at(0.0, up)
        parts.append(f'<line x1="{x_at:.1f}" y1="{TOP}" x2="{x_at:.1f}" y2="{bottom:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{x_at:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{across:.4g}</text>')
        parts.append(f'<line x1="{left}" y1="{y_at:.1f}" x2="{WIDTH - RIGHT}" y2="{y_at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y_at + 4:.1f}" text-anchor="end">{up:.3g}</text>')
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x)}</text>')
    parts.append(f'<text x="16" y="{TOP - 12}">{escape(y)}</text>')
    for number, (name, line) in enumerate(series.items()):
        color = COLORS[number % len(COLORS)]
        text = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(*point) for point in line))
        parts.append(f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        y_at = TOP + 14 + 18 * number
        parts.append(f'<text x="{WIDTH - RIGHT + 12}" y="{y_at}" fill="{color}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
