"""Copies between a GPU and its host: bandwidthTest of the CUDA samples, Comm|Scope and others of Google's benchmark.

bandwidthTest prints a table for each direction, or lines for scripts (--csv). Google's benchmark adds counters to each
row; its bytes per second have binary prefixes ("22.4Gi/s"), its other counters decimal ones ("268.435M").
"""

import math
import re
from collections.abc import Iterator

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
_UNITS = {"MB": 1e6, "GB": 1e9}  # of that tool: both decimal (bandwidthTest.cu divides by 1e9)
_LOCAL = "what a GPU copies within its own memory, read and written, over no link"
_PAGEABLE = "pageable memory, which the host copies once more before the GPU reads it: pinned memory would tell"

_COUNTED = re.compile(
    r"^(?P<name>[A-Za-z]\w{1,100}(?:/[^\s/]{1,60}){0,9})\s+(?P<time>[\d.e+]{1,20}) (?P<unit>ns|us|ms|s)\s.*"
    r"\bbytes_per_second=(?P<rate>\d{1,9}(?:\.\d{1,9})?)(?P<prefix>[kKMGT]?i?)/s(?P<more>.*)$"
)
_BYTES = re.compile(r"\bbytes=(?P<count>\d{1,15}(?:\.\d{1,9})?)(?P<prefix>[kKMGT]?i?)\b")
_ENDS = re.compile(r"\b(?P<kind>numa|cuda|hip|src|dst|gpu)_?(?:id|numa|gpu)?=(?P<number>\d{1,4})\b")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_TOLD = 0.02  # by which a rounded time may be off


def read_host_copies(text: str, where: str) -> list[ReadTable]:
    """Return a table for each direction and kind of memory of bandwidthTest, one for each copy of Comm|Scope."""
    return [*_bandwidth_test(text), *_counted(text)]


def _bandwidth_test(text: str) -> list[ReadTable]:
    found: dict[tuple[str, str, int], list[Rate]] = {}
    devices: dict[str, str] = {}
    for way, memory, count, rate in _transfers(text, devices):
        found.setdefault((way, memory, count), []).append(rate)
    return [_table(way, memory, count, rates, devices) for (way, memory, count), rates in found.items()]


def _table(way: str, memory: str, count: int, rates: list[Rate], devices: dict[str, str]) -> ReadTable:
    local = way == "Device to Device"
    several = f"{count} devices added up" if count > 1 else ""
    kinds = [word for word in (way, f"{memory} memory" if memory and not local else "", several) if word]
    return ReadTable(
        name=", ".join(kinds), tool="bandwidthTest", rates=tuple(rates), devices=tuple(devices.values()),
        host=not local and count == 1, unjudged=_LOCAL if local else several,
        bounds=_PAGEABLE if memory == "pageable" else "",
    )  # fmt: skip


def _transfers(text: str, devices: dict[str, str]) -> Iterator[tuple[str, str, int, Rate]]:
    """Yield direction, memory, devices and rate of each row; the names of the devices are added to `devices`."""
    way, memory, count, unit = "", "", 1, 0.0
    is_its = "[CUDA Bandwidth Test]" in text or "bandwidthTest" in text
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
            yield (
                way,
                memory,
                count,
                Rate(what=way, rate_bytes_per_s=float(row["rate"]) * unit, bytes=int(row["bytes"])),
            )
        elif said := _LINE.match(line.strip()):
            rate = float(said["rate"]) * _UNITS[said["unit"]]
            its = _WAYS[said["way"]]
            pair = Rate(what=its, rate_bytes_per_s=rate, bytes=int(said["bytes"]))
            yield its, (said["memory"] or "").lower(), int(said["count"]), pair


def _counted(text: str) -> list[ReadTable]:
    """Return a table for each benchmark of Google's library whose rows count bytes per second."""
    found: dict[str, list[Rate]] = {}
    doubts: dict[str, list[str]] = {}
    for line in text.splitlines() if "bytes_per_second=" in text else ():
        match = _COUNTED.match(line.strip())
        if match is None:
            continue
        name, rate = match["name"].split("/")[0], float(match["rate"]) * _power(match["prefix"])
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
            name=name, tool="google-benchmark", rates=tuple(rates),
            notes=tuple(f"{row}: its rate is not its bytes over its time" for row in doubts.get(name, ())[:1]),
        )
        for name, rates in found.items()
    ]  # fmt: skip


def _size(count: str, prefix: str) -> float:
    """Return a counter of bytes: the power of two that is printed so, where one is, else the figure as printed."""
    size = float(count) * _power(prefix)
    whole = 2.0 ** round(math.log2(size)) if size >= 1 else size
    digits = len(count.partition(".")[2])
    return whole if f"{whole / _power(prefix):.{digits}f}" == count else size


def _power(prefix: str) -> float:
    base = 1024.0 if prefix.endswith("i") else 1000.0
    return base ** ("KMGT".find(prefix[:1].upper()) + 1 if prefix else 0)
