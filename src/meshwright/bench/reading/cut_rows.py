"""A table whose text ends in the middle of its last row, as screens, logs and posts cut them, of whatever tool."""

import re
from collections.abc import Sequence

from .columns import is_figure
from .text import unquoted

_NO_ROW = re.compile(r"[\s`~.\u2026]*")  # what may stand below a row: nothing, the end of a fence, dots


def left_out(number: int) -> str:
    """Return the note on a row that was not read, for its line ends too early."""
    return f"line {number} is cut off: left out"


def last_line(lines: Sequence[str]) -> int:
    """Return the number of the last line that says anything, 0 where none does."""
    return next((at for at in range(len(lines), 0, -1) if not _NO_ROW.fullmatch(lines[at - 1])), 0)


def without_cut_row(text: str, *, comma: bool = False) -> tuple[str, str]:
    """Return the text without a last row that ends before the row above it does, and the note on it; "" without one.

    Both lines must be of the same columns, figures below figures and words below words, as far as the last one goes;
    `comma` says that commas part them.
    """
    lines = text.splitlines()
    last = last_line(lines)
    if last < 2:
        return text, ""
    above, row = (_cells(line, comma) for line in lines[last - 2 : last])
    while above and not comma and not is_figure(above[-1]):
        above.pop()  # what somebody wrote behind the row
    if len(above) < 3 or not row or len(row) > len(above) or not (comma or above[0][0].isdigit()):
        return text, ""
    alike = all(is_figure(cell) == is_figure(over) for cell, over in zip(row[:-1], above, strict=False))
    if len(row) < len(above):  # a word behind the figures of the row above is no column
        ends_early = comma or is_figure(above[len(row)]) or len(row) < 3
    else:
        ends_early = is_figure(above[-1]) and not is_figure(row[-1])
    starts_alike = comma or row[0][:1].isdigit()
    if not (alike and ends_early and starts_alike):
        return text, ""
    return "\n".join([*lines[: last - 1], *lines[last:]]), left_out(last)


def _cells(line: str, comma: bool) -> list[str]:
    return line.split(",") if comma else unquoted(line).replace("|", " ").split()
