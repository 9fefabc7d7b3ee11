"""Chrome traces, rank by rank: the devices and processes of one file, kept apart."""

import re
from collections.abc import Sequence

import numpy as np

from ..errors import InputError
from ..units import counted
from . import ascend, labelled
from .collector import Collector, Process
from .cpu_rank import of_host
from .device import of_device
from .events import TraceHead
from .model import RankTrace
from .names import DEVICE_LIBRARY, number
from .opening import Source
from .parts import RankFacts, floats, longs

STRAY_SHARE = 0.01  # of the busiest device's time: a device of the same process with less is no rank of its own
_RANK = re.compile(r"(?<![a-z])rank[\s:=_#-]*(\d{1,6})", re.IGNORECASE)
Unit = tuple[int | None, list[Process]]  # a rank, None where it is not told, and its processes


def ranks_of(source: Source, collected: Collector, head: TraceHead) -> list[RankTrace]:
    """Return the ranks of a file (one for each of several devices); InputError where nothing in it lasts."""
    facts = RankFacts(str(source), source.name, head.rank, str(head.host or ""))
    base_ns = int(number(head.base_ns))
    if ascend.named(collected):
        return [ascend.of_npu(collected, facts, base_ns)]
    if labelled.named(collected) and not any(_lasts(process) for process in collected.processes.values()):
        found = labelled.of_labelled(collected, facts, base_ns)
        if found:
            return found
    units = _units(source, collected, head)
    made = [trace for rank, processes in units for trace in _of_unit(facts, rank, processes, collected, base_ns)]
    if len(units) == 1 and len(made) > 1:
        for trace in made:  # the devices of one process are numbered as they are
            trace.rank = None
    return made


def _of_unit(
    facts: RankFacts, rank: int | None, processes: list[Process], collected: Collector, base_ns: int
) -> list[RankTrace]:
    told = RankFacts(facts.source, facts.name, rank, facts.host_name)
    if not any(process.device.starts for process in processes):
        _no_device(facts.source, processes)
        return [of_host(processes, collected.table, told, base_ns)]
    busy = _busy_us(processes)
    most = max(busy.values())
    devices = sorted(device for device, time in busy.items() if time > STRAY_SHARE * most and device >= 0)
    if len(devices) < 2:
        only = devices[0] if devices and len(busy) > 1 and -1 not in busy else None
        return [of_device(processes, only, collected.table, told, base_ns)]
    made = []
    for device in devices:
        rank_of = rank if busy[device] == most else None
        one = RankFacts(facts.source, facts.name, rank_of, facts.host_name, f"device {device}")
        made.append(of_device(processes, device, collected.table, one, base_ns))
    return made


def _no_device(where: str, processes: Sequence[Process]) -> None:
    """Refuse a trace whose host launched work on a device of which nothing was recorded."""
    launched = any(process.launches.starts for process in processes)
    if launched or any(DEVICE_LIBRARY.match(record.name) for process in processes for record in process.records):
        raise InputError(
            f"{where}: the host launched work on a device, but no kernel is in the trace; record it again with "
            "ProfilerActivity.CUDA (or that of the device), and see that no other profiler holds CUPTI"
        )


def _units(source: Source, collected: Collector, head: TraceHead) -> list[Unit]:
    """Return the processes of a file, rank by rank."""
    by_rank: dict[int, list[Process]] = {}
    for pid, process in collected.processes.items():
        match = _RANK.search(str(pid)) or _RANK.search(process.label)
        if match:
            by_rank.setdefault(int(match[1]), []).append(process)
    filled = {rank: found for rank, found in by_rank.items() if any(_lasts(process) for process in found)}
    if len(filled) > 1:
        return [(rank, filled[rank]) for rank in sorted(filled)]
    every = list(collected.processes.values())
    if not any(_lasts(process) for process in every):
        raise InputError(
            f"{source}: no operator and no kernel in it{_whose(every)}; expected a trace of torch.profiler, Ascend's "
            "profilers, Chakra or nsys (its SQLite export)"
        )
    steps = [{mark[2] for mark in process.marks} for process in every if process.marks]
    if len(steps) > 1 and set.intersection(*steps):
        raise InputError(
            f"{source}: {counted(len(steps), 'process')} with the same steps, and nothing says which "
            "rank each is: several ranks "
            "in one file; give each rank its own file, or name the processes 'rank 0', 'rank 1', …"
        )
    return [(head.rank if head.rank is not None else next(iter(filled), None), every)]


_OTHERS = (  # processes as other profilers call them
    (re.compile(r"^/(?:device|host):"), "JAX or TensorFlow (XLA) without a device"),
    (re.compile(r"^(?:CPU )?HIP API|^GPU\d+$|^HSA API"), "rocprof without a device"),
    (re.compile(r"^grad/|DistributedOptimizer"), "Horovod"),
)


def _whose(processes: Sequence[Process]) -> str:
    """Return which other profiler a file looks like the output of, "" where nothing tells."""
    for pattern, name in _OTHERS:
        if any(pattern.search(process.label) for process in processes):
            return f" (it looks like a trace of {name}, which is not read)"
    return ""


def _lasts(process: Process) -> bool:
    return bool(process.device.starts or process.operators.starts)


def _busy_us(processes: Sequence[Process]) -> dict[int, float]:
    """Return how long each device worked; -1 stands for events that name no device."""
    found: dict[int, float] = {}
    for process in processes:
        lengths = floats(process.device.ends) - floats(process.device.starts)
        devices = longs(process.devices)
        for device in np.unique(devices).tolist():
            found[device] = found.get(device, 0.0) + float(lengths[devices == device].sum())
    return found
