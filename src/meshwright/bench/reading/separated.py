"""Tables with separators: CSV with a row a size, and markdown tables with a header."""

import csv
import io
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...errors import InputError
from ..table import Row
from .columns import WIDTHS, Parsed
from .identify import NAMES, Named, identify, named_in
from .nccl_text import table_row
from .tables import ReadTable
from .text import unquoted

_CELL = re.compile(
    r"^#?\s*(size|bytes|message size|payload|count|type|redop|root|time|latency|algbw|alg ?bw|busbw|bus ?bw|#?wrong)\b"
    r".*?(?:\(([^)]*)\))?$",
    re.I,
)
_KINDS = {"size": "size", "bytes": "size", "message size": "size", "payload": "size", "time": "time", "latency": "time"}
_OVER = re.compile(r"\bover (\d{1,6}) ranks\b")  # all_reduce_bench.py
_DEVICE = re.compile(r"\b_CudaDeviceProperties\(name='([^']+)'")
_RATE = re.compile(r"(\d[\d,]*\.?\d*)\s*(G(?:i?B|b|bit)(?:/s|ps))?")
_SUMMARY = re.compile(r"(?:avg|average|mean|median|max|maximum|min|peak|total)\b", re.I)
_TIMES = {"us": 1e-6, "µs": 1e-6, "usec": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZES = {"b": 1, "bytes": 1, "kb": 1024, "kib": 1024, "mb": 1024**2, "mib": 1024**2, "gb": 1024**3, "gib": 1024**3}


def is_csv(text: str) -> bool:
    """Return whether the first line is a CSV header with a column of sizes."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return bool({"bytes", "size_bytes"} & set(first.strip().split(",")))


def read_csv(text: str, where: str) -> list[ReadTable]:
    """Return the tables of a CSV with the columns of our own (bytes) or of published ones (size_bytes, prefix)."""
    reader = csv.DictReader(io.StringIO(text))
    names = set(reader.fieldnames or ())
    size_key = "bytes" if "bytes" in names else "size_bytes"
    if not {size_key, "ranks"} <= names:
        raise InputError(f"{where}: columns {', '.join(sorted(names))[:200]}: expected at least {size_key} and ranks")
    found: dict[str, list[Row]] = {}
    for line, record in enumerate(reader, start=2):
        name = record.get("prefix") or record.get("collective") or "table"
        row = _csv_row(record, size_key, f"{where}:{line}")
        if row is not None:
            found.setdefault(name, []).append(row)
    if not found:
        raise InputError(f"{where}: no row has a size, a rank count and a time or a bandwidth")
    return [table for name, rows in found.items() for table in _kinds(name, rows)]


def _kinds(name: str, rows: Sequence[Row]) -> list[ReadTable]:
    """Return the tables of one name, a collective, backend and rank count each."""
    kinds: dict[tuple[str | None, str, int | None], list[Row]] = {}
    for row in rows:
        kinds.setdefault((row.collective, row.backend, row.ranks), []).append(row)
    return [
        ReadTable(
            name=name if len(kinds) == 1 else f"{name}, {collective} of {ranks}",
            tool="CSV",
            collective=collective,
            ranks=ranks,
            rows=tuple(found),
            wrong=max((row.wrong or 0 for row in found), default=0),
        )
        for (collective, _, ranks), found in kinds.items()
    ]


def _csv_row(record: Mapping[str, str], size_key: str, where: str) -> Row | None:
    """Return one row, or None where the size, the ranks or every figure is blank (peaks without a size)."""
    size, ranks = record.get(size_key) or "", record.get("ranks") or ""
    time_us, algbw = record.get("time_us") or "", record.get("algbw_GBps") or ""
    if not size or not ranks or not (time_us or algbw):
        return None
    try:
        bytes_, count = int(size), int(ranks)
        time_s = float(time_us) / 1e6 if time_us else bytes_ / (float(algbw) * 1e9)
        busbw = float(record["busbw_GBps"]) * 1e9 if record.get("busbw_GBps") else None
        wrong = int(record["wrong"]) if record.get("wrong") else None
    except (ValueError, ZeroDivisionError):
        raise InputError(f"{where}: expected numbers for {size_key}, ranks and time_us") from None
    if bytes_ < 0 or count < 1 or not 0 < time_s < 1e6:
        raise InputError(f"{where}: expected a size of 0 or more, 1 or more ranks and a positive time")
    said = (record.get("collective") or "").strip()
    return Row(
        collective=NAMES.get(said.lower(), said) or None, backend=record.get("backend") or "nccl", ranks=count,
        bytes=bytes_, time_s=time_s, wrong=wrong, stated_busbw_bytes_per_s=busbw,
    )  # fmt: skip


def read_markdown(text: str, where: str) -> list[ReadTable]:
    """Return the tables between | whose header names a size and a time; [] where there is none."""
    tables: list[ReadTable] = []
    named: Named | None = None
    ranks, device = None, ""
    columns: dict[int, tuple[str, str]] | None = None
    rows: list[Parsed] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        cells = _cells(line)
        if columns and cells and not all(re.fullmatch(r":?-*:?", cell) for cell in cells):
            if not _SUMMARY.match(cells[0]):
                rows.append(_markdown_row(cells, columns, f"{where}:{number}", number))
        elif not cells:
            if rows:
                tables.append(_markdown_table(rows, named, ranks, device, where, len(tables) + 1))
            columns, rows = None, []
            named = named_in(line) or named
            ranks = int(over[1]) if (over := _OVER.search(line)) else ranks
            device = said[1] if (said := _DEVICE.search(line)) else device
        elif columns is None:
            columns = _markdown_columns(cells)
    return tables


def _cells(line: str) -> list[str]:
    """Return the cells of a row of a table, [] for another line."""
    bare = unquoted(line).strip()
    bare = bare if bare.startswith("|") else line.strip()  # a first cell looks like the name of a container
    return [cell.strip(" \t*`") for cell in bare.strip("|").split("|")] if bare.count("|") > 1 else []


def _markdown_columns(cells: Sequence[str]) -> dict[int, tuple[str, str]] | None:
    found: dict[int, tuple[str, str]] = {}
    for place, cell in enumerate(cells):
        match = _CELL.match(cell)
        if match:
            word = match[1].lower().replace(" ", "" if "bw" in match[1].lower() else " ")
            kind = _KINDS.get(word, word.lstrip("#"))
            if kind not in {kind for kind, _ in found.values()}:
                found[place] = (kind, (match[2] or "").strip())
    kinds = {kind for kind, _ in found.values()}
    return found if "size" in kinds and kinds & {"time", "algbw"} else None


def _markdown_row(cells: Sequence[str], columns: Mapping[int, tuple[str, str]], at: str, line: int) -> Parsed:
    values = {kind: (cells[place] if place < len(cells) else "", unit) for place, (kind, unit) in columns.items()}
    algbw, busbw = (_rate(*values.get(key, ("", ""))) for key in ("algbw", "busbw"))
    try:
        size = _size(*values["size"])
        if "time" in values:
            time_s = float(values["time"][0].replace(",", "")) * _TIMES[values["time"][1].lower() or "us"]
        else:
            time_s = size / (float(algbw or "") * 1e9)
    except (KeyError, ValueError, ZeroDivisionError):
        raise InputError(f"{at}: expected a size in bytes, and a time in us or an algbw in GB/s") from None
    if not 0 < time_s < 1e6:
        raise InputError(f"{at}: expected a time above 0")
    said = size / time_s / 1e9
    if algbw and size and abs(float(algbw) - said) > 0.01 * said + 0.006:
        raise InputError(f"{at}: algbw {algbw} GB/s x time is not the size {size} B")
    wrong = values.get("wrong", ("", ""))[0]
    kind, count, redop, root = _elements(values, size)
    return Parsed(
        line=line, lead="", bytes=size, count=count, type=kind, redop=redop, root=root,
        time_s=time_s, algbw=algbw, busbw=busbw, wrong=int(wrong) if wrong.isdecimal() else None, in_place_checked=None,
    )  # fmt: skip


def _elements(values: Mapping[str, tuple[str, str]], size: int) -> tuple[str, int, str, int | None]:
    """Return element type, count, operator and root: of the columns where those of nccl-tests are there."""
    kind, count, redop, root = (values.get(key, ("", ""))[0].lower() for key in ("type", "count", "redop", "root"))
    if kind not in WIDTHS:
        return "float", size // WIDTHS["float"], "sum", None
    said = count.replace(",", "")
    counted = int(said) if said.isdecimal() and len(said) < 16 else size // WIDTHS[kind]
    return kind, counted, redop or "sum", int(root) if re.fullmatch(r"-?\d{1,6}", root) else None


def _rate(text: str, unit: str) -> str | None:
    """Return the GB/s of a cell with its digits, from Gb/s with one more; None for another cell."""
    match = _RATE.fullmatch(text)
    if match is None:
        return None
    words, said = match[1].replace(",", ""), match[2] or unit
    scale = 2**30 / 1e9 if "GiB" in said else 1 / 8 if "Gb" in said else 1.0
    return words if scale == 1.0 else f"{float(words) * scale:.{len(words.partition('.')[2]) + 1}f}"


def _size(text: str, unit: str) -> int:
    match = re.fullmatch(r"([\d,]+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if match is None:
        raise ValueError(text)
    word = (match[2] or unit or "b").lower()
    scale = _SIZES.get(word, _SIZES.get(f"{word}b"))
    if scale is None:
        raise ValueError(text)
    return round(float(match[1].replace(",", "")) * scale)


def _markdown_table(
    rows: Sequence[Parsed], named: Named | None, ranks: int | None, device: str, where: str, number: int
) -> ReadTable:
    known = identify(rows, named, ranks, None, where)
    # a markdown table has no operator and no counts: without a name, only a ratio above 1 tells the collective
    sure = known.collective if named or (known.ranks and known.ranks > 2 and known.collective == "all_reduce") else None
    if sure is None:
        told = known.candidates if any(row.busbw for row in rows) else ()
        known = replace(known, collective=None, ranks=None, ranks_range=None, candidates=told)
    return ReadTable(
        name="table" if number == 1 else f"table {number}", tool="markdown", collective=known.collective,
        ranks=known.ranks, ranks_range=known.ranks_range, candidates=known.candidates,
        rows=tuple(table_row(row, known, "nccl") for row in rows if row.bytes),
        wrong=max((row.wrong or 0 for row in rows), default=0),
        devices=(device,) * (known.ranks or 0) if device else (),
    )  # fmt: skip
