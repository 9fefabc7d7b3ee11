"""The curve of step time against a quantity, as SVG: the target as a line, the catalogue's parts as marks."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

import msgspec

from ..plan.targets.inverse import Need

MOST_NAMES = 3  # of parts with the same rate
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 480, 70, 40, 60, 170


class Mark(msgspec.Struct, frozen=True):
    """A named value on the axis."""

    name: str
    value: float


def grouped(values: Mapping[str, float]) -> tuple[Mark, ...]:
    """Return one mark a value, named after the first that have it."""
    names: dict[float, list[str]] = {}
    for name, value in values.items():
        names.setdefault(value, []).append(name)
    return tuple(
        Mark(", ".join(same[:MOST_NAMES]) + (", ..." if len(same) > MOST_NAMES else ""), value)
        for value, same in sorted(names.items())
    )


def curve_svg(need: Need, target_s: float, marks: Sequence[Mark], *, title: str, label: Callable[[float], str]) -> str:
    """Return one curve with logarithmic axes; `label` prints a value of the quantity."""
    low, high = need.curve[0].value, need.curve[-1].value
    times = [point.step_time_s for point in need.curve]
    bottom, top = min(*times, target_s) / 1.1, max(*times, target_s) * 1.1

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / low) / math.log(high / low)

    def y(time_s: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * math.log(top / time_s) / math.log(top / bottom)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>',
        _line(LEFT, y(target_s), WIDTH - RIGHT, y(target_s), "#c0392b", dash=True),
        f'<text x="{LEFT + 4}" y="{y(target_s) - 4:.1f}" fill="#c0392b">target {target_s:.4g} s</text>',
        '<polyline fill="none" stroke="#2c5d9b" stroke-width="2" points="'
        + " ".join(f"{x(point.value):.1f},{y(point.step_time_s):.1f}" for point in need.curve)
        + '"/>',
        _line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#333"),
        _line(LEFT, TOP, LEFT, HEIGHT - BOTTOM, "#333"),
        *(_tick(LEFT - 6, y(time_s), f"{time_s:.3g} s") for time_s in (min(times), max(times))),
    ]
    named = [*marks, Mark("now", need.present)]
    if need.value is not None:
        named.append(Mark(f"needed: {label(need.value)}", need.value))
    for mark in named:
        if low <= mark.value <= high:
            place = x(mark.value)
            colour = "#c0392b" if mark.name.startswith(("now", "needed")) else "#888"
            parts += [
                _line(place, TOP, place, HEIGHT - BOTTOM, colour, dash=True),
                f'<text transform="translate({place:.1f},{HEIGHT - BOTTOM + 8}) rotate(55)" fill="{colour}">'
                f"{escape(mark.name)}</text>",
            ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, dash: bool = False) -> str:
    style = ' stroke-dasharray="4 3"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{style}/>'


def _tick(x: float, y: float, text: str) -> str:
    return f'<text x="{x}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'


def stacked(pictures: Sequence[str]) -> str:
    """Return pictures of this module below each other as one SVG."""
    inside = [
        f'<svg y="{HEIGHT * place}" width="{WIDTH}" height="{HEIGHT}"{picture.partition("<svg")[2]}'
        for place, picture in enumerate(pictures)
    ]
    whole = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT * len(pictures)}">'
    return "\n".join([whole, *inside, "</svg>"]) + "\n"
