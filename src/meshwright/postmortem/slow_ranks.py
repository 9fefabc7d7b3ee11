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
    """Return who makes the others wait in a job that moves on, by the first that tells who; None where nothing does."""
    seen = ranks_seen(facts)
    found = [
        by_kernels(of(facts, KernelTimes)),
        by_stragglers(of(facts, SlowRank)),
        by_step_times(of(facts, StepTimes), seen),
        by_slower_steps(of(facts, SlowerSteps), seen),
        late_by_waits_of_calls(groups),
    ]
    told = [position for position in found if position is not None]
    return next((position for position in told if position.certain), next(iter(told), None))
