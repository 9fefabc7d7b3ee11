"""Traces without categories whose processes are devices by name: XLA's (JAX, TensorFlow) and rocprof's.

XLA writes a process a device, "/device:GPU:0", with a thread for each stream ("Stream #13(Compute)") and others that
tell the same time again by step, module and operator; on a TPU, "XLA Ops" is the device's own line. An operator that
holds others (a loop) is not counted beside them. Steps are the device's: the line "Steps", else every run of the module
that takes most of the time. rocprof writes "GPU0" with a thread a queue, and no steps.
"""

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..model import PHASES, RankTrace
from ..names import communicates
from ..steps import Mark
from .collector import Collector, Process
from .parts import COMM, COMPUTE, Columns, Longs, RankFacts, Times, call_of, floats, lane_of_copy, longs, of_columns

_DEVICE = re.compile(r"^/device:(?:GPU|TPU|CUSTOM):(?:\w+:)?(?P<xla>\d+)|^(?:GPU|Device )(?P<rocprof>\d+)\b")
_LINES = (
    re.compile(r"^Stream\b|^queue\b", re.I),
    re.compile(r"^(?:Async )?XLA Ops\b|^TensorCore\b"),
)  # the first found
_HLO = re.compile(  # operators of XLA that communicate
    r"^%?(?:all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-(?:permute|broadcast)|send|recv)"
    r"(?P<half>-start|-done)?(?:-?fusion)?(?:\.[\w.]+)?$"
)
_COPY = re.compile(r"^Memcpy ?[HD]|HostToDevice|DeviceToHost", re.IGNORECASE)


def named(collected: Collector) -> bool:
    """Return whether a file has devices of this kind on which something ran."""
    return any(_number(process) is not None and process.plain.starts for process in collected.processes.values())


def of_labelled(collected: Collector, facts: RankFacts, base_ns: int) -> list[RankTrace]:
    """Return the trace of each device."""
    found = [(n, process) for process in collected.processes.values() if (n := _number(process)) is not None]
    devices = sorted(((n, process) for n, process in found if process.plain.starts), key=lambda pair: pair[0])
    made = []
    for device, process in devices:
        label = f"device {device}" if len(devices) > 1 else ""
        own = RankFacts(facts.source, facts.name, facts.rank if len(devices) == 1 else None, facts.host_name, label)
        trace = _of_device(process, collected, own, base_ns)
        if trace is not None:
            made.append(trace)
    return made


def _number(process: Process) -> int | None:
    match = _DEVICE.match(process.label)
    return int(match["xla"] or match["rocprof"]) if match else None


def _of_device(process: Process, collected: Collector, facts: RankFacts, base_ns: int) -> RankTrace | None:
    spans = process.plain
    begins_us, ends_us, names, threads = (
        floats(spans.starts),
        floats(spans.ends),
        longs(spans.names),
        longs(spans.threads),
    )
    called = {thread: process.threads.get(thread, "") for thread in np.unique(threads).tolist()}
    by_kind = ([thread for thread, name in called.items() if pattern.match(name)] for pattern in _LINES)
    lines: list[int] = next(filter(None, by_kind), [])
    if not lines and not any(called.values()):
        lines = list(called)  # rocprof's queues have no names
    kept = np.isin(threads, lines)
    for thread in lines:
        places = np.flatnonzero(threads == thread)
        kept[places[_holding(begins_us[places], ends_us[places])]] = False
    if not kept.any():
        return None
    zero = float(begins_us[kept].min())
    facts.epoch_ns = base_ns + int(zero * 1000)
    facts.marks = _marks(process, called, collected.table, zero)
    starts_s, ends_s, name = (begins_us[kept] - zero) * 1e-6, (ends_us[kept] - zero) * 1e-6, names[kept]
    by_name: dict[int, int] = {number: _lane(collected.table[number]) for number in np.unique(name).tolist()}
    lanes: npt.NDArray[np.int8] = np.asarray([by_name[number] for number in name.tolist()], dtype=np.int8)
    phases = np.full(len(name), PHASES.index("kernels"), dtype=np.int8)
    columns = Columns(starts_s, ends_s, starts_s, lanes, lanes == COMPUTE, name, phases, collected.table)
    calls = [
        call_of(collected.table[name[at]], float(starts_s[at]), float(ends_s[at]), float(starts_s[at]), None)
        for at in np.flatnonzero(lanes == COMM)
        if not _begins(collected.table[name[at]])
    ]
    return of_columns(columns, calls, facts)


def _holding(begins: Times, ends: Times) -> Longs:
    """Return which events of one thread hold others."""
    order = np.lexsort((-ends, begins))
    sorted_begins, sorted_ends = begins[order], ends[order]
    holds = np.zeros(len(order), dtype=np.bool_)
    holds[:-1] = (sorted_begins[1:] < sorted_ends[:-1]) & (sorted_ends[1:] <= sorted_ends[:-1])
    return order[holds]


def _lane(name: str) -> int:
    if communicates(name) or _HLO.match(name):
        return COMM
    return lane_of_copy(name) if _COPY.search(name) else COMPUTE


def _begins(name: str) -> bool:
    """Return whether an operator only begins a collective, for which another one waits."""
    match = _HLO.match(name)
    return match is not None and match["half"] == "-start"


def _marks(process: Process, called: dict[int, str], table: Sequence[str], zero_us: float) -> list[Mark]:
    """Return the steps of the device; none where no line tells them."""
    lines: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    spans = process.plain
    for start, end, number, thread in zip(spans.starts, spans.ends, spans.names, spans.threads, strict=True):
        if called[thread] in {"Steps", "XLA Modules"}:
            lines[called[thread]].append(((start - zero_us) * 1e-6, (end - zero_us) * 1e-6, table[number]))
    steps = [
        (start, end, int(name)) for start, end, name in sorted(lines["Steps"]) if name.isdecimal() and len(name) < 16
    ]
    if len({number for _, _, number in steps}) == len(steps) > 0:
        return steps
    took: dict[str, float] = defaultdict(float)
    for start, end, name in lines["XLA Modules"]:
        took[name] += end - start
    longest = max(took, key=lambda name: took[name], default="")
    runs = sorted((start, end) for start, end, name in lines["XLA Modules"] if name == longest)
    return [(start, end, number) for number, (start, end) in enumerate(runs)] if len(runs) > 1 else []
