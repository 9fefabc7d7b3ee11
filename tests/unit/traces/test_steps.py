"""Steps as windows of time: whose they are, and where they end."""

import numpy as np
import pytest

from meshwright.traces.model import Window
from meshwright.traces.steps import windows, without_cut_step


def found(marks, kernels):
    """Return (number, start, end) of the steps of kernels (launched, started, ended), all of them main work."""
    launched, starts, ends = (np.asarray(column, dtype=float) for column in zip(*kernels, strict=True))
    every = windows(marks, starts, ends, launched, np.ones(len(kernels), dtype=bool))
    return [(window.number, window.start_s, window.end_s) for window in every]


@pytest.mark.parametrize(
    ("marks", "kernels", "steps"),
    [
        ([], [(0, 1, 2), (3, 4, 9)], [(0, 1, 9)]),
        # the device keeps up: from mark to mark, the last to its own end
        ([(0, 8, 5), (10, 18, 6)], [(1, 2, 7), (11, 12, 17)], [(5, 0, 10), (6, 10, 18)]),
        # the host is done long before: the device's own steps
        ([(0, 2, 5), (2, 4, 6)], [(1, 2, 12), (3, 12, 22)], [(5, 2, 12), (6, 12, 22)]),
        # what was launched before the first mark belongs to its step
        ([(0, 2, 5), (2, 4, 6)], [(-1, 0, 10), (3, 10, 20)], [(5, 0, 10), (6, 10, 20)]),
        # two cycles in one trace: the last step of the first does not reach to the second
        ([(0, 10, 1), (10, 20, 2), (90, 99, 8)], [(1, 2, 9), (11, 12, 19), (91, 92, 98)],
         [(1, 0, 10), (2, 10, 20), (8, 90, 99)]),
        # a step in which nothing ran is none
        ([(0, 10, 1), (10, 20, 2)], [(1, 2, 9)], [(1, 0, 10)]),
    ],
)  # fmt: skip
def test_a_step_goes_from_its_start_to_the_start_of_the_next(marks, kernels, steps):
    assert found(marks, kernels) == steps


def test_a_trace_without_steps_begins_with_its_first_loading():
    starts, ends = np.asarray([4.0, 9.0]), np.asarray([6.0, 11.0])
    main, loading = np.ones(2, dtype=bool), np.asarray([[1.0, 3.5], [6.5, 8.5]])
    whole = windows([], starts, ends, starts, main, loading)

    assert [(window.start_s, window.end_s) for window in whole] == [(1.0, 11.0)]


STEP = list(range(20))  # names of the kernels of a whole step
OTHERS = [7] * 6  # of which no step begins so


@pytest.mark.parametrize(
    ("steps", "before", "kept"),
    [
        ([STEP, STEP, STEP[:9]], 0, 2),  # the first kernels of a step: the trace ends in it
        ([STEP, OTHERS], 12, 1),  # it began inside a step as well
        ([STEP, OTHERS], 0, 2),
        ([STEP, STEP[:5]], 0, 2),  # too few to tell
        ([STEP, STEP[:9], STEP, STEP[:9]], 12, 4),  # every second step only adds to the gradients
        ([STEP[:9], STEP], 12, 2),
        ([STEP, STEP], 12, 2),
        ([STEP[:9]], 12, 1),
    ],
)
def test_a_last_step_that_the_end_of_the_trace_cut_off_is_left_out(steps, before, kept):
    marked = [Window(40 + number, 100.0 * number, 100.0 * number + 100) for number in range(len(steps))]
    starts = np.concatenate([100.0 * number + np.arange(len(names)) for number, names in enumerate(steps)])
    found, note = without_cut_step(marked, starts, np.concatenate(steps), before)

    assert found == marked[:kept]
    left_out = f"the trace ends inside step {39 + len(steps)}, which is left out" if kept < len(steps) else ""
    assert note.startswith(left_out)
    assert bool(note) == bool(left_out)
