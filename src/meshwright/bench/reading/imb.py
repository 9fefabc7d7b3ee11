"""The Intel MPI Benchmarks and oneCCL's, whose tables are alike: the slowest rank counts.

Rows may be wrapped as mails wrap them, and begin with the benchmark and its processes as those of old versions do.
"""

import re
from collections.abc import Iterator, Mapping

from ...units import format_bytes
from ..table import Row
from .columns import WIDTHS
from .mpi_tools import NUMBERS, collective_of, payload_of
from .tables import BETWEEN_TWO, ReadTable, message

_IMB = "Intel MPI Benchmarks"
_OF_PAIRS = ("pingpong", "pingping", "pingpongspecificsource", "pingpingspecificsource")  # of IMB-MPI1
_OF_IMB = {  # benchmarks of IMB-MPI1
    *_OF_PAIRS,
    *("sendrecv", "exchange", "allreduce", "reduce", "bcast"),
    *("reduce_scatter", "reduce_scatter_block", "allgather", "allgatherv", "gather", "gatherv", "scatter", "scatterv"),
    *("alltoall", "alltoallv"),
}
_REDUCING = ("all_reduce", "reduce", "reduce_scatter")
_TIMES = ("t_max[usec]", "t_pure[usec]", "t[usec]")
_COLUMNS = re.compile(r"\s*\S+\[(?:usec|%)\](?:\s+\S+\[(?:usec|%)\])*\s*$")  # of a header that goes on
_OPTION = re.compile(r"^\s*(datatypes|reductions):\s+(\w+)\s*$")  # of oneCCL, where it has one value
_OPTIONS = {"datatypes": "dtype", "reductions": "reduction"}
_ENOUGH = 5  # repetitions
_NAMED = "#Benchmarking"  # a first column of names
_NAME = re.compile(r"[A-Za-z]\w{0,40}$")


def read_imb(text: str, where: str) -> list[ReadTable]:
    """Return the tables of the Intel MPI Benchmarks and of oneCCL's.

    A table without the tool's own lines above it is named by the line that says nothing but a benchmark's name.
    """
    tables: list[ReadTable] = []
    what, ranks, tool = "", None, _IMB
    said: dict[str, str] = {}  # behind the name, else by the options
    options: dict[str, str] = {}
    columns: list[str] = []
    rows: list[Row] = []
    calls: dict[int, int] = {}  # of each size, how often it was repeated

    def close() -> None:
        nonlocal what, ranks, columns, rows, said
        if rows:
            tables.append(
                ReadTable(name=what or "table", tool=tool, collective=collective_of(what), ranks=ranks,
                          rows=tuple(rows), unjudged=BETWEEN_TWO if what.lower() in _OF_PAIRS else "",
                          notes=_of_few_calls(calls))
            )  # fmt: skip
        what, ranks, columns, rows, said = "", None, [], [], {}
        calls.clear()

    for number, line in _unwrapped(f"{text}\n# Benchmarking"):
        heading = line.strip(" \t#*=_:\uff1a")
        if "# Benchmarking" in line:
            close()
            what, said = _title(line.partition("Benchmarking")[2])
            tool = "oneCCL benchmark" if "Benchmarking:" in line else _IMB
            said = options | said if tool != _IMB else said
        elif line.strip() == "options:":
            options = {}
        elif option := _OPTION.match(line):
            options[_OPTIONS[option[1]]] = option[2].lower()
        elif heading.lower() in _OF_IMB:
            close()
            what = heading
        elif match := re.search(r"#processes(?: =|:) (\d{1,6})\b", line):
            ranks = int(match[1]) or None
        elif "#bytes" in line:
            if rows:
                close()
            columns = [] if "#iterations" in line else line.split()  # else perftest's, of no collective
        elif columns and (words := _row(line, columns)):
            its = words[0] if columns[0] == _NAMED else what
            values = dict(zip(columns, (float(word) for word in ("0", *words[1:])), strict=True))
            values[columns[0]] = 0.0 if columns[0] == _NAMED else float(words[0])
            started = int(values.get("#procs", 0)) or ranks
            if rows and (its.lower(), started) != (what.lower(), ranks):  # rows of another benchmark follow
                kept = columns
                close()
                columns = kept
            what, ranks = its, started
            if row := _measured(values, what, ranks, said, "mpi" if tool == _IMB else "ccl", f"{where}:{number}"):
                rows.append(row)
                calls[row.bytes] = int(values.get("#repetitions", _ENOUGH))
    return tables


def _of_few_calls(calls: Mapping[int, int]) -> tuple[str, ...]:
    """Return the sizes whose times are of so few calls that chance is in them, () where none are."""
    few = {size: count for size, count in calls.items() if 0 < count < _ENOUGH}
    if not few:
        return ()
    least = min(few.values())
    shown = ", ".join(map(format_bytes, sorted(few)[:4])) + (", ..." if len(few) > 4 else "")
    times = "once" if least == 1 else f"{least} times at least"
    return (
        f"{shown} {'was' if len(few) == 1 else 'were'} called {times}: the times are those of the slowest rank, and "
        "chance is in them (-iter, -time)",
    )


def _title(words: str) -> tuple[str, dict[str, str]]:
    """Return a benchmark's name and what stands behind it: "allreduce ; dtype: float32 ; reduction: sum"."""
    name, *rest = words.split(";")
    pairs = (part.partition(":") for part in rest)
    return name.strip(" :"), {key.strip().lower(): value.strip().lower() for key, _, value in pairs}


def _measured(
    values: Mapping[str, float], what: str, ranks: int | None, said: Mapping[str, str], backend: str, at: str
) -> Row | None:
    """Return the row of the figures of a size; None where nothing was sent or nothing timed."""
    time = next((values[name] for name in _TIMES if name in values), 0.0)
    size, collective = int(values.get("#bytes", 0.0)), collective_of(what)
    if time > 0 and what.lower() in _OF_PAIRS:  # of 0 bytes too: that shows the latency
        return message("mpi", size, time * 1e-6)
    if not size or time <= 0:
        return None
    dtype = said.get("dtype", "")
    return Row(
        collective=collective, backend=backend, ranks=ranks, time_s=time * 1e-6,
        bytes=payload_of(size, collective, ranks, at) if collective else size,
        dtype=dtype if dtype in WIDTHS else "float", element_bytes=WIDTHS.get(dtype, WIDTHS["float"]),
        redop=(said.get("reduction") if collective in _REDUCING else None) or "none",
    )  # fmt: skip


def _unwrapped(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines that say something; a header or a row that goes on in the next line is one."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    columns, at = 0, 0
    while at < len(lines):
        number, line = lines[at]
        following = lines[at + 1][1] if at + 1 < len(lines) else ""
        joined = f"{line} {following}"
        if "#bytes" in line:
            goes_on = _COLUMNS.match(following) is not None
            columns = len((joined if goes_on else line).split())
        else:
            begins = re.match(r"\s*(?:[A-Za-z]\w*\s+)?\d+\s", f"{line} ") is not None
            goes_on = begins and len(joined.split()) == columns and NUMBERS.match(f"0 {following}") is not None
        yield number, joined if goes_on else line
        at += 2 if goes_on else 1


def _row(line: str, columns: list[str]) -> list[str] | None:
    """Return the words of a row, whatever somebody wrote behind them; None for another line."""
    words = line.split()
    its, behind = words[: len(columns)], words[len(columns) :]
    if len(its) < len(columns) or any(NUMBERS.match(f"0 {word}") for word in behind):
        return None
    figures = ["0", *its[1:]] if columns[0] == _NAMED and _NAME.match(its[0]) else its
    return its if NUMBERS.match(" ".join(figures)) else None
