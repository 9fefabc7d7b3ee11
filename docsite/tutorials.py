"""The output of commands, put into the tutorials between marks: `<!-- prints: COMMAND -->`, then a block of text.

`<!-- prints 12 lines of: COMMAND -->` keeps the first lines only. `<!-- printed: COMMAND -->` is for what lasts, or
differs every time: `python -m docsite` runs it, the tests do not compare it.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_SHOWN = re.compile(
    r"(<!-- (?P<mark>prints|printed)(?: (?P<lines>\d+) lines of)?: (?P<command>[^\n]+) -->\n```text\n)"
    r"(?P<output>.*?)(?=```)",
    re.DOTALL,
)
_TOOK = re.compile(r"\bin [\d.]+ m?s\b")


class Shown(NamedTuple):
    """A command and what a page says that it prints."""

    command: str
    output: str
    lines: int | None  # that are kept
    repeats: bool  # prints the same every time


def pages() -> list[Path]:
    """Return the tutorials."""
    return sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def shown(page: str) -> Iterator[Shown]:
    """Yield what a page shows."""
    for match in _SHOWN.finditer(page):
        lines = match["lines"] and int(match["lines"])
        yield Shown(match["command"], match["output"].rstrip("\n"), lines or None, match["mark"] == "prints")


def filled(page: str, output_of: Callable[[str], str], *, lasting: bool) -> str:
    """Return a page with its outputs made anew; long-running ones only if `lasting`."""

    def again(match: re.Match[str]) -> str:
        if match["mark"] == "printed" and not lasting:
            return match[0]
        lines = match["lines"] and int(match["lines"])
        made = f"{first_lines(output_of(match['command']), lines or None)}\n"
        alike = _TOOK.sub("", made) == _TOOK.sub("", match["output"])  # but for how long it took
        return match[0] if alike else f"{match[1]}{made}"

    return _SHOWN.sub(again, page)


def first_lines(output: str, lines: int | None) -> str:
    """Return the first lines of an output, and that there is more."""
    every = output.splitlines()
    return output if lines is None or len(every) <= lines else "\n".join([*every[:lines], "..."])
