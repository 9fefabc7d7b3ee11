"""Waits that hide under computation and come out later: collectives of one group, one right behind the other.

A rank that is late to the first bucket of a gradient holds up all that stand behind it on the stream. The others go on
computing meanwhile, and lose the time when they have computed everything and the rest of the chain still runs.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from .intervals import Array
from .meetings import RankArrival, TracedMeeting

NEAR_S = 25e-6  # between two kernels of a stream that never idles; after more, the second one was not ready before
StepOfRank = tuple[int, int]  # a step, a rank


class _Coverage:
    """How much of a set lies before a time."""

    def __init__(self, found: Array) -> None:
        self._starts, self._ends = found[:, 0], found[:, 1]
        self._before = np.concatenate(([0.0], np.cumsum(self._ends - self._starts)))

    def between_s(self, start_s: float, end_s: float) -> float:
        """Return the seconds that the set covers between two times."""
        return self._until_s(end_s) - self._until_s(start_s)

    def _until_s(self, time_s: float) -> float:
        at = int(np.searchsorted(self._starts, time_s, side="right"))
        return float(self._before[at] - max(0.0, self._ends[at - 1] - time_s)) if at else 0.0


class MeetingChains:
    """The meetings of each set of ranks in their order, and what hid in them."""

    def __init__(self, found: Sequence[TracedMeeting]) -> None:
        chains: dict[tuple[int, ...], list[TracedMeeting]] = defaultdict(list)
        for meeting in sorted(found, key=lambda meeting: meeting.last.start_s):
            chains[tuple(sorted(arrival.rank for arrival in meeting.arrivals))].append(meeting)
        self._chains = dict(chains)
        self._arrivals = {id(m): {arrival.rank: arrival for arrival in m.arrivals} for m in found}
        self._computed: dict[int, _Coverage] = {}

    def delayed_s(self, rank: int, faults: Mapping[int, Array]) -> dict[StepOfRank, float]:
        """Return what each rank loses in each step by lags of `rank` that were hidden when they came.

        `faults` are the times at which the last of each meeting held it up, by its id, on the common clock. What is
        owed is paid by exposed transfers behind it in the chain but the last, which comes after the computation anyhow.
        """
        lost: dict[StepOfRank, float] = defaultdict(float)
        for members, chain in self._chains.items():
            lags = [at for at, meeting in enumerate(chain) if meeting.last.rank == rank and id(meeting) in faults]
            for other in members if len(chain) > 1 and rank in members else ():
                walked = 0
                for at in lags if other != rank else ():
                    if at >= walked:
                        walked = self._walk(chain, at, rank, other, faults, lost)
        return lost

    def _walk(
        self,
        chain: Sequence[TracedMeeting],
        first: int,
        rank: int,
        other: int,
        faults: Mapping[int, Array],
        lost: dict[StepOfRank, float],
    ) -> int:
        """Follow a chain from a lag on; return the place behind what was followed."""
        owed_s, at = 0.0, first
        while at < len(chain):
            meeting = chain[at]
            own = self._arrivals[id(meeting)][other]
            if at > first:
                before = self._arrivals[id(chain[at - 1])][other]
                if own.start_s > before.end_s + NEAR_S:
                    break
                paid_s = min(owed_s, self._exposed_s(chain[at - 1], before))
                lost[chain[at - 1].step, other] += paid_s
                owed_s -= paid_s
            if meeting.last.rank == rank and id(meeting) in faults:
                owed_s += self._hidden_s(faults[id(meeting)], own)
            elif owed_s <= 0:
                break
            at += 1
        return max(at, first + 1)

    def _exposed_s(self, meeting: TracedMeeting, own: RankArrival) -> float:
        """Return how much of a transfer a rank does not hide under computation."""
        start_s = meeting.last.start_s - own.moved_s
        transfer_s = max(0.0, meeting.transfer_s)
        return transfer_s - self._coverage(own).between_s(start_s, start_s + transfer_s)

    def _hidden_s(self, fault: Iterable[Sequence[float]], own: RankArrival) -> float:
        computed = self._coverage(own)
        return sum(computed.between_s(start - own.moved_s, end - own.moved_s) for start, end in fault)

    def _coverage(self, own: RankArrival) -> _Coverage:
        key = id(own.trace)
        if key not in self._computed:
            self._computed[key] = _Coverage(own.trace.compute)
        return self._computed[key]
