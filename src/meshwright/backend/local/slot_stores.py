"""How bytes come to the other ranks: through slots that are filled through the caches or past them, or without slots.

Where the processors of two ranks share a cache, what one wrote is fetched from there. Where they do not (sockets, core
complexes), fetching it out of the other's cache takes longer than reading it from memory, so that a writer does better
to store past its cache. Which of the two is so may change while a job runs: threads move, and under a hypervisor so do
processors. Where ranks may read each other's memory, the kernel copies once what goes through slots twice, but looks up
each page. So all ways are tried again and again, at the same calls on all ranks; in between the cheapest one is taken.
"""

from collections import deque
from enum import IntEnum

EVERY = 48  # calls of a kind at least; the first of them try each way
EVERY_BYTES = 256 * 1024 * 1024  # of a kind at least, since processors move by the clock and not by calls
KEPT = 3  # trials of each way that are remembered; the quickest of them counts, so that a disturbed one does not


class Way(IntEnum):
    """The ways, as in helper.h."""

    THROUGH = 0  # slots are filled through the caches
    PAST = 1  # and past them
    READ = 2  # others read this rank's memory


class SlotStores:
    """The first `ways` ways for one kind of call."""

    def __init__(self, like: "SlotStores | None" = None, every: int = EVERY, ways: int = 2) -> None:
        """Start with trials, or with the way that `like` found best; try again after every `every` calls."""
        self._every = every
        self.ways = ways
        self.best: Way = Way.THROUGH if like is None else like.best
        self._calls = 0 if like is None else KEPT * ways
        self._costs: dict[Way, deque[float]] = {way: deque(maxlen=KEPT) for way in Way}

    def next(self) -> Way:
        """Return how the next call is to be made."""
        return Way(self._calls % self._every % self.ways) if self.tries else self.best

    def note(self, cost: float) -> None:
        """Note what the call cost, per byte; on all ranks after every call."""
        if self.tries:
            self._costs[self.next()].append(cost)
            self.best = min((min(costs), way) for way, costs in self._costs.items() if costs)[1]
        self._calls += 1

    def settle(self) -> int:
        """Return for how many calls the best way is to be taken before the next trial; they need not be noted."""
        calls = 0 if self.tries else self._every - self._calls % self._every
        self._calls += calls
        return calls

    @property
    def tries(self) -> bool:
        """Whether the next call finds out what its way costs."""
        return self._calls < KEPT * self.ways or self._calls % self._every < self.ways


class SlotStoresByCall:
    """The ways of every collective of a group, by powers of two of its size."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, SlotStores]] = {}

    def of(self, collective: str, size_bytes: int, ways: int = 2) -> SlotStores:
        """Return the state of a collective at this size, in which the first `ways` ways can be had."""
        sizes = self._known.setdefault(collective, {})
        power = size_bytes.bit_length()
        found = sizes.get(power)
        if found is None:
            nearest = min(sizes, key=lambda known: abs(known - power), default=None)
            every = max(EVERY, EVERY_BYTES >> power)
            found = sizes[power] = SlotStores(None if nearest is None else sizes[nearest], every, ways)
        found.ways = ways
        return found
