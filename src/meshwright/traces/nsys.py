"""The SQLite export of Nsight Systems (`nsys export --type sqlite`): kernels, copies, CUDA calls and NVTX ranges.

Tables are made by nsys as they are needed, and columns were added over the years; only those that all versions since
2020 have are read. NCCL marks its calls as ranges in an NVTX domain of its own; their sizes are not in the export.
Steps are ranges that count ("step 12", "iteration_12", "ProfilerStep#12"), or one name that returns again and again.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ..errors import InputError
from .collector import COPY, DEVICE, SET, Collector, Process, Record
from .events import Head
from .names import collective
from .opening import Source

MAGIC = b"SQLite format 3\x00"
_KERNELS, _RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
_COPIES, _SETS, _RANGES = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "NVTX_EVENTS"
# kinds of a copy, as CUPTI numbers them (CUpti_ActivityMemcpyKind)
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
               10: "PtoP"}  # fmt: skip
_LASTING = (59, 60)  # NVTX ranges that were pushed and popped, or started and ended
_COUNTED = re.compile(
    r"(?:profiler|train(?:ing)?|global)?[\s_-]*(?:step|iter(?:ation)?|batch)[\s_#:=-]*(\d{1,9})", re.IGNORECASE
)
_UNCOUNTED = re.compile(r"(?:train(?:ing)?[\s_-]*)?(?:step|iter(?:ation)?)", re.IGNORECASE)


def collected(source: Source) -> tuple[Collector, Head, str]:
    """Return the events of an export, what stands beside them, and a note for the reader; InputError if it is none."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(source.path))}?mode=ro&immutable=1", uri=True)
        try:
            return _read(source, connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise InputError(f"{source}: not an SQLite export of nsys: {error}") from None


def _read(source: Source, connection: sqlite3.Connection) -> tuple[Collector, Head, str]:
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    if _KERNELS not in tables:
        raise InputError(f"{source}: no {_KERNELS} in it; expected an export of a profile with --trace=cuda,nvtx")
    found = Collector()
    strings = dict(connection.execute("SELECT id, value FROM StringIds")) if "StringIds" in tables else {}
    for table, kind in ((_KERNELS, DEVICE), (_COPIES, COPY), (_SETS, SET)):
        if table in tables:
            _device(connection, table, kind, strings, found)
    if _RUNTIME in tables:
        _runtime(connection, strings, found)
    if _RANGES in tables:
        _ranges(connection, strings, found)
    return found, _head(connection, tables), _label(found)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _rows(connection: sqlite3.Connection, table: str, wanted: dict[str, str]) -> Iterator[tuple[Any, ...]]:
    """Yield the wanted columns of a table, {column: what stands for it where this version has none}."""
    present = _columns(connection, table)
    chosen = ", ".join(f'"{name}"' if name in present else otherwise for name, otherwise in wanted.items())
    yield from connection.execute(f"SELECT {chosen} FROM {table}")


def _process(found: Collector, global_id: int | None) -> Process:
    """Return the process that a globalPid or globalTid means: bits 24 to 47 are its number."""
    return found.processes.setdefault(((global_id or 0) >> 24) & 0xFFFFFF, Process())


def _device(connection: sqlite3.Connection, table: str, kind: int, strings: dict[int, str], found: Collector) -> None:
    columns = {"start": "0", "end": "0", "deviceId": "0", "streamId": "0", "correlationId": "-1", "globalPid": "0"}
    columns |= {"demangledName": "NULL", "shortName": "NULL", "copyKind": "0", "bytes": "0"}
    for start, end, device, stream, link, pid, name, short, copy, size in _rows(connection, table, columns):
        process = _process(found, pid)
        if kind == DEVICE:
            text = strings.get(name) or strings.get(short) or "kernel"
        else:
            text = f"Memcpy {_COPY_KINDS.get(copy, '')}" if kind == COPY else "Memset"
        if end < start:
            continue
        if kind == COPY:
            process.copied[len(process.kinds)] = size or 0
        process.kinds.append(kind)
        process.device.add(start * 1e-3, end * 1e-3, found.named(text), found.thread(stream), link)
        process.externals.append(-1)
        process.devices.append(device)


def _runtime(connection: sqlite3.Connection, strings: dict[int, str], found: Collector) -> None:
    columns = {"start": "0", "end": "0", "globalTid": "0", "correlationId": "-1", "nameId": "NULL"}
    for start, end, tid, link, name in _rows(connection, _RUNTIME, columns):
        if end is None or end < start:
            continue
        text = strings.get(name, "")
        process = _process(found, tid)
        process.launches.add(start * 1e-3, end * 1e-3, found.named(text), found.thread(tid), link)
        found.special(process, text, start * 1e-3, end * 1e-3)


def _ranges(connection: sqlite3.Connection, strings: dict[int, str], found: Collector) -> None:
    columns = {"start": "0", "end": "NULL", "eventType": "59", "globalTid": "0", "text": "NULL", "textId": "NULL"}
    again: Counter[tuple[int, str]] = Counter()
    steps: list[tuple[Process, tuple[int, str], float, float]] = []
    for start, end, kind, tid, text, text_id in _rows(connection, _RANGES, columns):
        said = (text or strings.get(text_id, "")).strip()
        if end is None or end < start or kind not in _LASTING or not said:
            continue
        process, begins, ends = _process(found, tid), start * 1e-3, end * 1e-3
        counted = _COUNTED.fullmatch(said)
        if counted:
            process.marks.append((begins, ends, int(counted[1])))
        elif _UNCOUNTED.fullmatch(said):
            key = (((tid or 0) >> 24) & 0xFFFFFF, said)
            again[key] += 1
            steps.append((process, key, begins, ends))
        elif said.startswith(("nccl", "rccl")) and collective(said) != "communication":
            process.records.append(Record(begins, ends, found.thread(tid), f"nccl:{said}", -1, None))
        else:
            found.special(process, said, begins, ends)
    _number(steps, again)


def _number(steps: list[tuple[Process, tuple[int, str], float, float]], again: Counter[tuple[int, str]]) -> None:
    """Count the ranges of one name as steps, where no range counts by itself and the name returns."""
    chosen = {pid: name for (pid, name), count in reversed(again.most_common()) if count > 1}
    numbers: Counter[int] = Counter()
    counted = {id(process) for process, *_ in steps if process.marks}
    for process, (pid, name), begins, ends in sorted(steps, key=lambda step: step[2]):
        if id(process) not in counted and chosen.get(pid) == name:
            process.marks.append((begins, ends, numbers[pid]))
            numbers[pid] += 1


def _head(connection: sqlite3.Connection, tables: set[str]) -> Head:
    base_ns, host = 0, ""
    if "TARGET_INFO_SESSION_START_TIME" in tables:
        row = next(_rows(connection, "TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": "0"}), None)
        base_ns = int(row[0] or 0) if row else 0
    if "TARGET_INFO_SYSTEM_ENV" in tables:
        columns = {"name": "NULL", "value": "NULL"}
        host = next((str(v) for n, v in _rows(connection, "TARGET_INFO_SYSTEM_ENV", columns) if n == "Hostname"), "")
    return Head(base_ns=base_ns, host=host)


def _label(found: Collector) -> str:
    """Name the processes that used devices rank 0, 1, … where there are several; return what a reader must know."""
    used = {pid: min(process.devices) for pid, process in found.processes.items() if process.device.starts}
    if len(used) < 2:
        return ""
    for rank, pid in enumerate(sorted(used, key=lambda pid: (used[pid], str(pid)))):
        found.processes[pid].label = f"rank {rank}"
    return "the processes of this export are taken as ranks in the order of their devices"
