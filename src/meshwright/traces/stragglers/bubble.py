"""The bubble of a pipeline: what its stages wait and idle by their schedule alone, which nobody is to blame for.

With p stages that work alike and m micro-batches, GPipe and 1F1B leave each stage without work for (p - 1) / m of the
time in which it works (Narayanan et al., 2021, section 2.2). Whether it then stands in a receive or idles depends on
when its host posts the receive.
"""

import statistics
from collections import Counter
from collections.abc import Sequence

from ...units import format_time
from ..model import RankTrace, Window

SLACK_SHARE = 0.05  # of a step, by which a stage may lose more than the bubble
LEAST_SHARE = 0.05  # of a step: of stages that lose less nothing is said
OVER_SHARE = 0.25  # of what they lose: a schedule whose bubble would be longer by more is another one
Step = tuple[RankTrace, Window]


def bubble_said(stages: Sequence[Sequence[Step]], works_s: Sequence[float], moved_s: float, per_step: str) -> str:
    """Return what of the loss of the stages of a pipeline is its bubble, and what is transfers; "" if it is not known.

    Given the steps of each stage, the seconds that it works in the typical one, and the seconds of transfers between
    stages on the typical stage (0 where their ends are not known). Nobody holds the pipeline up where the bubble
    explains what every stage loses.
    """
    count, chunks = micro_batches_of(stages)
    step_s = statistics.median(window.length_s for steps in stages for _, window in steps)
    lost_s = [step_s - work_s for work_s in works_s]
    typical_s = statistics.median(lost_s)
    if not count or typical_s <= LEAST_SHARE * step_s:
        return ""
    bubble_s = (len(stages) - 1) / (count * chunks) * statistics.median(works_s)
    if bubble_s > (1 + OVER_SHARE) * typical_s:
        return ""
    said = f"each stage waits or idles {format_time(typical_s)}{per_step}, of which the bubble of a pipeline of "
    said += f"{len(stages)} stages{f' of {chunks} chunks' if chunks > 1 else ''} and {count} micro-batches is "
    said += format_time(min(bubble_s, typical_s))
    if max(lost_s) <= bubble_s + SLACK_SHARE * step_s:
        return f"{said}: nobody holds it up"
    if moved_s > (typical_s - bubble_s) / 2:
        return f"{said}, and transfers between stages are {format_time(min(moved_s, typical_s - bubble_s))}"
    return ""


def micro_batches_of(stages: Sequence[Sequence[Step]]) -> tuple[int, int]:
    """Return the micro-batches of a step by the sends of the stages, and the chunks of a stage; (0, 1) if not known.

    With one chunk a stage, the first one sends each on, the last one sends each back, and all others do both. With
    several, all do both with each, except that the first has none to send its first chunk back to, and the last none to
    send its last chunk on to. A kernel that may be either counts half: every stage receives as often as it sends.
    """
    sends = sorted(_sends(steps) for steps in stages)
    if len(sends) < 2 or not sends[0] or sends[1] != sends[0]:
        return 0, 1
    if len(sends) == 2:
        return sends[0], 1
    count = sends[-1] - sends[0]
    chunks, odd = divmod(sends[-1], 2 * count) if count else (0, 1)
    if odd or set(sends[2:]) != {sends[-1]}:
        return 0, 1
    return count, chunks


def _sends(steps: Sequence[Step]) -> int:
    """Return the sends of more than half of the steps, 0 for none: at an end of a trace one may be lost or added."""
    counts = Counter[int]()
    for trace, window in steps:
        names = Counter(call.name for call in trace.calls if window.start_s <= call.start_s < window.end_s)
        counts[names["send"] if names["send"] or names["send_recv"] % 2 else names["send_recv"] // 2] += 1
    (usual, often), *_ = counts.most_common(1) or [(0, 0)]
    return usual if 2 * often > len(steps) else 0
