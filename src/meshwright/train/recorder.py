"""The recorder: who did what when on this rank, cheap enough to be always on.

A recorded span costs two clock readings and one tuple; what the last thousand steps cost is kept as a few numbers a
step, and only the last few keep their spans.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterator

from ..timeline import Lane, Span, step_parts

clock = time.monotonic  # the same clock in all processes of a host
PARTS_KEPT = 1000  # steps whose costs are kept: a run of any length takes the same memory


class Recorder:
    """Spans of one rank; does nothing while `enabled` is False."""

    def __init__(self, rank: int, *, keep_steps: int, enabled: bool = True) -> None:
        self.rank = rank
        self.enabled = enabled
        self.parts: deque[dict[str, float]] = deque(maxlen=PARTS_KEPT)  # one entry a recorded step
        self.steps = 0  # recorded so far, warm-up included
        self._kept: deque[list[Span]] = deque(maxlen=keep_steps)
        self._current: list[tuple[Lane, str, float, float, int, str]] = []

    @contextlib.contextmanager
    def span(self, lane: Lane, name: str, detail: str = "") -> Iterator[None]:
        """Record the body of a `with` as one span."""
        if not self.enabled:
            yield
            return
        start = clock()
        yield
        self._current.append((lane, name, start, clock(), 0, detail))

    def note(self, lane: Lane, name: str, start_s: float, end_s: float, size_bytes: int = 0, detail: str = "") -> None:
        """Record a span whose ends were read elsewhere, from any thread."""
        if self.enabled:
            self._current.append((lane, name, start_s, end_s, size_bytes, detail))

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing of the body of a `with`, which belongs to no step."""
        enabled, self.enabled = self.enabled, False
        try:
            yield
        finally:
            self.enabled = enabled

    def end_step(self, step: int) -> None:
        """Close the current step."""
        if self._current:
            spans = [
                Span(self.rank, lane, name, start, end, step=step, bytes=size, detail=detail)
                for lane, name, start, end, size, detail in self._current
            ]
            self.parts.append(step_parts(spans))
            self.steps += 1
            self._kept.append(spans)
            self._current = []

    def parts_after(self, warm_up: int) -> list[dict[str, float]]:
        """Return the parts of the steps that are kept and come after the first `warm_up`."""
        gone = self.steps - len(self.parts)
        return list(self.parts)[max(warm_up - gone, 0) :]

    def spans(self) -> list[Span]:
        """Return the spans of the last steps."""
        return [span for step in self._kept for span in step]
