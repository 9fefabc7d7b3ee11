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
    """Return the text without a last row that ends before the rows above it do, and the note on it; "" without one.

    Both lines must be of the same columns, figures below figures and words below words, as far as the last one goes;
    `comma` says that commas part them.
    """
    lines = text.splitlines()
    last = last_line(lines)
    if last < 2 or _are_closed_alike(*lines[last - 2 : last]):
        return text, ""
    if not comma and _ends_in_its_last_figure(lines[:last]):
        return _without(lines, last)
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
    return _without(lines, last)


def _are_closed_alike(above: str, row: str) -> bool:
    """Return whether two rows of a table between bars both end in one and have as many: the second is whole."""
    return row.rstrip().endswith("|") and above.rstrip().endswith("|") and row.count("|") == above.count("|")


def _without(lines: Sequence[str], number: int) -> tuple[str, str]:
    return "\n".join([*lines[: number - 1], *lines[number:]]), left_out(number)


def lacks_decimals(figure: str, others: Sequence[Sequence[str]]) -> bool:
    """Return whether a figure has fewer decimals than the last of each of the other rows, of which all have as many.

    Only where the tool writes the zeros at the end of a fraction too: one that drops them prints 2.5 for 2.50.
    """
    counts = {_decimals(row[-1]) for row in others if row}
    keeps_zeros = any(re.fullmatch(r"\d+\.\d*0", cell) for row in others for cell in row)
    return keeps_zeros and len(counts) == 1 and 0 <= _decimals(figure) < counts.pop()


def _decimals(word: str) -> int:
    """Return how many digits a number has behind its point, -1 where the word is no such number."""
    match = re.fullmatch(r"\d+(?:\.(\d*))?", word)
    return len(match[1] or "") if match else -1


def _ends_in_its_last_figure(lines: Sequence[str]) -> bool:
    """Return whether the last line has all figures of the rows above it and fewer decimals in the last one."""
    row = _cells(lines[-1], comma=False)
    if len(row) < 2:
        return False
    above: list[list[str]] = []
    for line in reversed(lines[:-1]):
        cells = _cells(line, comma=False)
        if len(cells) != len(row) or not is_figure(cells[-1]):
            break
        above.append(cells)
    return not lines[-1].rstrip().endswith("|") and lacks_decimals(row[-1], above)


def _cells(line: str, comma: bool) -> list[str]:
    return line.split(",") if comma else unquoted(line).replace("|", " ").split()
