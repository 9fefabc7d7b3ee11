"""The rank that is slow, by all that tells it: kernels, detectors, times of steps, calls that have ended."""

from collections.abc import Sequence

from .calls import Group
from .facts import Fact, KernelTimes, SlowerSteps, SlowRank, StepTimes, of
from .position import HangPosition
from .recorded_waits import late_by_waits_of_calls
from .stack_positions import by_kernels
from .stragglers import by_slower_steps, by_step_times, by_stragglers
from .world import ranks_seen


def who_is_slow(facts: list[Fact], groups: Sequence[Group]) -> HangPosition | None:
    """Return who makes the others wait in a job that moves on, by the first that tells; None where nothing does."""
    seen = ranks_seen(facts)
    return (
        by_kernels(of(facts, KernelTimes))
        or by_stragglers(of(facts, SlowRank))
        or by_step_times(of(facts, StepTimes), seen)
        or by_slower_steps(of(facts, SlowerSteps), seen)
        or late_by_waits_of_calls(groups)
    )
