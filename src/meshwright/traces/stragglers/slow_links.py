"""A slow link: transfers between some ranks last much longer than their siblings between others.

Siblings are transfers of one kind (by the same collective, of as many ranks and bytes, in groups of the same
description), or sends of as many bytes, that last as long where links are alike. No rank is blamed for its link.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ...units import format_bytes, format_time
from ..intervals import Array, intersection, length_s, union
from .meetings import TracedMeeting

TIMES = 2.0  # as long as the siblings, at least
LEAST_MEETINGS = 3  # over a link
LEAST_SHARE = 0.05  # of a step, which ranks lose by it
MOST_NAMED = 4  # ranks
_Kind = tuple[str, int, int, str]
_Link = tuple[int, ...]  # the ranks of a group; the sender and the receiver


def slow_link(found: Sequence[TracedMeeting], waits: Mapping[int, Array], step_s: float) -> str:
    """Return between which ranks transfers last longer than their siblings, and by how much; "" where none do by much.

    `waits` is the exposed communication of each trace, by its id.
    """
    kinds: dict[_Kind, dict[_Link, list[TracedMeeting]]] = defaultdict(lambda: defaultdict(list))
    for meeting in found:
        if meeting.bytes and meeting.size == len(meeting.arrivals):
            kinds[meeting.name, meeting.bytes, meeting.size, meeting.group_text][_link_of(meeting)].append(meeting)
    steps = len({meeting.step for meeting in found})
    told: list[tuple[float, str]] = []
    for (name, size_bytes, _, _), links in kinds.items():
        lasts_s = {
            link: statistics.median(meeting.transfer_s for meeting in mine)
            for link, mine in links.items()
            if len(mine) >= LEAST_MEETINGS
        }
        if len(lasts_s) < 2:
            continue
        worst = max(lasts_s, key=lasts_s.__getitem__)
        others_s = statistics.median(time_s for link, time_s in lasts_s.items() if link != worst)
        if lasts_s[worst] < TIMES * others_s:
            continue
        slow = [link for link, time_s in sorted(lasts_s.items()) if time_s >= TIMES * others_s]
        lost_s = _exposed_s([meeting for link in slow for meeting in links[link]], waits) / steps
        lost_s *= 1 - others_s / lasts_s[worst]
        if lost_s > LEAST_SHARE * step_s:
            who = _sends_between(slow, worst) if name == "send" else f"between ranks {_named(worst)}"
            takes = f"takes {format_time(lasts_s[worst])}, between others {format_time(others_s)}"
            text = f"{name} of {format_bytes(size_bytes)} {who} {takes}: the link is slower or busier"
            told.append((lost_s, text))
    return max(told, default=(0.0, ""))[1]


def _link_of(meeting: TracedMeeting) -> _Link:
    return tuple(
        sorted((arrival.rank for arrival in meeting.arrivals), key=lambda rank: (rank != meeting.sender, rank))
    )


def _sends_between(slow: Sequence[_Link], worst: _Link) -> str:
    """Return whose sends are slow: those of one rank to all that it sends to slowly, or from all; else the slowest."""
    senders, receivers = sorted({link[0] for link in slow}), sorted({link[1] for link in slow})
    if len(senders) > 1 and len(receivers) > 1:
        senders, receivers = [worst[0]], [worst[1]]
    return f"from {_ranks(senders)} to {_ranks(receivers)}"


def _exposed_s(mine: Sequence[TracedMeeting], waits: Mapping[int, Array]) -> float:
    """Return how long the typical rank of some transfers computes nothing while its data move, in all steps."""
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


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_named(ranks)}"


def _named(ranks: Sequence[int]) -> str:
    named = [str(rank) for rank in ranks[:MOST_NAMED]]
    if len(ranks) > MOST_NAMED:
        return ", ".join(named) + f" and {len(ranks) - MOST_NAMED} more"
    return ", ".join(named[:-1]) + f" and {named[-1]}"
