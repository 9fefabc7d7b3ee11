"""The rank that is slow, by all that tells it: kernels, detectors, times of steps, calls that have ended."""

from collections.abc import Sequence

from ..libraries.stragglers import by_slower_steps, by_step_times, by_stragglers
from ..nouns.calls import Group
from ..nouns.facts import Fact, KernelTimes, SlowerSteps, SlowRank, StepTimes, of
from ..nouns.position import HangPosition
from ..nouns.world import ranks_seen
from ..scripts.pauses import by_pauses
from ..scripts.phases import DATA
from .recorded_waits import late_by_waits_of_calls

_MAINLY = 0.8  # of what the others wait is in a range that reads data
_LONGER = 1.05  # times the computing of any other rank, which differs by less among equals
_WAITED_FOR = 0.5  # of what a rank computes longer is what the others' collectives last longer: they wait for it
_NEARLY = 0.9  # of the time of a range is in one inside it: that one tells more


def who_is_slow(facts: list[Fact], groups: Sequence[Group]) -> HangPosition | None:
    """Return who makes the others wait in a job that moves on, by the first that tells who; None where nothing does."""
    seen = ranks_seen(facts)
    found = [
        by_kernels(of(facts, KernelTimes)),
        by_stragglers(of(facts, SlowRank)),
        by_step_times(of(facts, StepTimes), seen),
        by_slower_steps(of(facts, SlowerSteps), seen),
        late_by_waits_of_calls(groups),
        by_pauses(facts),
    ]
    told = [position for position in found if position is not None]
    return next((position for position in told if position.certain), next(iter(told), None))


def _longest_range(mine: KernelTimes, others: Sequence[KernelTimes]) -> tuple[str, float]:
    """Return the range of a program in which a rank spends most beyond the others, and these seconds; "" for none."""
    beyond_s = {name: s - max(other.ranges.get(name, 0.0) for other in others) for name, s in mine.ranges.items()}
    most_s = max(beyond_s.values(), default=0.0)
    if most_s <= 0:
        return "", 0.0
    _, inner = min((mine.ranges[name], name) for name, s in beyond_s.items() if s >= _NEARLY * most_s)
    return inner, beyond_s[inner]


def by_kernels(times: Sequence[KernelTimes]) -> HangPosition | None:
    """Return the rank whose collectives are short because the others wait for it; None where no rank stands out."""
    known = {fact.rank: fact for fact in times if fact.rank is not None and fact.communication_calls}
    if len(known) < 2:
        return None
    mean_s = {rank: fact.communication_s / fact.communication_calls for rank, fact in known.items()}
    late, second, *_ = sorted(mean_s, key=mean_s.__getitem__)
    mine, others = known[late], [fact for rank, fact in known.items() if rank != late]
    other = max(others, key=lambda fact: fact.compute_s)
    longer = mine.compute_s > _LONGER * other.compute_s
    waited_s = min(fact.communication_s for fact in others) - mine.communication_s
    alike = len({fact.communication_calls for fact in known.values()}) == 1  # stages of a pipeline are not
    awaited = longer and alike and waited_s >= _WAITED_FOR * (mine.compute_s - other.compute_s)
    if mean_s[late] * 2 > mean_s[second] and not awaited:
        return None
    name, beyond_s = _longest_range(mine, others)
    return HangPosition(
        kind="data" if DATA.search(name) and beyond_s >= _MAINLY * waited_s else "slow",
        blamed=(late,),
        waiting=tuple(sorted(set(known) - {late})),
        why=f"rank {late}'s collectives last {mean_s[late] * 1e6:.0f} us each, those of the others at least"
        f" {mean_s[second] * 1e6:.0f} us: they wait for it"
        + (f"; it computes {mine.compute_s / other.compute_s - 1:.0%} longer" if longer else "")
        + (f"; it spends {mine.ranges[name]:.3g} s in {name}" if name else ""),
        evidence=tuple(known[rank].where for rank in sorted(known)),
    )
