"""Parts of a cluster's picture: sizes, frames, and a piece that is drawn at the origin."""

from typing import NamedTuple

WIDTH, HEIGHT, GAP, PAD = 124, 38, 12, 10  # of a box, between boxes, inside a frame
CAPTION = 18


class Drawn(NamedTuple):
    """A part of the picture, drawn at the origin."""

    body: list[str]
    width: int
    height: int


def rect(x: int, y: int, width: int, height: int, kind: str) -> str:
    """Return a box with round corners of a class of the style sheet."""
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" class="{kind}"/>'
