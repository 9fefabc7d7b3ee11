"""An SVG of a verdict: one row a rank, one mark a line of evidence from left to right in the order of time.

Lines of several files that show no clock have no common order: each file's are spread over its own row.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from html import escape

from ...units import format_time, shortened
from ..nouns.evidence import Evidence
from ..nouns.verdict import Verdict

MOST_ROWS = 64
ROW_PX, LEFT_PX, MARK_PX, WIDTH_PX = 22, 130, 5, 900
LETTER_PX = 6.8  # of the widest letters in a rank's words: the lanes begin to the right of the longest
_BLAMED, _WAITING, _OTHER = "var(--fault)", "var(--accent)", "var(--quiet)"  # of page.css, in light and dark


def drawing(verdict: Verdict) -> str:
    """Return the drawing, "" where no rank is known; every text in it is escaped."""
    blamed = set(verdict.blamed)
    told = {line.rank for line in verdict.evidence if line.rank is not None}
    ranks = sorted(blamed | set(verdict.waiting) | told)
    if not ranks:
        return ""
    first = sorted(blamed)
    shown = [*first, *(rank for rank in ranks if rank not in blamed)][:MOST_ROWS]
    shown.sort()
    row = {rank: index for index, rank in enumerate(shown)}
    height_px = ROW_PX * (len(shown) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH_PX} {height_px}" width="{WIDTH_PX}"'
        f' height="{height_px}" role="img"'
        f' aria-label="{escape(verdict.headline(), quote=True)}" font-family="system-ui, sans-serif" font-size="12">'
    ]
    words = {rank: _words(rank, rank in blamed, rank in verdict.waiting, rank not in told) for rank in shown}
    left_px = max(LEFT_PX, math.ceil(8 + LETTER_PX * max(map(len, words.values()))))
    for rank in shown:
        colour = _BLAMED if rank in blamed else _WAITING if rank in verdict.waiting else _OTHER
        parts.append(_lane(words[rank], row[rank], left_px, colour, dashed=rank in blamed))
    for line, share in zip(verdict.evidence, _shares(verdict.evidence), strict=True):
        if line.rank in row:
            x_px = left_px + 20 + share * (WIDTH_PX - left_px - 50)
            parts.append(_mark(line, x_px, row[line.rank], line.rank in blamed))
    left_out = len(ranks) - len(shown)
    span_s = verdict.evidence[-1].time_s if verdict.evidence else None
    foot = f"{format_time(span_s)} from first to last" if span_s else "earlier to later"
    foot += "" if has_order(verdict.evidence) else " in each file by itself"
    foot += f"; {left_out} more ranks are not drawn" if left_out else ""
    parts.append(f'<text x="{left_px}" y="{height_px - 10}" style="fill:{_OTHER}">{escape(foot)} →</text></svg>')
    return "".join(parts)


def has_order(lines: Sequence[Evidence]) -> bool:
    """Return whether lines have one order of time: that of their clocks, or of the one file that they are from."""
    return all(line.time_s is not None for line in lines) or len({line.file for line in lines}) == 1


def _shares(lines: Sequence[Evidence]) -> list[float]:
    """Return where each line stands between the first (0) and the last (1): by clock, else by order in its file."""
    times_s = [line.time_s for line in lines if line.time_s is not None]
    if len(times_s) == len(lines) and lines and times_s[-1] > 0:
        return [time_s / times_s[-1] for time_s in times_s]
    together = has_order(lines)
    count, seen = Counter("" if together else line.file for line in lines), defaultdict[str, int](int)
    shares = []
    for line in lines:
        key = "" if together else line.file
        shares.append((seen[key] + 0.5) / count[key])
        seen[key] += 1
    return shares


def _words(rank: int, is_blamed: bool, is_waiting: bool, is_silent: bool) -> str:
    state = "waits" if is_waiting else ""
    if is_blamed:
        state = "to blame, silent" if is_silent else "to blame"
    return f"rank {shortened((rank,))}{f': {state}' if state else ''}"


def _lane(words: str, index: int, left_px: int, colour: str, *, dashed: bool) -> str:
    y_px = ROW_PX * (index + 1)
    dash = ' stroke-dasharray="3 4"' if dashed else ""
    return (
        f'<text x="4" y="{y_px + 4}" style="fill:{colour}">{escape(words)}</text>'
        f'<line x1="{left_px}" x2="{WIDTH_PX - 10}" y1="{y_px}" y2="{y_px}"'
        f' style="stroke:{colour}" stroke-width="2"{dash}/>'
    )


def _mark(line: Evidence, x_px: float, index: int, is_blamed: bool) -> str:
    y_px = ROW_PX * (index + 1)
    title = escape(f"{line.file}:{line.line}: {line.text}")
    colour = _BLAMED if is_blamed else _WAITING
    return f'<circle cx="{x_px:.1f}" cy="{y_px}" r="{MARK_PX}" style="fill:{colour}"><title>{title}</title></circle>'
