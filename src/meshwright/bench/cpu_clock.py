"""Processor time of work, and how much longer it takes where ranks share cores.

Work that is shorter than the time for which a rank keeps its core is mostly done without a pause and then waited for
long: its median lasts too short a time. So each piece is timed in processor time, and all of it together by the clock.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator

import torch

from ..device import between_s as events_s
from ..device import event, is_accelerator, synchronize

Mark = float | torch.Event


class CpuClock:
    """Counts what this thread did on one device, and how long that took."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._busy_s = self._wall_s = 0.0

    def now_s(self) -> float:
        """Return seconds: of this thread on a processor, or by the clock when all work for a GPU is done."""
        if not is_accelerator(self._device):
            return time.thread_time()
        synchronize(self._device)
        return time.perf_counter()

    def mark(self) -> Mark:
        """Return this moment, for `between_s`: on an accelerator that of its stream, for which the host never waits."""
        return event(self._device) if is_accelerator(self._device) else time.thread_time()

    def between_s(self, marks: Iterable[tuple[Mark, Mark]]) -> float:
        """Return the seconds between the marks of each pair, together."""
        synchronize(self._device)
        return sum(_passed_s(start, end) for start, end in marks)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count what runs in the body."""
        wall, busy = time.perf_counter(), self.now_s()
        yield
        self._busy_s += self.now_s() - busy
        self._wall_s += time.perf_counter() - wall

    @property
    def slowdown(self) -> float:
        """The seconds that a second of `now_s` lasts among these ranks."""
        return max(1.0, self._wall_s / self._busy_s) if self._busy_s else 1.0


def _passed_s(start: Mark, end: Mark) -> float:
    if isinstance(start, torch.Event) and isinstance(end, torch.Event):
        return events_s(start, end)
    assert isinstance(start, float)
    assert isinstance(end, float)
    return end - start
