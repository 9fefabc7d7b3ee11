"""Ranks that are late in turn: in each step another one, as batches of unequal length make them."""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..model import RankTrace
from .straggler_reason import reason

LEAST_STEPS = 3  # in which one rank is late
LEAST_RANKS = 3  # that are late in turn; all where there are fewer
MOST_NAMED = 4  # turns


def in_turn(
    ranks: Sequence[Sequence[RankTrace]],
    steps: Sequence[int],
    by_step: Mapping[int, Sequence[float]],
    least_s: float,
) -> str:
    """Return that another rank is late from step to step, and why in the worst of them; "" where it is not so.

    Given the steps, what each rank costs in each of them, and from which cost on it is late.
    """
    worst = [max(by_step, key=lambda rank: by_step[rank][at]) for at in range(len(steps))]
    costs_s = [by_step[rank][at] for at, rank in enumerate(worst)]
    late = [at for at, cost_s in enumerate(costs_s) if cost_s > least_s]
    turns = Counter(worst[at] for at in late)
    if len(late) < LEAST_STEPS or 2 * len(late) <= len(steps) or len(turns) < min(LEAST_RANKS, len(by_step)):
        return ""
    if 2 * max(turns.values()) > len(late) + 1:
        return ""
    at = max(late, key=costs_s.__getitem__)
    because = reason(ranks, worst[at], costs_s[at], {steps[at]})
    named = ", ".join(str(worst[at]) for at in late[:MOST_NAMED]) + (", …" if len(late) > MOST_NAMED else "")
    where = f"in {len(late)} of {len(steps)} steps" if len(late) < len(steps) else "in each step"
    return f"; {where} another rank is late ({named}): in step {steps[at]} rank {worst[at]}, because {because}"
