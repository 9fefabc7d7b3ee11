"""The cost of collectives to the typical rank: waiting for the last to come, and the transfer itself.

Both count as far as the rank computes nothing meanwhile, and each rank by the collectives that it is in: groups that
move data one after the other (the stages of a pipeline, each with its own) do not add up on any of them.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..intervals import Array, intersection, length_s, union
from .meetings import RankArrival, TracedMeeting


class CollectiveCosts(NamedTuple):
    """Seconds of the typical step of the typical rank."""

    waited_s: float
    moved_s: float


def collective_costs(found: Sequence[TracedMeeting], waits: Mapping[int, Array]) -> CollectiveCosts:
    """Return what collectives cost; `waits` is the exposed communication of each trace, by its id."""
    by_step: dict[tuple[int, int], list[tuple[TracedMeeting, RankArrival]]] = defaultdict(list)
    for meeting in found:
        for arrival in meeting.arrivals:
            by_step[arrival.rank, meeting.step].append((meeting, arrival))
    by_rank: dict[int, list[CollectiveCosts]] = defaultdict(list)
    for (rank, _), mine in by_step.items():
        came = [arrival.start_s - arrival.moved_s for _, arrival in mine]
        began = [meeting.last.start_s - arrival.moved_s for meeting, arrival in mine]
        ended = [start_s + meeting.transfer_s for start_s, (meeting, _) in zip(began, mine, strict=True)]
        exposed = waits[id(mine[0][1].trace)]
        waited, moved = intersection(union(came, began), exposed), intersection(union(began, ended), exposed)
        by_rank[rank].append(CollectiveCosts(length_s(waited), length_s(moved)))
    typical = [[statistics.median(one) for one in zip(*steps, strict=True)] for steps in by_rank.values()]
    return CollectiveCosts(*(statistics.median(one) for one in zip(*typical, strict=True)))
