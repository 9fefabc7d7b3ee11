"""Traces of torch_npu and msprof (trace_view.json, msprof_*.json): an array of events without categories.

The processes are told by name: kernels lie under "Ascend Hardware", collectives under "Communication" or "HCCL",
operators, steps, the data loader and garbage collection under "Python", calls of the runtime under "CANN"; "Overlap
Analysis" is arithmetic over the others and is not read.

torch_npu writes a folder a rank: ASCEND_PROFILER_OUTPUT/trace_view.json, and beside ASCEND_PROFILER_OUTPUT files that
say the rank (`profiler_info_3.json`, `profiler_metadata.json`) and what the trace was made of.
"""

import re
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from ..model import PHASES, RankTrace
from ..names import communicates
from .collector import Collector, Process
from .events import TraceHead
from .parts import (
    COMM,
    COMPUTE,
    Columns,
    Longs,
    RankFacts,
    Times,
    call_of,
    floats,
    host_timeline,
    lane_of_copy,
    longs,
    marks_of,
    of_columns,
)

_HARDWARE = re.compile(r"ascend hardware|^npu\b", re.IGNORECASE)
_ARITHMETIC = re.compile(r"overlap analysis", re.IGNORECASE)
_COMMUNICATION = re.compile(r"^(?:communication|hccl)\b", re.IGNORECASE)
_STEP = re.compile(r"ProfilerStep#(\d{1,12})$")
# tasks of a device that compute; waits, notifications and the pieces of a collective do not
_COMPUTING = re.compile(r"AI_?CORE|AIV|AIC|AI_?VECTOR|AI_?CPU|^MIX", re.IGNORECASE)
_OUTPUT, _TRACE = "ASCEND_PROFILER_OUTPUT", "trace_view.json"
_INFO = re.compile(r"profiler_info_(\d{1,6})\.json")
_DEPTH = 4  # of a file below the folder of its rank
_MOST_BYTES = 2**20


def is_beside_trace(path: Path) -> bool:
    """Return whether a file belongs to a trace of torch_npu, and is no such trace itself."""
    if (path.parent.name, path.name) == (_OUTPUT, _TRACE):
        return False
    return any((folder / _OUTPUT / _TRACE).is_file() for folder in path.parents[:_DEPTH])


def rank_beside(path: Path) -> int | None:
    """Return the rank that the files beside a trace of torch_npu say, None where they say none."""
    if path.name != _TRACE or path.parent.name != _OUTPUT:
        return None
    folder = path.parent.parent
    named = [match for beside in folder.glob("profiler_info_*.json") if (match := _INFO.fullmatch(beside.name))]
    if len(named) == 1:
        return int(named[0][1])
    try:
        with (folder / "profiler_metadata.json").open("rb") as file:
            head = msgspec.json.decode(file.read(_MOST_BYTES), type=TraceHead)
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return head.rank


def named(collected: Collector) -> bool:
    """Return whether a file names its processes as Ascend's profilers do."""
    return any(_HARDWARE.search(p.label) and p.plain.starts for p in collected.processes.values())


def of_npu(collected: Collector, facts: RankFacts, base_ns: int) -> RankTrace:
    """Return the trace of an NPU."""
    processes = list(collected.processes.values())
    starts: list[Times] = []
    ends: list[Times] = []
    names: list[Longs] = []
    lanes: list[npt.NDArray[np.int8]] = []
    hosts: list[Process] = []
    for process in processes:
        spans = process.plain
        if not spans.starts and not process.operators.starts:
            continue
        if _HARDWARE.search(process.label):
            lane: npt.NDArray[np.int8] = np.asarray(
                [_lane(process, at, collected.table) for at in range(len(spans.starts))], dtype=np.int8
            )
        elif _COMMUNICATION.search(process.label):
            whole = np.asarray([communicates(name) for name in collected.table])
            lane = np.where(whole[longs(spans.names)], COMM, -1).astype(np.int8)
        else:
            if not _ARITHMETIC.search(process.label):
                _on_host(process, collected)
                hosts.append(process)
            continue
        kept = lane >= 0
        starts.append(floats(spans.starts)[kept])
        ends.append(floats(spans.ends)[kept])
        names.append(longs(spans.names)[kept])
        lanes.append(lane[kept])
    begins, finish, name, lane = (
        np.concatenate(starts),
        np.concatenate(ends),
        np.concatenate(names),
        np.concatenate(lanes),
    )
    zero = float(begins.min()) if len(begins) else 0.0
    facts.marks = marks_of(processes, zero)
    facts.host = host_timeline(hosts, collected.table, zero)
    facts.epoch_ns = base_ns + int(zero * 1000)
    begins_s, ends_s = (begins - zero) * 1e-6, (finish - zero) * 1e-6
    phases = np.full(len(begins), PHASES.index("kernels"), dtype=np.int8)
    columns = Columns(begins_s, ends_s, begins_s, lane, lane == COMPUTE, name, phases, collected.table)
    calls = [
        call_of(collected.table[name[at]], float(begins_s[at]), float(ends_s[at]), float(begins_s[at]), None)
        for at in np.flatnonzero(lane == COMM)
    ]
    return of_columns(columns, calls, facts)


def _lane(process: Process, at: int, table: list[str]) -> int:
    """Return the lane of a task of the device, -1 for one that is no work of its own."""
    name, task = table[process.plain.names[at]], process.tasks.get(at, "")
    if re.search(r"memcpy|sdma", task or name, re.IGNORECASE):
        return lane_of_copy(name, elsewhere=-1)
    return COMPUTE if _COMPUTING.search(task) and not communicates(name) else -1


def _on_host(process: Process, collected: Collector) -> None:
    """Keep the events of a host without categories: each as an operator, and steps, the loader and so on as such."""
    spans = process.plain
    for start, end, name in zip(spans.starts, spans.ends, spans.names, strict=True):
        collected.special(process, collected.table[name], start, end)
        if not _STEP.match(collected.table[name]):
            process.operators.add(start, end, name)
