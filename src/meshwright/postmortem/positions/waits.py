"""The graph of waits over all groups of ranks: its end is the rank that waits for nobody, or a circle."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ...units import ranks_in_words, shortened
from ..nouns.calls import Call, Group, RankGroup
from ..nouns.names import MEETINGS, ROOTED
from ..nouns.position import MOST_SILENT, HangPosition, Wait, minority
from ..nouns.where import Where
from .agreement import disagreement, made_otherwise, siblings_of, unequal_transfer
from .departures import left_out_of_group, out_of_round

_FAR_MORE = 2  # times as many


def judged(groups: Iterable[Group], excused: frozenset[int] = frozenset()) -> HangPosition | None:
    """Return what the groups together hang in, None where no call is open.

    First whatever the ranks do not call alike; then who is waited for and waits for nobody; a circle where everybody
    who is waited for waits as well; last, a call that all have come to and none leaves.
    """
    groups = list(groups)
    for group in groups:
        if found := disagreement(group, siblings_of(group, groups)) or unequal_transfer(group):
            return found
    for group in groups:
        if found := one_way(group) or overtaken(group) or in_another_call(group, excused):
            return found
    waits = [wait for group in groups for wait in waits_of(group, excused)]
    if not waits:
        return None
    waits += _queued(waits)
    if not any(wait.on for wait in waits):
        for group in groups:
            if found := not_begun(group, waits):
                return found
    return _root(groups, waits, excused)


def waits_of(group: Group, excused: frozenset[int]) -> list[Wait]:
    """Return who waits for whom in a group: in its oldest open call, for the members that have not come to it.

    `excused` are ranks of which a record exists and cannot be read: they are waited for only if it is known.
    """
    found = []
    opened = {rank: call for rank, part in group.ranks.items() if (call := _first_open(part.open()))}
    behind: dict[tuple[int, str], frozenset[int]] = {}
    for rank, call in opened.items():
        key = (call.seq, call.operation)
        if key not in behind:
            behind[key] = frozenset(
                member
                for member in (() if _all_came(group, call) else group.members)
                if member not in excused and not _is_in(group, member, call) and not _left(group, member, call)
            )
        found.append(Wait(rank=rank, on=behind[key] - {rank}, call=call, group=group.name))
    for rank, part in group.ranks.items():
        found += [
            Wait(rank=rank, on=_partner(group, call), call=call, group=group.name)
            for call in part.transfers
            if not call.ended and call.peer not in excused
        ][:1]
    return found


def _first_open(calls: list[Call]) -> Call | None:
    return calls[0] if calls else None


def _is_in(group: Group, member: int, call: Call) -> bool:
    part = group.ranks.get(member)
    if part is None:
        return False
    return part.came_to(call.seq) is not False


def _all_came(group: Group, call: Call) -> bool:
    """Whether a member has ended a call that none can end before all are in, those too of which there is no record."""
    return call.operation in MEETINGS and any(
        _ended(part, call.seq) for rank, part in group.ranks.items() if rank != call.rank
    )


def _ended(part: RankGroup, seq: int) -> bool | None:
    """Return whether a rank has ended a call, by its own record or by its count; None where neither tells.

    A watchdog counts as completed what it has given up: the count is taken of who stands in a later call.
    """
    if (own := part.calls.get(seq)) is not None:
        return own.ended
    later = max(part.calls, default=seq) > seq
    return True if later and part.completed is not None and part.completed >= seq else None


def _left(group: Group, member: int, call: Call) -> bool:
    """Whether a member has gone out of a call that its root may leave before the others are in."""
    part = group.ranks.get(member)
    own = part.calls.get(call.seq) if part else None
    return call.operation in ROOTED and own is not None and own.ended


def _partner(group: Group, call: Call) -> frozenset[int]:
    """Return the peer of a send or receive unless it is at the other end already: there, not queued behind another one.

    Sends and receives of two ranks run on one stream, in their order; what has begun holds what is queued behind it.
    """
    if call.peer is None:
        return frozenset()
    part = group.ranks.get(call.peer)
    meets = "recv" if call.operation == "send" else "send"
    opened = [other for other in (part.transfers if part else ()) if not other.ended]
    begun = [other for other in opened if other.started]
    at_it = any(other.operation == meets for other in begun or opened if other.peer == call.rank)
    return frozenset() if at_it else frozenset({call.peer})


def one_way(group: Group) -> HangPosition | None:
    """Return that all members of a group stand in a send, or all in a receive, so that none of them meets; or None."""
    opened = {rank: call for rank, part in group.ranks.items() if (call := _first_open(part.open()))}
    operations = {call.operation for call in opened.values()}
    if len(opened) < 2 or set(opened) != set(group.members) or operations not in ({"send"}, {"recv"}):
        return None
    first = min(opened.values(), key=lambda call: call.seq)
    return HangPosition(
        kind="circle",
        waiting=tuple(sorted(opened)),
        group=group.name,
        operation=first.operation,
        seq=first.seq,
        why=f"all {len(opened)} ranks stand in {first}, and none in the call that would meet it",
        evidence=tuple(call.where for call in opened.values()),
    )


def overtaken(group: Group) -> HangPosition | None:
    """Return the call that a later one of the same group has overtaken on the device, on every rank alike; or None."""
    for part in group.ranks.values():
        opened = part.open()
        if not opened or opened[0].started is not False:
            return None
        later = [call for call in opened[1:] if call.started] or [
            call for seq, call in part.calls.items() if seq > opened[0].seq and call.ended
        ]
        if not later:
            return None
    if not group.ranks:
        return None
    first = next(iter(group.ranks.values())).open()[0]
    return HangPosition(
        kind="circle",
        waiting=tuple(sorted(group.ranks)),
        group=group.name,
        operation=first.operation,
        seq=first.seq,
        why=f"on every rank a later call has begun before {first}: streams of one program wait for each other",
        evidence=tuple(part.open()[0].where for part in group.ranks.values()),
    )


def in_another_call(group: Group, excused: frozenset[int]) -> HangPosition | None:
    """Return who stands in another call than most, where all have come to the oldest of the open calls; or None."""
    opened = {rank: call for rank, part in group.ranks.items() if (call := _first_open(part.open()))}
    if len({call.seq for call in opened.values()}) < 2:
        return None
    oldest = min(opened.values(), key=lambda call: call.seq)
    missing = [member for member in group.members if member not in excused and not _is_in(group, member, oldest)]
    behind = [rank for rank, call in opened.items() if call.seq == oldest.seq]
    if missing or (oldest.operation in ROOTED and len(opened) - len(behind) == 1):
        return None
    blamed, certain = minority({rank: call.seq for rank, call in opened.items()})
    left = [group.ranks[rank].calls.get(oldest.seq) for rank in opened if rank not in behind]
    if not certain and oldest.operation not in ROOTED and all(call is not None and call.ended for call in left):
        blamed, certain = tuple(sorted(behind)), True  # the others have ended the call in which these still are
    usual = next(call for rank, call in opened.items() if rank not in blamed)
    alike = {call.operation for call in opened.values() if call.operation}
    told = "; ".join(f"rank {rank} stands in {opened[rank]}" for rank in blamed or opened)
    return HangPosition(
        kind="absent" if len(alike) <= 1 else "desync",
        blamed=blamed,
        waiting=tuple(rank for rank in opened if rank not in blamed),
        group=group.name,
        operation=usual.operation,
        seq=usual.seq,
        why=f"{told}, the others in {usual}" if blamed else told,
        certain=certain,
        evidence=tuple(call.where for call in opened.values()),
    )


def not_begun(group: Group, waits: Sequence[Wait]) -> HangPosition | None:
    """Return the few whose device has not begun a call that those of the others have: something before it holds them.

    A rank of which another call has begun is left out: that one may be what holds it.
    """
    opened = {rank: call for rank, part in group.ranks.items() if (call := _first_open(part.open()))}
    if len({call.seq for call in opened.values()}) != 1 or any(call.started is None for call in opened.values()):
        return None
    busy = {wait.rank for wait in waits if wait.group != group.name and wait.call.started}
    late = tuple(sorted(rank for rank, call in opened.items() if not call.started))
    if not late or 2 * len(late) >= len(opened) or busy & set(late):
        return None
    first = opened[late[0]]
    return HangPosition(
        kind="absent",
        blamed=late,
        waiting=tuple(rank for rank in sorted(opened) if rank not in late),
        group=group.name,
        operation=first.operation,
        seq=first.seq,
        why=f"rank {late[0]} has enqueued {first} and its device has not begun it, those of the others have:"
        " a kernel before it does not end",
        evidence=tuple(call.where for call in opened.values()),
    )


def _queued(waits: Sequence[Wait]) -> list[Wait]:
    """Return the waits of calls that are enqueued behind another one: who is only queued has not come yet.

    Two groups of one device run on two streams. Where a rank's call of one group has started and that of the other
    only stands in the queue, the ranks in the other call wait for this rank too.
    """
    begun = {(wait.rank, str(wait.group)) for wait in waits if wait.call.started}
    queued = {
        (wait.rank, str(wait.group), wait.call.seq)
        for wait in waits
        if wait.call.started is False and any(rank == wait.rank and name != str(wait.group) for rank, name in begun)
    }
    return [
        Wait(rank=wait.rank, on=frozenset({rank}), call=wait.call, group=wait.group)
        for wait in waits
        for rank, name, seq in queued
        if wait.call.started and name == str(wait.group) and seq == wait.call.seq and rank != wait.rank
    ]


def _is_left_behind(groups: Sequence[Group], wait: Wait) -> bool:
    """Whether all others whose record is there have ended the call that a rank stands in."""
    parts = next((group.ranks for group in groups if group.name == wait.group), {})
    others = [
        ended
        for rank, part in parts.items()
        if rank != wait.rank and (ended := _ended(part, wait.call.seq)) is not None
    ]
    return wait.call.peer is None and wait.call.operation not in ROOTED and bool(others) and all(others)


def _root(groups: Sequence[Group], waits: Sequence[Wait], excused: frozenset[int]) -> HangPosition:
    waiting = {wait.rank for wait in waits if wait.on}
    wanted = {rank for wait in waits for rank in wait.on}
    # in a call that everybody has come to, and that not all the others have left already
    held = {wait.rank for wait in waits if not wait.on and not _is_left_behind(groups, wait)}
    roots = wanted - waiting - held
    recorded = {rank for group in groups for rank in group.ranks}
    if not held and (apart := _apart(groups, waits, roots, recorded)):
        return apart
    if roots and not (roots & recorded) and (held_fast := _held_without(groups, waits)):
        found = _stuck(held_fast, excused)
        lacks = (*found.missing, *_records_of(roots))
        return msgspec.structs.replace(found, missing=lacks)
    if roots:
        for_roots = [wait for wait in waits if wait.on & roots]
        position = _absent(groups, for_roots, roots)
        doubt = _doubt(groups, for_roots, recorded - {wait.rank for wait in waits}) if position.silent else ""
        return _doubted(position, doubt) if doubt else position
    stuck = [wait for wait in waits if not wait.on and wait.rank not in waiting]
    if stuck:
        return _with_root_gone(_stuck(stuck, excused), groups)
    circle = [wait for wait in waits if wait.on]
    if not circle:
        return _stuck(list(waits), excused)
    first = min(circle, key=lambda wait: wait.call.created_ns)
    told = dict.fromkeys(
        f"rank {wait.rank} waits for {ranks_in_words(tuple(wait.on))} in {wait.call} of {wait.group}".removesuffix(
            " of "
        )
        for wait in _around(circle)
    )
    return HangPosition(
        kind="circle",
        waiting=tuple(sorted({wait.rank for wait in circle})),
        group=first.group,
        operation=first.call.operation,
        seq=first.call.seq,
        why="everybody who is waited for waits as well: " + "; ".join(list(told)[:8]),
        evidence=tuple(wait.call.where for wait in circle),
    )


def _apart(groups: Sequence[Group], waits: Sequence[Wait], roots: set[int], recorded: set[int]) -> HangPosition | None:
    """Return who stands apart where nobody who does not wait keeps the others waiting, or a wrong call leads to one.

    Of ranks without a record it is not known whether they wait.
    """
    lured = {wait.rank for wait in waits if wait.on & roots}
    left = left_out_of_group(groups, waits) if not roots & recorded else None
    if left or (roots and (len(lured) > 1 or not roots <= recorded)):
        return left
    found = out_of_round(groups, waits)
    return found if found and (not roots or set(found.blamed) == lured) else None


def _with_root_gone(position: HangPosition, groups: Sequence[Group]) -> HangPosition:
    """Return the position of who does not get out of a call; of a rank that has left it, as a root may, that it has."""
    group = next(group for group in groups if group.name == position.group)
    opened = {rank: call for rank, part in group.ranks.items() if (call := _first_open(part.open()))}
    gone = {rank: call for rank, call in opened.items() if call.seq > (position.seq or 0)}
    if position.operation not in ROOTED or position.kind != "stuck" or not gone:
        return position
    told = "; ".join(f"rank {rank} has left it, as its root may, and waits in {call}" for rank, call in gone.items())
    why = f"ranks {shortened(position.waiting)} are in {position.operation} #{position.seq} and none gets out; {told}"
    lines = (*position.evidence, *(call.where for call in gone.values()))
    return msgspec.structs.replace(position, why=why, evidence=lines)


def _around(waits: Sequence[Wait]) -> list[Wait]:
    """Return waits in which everybody waits for another: a ring in its order from its lowest rank, then the others."""
    by_rank = {wait.rank: wait for wait in reversed(waits)}
    ring = next((way for start in sorted(by_rank) if (way := _way_back(start, by_rank))), [])
    return [*(by_rank[rank] for rank in ring), *(wait for wait in waits if wait.rank not in ring)]


def _way_back(start: int, by_rank: Mapping[int, Wait]) -> list[int]:
    """Return the ranks of a shortest way back to one rank, from each to one that it waits for; [] for none."""
    before: dict[int, int | None] = {start: None}
    met = [start]
    for at in met:  # grows while it is walked
        if start in by_rank[at].on:
            way = [at]
            while (rank := before[way[-1]]) is not None:
                way.append(rank)
            return way[::-1]
        for rank in sorted(by_rank[at].on & by_rank.keys() - before.keys()):
            before[rank] = at
            met.append(rank)
    return []


def _held_without(groups: Sequence[Group], waits: Sequence[Wait]) -> list[Wait]:
    """Return the waits in calls to which every rank has come, all with a record: no rank without one holds those.

    A call that waits in the queue behind such a one says nothing; one that runs beside it may be what holds it.
    """
    full = {group.name for group in groups if group.whole and set(group.members) <= group.ranks.keys()}
    busy = {wait.rank for wait in waits if wait.on and wait.call.started is not False}
    found = [wait for wait in waits if not wait.on and wait.group in full and wait.call.started is not False]
    return [wait for wait in found if wait.rank not in busy and not _is_left_behind(groups, wait)]


def _doubt(groups: Sequence[Group], waits: Sequence[Wait], idle: set[int]) -> str:
    """Return why ranks without a record may be innocent: another rank stands apart, for which they may wait; or ""."""
    if len(idle) == 1:
        return f"rank {min(idle)} is in no call: it may be the one for which they wait"
    by_name = {group.name: group for group in groups}
    for wait in waits:
        group = by_name[wait.group]
        if wait.call.peer is None and made_otherwise(wait.call, siblings_of(group, groups)):
            return f"rank {wait.rank} makes another call than the other groups of {group.name.purpose}"
    return ""


def _doubted(position: HangPosition, doubt: str) -> HangPosition:
    """Return a position that blames ranks without a record as unknown."""
    why = f"{position.why}; {doubt}"
    return msgspec.structs.replace(position, blamed=(), certain=False, silent=False, why=why)


def _records_of(ranks: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"the record of rank {rank}" for rank in sorted(ranks))


def _stuck(waits: Sequence[Wait], excused: frozenset[int]) -> HangPosition:
    first = min(waits, key=lambda wait: wait.call.created_ns)
    same = [wait for wait in waits if wait.group == first.group]
    first = next((wait for wait in same if wait.call.operation and wait.call.seq == first.call.seq), first)
    missing = tuple(f"the flight record of rank {rank} (it could not be read)" for rank in sorted(excused))
    why = f"all have come to {first.call} and none gets out of it"
    if excused:
        why = f"the ranks whose records could be read wait in {first.call}"
    return HangPosition(
        kind="absent" if excused else "stuck",
        waiting=tuple(sorted({wait.rank for wait in same})),
        group=first.group,
        operation=first.call.operation,
        seq=first.call.seq,
        why=why,
        certain=not excused,
        evidence=tuple(wait.call.where for wait in same),
        missing=missing,
    )


def _absent(groups: Sequence[Group], waits: Sequence[Wait], roots: set[int]) -> HangPosition:
    many_in = Counter(wait.group for wait in waits)  # numbers of different groups say nothing of what came first
    first = min(waits, key=lambda wait: (*_without(wait, roots), -many_in[wait.group], wait.call.seq))
    alike = [wait for wait in waits if (wait.group, wait.call.seq) == (first.group, first.call.seq)]
    first = next((wait for wait in alike if wait.call.operation), first)
    parts = {rank: part for group in groups if group.name == first.group for rank, part in group.ranks.items()}
    known = {rank for group in groups for rank in group.ranks}
    silent = roots - known
    behind = roots & known  # who left no record may have come as well
    told = []
    for rank in sorted(behind or roots):
        part = parts.get(rank)
        last = max(part.calls, default=part.enqueued) if part else None
        came = f"came to #{last}" if last else "made no call of this group"
        if part and part.transfers and first.call.peer is not None:
            came = f"last came to {part.transfers[-1]}"
        if part and (open_ := _first_open(part.open())) and open_.seq < first.call.seq:
            came = f"is still in {open_}"
        told.append(f"rank {rank} {'left no record' if rank in silent else came}")
    many = not behind and len(silent) > 1 and (len(silent) > MOST_SILENT or 2 * len(silent) > len(known))
    many = many or _are_idle(groups, behind, len({wait.rank for wait in waits}))
    return HangPosition(
        kind="absent",
        blamed=() if many else tuple(sorted(behind or roots)),
        waiting=tuple(sorted({wait.rank for wait in waits if wait.group == first.group})),
        group=first.group,
        operation=first.call.operation,
        seq=first.call.seq,
        why=f"{'; '.join(told[:8])}; the others wait in {first.call}"
        + (f" ({first.call.frame})" if first.call.frame else ""),
        certain=not many,
        silent=bool(silent) and silent == roots,
        evidence=(
            *(wait.call.where for wait in waits if wait.group == first.group),
            *(w for rank in sorted(roots) if (part := parts.get(rank)) and (w := _last_word(part.where, part.calls))),
        ),
        missing=_records_of(silent),
    )


def _without(wait: Wait, roots: set[int]) -> tuple[int, bool]:
    """Return when a wait began, and whether others than the roots are missing from it, too: these may come later."""
    return wait.call.created_ns, bool(wait.on - roots)


def _are_idle(groups: Sequence[Group], behind: set[int], waiting: int) -> bool:
    """Whether far more ranks are missing than wait, and the missing stand in no call: the few may be ahead."""
    opened = {rank for group in groups for rank, part in group.ranks.items() if part.open()}
    return len(behind) > max(1, _FAR_MORE * waiting) and not behind & opened


def in_records(position: HangPosition | None, groups: Sequence[Group]) -> HangPosition | None:
    """Return a position that logs tell with its call, where the records have one that all but the blamed came to.

    A time-out closes the call in gloo's record; that the blamed never came to it is written still.
    """
    if position is None or position.seq is not None or position.kind != "absent" or not position.blamed:
        return position
    for group in sorted(groups, key=lambda group: -len(group.ranks)):
        lasts = {rank: max(part.calls) for rank, part in group.ranks.items() if part.calls}
        waiting = {lasts.get(rank) for rank in position.waiting}
        if len(waiting) != 1 or (seq := next(iter(waiting))) is None:
            continue
        calls = group.of(seq)
        if all(lasts.get(rank, seq) < seq for rank in position.blamed) and set(calls) >= set(position.waiting):
            call = calls[position.waiting[0]]
            frame = f" ({call.frame})" if call.frame else ""
            return msgspec.structs.replace(
                position,
                group=group.name,
                operation=call.operation,
                seq=seq,
                why=f"{position.why}, in {call}{frame}",
                evidence=(*position.evidence, *(calls[rank].where for rank in position.waiting)),
            )
    return position


def _last_word(where: Where | None, calls: Mapping[int, Call]) -> Where | None:
    return calls[max(calls)].where if calls else where
