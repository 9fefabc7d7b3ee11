"""Tables of libfabric's fabtests and of fi_pingpong: bandwidth of one-way tests, times of messages that go to and fro.

Units of sizes are powers of 1024, those of rates of 1000. A ping-pong counts two transfers an iteration: its usec/xfer
is half a round trip, and its MB/sec what one message at a time carries, which is no bandwidth of the link.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...errors import InputError
from .columns import half_digit, is_plain
from .prefixes import clean_lines
from .tables import BETWEEN_TWO, Rate, ReadTable, message

_COMMAND = re.compile(r"\b(fi_\w*(?:bw|pingpong)\w*)\b")
_HEAD = re.compile(r"^\s*(?:name\s+)?bytes\s+(?:iters|#sent)\s+(?:#ack\s+)?total\s+time\s+MB/sec\s+usec/xfer\b")
_SHORT = re.compile(r"(\d{1,15}(?:\.\d+)?)([kmgt]?)")
_MOST_OF_ROW = 5  # words of other lines that begin with digits
_POWERS = ("", "k", "m", "g", "t")
_APART = re.compile(r"(?<=\d)\s+(?=[kmgt]\s)")  # fi_pingpong fills the column of its total up before the unit
_SLACK = 0.02
_CUT = 0.1  # a size with one decimal is cut off there


class _Line(NamedTuple):
    """One row; `transfers` of an iteration: 1 one way, 2 to and fro, None where the rounded total does not tell."""

    size_bytes: int
    time_s: float
    rate_bytes_per_s: float
    transfers: int | None


def read_fabtests(text: str, where: str) -> list[ReadTable]:
    """Return a table below each head; InputError for a row whose rate times time is not its size."""
    tables: list[ReadTable] = []
    name, columns, rows = "", list[str](), list[_Line]()
    for number, line in [*clean_lines(text), (0, "fi_bw")] if "usec/xfer" in text else ():
        words = _APART.sub("", line).split()
        command, is_head = _COMMAND.search(line), _HEAD.match(line) is not None
        if rows and (is_head or command):
            tables.append(_table(name, columns, rows))
            name, rows = "", []
        if is_head:
            columns = words
        elif command:
            name, columns = command[1], []
        elif columns and len(words) == len(columns) and re.match(r"\d", words[-1]):
            rows.append(_row(dict(zip(columns, words, strict=True)), f"{where}:{number}"))
        elif columns and len(words) > _MOST_OF_ROW and all(re.match(r"[=\d]", word) for word in words):
            raise InputError(f"{where}:{number}: {len(words)} columns: expected {', '.join(columns)}")
    return tables


def _row(values: Mapping[str, str], at: str) -> _Line:
    size, total = _number(values["bytes"], 1024), _number(values["total"], 1024)
    iterations = _number(values.get("iters", values.get("#sent", "")), 1000)
    rate, time = values["MB/sec"], values["usec/xfer"]
    if not size or not iterations or not (is_plain(rate) and is_plain(time)) or float(time) <= 0:
        raise InputError(f"{at}: expected bytes, iterations, total, time, MB/sec and usec/xfer above 0")
    slack = _SLACK + half_digit(time) / float(time) + (_CUT if "." in values["bytes"] else 0.0)
    if abs(float(rate) - size / float(time)) > half_digit(rate) + slack * size / float(time):
        raise InputError(f"{at}: {rate} MB/sec x {time} usec/xfer is not the size {values['bytes']}")
    ratio = (total or 0.0) / (size * iterations)
    transfers = 1 if 0.7 < ratio < 1.3 else 2 if 1.6 < ratio < 2.4 else None
    return _Line(int(size), float(time) * 1e-6, float(rate) * 1e6, transfers)


def _number(word: str, base: int) -> float | None:
    match = _SHORT.fullmatch(word)
    return float(match[1]) * base ** _POWERS.index(match[2]) if match else None


def _table(name: str, columns: Sequence[str], rows: Sequence[_Line]) -> ReadTable:
    """Return the table of the rows: of messages to and fro by name, by columns or by what an iteration counts."""
    counts = {row.transfers for row in rows} - {None}
    to_and_fro = "pingpong" in name or "#sent" in columns or (not name and counts == {2})
    if to_and_fro:
        found = tuple(message("libfabric", row.size_bytes, row.time_s) for row in rows)
        return ReadTable(name=name or "ping-pong", tool="libfabric fabtests", rows=found, unjudged=BETWEEN_TWO)
    what = name or "bandwidth"
    rates = tuple(Rate(what=what, rate_bytes_per_s=row.rate_bytes_per_s, bytes=row.size_bytes) for row in rows)
    unknown = (
        () if name or counts == {1} else ("whether messages go one way or to and fro is not known: keep the command",)
    )
    return ReadTable(name=what, tool="libfabric fabtests", rates=rates, notes=unknown)
