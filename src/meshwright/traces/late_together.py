"""Ranks that come last together: those of a slow host, of which none alone is the one that the others wait for."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..units import format_time
from .absorbed import OtherTransfers
from .intervals import Array, length_s, union_of_sets, without
from .meetings import TracedMeeting
from .model import RankTrace
from .own_lateness import OwnLateness
from .straggler_reason import reason
from .usage import per_step

LEAST_SHARE = {"device": 0.05, "host": 0.2}  # of a step, by which they are late
ALIKE_SHARE = 0.75  # of all lateness: the same ranks must have it
LOSING_SHARE = 0.2  # of the group that loses most: one that loses less tells nothing of who is late
MOST_NAMED = 8  # ranks
_BySteps = dict[int, list[Array]]


def late_together(
    ranks: Sequence[Sequence[RankTrace]],
    found: Sequence[TracedMeeting],
    lateness: OwnLateness,
    transfers: OtherTransfers,
    step_s: float,
) -> str:
    """Return which ranks come last together, what they cost and why the first of them does; "" where none do."""
    steps = sorted({meeting.step for meeting in found})
    groups: dict[tuple[int, ...], dict[frozenset[int], _BySteps]] = defaultdict(lambda: defaultdict(_by_steps))
    for meeting in found:
        place, gap = _gap(meeting, lateness, transfers)
        behind = frozenset(arrival.rank for arrival in meeting.arrivals[place:])
        groups[meeting.members][behind][meeting.step].append(gap)
    late = _late(groups)
    everyone = {rank for members in groups for rank in members}
    by_step = [gaps.get(late.intersection(members), {}) for members, gaps in groups.items()]
    total_s = sum(_sum_s(gaps) for every in groups.values() for gaps in every.values())
    alike_s = sum(map(_sum_s, by_step))
    if len(late) < 2 or 2 * len(late) > len(everyone) or alike_s < ALIKE_SHARE * total_s:
        return ""
    late_s = statistics.median(
        length_s(union_of_sets([gap for gaps in by_step for gap in gaps.get(step, [])])) for step in steps
    )
    if late_s <= LEAST_SHARE[found[0].last.trace.device] * step_s:
        return ""
    first = min(late)
    beside = {first, *(everyone - late)}
    because = reason([cycles for cycles in ranks if cycles[0].rank in beside], first, late_s)
    named = sorted(late)[:MOST_NAMED]
    who = ", ".join(map(str, named[:-1])) + (
        f" and {named[-1]}" if len(named) == len(late) else f", {named[-1]} and {len(late) - len(named)} more"
    )
    costs = f"cost {format_time(late_s)}{per_step(ranks)}"
    return f"ranks {who} come last together and {costs}, none of them alone; of rank {first}: {because}"


def _late(groups: Mapping[tuple[int, ...], Mapping[frozenset[int], _BySteps]]) -> frozenset[int]:
    """Return the ranks that come last most, in the groups that lose by it.

    Those of a replica that is late (a host, a tensor group) meet the others in groups of their own, each of them alone.
    """
    most = [max(gaps.items(), key=lambda one: _sum_s(one[1])) for gaps in groups.values()]
    largest_s = max(_sum_s(gaps) for _, gaps in most)
    return frozenset().union(*(late for late, gaps in most if _sum_s(gaps) > LOSING_SHARE * largest_s))


def _by_steps() -> _BySteps:
    return defaultdict(list)


def _gap(meeting: TracedMeeting, lateness: OwnLateness, transfers: OtherTransfers) -> tuple[int, Array]:
    """Return behind how many ranks the longest gap between two arrivals is, and the gap on the common clock.

    No part of it is what who comes after it is not late by its own fault, or in which who came before it computes or
    waits for another collective.
    """
    starts = [arrival.start_s for arrival in meeting.arrivals]
    place = max(range(1, len(starts)), key=lambda at: starts[at] - starts[at - 1])
    before = meeting.arrivals[place - 1]
    gap = lateness.behind(meeting, place) - before.moved_s
    return place, without(gap, transfers.busy(before.trace, meeting.kind)) + before.moved_s


def _sum_s(by_step: Mapping[int, Sequence[Array]]) -> float:
    return sum(length_s(gap) for gaps in by_step.values() for gap in gaps)
