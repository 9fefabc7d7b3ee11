"""Draw a schedule: rounds by ranks, in the terminal and as SVG."""

from collections.abc import Sequence
from html import escape

from .schedule import Schedule, Transfer, format_slots

COLUMN, ROW, LEFT, TOP = 92, 46, 64, 64  # pixels
CELL_CHARACTERS = 40
COPY, REDUCE = "#1f77b4", "#d62728"


def draw_text(schedule: Schedule) -> str:
    """Return a table: a line for each round, a column for each rank with what it sends, then a summary of signs.

    ">1 c0" sends chunk 0 to rank 1, "+1 c0" has it reduced there, "c0=c1" and "c0+=c1" stay inside the rank.
    """
    rows = [["round", *(f"r{rank}" for rank in range(schedule.ranks))]]
    for number, transfers in enumerate(schedule.rounds):
        cells: list[list[str]] = [[] for _ in range(schedule.ranks)]
        for t in transfers:
            cells[t.src].append(_cell(t))
        rows.append([str(number), *(_shortened("; ".join(cell)) for cell in cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([title(schedule), *lines]) + "\n"


def draw_svg(schedule: Schedule) -> str:
    """Return a picture: ranks from left to right, rounds from top to bottom, an arrow for each transfer.

    Blue arrows copy, red ones reduce, grey ones only signal; a dot is a local step. Hovering shows the chunks.
    """
    width = LEFT + COLUMN * schedule.ranks
    height = TOP + ROW * (len(schedule.rounds) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="22" font-size="14">{escape(title(schedule))}</text>',
        _markers(),
    ]
    for rank in range(schedule.ranks):
        x = _x(rank)
        parts.append(f'<text x="{x}" y="{TOP - 14}" text-anchor="middle">r{rank}</text>')
        parts.append(f'<line x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{height - 8}" stroke="#ccc"/>')
    for number, transfers in enumerate(schedule.rounds):
        parts.append(f'<text x="12" y="{TOP + ROW * number + ROW // 2}">{number}</text>')
        parts += [_arrow(t, number) for t in transfers]
    return "\n".join([*parts, "</svg>", ""])


def title(schedule: Schedule) -> str:
    """Return what is drawn, in a line."""
    count = f"{schedule.ranks} rank{'s' if schedule.ranks > 1 else ''}, {len(schedule.rounds)} rounds"
    return f"{schedule.collective} {schedule.name}: {count}, {schedule.chunks} chunks"


def _cell(t: Transfer) -> str:
    if not t.chunks:
        return f">{t.dst} signal"
    chunks = f"c{format_slots(t.chunks)}"
    if t.is_local:
        return f"c{format_slots(t.targets)}{'+=' if t.reduce else '='}{chunks}"
    landing = f"->c{format_slots(t.to)}" if t.to else ""
    return f"{'+' if t.reduce else '>'}{t.dst} {chunks}{landing}"


def _shortened(text: str) -> str:
    return text if len(text) <= CELL_CHARACTERS else f"{text[: CELL_CHARACTERS - 3]}..."


def _x(rank: int) -> int:
    return LEFT + COLUMN * rank + COLUMN // 2


def _arrow(t: Transfer, number: int) -> str:
    color, marker = (REDUCE, "reduce") if t.reduce else (COPY, "copy")
    if not t.chunks:
        color, marker = "#888888", "signal"
    top, bottom = TOP + ROW * number + 4, TOP + ROW * (number + 1) - 6
    label = f"<title>{escape(str(t))}</title>"
    if t.is_local:
        return f'<circle cx="{_x(t.src)}" cy="{(top + bottom) // 2}" r="5" fill="{color}">{label}</circle>'
    x1, x2 = _x(t.src), _x(t.dst)
    text = _shortened(f"c{format_slots(t.chunks)}" if t.chunks else "")
    # labels sit a third of the way, so that those of arrows that cross stay apart
    place = (x1 + (x2 - x1) // 3, top + (bottom - top) // 3 - 2)
    return (
        f'<g><line x1="{x1}" y1="{top}" x2="{x2}" y2="{bottom}" stroke="{color}" marker-end="url(#{marker})"/>'
        f'<text x="{place[0]}" y="{place[1]}" font-size="10" fill="{color}" text-anchor="middle">{escape(text)}</text>'
        f"{label}</g>"
    )


def _markers() -> str:
    def marker(name: str, color: str) -> str:
        return (
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0 0 L8 4 L0 8 z" fill="{color}"/></marker>'
        )

    colors: Sequence[tuple[str, str]] = (("copy", COPY), ("reduce", REDUCE), ("signal", "#888888"))
    return f"<defs>{''.join(marker(name, color) for name, color in colors)}</defs>"
