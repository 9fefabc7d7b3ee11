"""NCCL's own count of calls (NCCL_DEBUG_SUBSYS=COLL): who is behind, and who calls something else."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ...units import ranks_in_words
from ..nouns.calls import Call, Group, RankGroup
from ..nouns.facts import CommunicatorCall, Fact, Failure, Heartbeat, StoreWait, of
from ..nouns.identities import Began, RankIdentity
from ..nouns.launch_counts import Remark
from ..nouns.names import UNEVEN
from ..nouns.position import MOST_SILENT, HangPosition
from ..nouns.where import GroupName, Where
from ..nouns.world import identities_of, may_be_same_host
from ..positions.agreement import disagreement
from ..positions.waits import judged

# numbers of nccl.h, under the names of torch's records
TYPES = ("Char", "Byte", "Int", "UInt32", "Long", "UInt64", "Half", "Float", "Double", "BFloat16", "Float8_e4m3fn")


def by_calls(facts: list[Fact], *, mismatched: bool = False) -> HangPosition | None:
    """Return who is behind or calls something else by NCCL's opCount, where all ranks of a communicator are here.

    NCCL prints a call as it is queued: where a message says that calls do not match (`mismatched`), those before the
    last one may not have ended, and are compared by their sizes, too.
    """
    calls = _ranked([call for call in of(facts, CommunicatorCall) if call.operation not in UNEVEN], facts)
    identities = {(i.host, i.pid, i.communicator): i for i in of(facts, RankIdentity) if i.communicator}
    parts: dict[str, dict[int, dict[int, Call]]] = defaultdict(lambda: defaultdict(dict))
    known = identities_of(facts)
    jobs = _labelled(calls) | _ranks_of_processes(known)
    placed: set[str] = set()  # groups of which only places are known
    hosts = {call.host for call in calls}
    communicators: dict[tuple[str, int], set[str]] = defaultdict(set)
    of_size: dict[tuple[str, int, int | None], set[str]] = defaultdict(set)
    for call in calls:
        communicators[call.host, call.pid].add(call.communicator)
        of_size[call.host, call.pid, call.ranks].add(call.communicator)
    for call in calls:
        told = identities.get((call.host, call.pid, call.communicator))
        if told is None and call.rank is None and len(hosts) > 1:
            return None  # the device's number is a rank on one host only
        if told is None and len(communicators[call.host, call.pid]) > 1 and call.rank is not None:
            return None  # which of them are one group, nothing tells
        if told is not None and not told.communicator_id and len(of_size[call.host, call.pid, call.ranks]) > 1:
            return None
        rank = call.rank if call.rank is not None else call.device
        if told is not None and call.rank is None:
            rank = jobs.get((call.host, call.pid), told.rank)
        group = (told.communicator_id if told else "") or f"{call.ranks} ranks"
        if told is not None and call.rank is None and (call.host, call.pid) not in jobs and told not in known:
            placed.add(group)
        parts[group][rank].setdefault(
            call.seq,
            Call(
                rank=rank,
                seq=call.seq,
                operation=call.operation,
                numel_in=call.count,
                types=(TYPES[call.datatype] if call.datatype < len(TYPES) else f"type {call.datatype}",),
                where=call.where,
            ),
        )
    sizes = {f"{call.ranks} ranks": call.ranks for call in calls} | {
        i.communicator_id: i.ranks for i in identities.values()
    }
    for name, ranks in parts.items():
        if found := _behind(name, ranks, sizes.get(name), mismatched=mismatched):
            return _without_places(found) if name in placed else found
    told_apart = {name: ranks for name, ranks in parts.items() if name not in placed}
    return (
        _crossed(told_apart, sizes)
        or _made_none(told_apart, sizes, facts)
        or _all_in(told_apart, sizes, facts)
        or _not_all_here(told_apart, sizes, facts)
    )


def _ranked(calls: Sequence[CommunicatorCall], facts: list[Fact]) -> list[CommunicatorCall]:
    """Return calls with the ranks of the job that other lines give their processes, where these tell one of each.

    A pod's name and its address are of one host: processes of such are one where no other has their number.
    """
    owners: dict[int | None, set[tuple[str, int]]] = defaultdict(set)
    for one in of(facts, RankIdentity):
        if one.pid is not None and one.ranks is None and not one.communicator:
            owners[one.pid].add((one.host, one.rank))
    bare = [call for call in calls if call.rank is None]
    ranks: dict[tuple[str, int], int] = {}
    for call in bare:
        fitting = {rank for host, rank in owners[call.pid] if not host or may_be_same_host(host, call.host)}
        if len(fitting) == 1:
            ranks[call.host, call.pid] = fitting.pop()
    processes = {(call.host, call.pid) for call in calls}
    if len(bare) < len(calls) or ranks.keys() != processes or len(set(ranks.values())) < len(ranks):
        return list(calls)
    return [replace(call, rank=ranks[call.host, call.pid]) for call in calls]


def _ranks_of_processes(known: Sequence[RankIdentity]) -> dict[tuple[str, int], int]:
    """Return the ranks of processes that are one rank each: a process may have several GPUs, each with a rank."""
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for one in known:
        if one.host and one.pid is not None:
            found[one.host, one.pid].add(one.rank)
    return {process: min(ranks) for process, ranks in found.items() if len(ranks) == 1}


def _all_in(
    parts: Mapping[str, Mapping[int, Mapping[int, Call]]], sizes: Mapping[str, int | None], facts: list[Fact]
) -> HangPosition | None:
    """Return that all ranks hang in the last call, where all of the one communicator have come to it.

    A list of calls ends with one however the job went on: somebody remarks below it that nothing more came.
    """
    remarks = [remark.where for remark in of(facts, Remark)]
    if len(parts) != 1 or not remarks:
        return None
    ((name, ranks),) = parts.items()
    lasts, call = _last_calls(ranks)
    is_whole = len(ranks) > 1 and sizes.get(name) == len(ranks) and {last.seq for last in lasts.values()} == {call.seq}
    if not is_whole or not any(remark.file == last.where.file for remark in remarks for last in lasts.values()):
        return None
    return HangPosition(
        kind="stuck",
        waiting=tuple(sorted(ranks)),
        group=GroupName(name),
        operation=call.operation,
        seq=call.seq,
        why=f"by NCCL's opCount all ranks have come to {call.operation} #{call.seq}, and nothing more came",
        evidence=(*(last.where for last in lasts.values()), *remarks),
    )


def _made_none(
    parts: Mapping[str, Mapping[int, Mapping[int, Call]]], sizes: Mapping[str, int | None], facts: list[Fact]
) -> HangPosition | None:
    """Return the few who joined a communicator and made no call in it, where all others have come to one and wait.

    Where the job made steps they have made calls, and their lines are lost.
    """
    if of(facts, Began):
        return None
    waited = [fact.where for fact in facts if isinstance(fact, Heartbeat | Remark | StoreWait)]
    waited += [fact.where for fact in of(facts, Failure) if fact.is_general]
    joined: dict[str, dict[int, Where]] = defaultdict(dict)
    for one in of(facts, RankIdentity):
        joined[one.communicator_id].setdefault(one.rank, one.where)
    for name, ranks in parts.items():
        idle = tuple(sorted(set(joined[name]) - set(ranks)))
        few = len(idle) == 1 or (len(idle) <= MOST_SILENT and 2 * len(idle) <= len(ranks))
        lasts, call = _last_calls(ranks)
        alike = {last.seq for last in lasts.values()} == {call.seq} and len(ranks) > 1
        if not (idle and few and alike and waited) or len(idle) + len(ranks) != sizes.get(name):
            continue
        return HangPosition(
            kind="absent",
            blamed=idle,
            waiting=tuple(sorted(ranks)),
            group=GroupName(name),
            operation=call.operation,
            seq=call.seq,
            why=f"by NCCL's opCount {ranks_in_words(idle)} joined and made no call, the others came to {call.operation}"
            f" #{call.seq}",
            silent=True,
            evidence=(*(joined[name][rank] for rank in idle), *(last.where for last in lasts.values()), *waited),
        )
    return None


def _not_all_here(
    parts: Mapping[str, Mapping[int, Mapping[int, Call]]], sizes: Mapping[str, int | None], facts: list[Fact]
) -> HangPosition | None:
    """Return that the ranks whose calls are here wait in the same one, where somebody remarks that nothing more came.

    Whether the others came to it, their logs would tell.
    """
    remarks = [remark.where for remark in of(facts, Remark)]
    if not remarks or len(parts) != 1:
        return None
    ((name, ranks),) = parts.items()
    lasts, call = _last_calls(ranks)
    others = tuple(sorted(set(_members(ranks, sizes.get(name))) - set(ranks)))
    if len(ranks) < 2 or {last.seq for last in lasts.values()} != {call.seq} or not others:
        return None
    return HangPosition(
        kind="absent",
        waiting=tuple(sorted(ranks)),
        group=GroupName(name),
        operation=call.operation,
        seq=call.seq,
        why=f"by NCCL's opCount the ranks whose lines are here came to {call.operation} #{call.seq}; there is none"
        f" of {ranks_in_words(others)}",
        certain=False,
        evidence=(*(last.where for last in lasts.values()), *remarks),
        missing=(f"the calls of {ranks_in_words(others)} (NCCL_DEBUG_SUBSYS=COLL), or their stacks (`py-spy dump`)",),
    )


def _last_calls(ranks: Mapping[int, Mapping[int, Call]]) -> tuple[dict[int, Call], Call]:
    """Return the last call of each rank, and that of the first one."""
    lasts = {rank: calls[max(calls)] for rank, calls in ranks.items()}
    return lasts, next(iter(lasts.values()))


def _labelled(calls: Sequence[CommunicatorCall]) -> dict[tuple[str, int], int]:
    """Return the ranks of processes by the labels of their lines, {} where two of them share one, or one has two."""
    told = {(call.host, call.pid, call.where.rank) for call in calls}
    ranks = {(host, pid): rank for host, pid, rank in told if rank is not None}
    return ranks if len(set(ranks.values())) == len(ranks) == len(told) else {}


def _crossed(
    parts: Mapping[str, Mapping[int, Mapping[int, Call]]], sizes: Mapping[str, int | None]
) -> HangPosition | None:
    """Return that ranks wait for each other in several communicators, each being ahead in one and behind in another.

    Only where the last call of each is the one in which the others are missing: before it they may have taken turns.
    """
    groups, last = [], dict[int, Call]()
    for name, ranks in parts.items():
        members = _members(ranks, sizes.get(name))
        least = min(max(ranks[rank]) if rank in ranks else -1 for rank in members)
        told = {
            rank: RankGroup(rank=rank, calls={seq: replace(call, ended=seq <= least) for seq, call in calls.items()})
            for rank, calls in ranks.items()
        }
        groups.append(Group(name=GroupName(name), ranks=told, members=members, whole=sizes.get(name) is not None))
        for part in told.values():
            latest = part.calls[max(part.calls)]
            if part.rank not in last or last[part.rank].where.before(latest.where):
                last[part.rank] = latest
    found = judged(groups) if len(groups) > 1 and all(group.whole for group in groups) else None
    return found if found and found.kind == "circle" and not any(call.ended for call in last.values()) else None


def _members(ranks: Mapping[int, Mapping[int, Call]], size: int | None) -> tuple[int, ...]:
    """Return the members of a communicator: all places of it, or the ranks of the job that called."""
    return tuple(range(size or max(ranks) + 1)) if size is None or max(ranks) < size else tuple(sorted(ranks))


def _without_places(found: HangPosition) -> HangPosition:
    """Return a position without the places inside a group that are no ranks of the job."""
    lacks = "which ranks of the job these are: NCCL's Init lines of the communicator of all ranks"
    why = f"counted inside a communicator: {found.why}"
    return replace(found, blamed=(), waiting=(), certain=False, why=why, missing=(lacks,))


def _behind(name: str, ranks: dict[int, dict[int, Call]], size: int | None, *, mismatched: bool) -> HangPosition | None:
    if len(ranks) < 2 or len(ranks) > (size or len(ranks)):
        return None  # several groups of one size
    lasts = {rank: max(calls) for rank, calls in ranks.items()}
    first_open = 0 if mismatched else min(lasts.values())
    parts = {
        rank: RankGroup(rank=rank, calls={seq: replace(call, ended=seq < first_open) for seq, call in calls.items()})
        for rank, calls in ranks.items()
    }
    group = Group(name=GroupName(name), ranks=parts, members=_members(ranks, size), whole=size is not None)
    if found := disagreement(group):
        return found
    front, count = Counter(lasts.values()).most_common(1)[0]
    late = tuple(sorted(rank for rank, last in lasts.items() if last < front))
    if late and count == len(ranks) - len(late) and len(late) * 2 < len(ranks):
        usual = next(calls[front] for calls in ranks.values() if front in calls)
        others = tuple(sorted(set(group.members) - set(ranks)))
        return HangPosition(
            kind="absent",
            blamed=late,
            waiting=tuple(rank for rank in ranks if rank not in late),
            group=group.name,
            operation=usual.operation,
            seq=front,
            why=f"by NCCL's opCount rank {late[0]} came to {lasts[late[0]]}, the others to {front}",
            evidence=tuple(ranks[rank][lasts[rank]].where for rank in ranks),
            missing=(f"the log of {ranks_in_words(others)}, which may be behind too",) if others else (),
        )
    return None


def by_tests(facts: list[Fact]) -> HangPosition | None:
    """Return that all ranks hang in a call of one of nccl-tests, which makes each call on all of them.

    Only where somebody remarks that nothing more came, and all ranks had joined the one communicator.
    """
    remarks = [remark.where for remark in of(facts, Remark) if remark.in_test]
    joined = {one.rank: one for one in of(facts, RankIdentity) if one.ranks is not None}
    groups = {(one.communicator_id, one.ranks) for one in joined.values()}
    if not remarks or len(groups) != 1 or set(joined) != set(range(next(iter(groups))[1] or 0)) or len(joined) < 2:
        return None
    return HangPosition(
        kind="stuck",
        waiting=tuple(sorted(joined)),
        why="all ranks of the test have joined, and nothing more came of its calls, which it makes on all of them",
        evidence=(*(one.where for one in joined.values()), *remarks),
    )
