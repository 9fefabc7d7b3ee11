"""Benchmarks of MPI and of collectives like its: OSU micro-benchmarks and ucc_perftest; `imb` has two more.

OSU, IMB, oneCCL and ucc_perftest count what one rank sends to one peer (gathers, scatters, all-to-all); a table here
counts the whole payload of a rank as nccl-tests do, so that they need the number of processes there.
"""

import re
from collections.abc import Sequence

from ...errors import InputError
from ...units import counted
from ..table import Row
from .columns import WIDTHS
from .identify import NAMES, processes_of
from .tables import BETWEEN_TWO, SEVERAL_PAIRS, Rate, ReadTable, message

PER_PEER = {"all_gather", "all_to_all", "gather", "scatter"}
_OSU = re.compile(r"#\s*OSU \S+\s+(?P<what>.*?)\s*\b(?P<kind>Latency|Bandwidth)(?: / Message Rate)? Test", re.I)
_BUFFERS = re.compile(r"Send Buffer on (\w+) .*Receive Buffer on (\w+)", re.I)
_DATATYPE = re.compile(r"#\s*Datatype: MPI_(CHAR|INT|FLOAT|DOUBLE)\b")
_PAIRS = re.compile(r"\[ ?pairs: ?(\d{1,6}) ?\]")
_STARTED = re.compile(r"#processes = (?P<processes>\d+)|\b(?:mpirun|mpiexec|srun|prun|jsrun|aprun|orterun)\b")
NUMBERS = re.compile(r"^\s*\d+(?:\s+\d+(?:\.\d*)?)+\s*$")
_OSU_ROW = re.compile(r"^\s*(?P<size>\d+)(?P<figures>(?:\s+\d+(?:\.\d*)?)+)(?:\s+(?P<check>Pass|Fail))?\s*$", re.I)
_OSU_COLUMN = re.compile(r"\([^)]*\)|\bIterations\b|\bMessages/s|\bMB/s")
_KINDS = re.compile(r"^(?:(?:non-blocking|persistent)\s+)+", re.I)  # of the same collective


def _processes(line: str) -> int | None:
    """Return the processes that a line says were started, None where it is no such line."""
    match = _STARTED.search(line)
    if match is None:  # whatever starts it: "$SUBMIT -n 4 osu_allreduce -d cuda"
        head, program, _ = line.partition(" osu_")
        return processes_of(head) if program else None
    return int(match["processes"]) if match["processes"] else processes_of(line)


def collective_of(words: str) -> str | None:
    """Return the collective that a benchmark is named after, None where it is of none."""
    return NAMES.get(re.sub(r"[^a-z]", "", words.lower()).removeprefix("i"), NAMES.get(words.lower()))


def payload_of(size: int, collective: str, ranks: int | None, at: str) -> int:
    """Return the whole payload of a rank where a tool says what goes to one peer; InputError without the ranks."""
    if collective not in PER_PEER:
        return size
    if ranks is None:
        raise InputError(
            f"{at}: {collective}: a size of this tool is what goes to one peer, and the number of processes is not in "
            "the file: expected the command (mpirun -np N ...) above the table"
        )
    return size * ranks


def read_osu(text: str, where: str) -> list[ReadTable]:
    """Return the tables of OSU micro-benchmarks: latency of collectives and of pairs, bandwidth of pairs."""
    tables: list[ReadTable] = []
    title: re.Match[str] | None = None
    collective: str | None = None
    ranks, started = None, None
    rows: list[Row] = []
    rates: list[Rate] = []
    column, failed = 0, 0  # where the time stands; sizes of which the result was wrong
    columns, joined = 0, 0  # that the header names behind the size; that a row has beyond them
    pairs: int | None = None  # of processes, whose rates a test of several adds
    dtype = "float"
    buffers = ""  # where what is sent lies, and where it goes

    def close() -> None:
        nonlocal rows, rates, column, failed, pairs, buffers, columns, joined
        if title is not None and (rows or rates):
            which = f" ({len(tables) + 1})" if tables else ""
            name = f"{title['what'] or 'pair'} {title['kind'].lower()}{buffers and ', '}{buffers}{which}"
            unjudged = _unjudged(title["what"]) if rows and not collective else ""
            added = _added_pairs(pairs) if rates and title["what"].lower().startswith("multi") else ()
            added += _joined_columns(joined)
            tables.append(
                ReadTable(name=name, tool="OSU micro-benchmarks", collective=collective, ranks=ranks if rows else None,
                      rows=tuple(rows), rates=tuple(rates), both_ways="bi-directional" in title["what"].lower(),
                      wrong=failed, unjudged=unjudged, notes=added, buffers=buffers)
            )  # fmt: skip
        rows, rates, column, failed, pairs, buffers, columns, joined = [], [], 0, 0, None, "", 0, 0

    for number, line in enumerate(text.splitlines(), start=1):
        found = _OSU.search(line)
        started = _processes(line) or started  # the command that is nearest above a table is its own
        if found:
            close()
            title, collective, ranks, dtype = found, _osu_collective(found["what"]), started, "float"
        elif title is not None and (elements := _DATATYPE.search(line)):
            dtype = elements[1].lower()
        elif title is not None and (several := _PAIRS.search(line)):
            pairs = int(several[1])
        elif title is not None and (places := _BUFFERS.search(line)):
            buffers = f"{places[1].lower()} to {places[2].lower()}"
        elif title is not None and line.lstrip("# ").startswith("Size"):
            column, columns = _osu_column(line), len(_OSU_COLUMN.findall(line))
        elif title is not None and (row := _OSU_ROW.match(line)):
            figures = row["figures"].split()
            size, value = int(row["size"]), float(figures[min(column, len(figures) - 1)])
            joined = max(joined, len(figures) - columns) if columns else 0
            failed += (row["check"] or "").lower() == "fail"
            if title["kind"].lower() != "latency":
                rates.append(
                    Rate(what=f"{title['what'] or 'pair'} bandwidth", rate_bytes_per_s=value * 1e6, bytes=size)
                )
            elif (size or _is_of_pairs(title["what"])) and value > 0:  # a message of 0 bytes shows the latency
                rows.append(_osu_row(title["what"], collective, ranks, size, value * 1e-6, dtype, f"{where}:{number}"))
    close()
    return tables


def _osu_row(
    what: str, collective: str | None, ranks: int | None, size: int, time_s: float, dtype: str, at: str
) -> Row:
    """Return the row of a latency test: of a collective, of messages of pairs, or of what is not known."""
    if collective:
        payload = payload_of(size, collective, ranks, at)
        return Row(collective=collective, backend="mpi", ranks=ranks, bytes=payload, time_s=time_s, dtype=dtype,
                   element_bytes=WIDTHS[dtype])  # fmt: skip
    if _is_of_pairs(what):
        return message("mpi", size, time_s)
    return Row(collective=None, backend="mpi", ranks=ranks, bytes=size, time_s=time_s)


def _unjudged(words: str) -> str:
    """Return why the times of a title that names no collective of ours are held against nothing."""
    if not words:
        return BETWEEN_TWO
    if _is_of_pairs(words):
        return SEVERAL_PAIRS
    return f"{words}: what its sizes count is not known here, so that it is held against nothing"


def _added_pairs(pairs: int | None) -> tuple[str, ...]:
    """Return the note on rates that are the sum of several pairs at once, () for one pair alone."""
    if pairs == 1:
        return ()
    return (f"the rates are the sum of {pairs or 'several'} pairs of processes at once",)


def _joined_columns(more: int) -> tuple[str, ...]:
    """Return the note on columns that somebody put beside a table's own, () for none."""
    if more < 1:
        return ()
    return (f"rows have {counted(more, 'figure')} more than the header has columns: of what they are is not said",)


def _is_of_pairs(words: str) -> bool:
    """Return whether the title of a latency test names no collective but messages, of one pair or several at once."""
    return not words or words.lower().startswith("multi")


def _osu_collective(words: str) -> str | None:
    """Return the collective of a title; None for those of pairs, of neighbourhoods and with counts of their own."""
    plain = _KINDS.sub("", words)
    if plain.lower().startswith("all-to-all personalized"):
        return "all_to_all"
    return collective_of(plain) if plain and len(plain.split()) == 1 else None


def _osu_column(line: str) -> int:
    """Return the number of the figure that is the time of the collective: without what it computed meanwhile."""
    columns = re.findall(r"\S+(?: \S+)*?\((?:us|%)\)", line.partition("Size")[2])
    return next((i for i, column in enumerate(columns) if column.lower().startswith("pure comm")), 0)


def read_ucc(text: str, where: str) -> list[ReadTable]:
    """Return the tables of ucc_perftest; the number of ranks follows from the bandwidth that -F prints.

    Without the lines above a table its collective is not known, and a size is what the tool printed.
    """
    tables: list[ReadTable] = []
    collective, started = None, None
    name, headed = "ucc", False
    found: list[tuple[float, ...]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        named = re.match(r"\s*Collective:\s+(\w+)", line)
        is_head = re.match(r"\s*Count\s+Size\s+Time, us", line) is not None
        if named or is_head:
            if found:
                tables.append(_ucc_table(name, collective, started, found, where))
            if named or found:  # a name holds for the next table only
                name, collective = (named[1], collective_of(named[1])) if named else ("ucc", None)
            found, headed = [], is_head
        elif headed and NUMBERS.match(line) and len(line.split()) >= 5:
            found.append((number, *map(float, line.split()[:6])))
        started = _processes(line) or started
    return [*tables, _ucc_table(name, collective, started, found, where)] if found else tables


def _ucc_table(
    name: str, collective: str | None, started: int | None, found: Sequence[tuple[float, ...]], where: str
) -> ReadTable:
    ranks = started or _ucc_ranks(collective, [row[1:] for row in found])
    rows = tuple(
        Row(collective=collective, backend="ucc", ranks=ranks,
            bytes=payload_of(int(size), collective, ranks, f"{where}:{int(number)}") if collective else int(size),
            time_s=average * 1e-6)
        for number, _, size, average, *_ in found if size and average > 0
    )  # fmt: skip
    return ReadTable(name=name, tool="ucc_perftest", collective=collective, ranks=ranks, rows=rows)


def _ucc_ranks(collective: str | None, rows: Sequence[tuple[float, ...]]) -> int | None:
    """Return the ranks n for which bandwidth x time is the size times n - 1 (per peer), else 2(n-1)/n (all-reduce)."""
    counts = set()
    for row in rows:
        if len(row) < 6 or not row[1] or not row[5]:
            return None
        moved = row[5] * 1e9 * row[2] * 1e-6 / row[1]
        if collective in PER_PEER:
            counts.add(round(moved) + 1 if abs(moved - round(moved)) < 0.05 else 0)
        elif collective == "all_reduce" and moved < 1.99:
            counts.add(round(2 / (2 - moved)) if abs(2 / (2 - moved) - round(2 / (2 - moved))) < 0.1 else 0)
        else:
            return None
    return counts.pop() if len(counts) == 1 and min(counts) > 1 else None
