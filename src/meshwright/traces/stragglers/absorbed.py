"""Waits for a straggler that cost nothing, since the rank waited for another kind of collective meanwhile.

Collectives of several kinds (gathered weights, reduced gradients) go on at once, on streams of their own.

- A rank resumes computing after the collective that ended last. While it is in that one, it does not wait for any
  other, whichever rank is late to the other.
- While data of one kind move without a gap, a wait for a straggler in another kind costs nothing as far as the rank
  would have waited for those data in any case: the later wait for them alone, up to their next gap, is subtracted.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from ..intervals import EMPTY, Array, intersection, is_covered, length_s, union, union_of_sets, without
from ..model import RankTrace
from .meetings import Kind, TracedMeeting

NEAR_S = 25e-6  # between two transfers that follow each other without a gap


class OtherTransfers:
    """When the data of each kind of collective moved, by trace, on its clock."""

    def __init__(self, found: Sequence[TracedMeeting]) -> None:
        starts: dict[tuple[int, Kind], list[float]] = defaultdict(list)
        ends: dict[tuple[int, Kind], list[float]] = defaultdict(list)
        for meeting in found:
            kind = meeting.kind
            for arrival in meeting.arrivals:
                begun_s = meeting.last.start_s - arrival.moved_s
                starts[id(arrival.trace), kind].append(begun_s)
                ends[id(arrival.trace), kind].append(begun_s + meeting.transfer_s)
        self._moving: dict[int, dict[Kind, Array]] = defaultdict(dict)
        for key, values in starts.items():
            self._moving[key[0]][key[1]] = union(values, ends[key])
        self._awaited = _awaited(found)
        self._busy: dict[tuple[int, Kind], Array] = {}

    def busy(self, trace: RankTrace, kind: Kind) -> Array:
        """Return when a rank does not wait for a kind of collective, on its clock: it computes, or waits for others."""
        key = (id(trace), kind)
        if key not in self._busy:
            others = [spans for other, spans in self._awaited.get(id(trace), {}).items() if other != kind]
            self._busy[key] = union_of_sets([trace.compute, *others])
        return self._busy[key]

    def lost_s(self, trace: RankTrace, held: Mapping[Kind, Array]) -> float:
        """Return what a rank loses by a straggler, given when that held up each kind of collective, on its clock."""
        waited = {}
        for kind, times in held.items():
            waited[kind] = without(times, self.busy(trace, kind))
        absorbed_s = sum(self._absorbed_s(trace, kind, times) for kind, times in waited.items())
        return max(0.0, length_s(union_of_sets(list(waited.values()))) - absorbed_s)

    def _absorbed_s(self, trace: RankTrace, kind: Kind, waited: Array) -> float:
        """Return how much of its waits in one kind of collective a rank would have waited for others anyhow."""
        moving = self._moving[id(trace)]
        others = union_of_sets([kept for other, kept in moving.items() if other != kind])
        held = intersection(waited, others)
        if not len(held):
            return 0.0
        runs = union(others[:, 0], others[:, 1] + NEAR_S)
        first, last = runs[:, 0].searchsorted(held[0, 0], side="right") - 1, runs[:, 0].searchsorted(held[-1, 1])
        absorbed = 0.0
        for start_s, end_s in runs[max(first, 0) : last]:
            here = np.asarray([[start_s, end_s]])
            owed, paying = intersection(held, here), intersection(others, here)
            for taken in (trace.compute, waited, moving.get(kind, EMPTY)):
                paying = without(paying, taken) if len(paying) else paying
            absorbed += _paid_s(owed, paying)
        return absorbed


def _awaited(found: Sequence[TracedMeeting]) -> dict[int, dict[Kind, Array]]:
    """Return by trace and kind when a rank was in the collective that it went on computing with, on its clock."""
    calls: dict[int, list[tuple[float, float, Kind]]] = defaultdict(list)
    traces: dict[int, RankTrace] = {}
    for meeting in found:
        kind = meeting.kind
        for arrival in meeting.arrivals:
            key = id(arrival.trace)
            traces[key] = arrival.trace
            calls[key].append((arrival.end_s - arrival.moved_s, arrival.start_s - arrival.moved_s, kind))
    return {key: _gone_on_with(traces[key], sorted(every)) for key, every in calls.items()}


def _gone_on_with(trace: RankTrace, calls: Sequence[tuple[float, float, Kind]]) -> dict[Kind, Array]:
    ends_s = np.asarray([end_s for end_s, _, _ in calls])
    stopped_s, went_on_s = trace.compute[:-1, 1], trace.compute[1:, 0]
    last = ends_s.searchsorted(went_on_s, side="right") - 1
    found: dict[Kind, list[tuple[float, float]]] = defaultdict(list)
    for place in set(last[(last >= 0) & (ends_s[np.maximum(last, 0)] > stopped_s)].tolist()):
        end_s, start_s, kind = calls[place]
        found[kind].append((start_s, end_s))
    return {kind: union(*zip(*spans, strict=True)) for kind, spans in found.items()}


def _paid_s(owed: Array, paying: Array) -> float:
    """Return how much of what is owed is paid later; neither set covers a point of the other."""
    if not len(owed) or not len(paying):
        return 0.0
    edges = np.unique(np.concatenate((owed.ravel(), paying.ravel())))
    lengths = np.diff(edges)
    owes, pays = is_covered(owed, edges[:-1]), is_covered(paying, edges[:-1])
    debt_s = paid_s = 0.0
    for long_s, owing, paid in zip(lengths.tolist(), owes.tolist(), pays.tolist(), strict=True):
        if owing:
            debt_s += long_s
        elif paid:
            part_s = min(debt_s, long_s)
            debt_s, paid_s = debt_s - part_s, paid_s + part_s
    return min(paid_s, length_s(owed))
