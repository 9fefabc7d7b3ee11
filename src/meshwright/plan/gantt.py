"""A step's timeline as text: one row a lane, one character a slice of time."""

from ..timeline import Lane, Timeline
from ..units import format_time

MARKS = {"data": "d", "forward": "F", "backward": "B", "optimizer": "O"}  # what is not named here: "c", communication
LANES: tuple[tuple[Lane, str], ...] = (("data", "data"), ("compute", "compute"), ("comm", "communication"))


def end_s(timeline: Timeline) -> float:
    """Return when the last span ends."""
    return max((span.end_s for span in timeline.spans), default=0.0)


def bars(timeline: Timeline, *, scale_s: float, width: int = 64) -> list[str]:
    """Return the lines of a timeline in which `width` characters are `scale_s` seconds.

    A span shorter than half a character still gets one; lanes without a span are left out.
    """
    lines = []
    for lane, title in LANES:
        spans = [span for span in timeline.spans if span.lane == lane]
        if not spans:
            continue
        cells = [" "] * width
        for span in spans:
            first = min(width - 1, round(span.start_s / scale_s * width))
            last = min(width, max(first + 1, round(span.end_s / scale_s * width)))
            cells[first:last] = MARKS.get(span.name, "c") * (last - first)
        total = sum(span.end_s - span.start_s for span in spans)
        lines.append(f"{title:<14}|{''.join(cells)}| {format_time(total)}")
    return lines


def side_by_side(named: dict[str, Timeline], *, width: int = 64) -> list[str]:
    """Return several timelines below each other on one scale of time, each with its title and its end."""
    scale = max(map(end_s, named.values()))
    lines: list[str] = []
    for title, timeline in named.items():
        lines += [f"{title}: {format_time(end_s(timeline))}", *bars(timeline, scale_s=scale, width=width)]
    return lines
