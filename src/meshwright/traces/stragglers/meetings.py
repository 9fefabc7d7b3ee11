"""Matching of the ranks' calls into collectives, and the offsets of their clocks.

Calls are joined by group and sequence number where the trace has them, otherwise by their order in the group: step by
step where all ranks mark steps and called equally often, else over the whole trace. A collective that waits for all
ends on all at once, so that clocks are aligned by the ends; a join in which some rank was done before another came is
wrong and left out. What one rank sends to all (a broadcast) is a meeting where nobody was done before the last came.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from ...units import counted, shortened
from ..intervals import Array
from ..model import RankTrace, TracedCall
from ..names import from_root, point_to_point, synchronizes
from .clock_offsets import clocks_ahead
from .common_ends import groups_by_ends
from .neighbours import Neighbours, neighbours_of

WRONG_SHARE = 0.3  # of the joins: with more of them wrong, which ranks meet is not known
SLACK = 0.02  # of a collective's length: an end so much before the last start is the clocks'
Cycles = Sequence[RankTrace]
Kind = tuple[str, tuple[int, ...]]  # of collectives: their name and their ranks


@dataclass(frozen=True, slots=True)
class RankArrival:
    """One rank at a collective, on the common clock."""

    rank: int
    start_s: float
    end_s: float
    trace: RankTrace
    moved_s: float  # common clock = clock of the trace + this


@dataclass(frozen=True, slots=True)
class TracedMeeting:
    """One collective with all its ranks that are traced, the last to come at the end."""

    name: str
    step: int
    size: int  # ranks of the group, as the trace has it; 0 if it does not say
    arrivals: tuple[RankArrival, ...]
    bytes: int = 0  # payload; 0 if it does not say
    group_text: str = ""  # what the trace says the group is for
    sender: int = -1  # of a send that its receiver took; -1 for what is no send

    @property
    def last(self) -> RankArrival:
        """Return who came last."""
        return self.arrivals[-1]

    @property
    def members(self) -> tuple[int, ...]:
        """Return the ranks that met, in their order."""
        return tuple(sorted(arrival.rank for arrival in self.arrivals))

    @property
    def kind(self) -> Kind:
        """Return what tells apart collectives that go on at once: each group has streams of its own."""
        return self.name, self.members

    @property
    def transfer_s(self) -> float:
        """Return how long it still took when all had come."""
        return min(arrival.end_s for arrival in self.arrivals) - self.last.start_s


@dataclass(frozen=True, slots=True)
class Meetings:
    """The collectives of all ranks, and what a reader must know of how they were joined."""

    found: tuple[TracedMeeting, ...]
    notes: tuple[str, ...] = ()
    neighbours: tuple[Neighbours, ...] = ()  # ranks that pass on to one another
    untraced: str = ""  # that ranks of a collective are not among the traces, or not known; "" where all are
    sends: tuple[TracedMeeting, ...] = ()  # that a rank made to one other, and the other took
    moved_s: Mapping[int, float] = field(default_factory=dict)  # by the id of a trace: common clock = its own + this


_Entry = tuple[int, RankTrace, TracedCall, int]  # rank, its trace, the call, its step
_Group = tuple[str, str, str, int]  # a collective, the name of its group, the ranks of that, how many they are


def meetings_of(ranks: Sequence[Cycles]) -> Meetings:
    """Return the collectives in which two or more of the traced ranks met."""
    if len(ranks) < 2:
        return Meetings(())
    exchanges, neighbours = _exchanges(ranks)
    synchronized, untold = _synchronized(ranks)
    kept = [join for join in (*synchronized, *exchanges) if len(join) > 1]
    rooted = [join for join in _joins(ranks, from_root) if len(join) > 1]
    passed = _sends(ranks)
    moved = _clocks_of(ranks, kept, [*passed, *rooted])
    rooted = _in_parts(rooted, kept, moved)
    sends = _right([_send(join, moved) for join in passed])
    made = [_meeting(join, moved) for join in kept]
    right = _right(made)
    if made and not right:
        said = "which ranks meet in which collective is not in these traces: who comes last is not known"
        return Meetings((), (said,), tuple(neighbours))
    right += tuple(filter(_possible, (_meeting(join, moved) for join in rooted)))
    between = [meeting for meeting in right if not _joins_neighbours(meeting, neighbours)]
    notes = []
    if len(between) < len(right):
        whose = "ranks of a ring" if all(one.ring for one in neighbours) else "stages of a pipeline"
        notes.append(f"collectives that join several {whose} say nothing of who is slow, and are left out")
    missing = _untraced(max((_missing(meeting) for meeting in between), default=0), ranks)
    untraced = "; ".join(filter(None, (missing, _untold(untold))))
    notes += [untraced] if untraced else []
    return Meetings(tuple(between), tuple(notes), tuple(neighbours), untraced, sends, moved)


def joined(groups: Iterable[Iterable[int]]) -> list[set[int]]:
    """Return the sets of ranks that are in a group together, directly or through others."""
    found: list[set[int]] = []
    for group in map(set, groups):
        apart = [one for one in found if not one & group]
        found = [*apart, group.union(*(one for one in found if one & group))]
    return found


def _untraced(missing: int, ranks: Sequence[Cycles]) -> str:
    """Return which ranks are not traced, or how many where the job does not say how many it has; "" for none."""
    if missing <= 0:
        return ""
    job = max(trace.world_size for cycles in ranks for trace in cycles)
    absent = set(range(job)) - {cycles[0].rank for cycles in ranks}
    if len(absent) == missing:
        who = f"rank {shortened(list(absent))} is" if missing == 1 else f"ranks {shortened(list(absent))} are"
    else:
        who = f"up to {counted(missing, 'rank')} of a group {'is' if missing == 1 else 'are'}"
    return f"{who} not among the traces: the last of all may be one of them"


def _in_parts(
    joins: list[list[_Entry]], kept: Sequence[Sequence[_Entry]], moved: Mapping[int, float]
) -> list[list[_Entry]]:
    """Return calls of unnamed groups, if they cannot be of all ranks, as those of the ranks that meet elsewhere."""
    unnamed = [join for join in joins if _unnamed(join[0][2])]
    if not sum(not _possible(_meeting(join, moved)) for join in unnamed) > WRONG_SHARE * len(unnamed):
        return joins
    everyone = {entry[0] for join in unnamed for entry in join}
    parts_of: dict[tuple[str, int], set[frozenset[int]]] = defaultdict(set)  # by the collective and its stream
    for join in kept:
        parts_of[join[0][2].name, join[0][2].stream].add(frozenset(entry[0] for entry in join))
    tried = []
    for groups in parts_of.values():
        if sum(map(len, groups)) == len(everyone) and everyone == frozenset().union(*groups):
            parts = [_part(join, group) for join in unnamed for group in groups]
            wrong = sum(not _possible(_meeting(part, moved)) for part in parts)
            tried.append((wrong / len(parts), parts))
    wrong_share, best = min(tried, key=lambda one: one[0], default=(1.0, []))
    return [join for join in joins if not _unnamed(join[0][2])] + (best if wrong_share <= WRONG_SHARE else [])


def _unnamed(call: TracedCall) -> bool:
    return not (call.group or call.ranks or call.group_size)


def _untold(names: Sequence[str]) -> str:
    """Return that of some collectives it is not known which ranks meet, "" where there are none."""
    called = ", ".join(sorted(set(names)))
    said = f"which ranks meet in some calls of {called} is not in these traces: who comes last to them is not known"
    return said if names else ""


def _missing(meeting: TracedMeeting) -> int:
    """Return how many ranks of a collective are not traced; where it does not say its size, it is one of the job."""
    size = meeting.size or max(arrival.trace.world_size for arrival in meeting.arrivals)
    return size - len(meeting.arrivals)


def _joins(ranks: Sequence[Cycles], wanted: Callable[[str], bool]) -> list[list[_Entry]]:
    joins: list[list[_Entry]] = []
    for (_, _, _, size), members in _by_group(ranks, wanted).items():
        if not size or len(members) <= size:  # else several groups of one name: whose calls belong together is not told
            joins += _of_group(members)
    return joins


def _by_group(ranks: Sequence[Cycles], wanted: Callable[[str], bool]) -> dict[_Group, dict[int, list[_Entry]]]:
    by_group: dict[_Group, dict[int, list[_Entry]]] = defaultdict(lambda: defaultdict(list))
    for cycles in ranks:
        for trace in cycles:
            assert trace.rank is not None
            for call in trace.calls:
                if wanted(call.name):
                    entry = (trace.rank, trace, call, _step_of(trace, call))
                    by_group[call.name, call.group, call.ranks, call.group_size][trace.rank].append(entry)
    return by_group


def _synchronized(ranks: Sequence[Cycles]) -> tuple[list[list[_Entry]], list[str]]:
    """Return the collectives that wait for all, and the names of those of which nothing tells which ranks meet."""
    joins: list[list[_Entry]] = []
    named: list[dict[int, list[_Entry]]] = []
    unnamed: list[tuple[str, int, dict[int, list[_Entry]]]] = []
    for (name, group, text, size), members in _by_group(ranks, synchronizes).items():
        device = all(entry[1].device == "device" for found in members.values() for entry in found)
        if size and len(members) > size:
            unnamed.append((name, size, members))
        elif device and len(members) > 2 and not (size or group or text):
            unnamed += [(name, 0, found) for found in _by_stream(members)]
        else:
            named.append(members)
    joins += [join for members in named for join in _of_group(members)]
    ordered = [_everyones(members) for members in (*named, *(members for _, _, members in unnamed))]
    found = groups_by_ends([_spans(order) for order in ordered])[len(named) :] if unnamed else []
    several = any(len(groups) > 1 for groups in found)
    untold = []
    for (name, size, members), order, groups in zip(unnamed, ordered[len(named) :], found, strict=True):
        if len(groups) > 1 and all(len(one) % (size or 1) == 0 for one in groups):
            joins += [_part(join, group) for join in order for group in groups]
        elif size or (several and not groups):
            untold.append(name)
        else:
            joins += _of_group(members)
    return joins, untold


def _part(join: Sequence[_Entry], group: Set[int]) -> list[_Entry]:
    """Return the calls of one group among those of all; if all of the job are traced, it has no other ranks."""
    size = len(group) if len(join) == join[0][1].world_size else join[0][2].group_size
    return [(rank, trace, replace(call, group_size=size), step) for rank, trace, call, step in join if rank in group]


def _by_stream(members: Mapping[int, list[_Entry]]) -> list[dict[int, list[_Entry]]]:
    """Return calls by the streams of their device, as each group has its own: those of the first of all ranks first.

    All are together where one rank has more streams than another.
    """
    by_rank: dict[int, dict[int, list[_Entry]]] = {}
    for rank, found in members.items():
        own = by_rank[rank] = defaultdict(list)
        for entry in sorted(found, key=_launched):
            own[entry[2].stream].append(entry)
    if len({len(own) for own in by_rank.values()}) > 1:
        return [dict(members)]
    together = zip(*(own.values() for own in by_rank.values()), strict=True)
    return [dict(zip(by_rank, found, strict=True)) for found in together]


def _everyones(members: Mapping[int, list[_Entry]]) -> list[list[_Entry]]:
    """Return the calls of the same place on all ranks of a set, as they were launched."""
    return [join for join in _in_order(members, _launched) if len(join) == len(members)]


def _spans(joins: Sequence[Sequence[_Entry]]) -> dict[int, Array]:
    """Return when each rank was in its calls, on clocks that may differ."""
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    origin_ns = joins[0][0][1].epoch_ns if joins else 0
    for join in joins:
        for rank, trace, call, _ in join:
            by_s = _clock_s(trace, origin_ns)
            spans[rank].append((call.start_s + by_s, call.end_s + by_s))
    return {rank: np.asarray(found) for rank, found in spans.items()}


def _of_group(members: Mapping[int, list[_Entry]]) -> list[list[_Entry]]:
    """Return the collectives of one group: by sequence number, or by the order that contradicts itself least.

    Calls that a host launches at once begin in any order on its threads; then they are told apart by their ends.
    """
    if all(_numbered(found) for found in members.values()):
        return _whole(_keyed(members, lambda entry, place: entry[2].seq), len(members))
    tried = [_in_order(members, key) for key in (_launched, _ended)]
    return min(tried, key=lambda joins: (_wrong(joins) - len(joins), _wrong(joins)))


def _whole(joins: Sequence[list[_Entry]], members: int) -> list[list[_Entry]]:
    """Return the collectives that are in the traces of all ranks of their group that are traced, if most are.

    A profiler drops kernels, and ends earlier on one rank than on another: who came last to the rest is not known.
    """
    whole = [join for join in joins if len(join) == members]
    return whole if 2 * len(whole) >= len(joins) else list(joins)


def _numbered(found: Sequence[_Entry]) -> bool:
    """Return whether every call has a number of its own; calls that were coalesced share one."""
    numbers = {entry[2].seq for entry in found}
    return None not in numbers and len(numbers) == len(found)


def _launched(entry: _Entry) -> float:
    return entry[2].launched_s


def _ended(entry: _Entry) -> float:
    return entry[2].end_s


def _wrong(joins: Sequence[list[_Entry]]) -> int:
    kept = [join for join in joins if len(join) > 1]
    moved = _clocks(kept) if kept else {}
    return sum(not _possible(_meeting(join, moved)) for join in kept)


def _in_order(members: Mapping[int, list[_Entry]], order: Callable[[_Entry], float]) -> list[list[_Entry]]:
    """Return the calls of the same place: in their step, where all ranks mark steps and most are even, or in all."""
    ordered = {rank: sorted(found, key=order) for rank, found in members.items()}
    every = [entry for found in ordered.values() for entry in found]
    if all(entry[1].marked for entry in every):
        by_step: dict[int, dict[int, list[_Entry]]] = defaultdict(lambda: defaultdict(list))
        for rank, found in ordered.items():
            for entry in found:
                by_step[entry[3]][rank].append(entry)
        even = [one for one in by_step.values() if len(one) == len(members) and len({*map(len, one.values())}) == 1]
        if sum(len(found) for one in even for found in one.values()) * 2 > len(every):
            return [join for one in even for join in _keyed(one, lambda entry, place: place)]
    if len({len(found) for found in ordered.values()}) > 1:
        return []
    return _keyed(ordered, lambda entry, place: place)


def _keyed(members: Mapping[int, list[_Entry]], key: Callable[[_Entry, int], int | None]) -> list[list[_Entry]]:
    found: dict[int | None, list[_Entry]] = defaultdict(list)
    for entries in members.values():
        for place, entry in enumerate(entries):
            found[key(entry, place)].append(entry)
    return [join for join in found.values() if len({entry[0] for entry in join}) == len(join)]


def _step_of(trace: RankTrace, call: TracedCall) -> int:
    """Return the step in which a call began; the nearest where it lies in none."""
    inside = [window for window in trace.windows if window.start_s <= call.start_s]
    return (inside[-1] if inside else trace.windows[0]).number


def _clock_s(trace: RankTrace, origin_ns: int) -> float:
    return (trace.epoch_ns - origin_ns) * 1e-9


def _clocks_of(
    ranks: Sequence[Cycles], kept: Sequence[Sequence[_Entry]], others: Sequence[Sequence[_Entry]]
) -> dict[int, float]:
    """Return the clocks by the joins that end on all at once; where those lack a trace, by the others too.

    Without any join they are known where all traces are of one host.
    """
    met = {id(entry[1]) for join in kept for entry in join}
    joins = kept if met >= {id(entry[1]) for join in others for entry in join} else [*kept, *others]
    if joins:
        return _clocks(joins)
    traces = [trace for cycles in ranks for trace in cycles]
    alone = len({trace.host_name for trace in traces}) == 1 and traces[0].host_name
    return {id(trace): _clock_s(trace, traces[0].epoch_ns) for trace in traces} if alone else {}


def _clocks(joins: Sequence[Sequence[_Entry]]) -> dict[int, float]:
    """Return for each trace (by its id) what to add to its times: hosts whose clocks differ are moved together."""
    traces = {id(entry[1]): entry[1] for join in joins for entry in join}
    origin_ns = min(trace.epoch_ns for trace in traces.values())
    base = {key: _clock_s(trace, origin_ns) for key, trace in traces.items()}
    hosts: dict[int, object] = {key: trace.host_name or key for key, trace in traces.items()}
    if len(set(hosts.values())) == 1:
        return base
    apart: dict[tuple[object, object], list[float]] = defaultdict(list)
    for join in joins:
        ends: dict[object, list[float]] = defaultdict(list)
        for entry in join:
            ends[hosts[id(entry[1])]].append(entry[2].end_s + base[id(entry[1])])
        first, *others = ends
        for host in others:
            apart[first, host].append(statistics.median(ends[host]) - statistics.median(ends[first]))
    # the pairs that met most often first
    pairs = [(*pair, (-len(by_s),), statistics.median(by_s)) for pair, by_s in apart.items()]
    ahead = clocks_ahead(dict.fromkeys(hosts.values()), pairs)
    return {key: base[key] - ahead[hosts[key]] for key in traces}


def _meeting(join: Iterable[_Entry], moved: Mapping[int, float]) -> TracedMeeting:
    arrivals = []
    for rank, trace, call, _ in join:
        by_s = moved[id(trace)]
        arrivals.append(RankArrival(rank, call.start_s + by_s, call.end_s + by_s, trace, by_s))
    arrivals.sort(key=lambda arrival: (arrival.start_s, arrival.rank))
    last = next(entry for entry in join if entry[0] == arrivals[-1].rank)
    name = "all_to_all" if last[2].name == "send_recv" else last[2].name
    call = last[2]
    return TracedMeeting(name, last[3], call.group_size, tuple(arrivals), call.bytes, call.group_text)


def _sends(ranks: Sequence[Cycles]) -> list[list[_Entry]]:
    """Return the sends of each rank to each other whose receiver the trace names, each with its receive."""
    pairs: dict[tuple[int, int, str], dict[int, list[_Entry]]] = defaultdict(lambda: defaultdict(list))
    for cycles in ranks:
        for trace in cycles:
            assert trace.rank is not None
            for call in trace.calls:
                if call.peer >= 0 and call.peer != trace.rank:
                    ends = (trace.rank, call.peer) if call.name == "send" else (call.peer, trace.rank)
                    pairs[*ends, call.group][trace.rank].append((trace.rank, trace, call, _step_of(trace, call)))
    joins = [join for members in pairs.values() if len(members) == 2 for join in _in_order(members, _launched)]
    return [join for join in joins if len(join) == 2]


def _send(join: Sequence[_Entry], moved: Mapping[int, float]) -> TracedMeeting:
    sender, _, call, step = next(entry for entry in join if entry[2].name == "send")
    arrivals = _meeting(join, moved).arrivals
    return TracedMeeting("send", step, len(arrivals), arrivals, call.bytes, call.group_text, sender)


def _right(made: Sequence[TracedMeeting]) -> tuple[TracedMeeting, ...]:
    """Return the joins that can be; none where more than a few cannot, as none is to be trusted then."""
    right = tuple(meeting for meeting in made if _possible(meeting))
    return right if len(made) - len(right) <= WRONG_SHARE * len(made) else ()


def _possible(meeting: TracedMeeting) -> bool:
    longest_s = max(arrival.end_s - arrival.start_s for arrival in meeting.arrivals)
    return meeting.transfer_s > -SLACK * longest_s


def _exchanges(ranks: Sequence[Cycles]) -> tuple[list[list[_Entry]], list[Neighbours]]:
    """Return which sends and receives are an all-to-all, and the ranks that pass on to one another by the others.

    NCCL has one kernel for both. Where nothing tells which it was, it is an all-to-all if more than two ranks can have
    met in each; otherwise it joins neighbours.
    """
    joins = [join for join in _joins(ranks, lambda name: name == "send_recv") if len(join) > 2]
    called = sum(call.name == "send_recv" for cycles in ranks for trace in cycles for call in trace.calls)
    exchanged = sum(map(len, joins)) == called and not _wrong(joins)

    def passes(call: TracedCall) -> bool:
        return point_to_point(call.name) and not (exchanged and call.name == "send_recv")

    return (joins if exchanged else []), neighbours_of(ranks, passes)


def _joins_neighbours(meeting: TracedMeeting, neighbours: Sequence[Neighbours]) -> bool:
    members = {arrival.rank for arrival in meeting.arrivals}
    return any(len(members & one.ranks) > 1 for one in neighbours)
