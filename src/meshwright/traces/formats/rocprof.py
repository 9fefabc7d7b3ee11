"""The JSON of rocprofv3 (`--output-format json`): kernels, copies, HIP calls, ROCTx ranges; one entry a process.

The schema is that of ROCprofiler-SDK's manual ("JSON output schema"). The file is one value, so that it is held whole;
only what is read here is kept of it. Times are nanoseconds since the machine started: they say nothing across hosts.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from ...errors import InputError
from .collector import COPY, DEVICE, Collector, Process
from .events import TraceHead
from .opening import Source, pieces
from .ranges import Ranges, ranks_by_device

SCHEMA = re.compile(rb'^\s*\{\s*"rocprofiler-sdk-tool"\s*:')
MOST_BYTES = 2 * 2**30  # of a file that is held whole
Word = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]  # what the arrays of a Collector hold
_GPU = 2  # rocprofiler_agent_type_t
_LAUNCH = "hipLaunchKernel"  # where the file does not name its operations


class _Handle(msgspec.Struct, frozen=True, gc=False):
    handle: int = 0


class _Correlation(msgspec.Struct, frozen=True, gc=False):
    internal: Word = -1


class _Info(msgspec.Struct, frozen=True, gc=False):
    agent_id: _Handle = _Handle()
    queue_id: _Handle = _Handle()
    kernel_id: int = -1


class _Record(msgspec.Struct, frozen=True, gc=False):
    """A call, a kernel or a copy; nanoseconds."""

    start_timestamp: Word
    end_timestamp: Word
    thread_id: int = 0
    kind: int = -1
    operation: int = -1
    correlation_id: _Correlation = _Correlation()
    dispatch_info: _Info = _Info()
    src_agent_id: _Handle = _Handle()
    dst_agent_id: _Handle = _Handle()
    bytes: Word = 0


class _Records(msgspec.Struct, frozen=True):
    kernel_dispatch: list[_Record] = []
    memory_copy: list[_Record] = []
    hip_api: list[_Record] = []
    hsa_api: list[_Record] = []
    marker_api: list[_Record] = []
    rccl_api: list[_Record] = []


class _Kind(msgspec.Struct, frozen=True):
    operations: list[str] = []


class _Marker(msgspec.Struct, frozen=True):
    key: int
    value: str = ""


class _Strings(msgspec.Struct, frozen=True):
    buffer_records: list[_Kind] = []
    marker_api: list[_Marker] = []


class _Symbol(msgspec.Struct, frozen=True):
    kernel_id: int
    kernel_name: str = ""
    formatted_kernel_name: str = ""


class _Agent(msgspec.Struct, frozen=True):
    id: _Handle
    type: int = 0


class _Metadata(msgspec.Struct, frozen=True):
    pid: int = 0


class _Tool(msgspec.Struct, frozen=True):
    """The record of one process."""

    metadata: _Metadata = _Metadata()
    agents: list[_Agent] = []
    strings: _Strings = _Strings()
    kernel_symbols: list[_Symbol] = []
    buffer_records: _Records = _Records()


class _File(msgspec.Struct, frozen=True):
    tools: list[_Tool] = msgspec.field(name="rocprofiler-sdk-tool")


def collected(source: Source) -> tuple[Collector, TraceHead, str]:
    """Return the events of a file, an empty head, and a note for the reader; InputError if it is none."""
    parts, size = [], 0
    for piece in pieces(source):
        parts.append(piece)
        size += len(piece)
        if size > MOST_BYTES:
            raise InputError(f"{source}: more than {MOST_BYTES // 2**30} GiB in one value; record fewer steps")
    try:
        file = msgspec.json.decode(b"".join(parts), type=_File)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"{source}: not the JSON of rocprofv3, or cut off: {error}") from None
    found = Collector()
    noted = Ranges(found)
    for place, tool in enumerate(file.tools):
        process = found.processes.setdefault(tool.metadata.pid or place, Process())
        _device(tool, process, found)
        _host(tool, process, found, noted)
    noted.count()
    return found, TraceHead(), ranks_by_device(found)


def _device(tool: _Tool, process: Process, found: Collector) -> None:
    gpus = {agent.id.handle: at for at, agent in enumerate(a for a in tool.agents if a.type == _GPU)}
    names = {symbol.kernel_id: symbol.formatted_kernel_name or symbol.kernel_name for symbol in tool.kernel_symbols}
    for record in _lasting(tool.buffer_records.kernel_dispatch):
        info = record.dispatch_info
        name, queue = names.get(info.kernel_id) or "kernel", info.queue_id.handle
        _add(process, DEVICE, record, found.named(name), found.thread(queue), gpus.get(info.agent_id.handle, -1))
    for record in _lasting(tool.buffer_records.memory_copy):
        ends = (record.src_agent_id.handle in gpus, record.dst_agent_id.handle in gpus)
        way = {(False, True): "HtoD", (True, False): "DtoH", (False, False): "HtoH"}.get(ends, "DtoD")
        if all(ends) and record.src_agent_id != record.dst_agent_id:
            way = "PtoP"
        device = gpus.get(record.dst_agent_id.handle, gpus.get(record.src_agent_id.handle, -1))
        process.copied[len(process.kinds)] = record.bytes
        _add(process, COPY, record, found.named(f"Memcpy {way}"), found.thread(f"copies {way}"), device)


def _add(process: Process, kind: int, record: _Record, name: int, thread: int, device: int) -> None:
    process.kinds.append(kind)
    start, end = record.start_timestamp * 1e-3, record.end_timestamp * 1e-3
    process.device.add(start, end, name, thread, record.correlation_id.internal)
    process.externals.append(-1)
    process.devices.append(device)


def _host(tool: _Tool, process: Process, found: Collector, noted: Ranges) -> None:
    records, texts = tool.buffer_records, {marker.key: marker.value for marker in tool.strings.marker_api}
    for record in _lasting(records.hip_api or records.hsa_api):
        name = _operation(tool.strings.buffer_records, record) or _LAUNCH
        start, end = record.start_timestamp * 1e-3, record.end_timestamp * 1e-3
        thread = found.thread(record.thread_id)
        process.launches.add(start, end, found.named(name), thread, record.correlation_id.internal)
        found.special(process, name, start, end)
    for record in _lasting([*records.marker_api, *records.rccl_api]):
        said = texts.get(record.correlation_id.internal) or _operation(tool.strings.buffer_records, record)
        if said:
            start, end = record.start_timestamp * 1e-3, record.end_timestamp * 1e-3
            noted.add(process, said.strip(), start, end, found.thread(record.thread_id))


def _operation(kinds: Sequence[_Kind], record: _Record) -> str:
    if not 0 <= record.kind < len(kinds) or not 0 <= record.operation < len(kinds[record.kind].operations):
        return ""
    return kinds[record.kind].operations[record.operation]


def _lasting(records: Iterable[_Record]) -> Iterable[_Record]:
    return (record for record in records if record.end_timestamp >= record.start_timestamp)
