"""The culprit: the rank that the others wait for, and why; or that nobody is to blame.

A rank is to blame where, step after step, it comes last to the collectives, and the others lose more by it than chance
explains and than is little beside the transfer. What counts is the time from the last of the others to it, in which the
others compute nothing and it does not itself wait for a third, and what hid and comes out later in a chain of
collectives. Who waits longest is a victim.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from ...units import counted, format_time
from ..intervals import EMPTY, Array, clipped, length_s, union, union_of_sets, without
from ..model import RankTrace
from ..usage import common_steps, per_step, steps_of
from .absorbed import OtherTransfers
from .chained import MeetingChains
from .collective_costs import CollectiveCosts, collective_costs
from .in_turn import in_turn
from .late_together import beside, late_together
from .lost_by import lost_by
from .meetings import Meetings, TracedMeeting, joined
from .own_lateness import OwnLateness
from .slow_links import slow_link
from .straggler_reason import reason

LEAST_SHARE = {"device": 0.02, "host": 0.1}  # of a step; a scheduler of an operating system makes hosts uneven
LEAST_LINK_SHARE = 0.2  # of a step: from here on the transfers are named beside a culprit that costs less
TRANSFER_SHARE = 0.1  # of what the transfers themselves take
NAMED_SHARE = 0.05  # of those: it is named beside them, and not blamed
WAITED_SHARE = 0.05  # of a step: from here on what waiting for ranks that are late in turn takes is said
OFTEN_SHARE, LEAST_OFTEN = 0.2, 2  # of a step that a rank costs now and then, and in how many steps, to be said
ONCE_SHARE = 1.0  # of a step: who costs more is named though it was late in a single step
LEAST_STEPS, STEADY = 3, 3.0  # a cost of more than 3 times its median deviation over 3 steps or more is no chance
IDLE_SHARE = 0.05  # of what a rank costs: one whose device idles longer does not only compute longer
RIVAL = 2.0  # times what the next rank costs: otherwise they are late in turn
RIVAL_MEAN = 2.5  # of all steps together: of few steps one rank may have had two turns, another one


class Culprit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rank that the others wait for."""

    rank: int
    costs_s_per_step: float
    because: str
    at_most: bool = False  # it may cost less: a pipeline has pauses, and what a rank works longer fills some of them


class CulpritFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The finding of the collectives: a culprit or none, and what else a reader should know ("" for nothing)."""

    culprit: Culprit | None
    said: str
    lateness: dict[int, tuple[int, float]] = {}  # rank: of how many collectives the last, what it costs a step
    peers: frozenset[int] = frozenset()  # the ranks that meet the culprit in a collective
    does: str = ""  # what the culprit does to the others, where that is not coming last to collectives


def find_culprit(ranks: Sequence[Sequence[RankTrace]], meetings: Meetings, step_s: float) -> CulpritFinding:
    """Return who is to blame, given the length of the typical step."""
    found = meetings.found
    waits = {id(trace): without(trace.comm, trace.compute) for cycles in ranks for trace in cycles}
    link = slow_link([*found, *meetings.sends], waits, step_s)
    if not found:
        return CulpritFinding(culprit=None, said=link or _alone(ranks, step_s))
    everyone = sorted({arrival.rank for meeting in found for arrival in meeting.arrivals})
    steps = sorted({meeting.step for meeting in found})
    transfers = OtherTransfers(found)
    lateness_of = OwnLateness(found, waits, transfers)
    faults = {id(meeting): lateness_of.behind(meeting) for meeting in found if _lag_s(meeting) > 0}
    chains = MeetingChains(found, faults, transfers)
    groups = {meeting.members for meeting in found}
    by_step = {rank: lost_by({rank}, found, faults, chains, transfers) for rank in everyone}
    costs = {rank: statistics.median(by_step[rank]) for rank in everyone}
    costs = _no_more_than_computed(costs, ranks, joined(groups), waits)
    worst = max(everyone, key=lambda rank: costs[rank])
    peers = {arrival.rank for meeting in found for arrival in meeting.arrivals if _is_in(meeting, worst)}
    stage = next(one for one in joined(groups) if worst in one)
    bystanders = _in_step([c for c in ranks if c[0].rank not in stage and any(t.calls for t in c)], worst, ranks, costs)
    moving = _moving(found) if bystanders else {}
    costs[worst] = min([costs[worst], *(_waited_s(cycles, moving, waits) for cycles in bystanders)])
    lateness = {
        rank: (sum(meeting.last.rank == rank and _lag_s(meeting) > 0 for meeting in found), costs[rank])
        for rank in everyone
    }
    others = [rank for rank in everyone if rank != worst]
    rivals = [costs[rank] for rank in others]
    shared = collective_costs(found, waits)
    transfer_s, per = shared.moved_s, per_step(ranks)
    device = found[0].last.trace.device
    is_late = (
        costs[worst] > LEAST_SHARE[device] * step_s
        and costs[worst] > _noise_s(worst, found, steps, by_step[worst])
        and costs[worst] > RIVAL * max(rivals)
        and statistics.fmean(by_step[worst]) > RIVAL_MEAN * max(statistics.fmean(by_step[rank]) for rank in others)
    )
    if not is_late:
        said = late_together(ranks, found, lateness_of, transfers, step_s)
        said += f"; {meetings.untraced}" if said and meetings.untraced else ""
        if not said:
            go_round = shared.waited_s > WAITED_SHARE * step_s and not meetings.untraced
            turns = in_turn(ranks, steps, by_step, LEAST_SHARE[device] * step_s) if go_round else ""
            said = _nobody(meetings, shared, step_s, per)
            said += _now_and_then(ranks, found, by_step, step_s) or turns
        said = "; ".join(filter(None, (said, link)))
        return CulpritFinding(culprit=None, said=said, lateness=lateness)
    because = reason([cycles for cycles in ranks if cycles[0].rank in peers], worst, costs[worst])
    if costs[worst] <= TRANSFER_SHARE * transfer_s:
        also = f"; rank {worst} costs {format_time(costs[worst])}{per} beside it, because {because}"
        also = also if costs[worst] > NAMED_SHARE * transfer_s else ""
        return CulpritFinding(culprit=None, said=f"{_nobody(meetings, shared, step_s, per)}{also}", lateness=lateness)
    culprit = Culprit(rank=worst, costs_s_per_step=costs[worst], because=because, at_most=bool(bystanders))
    both = transfer_s > costs[worst] and transfer_s > LEAST_LINK_SHARE * step_s
    said = f"the transfers themselves take {format_time(transfer_s)}{per}, more than that" if both else ""
    said = meetings.untraced or said or beside(ranks, worst, RIVAL * costs[worst], found, lateness_of, transfers)
    return CulpritFinding(culprit=culprit, said=said, lateness=lateness, peers=frozenset(peers - {worst}))


def _no_more_than_computed(
    costs: Mapping[int, float],
    ranks: Sequence[Sequence[RankTrace]],
    apart: Sequence[AbstractSet[int]],
    waits: Mapping[int, Array],
) -> dict[int, float]:
    """Return what ranks cost: one that only computes longer than the typical rank it meets, no more than that.

    If such a rank were as fast as they are, no step would be shorter by more. One whose host is slow has data moving
    without computing meanwhile, which the others do not. `apart` are the sets of ranks that meet.
    """
    if len({trace.marked for cycles in ranks for trace in cycles}) > 1:
        return dict(costs)  # a step of one rank is the whole trace of another
    computed_s: dict[int | None, float] = {}
    idled_s: dict[int | None, float] = {}
    for cycles in ranks:
        steps = steps_of(cycles, common_steps(ranks)) or [(t, window) for t in cycles for window in t.windows]
        parts = [
            [length_s(clipped(times, window.start_s, window.end_s)) for times in (trace.compute, waits[id(trace)])]
            for trace, window in steps
        ]
        computed_s[cycles[0].rank] = statistics.median(compute for compute, _ in parts)
        idled_s[cycles[0].rank] = statistics.median(
            window.length_s - compute - exposed for (_, window), (compute, exposed) in zip(steps, parts, strict=True)
        )
    found = dict(costs)
    for met in apart:
        for rank in met:
            more_s, idle_s = (
                every[rank] - statistics.median(every[other] for other in met if other != rank)
                for every in (computed_s, idled_s)
            )
            if idle_s <= IDLE_SHARE * costs[rank]:
                found[rank] = min(costs[rank], max(0.0, more_s) + max(0.0, idle_s))
    return found


def _in_step(
    apart: Sequence[Sequence[RankTrace]], worst: int, ranks: Sequence[Sequence[RankTrace]], costs: Mapping[int, float]
) -> list[Sequence[RankTrace]]:
    """Return who of the ranks that meet no rank of a stage is held to its pace all the same: their steps last as long.

    Replicas of an inference server have steps of their own, and wait for nobody of another one.
    """
    own_s = _typical_step_s(next(cycles for cycles in ranks if cycles[0].rank == worst))
    return [cycles for cycles in apart if _typical_step_s(cycles) > own_s - costs[worst] / 2]


def _typical_step_s(cycles: Sequence[RankTrace]) -> float:
    return statistics.median(window.length_s for trace in cycles for window in trace.windows)


def _is_in(meeting: TracedMeeting, rank: int) -> bool:
    return any(arrival.rank == rank for arrival in meeting.arrivals)


def _moving(found: Sequence[TracedMeeting]) -> dict[int, Array]:
    """Return when data moved, by the id of the trace and on its clock."""
    starts_s: dict[int, list[float]] = defaultdict(list)
    ends_s: dict[int, list[float]] = defaultdict(list)
    for meeting in found:
        for arrival in meeting.arrivals:
            begun_s = meeting.last.start_s - arrival.moved_s
            starts_s[id(arrival.trace)].append(begun_s)
            ends_s[id(arrival.trace)].append(begun_s + meeting.transfer_s)
    return {key: union(starts_s[key], ends_s[key]) for key in starts_s}


def _waited_s(cycles: Sequence[RankTrace], moving: Mapping[int, Array], waits: Mapping[int, Array]) -> float:
    """Return how long a rank waits for others in its typical step: exposed communication without the transfers.

    A stage of a pipeline that waits for nobody sets the pace: who is late in another stage costs no more than that.
    """
    waited = []
    for trace in cycles:
        left = without(waits[id(trace)], moving.get(id(trace), EMPTY))
        waited += [length_s(clipped(left, window.start_s, window.end_s)) for window in trace.windows]
    return statistics.median(waited)


def _lag_s(meeting: TracedMeeting) -> float:
    """Return how much later the last came than the last of the others."""
    return meeting.last.start_s - meeting.arrivals[-2].start_s


def _noise_s(rank: int, found: Sequence[TracedMeeting], steps: Sequence[int], costs_s: Sequence[float]) -> float:
    """Return what a rank may be late by chance: how far the others are apart.

    Devices whose work differs (embeddings, experts) are apart step after step; that is no chance, so that there a rank
    that is late by much the same in each step is beyond chance too. Hosts share cores, and are uneven in one way for
    a while.
    """
    spread_s = _spread_s(rank, found, steps)
    if found[0].last.trace.device == "host" or len(costs_s) < LEAST_STEPS:
        return spread_s
    middle = statistics.median(costs_s)
    return min(spread_s, STEADY * statistics.median(abs(cost - middle) for cost in costs_s))


def _spread_s(rank: int, found: Sequence[TracedMeeting], steps: Sequence[int]) -> float:
    """Return how far the others are apart in the typical step: from their middle to the last of them."""
    by_step: dict[int, list[Array]] = {step: [] for step in steps}
    for meeting in found:
        others = [arrival.start_s for arrival in meeting.arrivals if arrival.rank != rank]
        if len(others) > 1:
            by_step[meeting.step].append(union([statistics.median(others)], [max(others)]))
    return statistics.median(length_s(union_of_sets(parts)) for parts in by_step.values())


def _now_and_then(
    ranks: Sequence[Sequence[RankTrace]],
    found: Sequence[TracedMeeting],
    by_step: Mapping[int, Sequence[float]],
    step_s: float,
) -> str:
    """Return what to say of a rank that alone is late by much, in some steps of all; "" where there is none."""
    rank = max(by_step, key=lambda one: sum(by_step[one]))
    steps = sorted({meeting.step for meeting in found})
    late = {step: cost_s for step, cost_s in zip(steps, by_step[rank], strict=True) if cost_s > OFTEN_SHARE * step_s}
    rival_s = max(sum(costs_s) for one, costs_s in by_step.items() if one != rank)
    often = len(late) >= LEAST_OFTEN or sum(late.values()) > ONCE_SHARE * step_s
    if not often or 2 * len(late) >= len(steps) or sum(late.values()) <= RIVAL_MEAN * rival_s:
        return ""
    typical_s = statistics.median(late.values())
    peers = {arrival.rank for meeting in found if _is_in(meeting, rank) for arrival in meeting.arrivals}
    because = reason([cycles for cycles in ranks if cycles[0].rank in peers], rank, typical_s, set(late))
    where, there = f"{len(late)} of {counted(len(steps), 'step')}", "each of them"
    if len(late) == 1:
        where, there = f"step {min(late)} alone", "it"
    return f"; rank {rank} is late in {where} and costs {format_time(typical_s)} in {there}, because {because}"


def _alone(ranks: Sequence[Sequence[RankTrace]], step_s: float) -> str:
    """Return that one rank's trace does not tell waiting from moving, where it communicates for a part of its step."""
    if len(ranks) != 1:
        return ""
    exposed_s = sum(length_s(without(trace.comm, trace.compute)) for trace in ranks[0])
    steps = sum(len(trace.windows) for trace in ranks[0])
    is_much = exposed_s > WAITED_SHARE * step_s * max(steps, 1)
    return "how much of the communication is waiting for others, one rank's trace does not tell" if is_much else ""


def _nobody(meetings: Meetings, costs: CollectiveCosts, step_s: float, per: str) -> str:
    """Return what the collectives cost where nobody is late: the transfer, or waits that go round, if that is known."""
    always = " step after step" if per else ""
    if meetings.untraced:
        return f"none of the ranks traced is late{always}; {meetings.untraced}"
    said = f"nobody is late{always}"
    if costs.waited_s > WAITED_SHARE * step_s:
        waited, moved = format_time(costs.waited_s), format_time(costs.moved_s)
        return f"{said}: waiting for the last to come takes {waited}{per}, the transfers themselves {moved}"
    return said + (": what collectives take is the transfer itself" if costs.moved_s > costs.waited_s else "")
