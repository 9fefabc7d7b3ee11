"""Steps that last much longer than the typical one, which medians over steps hide.

Gradients that are reduced only every few steps, a checkpoint, a validation, or a compilation in the traced steps: the
typical step is as it was measured, and yet the job takes longer than that step after step.

The first step of a trace that only waits longer for others is left out: their profilers began later.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from ..units import format_time
from .usage import Shares, median_of

LONG = 1.25  # times the typical step
LEAST_SHARE = 0.1  # of all traced time, by which the long ones last longer: less is said nothing of
LEAST_STEPS = 3  # in which one is typical
MOST_NAMED = 4  # steps
PARTS = {
    "compute_s": "computing",
    "exposed_comm_s": "exposed communication",
    "loading_s": "waiting for data",
    "copied_s": "copies to the device",
    "idle_s": "idle time",
    "other_s": "copies to the host",
}


def uneven_steps(
    by_step: Mapping[int, Sequence[Shares]], first: AbstractSet[int], idle_in: Callable[[set[int]], str]
) -> str:
    """Return which steps are long, and by what, given what each rank did in each step; "" where none costs much.

    `first` are the steps with which a trace begins; `idle_in` says what hosts did while devices idled in some steps.
    """
    steps = {number: median_of(found) for number, found in sorted(by_step.items())}
    if len(steps) < LEAST_STEPS:
        return ""
    typical = median_of(list(steps.values()))
    long = {
        number: one
        for number, one in steps.items()
        if one.step_s > LONG * typical.step_s and not (number in first and _grown([one], typical) == "exposed_comm_s")
    }
    more_s = sum(one.step_s - typical.step_s for one in long.values())
    if more_s <= LEAST_SHARE * sum(one.step_s for one in steps.values()):
        return ""
    lasts_s = statistics.median(one.step_s for one in long.values())
    takes = f"{format_time(lasts_s)}, {lasts_s / typical.step_s:.1f} times the typical step"
    grown = _grown(list(long.values()), typical)
    idle = idle_in(set(long)) if grown == "idle_s" else ""
    said = f"{_who(list(long), len(steps))} {takes}, mostly by more {PARTS[grown]}"
    return f"{said} ({idle})" if idle else said


def _grown(long: Sequence[Shares], typical: Shares) -> str:
    """Return which part of the long steps is longer by most."""
    more_s = {field: statistics.fmean(getattr(one, field) for one in long) - getattr(typical, field) for field in PARTS}
    return max(more_s, key=more_s.__getitem__)


def _who(numbers: Sequence[int], steps: int) -> str:
    if len(numbers) == 1:
        return f"step {numbers[0]} takes"
    named = ", ".join(map(str, numbers[:MOST_NAMED])) + (", …" if len(numbers) > MOST_NAMED else "")
    return f"{len(numbers)} of {steps} steps ({named}) take"
