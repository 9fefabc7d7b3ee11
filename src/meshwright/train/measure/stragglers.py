"""Ranks and links that have become slow, step by step, with the evidence.

A rank is slow where its own work takes longer than that of the others, step after step: the median of its ratio to
them over a window, with nearly all steps of the window on the same side. Where more ranks than cores share a machine,
ranks wait for a core by turns, and a wait that explains the difference does not count against a rank. Elsewhere such a
wait is evidence that something else runs on that rank's cores. A dozen steps of ranks that share cores may last a
fraction of a second, in which a neighbour had the cache or the host had the core: such a rank must stay slow for
`PERSISTS_S`. While the disk refuses writes (reported as that), ranks are not compared. A link is slow where it carries
bytes at a small part of the rate at which it did before, step after step, and for longer than the ranks at its ends
waited for a core: on a crowded machine the receiver's acknowledgements wait too. Each finding is reported once, and
again only after it has recovered.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ...backend.hosts.link_rates import Carried
from ...units import format_bytes, format_time

WINDOW = 12  # steps
MOST = 10  # of them must agree
SLOW_RATIO, RECOVERED_RATIO = 1.5, 1.2  # of a rank's work to the median of the others'
STALL_S, STALL_RATIO = 1.0, 10.0  # a single step is reported if it is longer than usual by both
PERSISTS_S = 3.0  # how long a rank must be slow before it is named, if ranks share cores
EXPLAINED = 0.5  # share of a rank's extra time: a wait for a core that is longer explains it
LINK_WINDOW, LINK_WARM_UP = 8, 20  # steps
LINK_SLOW, LINK_RECOVERED = 0.35, 0.7  # of the rate before
LINK_TIMES = 4  # consecutive steps that must say so
LEAST_BYTES = 16 * 1024  # a step that carries less says nothing of a link's rate


class Straggler(msgspec.Struct, frozen=True):
    """A rank or a link that is slow; `culprit` is the rank, or the rank at the other end of the link."""

    culprit: int
    message: str
    evidence: dict[str, float]


class SlowRanks:
    """Compares how long the ranks work in each step.

    `own_baseline`: their shares of the work differ. `crowded`: more ranks than cores share a machine.
    """

    def __init__(self, ranks: int, *, own_baseline: bool = False, crowded: bool = False) -> None:
        self._crowded = crowded
        self._ratios = [deque[float](maxlen=WINDOW) for _ in range(ranks)]
        self._beyond = [deque[tuple[float, float]](maxlen=WINDOW) for _ in range(ranks)]  # the others: work, waiting
        self._usual: list[list[float]] | None = [[] for _ in range(ranks)] if own_baseline else None
        self._slow: set[int] = set()
        self._since_s: dict[int, float] = {}  # when each began to look slow

    def forget(self) -> None:
        """Start the comparison again: the cause of the delays so far is reported elsewhere."""
        for rank in range(len(self._ratios)):
            self._ratios[rank].clear()
            self._beyond[rank].clear()
        self._since_s.clear()

    def observe(
        self, busy_s: Sequence[float], waited_s: Sequence[float] = (), *, now_s: float | None = None
    ) -> list[Straggler]:
        """Take the seconds that each rank worked in a step; return the ranks that became slow, or stalled in it.

        `waited_s` is how long each was ready to run in the step, but another had its core. `now_s` is of a clock that
        nobody sets; without it a rank that shares cores is named as soon as the others are.
        """
        found = []
        for rank, own_s in enumerate(busy_s):
            others_s = _median_of_others(busy_s, rank)
            waits_s = waited_s[rank] - _median_of_others(waited_s, rank) if waited_s else 0.0
            self._beyond[rank].append((own_s - others_s, waits_s))
            longer_s = own_s - others_s
            if self._crowded and longer_s > STALL_S and waits_s > EXPLAINED * longer_s:
                continue
            left_s = longer_s - max(0.0, waits_s) if self._crowded else longer_s  # once the wait for a core is out
            if left_s > STALL_S and own_s > STALL_RATIO * others_s:
                text = f"rank {rank} worked {format_time(own_s)} in one step, the others {format_time(others_s)}"
                found.append(Straggler(rank, text, {"own_s": own_s, "others_s": others_s}))
                continue
            ratio = self._relative(rank, own_s / others_s if others_s else 1.0)
            recent = self._ratios[rank]
            recent.append(ratio)
            if rank in self._slow:
                if statistics.median(recent) < RECOVERED_RATIO:
                    self._slow.discard(rank)
            elif self._looks_slow(rank) and self._persists(rank, now_s):
                self._slow.add(rank)
                times = statistics.median(recent)
                text = (
                    f"rank {rank} is slow: it works {times:.2f} times as long as the others "
                    f"(median of {WINDOW} steps; the last {format_time(own_s)} against {format_time(others_s)})"
                )
                waiting = self._waiting_share(rank)
                if waiting > EXPLAINED:
                    text += ", most of that because something else runs on its cores"
                evidence = {"ratio": times, "own_s": own_s, "others_s": others_s, "waiting_for_a_core": waiting}
                found.append(Straggler(rank, text, evidence))
        return found

    def _looks_slow(self, rank: int) -> bool:
        recent = self._ratios[rank]
        slow = (
            len(recent) == WINDOW
            and statistics.median(recent) > SLOW_RATIO
            and sum(r > RECOVERED_RATIO for r in recent) >= MOST
            and not (self._crowded and self._waiting_share(rank) > EXPLAINED)
        )
        if not slow and statistics.median(recent) < RECOVERED_RATIO:
            self._since_s.pop(rank, None)
        return slow

    def _persists(self, rank: int, now_s: float | None) -> bool:
        """Return whether a rank that looks slow has for long enough."""
        if not self._crowded or now_s is None:
            return True
        return now_s - self._since_s.setdefault(rank, now_s) >= PERSISTS_S

    def _waiting_share(self, rank: int) -> float:
        """Return how much of the time that a rank worked longer than the others it waited for a core, 0 to 1."""
        work_s, waits_s = (sum(column) for column in zip(*self._beyond[rank], strict=True))
        return min(1.0, max(0.0, waits_s / work_s)) if work_s > 0 else 0.0

    def _relative(self, rank: int, ratio: float) -> float:
        """Return a ratio over what is usual for the rank, where ranks have different work."""
        if self._usual is None:
            return ratio
        usual = self._usual[rank]
        if len(usual) < LINK_WARM_UP:
            usual.append(ratio)
            return 1.0
        return ratio / statistics.median(usual)


def _median_of_others(values: Sequence[float], rank: int) -> float:
    return statistics.median([*values[:rank], *values[rank + 1 :]])


class SlowLinks:
    """Compares what the links of one rank carry with what they carried before."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._usual: dict[int, deque[float]] = {}
        self._recent: dict[int, deque[_Sample]] = {}
        self._times: dict[int, int] = {}  # how many steps in a row said that a link is slow
        self._slow: set[int] = set()

    def observe(self, carried: Mapping[int, Carried], waited_s: Sequence[float] = ()) -> list[Straggler]:
        """Take what each connection carried in a step; return the links that have become slow.

        `waited_s` is how long each rank was ready to run in a step, but another program or rank had its core.
        """
        found = []
        for peer, (size_bytes, busy_s) in carried.items():
            if size_bytes < LEAST_BYTES or busy_s <= 0:
                continue
            usual = self._usual.setdefault(peer, deque(maxlen=10 * LINK_WARM_UP))
            recent = self._recent.setdefault(peer, deque(maxlen=LINK_WINDOW))
            recent.append(_Sample(size_bytes, busy_s, max(waited_s[self._rank], waited_s[peer]) if waited_s else 0.0))
            rate = size_bytes / busy_s
            if len(usual) < LINK_WARM_UP:
                usual.append(rate)
                continue
            before, now = statistics.median(usual), statistics.median(one.size_bytes / one.busy_s for one in recent)
            is_slow = now < LINK_SLOW * before
            self._times[peer] = self._times.get(peer, 0) + 1 if is_slow and _beyond_waiting(recent, before) else 0
            if peer in self._slow:
                if now > LINK_RECOVERED * before:
                    self._slow.discard(peer)
            elif self._times[peer] >= LINK_TIMES:
                self._slow.add(peer)
                text = (
                    f"the link from rank {self._rank} to rank {peer} is slow: {format_bytes(int(now))}/s, "
                    f"{now / before:.0%} of the {format_bytes(int(before))}/s before (median of {LINK_WINDOW} steps)"
                )
                found.append(Straggler(peer, text, {"bytes_per_s": now, "before_bytes_per_s": before}))
            elif rate > LINK_RECOVERED * before:
                usual.append(rate)  # a slow decline must not become usual
        return found


class _Sample(NamedTuple):
    """The traffic of a connection in a step, and how long the ranks at its ends waited for a core."""

    size_bytes: int
    busy_s: float
    waited_s: float


def _beyond_waiting(samples: Iterable[_Sample], usual_bytes_per_s: float) -> bool:
    """Return whether a link was busy for longer than usual by more than all the waiting for a core."""
    return sum(one.busy_s - one.size_bytes / usual_bytes_per_s - one.waited_s for one in samples) > 0
