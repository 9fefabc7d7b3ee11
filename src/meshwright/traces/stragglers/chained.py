"""Waits that hide under computation and come out later: collectives of one group, one right behind the other.

A rank that is late to the first bucket of a gradient holds up all that stand behind it on the stream. The others go on
computing meanwhile, and lose the time when they have computed everything and the rest of the chain still runs.
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..intervals import EMPTY, Array, length_s, trimmed, without
from ..model import RankTrace
from .absorbed import OtherTransfers
from .meetings import Kind, TracedMeeting

NEAR_S = 25e-6  # between two kernels of a stream that never idles; after more, the second one was not ready before
StepOfRank = tuple[int, int]  # a step, a rank
_Key = tuple[tuple[int, ...], int]  # the ranks of a chain, and its number
Times = npt.NDArray[np.float64]


class HeldUp(NamedTuple):
    """When one kind of collective held a rank up, on the clock of its trace."""

    kind: Kind
    trace: RankTrace
    times: Array


def _paid(meeting: TracedMeeting, rank: int, paid_s: float, transfers: OtherTransfers) -> HeldUp:
    """Return the last part of a transfer that a rank waits for, as long as what is paid by it."""
    own = next(arrival for arrival in meeting.arrivals if arrival.rank == rank)
    start_s = meeting.last.start_s - own.moved_s
    exposed = without(np.asarray([[start_s, start_s + meeting.transfer_s]]), transfers.busy(own.trace, meeting.kind))
    return HeldUp(meeting.kind, own.trace, trimmed(exposed, length_s(exposed) - paid_s))


class _Seen:
    """One chain as one of its ranks saw it, each list as long as the chain."""

    def __init__(self, chain: Sequence[TracedMeeting], rank: int, held: "_Held", transfers: OtherTransfers) -> None:
        own = [next(arrival for arrival in meeting.arrivals if arrival.rank == rank) for meeting in chain]
        moved = np.asarray([arrival.moved_s for arrival in own])
        starts = np.asarray([meeting.last.start_s for meeting in chain]) - moved
        lasting = np.maximum([meeting.transfer_s for meeting in chain], 0.0)
        exposed, hidden = lasting.copy(), np.zeros(len(chain))
        kinds = [(id(arrival.trace), meeting.name) for arrival, meeting in zip(own, chain, strict=True)]
        members = chain[0].members
        by_kind = {key: arrival.trace for key, arrival in zip(kinds, own, strict=True)}
        for key, trace in by_kind.items():
            mine = np.asarray([kind == key for kind in kinds])
            busy = transfers.busy(trace, (key[1], members))
            exposed[mine] -= _covered_s(busy, starts[mine], (starts + lasting)[mine])
            rows = mine[held.places]
            places = held.places[rows]
            covered = _covered_s(busy, held.starts_s[rows] - moved[places], held.ends_s[rows] - moved[places])
            np.add.at(hidden, places, covered)
        self.exposed_s: list[float] = exposed.tolist()  # of the transfer
        self.hidden_s: list[float] = hidden.tolist()  # of the time for which the last one held it up
        self.near = [
            later.start_s <= before.end_s + NEAR_S for before, later in itertools.pairwise(own)
        ]  # whether the next one follows without a gap


class _Held:
    """When the last of each meeting of a chain held it up, on the common clock: places in the chain, starts, ends."""

    def __init__(self, chain: Sequence[TracedMeeting], faults: Mapping[int, Array]) -> None:
        found = [(at, faults[id(meeting)]) for at, meeting in enumerate(chain) if id(meeting) in faults]
        self.places = np.repeat([at for at, _ in found], [len(rows) for _, rows in found]).astype(np.int64)
        held = np.concatenate([EMPTY, *(rows for _, rows in found)])
        self.starts_s, self.ends_s = held[:, 0], held[:, 1]


def _covered_s(found: Array, starts_s: Times, ends_s: Times) -> Times:
    """Return how much of each span a set covers."""
    if not len(found):
        return np.zeros(len(starts_s))
    before = np.concatenate(([0.0], np.cumsum(found[:, 1] - found[:, 0])))

    def until_s(times_s: Times) -> Times:
        at = np.searchsorted(found[:, 0], times_s, side="right")
        last = np.maximum(at, 1) - 1
        return np.where(at > 0, before[at] - np.maximum(0.0, found[last, 1] - times_s), 0.0)

    return until_s(ends_s) - until_s(starts_s)


def _queues(every: Sequence[TracedMeeting], rank: int) -> list[list[TracedMeeting]]:
    """Return the meetings of some ranks by the queues that they stand in, given one of those ranks.

    Kinds that one rank is in at once (gathered weights, reduced gradients) have streams of their own.
    """
    own = sorted(
        (arrival.start_s, arrival.end_s, meeting.name)
        for meeting in every
        for arrival in meeting.arrivals
        if arrival.rank == rank
    )
    at_once = any(before[2] != later[2] and later[0] < before[1] - NEAR_S for before, later in itertools.pairwise(own))
    if not at_once:
        return [list(every)]
    kinds: dict[str, list[TracedMeeting]] = defaultdict(list)
    for meeting in every:
        kinds[meeting.name].append(meeting)
    return list(kinds.values())


class MeetingChains:
    """The meetings of each set of ranks in their order, and what hid in them; those of a queue are a chain.

    `faults` are the times at which the last of each meeting (or the last that came together) held it up, by its id, on
    the common clock.
    """

    def __init__(self, found: Sequence[TracedMeeting], faults: Mapping[int, Array], transfers: OtherTransfers) -> None:
        self._transfers = transfers
        together: dict[tuple[int, ...], list[TracedMeeting]] = defaultdict(list)
        for meeting in sorted(found, key=lambda meeting: meeting.last.start_s):
            together[meeting.members].append(meeting)
        chains = [(members, chain) for members, every in together.items() for chain in _queues(every, members[0])]
        self._chains: dict[_Key, list[TracedMeeting]] = {
            (members, number): chain for number, (members, chain) in enumerate(chains) if len(chain) > 1
        }
        self._seen: dict[tuple[_Key, int], _Seen] = {}
        self._last = {
            key: [meeting.last.rank if id(meeting) in faults else None for meeting in chain]
            for key, chain in self._chains.items()
        }
        for key, chain in self._chains.items():
            held = _Held(chain, faults)
            self._seen |= {(key, rank): _Seen(chain, rank, held, transfers) for rank in key[0]}

    def delayed(self, late: AbstractSet[int]) -> dict[StepOfRank, list[HeldUp]]:
        """Return when each rank loses time in each step by lags of `late` that were hidden when they came.

        What is owed is paid by exposed transfers from there on in the chain. The last of it comes after the computation
        anyhow, and pays for its own lag alone: it would have moved under what hides that.
        """
        lost: dict[StepOfRank, list[HeldUp]] = defaultdict(list)
        for key, chain in self._chains.items():
            members, _ = key
            own = [last in late for last in self._last[key]]
            lags = [at for at, mine in enumerate(own) if mine]
            for other in set(members) - late:
                walked = 0
                for at in lags:
                    if at >= walked:
                        walked = self._walk(chain, at, own, other, self._seen[key, other], lost)
        return lost

    def _walk(
        self,
        chain: Sequence[TracedMeeting],
        first: int,
        own: Sequence[bool],
        other: int,
        seen: _Seen,
        lost: dict[StepOfRank, list[HeldUp]],
    ) -> int:
        """Follow a chain from a lag on; return the place behind what was followed."""
        owed_s = 0.0
        at = first
        while True:
            hidden_s = seen.hidden_s[at] if own[at] else 0.0
            owed_s += hidden_s
            followed = at + 1 < len(chain) and seen.near[at]
            paid_s = min(owed_s if followed else hidden_s, seen.exposed_s[at])
            if paid_s > 0:
                lost[chain[at].step, other].append(_paid(chain[at], other, paid_s, self._transfers))
                owed_s -= paid_s
            at += 1
            if not followed or (owed_s <= 0 and not own[at]):
                return at
