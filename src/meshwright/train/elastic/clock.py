"""One clock for the machines of a job: that of the machine where all meet, as each of them reads it.

torch's rendezvous drops a machine whose heartbeat is a few seconds old by the observer's wall clock. So a machine whose
clock is behind is dropped without a word, even from a complete rendezvous, and so are all once a clock is set. Here
heartbeats count on the monotonic clock of the store's host, which nobody sets. A machine reads it when it joins, and
again every `AGAIN_S`, since clocks drift apart by seconds a day. Wall clocks are compared at the same time.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from .store_server import CLOCKS

AGAIN_S = 30.0
TRIES = 3  # of which the one with the shortest way counts
SKEW_S = 2.0  # between two wall clocks that is worth a word
_EPOCH = datetime.fromtimestamp(0, UTC)


class JobClock:
    """The clock of the machine where all meet. `ask` returns its `CLOCKS`; what it raises comes through."""

    def __init__(self, ask: Callable[[], bytes]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self.wall_ahead_s = 0.0  # by how much this machine's wall clock leads theirs at least; 0: not known
        self._refresh()

    def now_s(self) -> float:
        """Return the seconds of their monotonic clock."""
        return time.monotonic() + self._offset_s

    def keep(self) -> None:
        """Ask again if the last time was long ago."""
        with self._lock:
            if time.monotonic() - self._asked_s > AGAIN_S:
                self._refresh()

    def _refresh(self) -> None:
        took_s, self._offset_s, ahead_s = min(self._compared() for _ in range(TRIES))
        doubt_s = min(took_s / 2, abs(ahead_s))
        self.wall_ahead_s = ahead_s - doubt_s if ahead_s > 0 else ahead_s + doubt_s
        self._asked_s = time.monotonic()

    def _compared(self) -> tuple[float, float, float]:
        """Return how long the answer took, how far their monotonic clock is ahead, and how far our wall clock is."""
        start_s = time.monotonic()
        wall_s, monotonic_s = CLOCKS.unpack(self._ask())
        took_s = time.monotonic() - start_s
        return took_s, monotonic_s - (start_s + took_s / 2), time.time() - took_s / 2 - wall_s


def skew(ahead_s: float, here: str, there: str) -> str:
    """Return what to say of a wall clock that is so far ahead of another (or behind, where negative); "" of none."""
    if abs(ahead_s) <= SKEW_S:
        return ""
    return (
        f"the clock of {here} is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} that of {there}: times "
        "of events, logs and files of the two do not compare"
    )


@contextlib.contextmanager
def heartbeats_by(clock: JobClock) -> Iterator[None]:
    """Let torch's rendezvous read this clock in place of the wall clock, within a `with`."""

    class Shared(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return _EPOCH + timedelta(seconds=clock.now_s())

    theirs = dynamic_rendezvous.datetime
    dynamic_rendezvous.datetime = Shared  # type: ignore[misc]
    try:
        yield
    finally:
        dynamic_rendezvous.datetime = theirs  # type: ignore[misc]
