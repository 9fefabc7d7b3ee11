"""Tables of NVSHMEM's perftests of collectives, on the stream and in kernels.

Since one function counts their sizes (calculate_collective_size of its utils.cu) a size is the whole payload of a rank
and algbw x time is that size. Before, tables of kernels (named alltoall_latency, not alltoall_device) counted what goes
to one PE, and the text does not tell which it was (NVIDIA/nvshmem issue 28). With NVSHMEM_MACHINE_READABLE_OUTPUT each
figure is a line of its own: "&&&& PERF reduction_on_stream___int-sum___size__8___latency 7.19 -us".
"""

import re
from collections.abc import Mapping, Sequence

from ...collectives.pricing.figures import bus_factor
from ...errors import InputError
from ..table import Row
from .columns import WIDTHS, Parsed, half_digit, is_plain
from .identify import MOST_RANKS, SHARED, Named, TableIdentity, identify
from .prefixes import clean_lines
from .tables import ReadTable

_HEAD = re.compile(r"\s*size\(B\)\s+count\s+type\s+(?:redop\s+)?(?:scope\s+)?latency\(us\)")
_NAME = re.compile(r"\s*#\s*(\w+)\s*$")
_LINE = re.compile(
    r"\s*&&&& PERF(?:_STATS)? (?P<name>(?!shmem_)\w+?)___(?P<kind>[\w-]+?)___size__(?P<size>\d{1,15})___latency "
    r"(?:(?P<value>[\d.]+) -us|-us mean=(?P<mean>[\d.]+)\b.*)\s*$"
)
_SCOPES = ("thread", "warp", "block")
_WIDTHS = {
    "32-bit": 4, "64-bit": 8, "long": 8, "longlong": 8, "ulonglong": 8, "size": 8, "ptrdiff": 8, "uint": 4, **WIDTHS,
}  # fmt: skip
_COLLECTIVES = {
    "reducescatter": "reduce_scatter", "alltoall": "all_to_all", "fcollect": "all_gather", "bcast": "broadcast",
    "broadcast": "broadcast", "reduction": "all_reduce",
}  # fmt: skip
_SLACK = 0.01


def read_nvshmem(text: str, where: str) -> list[ReadTable]:
    """Return a table for each of the text, type and scope; InputError for a row that contradicts itself."""
    tables: list[ReadTable] = []
    name, columns = "", list[str]()
    rows: list[tuple[int, dict[str, str]]] = []
    is_one = "latency(us)" in text or "___latency " in text
    for number, line in [*clean_lines(text), (0, "#end")] if is_one else ():
        if (one := _LINE.match(line)) and _collective(one["name"]):
            if rows and one["name"] != name:
                tables += _tables(name, rows, where)
                rows = []
            name, columns = one["name"], []
            rows.append((number, _of_line(one, f"{where}:{number}")))
            continue
        if columns and re.match(r"\s*\d", line):
            words = line.split()
            if len(words) != len(columns):
                raise InputError(f"{where}:{number}: expected {' '.join(columns)}")
            rows.append((number, dict(zip(columns, words, strict=True))))
            continue
        titled, is_head = _NAME.match(line), _HEAD.match(line) is not None
        if (titled or is_head) and rows:
            tables += _tables(name, rows, where)
            rows = []
        if titled:
            name, columns = titled[1], []
        elif is_head:
            columns = line.split()
    return tables


def _of_line(match: re.Match[str], at: str) -> dict[str, str]:
    """Return the cells of a line for programs as a table has them: its kind is "int-sum", "32-bit-warp"."""
    kind = match["kind"]
    scope = next((scope for scope in _SCOPES if kind.endswith(f"-{scope}")), "")
    kind = kind.removesuffix(f"-{scope}") if scope else kind
    dtype = next((known for known in _WIDTHS if kind == known or kind.startswith(f"{known}-")), None)
    if dtype is None:
        raise InputError(f"{at}: type {kind[:40]!r}, expected one of {', '.join(_WIDTHS)}")
    cells = {
        "size(B)": match["size"], "count": str(int(match["size"]) // _WIDTHS[dtype]), "type": dtype,
        "redop": kind[len(dtype) + 1 :], "scope": scope, "latency(us)": match["value"] or match["mean"],
    }  # fmt: skip
    return {key: cell for key, cell in cells.items() if cell}


def _collective(name: str) -> str | None:
    return next((its for word, its in _COLLECTIVES.items() if word in name), None)


def _tables(name: str, rows: Sequence[tuple[int, dict[str, str]]], where: str) -> list[ReadTable]:
    kinds: dict[tuple[str, ...], list[Parsed]] = {}
    for number, values in rows:
        kind = (values["type"], values.get("redop", ""), values.get("scope", ""))
        kinds.setdefault(kind, []).append(_row(values, f"{where}:{number}", number))
    return [_table(name, kind, found, where) for kind, found in kinds.items()]


def _row(values: Mapping[str, str], at: str, number: int) -> Parsed:
    """Return a row; its type stays as printed, for "32-bit" is none that others know."""
    figures = [value for key, value in values.items() if key.endswith(("(B)", "count", "(us)", "(GB/s)"))]
    if not all(is_plain(value) or value == "NA" for value in figures):
        raise InputError(f"{at}: expected figures, found {' '.join(figures)}")
    size, count, time_us = (
        float(values[key]) if is_plain(values[key]) else 0.0 for key in ("size(B)", "count", "latency(us)")
    )
    algbw, busbw = (word if is_plain(word := values.get(f"{key}(GB/s)", "")) else "" for key in ("algbw", "busbw"))
    if size < 1 or count < 1 or size % count or not 0 < time_us < 1e12:
        raise InputError(f"{at}: expected a size that is a multiple of the count, and a time above 0")
    said = size / time_us / 1e3
    if algbw and abs(float(algbw) - said) > half_digit(algbw) + _SLACK * said:
        raise InputError(
            f"{at}: algbw {algbw} GB/s x time is not the size: {size:.0f} B in {time_us:g} us are {said:.4g} GB/s"
        )
    return Parsed(
        line=number, lead=str(int(size // count)), bytes=int(size), count=0, type=values["type"],
        redop=values.get("redop", "none").lower(), root=None, time_s=time_us * 1e-6, algbw=algbw or None,
        busbw=busbw or None, wrong=None, in_place_checked=None,
    )  # fmt: skip


def _table(name: str, kind: Sequence[str], rows: Sequence[Parsed], where: str) -> ReadTable:
    collective = _collective(name)
    _check(rows, collective, where)
    known = identify(rows, Named(collective, sure=True) if collective else None, None, None, where)
    of_a_share = collective in SHARED and name.endswith("_latency")
    return ReadTable(
        name=" ".join(word for word in (name or "table", *kind) if word), tool="NVSHMEM perftest",
        collective=known.collective, ranks=known.ranks, ranks_range=known.ranks_range, candidates=known.candidates,
        notes=known.notes, rows=tuple(_known(row, known) for row in rows),
        unjudged=f"what a size of {name} counts differs by version of NVSHMEM: the whole payload, or one PE's share"
        if of_a_share else "",
    )  # fmt: skip


def _check(rows: Sequence[Parsed], collective: str | None, where: str) -> None:
    """Raise InputError for a bus bandwidth above what the collective has of however many PEs."""
    for row in rows if collective else ():
        if row.algbw and row.busbw:
            most = bus_factor(collective or "", MOST_RANKS) * (float(row.algbw) + half_digit(row.algbw)) * (1 + _SLACK)
            if float(row.busbw) - half_digit(row.busbw) > most:
                raise InputError(
                    f"{where}:{row.line}: busbw {row.busbw} over algbw {row.algbw} is more than {collective} has"
                )


def _known(row: Parsed, known: TableIdentity) -> Row:
    stated = float(row.busbw or 0) * 1e9
    return Row(
        collective=known.collective, backend="nvshmem", ranks=known.ranks, bytes=row.bytes, time_s=row.time_s,
        dtype=row.type, element_bytes=int(row.lead), redop=row.redop, stated_busbw_bytes_per_s=stated or None,
    )  # fmt: skip
