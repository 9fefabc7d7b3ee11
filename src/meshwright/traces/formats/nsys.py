"""The SQLite export of Nsight Systems (`nsys export --type sqlite`): kernels, copies, CUDA calls and NVTX ranges.

Tables are made by nsys as they are needed, and columns were added over the years; only columns of all versions since
2020 are read. NCCL marks its calls as ranges in an NVTX domain of its own; their sizes are not in the export.
Steps are ranges that count ("step 12", "iteration_12", "ProfilerStep#12"), or one name that returns again and again.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ...errors import InputError
from .collector import COPY, DEVICE, SET, Collector, Process
from .events import TraceHead
from .opening import NoTrace, Source
from .ranges import Ranges, ranks_by_device

MAGIC = b"SQLite format 3\x00"
_KERNELS, _RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"  # whole CUDA graphs, which nsys records unless it is told otherwise
_COPIES, _SETS, _RANGES = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "NVTX_EVENTS"
# kinds of a copy, as CUPTI numbers them (CUpti_ActivityMemcpyKind)
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
               10: "PtoP"}  # fmt: skip
_STRINGS = {"id": "0", "value": "NULL"}
_TIMES = ("start", "end")
_LASTING = (59, 60)  # NVTX ranges that were pushed and popped, or started and ended


def collected(source: Source) -> tuple[Collector, TraceHead, str]:
    """Return the events of an export, what stands beside them, and a note for the reader; InputError if it is none."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(source.path))}?mode=ro&immutable=1", uri=True)
        try:
            return _read(source, connection)
        finally:
            connection.close()
    except (
        sqlite3.Error,
        UnicodeDecodeError,
    ) as error:  # the latter: damaged names in its message
        raise InputError(f"{source}: not an SQLite export of nsys: {error}") from None


def _read(source: Source, connection: sqlite3.Connection) -> tuple[Collector, TraceHead, str]:
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
    if not {_KERNELS, _GRAPHS} & tables:
        error = InputError if tables & {_RUNTIME, _RANGES, "StringIds"} else NoTrace
        raise error(f"{source}: no {_KERNELS} in it; expected an export of a profile with --trace=cuda,nvtx")
    found = Collector()
    strings = (
        {number: str(text) for number, text in _rows(connection, "StringIds", _STRINGS)}
        if "StringIds" in tables
        else {}
    )
    for table, kind in ((_KERNELS, DEVICE), (_COPIES, COPY), (_SETS, SET)):
        if table in tables:
            _device(connection, table, kind, strings, found)
    graphs = _graphs(connection, found) if _GRAPHS in tables else ""
    if _RUNTIME in tables:
        _runtime(connection, strings, found)
    if _RANGES in tables:
        _ranges(connection, strings, found)
    return found, _head(connection, tables), "; ".join(filter(None, (graphs, ranks_by_device(found))))


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _rows(connection: sqlite3.Connection, table: str, wanted: dict[str, str]) -> Iterator[tuple[Any, ...]]:
    """Yield the wanted columns of a table, {column: what stands for it where this version has none}."""
    present = _columns(connection, table)
    chosen = ", ".join(f'"{name}"' if name in present else otherwise for name, otherwise in wanted.items())
    kinds = [(str, int) if otherwise == "NULL" else (int,) for otherwise in wanted.values()]
    absent = [None if o == "NULL" or name in _TIMES else int(o) for name, o in wanted.items()]
    for row in connection.execute(f"SELECT {chosen} FROM {table}"):  # SQLite holds no column to its type
        if all(value is None or isinstance(value, kind) for value, kind in zip(row, kinds, strict=True)):
            yield tuple(other if value is None else value for value, other in zip(row, absent, strict=True))


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
        if start is None or end is None or end < start:
            continue
        if kind == COPY:
            process.copied[len(process.kinds)] = size or 0
        process.kinds.append(kind)
        process.device.add(start * 1e-3, end * 1e-3, found.named(text), found.thread(stream), link)
        process.externals.append(-1)
        process.devices.append(device)


def _graphs(connection: sqlite3.Connection, found: Collector) -> str:
    """Take the CUDA graphs that were recorded whole as computation; return what a reader must know of them."""
    columns = {"start": "0", "end": "0", "deviceId": "0", "streamId": "0", "correlationId": "-1", "globalPid": "0"}
    count = untimed = 0
    for start, end, device, stream, link, pid, graph in _rows(connection, _GRAPHS, columns | {"graphId": "0"}):
        count += 1
        if start is None or not end or end < start:  # CUPTI could not time it
            untimed += 1
            continue
        process = _process(found, pid)
        process.kinds.append(DEVICE)
        name = found.named(f"CUDA graph {graph}")
        process.device.add(start * 1e-3, end * 1e-3, name, found.thread(stream), link)
        process.externals.append(-1)
        process.devices.append(device)
    lost = f", {untimed} of them without times" if untimed else ""
    if not count:
        return ""
    return (
        f"{count} CUDA graphs were recorded as a whole{lost}: what communicates in them counts as computing; profile "
        "with --cuda-graph-trace=node to tell their kernels apart"
    )


def _runtime(connection: sqlite3.Connection, strings: dict[int, str], found: Collector) -> None:
    columns = {"start": "0", "end": "0", "globalTid": "0", "correlationId": "-1", "nameId": "NULL"}
    for start, end, tid, link, name in _rows(connection, _RUNTIME, columns):
        if start is None or end is None or end < start:
            continue
        text = strings.get(name, "")
        process = _process(found, tid)
        process.launches.add(start * 1e-3, end * 1e-3, found.named(text), found.thread(tid), link)
        found.special(process, text, start * 1e-3, end * 1e-3)


def _ranges(connection: sqlite3.Connection, strings: dict[int, str], found: Collector) -> None:
    columns = {"start": "0", "end": "NULL", "eventType": "59", "globalTid": "0", "text": "NULL", "textId": "NULL"}
    noted = Ranges(found)
    for start, end, kind, tid, text, text_id in _rows(connection, _RANGES, columns):
        said = str(text or strings.get(text_id, "")).strip()
        if start is None or not isinstance(end, int) or end < start or kind not in _LASTING or not said:
            continue
        noted.add(_process(found, tid), said, start * 1e-3, end * 1e-3, found.thread(tid))
    noted.count()


def _head(connection: sqlite3.Connection, tables: set[str]) -> TraceHead:
    base_ns, host = 0, ""
    if "TARGET_INFO_SESSION_START_TIME" in tables:
        row = next(_rows(connection, "TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": "0"}), None)
        base_ns = int(row[0] or 0) if row else 0
    if "TARGET_INFO_SYSTEM_ENV" in tables:
        columns = {"name": "NULL", "value": "NULL"}
        host = next((str(v) for n, v in _rows(connection, "TARGET_INFO_SYSTEM_ENV", columns) if n == "Hostname"), "")
    return TraceHead(base_ns=base_ns, host=host)
