"""Tables of nccom-test, of AWS' Neuron devices, and its JSON (--report-to-json-file).

A size is the whole payload of a rank, as nccl-tests count it. The bandwidths of old versions are GiB/s under the title
GB/s. The command alone names the collective; the ranks follow from the bandwidths too.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ...errors import InputError
from ...files import sound
from .columns import WIDTHS, Parsed, half_digit, is_plain
from .identify import NAMES, Named, TableIdentity, identify
from .json_objects import json_objects
from .nccl_text import table_row
from .prefixes import clean_lines
from .tables import BINARY_UNIT, ReadTable

_OPERATIONS = {
    "allr": "all_reduce", "allg": "all_gather", "redsct": "reduce_scatter", "permute": "permute",
    **{name: NAMES[name] for name in ("all_reduce", "all_gather", "reduce_scatter", "sendrecv", "alltoall")},
    "alltoallv": NAMES["alltoallv"],
}  # fmt: skip
_COMMAND = re.compile(r"\bnccom-test\s+(?P<words>.*)")
_RANKS = re.compile(r"(?:^|\s)(?:-r|--nworkers)[ =]\s*(\d{1,6})(?![\w.])")
_NODES = re.compile(r"(?:^|\s)(?:-N|--nnodes)[ =]\s*(\d{1,5})(?![\w.])")
_IN_GROUPS = re.compile(r"--(?:custom-replica-group|data-parallel-dimension)")  # then no collective has all ranks
_HEAD = re.compile(r"\s*size\(B\)\s+count\(elems\)\s+(?:\S+\s+)*?type\s+(?:\S+\s+)*?time(?::\w+)?\(us\)")
_TIMES = ("time(us)", "time:avg(us)", "time:p50(us)")
_SLACK = 0.01
_HALF_US = 0.5e-6  # old versions print whole microseconds
_UNITS = (1e9, float(2**30))  # of a bandwidth under the title GB/s


@dataclass
class _Run:
    """The lines above a table."""

    operations: list[str] = field(default_factory=list)  # of the command
    heading: str | None = None  # the operation that a line of its own names
    ranks: int | None = None
    nodes: int | None = None
    columns: list[str] = field(default_factory=list)
    rows: list[Parsed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def named(self) -> Named | None:
        """The operation of the next table, where the text says which."""
        one = self.heading or (self.operations[0] if len(self.operations) == 1 else None)
        return Named(_OPERATIONS[one], sure=True) if one else None


def read_nccom(text: str, where: str) -> list[ReadTable]:
    """Return the tables of nccom-test; InputError, naming the line, for a row that contradicts itself."""
    if "count(elems)" not in text:
        return []
    tables: list[ReadTable] = []
    run = _Run()
    for number, line in clean_lines(text):
        if found := _COMMAND.search(line):
            tables += _closed(run, where)
            words = found["words"].split()
            run.operations, run.heading = [word for word in words if word in _OPERATIONS], None
            ranks = None if _IN_GROUPS.search(found["words"]) else _RANKS.search(found["words"])
            run.ranks = int(ranks[1]) or None if ranks else None
            nodes = _NODES.search(found["words"])
            run.nodes = int(nodes[1]) if nodes else None
        elif _HEAD.match(line):
            tables += _closed(run, where)
            run.columns = line.split()
        elif (word := line.strip().strip("[]#:=- ").lower()) in _OPERATIONS:
            tables += _closed(run, where)
            run.heading, run.columns = word, []
        elif run.columns and re.match(r"\s*\d", line):
            _take(run, line, f"{where}:{number}", number)
    tables += _closed(run, where)
    for data in json_objects(text):
        tables += _of_json(data, run, where) if not tables else []
    if not tables and run.notes:
        raise InputError(f"{where}: no table found: the run failed before its first row ({run.notes[0]})")
    return [replace(t, name=f"table {i}") for i, t in enumerate(tables, 1)] if len(tables) > 1 else tables


def _take(run: _Run, line: str, at: str, number: int) -> None:
    """Put a row into the run, or a note that it failed."""
    words = line.split()
    if len(words) > 1 and words[1] == "Failure":
        run.notes.append(f"line {number}: the run of {words[0]} B failed")
    elif len(words) < len(run.columns):
        raise InputError(f"{at}: expected {' '.join(run.columns)}")
    else:
        run.rows.append(_row(dict(zip(run.columns, words, strict=False)), at, number))


def _closed(run: _Run, where: str) -> list[ReadTable]:
    """Return the table of the rows that were read, and begin anew."""
    rows, notes, run.columns = run.rows, run.notes, []
    if not rows:
        return []
    run.rows, run.notes = [], []
    return [_table(rows, run, where, notes)]


def _of_json(data: Mapping[str, Any], run: _Run, where: str) -> list[ReadTable]:
    results = data.get("results")
    if not isinstance(results, list) or not all(isinstance(r, dict) and "count(elems)" in r for r in results):
        return []
    sound(results, where=where)
    rows = [
        _row(
            {key: f"{value:.9f}" if isinstance(value, float) else str(value) for key, value in result.items()},
            f"{where}: result {number}",
            number,
        )
        for number, result in enumerate(results, start=1)
    ]
    return [_table(rows, run, where, [])] if rows else []


def _row(values: Mapping[str, str], at: str, number: int) -> Parsed:
    title = next((name for name in (*_TIMES, *values) if name in values and name.startswith("time")), "")
    try:
        size, count, time_s = int(values["size(B)"]), int(values["count(elems)"]), float(values[title]) * 1e-6
        kind, algbw, busbw = values["type"], values["algbw(GB/s)"], values["busbw(GB/s)"]
        if not (is_plain(algbw) and is_plain(busbw)):
            raise ValueError
    except (KeyError, ValueError):
        raise InputError(f"{at}: expected size, count, type, time, algbw and busbw of nccom-test") from None
    if kind not in WIDTHS:
        raise InputError(f"{at}: type {kind}: expected one of {', '.join(WIDTHS)}")
    if size != count * WIDTHS[kind] or size <= 0:
        raise InputError(f"{at}: size {size} is not {count} elements of {kind}")
    if not 0 < time_s < 1e6:
        raise InputError(f"{at}: expected a time above 0")
    return Parsed(
        line=number, lead="", bytes=size, count=count, type=kind, redop="none", root=None, time_s=time_s, algbw=algbw,
        busbw=busbw, wrong=None, in_place_checked=None,
    )  # fmt: skip


def _table(rows: Sequence[Parsed], run: _Run, where: str, notes: Sequence[str]) -> ReadTable:
    unit = _unit(rows, where)
    known = _identity(rows, run, where)
    each = run.ranks // run.nodes if run.nodes and run.ranks == known.ranks and run.ranks else 0  # it shares equally
    found = [table_row(row, known, "nccom") for row in rows]
    stated = [float(row.busbw or 0) * unit for row in rows]
    return ReadTable(
        name="table", tool="nccom-test", collective=known.collective, ranks=known.ranks, ranks_range=known.ranks_range,
        candidates=known.candidates, notes=(*notes, *known.notes, *((BINARY_UNIT,) if unit == 2**30 else ())),
        hosts=tuple(f"node {rank // each}" for rank in range(run.ranks or 0)) if each else (),
        rows=tuple(
            replace(row, stated_busbw_bytes_per_s=rate or None) for row, rate in zip(found, stated, strict=True)
        ),
    )  # fmt: skip


def _identity(rows: Sequence[Parsed], run: _Run, where: str) -> TableIdentity:
    """Return collective and ranks; where no command names it, the operations that the bandwidths allow."""
    if run.named is not None:
        return identify(rows, run.named, None, run.ranks, where)
    allowed = {
        collective
        for redop in ("none", "sum")  # of which the columns say nothing
        for collective in _allowed([replace(row, redop=redop) for row in rows], run.ranks, where)
    }
    allowed = allowed & set(_OPERATIONS.values()) | ({"reduce_scatter"} if "all_gather" in allowed else set())
    if len(allowed) == 1:
        return identify(rows, Named(allowed.pop(), sure=True), None, run.ranks, where)
    return TableIdentity(ranks=run.ranks, candidates=tuple(sorted(allowed)))


def _allowed(rows: Sequence[Parsed], ranks: int | None, where: str) -> tuple[str, ...]:
    known = identify(rows, None, None, ranks, where)
    return (known.collective,) if known.collective else known.candidates


def _unit(rows: Sequence[Parsed], where: str) -> float:
    """Return the bytes per second of one GB/s: the unit in which algbw x time is the size in every row."""
    for unit in _UNITS:
        if all(_fits(row, unit) for row in rows):
            return unit
    row = next((row for row in rows if not any(_fits(row, unit) for unit in _UNITS)), rows[0])
    said = row.bytes / row.time_s / 1e9
    raise InputError(
        f"{where}:{row.line}: algbw {row.algbw} GB/s x time is not the size: {row.bytes} B in {row.time_s * 1e6:g} us "
        f"are {said:.4g} GB/s ({said * 1e9 / 2**30:.4g} GiB/s)"
    )


def _fits(row: Parsed, unit: float) -> bool:
    said, algbw = row.bytes / row.time_s / unit, row.algbw or "0"
    return abs(float(algbw) - said) <= half_digit(algbw) + said * (_SLACK + _HALF_US / row.time_s)
