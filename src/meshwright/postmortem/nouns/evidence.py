"""The lines that show a verdict, in the order of time."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from .where import Where

MOST_LINES = 100  # more than the ranks that a page draws, each of which then has its first line


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line that shows what the verdict says; `time_s` counts from the first line, where every line has a clock."""

    file: str
    line: int
    text: str
    rank: int | None = None
    time_s: float | None = None

    @property
    def place(self) -> str:
        """Where the line stands."""
        return f"{self.file}:{self.line}" if self.line else self.file


def in_time(lines: Sequence[Where], blamed: Collection[int] = ()) -> tuple[Evidence, ...]:
    """Return lines as evidence in the order of time, each once: by clock where all files have one, else by file.

    Of too many those of the blamed ranks, and those of no rank, are kept.
    """
    times_s = _times_s(lines)
    known = all(line.file in times_s for line in lines)
    lines = [line if line.time_s is not None else _at(line, times_s) for line in lines] if known else lines
    ordered = sorted(lines, key=lambda w: (w.time_s or 0.0 if known else 0.0, w.order, w.line))
    unique = list({(line.file, line.line, line.text): line for line in ordered}.values())
    start_s = unique[0].time_s or 0.0 if unique else 0.0
    found = [Evidence(w.file, w.number, w.text, w.rank, _since(w, start_s) if known else None) for w in unique]
    return tuple(most_telling(found, blamed, MOST_LINES))


def _since(line: Where, start_s: float) -> float:
    return round((line.time_s or 0.0) - start_s, 3)


def most_telling(lines: Sequence[Evidence], blamed: Iterable[int], most: int) -> list[Evidence]:
    """Return at most `most` lines in order: the blamed rank's, or of no rank, before those of ranks that wait, of which
    the first of each rank comes before the second of any.
    """
    named = {*blamed, None}
    telling = [index for index, line in enumerate(lines) if line.rank in named][:most]
    seen: Counter[int | None] = Counter()
    others = []
    for index, line in enumerate(lines):
        if line.rank not in named:
            others.append((seen[line.rank], index))
            seen[line.rank] += 1
    return [
        lines[index] for index in sorted([*telling, *(index for _, index in sorted(others)[: most - len(telling)])])
    ]


def _times_s(lines: Sequence[Where]) -> dict[str, list[tuple[int, float]]]:
    """Return the lines of each file that show a clock, with what it shows."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in sorted(lines, key=lambda w: w.line):
        if line.time_s is not None:
            found.setdefault(line.file, []).append((line.line, line.time_s))
    return found


def _at(line: Where, times_s: dict[str, list[tuple[int, float]]]) -> Where:
    """Return a line with the time of the last line before it that shows one, else of the first after it."""
    timed = times_s[line.file]
    before = [time_s for number, time_s in timed if number <= line.line]
    return msgspec.structs.replace(line, time_s=before[-1] if before else timed[0][1])
