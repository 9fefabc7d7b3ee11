"""A group whose transfers last much longer than those of its siblings: the link between its ranks is slow.

Siblings are groups of one kind (as many ranks, the same description in the trace) that move as many bytes by the same
collective, so that their transfers last as long where their links are alike. No rank is blamed for it.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..units import format_bytes, format_time
from .intervals import Array, intersection, length_s, union
from .meetings import TracedMeeting

TIMES = 2.0  # as long as the siblings' transfers, at least
LEAST_MEETINGS = 3  # of a group
LEAST_SHARE = 0.05  # of a step, which the ranks of the group lose by it
MOST_NAMED = 4  # ranks
_Kind = tuple[str, int, int, str]
_Members = tuple[int, ...]


def slow_group(found: Sequence[TracedMeeting], waits: Mapping[int, Array], step_s: float) -> str:
    """Return which group's transfers last longer than its siblings', and by how much; "" where none do by much.

    `waits` is the exposed communication of each trace, by its id.
    """
    kinds: dict[_Kind, dict[_Members, list[TracedMeeting]]] = defaultdict(lambda: defaultdict(list))
    for meeting in found:
        if meeting.bytes and meeting.size == len(meeting.arrivals):
            members = tuple(sorted(arrival.rank for arrival in meeting.arrivals))
            kinds[meeting.name, meeting.bytes, meeting.size, meeting.group_text][members].append(meeting)
    steps = len({meeting.step for meeting in found})
    told: list[tuple[float, str]] = []
    for (name, size_bytes, _, _), groups in kinds.items():
        lasts_s = {
            members: statistics.median(meeting.transfer_s for meeting in mine)
            for members, mine in groups.items()
            if len(mine) >= LEAST_MEETINGS
        }
        if len(lasts_s) < 2:
            continue
        slow = max(lasts_s, key=lasts_s.__getitem__)
        others_s = statistics.median(time_s for members, time_s in lasts_s.items() if members != slow)
        lost_s = _exposed_s(groups[slow], waits) / steps * (1 - others_s / lasts_s[slow])
        if lasts_s[slow] >= TIMES * others_s and lost_s > LEAST_SHARE * step_s:
            takes = f"{format_time(lasts_s[slow])}, in other groups of its kind {format_time(others_s)}"
            what = f"{name} of {format_bytes(size_bytes)} between ranks {_named(slow)}"
            told.append((lost_s, f"{what} takes {takes}: their link is slower or busier"))
    return max(told, default=(0.0, ""))[1]


def _exposed_s(mine: Sequence[TracedMeeting], waits: Mapping[int, Array]) -> float:
    """Return how long the typical rank of a group computes nothing while its data move, in all steps together."""
    starts_s: dict[int, list[float]] = defaultdict(list)
    ends_s: dict[int, list[float]] = defaultdict(list)
    ranks: dict[int, int] = {}
    for meeting in mine:
        for arrival in meeting.arrivals:
            key, begun_s = id(arrival.trace), meeting.last.start_s - arrival.moved_s
            ranks[key] = arrival.rank
            starts_s[key].append(begun_s)
            ends_s[key].append(begun_s + meeting.transfer_s)
    lost_s: dict[int, float] = defaultdict(float)
    for key, rank in ranks.items():
        lost_s[rank] += length_s(intersection(union(starts_s[key], ends_s[key]), waits[key]))
    return statistics.median(lost_s.values())


def _named(members: _Members) -> str:
    named = [str(rank) for rank in members[:MOST_NAMED]]
    if len(members) > MOST_NAMED:
        return ", ".join(named) + f" and {len(members) - MOST_NAMED} more"
    return ", ".join(named[:-1]) + f" and {named[-1]}"
