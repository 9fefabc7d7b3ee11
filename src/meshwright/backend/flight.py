"""The flight record: the last collectives of a rank, kept in a ring and written to a file when something is wrong.

Set `MESHWRIGHT_FLIGHT_DIR` to a folder and every rank that gives up writes `flight-<rank>.json`
there: its last collectives, the one that it is in, and the last step that each rank of its host has entered.
"""

import os
import time
from pathlib import Path
from typing import Any

import msgspec

from ..files import write_atomic

CAPACITY = 512
FLIGHT_VARIABLE = "MESHWRIGHT_FLIGHT_DIR"


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of one rank; `ended` is false for the one that never came back."""

    group: str
    sequence: int
    operation: str
    size_bytes: int
    started_s: float  # of the machine's monotonic clock
    ended: bool


class FlightDump(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank knew when it wrote its record; `arrivals` are the last steps entered, by rank."""

    rank: int
    pid: int
    group: str
    reason: str
    written_s: float
    arrivals: dict[int, int]
    flights: tuple[Flight, ...]


class FlightRecord:
    """The ring of one group on one rank; `begin` and `end` are on the path of every collective, so they do little."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.group = ""
        self.sequence = 0
        self.finished = 0
        self._ring: list[tuple[int, str, int, float, Any]] = [(0, "start", 0, 0.0, None)] * CAPACITY

    def begin(self, operation: str, size_bytes: int, options: Any = None) -> None:
        """Note that a collective starts; `options` may hold a time limit of its own (`timeout`, a timedelta)."""
        number = self.sequence = self.sequence + 1
        self._ring[number % CAPACITY] = (number, operation, size_bytes, time.monotonic(), options)

    def end(self) -> None:
        """Note that the last collective that began has ended."""
        self.finished = self.sequence

    def current(self) -> tuple[str, int, int]:
        """Return name, number and bytes of the last collective that began."""
        number, operation, size_bytes, _, _ = self._ring[self.sequence % CAPACITY]
        return operation, number, size_bytes

    def time_limit_s(self, otherwise_s: float) -> float:
        """Return the time limit of the last collective that began: its own if it has one."""
        options = self._ring[self.sequence % CAPACITY][4]
        limit = getattr(options, "timeout", None)
        seconds = limit.total_seconds() if limit is not None else -1.0
        return seconds if seconds > 0 else otherwise_s

    def flights(self) -> tuple[Flight, ...]:
        """Return the last collectives, oldest first."""
        entries = sorted(entry[:4] for entry in self._ring if entry[0])
        return tuple(
            Flight(
                group=self.group,
                sequence=number,
                operation=operation,
                size_bytes=size_bytes,
                started_s=started_s,
                ended=number <= self.finished,
            )
            for number, operation, size_bytes, started_s in entries
        )

    def dump(self, reason: str, arrivals: dict[int, int]) -> Path | None:
        """Write the record to `MESHWRIGHT_FLIGHT_DIR` and return the file, or None where that is not set."""
        folder = os.environ.get(FLIGHT_VARIABLE)
        if not folder:
            return None
        dump = FlightDump(
            rank=self.rank,
            pid=os.getpid(),
            group=self.group,
            reason=reason,
            written_s=time.monotonic(),
            arrivals=arrivals,
            flights=self.flights(),
        )
        path = Path(folder) / f"flight-{self.rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, msgspec.json.encode(dump))
        return path
