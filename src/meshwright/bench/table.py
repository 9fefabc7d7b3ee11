"""Tables of collective times: the columns of nccl-tests, printed, parsed back, and read from CSV."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

import msgspec

from ..collectives.figures import bus_factor
from ..errors import InputError
from ..files import read_text

DTYPES = {"float": "float32", "bfloat16": "bfloat16", "half": "float16", "int32": "int32"}  # ours: torch's
MAX_BYTES = 64 * 2**20
# a table in prose: "1024: 20.1, 0.05, 0.09 | 2048: ..."
INLINE = re.compile(r"\b(\d+): (\d+\.?\d*), (\d+\.?\d*), (\d+\.?\d*)")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One size of one collective: seconds of a call, and how far they were spread."""

    collective: str
    backend: str
    ranks: int
    bytes: int
    time_s: float
    low_s: float | None = None  # 10th percentile
    high_s: float | None = None  # 90th percentile
    dtype: str = "float"
    element_bytes: int = 4
    redop: str = "none"
    wrong: int | None = None  # elements that were not what they must be; None where nothing was checked

    @property
    def algbw_bytes_per_s(self) -> float:
        """Payload over time."""
        return self.bytes / self.time_s

    @property
    def busbw_bytes_per_s(self) -> float:
        """Algorithm bandwidth times the share that each rank's link must carry, as nccl-tests define it."""
        return self.algbw_bytes_per_s * bus_factor(self.collective, self.ranks)


def wire_form(row: Row) -> dict[str, object]:
    """Return the object that `bench --json` prints for a size."""
    return {
        "collective": row.collective,
        "backend": row.backend,
        "ranks": row.ranks,
        "bytes": row.bytes,
        "time_us": row.time_s * 1e6,
        "algbw_GBps": row.algbw_bytes_per_s / 1e9,
        "busbw_GBps": row.busbw_bytes_per_s / 1e9,
        "time_us_p10": None if row.low_s is None else row.low_s * 1e6,
        "time_us_p90": None if row.high_s is None else row.high_s * 1e6,
        "dtype": row.dtype,
        "redop": row.redop,
        "wrong": row.wrong,
    }


def print_rows(rows: Sequence[Row]) -> str:
    """Return the table as nccl-tests print it: times are medians, the last columns their 10th and 90th percentile."""
    lines = [
        "#" + f"{'size':>13}{'count':>14}{'type':>10}{'redop':>8}{'time':>12}{'algbw':>9}{'busbw':>9}{'#wrong':>8}"
        f"{'p10':>12}{'p90':>12}",
        "#"
        + f"{'(B)':>13}{'(elements)':>14}{'':>18}{'(us)':>12}{'(GB/s)':>9}{'(GB/s)':>9}{'':>8}{'(us)':>12}{'(us)':>12}",
    ]
    for row in rows:
        spread = [f"{'-' if t is None else format(t * 1e6, '.2f'):>12}" for t in (row.low_s, row.high_s)]
        lines.append(
            f" {row.bytes:>13}{row.bytes // row.element_bytes:>14}{row.dtype:>10}{row.redop:>8}"
            f"{row.time_s * 1e6:>12.2f}{row.algbw_bytes_per_s / 1e9:>9.3f}{row.busbw_bytes_per_s / 1e9:>9.3f}"
            f"{'N/A' if row.wrong is None else row.wrong:>8}{''.join(spread)}"
        )
    return "\n".join(lines)


def csv_text(rows: Iterable[Row]) -> str:
    """Return the rows as CSV with a header."""
    found = [wire_form(row) for row in rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(found[0]) if found else ["collective"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue()


def load_tables(path: str) -> dict[str, list[Row]]:
    """Read measured tables by name: nccl-tests output, our own, or a CSV with a row a size.

    Raises InputError, naming the line, for anything else.
    """
    text = read_text(path, max_bytes=MAX_BYTES)
    first = next((line for line in text.splitlines() if line.strip()), "")
    is_csv = "bytes" in first.replace("size_bytes", "bytes").split(",")
    tables = _from_csv(text, path) if is_csv else {"table": _from_text(text, path)}
    return {
        name: sorted(rows, key=lambda row: row.bytes)
        for key, found in tables.items()
        for name, rows in _kinds(key, found)
    }


def _kinds(name: str, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return the tables of one name, a collective, backend and rank count each."""
    kinds: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        kinds.setdefault((row.collective, row.backend, row.ranks), []).append(row)
    if len(kinds) == 1:
        return [(name, list(rows))]
    return [(f"{name}, {collective} of {ranks}", found) for (collective, _, ranks), found in kinds.items()]


def _from_csv(text: str, where: str) -> dict[str, list[Row]]:
    """Read CSV with the columns of our own tables (bytes) or of the published ones (size_bytes, prefix)."""
    reader = csv.DictReader(io.StringIO(text))
    names = set(reader.fieldnames or ())
    size_key = "bytes" if "bytes" in names else "size_bytes"
    if not {size_key, "ranks"} <= names:
        raise InputError(f"{where}: columns {', '.join(sorted(names))[:200]}: expected at least {size_key} and ranks")
    tables: dict[str, list[Row]] = {}
    for line, record in enumerate(reader, start=2):
        name = record.get("prefix") or record.get("collective") or "table"
        row = _csv_row(record, size_key, f"{where}:{line}")
        if row is not None:
            tables.setdefault(name, []).append(row)
    if not tables:
        raise InputError(f"{where}: no row has a size, a rank count and a time or a bandwidth")
    return tables


def _csv_row(record: dict[str, str], size_key: str, where: str) -> Row | None:
    """Return one row, or None where the size, the ranks or every figure is blank (peaks without a size)."""
    size, ranks = record.get(size_key) or "", record.get("ranks") or ""
    time_us, algbw = record.get("time_us") or "", record.get("algbw_GBps") or ""
    if not size or not ranks or not (time_us or algbw):
        return None
    try:
        bytes_, count = int(size), int(ranks)
        time_s = float(time_us) / 1e6 if time_us else bytes_ / (float(algbw) * 1e9)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"{where}: expected numbers for {size_key}, ranks and time_us") from None
    if bytes_ < 0 or count < 1 or not 0 < time_s < 1e6:
        raise InputError(f"{where}: expected a size of 0 or more, 1 or more ranks and a positive time")
    collective = {"alltoall": "all_to_all"}.get(record.get("collective", ""), record.get("collective") or "all_reduce")
    return Row(collective=collective, backend=record.get("backend") or "nccl", ranks=count, bytes=bytes_, time_s=time_s)


def _from_text(text: str, where: str) -> list[Row]:
    """Read nccl-tests output, ours, or a table in prose; the header or busbw over algbw gives the rank count."""
    collective = _collective_of(text)
    rows: list[tuple[int, str, str, float, float, float]] = [
        (int(size), "float", "sum", float(time_us), float(algbw), float(busbw))
        for size, time_us, algbw, busbw in INLINE.findall(text)
    ]
    for number, line in enumerate(text.splitlines(), start=1):
        tokens = line.split()
        if len(tokens) < 6 or not tokens[0].isdecimal() or not tokens[1].isdecimal():
            continue
        figures = [token for token in tokens[3:] if re.fullmatch(r"-?\d+\.?\d*(e[+-]?\d+)?", token)]
        if tokens[4:5] and re.fullmatch(r"-?\d+", tokens[4]) and len(figures) >= 4:
            figures = figures[1:]  # the column of the root
        if len(figures) < 3 or float(figures[0]) <= 0:
            raise InputError(f"{where}:{number}: expected size, count, type, redop, time, algbw and busbw")
        rows.append((int(tokens[0]), tokens[2], tokens[3], *(float(f) for f in figures[:3])))  # type: ignore[arg-type]
    if not rows:
        raise InputError(
            f"{where}: no table found, expected the output of nccl-tests or a CSV with size_bytes and ranks"
        )
    ranks = _ranks_of(text, collective, rows)
    if ranks is None:
        raise InputError(f"{where}: the rank count is not in the header and does not follow from busbw over algbw")
    return [
        Row(
            collective=collective,
            backend="nccl",
            ranks=ranks,
            bytes=size,
            time_s=time_us / 1e6,
            dtype=dtype,
            redop=redop,
        )
        for size, dtype, redop, time_us, _, _ in rows
        if size > 0
    ]


def _collective_of(text: str) -> str:
    """Return the collective that a header names (all_reduce_perf, "test starting: ..."), else all_reduce."""
    known = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "broadcast", "sendrecv", "reduce", "gather")
    for name in known:
        if re.search(rf"\b{name}_perf\b|starting:\s*{name}|collective:\s*{name}", text):
            return {"alltoall": "all_to_all"}.get(name, name)
    return "all_reduce"


def _ranks_of(text: str, collective: str, rows: Sequence[tuple[int, str, str, float, float, float]]) -> int | None:
    listed = re.findall(r"^#\s+Rank\s+(\d+)\b", text, re.M)
    if listed:
        return max(map(int, listed)) + 1
    named = re.search(r"\branks?[:= ]+(\d+)", text)
    if named:
        return int(named.group(1))
    largest = max(rows, key=lambda row: row[4])
    if not largest[4]:
        return None
    ratio = largest[5] / largest[4]
    fits = [n for n in range(2, 4097) if abs(bus_factor(collective, n) / ratio - 1) < 5e-4]
    return fits[0] if fits else None
