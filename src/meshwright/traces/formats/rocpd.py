"""The database of rocprofv3 (`--output-format rocpd`, its default since ROCm 7): kernels, copies, calls, ROCTx ranges.

The tables are those of ROCprofiler-SDK's rocpd_tables.sql, schema 3. Each profiled process has a set of its own, its
names ending in an id; views of the same names without one join them, and are not read. What the host launched and its
call have one `stack_id`. Times are nanoseconds since the machine started: they say nothing across hosts.
"""

import re
import sqlite3
from typing import Any, NamedTuple

import msgspec

from ...errors import InputError
from .collector import COPY, DEVICE, Collector, Process
from .events import TraceHead
from .opening import Source
from .ranges import Ranges, ranks_by_device
from .sqlite_tables import rows

_TABLE = re.compile(r"rocpd_(?P<name>[a-z_]*[a-z])(?P<own>_[0-9a-f]{8}_[0-9a-f_]{20,40})?")
_LASTS = {"start": "0", "end": "0"}
_OF_PROGRAM = ("MARKER", "RCCL")  # categories of regions; the others are calls of HIP and HSA
_API = "roctx"  # the name of a range's call, where its message stands beside it


class _Message(msgspec.Struct, frozen=True):
    message: str = ""


class _Base(NamedTuple):
    """The set of tables of one profiled process, or of one run of the profiler."""

    connection: sqlite3.Connection
    tables: dict[str, str]  # their names, by what they are without the id

    def rows(self, name: str, wanted: dict[str, str]) -> list[tuple[Any, ...]]:
        return list(rows(self.connection, self.tables[name], wanted)) if name in self.tables else []

    def texts(self, name: str, column: str, otherwise: str = "") -> dict[int, str]:
        """Return the texts of a table by their ids: of the first column, where it is empty of the other."""
        wanted = {"id": "0", column: "NULL"} | ({otherwise: "NULL"} if otherwise else {})
        return {number: str(next(filter(None, said), "")) for number, *said in self.rows(name, wanted)}


def is_rocpd(tables: set[str]) -> bool:
    """Return whether a database has tables of rocprofv3."""
    return any(name.startswith("rocpd_") for name in tables)


def collected(source: Source, connection: sqlite3.Connection, tables: set[str]) -> tuple[Collector, TraceHead, str]:
    """Return the events of a database, what stands beside them, and a note for the reader; InputError if none."""
    bases: dict[str, dict[str, str]] = {}
    for table in sorted(tables):
        if match := _TABLE.fullmatch(table):
            bases.setdefault(match["own"] or "", {})[match["name"]] = table
    if len(bases) > 1:
        bases.pop("", None)
    found = Collector()
    noted = Ranges(found)
    hosts: list[str] = []
    for own, names in bases.items():
        base = _Base(connection, names)
        links: dict[int, int] = dict(base.rows("event", {"id": "0", "stack_id": "-1"}))
        _device(base, own, links, found)
        _host(base, own, links, found, noted)
        hosts += base.texts("info_node", "hostname").values()
    if not any(DEVICE in process.kinds for process in found.processes.values()):
        raise InputError(
            f"{source}: a database of rocprofv3 without kernels; record it again with --kernel-trace"
            " (or --sys-trace), which has the HIP calls and ROCTx ranges as well"
        )
    noted.count()
    head = TraceHead(host=hosts[0] if len(set(hosts)) == 1 else "")
    return found, head, ranks_by_device(found)


def _process(found: Collector, own: str, pid: int) -> Process:
    return found.processes.setdefault(f"{own}:{pid}", Process())


def _device(base: _Base, own: str, links: dict[int, int], found: Collector) -> None:
    agents = base.rows("info_agent", {"id": "0", "type": "NULL", "absolute_index": "0"})
    gpus = sorted((place, agent) for agent, kind, place in agents if str(kind) == "GPU")
    devices = {agent: at for at, (_, agent) in enumerate(gpus)}
    names = base.texts("info_kernel_symbol", "display_name", "kernel_name")
    columns = _LASTS | {"pid": "0", "agent_id": "0", "kernel_id": "0", "queue_id": "0", "stream_id": "0"}
    columns |= {"event_id": "-1"}
    for start, end, pid, agent, kernel, queue, stream, event in base.rows(
        "kernel_dispatch", columns | {"event_id": "-1"}
    ):
        process, thread = _process(found, own, pid), found.thread(f"{own}:{stream or queue}")
        name = found.named(names.get(kernel) or "kernel")
        _add(process, DEVICE, (start, end), name, thread, devices.get(agent, -1), links.get(event, -1))
    columns = _LASTS | {"pid": "0", "src_agent_id": "0", "dst_agent_id": "0", "size": "0", "event_id": "-1"}
    for start, end, pid, came, goes, size, event in base.rows("memory_copy", columns):
        ends = came in devices, goes in devices
        way = {(False, True): "HtoD", (True, False): "DtoH", (False, False): "HtoH"}.get(ends, "DtoD")
        way = "PtoP" if all(ends) and came != goes else way
        process, thread = _process(found, own, pid), found.thread(f"{own}:copies {way}")
        process.copied[len(process.kinds)] = size
        device = devices.get(goes, devices.get(came, -1))
        _add(process, COPY, (start, end), found.named(f"Memcpy {way}"), thread, device, links.get(event, -1))


def _add(process: Process, kind: int, lasts: tuple[int, int], name: int, thread: int, device: int, link: int) -> None:
    start, end = lasts
    if start is None or end is None or end < start:
        return
    process.kinds.append(kind)
    process.device.add(start * 1e-3, end * 1e-3, name, thread, link)
    process.externals.append(-1)
    process.devices.append(device)


def _host(base: _Base, own: str, links: dict[int, int], found: Collector, noted: Ranges) -> None:
    strings = base.texts("string", "string")
    events = base.rows("event", {"id": "0", "category_id": "-1", "extdata": "NULL"})
    kinds = {event: strings.get(category, "") for event, category, _ in events}
    said = {event: _message(str(extra)) for event, _, extra in events if extra and "message" in str(extra)}
    columns = _LASTS | {"pid": "0", "tid": "0", "name_id": "0", "event_id": "-1"}
    for start, end, pid, tid, name_id, event in base.rows("region", columns):
        if start is None or end is None or end < start:
            continue
        process, thread, name = _process(found, own, pid), found.thread(f"{own}:{tid}"), strings.get(name_id, "")
        begins, ends = start * 1e-3, end * 1e-3
        if kinds.get(event, "").startswith(_OF_PROGRAM) or name.startswith(_API):
            text = (said.get(event) or name).strip()
            if text:
                noted.add(process, text, begins, ends, thread)
            continue
        process.launches.add(begins, ends, found.named(name), thread, links.get(event, -1))
        found.special(process, name, begins, ends)


def _message(extra: str) -> str:
    try:
        return msgspec.json.decode(extra.encode(), type=_Message).message
    except (msgspec.MsgspecError, UnicodeError):
        return ""
