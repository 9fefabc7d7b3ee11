"""The bubble of a pipeline: what its stages wait and idle by their schedule alone, which nobody is to blame for.

With p stages that work alike and m micro-batches, GPipe and 1F1B leave each stage without work for (p - 1) / m of the
time in which it works (Narayanan et al., 2021, section 2.2). Whether it then stands in a receive or idles depends on
when its host posts the receive.
"""

import statistics
from collections.abc import Sequence

from ...units import format_time
from ..model import RankTrace, Window

SLACK_SHARE = 0.05  # of a step, by which a stage may lose more than the bubble
Step = tuple[RankTrace, Window]


def bubble_said(stages: Sequence[Sequence[Step]], works_s: Sequence[float], per_step: str) -> str:
    """Return that the bubble explains what the stages of a pipeline lose; "" where it does not, or is not known.

    Given the steps of each stage and the seconds that it works in the typical one.
    """
    count = micro_batches_of(stages)
    if not count:
        return ""
    step_s = statistics.median(window.length_s for steps in stages for _, window in steps)
    bubble_s = (len(stages) - 1) / count * statistics.median(works_s)
    lost_s = [step_s - work_s for work_s in works_s]
    if max(lost_s) > bubble_s + SLACK_SHARE * step_s:
        return ""
    return (
        f"each stage waits or idles {format_time(statistics.median(lost_s))}{per_step}, of which the bubble of a "
        f"pipeline of {len(stages)} stages and {count} micro-batches is {format_time(bubble_s)}: nobody holds it up"
    )


def micro_batches_of(stages: Sequence[Sequence[Step]]) -> int:
    """Return the micro-batches of a step by the sends of the stages; 0 where they are not those of a plain pipeline.

    Its first stage sends each on, its last sends each back, and all others do both.
    """
    sends = sorted(_sends(steps) for steps in stages)
    if len(sends) < 2 or not sends[0]:
        return 0
    return sends[0] if sends == [sends[0]] * 2 + [2 * sends[0]] * (len(sends) - 2) else 0


def _sends(steps: Sequence[Step]) -> int:
    counts = [
        sum(call.name == "send" and window.start_s <= call.start_s < window.end_s for call in trace.calls)
        for trace, window in steps
    ]
    return counts[0] if counts and len(set(counts)) == 1 else 0
