"""Ranks that come last together: those of a slow host, of which none alone is the one that the others wait for."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from ...units import format_time
from ..intervals import length_s, union_of_sets, without
from ..model import RankTrace
from ..usage import per_step
from .absorbed import OtherTransfers
from .chained import MeetingChains
from .lost_by import lost_by
from .meetings import TracedMeeting
from .own_lateness import OwnLateness
from .straggler_reason import reason

LEAST_SHARE = {"device": 0.05, "host": 0.2}  # of a step, by which they are late
ALIKE_SHARE = 0.75  # of all lateness: the same ranks must have it
LOSING_SHARE = 0.2  # of the group that loses most: one that loses less tells nothing of who is late
ADDED_SHARE = 0.1  # of what those behind it cost: a rank that comes last before them and adds less is none of them
MOST_NAMED = 8  # ranks


def late_together(
    ranks: Sequence[Sequence[RankTrace]],
    found: Sequence[TracedMeeting],
    lateness: OwnLateness,
    transfers: OtherTransfers,
    step_s: float,
) -> str:
    """Return which ranks come last together, what they cost and why the first of them does; "" where none do.

    They are told by waits that are exposed, or else by all: what hides under computation may come out later.
    """
    everyone = {arrival.rank for meeting in found for arrival in meeting.arrivals}
    for late in _candidates(found, lateness, transfers):
        if len(late) < 2 or 2 * len(late) > len(everyone):
            continue
        late_s = _cost_s(late, found, lateness, transfers)
        if late_s > LEAST_SHARE[found[0].last.trace.device] * step_s:
            beside = {min(late), *(everyone - late)}
            because = reason([cycles for cycles in ranks if cycles[0].rank in beside], min(late), late_s)
            costs = f"cost {format_time(late_s)}{per_step(ranks)}"
            return f"{_named(late)} come last together and {costs}, none of them alone; of rank {min(late)}: {because}"
    return ""


def beside(
    ranks: Sequence[Sequence[RankTrace]],
    worst: int,
    least_s: float,
    found: Sequence[TracedMeeting],
    lateness: OwnLateness,
    transfers: OtherTransfers,
) -> str:
    """Return which ranks come last together with the one that is last of all, if they cost so much; else ""."""
    everyone = {arrival.rank for meeting in found for arrival in meeting.arrivals}
    for late in (_same_ranks(found, lateness, transfers), _in_a_row(found, lateness, transfers)):
        if worst not in late or len(late) < 2 or 2 * len(late) > len(everyone):
            continue
        late_s = _cost_s(late, found, lateness, transfers)
        if late_s > least_s:
            return f"{_named(late)} come last together and cost {format_time(late_s)}{per_step(ranks)}"
    return ""


def _candidates(
    found: Sequence[TracedMeeting], lateness: OwnLateness, transfers: OtherTransfers
) -> Iterator[frozenset[int]]:
    """Yield the ranks that may be late together, by waits that are exposed, by all waits, by the order of arrival."""
    yield _same_ranks(found, lateness, transfers)
    yield _same_ranks(found, lateness, None)
    yield _in_a_row(found, lateness, transfers)


def _in_a_row(found: Sequence[TracedMeeting], lateness: OwnLateness, transfers: OtherTransfers) -> frozenset[int]:
    """Return the ranks that come last meeting after meeting, one behind the other: those of a host may differ.

    As many as each add a noticeable part to what they cost; none where the same ranks do not come last.
    """
    everyone = {arrival.rank for meeting in found for arrival in meeting.arrivals}
    whole = [meeting for meeting in found if len(meeting.arrivals) == len(everyone)]
    found_late, cost_s = frozenset[int](), 0.0
    for count in range(2, min(len(everyone) // 2, MOST_NAMED) + 1) if whole else ():
        sets = Counter(late for meeting in whole if (late := _last(meeting, count)))
        usual, often = max(sets.items(), key=lambda one: one[1], default=(frozenset[int](), 0))
        more_s = _cost_s(usual, found, lateness, transfers) if usual and often >= ALIKE_SHARE * len(whole) else 0.0
        if more_s > (1 + ADDED_SHARE) * cost_s:
            found_late, cost_s = usual, more_s
    return found_late


def _cost_s(
    late: AbstractSet[int], found: Sequence[TracedMeeting], lateness: OwnLateness, transfers: OtherTransfers
) -> float:
    """Return what ranks that come last together cost in the typical step."""
    faults = {}
    for meeting in found:
        if at := _place(meeting, late):
            each = [lateness.behind(meeting, place) for place in range(at, len(meeting.arrivals))]
            faults[id(meeting)] = union_of_sets(each)
    return statistics.median(lost_by(late, found, faults, MeetingChains(found, faults, transfers), transfers))


def _last(meeting: TracedMeeting, count: int) -> frozenset[int]:
    """Return the last `count` ranks that came, none where the first of them is hardly later than who came before it."""
    before, *late = meeting.arrivals[-count - 1 :]
    is_late = late[0].start_s - before.start_s > ADDED_SHARE * (late[-1].start_s - before.start_s)
    return frozenset(arrival.rank for arrival in late) if is_late else frozenset()


def _named(late: AbstractSet[int]) -> str:
    named = sorted(late)[:MOST_NAMED]
    if len(named) < len(late):
        return f"ranks {', '.join(map(str, named))} and {len(late) - len(named)} more"
    return f"ranks {', '.join(map(str, named[:-1]))} and {named[-1]}"


def _same_ranks(found: Sequence[TracedMeeting], lateness: OwnLateness, busy: OtherTransfers | None) -> frozenset[int]:
    """Return the ranks that most of all lateness is of; none if it is of these and those."""
    groups: dict[tuple[int, ...], dict[frozenset[int], float]] = defaultdict(lambda: defaultdict(float))
    for meeting in found:
        place, gap_s = _gap(meeting, lateness, busy)
        behind = frozenset(arrival.rank for arrival in meeting.arrivals[place:])
        groups[meeting.members][behind] += gap_s
    late = _late(groups)
    alike_s = sum(gaps.get(late.intersection(members), 0.0) for members, gaps in groups.items())
    total_s = sum(sum(gaps.values()) for gaps in groups.values())
    return late if alike_s >= ALIKE_SHARE * total_s else frozenset()


def _late(groups: Mapping[tuple[int, ...], Mapping[frozenset[int], float]]) -> frozenset[int]:
    """Return the ranks that come last most, in the groups that lose by it.

    Those of a replica that is late (a host, a tensor group) meet the others in groups of their own, each of them alone.
    """
    most = [max(gaps.items(), key=lambda one: one[1]) for gaps in groups.values()]
    largest_s = max(gap_s for _, gap_s in most)
    return frozenset().union(*(late for late, gap_s in most if gap_s > LOSING_SHARE * largest_s))


def _place(meeting: TracedMeeting, late: AbstractSet[int]) -> int:
    """Return behind how many others the late ranks of a meeting came, 0 unless all of those came before all of them."""
    behind = sum(arrival.rank not in late for arrival in meeting.arrivals)
    after = meeting.arrivals[behind:]
    return behind if after and all(arrival.rank in late for arrival in after) else 0


def _gap(meeting: TracedMeeting, lateness: OwnLateness, transfers: OtherTransfers | None) -> tuple[int, float]:
    """Return behind how many ranks the longest gap between two arrivals is, and its seconds.

    No part of it is what who comes after it is not late by its own fault, or in which who came before it computes or
    waits for another collective, where these are given.
    """
    starts = [arrival.start_s for arrival in meeting.arrivals]
    place = max(range(1, len(starts)), key=lambda at: starts[at] - starts[at - 1])
    before = meeting.arrivals[place - 1]
    gap = lateness.behind(meeting, place) - before.moved_s
    return place, length_s(without(gap, transfers.busy(before.trace, meeting.kind)) if transfers else gap)
