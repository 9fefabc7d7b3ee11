"""What logs tell of the position of the ranks: time-outs and counts into groups of calls, and who is silent."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from .calls import Call, Group, RankGroup, with_counted
from .facts import (
    Absentees,
    Arrived,
    CommunicatorCall,
    DesyncReport,
    Fact,
    GroupName,
    Identity,
    PeerLost,
    Progress,
    Shortened,
    SizesDiffer,
    StoreWait,
    Timeout,
    WorldSize,
    of,
)
from .names import UNEVEN
from .positions import MOST_SILENT, Position, judged, minority

A_HOST = 8  # ranks that usually share a host: as many silent ones in a row are a log that was not collected
UNKNOWN = GroupName("")


def ranks_seen(facts: Iterable[Fact]) -> set[int]:
    """Return every rank that some line names."""
    return {rank for fact in facts if isinstance(rank := getattr(fact, "rank", None), int)}


def world_of(facts: list[Fact]) -> int | None:
    """Return the number of ranks where a line says it and no larger rank was seen; None where it is not known."""
    sizes = [fact.ranks for fact in of(facts, WorldSize)]
    sizes += [fact.ranks for fact in of(facts, Identity) if fact.ranks]
    largest = max(sizes, default=0)
    return largest if largest > max(ranks_seen(facts), default=-1) else None


def position(facts: list[Fact]) -> Position | None:
    """Return what the logs say of the call that hangs and of who is not in it; None where they say nothing."""
    for reader in (_by_barrier, _by_report, _by_sizes):
        if found := reader(facts):
            return found
    found = judged(_groups(facts))
    if found:
        found = _weighed(found, facts)
        return _without_ranks(found) if _counts_in_groups(facts) else found
    return _by_store(facts) or _by_calls(facts) or _by_lost_peers(facts)


def _counts_in_groups(facts: list[Fact]) -> bool:
    """Whether the only ranks in the files are places in a group that is not that of all ranks."""
    timeouts = of(facts, Timeout)
    named = [fact.group for fact in of(facts, Progress) if fact.rank is None and fact.group]
    return bool(named) and all(fact.counted_in_group for fact in timeouts) and not any(g.is_default for g in named)


def _without_ranks(found: Position) -> Position:
    what = "which ranks of the job these are: the lines count inside a group (a prefix [rank3]: tells, or a file a rank)"
    return replace(found, blamed=(), waiting=(), certain=False, missing=(what,))


def _by_barrier(facts: list[Fact]) -> Position | None:
    named = of(facts, Absentees)
    if not named:
        return None
    arrived = of(facts, Arrived)
    ranks = {rank for fact in named for rank in fact.ranks} - {fact.rank for fact in arrived}
    told = ", ".join(map(str, sorted(ranks)))
    return Position(
        kind="absent",
        blamed=tuple(sorted(ranks)),
        waiting=tuple(sorted({fact.rank for fact in arrived if fact.rank is not None})),
        operation="monitored_barrier",
        why=f"a monitored barrier names who did not come: {told}",
        certain=bool(ranks),
        evidence=tuple(fact.where for fact in (*named, *arrived)),
    )


def _by_report(facts: list[Fact]) -> Position | None:
    for report in of(facts, DesyncReport):
        blamed, seq, why = report.never, None, "never joined any collective"
        if not blamed and report.not_joined:
            seq, blamed = min(report.not_joined)
            why = f"finished #{seq - 1} and did not join #{seq}"
        waiting = {rank for _, _, ranks in report.started for rank in ranks} - set(blamed)
        if not blamed and report.unfinished:
            seq, blamed = min(report.unfinished)
            waiting -= set(blamed)
            why = f"joined #{seq} and did not finish it, the others are past it"
        if not blamed or (not waiting and report.unfinished) or set(blamed) >= ranks_seen(facts):
            continue
        if waiting and len(blamed) > len(waiting):
            continue
        last = min(report.started, default=None)
        told = f"; the others wait in {last[1]} #{last[0]}" if last else ""
        ranks = ", ".join(map(str, blamed))
        return Position(
            kind="absent",
            blamed=tuple(blamed),
            waiting=tuple(sorted(waiting)),
            group=next((fact.group for fact in of(facts, Progress) if fact.group), None),
            seq=seq if seq is not None else report.at_seq,
            why=f"torch's desync report: rank{'s' * (len(blamed) > 1)} {ranks} {why}{told}",
            evidence=(report.where,),
        )
    return None


def _by_sizes(facts: list[Fact]) -> Position | None:
    found = of(facts, SizesDiffer)
    if not found:
        return None
    first = found[0]
    return Position(
        kind="sizes",
        why=f"{first.came_bytes} bytes came where {first.expected_bytes} were expected: the ranks disagree about a size",
        certain=False,
        evidence=tuple(fact.where for fact in found),
        missing=("which rank brought the other size: flight records or the shapes that each rank printed",),
    )


# ---- time-outs and counts


def _groups(facts: list[Fact]) -> list[Group]:
    """Return the groups that time-outs and counts speak of, with the members that they must have."""
    timeouts = [fact for fact in of(facts, Timeout) if fact.rank is not None and fact.seq is not None]
    counts = [fact for fact in of(facts, Progress) if fact.rank is not None]
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
    return [
        Group(name=name, ranks=ranks, members=_members(name, ranks, places[name], world, seen), whole=world is not None or _size(ranks) is not None)
        for name, ranks in parts.items()
    ]


def _names(timeouts: list[Timeout], counts: list[Progress]) -> dict[int, GroupName]:
    """Return the group of each time-out: what it says, else that of the same rank's count, else that of its likes."""
    found: dict[int, GroupName] = {}
    for fact in timeouts:
        fitting = [c.group for c in counts if c.rank == fact.rank and c.group and _fits(c, fact.seq or 0)]
        found[id(fact)] = fact.group or (fitting[0] if fitting else UNKNOWN)
    likes = {(fact.operation, fact.seq): name for fact in timeouts if (name := found[id(fact)]) != UNKNOWN}
    return {
        id(fact): likes.get((fact.operation, fact.seq), UNKNOWN) if found[id(fact)] == UNKNOWN else found[id(fact)]
        for fact in timeouts
    }


def _fits(count: Progress, seq: int) -> bool:
    if count.failed_at is not None:
        return count.failed_at == seq
    return (count.completed or 0) < seq <= (count.enqueued if count.enqueued is not None else seq)


def _merged(name: GroupName, parts: dict[GroupName, dict[int, RankGroup]]) -> GroupName:
    """Return the group as the others call it: one line says `0`, another `0 (default_pg)`."""
    return next((other for other in parts if other.name == name.name and (not other.purpose or not name.purpose)), name)


def _place(places: dict[int, int], fact: Timeout | Progress) -> None:
    if fact.group_rank is not None and fact.rank is not None:
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
    )
    ranks[rank] = replace(part, calls={seq: call, **part.calls})


def _add_count(ranks: dict[int, RankGroup], fact: Progress) -> None:
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
    size = _size(ranks)
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


def _size(ranks: dict[int, RankGroup]) -> int | None:
    """Return the group's size where a gather brings n times what a rank puts in, or a scatter the other way round."""
    ratios = set()
    for part in ranks.values():
        for call in part.calls.values():
            small, large = sorted((call.numel_in or 0, call.numel_out or 0))
            if call.operation in {"all_gather", "reduce_scatter", "coalesced"} and small and large % small == 0:
                ratios.add(large // small)
    return ratios.pop() if len(ratios) == 1 else None


def _weighed(found: Position, facts: list[Fact]) -> Position:
    """Return the position with what silence is worth: one rank that says nothing, not a host whose log is missing."""
    group = next((g for g in _groups(facts) if g.name == found.group), None)
    spoken = set(group.ranks) if group else set()
    if found.kind == "stuck":
        if group is None or group.whole or _is_round(len(spoken), group):
            return found
        missing = "whether there are more ranks than these: the launcher's log, or the log of every rank"
        return replace(found, kind="absent", certain=False, why=f"{found.why}, of those that spoke", missing=(missing,))
    silent = [rank for rank in found.blamed if rank not in spoken] if found.kind == "absent" else []
    if not silent and found.certain:
        return found
    silent = silent or [int(name.split()[-1]) for name in found.missing if name.startswith("the record of rank")]
    few = len(silent) == 1 or (len(silent) <= MOST_SILENT and 2 * len(silent) <= len(found.waiting))
    enough = len(found.waiting) >= 2 or bool(group and group.whole and len(found.waiting) == 1 and len(silent) == 1)
    lines = tuple(f"the log of rank {rank}" for rank in silent[:16])
    if few and enough and not of(facts, Shortened) and not _is_host(silent):
        told = ", ".join(map(str, silent))
        why = f"rank{'s' * (len(silent) > 1)} {told} printed no time-out, while the others wait"
        return replace(found, why=f"{why} in {_named(found)}", missing=lines, silent=True)
    if of(facts, Shortened):
        lines = ("the lines of each rank by themselves: in this file lines of several ranks are folded into one",)
    return replace(
        found,
        blamed=(),
        certain=False,
        silent=True,
        why=f"those who spoke wait in {_named(found)} for a rank whose log is not here",
        missing=lines,
    )


def _named(found: Position) -> str:
    return f"{found.operation or 'call'} #{found.seq}" if found.seq is not None else found.operation or "a call"


def _is_round(count: int, group: Group) -> bool:
    """Whether the ranks that spoke are probably all: as many as a gather shows, or a power of two or whole hosts."""
    size = _size(group.ranks)
    if size is not None:
        return count == size
    return count > 1 and (count % A_HOST == 0 or count & (count - 1) == 0)


def _is_host(silent: list[int]) -> bool:
    return any(set(range(start, start + A_HOST)) <= set(silent) for start in silent if start % A_HOST == 0)


# ---- the store, and NCCL's own count


def _by_store(facts: list[Fact]) -> Position | None:
    waits = of(facts, StoreWait)
    gloo = [fact for fact in of(facts, Timeout) if fact.seq is None]
    waiting = {fact.rank for fact in (*waits, *gloo) if fact.rank is not None}
    if not waits and not gloo:
        return None
    writers = {fact.of for fact in waits if fact.of is not None} - waiting
    seen, world = ranks_seen(facts), world_of(facts)
    silent = set(range(world or max(seen, default=-1) + 1)) - waiting
    blamed: set[int] = set()
    if len(writers) == 1 and len(waiting) >= 1:
        blamed = writers
    elif len(silent) == 1 and (len(waiting) >= 2 or world) and not of(facts, Shortened):
        blamed = silent
    everyone = not silent and world is not None and len(waiting) == world
    what = "for a key of the store" if waits else "for others' data"
    return Position(
        kind="stuck" if everyone else "absent",
        blamed=tuple(sorted(blamed)),
        waiting=tuple(sorted(waiting)),
        operation=next((fact.operation for fact in gloo if fact.operation), ""),
        why=f"rank{'s' * (len(waiting) > 1)} {', '.join(map(str, sorted(waiting))) or '?'} waited in vain {what}",
        certain=bool(blamed) or everyone,
        silent=True,
        evidence=tuple(fact.where for fact in (*waits, *gloo)),
        missing=() if blamed or everyone else ("the logs of the other ranks: one of them has not come",),
    )


def _by_lost_peers(facts: list[Fact]) -> Position | None:
    """Return whose process ended, where all others but one say that a connection broke."""
    lost = of(facts, PeerLost)
    losers = {fact.rank for fact in lost if fact.rank is not None}
    silent = set(range(world_of(facts) or max(ranks_seen(facts), default=-1) + 1)) - losers
    if not lost:
        return None
    ended = any(fact.kind == "killed" for fact in lost)
    certain = ended and len(silent) == 1 and len(losers) >= 2 and not of(facts, Shortened)
    return Position(
        kind="killed" if ended else "network",
        blamed=tuple(silent) if certain else (),
        why=f"{len(lost)} connections to a peer broke"
        + ("; one rank alone does not say so" if certain else ", whose end or whose link is not in the files"),
        certain=certain,
        silent=True,
        evidence=tuple(fact.where for fact in lost),
        missing=() if certain else ("the log of the rank at the other end, and the launcher's summary",),
    )


def _by_calls(facts: list[Fact]) -> Position | None:
    """Return who is behind or calls something else by NCCL's opCount, where all ranks of a communicator are here."""
    calls = [call for call in of(facts, CommunicatorCall) if call.operation not in UNEVEN]
    identities = {(i.host, i.pid, i.communicator): i for i in of(facts, Identity) if i.communicator}
    parts: dict[str, dict[int, dict[int, Call]]] = defaultdict(lambda: defaultdict(dict))
    hosts = {call.host for call in calls}
    for call in calls:
        told = identities.get((call.host, call.pid, call.communicator))
        if told is None and len(hosts) > 1:
            return None  # the device's number is a rank on one host only
        rank = told.rank if told else call.device
        group = (told.communicator_id if told else "") or f"{call.ranks} ranks"
        parts[group][rank].setdefault(
            call.seq,
            Call(
                rank=rank,
                seq=call.seq,
                operation=call.operation,
                numel_in=call.count,
                types=(str(call.datatype),),
                where=call.where,
            ),
        )
    sizes = {f"{call.ranks} ranks": call.ranks for call in calls} | {
        i.communicator_id: i.ranks for i in identities.values()
    }
    for name, ranks in parts.items():
        if found := _behind(name, ranks, sizes.get(name)):
            return found
    return None


def _behind(name: str, ranks: dict[int, dict[int, Call]], size: int | None) -> Position | None:
    if len(ranks) < 2:
        return None
    lasts = {rank: max(calls) for rank, calls in ranks.items()}
    parts = {
        rank: RankGroup(
            rank=rank, calls={seq: replace(call, ended=seq < min(lasts.values())) for seq, call in calls.items()}
        )
        for rank, calls in ranks.items()
    }
    group = Group(
        name=GroupName(name), ranks=parts, members=tuple(range(size or max(ranks) + 1)), whole=size is not None
    )
    first = min((seq for calls in ranks.values() for seq in calls), default=0)
    common = [seq for seq in range(first, max(lasts.values()) + 1) if len(group.of(seq)) == len(ranks)]
    for seq in common:
        compared = group.of(seq)
        blamed, certain = minority({rank: (call.operation) for rank, call in compared.items()})
        if len({call.operation for call in compared.values()}) > 1:
            return _differs(group, seq, blamed, certain)
    front, count = Counter(lasts.values()).most_common(1)[0]
    late = tuple(sorted(rank for rank, last in lasts.items() if last < front))
    if late and count == len(ranks) - len(late) and len(late) * 2 < len(ranks):
        usual = next(calls[front] for calls in ranks.values() if front in calls)
        return Position(
            kind="absent",
            blamed=late,
            waiting=tuple(rank for rank in ranks if rank not in late),
            group=group.name,
            operation=usual.operation,
            seq=front,
            why=f"by NCCL's opCount rank {late[0]} came to {lasts[late[0]]}, the others to {front}",
            evidence=tuple(ranks[rank][lasts[rank]].where for rank in ranks),
        )
    return None


def _differs(group: Group, seq: int, blamed: tuple[int, ...], certain: bool) -> Position:
    calls = group.of(seq)
    usual = next(call for rank, call in calls.items() if rank not in blamed)
    told = "; ".join(f"rank {rank} calls {calls[rank].operation}" for rank in blamed or calls)
    return Position(
        kind="desync",
        blamed=blamed,
        waiting=tuple(rank for rank in calls if rank not in blamed),
        group=group.name,
        operation=usual.operation,
        seq=seq,
        why=f"at opCount {seq:x} {told}, the others {usual.operation}",
        certain=certain,
        evidence=tuple(call.where for call in calls.values()),
    )
