"""MORI's benchmarks between PEs (shmem_put_bw and kin, cco's p2p_put_bw): bandwidth, or times of messages.

A table stands below a line of its options ("# shmem_put_bw_uni scope=block grid=32 ..."). GB are 1e9 bytes, sizes with
a prefix count in steps of 1024 (kBToGb and fmt_size of its util files). Tests named _bidi add both directions, rings
the puts of all PEs; rates of messages (Mpps) are left out.
"""

import re
from dataclasses import dataclass, field

from ...errors import InputError
from ..table import Row
from .columns import is_plain
from .nvshmem_pairs import fills_no_link
from .prefixes import clean_lines
from .tables import BETWEEN_TWO, Rate, ReadTable, message

_OPTIONS = re.compile(
    r"\s*# (?P<name>\w[\w ]*?) (?:transport=(?P<way>\w+) )?scope=(?P<scope>\w+) grid=(?P<grid>\d{1,7}) "
    r"block=\d{1,7} warpSize="
)
_PES = re.compile(r"\s*# npes=(\d{1,6}) ring\b")
_HEAD = re.compile(
    r"\s*(?:# )?size(?:\(B\))?\s+(?:msg\s+)?(?:scope\s+)?(?:Bandwidth|BW|latency) ?"
    r"\(?(?P<unit>GB/s|GB|us)\)?(?:\s+Mpps)?\s*$",
    re.I,
)
_ROW = re.compile(
    r"\s*(?P<size>\d{1,15})(?: ?(?P<prefix>[KMG])?B)?\s+(?:\d{1,15} ?[KMG]?B\s+)?(?:[A-Za-z]\w*\s+)?"
    r"(?P<value>\S+)(?:\s+(?:GB/s|us)(?:\s+[\d.]+)?)?\s*$"
)
_STEPS = {"": 0, "K": 10, "M": 20, "G": 30}


@dataclass(slots=True)
class _Run:
    """The table below one line of options, as it is read."""

    test: str
    scope: str
    blocks: int
    pes: int | None
    is_time: bool = False
    headed: bool = False
    figures: list[tuple[int, float]] = field(default_factory=list)  # sizes in bytes, and GB/s or us


def read_mori(text: str, where: str) -> list[ReadTable]:
    """Return a table for each run; InputError for a row without its figure. A size that was skipped has no row."""
    runs: list[_Run] = []
    pes: int | None = None
    for number, line in clean_lines(text) if "warpSize=" in text else ():
        if ring := _PES.match(line):
            pes = int(ring[1])
        elif options := _OPTIONS.match(line):
            name = " ".join(word for word in (options["name"], options["way"]) if word)
            runs.append(_Run(name, options["scope"], int(options["grid"]), pes))
            pes = None
        elif runs and (head := _HEAD.match(line)):
            runs[-1].headed, runs[-1].is_time = True, head["unit"] == "us"
        elif runs and runs[-1].headed and re.match(r"\s*\d", line):
            _take(runs[-1], line, f"{where}:{number}")
    return [_table(run) for run in runs if run.figures]


def _take(run: _Run, line: str, at: str) -> None:
    row = _ROW.match(line)
    if row is None or not (is_plain(row["value"]) or row["value"] == "skip"):
        raise InputError(f"{at}: expected a size, a scope and a figure")
    if row["value"] != "skip":
        run.figures.append((int(row["size"]) << _STEPS[row["prefix"] or ""], float(row["value"])))


def _table(run: _Run) -> ReadTable:
    name = f"{run.test} {run.scope}"
    if run.is_time:
        rows: tuple[Row, ...] = tuple(message("mori", size, us * 1e-6) for size, us in run.figures if size and us > 0)
        return ReadTable(name=name, tool="MORI", rows=rows, unjudged=BETWEEN_TWO)
    is_ring = "ring" in run.test
    added = f"{run.test}: the rates are the sum of the puts of {run.pes or 'all'} PEs"
    what = f"{run.test} bandwidth"
    return ReadTable(
        name=name, tool="MORI", both_ways="_bidi" in run.test,
        rates=tuple(Rate(what=what, rate_bytes_per_s=value * 1e9, bytes=size) for size, value in run.figures),
        unjudged=added if is_ring else fills_no_link(run.blocks, run.scope),
    )  # fmt: skip
