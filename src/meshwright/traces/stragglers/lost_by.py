"""The loss of the others by ranks that come late, step by step."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from ..intervals import Array, union_of_sets
from .absorbed import OtherTransfers
from .chained import HeldUp, MeetingChains
from .meetings import TracedMeeting


def lost_by(
    late: AbstractSet[int],
    found: Sequence[TracedMeeting],
    faults: Mapping[int, Array],
    chains: MeetingChains,
    transfers: OtherTransfers,
) -> list[float]:
    """Return what the others lose by some ranks in each step of `found`, in their order.

    `faults` are the times at which who came last held up each meeting, by its id, on the common clock; `chains` are of
    the same. Of a group it is what the one of the others loses that loses least: without the late ranks, they would
    wait for that one.
    """
    windows = chains.delayed(late)
    for meeting in found:
        if meeting.last.rank in late and id(meeting) in faults:
            kind = meeting.kind
            for other in meeting.arrivals:
                if other.rank not in late:
                    held = HeldUp(kind, other.trace, faults[id(meeting)] - other.moved_s)
                    windows.setdefault((meeting.step, other.rank), []).append(held)
    lost = {}
    for key, parts in windows.items():
        by_kind = {
            kind: union_of_sets([part.times for part in parts if part.kind == kind])
            for kind in {part.kind for part in parts}
        }
        lost[key] = transfers.lost_s(parts[0].trace, by_kind)
    groups = {meeting.members for meeting in found}
    others = [apart for members in groups if late & set(members) and (apart := set(members) - late)]
    steps = sorted({meeting.step for meeting in found})
    return [max(min(lost.get((step, other), 0.0) for other in group) for group in others) for step in steps]
