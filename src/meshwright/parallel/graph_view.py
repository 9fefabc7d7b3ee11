"""The graph of one training step as SVG: which operators run on which rank, and what communication lies between them.

One lane for each stage of the pipeline: its forward pass, then its backward pass from right to left in the graph's
order (`step_boxes`). Boxes of backward whose gradients travel together have one colour underneath: a fused bucket,
with its collective behind it.
"""

from collections.abc import Sequence
from html import escape

from .step_boxes import Box, Kind, Lane

COLOURS: dict[Kind, str] = {"forward": "#d6e6f8", "backward": "#f4ead0", "link": "#e0524d", "sum": "#8e5ab5"}
BUCKETS = ("#2b8a3e", "#1971c2", "#e8590c", "#9c36b5", "#0c8599", "#c2255c")
BOX_WIDTH, BOX_HEIGHT, GAP, PER_ROW, MARGIN = 132, 26, 6, 10, 20


def graph_svg(lanes: Sequence[Lane], title: str) -> str:
    """Return the drawing of the lanes of one step."""
    body: list[str] = []
    y = MARGIN + 34
    for name, forward, backward in lanes:
        body.append(f'<text x="{MARGIN}" y="{y}" font-size="13" font-weight="bold">{escape(name)}</text>')
        y += 8
        for label, boxes in (("forward", forward), ("backward", backward)):
            body.append(f'<text x="{MARGIN}" y="{y + 17}" fill="#666">{label}</text>')
            body += [_box(box, index, y) for index, box in enumerate(boxes)]
            y += -(-len(boxes) // PER_ROW) * (BOX_HEIGHT + 2 * GAP) + GAP
        y += 24
    width = 2 * MARGIN + 70 + PER_ROW * (BOX_WIDTH + GAP)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" '
            'font-family="sans-serif" font-size="10">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{y}" fill="white"/>',
            f'<text x="{MARGIN}" y="{MARGIN}" font-size="14">{escape(title)}</text>',
            f'<text x="{MARGIN}" y="{MARGIN + 16}" fill="#666">boxes: operators of one module; red: messages between '
            "stages; violet: collectives; one colour underneath: gradients fused into one bucket</text>",
            *body,
            "</svg>",
        ]
    )


def _box(box: Box, index: int, y: int) -> str:
    left = MARGIN + 70 + index % PER_ROW * (BOX_WIDTH + GAP)
    top = y + index // PER_ROW * (BOX_HEIGHT + 2 * GAP)
    light = box.kind in {"forward", "backward"}
    mark = "" if box.bucket is None else BUCKETS[box.bucket % len(BUCKETS)]
    under = (
        f'<rect x="{left}" y="{top + BOX_HEIGHT}" width="{BOX_WIDTH + GAP}" height="5" fill="{mark}"/>' if mark else ""
    )
    return (
        f'<g><title>{escape(box.title)}</title><rect x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" '
        f'rx="{3 if light else 12}" fill="{COLOURS[box.kind]}" stroke="#888"/>{under}'
        f'<text x="{left + BOX_WIDTH / 2:g}" y="{top + 17}" text-anchor="middle" fill="{"#222" if light else "white"}">'
        f"{escape(box.text)}</text></g>"
    )
