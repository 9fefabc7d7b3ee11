"""Calls that the ranks of a group do not make alike: other operations, other sizes, sums and sends that do not meet."""

from collections.abc import Mapping, Sequence

from ..nouns.calls import Call, Group
from ..nouns.names import UNEVEN
from ..nouns.position import HangPosition, minority


def differing(calls: Mapping[int, Call]) -> tuple[str, tuple[int, ...], bool] | None:
    """Return how the calls of one number differ: ("desync" or "sizes", who differs, whether that is certain); or None.

    A strict majority is right; without one nobody is named. Sizes are compared where the collective demands equal ones.
    """
    operations = {rank: call.operation for rank, call in calls.items() if call.operation}
    if len(set(operations.values())) > 1:
        return ("desync", *minority(operations))
    if set(operations.values()) & UNEVEN - {"coalesced"}:
        return None
    known = {rank: call for rank, call in calls.items() if call.numel_in is not None}
    both = all(call.numel_out is not None for call in known.values())
    typed = all(call.types for call in known.values())
    sizes: dict[int, object] = {
        rank: (call.size if both else call.numel_in, call.types if typed else ()) for rank, call in known.items()
    }
    if len(set(sizes.values())) > 1 and not _adds_up(calls):
        return ("sizes", *minority(sizes))
    return None


def _adds_up(calls: Mapping[int, Call]) -> bool:
    """Whether ranks bring uneven parts on purpose: what all put in is what each gets, or the other way round."""
    if len({call.types for call in calls.values()}) > 1:
        return False
    ins, outs = [call.numel_in for call in calls.values()], [call.numel_out for call in calls.values()]
    operation = next(iter(calls.values())).operation
    parts, wholes = (ins, outs) if operation == "all_gather" else (outs, ins)
    if operation not in {"all_gather", "reduce_scatter"} or None in parts or None in wholes:
        return False
    return len(set(wholes)) == 1 and sum(part for part in parts if part is not None) == wholes[0]


def disagreement(group: Group, siblings: Sequence[Group] = ()) -> HangPosition | None:
    """Return the first call of a group that its ranks do not make alike, None where all that can be compared agree.

    What ended on all is compared by operation only: sizes that differed did no harm. Where a group is split in halves,
    its siblings (`siblings_of`) say which half is right.
    """
    numbers = sorted({seq for part in group.ranks.values() for seq in part.calls})
    for seq in numbers:
        calls = group.of(seq)
        found = differing(calls) if len(calls) > 1 else None
        if found is None and (unbalanced := _unbalanced(group, seq, calls)):
            return unbalanced
        if found is None or (found[0] == "sizes" and all(call.ended for call in calls.values())):
            continue
        kind, blamed, certain = found
        beside = None if blamed else _by_siblings(calls, [sibling.of(seq) for sibling in siblings])
        if beside:
            blamed = tuple(rank for rank in calls if _is_other(calls[rank], beside))
            certain = bool(blamed)
        if kind == "desync" and all(call.ended for call in calls.values()) and not _still_open(group):
            continue
        right = [call for rank, call in calls.items() if rank not in blamed]
        usual = next((call for call in right if call.operation), right[0])
        told = [f"rank {rank} calls {_full(calls[rank])}" for rank in blamed or tuple(calls)]
        others = f", the others {_full(usual)}" if blamed else ""
        others += f", as the ranks of the other groups of {group.name.purpose} do" if beside else ""
        return HangPosition(
            kind=kind,
            blamed=blamed,
            waiting=tuple(rank for rank in calls if rank not in blamed),
            group=group.name,
            operation=usual.operation,
            seq=seq,
            why=f"at #{seq} {'; '.join(told[:4])}{others}{_skipped(group, seq, blamed)}",
            certain=certain,
            evidence=tuple(call.where for call in calls.values()),
        )
    return None


def _unbalanced(group: Group, seq: int, calls: Mapping[int, Call]) -> HangPosition | None:
    """Return the all-to-all of a whole group in which all together do not send what they expect, None for none.

    Whose splits are wrong is not told: each may bring and expect another amount.
    """
    sent, expected = [call.numel_in for call in calls.values()], [call.numel_out for call in calls.values()]
    if any(call.operation != "all_to_all" for call in calls.values()) or None in sent or None in expected:
        return None
    if not group.whole or set(calls) != set(group.members) or len({call.types for call in calls.values()}) > 1:
        return None
    in_all = sum(size for size in sent if size is not None)
    out_all = sum(size for size in expected if size is not None)
    if in_all == out_all or all(call.ended for call in calls.values()):
        return None
    return HangPosition(
        kind="sizes",
        waiting=tuple(calls),
        group=group.name,
        operation="all_to_all",
        seq=seq,
        why=f"at #{seq} all ranks of the group send {in_all} elements in all_to_all and expect {out_all}",
        certain=False,
        evidence=tuple(call.where for call in calls.values()),
        missing=("whose splits are wrong: the input and output split sizes that each rank gives to all_to_all",),
    )


def siblings_of(group: Group, groups: Sequence[Group]) -> list[Group]:
    """Return the other groups of one purpose and size: replicas of one program, which make the same calls."""
    if group.name.purpose in {"", "undefined", "default_pg"}:
        return []
    return [
        other
        for other in groups
        if other is not group
        and other.name.purpose == group.name.purpose
        and len(other.members) == len(group.members)
        and not set(other.members) & set(group.members)
    ]


def _made(call: Call) -> tuple[object, ...]:
    return call.operation, call.size, call.types


def _is_other(call: Call, right: Call) -> bool:
    """Return whether a call is known to be another than the right one: what is not known of it is no difference."""
    sizes = zip(call.size, right.size, strict=True)
    return bool(call.operation) and (
        call.operation != right.operation
        or any(own is not None and own != other for own, other in sizes)
        or bool(call.types and right.types and call.types != right.types)
    )


def _by_siblings(calls: Mapping[int, Call], others: Sequence[Mapping[int, Call]]) -> Call | None:
    """Return the call that the ranks of the other groups all make and some of this one; None where that is not so."""
    found = [call for other in others for call in other.values()]
    made = {_made(call) for call in found}
    alike = len(found) > 1 and len(made) == 1 and any(_made(call) in made for call in calls.values())
    return found[0] if alike else None


def made_otherwise(call: Call, siblings: Sequence[Group]) -> bool:
    """Whether the ranks of the other groups of one purpose agree on a call of this number, and it is another one."""
    found = [other for sibling in siblings for other in sibling.of(call.seq).values()]
    return len(found) > 1 and len({_made(other) for other in found}) == 1 and _is_other(call, found[0])


def _still_open(group: Group) -> bool:
    return any(part.open() for part in group.ranks.values())


def _skipped(group: Group, seq: int, blamed: Sequence[int]) -> str:
    """Say so where a rank's call is the one that the others make next: it left one out."""
    following = [call for rank, call in group.of(seq + 1).items() if rank not in blamed]
    for rank in blamed:
        call = group.ranks[rank].calls[seq]
        if following and all((call.operation, call.size) == (other.operation, other.size) for other in following):
            return f"; rank {rank} left one call out: its #{seq} is what the others call #{seq + 1}"
    return ""


def _full(call: Call) -> str:
    size = "" if call.numel_in is None else f" of {call.numel_in} elements"
    types = f" of {'/'.join(call.types)}" if call.types else ""
    return f"{call.operation}{size}{types}{f' ({call.frame})' if call.frame else ''}"


def unequal_transfer(group: Group) -> HangPosition | None:
    """Return a send and a receive that meet with different sizes; which of the two is wrong cannot be told."""
    opened = [call for part in group.ranks.values() for call in part.transfers if not call.ended]
    receives = {(call.peer, call.rank): call for call in reversed(opened) if call.operation == "recv"}
    sends = [call for call in opened if call.operation == "send"]
    for send in sends:
        receive = receives.get((send.rank, send.peer or 0))
        if receive is None:
            continue
        if (send.numel_in, send.types) != (receive.numel_out, receive.types):
            return HangPosition(
                kind="sizes",
                group=group.name,
                operation="send",
                seq=send.seq,
                why=f"rank {send.rank} sends {send.numel_in} elements, rank {receive.rank} expects {receive.numel_out}",
                certain=False,
                evidence=(send.where, receive.where),
                missing=("which of the two has the wrong size: the code of both",),
            )
    return None
