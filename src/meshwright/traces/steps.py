"""Steps: from the start of one to the start of the next, with the waits in it.

`ProfilerStep#N` says when the host began a step. Where the host runs ahead, the device is still busy with the step
before; the step is then the device's own, from the first kernel that the host launched in it.
"""

import itertools
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .model import Window

BEHIND_SHARE = 0.05  # of a step: a device that is so much behind the host has steps of its own
Times = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Mark = tuple[float, float, int]  # start, end, number


def windows(marks: Sequence[Mark], starts_s: Times, ends_s: Times, launched_s: Times, main: Flags) -> list[Window]:
    """Return the steps of a device, given when each event ran and was launched, and which are its main work.

    Without marks: the whole trace as one step, number 0. Empty where nothing lasted.
    """
    if not len(starts_s):
        return []
    if not marks:
        return [Window(0, float(starts_s.min()), float(ends_s.max()))]
    marked = sorted(set(marks))
    begins = [mark[0] for mark in marked]
    last_s = max(marked[-1][1], begins[-1])
    numbers = [mark[2] for mark in marked]
    own = _own_starts(begins, starts_s, launched_s, main) if _behind(marked, ends_s, launched_s) else {}
    if own:
        numbers, begins, last_s = [numbers[i] for i in own], list(own.values()), float(ends_s.max())
    edges = [*begins, max(last_s, begins[-1])]
    found = [Window(number, a, b) for number, a, b in zip(numbers, edges[:-1], edges[1:], strict=True) if b > a]
    return [w for w in found if np.any((starts_s < w.end_s) & (ends_s > w.start_s))]


def _behind(marked: Sequence[Mark], ends_s: Times, launched_s: Times) -> bool:
    """Return whether the device still worked on earlier steps when the host began the typical step."""
    begins = [mark[0] for mark in marked]
    steps_s = [b - a for a, b in zip(begins, [*begins[1:], marked[-1][1]], strict=True)]
    lags = []
    for begin in begins[1:]:
        earlier = ends_s[launched_s < begin]
        lags.append(max(0.0, float(earlier.max()) - begin) if len(earlier) else 0.0)
    if not lags:  # one step: its device may end after the host did
        return bool(float(ends_s.max()) - marked[-1][1] > BEHIND_SHARE * steps_s[0])
    return statistics.median(lags) > BEHIND_SHARE * statistics.median(steps_s)


def _own_starts(begins: Sequence[float], starts_s: Times, launched_s: Times, main: Flags) -> dict[int, float]:
    """Return when the device began each step that gave it main work, by the step's place; nothing if out of order."""
    edges = [-np.inf, *begins[1:], np.inf]  # what was launched before the first mark belongs to the first step
    found: dict[int, float] = {}
    for place, (low, high) in enumerate(itertools.pairwise(edges)):
        mine = main & (launched_s >= low) & (launched_s < high)
        if mine.any():
            found[place] = float(starts_s[mine].min())
    times = list(found.values())
    return found if all(a < b for a, b in itertools.pairwise(times)) else {}
