"""The recorder: what this rank did when, cheap enough to be always on.

A recorded span costs two clock readings and one tuple, on an accelerator two events as well; the host waits for them
once, at the end of the step. What the last thousand steps cost is kept as a few numbers a step, and only the last few
keep their spans.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterator

import torch

from ... import device as devices
from ...timeline import Lane, Span, step_parts

clock = time.monotonic  # the same clock in all processes of a host
WARM_UP_STEPS = 5  # of a run are not measured, and ranks are not compared in them
PARTS_KEPT = 1000  # steps whose costs are kept: a run of any length takes the same memory


class DeviceMoment(float):
    """When something was given to an accelerator, by the host's clock, with the event that says when it was reached."""

    event: torch.Event


class Recorder:
    """Spans of one rank; does nothing while `enabled` is False.

    On an accelerator a span is where its work ran, not where the host asked for it.
    """

    def __init__(self, rank: int, *, keep_steps: int, enabled: bool = True, device: torch.device = devices.CPU) -> None:
        self.rank = rank
        self._device = device if devices.is_accelerator(device) else None
        self._anchor = DeviceMoment()  # an event that was reached at a known time of the host's clock
        if self._device is not None:
            self._anchor = self._anchored(self._device)
        self.enabled = enabled
        self.parts: deque[dict[str, float]] = deque(maxlen=PARTS_KEPT)  # one entry a recorded step
        self._numbers: deque[int] = deque(maxlen=PARTS_KEPT)  # of the same steps
        self.steps = 0  # recorded so far, warm-up included
        self._kept: deque[list[Span]] = deque(maxlen=keep_steps)
        self._current: list[tuple[Lane, str, float, float, int, str]] = []

    @contextlib.contextmanager
    def span(self, lane: Lane, name: str, detail: str = "") -> Iterator[None]:
        """Record the body of a `with` as one span."""
        if not self.enabled:
            yield
            return
        start = self.now()
        yield
        self._current.append((lane, name, start, self.now(), 0, detail))

    def now(self) -> float:
        """Return the time by the host's clock, on an accelerator a moment of its current stream."""
        if self._device is None or not self.enabled:
            return clock()
        moment = DeviceMoment(clock())
        moment.event = devices.event(self._device)
        return moment

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
            if self._device is not None:
                devices.synchronize(self._device)  # every event has been reached
            spans = [self._span(step, *each) for each in self._current]
            self.parts.append(step_parts(spans))
            self._numbers.append(step)
            self.steps += 1
            self._kept.append(spans)
            self._current = []
            if self._device is not None:
                self._anchor = self._anchored(self._device)

    def _span(self, step: int, lane: Lane, name: str, start: float, end: float, size_bytes: int, detail: str) -> Span:
        start_s, end_s = self._reached_s(start), self._reached_s(end)
        return Span(self.rank, lane, name, start_s, end_s, step=step, bytes=size_bytes, detail=detail)

    def _anchored(self, device: torch.device) -> DeviceMoment:
        """Return a moment that an idle device reaches as the host's clock is read."""
        devices.synchronize(device)
        event = devices.event(device)
        event.synchronize()
        anchor = DeviceMoment(clock())
        anchor.event = event
        return anchor

    def _reached_s(self, moment: float) -> float:
        """Return when a moment was reached, by the host's clock."""
        if not isinstance(moment, DeviceMoment):
            return moment
        return float(self._anchor) + devices.between_s(self._anchor.event, moment.event)

    def parts_after(self, warm_up: int) -> list[dict[str, float]]:
        """Return the parts of the steps that are kept and come after the first `warm_up`."""
        gone = self.steps - len(self.parts)
        return list(self.parts)[max(warm_up - gone, 0) :]

    def numbers_after(self, warm_up: int) -> list[int]:
        """Return the numbers of the steps of `parts_after`; one that a run went back to is there more than once."""
        gone = self.steps - len(self.parts)
        return list(self._numbers)[max(warm_up - gone, 0) :]

    def spans(self) -> list[Span]:
        """Return the spans of the last steps."""
        return [span for step in self._kept for span in step]


def measured_steps(recorder: Recorder, warm_up: int = WARM_UP_STEPS) -> dict[int, dict[str, float]]:
    """Return by number the parts of the steps that count: all after the warm-up, or the last of a very short run.

    Of a step that the run went back to, the last time counts.
    """
    left_out = min(warm_up, recorder.steps - 1)
    return dict(zip(recorder.numbers_after(left_out), recorder.parts_after(left_out), strict=True))
