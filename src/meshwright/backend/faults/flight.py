"""The flight record: the last collectives of a rank, kept in a ring a group and written to a file when asked for.

Set `MESHWRIGHT_FLIGHT_DIR` to a folder and every rank that gives up writes `flight-<rank>.json` there: for each of its
groups the last collectives, the one that it is in, and the last step that each rank of its host has entered.
"""

import ctypes
import os
import struct
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ...files import write_atomic

CAPACITY = 512
SEQUENCE, FINISHED, HEAD, ROW = 0, 1, 2, 4  # places in a record, what they take, and what a collective takes
OPERATIONS = ["start"]  # names by their numbers, the same in all groups
FLIGHT_VARIABLE = "MESHWRIGHT_FLIGHT_DIR"


class FlightEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of one rank; `ended` is false for the one that never came back."""

    sequence: int
    operation: str
    size_bytes: int
    started_s: float  # of the machine's monotonic clock
    ended: bool


class GroupFlights(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's knowledge of one group; `arrivals` are the last steps entered, by the job's ranks."""

    name: str
    description: str
    arrivals: dict[int, int]
    flights: tuple[FlightEntry, ...]


class FlightFile(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's knowledge when it wrote its record; `reason` is "" where it was only asked."""

    rank: int
    pid: int
    reason: str
    written_s: float  # of the machine's monotonic clock
    groups: tuple[GroupFlights, ...]


class FlightRecord:
    """The ring of one group on one rank; `begin` and `end` are on the path of every collective, so they do little.

    It is a row of numbers, so that calls.c can do what they do: the last that began, the last that ended, and of each
    collective its number, its operation (see `operation_number`), its bytes and when it began, in ns.
    """

    def __init__(self, rank: int) -> None:
        """Start the record of `rank`, as the job counts."""
        self.rank = rank
        self.group = self.description = self.reason = ""
        self._memory = bytearray(8 * (HEAD + ROW * CAPACITY))
        self._numbers = memoryview(self._memory).cast("q")
        self.options: list[Any] = [None]  # of the last collective that began

    @property
    def sequence(self) -> int:
        """The number of the last collective that began."""
        return self._numbers[SEQUENCE]

    @property
    def address(self) -> int:
        """Where the numbers are."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def begin(self, operation: str, size_bytes: int, options: Any = None) -> None:
        """Note that a collective starts; `options` may hold a time limit of its own (`timeout`, a timedelta)."""
        number = self._numbers[SEQUENCE] + 1
        place = 8 * (HEAD + ROW * (number % CAPACITY))
        _put(self._memory, place, number, operation_number(operation), size_bytes, time.monotonic_ns())
        self.options[0] = options
        self._numbers[SEQUENCE] = number

    def end(self) -> None:
        """Note that the last collective that began has ended."""
        self._numbers[FINISHED] = self._numbers[SEQUENCE]

    def current(self) -> tuple[str, int, int]:
        """Return name, number and bytes of the last collective that began."""
        number, operation, size_bytes, _ = self._row(self.sequence)
        return OPERATIONS[operation], number, size_bytes

    def time_limit_s(self, otherwise_s: float) -> float:
        """Return the time limit of the last collective that began: its own if it has one."""
        limit = getattr(self.options[0], "timeout", None)
        seconds = limit.total_seconds() if limit is not None else -1.0
        return seconds if seconds > 0 else otherwise_s

    def flights(self) -> tuple[FlightEntry, ...]:
        """Return the last collectives, oldest first."""
        rows = sorted(row for row in map(self._row, range(CAPACITY)) if row[0])
        return tuple(
            FlightEntry(
                sequence=number,
                operation=OPERATIONS[operation],
                size_bytes=size_bytes,
                started_s=started_ns / 1e9,
                ended=number <= self._numbers[FINISHED],
            )
            for number, operation, size_bytes, started_ns in rows
        )

    def _row(self, number: int) -> tuple[int, int, int, int]:
        start = HEAD + ROW * (number % CAPACITY)
        first, second, third, fourth = self._numbers[start : start + ROW]
        return first, second, third, fourth


def operation_number(name: str) -> int:
    """Return the number of an operation, a new one for a new name."""
    number = _operation_numbers.get(name)
    if number is None:
        number = _operation_numbers[name] = len(OPERATIONS)
        OPERATIONS.append(name)
    return number


class RecordedGroup(Protocol):
    """A group of which a record is kept."""

    flight: FlightRecord

    def arrivals(self) -> dict[int, int]:
        """Return the last step that each rank of this host has entered."""

    def given_up(self) -> set[int]:
        """Return this host's ranks that have aborted, for their own failure or another rank's."""


def remember(group: RecordedGroup) -> None:
    """Let the record of this group be written with those of the others, as long as the group lives."""
    with _groups_lock:
        _groups.add(group)


def forget_group(group: RecordedGroup) -> None:
    """Leave a group that has ended out of the record."""
    with _groups_lock:
        _groups.discard(group)


def forget_groups() -> None:
    """Leave out all groups, in a forked child: their record is its parent's, and perhaps the lock too."""
    global _groups_lock
    _groups_lock = threading.RLock()
    _groups.clear()


def has_given_up(rank: int) -> bool:
    """Return whether a rank of this host, as the job counts, has given up in a group that this one shares with it."""
    return any(rank in group.given_up() for group in _recorded_groups())


def write_flights(reason: str = "") -> Path | None:
    """Write the records of all groups to `MESHWRIGHT_FLIGHT_DIR`; return the file, None where it is not written.

    From any thread, also in the middle of a collective. `reason` is "" where nothing is wrong, or where it is known
    already: what made a group give up stays the reason.
    """
    folder, groups = os.environ.get(FLIGHT_VARIABLE), sorted(_recorded_groups(), key=lambda group: group.flight.group)
    if not folder or not groups:
        return None
    rank = groups[0].flight.rank
    written = FlightFile(
        rank=rank,
        pid=os.getpid(),
        reason=next((group.flight.reason for group in groups if group.flight.reason), reason),
        written_s=time.monotonic(),
        groups=tuple(
            GroupFlights(
                name=group.flight.group,
                description=group.flight.description,
                arrivals=group.arrivals(),
                flights=group.flight.flights(),
            )
            for group in groups
        ),
    )
    path = Path(folder) / f"flight-{rank}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, msgspec.json.encode(written))
    except OSError:  # a full disk keeps nobody from telling of what happened
        return None
    return path


def _recorded_groups() -> list[RecordedGroup]:
    with _groups_lock:
        return list(_groups)


_put = struct.Struct("4q").pack_into
_operation_numbers: dict[str, int] = {}
_groups: weakref.WeakSet[RecordedGroup] = weakref.WeakSet()
_groups_lock = threading.RLock()  # a set that another thread adds to cannot be listed
