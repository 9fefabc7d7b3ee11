"""Kernel times as `nsys stats` prints them: seconds that a rank communicated and that it computed."""

import csv
import io
import re
from collections.abc import Iterator

from .facts import Fact, KernelTimes
from .lines import FileHint
from .where import Where

_COMMUNICATES = re.compile(
    r"nccl|rccl|oneccl|nvshmem|deep_ep|cross_device_reduce|multimem|allreduce|all_reduce", re.IGNORECASE
)
_TABLE_ROW = re.compile(r"^\s*[\d.]+\s+(?P<total>[\d,]+)\s+(?P<count>[\d,]+)\s+(?:[\d,.]+\s+){3,}(?P<name>\S.*)$")


def is_table(text: str) -> bool:
    """Whether a text is a summary of kernels by `nsys stats`, as CSV or as a table."""
    head = text[:2000]
    return "Total Time (ns)" in head and "Instances" in head


def read(text: str, *, file: str, order: int, hint: FileHint) -> Iterator[Fact]:
    """Yield the sums of one rank's file."""
    communication_ns = compute_ns = 0
    calls = 0
    for total_ns, count, name in _rows(text):
        if _COMMUNICATES.search(name):
            communication_ns += total_ns
            calls += count
        else:
            compute_ns += total_ns
    if not communication_ns and not compute_ns:
        return
    shown = f"kernels that communicate: {communication_ns / 1e6:.3f} ms in {calls}; others: {compute_ns / 1e6:.3f} ms"
    yield KernelTimes(
        rank=hint.rank,
        communication_s=communication_ns / 1e9,
        communication_calls=calls,
        compute_s=compute_ns / 1e9,
        where=Where(file, 1, shown, None, None, order, hint.rank),
    )


def _rows(text: str) -> Iterator[tuple[int, int, str]]:
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if "Total Time (ns)" in line), None)
    if start is None:
        return
    if "," in lines[start]:
        for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
            total, count, name = row.get("Total Time (ns)"), row.get("Instances"), row.get("Name")
            if total and count and name and re.fullmatch(r"[\d.]+", total) and count.isdecimal():
                yield int(float(total)), int(count), name
        return
    for line in lines[start + 1 :]:
        match = _TABLE_ROW.match(line)
        if match:
            yield int(match["total"].replace(",", "")), int(match["count"].replace(",", "")), match["name"]
