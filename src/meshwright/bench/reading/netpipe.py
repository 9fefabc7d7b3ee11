"""Tables of NetPIPE: times of messages of one size after the other between two ends, half of each round trip.

Its "Mbps" are of 2**20 bits in versions up to 4 and of 10**6 in later ones: the time, which stands beside, counts.
"""

import re

from ...errors import InputError
from .columns import half_digit
from .prefixes import clean_lines
from .tables import BETWEEN_TWO, ReadTable, message

_ROW = re.compile(
    r"^\s*(?:\d{1,4}:\s+)?(?P<size>\d{1,15}) bytes\s+\d{1,12} times\s+-->\s+(?P<rate>\d{1,12}(?:\.\d{1,9})?) "
    r"(?P<unit>[MG])bps in\s+(?P<time>\d{1,12}(?:\.\d{1,9})?) usec"
)
_PROGRAM = re.compile(r"\bNP(?:mpi|ibv|tcp|shmem|lapi|gm|tcp6|memcpy|cuda|libfabric)\b")
_SLACK = 0.01


def read_netpipe(text: str, where: str) -> list[ReadTable]:
    """Return a table of each sweep; InputError for a row whose rate times time is not its size."""
    found: list[tuple[str, list[tuple[int, float]]]] = []
    name = "NetPIPE"
    for number, line in clean_lines(text) if " usec" in text and "-->" in text else ():
        if program := _PROGRAM.search(line):
            name = program.group()
        row = _ROW.match(line)
        if row is None:
            continue
        point = _checked(row, f"{where}:{number}")
        if not found or found[-1][0] != name or found[-1][1][-1][0] >= point[0]:
            found.append((name, []))
        found[-1][1].append(point)
    return [
        ReadTable(
            name=name if len(found) == 1 else f"{name} {count}",
            tool="NetPIPE",
            rows=tuple(message("NetPIPE", size, time_s) for size, time_s in points),
            unjudged=BETWEEN_TWO,
        )
        for count, (name, points) in enumerate(found, start=1)
    ]


def _checked(row: re.Match[str], at: str) -> tuple[int, float]:
    """Return size and seconds of a row whose bits a second agree with them, counted by 1024 or by 1000."""
    size, time_us, rate = int(row["size"]), float(row["time"]), float(row["rate"])
    if size < 1 or time_us <= 0:
        raise InputError(f"{at}: expected a size and a time above 0")
    slack = _SLACK + half_digit(row["time"]) / time_us
    power = 2 if row["unit"] == "M" else 3
    said = [8 * size / time_us * 1e6 / base**power for base in (1024, 1000)]
    if all(abs(rate - one) > half_digit(row["rate"]) + slack * one for one in said):
        raise InputError(f"{at}: {row['rate']} {row['unit']}bps x {row['time']} usec is not the size {size} B")
    return size, time_us * 1e-6
