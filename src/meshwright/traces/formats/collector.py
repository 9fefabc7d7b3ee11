"""The events of one file, sorted as they stream by: a few numbers of each are kept, in arrays, process by process."""

import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..names import MARKED, NO_CALL
from .events import Args, TraceEvent

DEVICE, COPY, SET, RUNTIME, OPERATOR, NOTE, PYTHON, SKIPPED, PLAIN, UNKNOWN, DEVICE_NOTE = range(11)
# categories of Kineto (libkineto/src/ActivityType.cpp) and those of 2021; a device is also whatever names a stream
_KINDS = {
    "kernel": DEVICE, "concurrent_kernel": DEVICE, "mtia_ccp_events": DEVICE, "mtia_workloadd": DEVICE,
    "collective_comm": DEVICE, "hpu_op": DEVICE, "privateuse1_kernel": DEVICE,
    "gpu_memcpy": COPY, "memcpy": COPY, "gpu_memset": SET, "memset": SET,
    "runtime": RUNTIME, "driver": RUNTIME,
    "cpu_op": OPERATOR, "operator": OPERATOR, "user_annotation": NOTE, "python_function": PYTHON, "": PLAIN,
    "gpu_user_annotation": DEVICE_NOTE, "cpu_instant_event": SKIPPED, "overhead": SKIPPED, "trace": SKIPPED,
    "cuda_sync": SKIPPED, "cuda_event": SKIPPED, "cuda_profiler_range": SKIPPED, "external_correlation": SKIPPED,
    "mtia_insight": SKIPPED, "gpu_pm_counter": SKIPPED,
}  # fmt: skip
_OF_PROCESS = frozenset({"process_name", "process_labels", "process_sort_index", "global_rank"})
_RUNTIME = re.compile(r"_(?:runtime|driver)$")
_STEP = re.compile(r"ProfilerStep#(\d{1,12})$")
_GARBAGE = re.compile(r"\bgc\b.*\bcollect|<built-in function collect>|garbage.?collect|^(?:python )?gc$", re.IGNORECASE)
_ALLOCATOR = re.compile(r"(?:cuda|hip|cu|zeMem|aclrt)(?:Mem)?(?:Host)?(?:Malloc|Alloc|Free|Create|Map|Unmap|Release)")
_WAITING = re.compile(r"Synchronize|StreamWait|EventQuery")
# frames of Python's stack, Lightning's annotation, and what people call their own
_LOADING = re.compile(
    r"(?:data_?loader\w*|/dali/[\w/]+|(?:webdataset|torchdata)/[\w/]+)\.py\(\d+\): __next__$|dataloader_next$"
    r"|^(?:data[-_ ]?load(?:ing|er)|load(?:ing)?[-_ ](?:data|batch)|(?:get|fetch|next)[-_ ]batch|batch[-_ ]generator)$",
    re.IGNORECASE,
)
_BACKWARD, _OPTIMIZER, _LOADER = "autograd::engine::evaluate_function", "Optimizer.", "enumerate(DataLoader)"
LEAST_FRAME_US = 1000.0  # of a frame that is kept by its name: stacks have millions of short ones
_FRAMED = ("", "optimizer")  # roles of those
MOST_DIGITS = 20  # of a number that stands as text
MOST_US = 365.25 * 86400e6  # an operator whose beginning Kineto missed lasts since 1970: longer than that is left out


def doubles() -> "array[float]":
    """Return an empty array of times."""
    return array("d")


def integers() -> "array[int]":
    """Return an empty array of numbers."""
    return array("q")


@dataclass(slots=True)
class Spans:
    """Intervals in microseconds, with what else is known of each."""

    starts: "array[float]" = field(default_factory=doubles)
    ends: "array[float]" = field(default_factory=doubles)
    names: "array[int]" = field(default_factory=integers)
    threads: "array[int]" = field(default_factory=integers)
    links: "array[int]" = field(default_factory=integers)  # correlation of a launch, external id of an operator

    def add(self, start: float, end: float, name: int = 0, thread: int = 0, link: int = -1) -> None:
        """Append one."""
        self.starts.append(start)
        self.ends.append(end)
        self.names.append(name)
        self.threads.append(thread)
        self.links.append(link)


@dataclass(slots=True)
class HostRecord:
    """The host's record of one communication."""

    start: float
    end: float
    thread: int
    name: str
    external: int
    args: Args | None


@dataclass(slots=True)
class Process:
    """The content of one process id of a file; times in microseconds as the file has them."""

    device: Spans = field(default_factory=Spans)  # links: correlation
    externals: "array[int]" = field(default_factory=integers)
    devices: "array[int]" = field(default_factory=integers)  # -1 where the event names none
    kinds: "array[int]" = field(default_factory=integers)  # DEVICE, COPY or SET
    told: dict[int, Args] = field(default_factory=dict)  # of device events that carry their collective
    copied: dict[int, int] = field(default_factory=dict)  # bytes of a copy, by its place
    launches: Spans = field(default_factory=Spans)
    operators: Spans = field(default_factory=Spans)
    backward: Spans = field(default_factory=Spans)
    optimizer: Spans = field(default_factory=Spans)
    data: Spans = field(default_factory=Spans)
    allocator: Spans = field(default_factory=Spans)
    garbage: Spans = field(default_factory=Spans)
    waiting: Spans = field(default_factory=Spans)
    frames: Spans = field(default_factory=Spans)  # long annotations, frames of Python, operators and calls
    plain: Spans = field(default_factory=Spans)  # events without a category
    tasks: dict[int, str] = field(default_factory=dict)
    records: list[HostRecord] = field(default_factory=list)
    marks: list[tuple[float, float, int]] = field(default_factory=list)
    device_marks: list[tuple[float, float, int]] = field(default_factory=list)  # from its first kernel to its last
    label: str = ""  # what the file calls the process
    ranks: set[int] = field(default_factory=set)  # that its events say it is
    sort_index: int | None = None
    threads: dict[int, str] = field(default_factory=dict)  # what it calls its threads


class Collector:
    """Takes the batches of a file."""

    def __init__(self) -> None:
        self.processes: dict[int | str, Process] = {}
        self.table: list[str] = []
        self._ids: dict[str, int] = {}
        self._threads: dict[int | str, int] = {}
        self._kinds = dict(_KINDS)
        self._roles: dict[int, str] = {}

    def take(self, events: Sequence[TraceEvent]) -> None:
        """Keep what of a batch is read later."""
        kinds, ids = self._kinds, self._ids
        for event in events:
            if event.ph != "X":
                if event.ph == "M":
                    self._metadata(event)
                continue
            kind = kinds.get(event.cat)
            if kind is None:
                kind = self._kind_of(event.cat)
            duration, start = event.dur, event.ts
            if kind == SKIPPED or duration is None or not 0 <= duration < MOST_US or not -math.inf < start < math.inf:
                continue
            if kind == DEVICE_NOTE:
                self._device_note(event, start + duration)
                continue
            process = self.processes.get(event.pid)
            if process is None:
                process = self.processes[event.pid] = Process()
            name = ids.get(event.name)
            if name is None:
                name = self.named(event.name)
            if kind == UNKNOWN:
                if event.args is None or _integer(event.args.stream) < 0:
                    continue
                kind = DEVICE
            end = start + duration
            if kind <= SET:
                self._device(process, event, kind, name, end)
            elif kind == RUNTIME:
                link = _integer(event.args.correlation) if event.args is not None else -1
                process.launches.add(start, end, name, self.thread(event.tid), link)
                self.special(process, event.name, event.ts, end, event.args, self.thread(event.tid))
            elif kind == OPERATOR:
                self._operator(process, event, name, end)
            elif kind == PLAIN:
                process.plain.add(start, end, name, self.thread(event.tid))
                if event.args is not None and event.args.task is not None:
                    process.tasks[len(process.plain.starts) - 1] = str(event.args.task)
            else:
                self.special(process, event.name, event.ts, end, event.args, self.thread(event.tid))

    def named(self, name: str) -> int:
        """Return the number of a name."""
        found = self._ids.get(name)
        if found is None:
            found = self._ids[name] = len(self.table)
            self.table.append(name)
        return found

    def special(
        self, process: Process, name: str, start: float, end: float, args: Args | None = None, tid: int = 0
    ) -> None:
        """Keep an event whose name says that it is a step, a phase, the data loader and so on, or that lasts long."""
        number = self.named(name)
        role = self._roles.get(number)
        if role is None:
            role = self._roles[number] = _role_of(name)
        if end - start >= LEAST_FRAME_US and role in _FRAMED:
            process.frames.add(start, end, number)
        if not role:
            return
        if role == "step":
            process.marks.append((start, end, int(name.rpartition("#")[2])))
        elif role == "record":
            called = str(args.collective) if args is not None and args.collective else name.partition(":")[2]
            if called.lower() not in NO_CALL:
                external = _external(args) if args is not None else -1
                process.records.append(HostRecord(start, end, tid, name, external, args))
        else:
            getattr(process, role).add(start, end, number)

    def _kind_of(self, category: str) -> int:
        plain = category.lower().strip()
        found = _KINDS.get(plain, RUNTIME if _RUNTIME.search(plain) else UNKNOWN)
        self._kinds[category] = found
        return found

    def thread(self, tid: int | str) -> int:
        """Return the number of a thread or stream."""
        return self._threads.setdefault(tid, len(self._threads))

    def _device_note(self, event: TraceEvent, end: float) -> None:
        match = _STEP.match(event.name)
        if match:
            process = self.processes.setdefault(event.pid, Process())
            process.device_marks.append((event.ts, end, int(match[1])))

    def _metadata(self, event: TraceEvent) -> None:
        if event.name == "thread_name" and event.args is not None:
            process = self.processes.setdefault(event.pid, Process())
            process.threads[self.thread(event.tid)] = str(event.args.name or "")
        if event.name in _OF_PROCESS and event.args is not None:
            process = self.processes.setdefault(event.pid, Process())
            if event.name == "process_sort_index":
                process.sort_index = _integer(event.args.sort_index)
            elif event.name == "global_rank":
                process.ranks.add(_integer(event.args.value))
            else:
                process.label = f"{process.label} {event.args.name or event.args.labels or ''}".strip()

    def _device(self, process: Process, event: TraceEvent, kind: int, name: int, end: float) -> None:
        args = event.args
        place = len(process.kinds)
        process.kinds.append(kind)
        if args is None:
            process.device.add(event.ts, end, name, self.thread(event.tid))
            process.externals.append(-1)
            process.devices.append(-1)
            return
        stream = event.tid if args.stream is None or not isinstance(args.stream, int | str) else args.stream
        process.device.add(event.ts, end, name, self.thread(stream), _integer(args.correlation))
        process.externals.append(_external(args))
        process.devices.append(_integer(args.device))
        if args.rank is not None:
            process.ranks.add(_integer(args.rank))
        if args.collective is not None:
            process.told[place] = args
        elif kind == COPY:
            process.copied[place] = max(0, _integer(args.bytes))

    def _operator(self, process: Process, event: TraceEvent, name: int, end: float) -> None:
        external = _external(event.args) if event.args is not None else -1
        if event.args is not None and event.args.rank is not None:
            process.ranks.add(_integer(event.args.rank))
        process.operators.add(event.ts, end, name, self.thread(event.tid), external)
        self.special(process, event.name, event.ts, end, event.args, self.thread(event.tid))


def _role_of(name: str) -> str:
    """Return where a host's event of this name is kept, "" for most."""
    if _STEP.match(name):
        return "step"
    if name == "record_param_comms" or MARKED.match(name):
        return "record"
    starts = {_BACKWARD: "backward", _OPTIMIZER: "optimizer", _LOADER: "data"}
    found = next((role for start, role in starts.items() if name.startswith(start)), "")
    if found:
        return found
    searched = {"data": _LOADING, "garbage": _GARBAGE, "allocator": _ALLOCATOR, "waiting": _WAITING}
    return next((role for role, pattern in searched.items() if pattern.search(name)), "")


def _external(args: Args) -> int:
    return _integer(args.external if args.external is not None else args.external_2021)


def _integer(value: Any) -> int:
    """Return a number of a file, -1 for what is none."""
    if isinstance(value, str) and len(value) <= MOST_DIGITS and value.strip().lstrip("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and -(2**62) < value < 2**62 else -1
