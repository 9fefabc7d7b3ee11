"""Nodes under their switches as SVG: a frame for each leaf, named by the switches above it, a box for each node."""

from collections import defaultdict
from collections.abc import Sequence
from html import escape

from ..graph import Placement
from .svg_parts import CAPTION, GAP, HEIGHT, PAD, WIDTH, Drawn, rect

ACROSS = 4  # boxes in a row of a frame
LETTER = 7  # pixels
FITS = WIDTH // LETTER  # letters in a box


def drawn_switches(placements: Sequence[Placement], most: int) -> tuple[list[Drawn], int]:
    """Return a frame for each leaf switch with at most `most` nodes in all, and how many nodes are left out."""
    below: dict[tuple[str, ...], list[Placement]] = defaultdict(list)
    for placement in placements[:most]:
        below[tuple(reversed(placement.switches))].append(placement)
    return [_leaf(path, nodes) for path, nodes in sorted(below.items())], max(0, len(placements) - most)


def _leaf(path: Sequence[str], nodes: Sequence[Placement]) -> Drawn:
    name = " > ".join(path)
    columns = min(ACROSS, len(nodes))
    width = max(columns * (WIDTH + GAP) - GAP, LETTER * len(name)) + 2 * PAD
    rows = -(-len(nodes) // columns)
    height = CAPTION + rows * (HEIGHT + GAP) + PAD
    body = [rect(0, 0, width, height, "frame"), f'<text x="{PAD}" y="16">{escape(name)}</text>']
    for at, node in enumerate(nodes):
        x, y = PAD + at % columns * (WIDTH + GAP), CAPTION + PAD + at // columns * (HEIGHT + GAP)
        body.append(_node(node, x, y))
    return Drawn(body, width, height)


def _node(placement: Placement, x: int, y: int) -> str:
    block = placement.block if placement.block not in placement.switches else ""
    words = placement.node if len(placement.node) <= FITS else f"{placement.node[: FITS - 1]}\u2026"
    told = f"{placement.node}, block {block}" if block else placement.node
    text = f'<text x="{x + PAD}" y="{y + 16}">{escape(words)}</text>'
    if block:
        text += f'<text x="{x + PAD}" y="{y + 31}" class="quiet">{escape(block[:FITS])}</text>'
    return f"<g><title>{escape(told)}</title>{rect(x, y, WIDTH, HEIGHT, 'cpu')}{text}</g>"
