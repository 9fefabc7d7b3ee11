"""Copies between a GPU and its host: bandwidthTest of the CUDA samples, and Comm|Scope.

bandwidthTest prints a table for each direction, or lines for scripts (--csv). Comm|Scope's rows are those of Google's
benchmark with counters: bytes per second are scaled by 1024, also where an old version leaves the i out ("22.4G/s"),
other counters by 1000 ("268.435M"), in the oldest by 1024 too.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from .tables import Rate, ReadTable

_SECTION = re.compile(
    r"^\s*(?P<way>Host to Device|Device to Host|Device to Device) Bandwidth, (?P<count>\d{1,3}) Device\(s\)"
)
_MEMORY = re.compile(r"^\s*(?P<memory>PINNED|PAGEABLE|WRITE-COMBINED PINNED)? ?Memory Transfers\s*$", re.I)
_HEADER = re.compile(r"^\s*Transfer Size \(Bytes\)\s+Bandwidth\((?P<unit>[GM]B)/s\)\s*$")
_ROW = re.compile(r"^\s*(?P<bytes>\d{1,15})\s+(?P<rate>\d{1,9}(?:\.\d{1,9})?)\s*$")
# bandwidthTest-H2D-Pinned, Bandwidth = 25.1 GB/s, Time = 0.00127 s, Size = 32000000 bytes, NumDevsUsed = 1
_LINE = re.compile(
    r"^bandwidthTest-(?P<way>H2D|D2H|D2D)(?:-(?P<memory>\w{1,20}))?, Bandwidth = (?P<rate>\d{1,9}(?:\.\d{1,9})?) "
    r"(?P<unit>[GM]B)/s, Time = \S+ s, Size = (?P<bytes>\d{1,15}) bytes, NumDevsUsed = (?P<count>\d{1,3})"
)
_WAYS = {"H2D": "Host to Device", "D2H": "Device to Host", "D2D": "Device to Device"}
_DEVICE = re.compile(r"^\s*Device (?P<number>\d{1,3}): (?P<name>\S.*?)\s*$")
_UNITS = {"MB": 2.0**20, "GB": 1e9}  # as bandwidthTest.cu divides
_MEBI = "MB/s of this version are MiB/s, and in some (1 << 10 in place of 1e3) 2.3 % less"
_LOCAL = "what a GPU copies within its own memory, read and written, over no link"
_PAGEABLE = "pageable memory, which the host copies once more before the GPU reads it: pinned memory would tell"

_COUNTED = re.compile(
    r"^(?P<name>Comm_\w{1,100}(?:/[^\s/]{1,60}){0,9})\s+(?P<time>[\d.e+]{1,20}) (?P<unit>ns|us|ms|s)\s.*"
    r"\bbytes_per_second=(?P<rate>\d{1,9}(?:\.\d{1,9})?)(?P<prefix>[kKMGT]?i?)/s(?P<more>.*)$"
)
_BYTES = re.compile(r"\bbytes=(?P<count>\d{1,15}(?:\.\d{1,9})?)(?P<prefix>[kKMGT]?i?)\b")
_ENDS = re.compile(r"\b(?P<kind>numa|cuda|hip|src|dst|gpu)_?(?:id|numa|gpu)?=(?P<number>\d{1,4})\b")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_TOLD = 0.02  # by which a rounded time may be off


def read_host_copies(text: str, where: str) -> list[ReadTable]:
    """Return a table for each direction and kind of memory of bandwidthTest, one for each kind of Comm|Scope."""
    return [*_bandwidth_test(text), *_counted(text)]


def _bandwidth_test(text: str) -> list[ReadTable]:
    found: dict[tuple[str, str, int], list[Rate]] = {}
    devices: dict[str, str] = {}
    units: set[float] = set()
    for way, memory, count, unit, (size, figure) in _transfers(text, devices):
        units.add(unit)
        rate = Rate(what=way, rate_bytes_per_s=figure * unit, bytes=size)
        found.setdefault((way, memory, count), []).append(rate)
    notes = (_MEBI,) if _UNITS["MB"] in units else ()
    return [_table(key, rates, devices, notes) for key, rates in found.items()]


def _table(
    key: tuple[str, str, int], rates: Sequence[Rate], devices: Mapping[str, str], notes: tuple[str, ...]
) -> ReadTable:
    way, memory, count = key
    local = way == "Device to Device"
    several = f"{count} devices added up" if count > 1 else ""
    kinds = [word for word in (way, f"{memory} memory" if memory and not local else "", several) if word]
    return ReadTable(
        name=", ".join(kinds), tool="bandwidthTest", rates=tuple(rates), devices=tuple(devices.values()),
        host=not local and count == 1, unjudged=_LOCAL if local else several,
        bounds=_PAGEABLE if memory == "pageable" else "", notes=notes,
    )  # fmt: skip


def _transfers(text: str, devices: dict[str, str]) -> Iterator[tuple[str, str, int, float, tuple[int, float]]]:
    """Yield direction, memory, number of devices, unit, and bytes and figure of each row; names go to `devices`."""
    way, memory, count, unit = "", "", 1, 0.0
    is_its = " Device(s)" in text or "bandwidthTest-" in text
    for line in text.splitlines() if is_its else ():
        if device := _DEVICE.match(line):
            devices[device["number"]] = device["name"]
        elif section := _SECTION.match(line):
            way, memory, count, unit = section["way"], "", int(section["count"]), 0.0
        elif way and (kind := _MEMORY.match(line)):
            memory = (kind["memory"] or "").lower()
        elif way and (header := _HEADER.match(line)):
            unit = _UNITS[header["unit"]]
        elif unit and (row := _ROW.match(line)):
            yield way, memory, count, unit, (int(row["bytes"]), float(row["rate"]))
        elif said := _LINE.match(line.strip()):
            row_unit, its = _UNITS[said["unit"]], (int(said["bytes"]), float(said["rate"]))
            yield _WAYS[said["way"]], (said["memory"] or "").lower(), int(said["count"]), row_unit, its


def _counted(text: str) -> list[ReadTable]:
    """Return a table for each benchmark of Comm|Scope whose rows count bytes per second."""
    found: dict[str, list[Rate]] = {}
    doubts: dict[str, list[str]] = {}
    for line in text.splitlines() if "bytes_per_second=" in text else ():
        match = _COUNTED.match(line.strip())
        if match is None:
            continue
        name, rate = match["name"].split("/")[0], float(match["rate"]) * _power(match["prefix"], 1024)
        counted = _BYTES.search(line)
        size = _size(counted["count"], counted["prefix"]) if counted else 0.0
        ends = ", ".join(f"{end['kind']} {end['number']}" for end in _ENDS.finditer(line))
        rates = found.setdefault(name, [])
        rates.append(Rate(what=ends or match["name"], rate_bytes_per_s=rate, bytes=round(size) or None))
        by_time = size / (float(match["time"]) * _SECONDS[match["unit"]]) if size else rate
        if abs(by_time / rate - 1) > _TOLD:
            doubts.setdefault(name, []).append(match["name"])
    return [
        ReadTable(
            name=name, tool="comm_scope", rates=tuple(rates),
            notes=tuple(f"{row}: its rate is not its bytes over its time" for row in doubts.get(name, ())[:1]),
        )
        for name, rates in found.items()
    ]  # fmt: skip


def _size(count: str, prefix: str) -> float:
    """Return a counter of bytes: the power of two that is printed so, where one is, else the figure as printed."""
    digits = len(count.partition(".")[2])
    for base in (1000, 1024):
        size = float(count) * _power(prefix, base)
        whole = 2.0 ** round(math.log2(size)) if size >= 1 else size
        if f"{whole / _power(prefix, base):.{digits}f}" == count:
            return whole
    return float(count) * _power(prefix, 1024 if prefix.endswith("i") else 1000)


def _power(prefix: str, base: int) -> float:
    return float(base ** ("KMGT".find(prefix[:1].upper()) + 1 if prefix else 0))
