"""Chrome traces, rank by rank: the devices and processes of one file, kept apart."""

import re
from collections.abc import Sequence

import numpy as np

from ...errors import InputError
from ...units import counted
from ..model import RankTrace
from ..names import DEVICE_LIBRARY, number
from . import ascend, labelled
from .collector import Collector, Process
from .cpu_rank import of_host
from .device import of_device
from .events import TraceHead
from .merged import Unit, lasts, merged_units, named_rank
from .opening import Source
from .parts import RankFacts, floats, longs

STRAY_SHARE = 0.01  # of the busiest device's time: a device of the same process with less is no rank of its own


def ranks_of(source: Source, collected: Collector, head: TraceHead) -> list[RankTrace]:
    """Return the ranks of a file (one for each of several devices); InputError where nothing in it lasts."""
    facts = RankFacts(str(source), source.name, head.rank, str(head.host or ""))
    base_ns = int(number(head.base_ns))
    if ascend.named(collected):
        return _of_npus(collected, facts, base_ns)
    if labelled.named(collected) and not any(lasts(process) for process in collected.processes.values()):
        found = labelled.of_labelled(collected, facts, base_ns)
        if found:
            return found
    units, note = _units(source, collected, head)
    made = [trace for rank, processes in units for trace in _of_unit(facts, rank, processes, collected, base_ns)]
    if len(units) == 1 and len(made) > 1:
        for trace in made:  # the devices of one process are numbered as they are
            trace.rank = None
        note = note or (
            f"one process used {counted(len(made), 'device')}, each of which is shown as a rank of its own: what one "
            "idles may be what it waits for another"
        )
    if note:
        made[0].notes += (note,)
    return made


def _of_npus(collected: Collector, facts: RankFacts, base_ns: int) -> list[RankTrace]:
    """Return the trace of an NPU, or of each of several whose processes name their ranks."""
    told = {pid: named_rank(pid, process) for pid, process in collected.processes.items()}
    parts = []
    for rank in sorted({rank for rank in told.values() if isinstance(rank, int)}):
        part = Collector()
        part.table = collected.table
        part.processes = {pid: process for pid, process in collected.processes.items() if told[pid] == rank}
        if ascend.named(part):
            parts.append((rank, part))
    if len(parts) < 2:
        return [ascend.of_npu(collected, facts, base_ns)]
    return [
        ascend.of_npu(part, RankFacts(facts.source, facts.name, rank, facts.host_name), base_ns) for rank, part in parts
    ]


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


def _units(source: Source, collected: Collector, head: TraceHead) -> tuple[list[Unit], str]:
    """Return the processes of a file, rank by rank, and what a reader must know of how they were told."""
    found, note = merged_units(str(source), collected.processes, head)
    if found:
        return found, note
    every = list(collected.processes.values())
    if not any(lasts(process) for process in every):
        raise InputError(
            f"{source}: no operator and no kernel in it{_whose(every)}; expected a trace of torch.profiler, Ascend's "
            "profilers, Chakra or nsys (its SQLite export)"
        )
    named = [named_rank(pid, process) for pid, process in collected.processes.items() if lasts(process)]
    rank = head.rank if head.rank is not None else next((one for one in named if isinstance(one, int)), None)
    return [(rank, every)], ""


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


def _busy_us(processes: Sequence[Process]) -> dict[int, float]:
    """Return how long each device worked; -1 stands for events that name no device."""
    found: dict[int, float] = {}
    for process in processes:
        lengths = floats(process.device.ends) - floats(process.device.starts)
        devices = longs(process.devices)
        for device in np.unique(devices).tolist():
            found[device] = found.get(device, 0.0) + float(lengths[devices == device].sum())
    return found
