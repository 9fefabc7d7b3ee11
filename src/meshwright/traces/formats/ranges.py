"""Ranges that a program notes (NVTX, ROCTx): steps, calls of NCCL and RCCL, and what else is known by its name.

Steps are ranges that count ("step 12", "iteration_12", "ProfilerStep#12"), or one name that returns again and again.
"""

import re
from collections import Counter

from ..names import collective
from .collector import Collector, HostRecord, Process

_COUNTED = re.compile(
    r"(?:profiler|train(?:ing)?|global)?[\s_-]*(?:step|iter(?:ation)?|batch)[\s_#:=-]*(\d{1,9})", re.IGNORECASE
)
_UNCOUNTED = re.compile(r"(?:train(?:ing)?[\s_-]*)?(?:step|iter(?:ation)?)", re.IGNORECASE)


class Ranges:
    """The ranges of a file, sorted as they come; `count` at the end makes steps of a name that returns."""

    def __init__(self, found: Collector) -> None:
        self._found = found
        self._again: Counter[tuple[int, str]] = Counter()
        self._steps: list[tuple[Process, str, float, float]] = []

    def add(self, process: Process, said: str, begins: float, ends: float, thread: int) -> None:
        """Take one range; times in microseconds."""
        if counted := _COUNTED.fullmatch(said):
            process.marks.append((begins, ends, int(counted[1])))
        elif _UNCOUNTED.fullmatch(said):
            self._again[id(process), said] += 1
            self._steps.append((process, said, begins, ends))
        elif said.startswith(("nccl", "rccl")) and collective(said) != "communication":
            process.records.append(HostRecord(begins, ends, thread, f"nccl:{said}", -1, None))
        else:
            self._found.special(process, said, begins, ends)

    def count(self) -> None:
        """Count the ranges of one name as steps, where no range counts by itself and the name returns."""
        chosen = {process: name for (process, name), count in reversed(self._again.most_common()) if count > 1}
        numbers: Counter[int] = Counter()
        counted = {id(process) for process, *_ in self._steps if process.marks}
        for process, name, begins, ends in sorted(self._steps, key=lambda step: step[2]):
            if id(process) not in counted and chosen.get(id(process)) == name:
                process.marks.append((begins, ends, numbers[id(process)]))
                numbers[id(process)] += 1


def ranks_by_device(found: Collector) -> str:
    """Name the processes that used devices rank 0, 1, … where there are several; return what a reader must know."""
    used = {  # -1 is no device: copies inside the host's memory
        pid: min((device for device in process.devices if device >= 0), default=-1)
        for pid, process in found.processes.items()
        if process.device.starts
    }
    if len(used) < 2:
        return ""
    for rank, pid in enumerate(sorted(used, key=lambda pid: (used[pid], str(pid)))):
        found.processes[pid].label = f"rank {rank}"
    return "the processes of this export are taken as ranks in the order of their devices"
