"""Ranks that are behind by `ncclras`: how many calls of each operation the ranks of a communicator have launched."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from ...units import counted
from ..nouns.facts import Fact, StackTrace, Timeout, of
from ..nouns.identities import BusyGpus, RankIdentity
from ..nouns.launch_counts import LaunchCounts, LaunchedAlike
from ..nouns.position import HangPosition
from ..nouns.where import GroupName, Where
from ..nouns.world import names_of_addresses, short_host, world_of
from ..positions.stands import WAITS, stand_of

_COUNTED = {"all_gather", "all_reduce", "barrier", "broadcast", "reduce", "reduce_scatter"}
Places = dict[tuple[int, str], int]  # a rank by its process and node, "" where no two processes have one number
_STEADY = 3  # reports that show a job running on
_STANDS_S = 300.0  # of counts: a step or a start of one takes less
AGAIN = "a second report of ncclras a minute later: counts that have moved show a job that runs"


class _Differs(msgspec.Struct, frozen=True, kw_only=True):
    """How the ranks of one communicator differ. `behind` is None where they are not named or not the few.

    `others` are then the ranks that have launched more than the fewest, None where they are not known.
    """

    first: LaunchCounts
    behind: frozenset[int] | None
    others: frozenset[int] | None
    seq: int | None  # the first call that those behind have not launched
    kind: str
    why: str


def by_launches(facts: list[Fact]) -> HangPosition | None:
    """Return who has launched fewer calls than the others, or other ones; None where no report shows a difference.

    A rank that is behind in one communicator and among the first in another waits there, and is not to blame. Where
    most are behind a few, where several are that may stand in a call of another communicator, or where the counts move
    from one report to the next, nobody is named.
    """
    *before, last = _reports(facts) or [[]]
    if not last:
        return None
    identities = _places(facts)
    differing: dict[str, list[LaunchCounts]] = defaultdict(list)
    for counts in last:
        differing[counts.communicator].append(counts)
    found = [_differs(group, identities) for group in differing.values()]
    moves = bool(before) and _moved(before[-1], last)
    return _position(found, _nodes(last, identities), moves=moves, is_last=not before)


def _reports(facts: list[Fact]) -> list[list[LaunchCounts]]:
    """Return the differences of each report that has any, in their order."""
    reports: dict[tuple[int, int], list[LaunchCounts]] = defaultdict(list)
    for counts in of(facts, LaunchCounts):
        reports[counts.where.order, counts.report].append(counts)
    return [reports[key] for key in sorted(reports)]


def stand_still(facts: list[Fact]) -> bool:
    """Return whether the last two reports with differences show the same ones."""
    reports = _reports(facts)
    return len(reports) > 1 and not _moved(*reports[-2:])


def step_on(facts: list[Fact]) -> tuple[Where, ...]:
    """Return the lines of the last reports by which a job runs on, each with its counts; () where they do not show it.

    In each all ranks have launched more than the first of them had in the report before, and as fast in the last
    interval as before it: who is one call behind at the moment of a report is a moving target. Two reports are too few:
    a job may run until the second and hang in it.
    """
    last = _reports(facts)[-_STEADY:]
    if len(last) < _STEADY or any(_stands(*two) for two in pairwise(last)):
        return ()
    series = _series(last)
    ran = {key: _runs(counts) for key, counts in series.items()}
    of_world = any(runs for key, runs in ran.items() if series[key][-1].is_world)
    if not ran or not all(ran.values()) or not (of_world or {_key(one) for one in last[-1]} <= ran.keys()):
        return ()
    return tuple(replace(one.where, text=_told(one)) for counts in series.values() for one in counts)


def _series(reports: Sequence[Sequence[LaunchCounts]]) -> dict[tuple[str, str], list[LaunchCounts]]:
    """Return the counts that each of several reports has, in their order."""
    each = [{_key(one): one for one in report} for report in reports]
    return {key: [report[key] for report in each] for key in each[-1] if all(key in report for report in each)}


def _stands(before: Sequence[LaunchCounts], last: Sequence[LaunchCounts]) -> bool:
    """Whether a rank that is behind in a report has launched nothing since the one before."""
    earlier = {_key(one): one for one in before}
    return any(_fewest(one) <= _fewest(earlier[_key(one)]) for one in last if _key(one) in earlier)


def _runs(counts: Sequence[LaunchCounts]) -> bool:
    """Whether all ranks went on in each interval between reports, and in the last no slower than by half."""
    if any(_fewest(second) < max(one.calls for one in first.counts) for first, second in pairwise(counts)):
        return False
    taken_s = [one.where.above_s for one in counts]
    known = [at_s for at_s in taken_s if at_s is not None]
    lasted = [b - a for a, b in pairwise(known if len(known) == len(counts) else range(len(counts)))]
    grown = [_fewest(second) - _fewest(first) for first, second in pairwise(counts)]
    if min(lasted) <= 0:
        return False
    return 2 * grown[-1] / lasted[-1] >= max(more / took for more, took in zip(grown, lasted, strict=True))


def _fewest(counts: LaunchCounts) -> int:
    return min(one.calls for one in counts.counts)


def _key(counts: LaunchCounts) -> tuple[str, str]:
    return counts.communicator, counts.operation


def _told(counts: LaunchCounts) -> str:
    """Return the counts of one communicator as a line: how many ranks have launched how many calls."""
    ordered = sorted(counts.counts, key=lambda one: -one.calls)
    told = ", ".join(f"{counted(one.ranks, 'rank')} {one.calls}" for one in ordered)
    return f"ncclras: of {counts.operation or 'all calls'} in {counts.communicator} have launched: {told}"


def all_alike(facts: list[Fact], operation: str) -> Where | None:
    """Return the line of a report by which all ranks had launched alike while calls that time out hung; or None.

    It was taken while they waited, by its clock, or shows the counts of one before it. Sends and receives are not in
    it, nor what is made of them.
    """
    reports = of(facts, LaunchedAlike)
    if not reports or operation not in _COUNTED or of(facts, LaunchCounts):
        return None
    waits = [
        (fact.where.time_s - fact.waited_s, fact.where.time_s)
        for fact in of(facts, Timeout)
        if fact.where.time_s is not None and fact.waited_s is not None
    ]
    begun_s, ended_s = max((begun for begun, _ in waits), default=0.0), min((end for _, end in waits), default=0.0)
    *_, before, last = [None, *sorted(reports, key=lambda report: (report.where.order, report.report))]
    held = [one.where for one in reports if begun_s < (one.where.above_s or 0.0) < ended_s]
    if not held and before and last and last.calls and last.calls == before.calls:
        held = [last.where]
    return held[-1] if held else None


def by_standing(facts: list[Fact]) -> HangPosition | None:
    """Return that all ranks hang in a call to which all came: two reports, well apart, in which all launched as much.

    A job may launch nothing while it reads or saves: only where its GPUs are all busy, or each stack that is here waits
    for its device or for others.
    """
    reports = sorted(of(facts, LaunchedAlike), key=lambda one: (one.where.above_s or 0.0, one.where.order, one.report))
    if len(reports) < 2 or of(facts, LaunchCounts):
        return None
    first, last = next(one for one in reports if one.calls == reports[-1].calls), reports[-1]
    between_s = (last.where.above_s or 0.0) - (first.where.above_s or last.where.above_s or 0.0)
    if not any(calls for _, calls in last.calls) or between_s < _STANDS_S:
        return None
    waits = [stand_of(stack).kind in WAITS for stack in of(facts, StackTrace)]
    busy = of(facts, BusyGpus)
    if not (all(waits) if waits else bool(busy)) or not all(one.busy == one.gpus for one in busy):
        return None
    ranks = world_of(facts)
    told = "the device" if waits else "the GPUs, which are all busy"
    return HangPosition(
        kind="stuck",
        waiting=tuple(range(ranks or 0)),
        why=f"by ncclras all ranks have launched alike, and nothing more in {between_s / 60:.0f} minutes, while they"
        f" wait for {told}: all are in a call and none gets out of it",
        evidence=(first.where, last.where, *(one.where for one in busy)),
    )


def _moved(before: Sequence[LaunchCounts], last: Sequence[LaunchCounts]) -> bool:
    """Whether a difference of the last report was not there, or another one, in the report before."""
    earlier = {_key(one): _numbers(one) for one in before}
    later = {_key(one): _numbers(one) for one in last}
    return any(earlier.get(key) != numbers for key, numbers in later.items())


def _numbers(counts: LaunchCounts) -> set[tuple[int, int]]:
    return {(one.calls, one.ranks) for one in counts.counts}


def _places(facts: list[Fact]) -> Places:
    """Return the job's rank of each process and node, by lines that join all ranks of the job to processes.

    Where each process has a number of its own, whatever its host is called; else by the host, too, if the report calls
    it as those lines do, or by an address of it that is told.
    """
    world = world_of(facts)
    found: dict[tuple[int, str], set[int]] = defaultdict(set)
    for identity in of(facts, RankIdentity):
        if identity.pid is not None and identity.ranks in {None, world}:
            found[identity.pid, short_host(identity.host)].add(identity.rank)
    addresses: dict[str, list[str]] = defaultdict(list)
    for address, host in names_of_addresses(facts).items():
        addresses[host].append(address)
    bare: dict[tuple[int, str], set[int]] = defaultdict(set)
    for (pid, _), ranks in found.items():
        bare[pid, ""] |= ranks
    for places in (bare, found):
        whole = world is not None and {rank for ranks in places.values() for rank in ranks} >= set(range(world))
        if whole and len(places) == world:
            own = {place: min(ranks) for place, ranks in places.items()}
            return own | {(pid, at): rank for (pid, host), rank in own.items() for at in addresses.get(host, ())}
    return {}


def _place(places: Places, pid: int | None, node: str) -> int | None:
    """Return the job's rank of a process on a node, None where it is not known."""
    return places.get((pid or -1, ""), places.get((pid or -1, short_host(node))))


def _differs(group: Sequence[LaunchCounts], identities: Places) -> _Differs:
    """Return who differs in one communicator: the few behind in one operation and ahead in another call otherwise."""
    ahead: set[int] = set()
    behind: set[int] = set()
    certain, lowest = True, None
    told = []
    for counts in group:
        usual = max(counts.counts, key=lambda one: one.ranks)
        if 2 * usual.ranks <= counts.size:
            certain = False
        fewest = min(one.calls for one in counts.counts)
        for one in counts.counts:
            if one.calls == usual.calls:
                continue
            ranks = _ranks(counts, one.named, identities)
            if ranks is None or len(one.named) != one.ranks:
                certain = False
                continue
            told.append(f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))} {one.calls}")
            if one.calls > usual.calls:
                ahead |= ranks
            elif one.calls == fewest:  # a rank in between waits for the ranks that have launched the fewest
                behind, lowest = behind | ranks, counts
        told.append(f"{usual.ranks} ranks {usual.calls} of {counts.operation or 'all calls'}")
    members = set(range(group[0].size)) if group[0].is_world else _named(group, identities)
    kind = "desync" if ahead & behind else "absent"
    if not behind or (ahead and not ahead & behind):
        certain = False  # most are behind a few
    return _Differs(
        first=lowest or group[0],
        behind=frozenset(behind) if certain else None,
        others=frozenset(members - behind) if certain else _further(group, identities),
        seq=min(one.calls for one in lowest.counts) + 1 if lowest and lowest.operation else None,
        kind=kind,
        why=f"by ncclras the ranks of {group[0].communicator} have launched: {', '.join(told)}",
    )


def _ranks(counts: LaunchCounts, named: Iterable[tuple[int, int | None, str]], identities: Places) -> set[int] | None:
    """Return the job's ranks of members, None where one is not known."""
    found = {place if counts.of_job else _place(identities, pid, node) for place, pid, node in named}
    return None if None in found else {rank for rank in found if rank is not None}


def _further(group: Sequence[LaunchCounts], identities: Places) -> frozenset[int] | None:
    """Return the ranks that have launched more than the fewest of some operation; None where not all are named."""
    found: set[int] = set()
    for counts in group:
        fewest = min(one.calls for one in counts.counts)
        for one in counts.counts:
            ranks = _ranks(counts, one.named, identities)
            if ranks is None or len(one.named) != one.ranks:
                return None
            found |= ranks if one.calls > fewest else set()
    return frozenset(found)


def _named(group: Sequence[LaunchCounts], identities: Places) -> set[int]:
    """Return the job's ranks of all members that a report names."""
    return {rank for counts in group for one in counts.counts for rank in _ranks(counts, one.named, identities) or ()}


def _nodes(last: Sequence[LaunchCounts], identities: Places) -> dict[int, str]:
    """Return the nodes of the job's ranks that a report names."""
    members = ((counts, member) for counts in last for one in counts.counts for member in one.named)
    return {rank: member[2] for counts, member in members for rank in _ranks(counts, [member], identities) or ()}


def _may_hold(blamed: set[int], others: Iterable[tuple[int, int]], nodes: dict[int, str]) -> bool:
    """Whether ranks may wait for each other in a communicator of theirs alone, whose ranks have launched alike.

    In one that has other ranks these would not have gone on either. `others` are such by their nodes and ranks.
    """
    spread = len({nodes.get(rank) for rank in blamed})
    return any(1 < ranks <= len(blamed) and over <= spread for over, ranks in others)


def _position(found: Sequence[_Differs], nodes: dict[int, str], *, moves: bool, is_last: bool) -> HangPosition:
    known = [one for one in found if one.behind is not None]
    first = next((one for one in known if one.kind == "desync"), known[0] if known else found[0])
    waiting = {rank for one in found for rank in one.others or ()}
    roots = {rank for one in known if one.behind is not None for rank in one.behind}
    blamed = set(first.behind or ())
    if first.kind != "desync":
        blamed = roots - waiting
        first = next((one for one in known if blamed & (one.behind or set())), first)
    certain = all(one.others is not None for one in found) and bool(blamed) and not moves
    if len(blamed) > 1 and any(_may_hold(blamed, one.first.others, nodes) for one in found):
        certain = False
    missing = () if certain else ("which ranks are behind: `ncclras -v`, or `ncclras -f json`, which names every rank",)
    return HangPosition(
        kind=first.kind if certain else "absent",
        blamed=tuple(sorted(blamed)) if certain else (),
        waiting=tuple(sorted(waiting - blamed)) if certain else (),
        group=GroupName(first.first.communicator),
        operation=first.first.operation,
        seq=first.seq if certain else None,
        why=f"{first.why}{'; the counts moved since the report before' if moves else ''}",
        certain=certain,
        evidence=tuple(one.first.where for one in found),
        missing=(*missing, *((AGAIN,) if is_last or moves else ())),
    )
