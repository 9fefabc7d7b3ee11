"""A rank written as a Chakra execution trace (`.et`): kernels and collectives with their starts and lengths.

A node depends on the last of its lane and the last of the other lane that had ended when it began.
"""

import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...files import write_atomic
from ..model import RankTrace, TracedCall
from .chakra import COLLECTING, COLLECTIVES, COMPUTING, RECEIVING, SENDING
from .protobuf import field, varint

VERSION = "0.0.4"
_INT64, _BOOL, _STRING = 9, 27, 29  # fields of AttributeProto


def write_chakra(folder: Path, ranks: Sequence[Sequence[RankTrace]]) -> list[Path]:
    """Write RANK.et of each rank into a folder, all its cycles in one; return the files. OSError if that cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for cycles in ranks:
        path = folder / f"{cycles[0].rank}.et"
        messages = [field(1, VERSION), *_nodes(cycles)]
        write_atomic(path, b"".join(varint(len(message)) + message for message in messages))
        written.append(path)
    return written


def _nodes(cycles: Sequence[RankTrace]) -> Iterator[bytes]:
    origin_ns = min(trace.epoch_ns for trace in cycles)
    entries: list[
        tuple[int, int, str | TracedCall, str]
    ] = []  # start and end in microseconds from 1 on, what, its name
    for trace in cycles:
        by_us = (trace.epoch_ns - origin_ns) / 1000 + 1  # 0 stands for "no start" in the format
        computed = trace.computed
        times = zip(computed.starts_s.tolist(), computed.ends_s.tolist(), computed.names.tolist(), strict=True)
        entries += [(_us(a, by_us), _us(b, by_us), "compute", computed.table[name]) for a, b, name in times]
        entries += [(_us(call.start_s, by_us), _us(call.end_s, by_us), call, call.name) for call in trace.calls]
    entries.sort(key=lambda entry: entry[:2])
    ended: dict[bool, list[tuple[int, int]]] = {True: [], False: []}  # end, id, of either lane, in order of ends
    for number, (start, end, what, name) in enumerate(entries, start=1):
        depends = set()
        for lane in (True, False):
            at = bisect.bisect_right(ended[lane], (start, 2**63))
            if at:
                depends.add(ended[lane][at - 1][1])
        bisect.insort(ended[isinstance(what, TracedCall)], (end, number))
        yield _node(number, name, what, sorted(depends), start, end)


def _us(time_s: float, by_us: float) -> int:
    return round(time_s * 1e6 + by_us)


def _node(number: int, name: str, what: str | TracedCall, depends: Sequence[int], start: int, end: int) -> bytes:
    kind, stream = COMPUTING, 0
    attributes = [_attribute("is_cpu_op", _BOOL, 0)]
    if isinstance(what, TracedCall):
        stream = 1
        attributes.append(_attribute("comm_size", _INT64, what.bytes))
        if what.group:
            attributes.append(_attribute("pg_name", _STRING, what.group))
        kind = {"send": SENDING, "recv": RECEIVING}.get(what.name, COLLECTING)
        if what.name in COLLECTIVES:
            attributes.append(_attribute("comm_type", _INT64, COLLECTIVES.index(what.name)))
        elif kind == COLLECTING:
            kind = COMPUTING  # a transfer that Chakra has no word for keeps its time
    attributes.append(_attribute("stream", _INT64, stream))
    parts = [field(1, number), field(2, name), field(3, kind)]
    if depends:
        parts.append(field(5, b"".join(varint(dep) for dep in depends)))
    parts += [field(6, start), field(7, end - start), *(field(10, attribute) for attribute in attributes)]
    return b"".join(parts)


def _attribute(name: str, kind: int, value: int | str) -> bytes:
    return field(1, name) + field(kind, value)
