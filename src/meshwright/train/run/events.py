"""Events of a run that a person should know: failures, restarts, stragglers, storage, stops.

Each rank appends lines of JSON to a file of its own, `events/RANK.jsonl` in the run folder (a launcher to one of its
host). Each line is in the kernel's hands when `record` returns, so it outlives the process. A hook may be called beside
it (`--on-event`).
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ...backend.hosts.machine_names import boot, namespace
from ...cluster.emulation.linux import reserve
from ...errors import InputError
from ...files import read_bytes, to_json
from ...quantities import Instant, Number, Rank
from .event_hook import HOOK_VARIABLE, start_hook

Kind = Literal[
    "failure",
    "restart",
    "resume",
    "replan",
    "slow_rank",
    "slow_link",
    "storage",
    "stop",
    "joined",
    "left",
    "not_finite",
    "corruption",
    "clock",
]
LAUNCHER_ENDED = "died or left; its ranks save and leave"
MAX_LINE_BYTES = 64 * 2**10
ROOM_BYTES = 16 * 2**10  # of the disk, for the events of a process
Hook = Callable[["Event"], None]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened, as one rank saw it. `culprit` is the rank that it is about, where there is one."""

    kind: Kind
    message: str
    rank: Rank | None = None  # None: a launcher
    culprit: Rank | None = None
    host: str = ""  # of the culprit
    step: Number | None = None
    operation: str = ""
    evidence: dict[str, float] = {}
    attempt: Number = 0  # how often the job had been restarted
    time_s: Instant = 0.0  # of the wall clock
    uptime_s: Instant = 0.0  # of the machine: a clock that nobody sets
    machine: str = ""  # and since which start, whose `uptime_s` it is; "": not said

    def __str__(self) -> str:
        """Print it for a person."""
        who = f"rank {self.rank}" if self.rank is not None else "launcher"
        return f"{who}{f' in step {self.step}' if self.step is not None else ''}: {self.message}"


class EventLog:
    """Appends the events of one rank; a disk that refuses is no reason to stop."""

    def __init__(self, folder: Path, rank: int | None) -> None:
        self.rank = rank
        self.path = folder / f"{f'launcher-{this_host()}' if rank is None else rank}.jsonl"
        self._machine = f"{this_host()} {boot()} {namespace('time')}".strip()
        self._attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self._hook = command_hook(folder)
        self._room_bytes = 0

    def keep_room(self) -> None:
        """Reserve `ROOM_BYTES` of the disk for later events, so that a full disk still takes them."""
        self._room_bytes = ROOM_BYTES
        with contextlib.suppress(OSError):
            os.close(self._opened())

    def _opened(self) -> int:
        self.path.parent.mkdir(exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if self._room_bytes:
            with contextlib.suppress(OSError):  # full: what was kept before is there
                reserve(descriptor, os.fstat(descriptor).st_size + self._room_bytes)
        return descriptor

    def record(self, event: Event) -> None:
        """Write an event down now; callable from any thread."""
        event = msgspec.structs.replace(
            event,
            rank=self.rank,
            time_s=time.time(),
            uptime_s=time.clock_gettime(time.CLOCK_BOOTTIME),
            machine=self._machine,
            attempt=self._attempt,
        )
        try:
            descriptor = self._opened()
            try:
                cut_off = _ends_within_a_line(descriptor)
                os.write(descriptor, b"\n" * cut_off + to_json(event).encode()[:MAX_LINE_BYTES] + b"\n")
            finally:
                os.close(descriptor)
        except OSError:
            pass  # the folder is full or gone; what stopped the run is also raised
        if self._hook is not None:
            self._hook(event)


def _ends_within_a_line(descriptor: int) -> bool:
    """Return whether the last line of a file was cut off, by a crash or a full disk: the next is not a part of it."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def read_events(folder: Path) -> list[Event]:
    """Return the events of all ranks in order of time; lines that were cut off or damaged are left out.

    So is what is no file, or cannot be read. Their `time_s` go on from the first of each machine by its uptime, so that
    a wall clock that is set meanwhile changes neither order nor distances.
    """
    events = []
    for path in sorted(folder.glob("*.jsonl")):
        with contextlib.suppress(InputError):
            events += _events_of(read_bytes(path))
    return sorted(_on_one_clock(events), key=lambda event: event.time_s)


def _on_one_clock(events: Sequence[Event]) -> list[Event]:
    """Return events with the wall clock of each machine as it was at its first one, and went on from there."""
    first: dict[str, Event] = {}
    for event in events:
        known = first.setdefault(event.machine, event)
        if event.uptime_s < known.uptime_s:
            first[event.machine] = event
    found = []
    for event in events:
        begun = first[event.machine]
        time_s = begun.time_s + event.uptime_s - begun.uptime_s if event.machine else event.time_s
        found.append(msgspec.structs.replace(event, time_s=time_s))
    return found


def _events_of(lines: bytes) -> list[Event]:
    events = []
    for line in lines.splitlines():
        try:
            events.append(msgspec.json.decode(line, type=Event))
        except (ValueError, RecursionError):  # msgspec's errors, and UnicodeDecodeError
            continue
    return events


def launcher_ended(pid: int) -> Event:
    """Return what a rank says of its launcher, of this host, that has ended before it."""
    host = this_host()
    return Event(kind="failure", message=f"the launcher (host {host}, pid {pid}) {LAUNCHER_ENDED}", host=host)


def ended_launchers(folder: Path) -> list[str]:
    """Return what ranks have said of launchers that ended before them."""
    return [event.message for event in read_events(folder) if event.message.endswith(LAUNCHER_ENDED)]


def this_host() -> str:
    """Return the name of this host, as messages have it."""
    return socket.gethostname()


def command_hook(folder: Path) -> Hook | None:
    """Return the hook that calls the user's command, None where there is none."""
    command = os.environ.get(HOOK_VARIABLE)
    if not command:
        return None
    log = folder / "hook.log"
    return lambda event: start_hook(command, to_json(event).encode() + b"\n", log)
