"""Records of rccl-tests (-Z json or -Z csv) and mscclpp-test: one a size, with ranks and nodes, of two in place too.

Built without MPI, rccl-tests count GPUs in the place of ranks and nodes. Built with it, some versions leave the nodes
out of the heading of a CSV whose rows have them (ROCm/rocm-systems pull request 6004).
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...collectives.pricing.figures import bus_factor
from ...errors import InputError
from ...files import sound
from ..table import COUNTED, Row
from .columns import WIDTHS
from .identify import MOST_RANKS, NAMES
from .tables import ReadTable

_HEADER = re.compile(
    r"^\W*(?:numCycle|name|collective)\b(?=[\w\s,#\"()]*\bgpus(?:PerRank)?\b)[\w\s,#\"()]*\bbusBw\b", re.I
)
_SLACK = 0.01


def read_rccl_records(text: str, where: str) -> list[ReadTable] | None:
    """Return the tables of such records, None where a text holds none."""
    if not re.search(r"\bbusBw\b", text, re.I) or not re.search(r"\b(?:ranksPerNode|gpus)\b", text, re.I):
        return None
    groups: dict[tuple[Any, ...], dict[int, tuple[bool, Row]]] = {}
    hosts: dict[tuple[Any, ...], tuple[str, ...]] = {}
    for number, record in enumerate([*_of_json(text), *_of_csv(text)], start=1):
        sound(record, where=where)
        try:
            row, in_place = _row(record, f"{where}: record {number}"), int(record.get("inplace") or 0) > 0
            kernel = str(record.get("kernel", ""))
            key = (row.collective, row.ranks, row.dtype, row.redop, str(record.get("numcycle") or ""), kernel)
            each = int(record.get("rankspernode") or 0)
        except (KeyError, OverflowError, TypeError, ValueError):
            raise InputError(
                f"{where}: record {number} of rccl-tests: expected name, ranks, size, time, algBw and busBw"
            ) from None
        rows = groups.setdefault(key, {})
        if row.bytes and (row.bytes not in rows or (rows[row.bytes][0] and not in_place)):
            rows[row.bytes] = (in_place, row)
        hosts[key] = tuple(f"node {rank // each}" for rank in range(row.ranks or 0)) if each else ()
    return [
        _table(key, [row for _, row in rows.values()], hosts[key], len(groups)) for key, rows in groups.items()
    ] or None


def _table(key: tuple[Any, ...], rows: list[Row], hosts: tuple[str, ...], groups: int) -> ReadTable:
    collective, ranks, kind, redop, cycle, kernel = key
    words = [str(collective), f"of {ranks}", kind, redop if redop != "none" else "", f"cycle {cycle}" if cycle else ""]
    words += [f"kernel {kernel}"] if kernel else []
    return ReadTable(
        name="table" if groups == 1 else " ".join(word for word in words if word),
        tool="mscclpp-test" if kernel else "rccl-tests",
        collective=collective, ranks=ranks, rows=tuple(rows), hosts=hosts, alone=1 if ranks == 1 else 0,
        wrong=max((row.wrong or 0 for row in rows), default=0),
    )  # fmt: skip


def _of_json(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a list, or of lines that each hold one; their keys in small letters."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = []
        for line in text.splitlines():
            bare = line.strip().lstrip("[").rstrip("],")
            if bare.startswith("{") and '"busBw"' in bare:
                try:
                    data.append(json.loads(bare))
                except (ValueError, RecursionError):
                    continue
    for record in data if isinstance(data, list) else (data,):
        if isinstance(record, dict) and "busBw" in record and {"ranksPerNode", "gpus"} & set(record):
            yield {key.lower(): value for key, value in record.items()}


def _of_csv(text: str) -> Iterator[Mapping[str, Any]]:
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if _HEADER.match(line)), len(lines))
    rows = csv.reader(lines[start:], skipinitialspace=True)
    names = [name.strip().lower() for name in next(rows, [])]
    for values in rows:
        if len(values) == len(names) + 1 and "ranks" in names and "nodes" not in names:
            names.insert(names.index("ranks"), "nodes")
        if len(values) != len(names):
            return
        yield {name: value.strip() for name, value in zip(names, values, strict=True)}


def _row(record: Mapping[str, Any], at: str) -> Row:
    said = str(record.get("name") or record["collective"])
    kind = str(record.get("type") or "float")
    wrong = str(record.get("wrong", record.get("#wrong", "")))
    size, time_s, algbw = int(record["size"]), float(record["time"]) * 1e-6, float(record["algbw"]) * 1e9
    if time_s <= 0:
        raise InputError(f"{at}: expected a time above 0")
    if not 1 <= (ranks := int(record["ranks"] if "ranks" in record else record["gpus"])) <= MOST_RANKS:
        raise InputError(f"{at}: expected 1 to {MOST_RANKS} ranks")
    if size and abs(algbw * time_s / size - 1) > _SLACK and abs(algbw - size / time_s) > 1e7:
        raise InputError(f"{at}: algBw {algbw / 1e9:g} GB/s x time is not the size {size} B")
    collective = NAMES.get(re.sub(r"[^a-z]", "", said.lower()), said)
    expected = bus_factor(collective, ranks) * algbw if collective in COUNTED else 0.0
    busbw = float(record["busbw"]) * 1e9
    if expected and abs(busbw - expected) > max(_SLACK * expected, 1e7):
        raise InputError(f"{at}: busBw {busbw / 1e9:g} GB/s is not that of {collective} of {ranks} ranks")
    return Row(
        collective=collective, backend="nccl", ranks=ranks,
        bytes=size, time_s=time_s, dtype=kind, element_bytes=WIDTHS.get(kind, 4),
        redop=str(record.get("redop") or "none"), wrong=int(wrong) if wrong.isdecimal() else None,
        stated_busbw_bytes_per_s=busbw,
    )  # fmt: skip
