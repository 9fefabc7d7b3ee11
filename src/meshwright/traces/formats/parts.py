"""The common part of the readers of all formats: intervals, calls and the host, from columns of events."""

import re
from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ..intervals import EMPTY, Array, union, union_of_sets
from ..model import PHASES, Computed, HostTimeline, RankTrace, TracedCall
from ..names import collective, number, payload_bytes
from ..steps import Mark, windows, without_cut_step
from .collector import Process, Spans
from .events import Args

COMPUTE, COMM, COPIES, OTHER = range(4)
# a copy's way in its name: Kineto's on CUDA (`Memcpy HtoD (Pinned -> Device)`) and ROCm (`CopyHostToDevice`), CANN's
_TO_DEVICE = re.compile(r"H(?:2|to)D|Host ?(?:->|to) ?Device", re.IGNORECASE)
_TO_HOST = re.compile(r"D(?:2|to)H|Device ?(?:->|to) ?Host", re.IGNORECASE)
Times = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]


@dataclass(slots=True)
class Columns:
    """Every event of a device, in seconds from the first on."""

    starts_s: Times
    ends_s: Times
    launched_s: Times
    lanes: npt.NDArray[np.int8]
    main: npt.NDArray[np.bool_]  # its main work, which says when the device began a step
    names: Longs
    phases: npt.NDArray[np.int8]
    table: list[str]


@dataclass(slots=True)
class RankFacts:
    """Other facts of a trace about a rank."""

    source: str
    name: str
    rank: int | None
    host_name: str = ""
    label: str = ""
    epoch_ns: int = 0
    marks: list[Mark] = field(default_factory=list)  # in seconds from the first event on
    host: HostTimeline = field(default_factory=HostTimeline)
    notes: tuple[str, ...] = ()


def lane_of_copy(name: str, *, elsewhere: int = COMPUTE) -> int:
    """Return the lane of a copy, by its name: to the device, to the host, or `elsewhere`."""
    return COPIES if _TO_DEVICE.search(name) else OTHER if _TO_HOST.search(name) else elsewhere


def of_columns(columns: Columns, calls: list[TracedCall], facts: RankFacts) -> RankTrace:
    """Return the trace of a rank with a device; InputError where nothing in it lasts."""
    if not np.any(columns.ends_s > columns.starts_s):
        raise InputError(f"{facts.source}: nothing in it lasts: every kernel has a length of 0")
    sets = [
        union(columns.starts_s[columns.lanes == lane], columns.ends_s[columns.lanes == lane])
        for lane in (COMPUTE, COMM, COPIES, OTHER)
    ]
    found = windows(facts.marks, columns.starts_s, columns.ends_s, columns.launched_s, columns.main, facts.host.data)
    if not found:
        raise InputError(f"{facts.source}: no kernel ran in any of the {len(facts.marks)} steps that it marks")
    before = sum(columns.starts_s < min(mark[0] for mark in facts.marks)) if facts.marks else 0
    found, cut = without_cut_step(found, columns.starts_s[columns.main], columns.names[columns.main], int(before))
    kernels = columns.lanes == COMPUTE
    computed = Computed(
        columns.starts_s[kernels],
        columns.ends_s[kernels],
        columns.names[kernels].astype(np.int32),
        columns.table,
    )
    by_phase = {name: kernels & (columns.phases == number) for number, name in enumerate(PHASES)}
    return RankTrace(
        source=facts.source,
        name=facts.name,
        rank=facts.rank,
        host_name=facts.host_name,
        device="device",
        label=facts.label,
        epoch_ns=facts.epoch_ns,
        compute=sets[COMPUTE],
        phases={n: union(columns.starts_s[mine], columns.ends_s[mine]) for n, mine in by_phase.items() if mine.any()},
        comm=sets[COMM],
        copies=sets[COPIES],
        other=sets[OTHER],
        computed=computed,
        calls=calls,
        host=facts.host,
        windows=found,
        marked=bool(facts.marks),
        notes=(*facts.notes, cut) if cut else facts.notes,
    )


def of_spans(spans: Sequence[Spans], zero_us: float) -> Array:
    """Return the points that kept events of a host cover, in seconds from `zero_us` on."""
    found = [
        union((floats(one.starts) - zero_us) * 1e-6, (floats(one.ends) - zero_us) * 1e-6) for one in spans if one.starts
    ]
    return union_of_sets(found) if found else EMPTY


def host_timeline(processes: Sequence[Process], table: Sequence[str], zero_us: float) -> HostTimeline:
    """Return when the host was where; `table` has the names of events."""
    return HostTimeline(
        data=of_spans([p.data for p in processes], zero_us),
        allocator=of_spans([p.allocator for p in processes], zero_us),
        garbage=of_spans([p.garbage for p in processes], zero_us),
        waiting=of_spans([p.waiting for p in processes], zero_us),
        operators=of_spans([s for p in processes for s in (p.operators, p.launches)], zero_us),
        frames=_frames([p.frames for p in processes if p.frames.starts], table, zero_us),
    )


def _frames(spans: Sequence[Spans], table: Sequence[str], zero_us: float) -> dict[str, Array]:
    found: dict[str, list[Array]] = defaultdict(list)
    for one in spans:
        starts, ends, names = (
            (floats(one.starts) - zero_us) * 1e-6,
            (floats(one.ends) - zero_us) * 1e-6,
            longs(one.names),
        )
        order = np.argsort(names, kind="stable")
        numbers, begins = np.unique(names[order], return_index=True)
        for which, mine in zip(numbers, np.split(order, begins[1:]), strict=True):
            found[table[which]].append(union(starts[mine], ends[mine]))
    return {name: union_of_sets(sets) for name, sets in found.items()}


def marks_of(processes: Sequence[Process], zero_us: float) -> list[Mark]:
    """Return the steps that a file marks: those of the host, or where there is none in it those of the device."""
    marks = [mark for p in processes for mark in p.marks]
    by_step: dict[int, tuple[float, float, int]] = {}
    for start, end, step in [] if marks else [mark for p in processes for mark in p.device_marks]:
        first, last, _ = by_step.get(step, (start, end, step))  # a step has a mark on each stream
        by_step[step] = min(first, start), max(last, end), step
    return [((a - zero_us) * 1e-6, (b - zero_us) * 1e-6, n) for a, b, n in marks or by_step.values()]


def call_of(name: str, start_s: float, end_s: float, launched_s: float, args: Args | None) -> TracedCall:
    """Return a communication, `args` being what the trace says of it."""
    ours = collective(name)
    if args is None:
        return TracedCall(ours, start_s, end_s, launched_s)
    seq = args.seq if isinstance(args.seq, int) and args.seq >= 0 else None
    return TracedCall(
        name=ours,
        start_s=start_s,
        end_s=end_s,
        launched_s=launched_s,
        bytes=payload_bytes(args.elements_in, args.elements_out, args.dtype),
        group=str(args.group) if args.group not in (None, "") else "",
        group_text=str(args.group_text or ""),
        group_size=int(number(args.group_size)),
        ranks=str(args.group_ranks or ""),
        seq=seq,
        peer=_peer(args.target_rank if ours == "send" else args.source_rank if ours == "recv" else None),
    )


def _peer(value: Any) -> int:
    """Return the rank of a file, -1 for what is none."""
    return value if isinstance(value, int) and 0 <= value < 2**31 else -1


def floats(values: "array[float]") -> Times:
    """Return kept times as an array, without a copy."""
    return np.frombuffer(values, dtype=np.float64) if len(values) else np.zeros(0)


def longs(values: "array[int]") -> Longs:
    """Return kept numbers as an array, without a copy."""
    return np.frombuffer(values, dtype=np.int64) if len(values) else np.zeros(0, dtype=np.int64)
