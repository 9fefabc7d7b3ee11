"""Departures from the program in a circle of waits: from what the others did before a call, or from own rounds.

Everybody in a circle waits, so that who waits for whom blames nobody. Ranks of one program make their calls in one
order, though, and each makes them again and again: who left a call out, or makes another one, stands apart in these.
"""

from collections.abc import Mapping, Sequence

from ...units import ranks_in_words, shortened
from ..nouns.calls import Call, Group
from ..nouns.position import HangPosition, Wait
from ..nouns.where import GroupName
from .agreement import siblings_of

_FEW = 2  # others that show what is usual
_ROUNDS = 3  # that show a period
_MOST = 600  # of the newest calls of a rank, in which rounds are looked for

Made = tuple[str, str, int | None]  # a call as one of a round: its group, what it is, its partner


def left_out_of_group(groups: Sequence[Group], waits: Sequence[Wait]) -> HangPosition | None:
    """Return who came to a call without a call of its smaller group, which all others had made in theirs; or None.

    The groups are those of one purpose (expert, tensor), replicas of one program. Others of the same group wait for it
    in the call that it left out.
    """
    inside: dict[GroupName, list[Wait]] = {}
    for wait in waits:
        if wait.call.peer is None:
            inside.setdefault(wait.group, []).append(wait)
    for group in groups:
        held = [wait for wait in inside.get(group.name, ()) if wait.on]
        if not held:
            continue
        first = min(held, key=lambda wait: wait.call.seq)
        others = [one for one in groups if any(wait.rank in first.on for wait in inside.get(one.name, ()))]
        siblings = siblings_of(group, groups) if others else []
        families = {rank: one for one in (group, *siblings) for rank in one.members}
        for other in others if siblings else ():
            if other is group or other in siblings:
                continue
            if found := _without(group, first, other, families, groups, inside):
                return found
    return None


def _without(
    group: Group,
    held: Wait,
    other: Group,
    families: Mapping[int, Group],
    groups: Sequence[Group],
    inside: Mapping[GroupName, Sequence[Wait]],
) -> HangPosition | None:
    """Return who stands in a call of another group before the one in which its own group waits for it; or None."""
    ahead = {wait.rank: wait.call for wait in inside[other.name] if wait.rank in held.on}
    meeting = min(ahead.values(), key=lambda call: call.seq)
    made = {
        rank: _made_before(families[rank], rank, held.call.seq, call)
        for one in (other, *siblings_of(other, groups))
        for rank, call in one.of(meeting.seq).items()
        if rank in families and call.created_ns
    }
    lacking = tuple(sorted(rank for rank, before in made.items() if not before))
    usual = [rank for rank, before in made.items() if before]
    if not lacking or not set(lacking) <= held.on & group.ranks.keys() or len(usual) < max(_FEW, len(lacking) + 1):
        return None
    if any(group.ranks[rank].came_to(held.call.seq) is not False for rank in lacking):
        return None
    lines = [wait.call.where for wait in inside[group.name] if wait.call.seq == held.call.seq]
    left = ranks_in_words(lacking)
    why = (
        f"{left} left {held.call} of {group.name} out and came to {meeting} of {other.name} without it; ranks"
        f" {shortened(tuple(sorted(usual)))} came there after theirs"
    )
    return HangPosition(
        kind="absent",
        blamed=lacking,
        waiting=tuple(sorted({wait.rank for own in inside.values() for wait in own if wait.on} - set(lacking))),
        group=group.name,
        operation=held.call.operation,
        seq=held.call.seq,
        why=why,
        evidence=(*lines, *(ahead[rank].where for rank in lacking if rank in ahead)),
    )


def _made_before(group: Group, rank: int, seq: int, call: Call) -> bool:
    """Whether a rank made a call of its group before another one, by its own record."""
    part = group.ranks.get(rank)
    own = part.calls.get(seq) if part else None
    return own is not None and 0 < own.created_ns < call.created_ns


def out_of_round(groups: Sequence[Group], waits: Sequence[Wait]) -> HangPosition | None:
    """Return the one rank whose call is not what follows in its rounds, where those of all who wait are; or None.

    A round is what a rank called again and again, three times at least, in one order. Who has gone on to another part
    of the program calls something else as well: all others must wait for that one in the end.
    """
    first: dict[int, Wait] = {}
    for wait in waits:
        if wait.on and (wait.rank not in first or wait.call.created_ns < first[wait.rank].call.created_ns):
            first[wait.rank] = wait
    if len(first) <= _FEW:
        return None
    expected = {rank: _next_of(_made_so_far(groups, wait)) for rank, wait in first.items()}
    astray = [rank for rank, made in expected.items() if made != _as_made(first[rank].group, first[rank].call)]
    if len(astray) != 1 or (usual := expected[astray[0]]) is None or not _all_hang_on(astray[0], waits):
        return None
    wait = first[astray[0]]
    others = tuple(sorted(first.keys() - set(astray)))
    why = (
        f"rank {wait.rank} stands in {_told(wait.group, wait.call)}, where in its rounds before it called"
        f" {_named(usual, wait)}; ranks {shortened(others)} stand in what follows in theirs, and wait for each other"
    )
    return HangPosition(
        kind="desync",
        blamed=(wait.rank,),
        waiting=others,
        group=wait.group,
        operation=usual[1],
        seq=wait.call.seq,
        why=why,
        evidence=(wait.call.where, *(first[rank].call.where for rank in others)),
    )


def _all_hang_on(rank: int, waits: Sequence[Wait]) -> bool:
    """Whether all who wait could go on, one after the other, if one of them did."""
    on: dict[int, set[int]] = {}
    for wait in waits:
        on.setdefault(wait.rank, set()).update(wait.on)
    freed = {rank}
    while more := {other for other, others in on.items() if other not in freed and others & on.keys() <= freed}:
        freed |= more
    return on.keys() <= freed


def _as_made(name: GroupName, call: Call) -> Made:
    return str(name), call.operation, call.peer


def _told(name: GroupName, call: Call) -> str:
    return f"{_with_peer(call.operation, call.peer)} #{call.seq} of {name}".removesuffix(" of ")


def _named(made: Made, wait: Wait) -> str:
    group, operation, peer = made
    return _with_peer(operation, peer) + (f" of {group}" if group != str(wait.group) else "")


def _with_peer(operation: str, peer: int | None) -> str:
    way = "to" if operation == "send" else "from"
    return operation if peer is None else f"{operation} {way} {peer}"


def _made_so_far(groups: Sequence[Group], wait: Wait) -> list[Made]:
    """Return the newest of what a rank called before the call in which it waits, in its order; [] without clocks."""
    parts = [(group.name, part) for group in groups if (part := group.ranks.get(wait.rank))]
    calls = [(call.created_ns, name, call) for name, part in parts for call in (*part.calls.values(), *part.transfers)]
    times_ns = [time_ns for time_ns, _, _ in calls]
    if not all(times_ns) or len(set(times_ns)) < len(times_ns):
        return []
    calls.sort(key=lambda one: one[0])
    return [_as_made(name, call) for time_ns, name, call in calls if time_ns < wait.call.created_ns][-_MOST:]


def _next_of(made: Sequence[Made]) -> Made | None:
    """Return what follows in rounds that most of the calls are of, None where they are no rounds."""
    for period in range(1, len(made) // _ROUNDS + 1):
        alike = period
        while alike < len(made) and made[-1 - alike] == made[-1 - alike + period]:
            alike += 1
        if alike >= _ROUNDS * period and 2 * alike > len(made):
            return made[-period]
    return None
