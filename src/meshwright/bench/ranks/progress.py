"""How far a measurement on several ranks is: a rank counts in a file what is done, its owner reads that meanwhile."""

import time
from collections.abc import Callable
from pathlib import Path

from ...units import format_time

SAY_EVERY_S = 5.0
STILL_S = 30.0  # between two lines where nothing more was done


class Progress:
    """The count of timings that are done, of `total`; it can be sent to a rank, which alone counts."""

    def __init__(self, path: Path, total: int) -> None:
        self.path, self.total = path, total
        path.touch()

    def count(self) -> None:
        """Count one timing as done."""
        with self.path.open("ab") as file:
            file.write(b".")

    @property
    def done(self) -> int:
        """The number of finished timings."""
        return self.path.stat().st_size


class ProgressTeller:
    """Says now and then how far a measurement is and how long it will still take, and whether it gets on at all."""

    def __init__(
        self, progress: Progress, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._progress, self._say, self._clock = progress, say, clock
        self._start_s = self._said_s = clock()
        self._first: tuple[float, int] | None = None  # when timings were first seen to be done, and how many
        self._seen = self._said = 0

    def __call__(self) -> bool:
        """Return whether more is done than at the last call."""
        done, now = self._progress.done, self._clock()
        more, self._seen = done > self._seen, done
        if more and self._first is None:
            self._first = now, done
        if now - self._said_s >= (SAY_EVERY_S if done > self._said else STILL_S):
            self._said_s, self._said = now, done
            self._say(f"  {done} of {self._progress.total} done{self._left(done, now)}")
        return more

    def _left(self, done: int, now: float) -> str:
        """Return in words the time that the rest takes at this pace, or the time so far where nothing says that.

        The time that ranks take to start does not count for the pace.
        """
        if done == self._progress.total:
            return "; the pace of the ranks and the rate of memory are left"
        first_s, first = self._first or (now, done)
        if done == first:
            return f" after {format_time(round(now - self._start_s))}"
        left_s = (now - first_s) / (done - first) * (self._progress.total - done)
        return f", about {format_time(max(1, round(left_s)))} left"
