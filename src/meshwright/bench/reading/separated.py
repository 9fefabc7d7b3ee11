"""Tables with separators: CSV with a row a size, and markdown tables with a header."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from msgspec.structs import replace

from ...collectives.pricing.figures import bus_factor
from ...errors import InputError
from ..table import Row
from .columns import WIDTHS, Parsed
from .identify import MOST_RANKS, NAMES, Named, identify, named_in
from .nccl_text import table_row
from .tables import ReadTable
from .text import unquoted

_BANDWIDTHS = r"(?:alg|algo|algorithm|bus)[ _]?b(?:w|andwidth)"
_SIZE_WORDS = ("size", "bytes", "message size", "msg size", "data size", "buffer size", "payload", "buffer")
_CELL = re.compile(
    rf"^#?\s*({'|'.join(_SIZE_WORDS)}|count|type|redop|root|time|latency|{_BANDWIDTHS}|#?wrong)\b"
    r".*?(?:[(\[]([^)\]]*)[)\]])?$",
    re.I,
)
# figures of one of several that are compared: "NCCL (us)", "one-shot time (us)", "NCCL AlgBW (GB/s)"
_OF_ONE = re.compile(rf"^\s*(?:\S.*?)(?:\b({_BANDWIDTHS})\b)?\s*[(\[]([^)\]]*)[)\]]\s*$", re.I)
_SPREAD = re.compile(r"\b(?:std\w*|dev\w*|var\w*|jitter|min\w*|max\w*|p\d+\S*|tail|worst|best|\d+\s?%\S*)", re.I)
# what parts the rows of one table into several
_PARTS = {
    "collective": re.compile(r"^(?:collective|coll|operation|primitive)s?\b", re.I),
    "ranks": re.compile(r"^(?:#|num(?:ber)?(?: of)?[ _])?\s*(?:ranks|gpus|world[ _]size|devices|processes)\b", re.I),
}
_KINDS = {**dict.fromkeys(_SIZE_WORDS, "size"), "time": "time", "latency": "time"}
_FIGURES = ("time", "algbw", "busbw")
_OVER = re.compile(r"\bover (\d{1,6}) ranks\b")  # all_reduce_bench.py
_DEVICE = re.compile(r"\b_CudaDeviceProperties\(name='([^']+)'")
_RATE = re.compile(r"(\d[\d,]*\.?\d*)\s*(G(?:i?B|b|bit)(?:/s|ps))?")
_SOME_RATE = re.compile(r"(?P<whose>.*?)\s*\b(?:BW|bandwidth|throughput)\b\s*[(\[](?P<unit>G[^)\]]*)[)\]]\s*$", re.I)
_AS_STATED = 0.1  # share by which a rate may differ from size over time: GB or GiB, rounding
_RULE = re.compile(r"^\s*\+[-=+]{3,}\+\s*$")  # as tables of Python draw it
_SUMMARY = re.compile(r"(?:avg|average|mean|median|max|maximum|min|peak|total)\b", re.I)
_EACH = re.compile(r"(us|µs|μs|usec|ms|s) ?(?:/|per) ?(?:call|iter(?:ation)?|op|step|run)", re.I)
_TIMES = {"us": 1e-6, "µs": 1e-6, "μs": 1e-6, "usec": 1e-6, "ms": 1e-3, "s": 1.0}
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
    """Return the tables between | whose header names a size and times; [] where there is none.

    Of times of several that are compared side by side each has a table, called by its column.
    """
    tables: list[ReadTable] = []
    named: Named | None = None
    ranks, device = None, ""
    columns: list[_Columns] = []
    rows: list[_Parts] = []
    ratios: dict[str, list[float]] = {}  # of each table, of stated rates to size over time
    headers = 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        cells = _cells(line)
        if columns and cells and not all(re.fullmatch(r":?-*:?", cell) for cell in cells):
            if not _SUMMARY.match(cells[0]):
                for side, found in zip(columns, rows, strict=True):
                    if row := _markdown_row(cells, side.at, f"{where}:{number}", number, optional=len(columns) > 1):
                        found.setdefault(_part(cells, side.at), []).append(row)
                        ratios.setdefault(side.label, []).extend(_ratio(cells, side, row))
        elif not cells:
            headers += any(rows)
            for side, found in zip(columns, rows, strict=True):
                for (collective, count), part in found.items():
                    of = Named(collective, sure=True) if collective else named
                    table = _markdown_table(part, of, count or ranks, device, where, headers)
                    words = [side.label] if len(columns) > 1 else []
                    of_ranks = f" of {count}" if count else ""
                    words += [f"{collective or table.collective}{of_ranks}"] if len(found) > 1 else []
                    named_so = replace(table, name=", ".join((table.name, *words)))
                    tables.append(_beside_its_rate(named_so, ratios.get(side.label, ())))
            columns, rows, ratios = [], [], {}
            named = named_in(line) or named
            ranks = int(over[1]) if (over := _OVER.search(line)) else ranks
            device = said[1] if (said := _DEVICE.search(line)) else device
        elif not columns:
            columns = _markdown_columns(cells, f"{where}:{number}")
            rows = [{} for _ in columns]
    return tables


def _cells(line: str) -> list[str]:
    """Return the cells of a row of a table, a dash for a rule of signs, [] for another line."""
    if _RULE.match(unquoted(line)):
        return ["-"]
    bare = unquoted(line).strip()
    bare = bare if bare.startswith("|") else line.strip()  # a first cell looks like the name of a container
    return [cell.strip(" \t*`") for cell in bare.strip("|").split("|")] if bare.count("|") > 1 else []


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of one table of a header: of each place what stands there and its unit."""

    label: str
    at: Mapping[int, tuple[str, str]]
    rate: tuple[int, str] | None = None  # the place and unit of a bandwidth that is called neither algbw nor busbw


_Parts = dict[tuple[str, int | None], list[Parsed]]  # rows by the collective and the ranks that their cells name


def _ratio(cells: Sequence[str], columns: _Columns, row: Parsed) -> list[float]:
    """Return how many times the size over the time the rate is that a row states, [] where it states none."""
    said = _rate(cells[columns.rate[0]], columns.rate[1]) if columns.rate and columns.rate[0] < len(cells) else None
    return [float(said) * 1e9 * row.time_s / row.bytes] if said and row.bytes and float(said) else []


def _beside_its_rate(table: ReadTable, ratios: Sequence[float]) -> ReadTable:
    """Return a table with a note where its bandwidths are not size over time; where no busbw is so much, unjudged."""
    usual = median(ratios) if ratios else 1.0
    if abs(usual - 1) <= _AS_STATED:
        return table
    said = (
        f"its column of bandwidths says {usual:.3g} times the size over the time: what a size or a bandwidth counts "
        "there is not said"
    )
    most = bus_factor(table.collective, MOST_RANKS) if table.collective else 0.0
    return replace(table, notes=(*table.notes, said), unjudged=said if usual > (1 + _AS_STATED) * most else "")


def _part(cells: Sequence[str], columns: Mapping[int, tuple[str, str]]) -> tuple[str, int | None]:
    """Return the collective and the ranks that the cells of a row name, "" and None where none does."""
    said = {kind: cells[place] for place, (kind, _) in columns.items() if kind in _PARTS and place < len(cells)}
    named, ranks = named_in(said.get("collective", "")), said.get("ranks", "")
    return named.collective if named else "", int(ranks) if re.fullmatch(r"\d{1,6}", ranks) else None


def _markdown_columns(cells: Sequence[str], at: str) -> list[_Columns]:
    """Return the columns of each table below a header: a time or a bandwidth for the second time begins another."""
    shared: dict[int, tuple[str, str]] = {}
    sides: list[tuple[str, dict[int, tuple[str, str]]]] = []
    for place, cell in enumerate(cells):
        kind, unit = _heading(cell)
        if kind in _FIGURES:
            if not sides or kind in {known for known, _ in sides[-1][1].values()}:
                sides.append((re.sub(r"\s*[(\[][^)\]]*[)\]]\s*$", "", cell).strip(), {}))
            sides[-1][1][place] = (kind, unit)
        elif kind and kind not in {known for known, _ in shared.values()}:
            shared[place] = (kind, unit)
    usable = [(label, found) for label, found in sides if {kind for kind, _ in found.values()} & {"time", "algbw"}]
    labels = [label for label, _ in usable]  # in place stands below the same words as out of place, and is not read
    first = [side for n, side in enumerate(usable) if side[0] not in labels[:n]]
    if "size" not in {kind for kind, _ in shared.values()} or not first:
        return []
    for _, found in first:
        units = dict(found.values())
        if "time" in units and not units["time"] and "algbw" not in units:
            raise InputError(f"{at}: a column of times without a unit: expected time (us), or an algbw beside it")
    rates = {m["whose"]: (place, m["unit"]) for place, cell in enumerate(cells) if (m := _SOME_RATE.match(cell))}
    named = {kind for _, found in first for kind, _ in found.values()} & {"algbw", "busbw"}
    return [
        _Columns(
            label, shared | found, None if named else rates.get(label.rpartition(" ")[0] if len(first) > 1 else "")
        )
        for label, found in first
    ]


def _heading(cell: str) -> tuple[str, str]:
    """Return what a column of a header holds, "" for what is of no use, and its unit."""
    if part := next((kind for kind, pattern in _PARTS.items() if pattern.match(cell)), ""):
        return part, ""
    if each := _EACH.fullmatch(cell.strip()):
        return "time", each[1]
    match = _CELL.match(cell)
    if match is None and (_SPREAD.search(cell) or (match := _OF_ONE.match(cell)) is None):
        return "", ""
    word, unit = (match[1] or "").lower(), (match[2] or "").strip()
    if re.fullmatch(_BANDWIDTHS, word):
        return ("algbw" if word.startswith("alg") else "busbw"), unit
    if not word:
        return ("time" if unit.lower() in _TIMES else ""), unit
    return _KINDS.get(word, word.lstrip("#")), unit


def _markdown_row(
    cells: Sequence[str], columns: Mapping[int, tuple[str, str]], at: str, line: int, *, optional: bool = False
) -> Parsed | None:
    """Return a row; None where its figures are `optional` and blank, as of one that could not run a size."""
    values = {kind: (cells[place] if place < len(cells) else "", unit) for place, (kind, unit) in columns.items()}
    if optional and not any(re.match(r"[\d.]", values[key][0]) for key in _FIGURES if key in values):
        return None
    algbw, busbw = (_rate(*values.get(key, ("", ""))) for key in ("algbw", "busbw"))
    try:
        size = _size(*values["size"])
        if "time" in values:
            words, unit = values["time"]
            time_s = float(words.replace(",", "")) * _TIMES[unit.lower() or "us"]  # by the check below where not said
        else:
            time_s = size / (float(algbw or "") * 1e9)
    except (KeyError, ValueError, ZeroDivisionError):
        raise InputError(f"{at}: expected a size in bytes, and a time in us or an algbw in GB/s") from None
    if not 0 < time_s < 1e6:
        raise InputError(f"{at}: expected a time above 0")
    if (
        algbw
        and not _agree(size, time_s, algbw)
        and _agree(decimal := _size(*values["size"], step=1000), time_s, algbw)
    ):
        size = decimal  # "MB" is 1e6 bytes where nothing else fits
    if algbw and size and not _agree(size, time_s, algbw):
        raise InputError(f"{at}: algbw {algbw} GB/s x time is not the size {size} B")
    wrong = values.get("wrong", ("", ""))[0]
    kind, count, redop, root = _elements(values, size)
    return Parsed(
        line=line, lead="", bytes=size, count=count, type=kind, redop=redop, root=root,
        time_s=time_s, algbw=algbw, busbw=busbw, wrong=int(wrong) if wrong.isdecimal() else None, in_place_checked=None,
    )  # fmt: skip


def _agree(size: int, time_s: float, algbw: str) -> bool:
    """Return whether GB/s are a size over a time, but for rounding."""
    said = size / time_s / 1e9
    return abs(float(algbw) - said) <= 0.01 * said + 0.006


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


def _size(text: str, unit: str, step: int = 1024) -> int:
    """Return the bytes of a cell; of kB, MB and GB one is `step` of the one below."""
    match = re.fullmatch(r"([\d,]+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if match is None:
        raise ValueError(text)
    word = (match[2] or unit or "b").lower()
    scale = _SIZES.get(word, _SIZES.get(f"{word}b"))
    if scale is None:
        raise ValueError(text)
    if "i" not in word and scale > 1:
        scale = step ** round(math.log(scale, 1024))
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
