"""An SVG of a verdict: one row a rank, one mark a line of evidence from left to right in the order of time.

Lines of several files that show no clock have no common order: each file's are spread over its own row.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from html import escape

from ...units import format_time
from ..nouns.evidence import Evidence
from ..nouns.verdict import Verdict, shortened

MOST_ROWS = 64
ROW_PX, LEFT_PX, MARK_PX, WIDTH_PX = 22, 130, 5, 900
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
    parts += [_lane(rank, row[rank], rank in blamed, rank in verdict.waiting, told) for rank in shown]
    for line, share in zip(verdict.evidence, _shares(verdict.evidence), strict=True):
        if line.rank in row:
            x_px = LEFT_PX + 20 + share * (WIDTH_PX - LEFT_PX - 50)
            parts.append(_mark(line, x_px, row[line.rank], line.rank in blamed))
    left_out = len(ranks) - len(shown)
    span_s = verdict.evidence[-1].time_s if verdict.evidence else None
    foot = f"{format_time(span_s)} from first to last" if span_s else "earlier to later"
    foot += "" if has_order(verdict.evidence) else " in each file by itself"
    foot += f"; {left_out} more ranks are not drawn" if left_out else ""
    parts.append(f'<text x="{LEFT_PX}" y="{height_px - 10}" style="fill:{_OTHER}">{escape(foot)} →</text></svg>')
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


def _lane(rank: int, index: int, is_blamed: bool, is_waiting: bool, told: set[int]) -> str:
    colour = _BLAMED if is_blamed else _WAITING if is_waiting else _OTHER
    state = "to blame" if is_blamed else "waits" if is_waiting else ""
    if is_blamed and rank not in told:
        state = "to blame, silent"
    y_px = ROW_PX * (index + 1)
    dash = ' stroke-dasharray="3 4"' if is_blamed else ""
    text = f"rank {shortened((rank,))}{f': {state}' if state else ''}"
    return (
        f'<text x="4" y="{y_px + 4}" style="fill:{colour}">{escape(text)}</text>'
        f'<line x1="{LEFT_PX}" x2="{WIDTH_PX - 10}" y1="{y_px}" y2="{y_px}"'
        f' style="stroke:{colour}" stroke-width="2"{dash}/>'
    )


def _mark(line: Evidence, x_px: float, index: int, is_blamed: bool) -> str:
    y_px = ROW_PX * (index + 1)
    title = escape(f"{line.file}:{line.line}: {line.text}")
    colour = _BLAMED if is_blamed else _WAITING
    return f'<circle cx="{x_px:.1f}" cy="{y_px}" r="{MARK_PX}" style="fill:{colour}"><title>{title}</title></circle>'
