"""In which call ranks hang, by the stacks of several: who stands in it, who elsewhere, and who has just left it."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from ...units import shortened
from ..nouns.facts import StackTrace
from ..nouns.position import HangPosition, minority
from .stands import DEVICE_WAIT, WAITS, Stand, own_frames, stand_of
from .transfers import (
    TRANSFERS,
    StackTransfer,
    all_in_transfers,
    helper_that_waits,
    in_circle,
    transfer_of,
    way_of,
)

_OTHER_WAY = "which of them took another way: the calls that each made before (flight records of all ranks)"
_TWICE = "whether they stand still: `py-spy dump` of every process, twice, while it hangs"
_LEAST_TOGETHER = 3  # processes in one line
_FEW_LINES = 4  # behind a collective, in which its result is read
_OF_SEVERAL = re.compile(  # a part of a function's name, after what it does with the other ranks
    r"(?:^|_)(?:ag|rs|ar|a2a|all_?(?:to_?all|2all|reduce|gather)|reduce_?scatter|broadcast|bcast)(?:_|$)"
)
_BLOCKING = {"barrier", "monitored_barrier"}  # hold the host, so that who stands elsewhere is not in them


def by_stacks(stacks: Sequence[StackTrace], *, world: int = 0) -> HangPosition | None:
    """Return the outlier among the stacks: who is not where the others wait; None where that cannot be told.

    `world` is the number of ranks of the job, 0 where it is not known. Nobody is named where a stack tells nothing.
    """
    stands = [stand_of(stack) for stack in stacks]
    untold = [stand.name for stand in stands if stand.kind == "unknown"]
    told = [stack for stack, stand in zip(stacks, stands, strict=True) if stand.kind != "unknown"]
    unclear = {stand.rank for stand in stands if stand.kind == "unknown"}
    found = _by_told(told, world=world, unclear=unclear)
    if found is not None and any(stack.is_momentary for stack in stacks):
        why = f"as a person interrupted them, {found.why}; whether they stood so for long is not told"
        found = msgspec.structs.replace(found, blamed=(), certain=False, why=why, missing=(_TWICE,))
    if found is None or not untold:
        return found
    missing = tuple(f"the frames of Python of {name} (py-spy)" for name in untold)
    why = f"{found.why}; where {', '.join(untold[:8])} stands is not told"
    return msgspec.structs.replace(found, blamed=(), certain=False, why=why, missing=missing)


def _by_told(stacks: Sequence[StackTrace], *, world: int, unclear: set[int | None]) -> HangPosition | None:
    stands = list(_standing(stacks).values())
    if len(stands) < 2:
        return None
    stands.sort(key=lambda stand: (stand.rank is None, stand.rank or 0, stand.name))
    last = {stand_of(stack).name: stack for stack in stacks}
    transfers = _transfers(last, stands)
    if found := in_circle(transfers, with_neighbours=False):
        return found
    if transfers and len(transfers) == len(stands):
        return all_in_transfers(transfers)
    if len(stands) >= world and (found := _none_meets(last, stands, are_all=len(stands) == world)):
        return found
    waits = [stand for stand in stands if stand.kind in WAITS]
    waits = waits or [stand for stand in stands if stand.kind == "leaving"] or _together(last, stands)
    others = [stand for stand in stands if stand not in waits]
    if waits and (past := _just_past(stacks, others)) and len(past) < len(others):
        others = [stand for stand in others if stand.name not in past]
    calls = [stand.call for stand in waits if stand.kind == "collective"]
    operation = max(calls, key=calls.count, default="")
    if others and waits:
        return _apart(others, waits, stands, operation, are_all=0 < world <= len(stands))
    early = [stand for stand in waits if stand.kind == "device"]
    held = [stand for stand in waits if stand not in early]
    if early and len(early) < len(held) and (call := _that_holds_the_host(held, last)):
        return _before(early, held, stands, call)
    if len(set(calls)) > 1:
        return _split(stands, operation)
    if waits:
        inside = operation or next((stand.call for stand in waits if stand.kind == "leaving"), "")
        where = f" in {inside}" if inside else " for its device"
        where += f", or for its device ({len(early)} of them)" if operation and early else ""
        found = _position("stuck", (), waits, stands, operation, f"every process whose stack is here waits{where}")
        return _without_the_others(found, set(range(world)) - unclear)
    if all(stand.is_lock for stand in stands):
        why = f"every process waits for the lock of a file in {stands[0].call}: its maker has not removed it"
        return _position("host", (), (), stands, "", f"{why}, or ended before it could")
    if len(stands) >= max(world, _LEAST_TOGETHER) and len({_places(stack) for stack in last.values()}) == 1:
        why = f"every process stands in one line, {stands[0].call} ({stands[0].line})"
        if {stand.kind for stand in stands} == {"program"} and _OF_SEVERAL.search(stands[0].call):
            return _position("stuck", (), stands, stands, "", f"{why}: a wait in C++ leaves no frame there")
    if {stand.kind for stand in stands} == {"data"}:
        return _position("data", (), (), stands, "", "every process waits for its data")
    return None


def or_circle(position: HangPosition | None, stacks: Sequence[StackTrace], *, world: int) -> HangPosition | None:
    """Return the circle of transfers by stacks in place of a position that blames one of its ranks, or nobody at all.

    Counts of calls do not tell who sends to whom: both ends of a circle have come to their call of that number.
    """
    if position is None or position.kind not in {"absent", "stuck"} or not position.certain:
        return position
    found = by_stacks(stacks, world=world)
    if found is None or found.kind != "circle":
        return position
    held = position.blamed if position.kind == "absent" else position.waiting
    if not set(held) <= set(found.waiting):
        return position
    return msgspec.structs.replace(found, evidence=(*found.evidence, *position.evidence))


def with_left(found: HangPosition, waiting: Sequence[int], everyone: set[int]) -> HangPosition:
    """Return a position of processes that all wait for the lock of a file, with the ranks that these are.

    They are the ranks of the job that are not seen to wait, where these are as many as the processes.
    """
    left = everyone - set(waiting)
    told = {where.rank for where in found.evidence} - {None}
    if not waiting or len(left) != len(found.evidence) or not told <= left:
        return found
    why = f"{found.why}; they are ranks {', '.join(map(str, sorted(left)))}, the others wait for them"
    return msgspec.structs.replace(found, blamed=tuple(sorted(left)), waiting=tuple(waiting), why=why)


def _standing(stacks: Sequence[StackTrace]) -> dict[str, Stand]:
    """Return where each process stands, by its name; who waits as others do in a pipeline's helper waits like them."""
    waits = {_innermost(stack) for stack in stacks if helper_that_waits(stack.frames)}
    found: dict[str, Stand] = {}
    for stack in stacks:
        stand = stand_of(stack)
        if stand.kind == "host" and not stand.is_lock and _innermost(stack) in waits:
            stand = msgspec.structs.replace(stand, kind="others")
        found[stand.name] = stand
    return found


def _places(stack: StackTrace) -> tuple[tuple[str, str, int | None], ...]:
    """Return the functions of a stack with their lines, whatever folder a tool says that a file is in."""
    return tuple((frame.function, frame.file.rsplit("/", 1)[-1], frame.line) for frame in stack.frames)


def _innermost(stack: StackTrace) -> tuple[str, str]:
    """Return the file and the function in which a process is."""
    return stack.frames[0].file, stack.frames[0].function


def _transfers(last: Mapping[str, StackTrace], stands: Sequence[Stand]) -> list[StackTransfer]:
    """Return the sends and receives in which processes of known ranks stand, by the last stack of each."""
    calls = [stand for stand in stands if stand.kind == "collective" and stand.call in TRANSFERS]
    return [one for stand in calls if (one := transfer_of(last[stand.name], stand.call, stand.where))]


def _none_meets(last: Mapping[str, StackTrace], stands: Sequence[Stand], *, are_all: bool) -> HangPosition | None:
    """Return the circle of processes that all send, or all receive, so that nobody is at the other end; None for none.

    Known are all of the job (`are_all`), or helpers of a pipeline of which some look ahead and some back: where all
    look one way, its last stage is not here.
    """
    calls = {stand.call for stand in stands if stand.kind == "collective"}
    ways = [way for stand in stands if stand.kind in {"others", "device"} and (way := way_of(last[stand.name]))]
    deeds = calls if are_all and all(stand.kind == "collective" for stand in stands) else set()
    if len(ways) == len(stands) and len({ahead for _, ahead in ways}) == 2:
        deeds = {deed for deed, _ in ways}
    if len(deeds) != 1 or not deeds <= TRANSFERS:
        return None
    deed = deeds.pop()
    told = "; ".join(f"{stand.name} in {deed} ({stand.line})" for stand in stands[:8])
    none = "none receives" if deed == "send" else "none sends"
    return _position("circle", (), stands, stands, deed, f"{told}: they wait for each other, {none}")


def _together(last: Mapping[str, StackTrace], stands: Sequence[Stand]) -> list[Stand]:
    """Return the processes that stand in one line of the program, all but a few: they wait there; [] for none.

    A wait for a device or for others in C++ leaves no frame of its own. The few stand in their data or in another call
    of the host: somebody who only computes elsewhere may be ahead or behind.
    """
    places: dict[object, list[Stand]] = {}
    for stand in stands:
        if stand.kind == "program":
            places.setdefault(last[stand.name].frames, []).append(stand)
    most = max(places.values(), key=len, default=[])
    elsewhere = [stand for stand in stands if stand.kind in {"data", "host"}]
    is_whole = bool(elsewhere) and len(most) + len(elsewhere) == len(stands)
    return most if is_whole and len(most) >= _LEAST_TOGETHER else []


def _just_past(stacks: Sequence[StackTrace], others: Sequence[Stand]) -> set[str]:
    """Return the processes a few lines behind a collective in which others stand, in one function by one way.

    The call returns when it is enqueued: the next lines wait for its result, and C++ leaves no frame there.
    """
    ways: dict[object, list[int]] = {}
    for stack in stacks:
        if stand_of(stack).kind == "collective" and (own := own_frames(stack)) and own[0].line is not None:
            ways.setdefault((own[0].function, own[0].file, own[1:]), []).append(own[0].line)
    programs = {stand.name for stand in others if stand.kind == "program"}
    found = set()
    for stack in stacks:
        own, name = own_frames(stack), stand_of(stack).name
        if name in programs and own and own[0] == stack.frames[0] and own[0].line is not None:
            lines = ways.get((own[0].function, own[0].file, own[1:]), [])
            if any(0 < own[0].line - line <= _FEW_LINES for line in lines):
                found.add(name)
    return found


def _apart(
    others: Sequence[Stand], waits: Sequence[Stand], stands: Sequence[Stand], operation: str, *, are_all: bool
) -> HangPosition:
    """Return that some stand elsewhere while the others wait; `are_all` where every rank of the job has a stack.

    Half of the ranks count as few where all of them wait for the lock of a file: a host's, whose maker is gone.
    """
    told = "; ".join(f"{stand.name} stands in {stand.call} ({stand.line})" for stand in others)
    why = f"{told}; the others wait{f' in {operation}' if operation else ' for the device'}"
    kinds = {stand.kind for stand in others}
    kind = "data" if kinds == {"data"} else "absent" if kinds == {"leaving"} else "host"
    few = len(others) < len(waits) or len(others) == 1
    few = few or (are_all and len(others) == len(waits) and all(stand.is_lock for stand in others))
    return _position(kind, others if few else (), waits, stands, operation, why, certain=few)


def _without_the_others(found: HangPosition, everyone: set[int]) -> HangPosition:
    """Return that all whose stacks are here wait as unknown where other ranks of the job have none."""
    left = sorted(everyone - set(found.waiting))
    if len(found.waiting) < len(found.evidence) or not left:
        return found
    return msgspec.structs.replace(
        found,
        kind="absent",
        certain=False,
        why=f"{found.why}; of ranks {shortened(left)} there is no stack, and any of them may be missing from it",
        missing=(f"the stacks of ranks {shortened(left)}",),
    )


def _that_holds_the_host(held: Sequence[Stand], last: Mapping[str, StackTrace]) -> str:
    """Return the one call in which the host of each of these waits until it is done, "" for none.

    A barrier, or a pipeline's helper that waits for the device itself: who waits for its device elsewhere is in none.
    """
    calls = {stand.call for stand in held}
    if len(calls) == 1 and calls <= _BLOCKING:
        return calls.pop()
    ways = [way_of(last[stand.name]) for stand in held if DEVICE_WAIT.match(last[stand.name].frames[0].function)]
    return (
        "/".join(sorted({deed for deed, _ in filter(None, ways)}))
        if None not in ways and len(ways) == len(held)
        else ""
    )


def _before(early: Sequence[Stand], waits: Sequence[Stand], stands: Sequence[Stand], operation: str) -> HangPosition:
    """Return that a few still wait for their device while the others block in a call that holds the host."""
    told = "; ".join(f"{stand.name} waits for its device in {stand.call} ({stand.line})" for stand in early)
    why = f"{told} and has not come to {operation}, in which the others wait"
    return _position("absent", early, waits, stands, operation, why)


def _split(stands: Sequence[Stand], operation: str) -> HangPosition:
    """Return that the collectives differ."""
    calls = {index: stand.call for index, stand in enumerate(stands) if stand.kind == "collective"}
    # stages of a pipeline make unlike transfers by nature: who of them took another way is not told
    found, certain = minority(calls) if not TRANSFERS & set(calls.values()) else ((), False)
    blamed = [stands[index] for index in found]
    waits = [stand for stand in stands if stand not in blamed]
    why = "; ".join(f"{stand.name} stands in {stand.call} ({stand.line})" for stand in stands)
    position = _position("desync", blamed, waits, stands, operation, why, certain=certain)
    return position if certain else msgspec.structs.replace(position, missing=(*position.missing, _OTHER_WAY))


def _position(
    kind: str,
    blamed: Sequence[Stand],
    waits: Sequence[Stand],
    stands: Sequence[Stand],
    operation: str,
    why: str,
    *,
    certain: bool = True,
) -> HangPosition:
    unnamed = any(stand.rank is None for stand in blamed)
    lacks = "which rank each process is: name the files of the stacks after the ranks, rank3.txt"
    return HangPosition(
        kind=kind,
        blamed=() if unnamed else tuple(stand.rank for stand in blamed if stand.rank is not None),
        waiting=tuple(stand.rank for stand in waits if stand.rank is not None),
        operation=operation,
        why=why,
        certain=certain and not unnamed,
        evidence=tuple(stand.where for stand in stands),
        missing=(lacks,) if unnamed else (),
    )
