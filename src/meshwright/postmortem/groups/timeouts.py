"""Time-outs and counts of logs into groups of calls, with the members that each group must have."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from ..nouns.calls import Call, Group, RankGroup, with_counted
from ..nouns.facts import Fact, Failure, GroupProgress, PeerLost, Timeout, of
from ..nouns.where import GroupName, Where
from ..nouns.world import MOST_RANKS, identities_of, ranks_seen, world_of
from ..ranks.exits import CLOCKS_S
from ..scripts.meshes import members_of_guid, numbered_members, places_in_groups, told_members

UNKNOWN = GroupName("")


def groups_of(facts: list[Fact]) -> list[Group]:
    """Return the groups that time-outs and counts speak of, with the members that they must have."""
    timeouts = [fact for fact in of(facts, Timeout) if fact.rank is not None and fact.seq is not None]
    timeouts += broken_in_calls(facts)
    counts = [fact for fact in of(facts, GroupProgress) if fact.rank is not None]
    parts: dict[GroupName, dict[int, RankGroup]] = defaultdict(dict)
    places: dict[GroupName, dict[int, int]] = defaultdict(dict)  # rank by its place in the group
    names = _names(timeouts, counts)
    for fact in timeouts:
        _add_timeout(parts[names[id(fact)]], fact)
        _place(places[names[id(fact)]], fact)
    for count in counts:
        name = _merged(count.group or UNKNOWN, parts)
        _add_count(parts[name], count)
        _place(places[name], count)
    world = world_of(facts)
    seen = ranks_seen(facts)
    found = []
    placed = places_in_groups(facts, {name: places[name] for name in parts})
    numbered = numbered_members(facts, placed)
    for name, ranks in parts.items():
        told = told_members(facts, name.purpose, placed[name]) or numbered.get(name.name, ())
        told = told or members_of_guid(facts, name.name, placed[name])
        members = told or _members(name, ranks, placed[name], world, seen)
        is_sized = bool(told) or len(members) >= (size_of(ranks) or len(members) + 1)  # else who else is in is not told
        whole = is_sized or (world is not None and (name.is_default or name == UNKNOWN))
        found.append(Group(name=name, ranks=ranks, members=members, whole=whole))
    return found


def broken_in_calls(facts: list[Fact]) -> list[Timeout]:
    """Return the ranks whose links broke in a call in which others waited: they came to it, as if they waited there.

    Their line names the call, or others waited in one call alone as it was written. Not after a time-out: who comes
    late finds the links of all who gave up broken. A line without the job's rank counts inside the group, as a
    time-out's does.
    """
    timeouts = [fact for fact in of(facts, Timeout) if fact.rank is not None and fact.seq is not None]
    waited, span = {fact.rank for fact in timeouts}, _Span(timeouts)
    waits = {(fact.operation, fact.seq, fact.numel_in, fact.numel_out): fact for fact in timeouts}
    only = next(iter(waits.values())) if len(waits) == 1 else None
    found = []
    for lost in of(facts, PeerLost):
        wait = waits.get((lost.operation, lost.seq, lost.numel_in, lost.numel_out)) if lost.seq is not None else None
        rank = lost.group_rank if wait is not None and lost.rank is None and wait.counted_in_group else lost.rank
        found.append((rank, lost.where, wait or (only if span.holds(lost.where) else None)))
    processes: dict[tuple[str, int | None], int] = {(one.host, one.pid): one.rank for one in identities_of(facts)}
    for fault in of(facts, Failure):
        if only is not None and fault.kind == "network" and not fault.is_over and span.holds(fault.where):
            own = processes.get((fault.host, fault.pid)) if fault.host and fault.pid is not None else None
            found.append((own if fault.rank is None else fault.rank, fault.where, only))
    return [
        replace(wait, rank=rank, group_rank=None, group=None, waited_s=None, where=where)
        for rank, where, wait in found
        if wait is not None and rank is not None and rank not in waited and not span.is_over(where)
    ]


class _Span:
    """The time in which ranks waited, until the first gave up: by clocks in UTC (True) and in local time, by lines."""

    def __init__(self, timeouts: Sequence[Timeout]) -> None:
        self._begins_s: dict[bool, float] = {}
        self._ends_s: dict[bool, float] = {}
        self._lines: dict[str, int] = {}
        for fact in timeouts:
            at = fact.where
            self._lines[at.file] = min(at.line, self._lines.get(at.file, at.line))
            if at.time_s is not None and fact.waited_s is not None:
                begin_s = at.time_s - fact.waited_s
                self._begins_s[at.is_utc] = min(begin_s, self._begins_s.get(at.is_utc, begin_s))
                self._ends_s[at.is_utc] = min(at.time_s, self._ends_s.get(at.is_utc, at.time_s))

    def holds(self, where: Where) -> bool:
        """Return whether a line was surely written in this time, by its clock or that of the last line above it."""
        time_s = where.above_s if where.time_s is None else where.time_s
        if time_s is None or where.is_utc not in self._ends_s:
            return False
        return self._begins_s[where.is_utc] - CLOCKS_S <= time_s < self._ends_s[where.is_utc] - CLOCKS_S

    def is_over(self, where: Where) -> bool:
        """Return whether a line was written after the first gave up; without a clock, below such a line of its file."""
        if where.time_s is not None and where.is_utc in self._ends_s:
            return where.time_s > self._ends_s[where.is_utc] + CLOCKS_S
        return where.line > self._lines.get(where.file, where.line)


def _names(timeouts: list[Timeout], counts: list[GroupProgress]) -> dict[int, GroupName]:
    """Return the group of each time-out: what it says, else that of the same rank's count, else that of its likes.

    Where no line names another group than that of all, it is that one.
    """
    found: dict[int, GroupName] = {}
    by_rank: dict[int | None, list[GroupProgress]] = defaultdict(list)
    for count in counts:
        by_rank[count.rank].append(count)
    for fact in timeouts:
        fitting = [c.group for c in by_rank[fact.rank] if c.group and _fits(c, fact.seq or 0)]
        found[id(fact)] = fact.group or (fitting[0] if fitting else UNKNOWN)
    likes = {(fact.operation, fact.seq): name for fact in timeouts if (name := found[id(fact)]) != UNKNOWN}
    told = {count.group for count in counts if count.group} | set(found.values()) - {UNKNOWN}
    only = next(iter(told)) if len(told) == 1 and all(name.is_default for name in told) else UNKNOWN
    likes |= _by_places([fact for fact in timeouts if likes.get((fact.operation, fact.seq), only) == UNKNOWN])
    return {
        id(fact): likes.get((fact.operation, fact.seq), only) if found[id(fact)] == UNKNOWN else found[id(fact)]
        for fact in timeouts
    }


def _by_places(timeouts: Sequence[Timeout]) -> dict[tuple[str, int | None], GroupName]:
    """Return a group for each call of time-outs of no group, where they are of several: two ranks have one place.

    Not where two ranks have one place in one call: it is then that of several groups.
    """
    calls: dict[tuple[str, int | None], dict[int, int]] = defaultdict(dict)
    ranks: dict[int, set[int]] = defaultdict(set)
    for fact in timeouts:
        if fact.rank is None or fact.group_rank is None or fact.counted_in_group:
            return {}
        ranks[fact.group_rank].add(fact.rank)
        if calls[fact.operation, fact.seq].setdefault(fact.group_rank, fact.rank) != fact.rank:
            return {}
    if all(len(own) == 1 for own in ranks.values()):
        return {}
    return {call: GroupName("", f"of rank {min(own.values())}") for call, own in calls.items()}


def _fits(count: GroupProgress, seq: int) -> bool:
    if count.failed_at is not None:
        return count.failed_at == seq
    return (count.completed or 0) < seq <= (count.enqueued if count.enqueued is not None else seq)


def _merged(name: GroupName, parts: dict[GroupName, dict[int, RankGroup]]) -> GroupName:
    """Return the group as the others call it: one line says `0`, another `0 (default_pg)`."""
    return next((other for other in parts if other.name == name.name and (not other.purpose or not name.purpose)), name)


def _place(places: dict[int, int], fact: Timeout | GroupProgress) -> None:
    if fact.group_rank is not None and fact.group_rank < MOST_RANKS and fact.rank is not None:
        places[fact.group_rank] = fact.rank


def _add_timeout(ranks: dict[int, RankGroup], fact: Timeout) -> None:
    rank, seq = fact.rank or 0, fact.seq or 0
    part = ranks.get(rank, RankGroup(rank=rank, where=fact.where))
    call = Call(
        rank=rank,
        seq=seq,
        operation=fact.operation,
        numel_in=fact.numel_in,
        numel_out=fact.numel_out,
        where=fact.where,
        created_ns=_begun_ns(fact),
    )
    ranks[rank] = replace(part, calls={seq: call, **part.calls})


def _begun_ns(fact: Timeout) -> int:
    """Return when the rank began to wait, by the watchdog's clock and the time that it waited; 0 where not known."""
    if fact.where.time_s is None or fact.waited_s is None:
        return 0
    return int((fact.where.time_s - fact.waited_s) * 1e9)


def _add_count(ranks: dict[int, RankGroup], fact: GroupProgress) -> None:
    rank = fact.rank or 0
    part = ranks.get(rank, RankGroup(rank=rank, where=fact.where))
    calls = with_counted(dict(part.calls), rank, fact.enqueued, fact.completed, fact.where)
    if fact.failed_at is not None and fact.started is not None and fact.started > fact.failed_at:
        failed = calls.get(fact.failed_at) or Call(rank=rank, seq=fact.failed_at, operation="", where=fact.where)
        calls[fact.failed_at] = replace(failed, started=False)
        later = Call(rank=rank, seq=fact.started, operation=fact.started_operation, where=fact.where, started=True)
        calls[fact.started] = later
    ranks[rank] = replace(
        part,
        calls=calls,
        enqueued=max([n for n in (part.enqueued, fact.enqueued) if n is not None], default=None),
        completed=max([n for n in (part.completed, fact.completed) if n is not None], default=None),
    )


def _members(
    name: GroupName, ranks: dict[int, RankGroup], places: dict[int, int], world: int | None, seen: set[int]
) -> tuple[int, ...]:
    """Return the members that a group must have: by its size where a gather or scatter shows it, by its places."""
    size = size_of(ranks)
    own = all(place == rank for place, rank in places.items())
    if name.is_default or (name == UNKNOWN and own):
        return tuple(range(max(world or 0, size or 0, max(seen, default=-1) + 1)))
    size = max(size or 0, max(places, default=-1) + 1)
    if own and size >= max(seen, default=-1) + 1:
        return tuple(sorted({*range(size), *ranks}))
    steps = {
        (rank - first) / (place - start)
        for (start, first), (place, rank) in zip(sorted(places.items()), sorted(places.items())[1:], strict=False)
    }
    if len(steps) == 1 and (step := steps.pop()) == int(step) and step > 0:
        start, first = min(places.items())
        base = first - start * int(step)
        return tuple(sorted({*(base + place * int(step) for place in range(size)), *ranks}))
    return tuple(sorted(ranks))


def size_of(ranks: dict[int, RankGroup]) -> int | None:
    """Return the group's size where a gather brings n times what a rank puts in, or a scatter the other way round."""
    ratios = set()
    for part in ranks.values():
        for call in part.calls.values():
            small, large = sorted((call.numel_in or 0, call.numel_out or 0))
            gathers = call.operation in {"all_gather", "reduce_scatter", "coalesced"}
            if gathers and small and large % small == 0 and large // small < MOST_RANKS:
                ratios.add(large // small)
    size = ratios.pop() if len(ratios) == 1 else 0
    return size if size > 1 and size >= len(ranks) else None  # equal sizes: a part that was counted as the whole
