"""Steps: from the start of one to the start of the next, with the waits in it.

`ProfilerStep#N` says when the host began a step. Where the host runs ahead, the device is still busy with the step
before; the step is then the device's own, from the first kernel that the host launched in it.

A trace that was taken for a time, not for a number of steps, begins and ends inside one. The mark of the last one ends
there too, so that it looks like a short step. It is left out if it has fewer kernels than every other step, and either
these are the first ones of another, or the trace began inside a step: kernels ran before the first mark.
"""

import itertools
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .intervals import EMPTY, Array
from .model import Window

BEHIND_SHARE = 0.05  # of a step: a device that is so much behind the host has steps of its own
CUT_SHARE = 0.95  # of the main kernels of another step: a last step with fewer, the first of those, was cut off
LEAST_KERNELS = 8  # that are the first ones of a step by more than chance, or are a part of one
Times = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]
Mark = tuple[float, float, int]  # start, end, number


def windows(
    marks: Sequence[Mark], starts_s: Times, ends_s: Times, launched_s: Times, main: Flags, loading: Array = EMPTY
) -> list[Window]:
    """Return the steps of a device, given when each event ran and was launched, and which are its main work.

    Without marks: the whole trace as one step, number 0, with the wait of the device for its first data, given when
    the host was `loading`. Empty where nothing lasted.
    """
    if not len(starts_s):
        return []
    if not marks:
        return [Window(0, min([float(starts_s.min()), *loading[:1, 0].tolist()]), float(ends_s.max()))]
    marked = sorted(set(marks))
    found = {mark[2]: (mark[0], mark[1]) for mark in marked}  # its start, and its end if no next one follows
    if _behind(marked, ends_s, launched_s):
        found = _own_steps(marked, starts_s, ends_s, launched_s, main) or found
    made = []
    for number, (start, end) in found.items():
        after = found.get(number + 1)
        made.append(Window(number, start, after[0] if after is not None else end))
    return [w for w in made if w.end_s > w.start_s and np.any((starts_s < w.end_s) & (ends_s > w.start_s))]


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


def _own_steps(
    marked: Sequence[Mark], starts_s: Times, ends_s: Times, launched_s: Times, main: Flags
) -> dict[int, tuple[float, float]]:
    """Return when the device began its main work of each step and ended all of it; nothing if out of order."""
    edges = [-np.inf, *(mark[0] for mark in marked[1:]), np.inf]  # what was launched before the first is of the first
    found: dict[int, tuple[float, float]] = {}
    for (low, high), mark in zip(itertools.pairwise(edges), marked, strict=True):
        mine = (launched_s >= low) & (launched_s < high)
        if (mine & main).any():
            found[mark[2]] = float(starts_s[mine & main].min()), float(ends_s[mine].max())
    times = [start for start, _ in found.values()]
    return found if all(a < b for a, b in itertools.pairwise(times)) else {}


def without_cut_step(found: Sequence[Window], starts_s: Times, names: Numbers, before: int) -> tuple[list[Window], str]:
    """Return the steps without a last one that the end of the trace cut off, and a note of it; "" where none was.

    Given when the main kernels of all steps began, their names, and how many kernels ran before the first mark. A step
    as short as another of them, such as a step that only adds to the gradients, is whole.
    """
    order = np.argsort(starts_s, kind="stable")
    starts_s, names = starts_s[order], names[order]
    ran = [names[np.searchsorted(starts_s, w.start_s) : np.searchsorted(starts_s, w.end_s)] for w in found]
    if len(found) < 2 or any(len(ran[-1]) >= CUT_SHARE * len(one) for one in ran[:-1]):
        return list(found), ""
    *others, last = ran
    is_first_part = len(last) >= LEAST_KERNELS and any(np.array_equal(one[: len(last)], last) for one in others)
    if not is_first_part and before < LEAST_KERNELS:
        return list(found), ""
    why = f"it has {len(last)} kernels, step {found[-2].number} has {len(others[-1])}"
    return list(found[:-1]), f"the trace ends inside step {found[-1].number}, which is left out: {why}"
