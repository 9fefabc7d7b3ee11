"""Draw a schedule: rounds by ranks, in the terminal and as SVG."""

from collections.abc import Iterable, Sequence
from html import escape

from ...units import counted
from .schedule import Schedule, Transfer, format_slots

COLUMN, ROW, LEFT, TOP = 92, 46, 64, 82  # pixels; a row grows with its labels
LABEL, LABEL_CHARACTERS = 12, 14  # height of a label, and how much of it fits beside its column
LABELS_OF_A_CELL = 6  # more are counted
CELL_CHARACTERS = 40
LABEL_WIDTH, LEGEND_WIDTH = 6 * LABEL_CHARACTERS + 4, 140
COPY, REDUCE, SIGNAL = "#1f77b4", "#d62728", "#888888"


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
    """Return a picture: ranks from left to right, rounds from top to bottom, an arrow for each pair of a round.

    Blue arrows copy, red ones reduce, grey ones only signal; a dot is a local step. Beside its column a sender has a
    label for each peer, one below the other, so that none lies over another. Hovering shows all chunks.
    """
    rounds = [_pairs(transfers) for transfers in schedule.rounds]
    tops = [TOP]
    for pairs in rounds:
        labels = max((len(lines) for lines in _labels(pairs).values()), default=0)
        tops.append(tops[-1] + max(ROW, LABEL * labels + 12))
    legend, legend_width = _legend(t for transfers in schedule.rounds for t in transfers)
    width = max(_x(schedule.ranks - 1) + 5 + LABEL_WIDTH, legend_width, 12 + 8 * len(title(schedule)))
    height = tops[-1] + ROW // 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="12" y="22" font-size="14">{escape(title(schedule))}</text>',
        legend,
        _markers(),
    ]
    for rank in range(schedule.ranks):
        x = _x(rank)
        parts.append(f'<text x="{x}" y="{TOP - 14}" text-anchor="middle">r{rank}</text>')
        parts.append(f'<line x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{height - 8}" stroke="#ccc"/>')
    for number, pairs in enumerate(rounds):
        top, bottom = tops[number], tops[number + 1]
        parts.append(f'<text x="12" y="{top + ROW // 2}">{number}</text>')
        parts += [_arrow(pair, top + 4, bottom - 6) for pair in pairs]
    for pairs, top in zip(
        rounds, tops, strict=False
    ):  # after all arrows, on a white seam, so that none strikes a label
        for src, lines in _labels(pairs).items():
            at = f'<text x="{_x(src) + 5}" font-size="10" paint-order="stroke" stroke="white" stroke-width="3"'
            parts += [
                f'{at} y="{top + LABEL * (i + 1)}" fill="{color}">{escape(text)}</text>'
                for i, (text, color) in enumerate(lines)
            ]
    return "\n".join([*parts, "</svg>", ""])


def title(schedule: Schedule) -> str:
    """Return what is drawn, in a line."""
    counts = (("rank", schedule.ranks), ("round", len(schedule.rounds)), ("chunk", schedule.chunks))
    words = ", ".join(counted(count, noun) for noun, count in counts)
    return f"{schedule.collective} {schedule.name}: {words}"


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


def _pairs(transfers: Sequence[Transfer]) -> list[list[Transfer]]:
    """Return the transfers of a round by pair of ranks and what they do, in their order."""
    found: dict[tuple[int, int, bool, bool], list[Transfer]] = {}
    for t in transfers:
        found.setdefault((t.src, t.dst, t.reduce, bool(t.chunks)), []).append(t)
    return list(found.values())


def _color(t: Transfer) -> tuple[str, str]:
    if not t.chunks:
        return SIGNAL, "signal"
    return (REDUCE, "reduce") if t.reduce else (COPY, "copy")


def _labels(pairs: Sequence[Sequence[Transfer]]) -> dict[int, list[tuple[str, str]]]:
    """Return the lines beside the column of each sender, with their colours; many peers are counted."""
    found: dict[int, list[tuple[str, str]]] = {}
    for pair in pairs:
        t = pair[0]
        if not t.is_local:
            chunks = format_slots([chunk for one in pair for chunk in one.chunks])
            text = f"{'+' if t.reduce else '>'}{t.dst}" + (f" c{chunks}" if chunks else "")
            shown = text if len(text) <= LABEL_CHARACTERS else f"{text[: LABEL_CHARACTERS - 2]}.."
            found.setdefault(t.src, []).append((shown, _color(t)[0]))
    return {
        src: lines
        if len(lines) <= LABELS_OF_A_CELL
        else [*lines[: LABELS_OF_A_CELL - 1], (f"{len(lines) - LABELS_OF_A_CELL + 1} more", "#555555")]
        for src, lines in found.items()
    }


def _arrow(pair: Sequence[Transfer], top: int, bottom: int) -> str:
    t = pair[0]
    color, marker = _color(t)
    titles = f"<title>{escape(', '.join(map(str, pair)))}</title>"
    if t.is_local:
        return f'<circle cx="{_x(t.src)}" cy="{(top + bottom) // 2}" r="5" fill="{color}">{titles}</circle>'
    ends = f'x1="{_x(t.src)}" y1="{top}" x2="{_x(t.dst)}" y2="{bottom}"'
    return f'<g><line {ends} stroke="{color}" stroke-opacity="0.6" marker-end="url(#{marker})"/>{titles}</g>'


def _legend(transfers: Iterable[Transfer]) -> tuple[str, int]:
    """Return what the colours and signs of these transfers mean, in a line below the title, and its width."""
    kinds = {(_color(t)[0], t.is_local) for t in transfers}
    texts = (
        (COPY, False, ">1 c0 copied to r1"), (REDUCE, False, "+1 c0 reduced there"), (SIGNAL, False, ">1 signal"),
        (COPY, True, "copied inside a rank"), (REDUCE, True, "reduced inside a rank"),
    )  # fmt: skip
    parts, x = [], 12
    for color, is_local, text in texts:
        if (color, is_local) not in kinds:
            continue
        sign = f'<rect x="{x}" y="34" width="14" height="4" fill="{color}"/>'
        dot = f'<circle cx="{x + 7}" cy="36" r="4" fill="{color}"/>'
        parts.append(f'{dot if is_local else sign}<text x="{x + 19}" y="40" font-size="10">{escape(text)}</text>')
        x += LEGEND_WIDTH
    return f'<g id="legend">{"".join(parts)}</g>', x


def _markers() -> str:
    def marker(name: str, color: str) -> str:
        return (
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0 0 L8 4 L0 8 z" fill="{color}"/></marker>'
        )

    colors: Sequence[tuple[str, str]] = (("copy", COPY), ("reduce", REDUCE), ("signal", SIGNAL))
    return f"<defs>{''.join(marker(name, color) for name, color in colors)}</defs>"
