"""Tables that lose nothing where the terminal is narrow: headers and texts wrap, figures never do."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from .prose import hanging

LEAST_TEXT = 22  # characters of a column of text: the longest key of a layout, with its value
UNLIMITED = 10_000  # characters: wider than any table


def show_table(console: Console, table: Table) -> None:
    """Print a table; where it is wider than the console, headers wrap, then texts, and then each row has lines.

    Figures (columns that are aligned to the right) and names that must not wrap stay whole in every case.
    """
    natural = Measurement.get(console, console.options.update(width=UNLIMITED), table).maximum
    if natural <= console.width:
        console.print(table)
        return
    columns = list(enumerate(table.columns))
    widths = {place: _longest(column) for place, column in columns}
    frame = natural - sum(widths.values())  # padding and rules
    kept = {place: _longest(c, words=True) for place, c in columns if c.justify == "right" or c.no_wrap}
    texts = {place: width for place, width in widths.items() if place not in kept}
    room = console.width - frame - sum(kept.values())
    if room < sum(min(LEAST_TEXT, width) for width in texts.values()):
        _show_rows(console, table)
        return
    fitted = kept | _shared(room, texts)
    for place, column in columns:
        column.no_wrap, column.overflow, column.width = False, "fold", fitted[place]
    console.print(table)


def _longest(column: Column, *, words: bool = False) -> int:
    """Return the characters of the longest line of a column; `words`: of its header count the words one by one."""
    header = _plain(column.header)
    heads = header.split() if words else header.splitlines()
    lines = [line for cell in column.cells for line in _plain(cell).splitlines()]
    return max(map(len, [*heads, *lines]), default=0)


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


def _shared(room: int, texts: dict[int, int]) -> dict[int, int]:
    """Share the room among columns of text: the narrow ones get what they need, the others as much as each other."""
    shared = {}
    for place, (index, width) in enumerate(sorted(texts.items(), key=lambda item: item[1])):
        shared[index] = min(width, room // (len(texts) - place))
        room -= shared[index]
    return shared


def _show_rows(console: Console, table: Table) -> None:
    """Print each row as lines: its first cell, and below it every other one after the name of its column."""
    if table.title:
        console.print(table.title, style="italic")
    names = [_plain(column.header) for column in table.columns]
    for first, *rest in zip(*(list(map(_plain, column.cells)) for column in table.columns), strict=True):
        console.print(Text(hanging(f"{names[0]} {first}".strip(), console.width), style="bold"), soft_wrap=True)
        pairs = [f"{name} {' '.join(cell.split())}".strip() for name, cell in zip(names[1:], rest, strict=True) if cell]
        for line in _lines(pairs, console.width - 2):
            console.print(Text(f"  {line}"))


def _lines(pairs: list[str], width: int) -> list[str]:
    """Join names and values with commas, as many in a line as there is room for."""
    lines: list[str] = []
    for pair in pairs:
        if lines and len(lines[-1]) + 2 + len(pair) < width:
            lines[-1] += f", {pair}"
        else:
            lines.append(pair)
    return lines
