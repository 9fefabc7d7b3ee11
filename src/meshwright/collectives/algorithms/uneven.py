"""An all-to-all in which ranks send unequal amounts: any schedule of one, with a matrix of counts.

The block from rank i to rank j has `counts[i][j]` chunks in place of one, and takes the same way. The payload that
prices and simulations are asked for is that of the rank that sends most.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from ...errors import InputError
from ...files import parse_json, read_text
from ..schedules.schedule import Counts, Schedule, Transfer, make

MAX_BYTES = 2**24
MAX_CHUNKS = 2**20
MAX_DIGITS = 15


def read_counts(path: Path) -> Counts:
    """Return the matrix of a file: JSON ([[0, 3], [1, 0]]), or a line a rank with blanks, tabs or commas between."""
    text = read_text(path, max_bytes=MAX_BYTES)
    if path.suffix == ".json":
        rows = parse_json(text, where=str(path))
    else:
        lines = [line.replace(",", " ").split() for line in text.splitlines() if line.strip() and line[0] != "#"]
        rows = [[int(w) if w.isdecimal() and len(w) <= MAX_DIGITS else w for w in words] for words in lines]
    return _matrix(rows, str(path))


def _matrix(rows: object, where: str) -> Counts:
    expected = "expected a square matrix of counts, row i what rank i sends to each rank"
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise InputError(f"{where}: {expected}")
    for number, row in enumerate(rows):
        if len(row) != len(rows):
            raise InputError(f"{where}: row {number} has {len(row)} counts, there are {len(rows)} rows: {expected}")
        bad = next((c for c in row if type(c) is not int or not 0 <= c < 10**MAX_DIGITS), None)
        if bad is not None:
            raise InputError(f"{where}: row {number}: {str(bad)[:40]!r}: expected a count of 0 or more")
    if not any(map(any, rows)):
        raise InputError(f"{where}: all counts are 0: nothing is sent")
    return tuple(tuple(row) for row in rows)


def uneven_all_to_all(schedule: Schedule, counts: Sequence[Sequence[int]]) -> Schedule:
    """Return an all-to-all with `counts[i][j]` chunks from rank i to rank j; InputError where that is not possible.

    A common factor of the counts is taken out: what counts is how the payload is shared.
    """
    if schedule.collective != "all_to_all" or schedule.counts:
        raise InputError(f"counts: expected an even all_to_all, got {schedule.collective}")
    if len(counts) != schedule.ranks:
        raise InputError(f"counts: of {len(counts)} ranks, the schedule is for {schedule.ranks}")
    if schedule.chunks != schedule.ranks**2 or schedule.scratch or any(t.to for r in schedule.rounds for t in r):
        raise InputError(f"{schedule.name}: counts need a chunk for each pair of ranks, and each in a slot of its own")
    unit = math.gcd(*(count for row in counts for count in row))
    sizes = [count // unit for row in counts for count in row]
    if sum(sizes) > MAX_CHUNKS:
        raise InputError(f"counts: {sum(sizes)} chunks of {unit}: expected {MAX_CHUNKS} at most; round the counts")
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)

    def widened(t: Transfer) -> Transfer:
        return Transfer(t.src, t.dst, tuple(slot for c in t.chunks for slot in range(starts[c], starts[c + 1])))

    rounds = ((wide for t in transfers if (wide := widened(t)).chunks) for transfers in schedule.rounds)
    matrix = tuple(tuple(count // unit for count in row) for row in counts)
    return make("all_to_all", schedule.name, schedule.ranks, rounds, chunks=starts[-1], counts=matrix)
