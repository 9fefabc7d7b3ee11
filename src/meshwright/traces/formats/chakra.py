"""Chakra execution traces of MLCommons: graphs of operators, kernels and collectives, read.

Three forms: `.et`, messages of schema/protobuf/et_def.proto one after the other, each after its length; JSON of a host
and a device linked (chakra_trace_link); JSON of a host alone (torch's ExecutionTraceObserver), which has no times: it
is refused alone, and set aside among traces. A Chakra "device trace" is a trace of Kineto.

Where a graph has durations but no starts, or (linked JSON) only those of the launches, a node starts when its
dependencies have ended and its stream or thread is free: what overlaps is then an estimate, and the page says so.
"""

import heapq
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from ...errors import InputError
from ...units import counted
from ..model import PHASES, RankTrace, TracedCall
from ..names import collective, communicates
from .opening import BesideTrace, Source, pieces
from .parts import COMM, COMPUTE, Columns, RankFacts, lane_of_copy, of_columns
from .protobuf import fields, numbers, read_varint, signed

SCHEMA = re.compile(rb'"schema"\s*:\s*"[^"]*chakra')  # near the beginning of the JSON forms
ESTIMATED = "starts of kernels are estimated from what they depend on and the order on their stream"
MOST_MESSAGE_BYTES = 64 * 2**20
COMPUTING, SENDING, RECEIVING, COLLECTING = 4, 5, 6, 7  # NodeType
COLLECTIVES = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter",
    "barrier",
)  # fmt: skip, CollectiveCommType
_VALUES = {7: "int", 9: "int", 11: "plain", 13: "plain", 27: "plain", 29: "text"}  # fields of AttributeProto


class GraphNode(msgspec.Struct, kw_only=True):
    """One node of a graph, whatever form it came in; times in microseconds."""

    id: int
    name: str = ""
    kind: int = 0  # NodeType
    start: float | None = None
    earliest: float = 0.0  # when it was launched
    duration: float = 0.0
    depends: list[int] = []
    stream: str = ""
    device: bool = False
    bytes: int = 0
    group: str = ""
    comm: str = ""  # our name of the collective


def is_messages(head: bytes) -> bool:
    """Return whether a file starts as a `.et` does: a short message with a version and nothing but attributes."""
    try:
        size, at = read_varint(head, 0)
        return 0 < size <= len(head) - at and all(number in (1, 2) for number, _ in fields(head[at : at + size]))
    except ValueError:
        return False


def of_messages(source: Source, facts: RankFacts) -> RankTrace:
    """Return the trace of a `.et` file; InputError where it is none."""
    try:
        messages = _messages(source)
        if any(number > 2 for number, _ in fields(next(messages, b""))):
            raise ValueError("it does not begin with a version")
        nodes = [_node(message) for message in messages]
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{source}: not a Chakra execution trace: {error}") from None
    return _trace(source, nodes, facts)


def of_json(source: Source, facts: RankFacts) -> RankTrace:
    """Return the trace of a linked JSON; InputError where it has no times."""
    try:
        graph = msgspec.json.decode(b"".join(pieces(source)), type=_Graph)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"{source}: not a Chakra execution trace: {error}") from None
    nodes = [_linked(node) for node in graph.nodes]
    if not any(node.duration for node in nodes):
        comms = sum(node.name == "record_param_comms" for node in nodes)
        raise BesideTrace(
            f"{source}: a Chakra trace of a host ({counted(len(nodes), 'node')}, "
            f"{counted(comms, 'communication')}) has no times; give "
            "the trace of the device (Kineto) of the same run, or both linked by chakra_trace_link"
        )
    return _trace(source, nodes, facts)


def _messages(source: Source) -> Iterator[bytes]:
    buffer = b""
    for piece in pieces(source):
        buffer += piece
        at = 0
        while at < len(buffer):
            try:
                size, begin = read_varint(buffer, at)
            except ValueError:
                break
            if size > MOST_MESSAGE_BYTES:
                raise ValueError(f"a message of {counted(size, 'byte')}")
            if begin + size > len(buffer):
                break
            yield buffer[begin : begin + size]
            at = begin + size
        buffer = buffer[at:]
    if buffer:
        raise ValueError("it is cut off within a message; copy or export it again")


def _node(message: bytes) -> GraphNode:
    node = GraphNode(id=0, depends=[])
    attributes: dict[str, Any] = {}
    for number, value in fields(message):
        if number == 2 and isinstance(value, bytes):
            node.name = value.decode()
        elif number in (4, 5):
            node.depends += numbers(value) if not isinstance(value, float) else []
        elif number == 10 and isinstance(value, bytes):
            attributes |= _attribute(value)
        elif isinstance(value, int):
            if number == 1:
                node.id = value
            elif number == 3:
                node.kind = value
            elif number == 6 and value:
                node.start = float(value)
            elif number == 7:
                node.duration = float(value)
    node.device = attributes.get("is_cpu_op", 1) in (0, False) or node.kind in (SENDING, RECEIVING, COLLECTING)
    node.stream = str(attributes.get("stream", "") if node.device else attributes.get("tid", ""))
    node.bytes, node.group = int(attributes.get("comm_size") or 0), str(attributes.get("pg_name") or "")
    kind = attributes.get("comm_type")
    if node.kind == COLLECTING:
        known = isinstance(kind, int) and 0 <= kind < len(COLLECTIVES)
        node.comm = COLLECTIVES[int(kind)] if known and isinstance(kind, int) else collective(node.name)
    elif node.kind in (SENDING, RECEIVING):
        node.comm = "send" if node.kind == SENDING else "recv"
    return node


def _attribute(message: bytes) -> dict[str, Any]:
    name = ""
    found: Any = None
    for number, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            name = value.decode()
        elif number in _VALUES:
            if isinstance(value, bytes):
                found = value.decode(errors="replace")
            else:
                found = signed(int(value)) if _VALUES[number] == "int" else value
    return {name: found} if found is not None else {}


class _Json(msgspec.Struct, frozen=True):
    """A node of the JSON forms; what is not read is skipped."""

    id: int
    name: str = ""
    ctrl_deps: int | None = None
    inter_thread_dep: int | None = None
    ts: float | None = None
    inclusive_dur: float | None = None
    exclusive_dur: float | None = None
    cat: str | None = None
    stream: int | str | None = None
    inputs: Any = None
    attrs: list[dict[str, Any]] = []


class _Graph(msgspec.Struct, frozen=True):
    nodes: list[_Json]


def _linked(node: _Json) -> GraphNode:
    """Return a node of linked JSON: the starts of kernels in it are those of their launches."""
    device = node.cat is not None
    attributes = {str(one.get("name")): one.get("value") for one in node.attrs}
    made = GraphNode(
        id=node.id,
        name=node.name,
        kind=COMPUTING,
        start=None if device else node.ts,
        earliest=node.ts or 0.0,
        duration=(node.inclusive_dur if device else node.exclusive_dur) or 0.0,
        depends=[] if device else [dep for dep in (node.ctrl_deps, node.inter_thread_dep) if dep is not None],
        stream=str(node.stream if device else attributes.get("tid", "")),
        device=device,
    )
    if device and communicates(node.name):
        made.kind, made.comm, made.bytes = COLLECTING, collective(node.name), _input_bytes(node.inputs)
        made.group = str(attributes.get("pg_name") or "")
    return made


def _input_bytes(inputs: Any) -> int:
    """Return the bytes of the tensors among the inputs: [id, storage, offset, elements, bytes of one, device]."""
    values = inputs.get("values") if isinstance(inputs, dict) else None
    total = 0
    for value in values if isinstance(values, list) else ():
        for one in value if isinstance(value, list) and value and isinstance(value[0], list) else [value]:
            if isinstance(one, list) and len(one) == 6 and all(isinstance(part, int) for part in one[:5]):
                total += one[3] * one[4]
    return total


def _trace(source: Source, nodes: Sequence[GraphNode], facts: RankFacts) -> RankTrace:
    device = [node for node in nodes if node.device and node.duration > 0]
    if not device:
        raise InputError(f"{source}: no node of a device that lasts; expected a Chakra trace of a host and a device")
    estimated = any(node.start is None for node in device)
    starts = _starts(source, nodes)
    zero = min(starts[node.id] for node in device)
    table = sorted({node.name for node in device})
    numbers_of = {name: number for number, name in enumerate(table)}
    begins = np.asarray([starts[node.id] - zero for node in device]) * 1e-6
    ends = begins + np.asarray([node.duration for node in device]) * 1e-6
    lanes = np.asarray([_lane(node) for node in device], dtype=np.int8)
    columns = Columns(
        begins, ends, begins, lanes, lanes == COMPUTE, np.asarray([numbers_of[node.name] for node in device]),
        np.full(len(device), PHASES.index("kernels"), dtype=np.int8), table,
    )  # fmt: skip
    calls = [
        TracedCall(node.comm, float(begins[at]), float(ends[at]), float(begins[at]), node.bytes, node.group)
        for at, node in enumerate(device)
        if lanes[at] == COMM
    ]
    facts.epoch_ns = int(zero * 1000)
    facts.notes += (ESTIMATED,) if estimated else ()
    return of_columns(columns, calls, facts)


def _lane(node: GraphNode) -> int:
    if node.comm:
        return COMM
    if node.name.startswith("Memcpy"):
        return lane_of_copy(node.name)
    return COMPUTE


def _starts(where: Source, nodes: Sequence[GraphNode]) -> dict[int, float]:
    """Return when each node starts: as the trace says, else as soon as it can; InputError for a circle."""
    by_id = {node.id: node for node in nodes}
    if all(node.start is not None for node in nodes if node.device):
        return {node.id: node.start or 0.0 for node in nodes}
    waits = {node.id: len({dep for dep in node.depends if dep in by_id and dep != node.id}) for node in nodes}
    after: dict[int, list[int]] = defaultdict(list)
    for node in nodes:
        for dep in {dep for dep in node.depends if dep in by_id and dep != node.id}:
            after[dep].append(node.id)
    ready = [(node.start if node.start is not None else node.earliest, node.id) for node in nodes if not waits[node.id]]
    heapq.heapify(ready)
    since: dict[int, float] = defaultdict(float)
    free: dict[tuple[bool, str], float] = defaultdict(float)
    starts: dict[int, float] = {}
    while ready:
        time, key = heapq.heappop(ready)
        node = by_id[key]
        place = node.device, node.stream
        starts[key] = node.start if node.start is not None else max(time, free[place])
        free[place] = max(free[place], starts[key] + node.duration)
        for later in after[key]:
            since[later] = max(since[later], starts[key] + node.duration)
            waits[later] -= 1
            if not waits[later]:
                heapq.heappush(ready, (max(since[later], by_id[later].earliest), later))
    if len(starts) < len(by_id):
        raise InputError(f"{where}: {counted(len(by_id) - len(starts), 'node')} depend on one another in a circle")
    return starts
