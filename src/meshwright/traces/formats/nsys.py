"""The SQLite export of Nsight Systems (`nsys export --type sqlite`): kernels, copies, CUDA calls and NVTX ranges.

Only columns of all versions since 2020 are read. NCCL marks its calls as ranges in an NVTX domain of its own;
their sizes are not in the export. Steps are ranges that count ("step 12", "iteration_12", "ProfilerStep#12"), or one
name that returns again and again.
"""

import sqlite3

from ...errors import InputError
from .collector import COPY, DEVICE, SET, Collector, Process
from .events import TraceHead
from .opening import NoTrace, Source
from .ranges import Ranges, ranks_by_device
from .sqlite_tables import rows

_KERNELS, _RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"  # whole CUDA graphs, which nsys records unless it is told otherwise
_COPIES, _SETS, _RANGES = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "NVTX_EVENTS"
# kinds of a copy, as CUPTI numbers them (CUpti_ActivityMemcpyKind)
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
               10: "PtoP"}  # fmt: skip
_STRINGS = {"id": "0", "value": "NULL"}
_LASTING = (59, 60)  # NVTX ranges that were pushed and popped, or started and ended


def collected(source: Source, connection: sqlite3.Connection, tables: set[str]) -> tuple[Collector, TraceHead, str]:
    """Return the events of an export, what stands beside them, and a note for the reader; InputError if it is none."""
    if not {_KERNELS, _GRAPHS} & tables:
        error = InputError if tables & {_RUNTIME, _RANGES, "StringIds"} else NoTrace
        hint = "expected an export of nsys (--trace=cuda,nvtx) or a database of rocprofv3 (rocpd)"
        raise error(f"{source}: no {_KERNELS} in it; {hint}")
    found = Collector()
    strings = (
        {number: str(text) for number, text in rows(connection, "StringIds", _STRINGS)} if "StringIds" in tables else {}
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


def _process(found: Collector, global_id: int | None) -> Process:
    """Return the process that a globalPid or globalTid means: bits 24 to 47 are its number."""
    return found.processes.setdefault(((global_id or 0) >> 24) & 0xFFFFFF, Process())


def _device(connection: sqlite3.Connection, table: str, kind: int, strings: dict[int, str], found: Collector) -> None:
    columns = {"start": "0", "end": "0", "deviceId": "0", "streamId": "0", "correlationId": "-1", "globalPid": "0"}
    columns |= {"demangledName": "NULL", "shortName": "NULL", "copyKind": "0", "bytes": "0"}
    for start, end, device, stream, link, pid, name, short, copy, size in rows(connection, table, columns):
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
    for start, end, device, stream, link, pid, graph in rows(connection, _GRAPHS, columns | {"graphId": "0"}):
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
    for start, end, tid, link, name in rows(connection, _RUNTIME, columns):
        if start is None or end is None or end < start:
            continue
        text = strings.get(name, "")
        process = _process(found, tid)
        process.launches.add(start * 1e-3, end * 1e-3, found.named(text), found.thread(tid), link)
        found.special(process, text, start * 1e-3, end * 1e-3)


def _ranges(connection: sqlite3.Connection, strings: dict[int, str], found: Collector) -> None:
    columns = {"start": "0", "end": "NULL", "eventType": "59", "globalTid": "0", "text": "NULL", "textId": "NULL"}
    noted = Ranges(found)
    for start, end, kind, tid, text, text_id in rows(connection, _RANGES, columns):
        said = str(text or strings.get(text_id, "")).strip()
        if start is None or not isinstance(end, int) or end < start or kind not in _LASTING or not said:
            continue
        noted.add(_process(found, tid), said, start * 1e-3, end * 1e-3, found.thread(tid))
    noted.count()


def _head(connection: sqlite3.Connection, tables: set[str]) -> TraceHead:
    base_ns, host = 0, ""
    if "TARGET_INFO_SESSION_START_TIME" in tables:
        row = next(rows(connection, "TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": "0"}), None)
        base_ns = int(row[0] or 0) if row else 0
    if "TARGET_INFO_SYSTEM_ENV" in tables:
        columns = {"name": "NULL", "value": "NULL"}
        host = next((str(v) for n, v in rows(connection, "TARGET_INFO_SYSTEM_ENV", columns) if n == "Hostname"), "")
    return TraceHead(base_ns=base_ns, host=host)
