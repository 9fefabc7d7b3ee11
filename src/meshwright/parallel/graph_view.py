"""The graph of one training step as SVG: which operators run on which rank, and what communication lies between them.

One lane for each stage of the pipeline: its forward pass, then its backward pass from right to left in the graph's
order (`step_boxes`). Boxes of backward whose gradients travel together have one colour underneath: a fused bucket,
with its collective behind it.
"""

import re
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from .step_boxes import Kind, Lane, StepBox

COLOURS: dict[Kind, str] = {"forward": "#d6e6f8", "backward": "#f4ead0", "link": "#e0524d", "sum": "#8e5ab5"}
BUCKETS = ("#2b8a3e", "#1971c2", "#e8590c", "#9c36b5", "#0c8599", "#c2255c")
BOX_WIDTH, BOX_HEIGHT, GAP, PER_ROW, MARGIN = 132, 26, 6, 8, 20
LEFT = 100  # before the boxes: the direction, and how often a part is repeated
CHARACTERS = 22  # that fit into a box
MOST_FOLDED, FEWEST_TIMES = 48, 3  # boxes of a part that is repeated, and times


class Repeated(NamedTuple):
    """Boxes that follow each other `times` times, but for the numbers of their layers."""

    boxes: tuple[StepBox, ...]
    times: int


def folded(boxes: Sequence[StepBox]) -> list[Repeated]:
    """Return the boxes with each run of alike layers once: a part begins where a layer does, as many as possible."""
    signs = [_sign(box) for box in boxes]
    found: list[Repeated] = []
    start, layer = 0, None
    while start < len(boxes):
        length, times, before = 1, 1, layer
        layer = _layer(boxes[start]) if _computes(boxes[start]) else layer
        if _computes(boxes[start]) and layer != before and layer is not None:
            ways = [(n, _times(signs, start, n)) for n in range(2, min(MOST_FOLDED, len(boxes) - start) + 1)]
            length, times = max(ways, key=lambda way: (way[0] * (way[1] - 1), -way[0]), default=(1, 1))
            if times < FEWEST_TIMES:
                length, times = 1, 1
        found.append(Repeated(tuple(boxes[start : start + length]), times))
        start += length * times
    return found


def _computes(box: StepBox) -> bool:
    return box.kind in {"forward", "backward"}


def _layer(box: StepBox) -> str | None:
    """Return the first number in the name of a module, which tells one layer from the next."""
    number = re.search(r"\d+", box.title.partition(":")[0])
    return number and number.group()


def _times(signs: Sequence[object], start: int, length: int) -> int:
    """Return how often the `length` signs at `start` follow each other."""
    block, times = signs[start : start + length], 1
    while signs[start + times * length : start + (times + 1) * length] == block:
        times += 1
    return times


def _sign(box: StepBox) -> tuple[object, ...]:
    """Return what makes two boxes alike: operators but for their numbers, communication with its size."""
    title = re.sub(r"\d+", "#", re.sub(r"_\d+\b", "", box.title))  # operators are linear, linear_1, ...
    return box.kind, title if _computes(box) else box.text, box.bucket is None


def graph_svg(lanes: Sequence[Lane], title: str) -> str:
    """Return the drawing of the lanes of one step: alike layers and alike stages once, with their number."""
    body: list[str] = []
    y = MARGIN + 44
    for alike in _alike(lanes):
        more = f" to {alike[-1].name} ({len(alike)} alike)" if len(alike) > 1 else ""
        name = alike[0].name + more
        body.append(f'<text x="{MARGIN}" y="{y}" font-size="13" font-weight="bold">{escape(name)}</text>')
        y += 8
        for label, boxes in (("forward", alike[0].forward), ("backward", alike[0].backward)):
            body.append(f'<text x="{MARGIN}" y="{y + 17}" fill="#666">{label}</text>')
            drawn, y = _rows(folded(boxes), y)
            body += drawn
            y += GAP
        y += 24
    width = 2 * MARGIN + LEFT + PER_ROW * (BOX_WIDTH + GAP)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" '
            'font-family="sans-serif" font-size="10">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{y}" fill="white"/>',
            f'<text x="{MARGIN}" y="{MARGIN}" font-size="14">{escape(title)}</text>',
            _legend(),
            *body,
            "</svg>",
        ]
    )


def _legend() -> str:
    words: dict[Kind, str] = {
        "forward": "operators of one module, forward",
        "backward": "backward",
        "sum": "collective",
        "link": "message between stages",
    }
    parts, x = [], MARGIN
    for kind, text in words.items():
        parts.append(f'<rect x="{x}" y="{MARGIN + 9}" width="14" height="10" fill="{COLOURS[kind]}" stroke="#888"/>')
        parts.append(f'<text x="{x + 19}" y="{MARGIN + 18}" fill="#444">{text}</text>')
        x += 40 + 6 * len(text)
    text = "one colour underneath: gradients of one bucket; x N: N equal layers"
    return "".join([*parts, f'<text x="{x}" y="{MARGIN + 18}" fill="#444">{text}</text>'])


def _alike(lanes: Sequence[Lane]) -> list[list[Lane]]:
    """Return the lanes in runs of equal lanes."""
    found: list[list[Lane]] = []
    signs: list[object] = []
    for lane in lanes:
        sign = [[(tuple(map(_sign, part.boxes)), part.times) for part in folded(b)] for b in lane[1:]]
        if found and sign == signs[-1]:
            found[-1].append(lane)
        else:
            found.append([lane])
            signs.append(sign)
    return found


def _rows(parts: Sequence[Repeated], y: int) -> tuple[list[str], int]:
    """Draw parts from `y` on, a repeated one in rows of its own with its number beside it; return where they end."""
    body: list[str] = []
    column = 0
    step = BOX_HEIGHT + 2 * GAP
    for part in parts:
        alone = part.times > 1
        layer = _layer_name(part.boxes[0]) if alone else ""
        if column and (alone or column == PER_ROW):
            column, y = 0, y + step
        for place, box in enumerate(part.boxes):
            if place and column == PER_ROW:
                column, y = 0, y + step
            body.append(_box(box, column, y, layer))
            column += 1
        if alone:
            height = (len(part.boxes) - 1) // PER_ROW * step + BOX_HEIGHT
            x, top = MARGIN + LEFT - 6, y + BOX_HEIGHT - height
            middle = top + height // 2
            body.append(f'<path d="M{x + 3},{top}h-5v{height}h5" fill="none" stroke="#444" stroke-width="1.5"/>')
            body.append(
                f'<text x="{x - 6}" y="{middle + 4}" text-anchor="end" font-size="12" font-weight="bold">'
                f"x {part.times}</text>"
                f'<text x="{x - 6}" y="{middle + 17}" text-anchor="end" fill="#666">{escape(layer)[:-1]}</text>'
            )
            column, y = 0, y + step
    return body, y + (step if column else 0)


def _layer_name(box: StepBox) -> str:
    """Return the module of the layer that a box belongs to, up to its number and the dot behind it."""
    found = re.match(r"\D*\d+\.", box.text)
    return found.group() if found else ""


def _box(box: StepBox, column: int, y: int, layer: str = "") -> str:
    """Draw a box; in a part that is repeated, `layer` of its text is left out: the number beside the part says it."""
    text = box.text.removeprefix(layer)
    text = text if len(text) <= CHARACTERS else "…" + text[1 - CHARACTERS :]
    left, top = MARGIN + LEFT + column * (BOX_WIDTH + GAP), y
    light = box.kind in {"forward", "backward"}
    mark = "" if box.bucket is None else BUCKETS[box.bucket % len(BUCKETS)]
    under = (
        f'<rect x="{left}" y="{top + BOX_HEIGHT}" width="{BOX_WIDTH + GAP}" height="5" fill="{mark}"/>' if mark else ""
    )
    return (
        f'<g><title>{escape(box.title)}</title><rect x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" '
        f'rx="{3 if light else 12}" fill="{COLOURS[box.kind]}" stroke="#888"/>{under}'
        f'<text x="{left + BOX_WIDTH / 2:g}" y="{top + 17}" text-anchor="middle" fill="{"#222" if light else "white"}">'
        f"{escape(text)}</text></g>"
    )
