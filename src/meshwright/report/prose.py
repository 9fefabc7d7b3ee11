"""Prose on a terminal: lines that are too long go on below their text, not at the margin; a file gets them whole."""

import os
import textwrap
from typing import TextIO

INDENT = 2  # columns by which what goes on is further in than its line
MOST_INDENT = 0.5  # of the width: where a column of text would be narrower, lines go on at `INDENT`
COMMANDS = ("$ ", "meshwright ")  # a line that is set in and begins with one is to be copied: it stays whole


def hanging(text: str, width: int, indent: int | None = None) -> str:
    """Return a text whose lines have at most `width` columns, words that are longer aside.

    What goes on begins in the column `indent`, or two columns behind the beginning of its line.
    """
    return "\n".join(_line(line, width, indent) for line in text.split("\n"))


def _line(line: str, width: int, indent: int | None) -> str:
    words = line.lstrip(" ")
    if len(line) <= width or (line.startswith("  ") and words.startswith(COMMANDS)):
        return line
    begin = len(line) - len(words)
    column = begin + INDENT if indent is None or indent > MOST_INDENT * width else indent
    wrapped = textwrap.wrap(
        words, width, initial_indent=" " * begin, subsequent_indent=" " * column,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(wrapped)


def width_of(stream: TextIO) -> int | None:
    """Return the columns of the terminal that a stream writes to (COLUMNS is heeded); None where it is none."""
    try:
        if not stream.isatty():
            return None
        asked = os.environ.get("COLUMNS", "")
        return int(asked) if asked.isdecimal() and int(asked) else os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):  # no file behind it, or closed
        return None
