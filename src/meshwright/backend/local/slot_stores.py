"""How slots are filled: through the caches, or past them.

Where the processors of two ranks share a cache, what one wrote is fetched from there. Where they do not (sockets, core
complexes), fetching it out of the other's cache takes longer than reading it from memory, so that a writer does better
to store past its cache. Which of the two is so may change while a job runs: threads move, and under a hypervisor so do
processors. So both ways are tried again and again, at the same calls on all ranks; in between the cheaper one is taken.
"""

from collections import deque

EVERY = 48  # calls of a kind at least; the first two of them try either way
EVERY_BYTES = 256 * 1024 * 1024  # of a kind at least, since processors move by the clock and not by calls
FIRST = 6  # calls that only try
KEPT = 3  # trials of each way that are remembered; the quickest of them counts, so that a disturbed one does not


class SlotStores:
    """The two ways for one kind of call."""

    def __init__(self, like: "SlotStores | None" = None, every: int = EVERY) -> None:
        """Start with trials, or with the way that `like` found better; try again after every `every` calls."""
        self._every = every
        self.streams: bool = like is not None and like.streams  # the better way
        self._calls = 0 if like is None else FIRST
        self._costs: tuple[deque[float], deque[float]] = (deque(maxlen=KEPT), deque(maxlen=KEPT))

    def next(self) -> bool:
        """Return whether the next call is to fill slots past the caches."""
        return bool(self._calls & 1) if self.tries else self.streams

    def note(self, cost: float) -> None:
        """Note what the call cost, per byte; on all ranks after every call."""
        if self.tries:
            self._costs[self._calls & 1].append(cost)
            through, past = self._costs
            self.streams = bool(past) and min(past) < min(through)
        self._calls += 1

    def settle(self) -> int:
        """Return for how many calls the better way is to be taken before the next trial; they need not be noted."""
        calls = 0 if self.tries else self._every - self._calls % self._every
        self._calls += calls
        return calls

    @property
    def tries(self) -> bool:
        """Whether the next call finds out what its way costs."""
        return self._calls < FIRST or self._calls % self._every < len(self._costs)


class SlotStoresByCall:
    """The ways of filling for every collective of a group, by powers of two of its size."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, SlotStores]] = {}

    def of(self, collective: str, size_bytes: int) -> SlotStores:
        """Return the state of a collective at this size."""
        sizes = self._known.setdefault(collective, {})
        power = size_bytes.bit_length()
        found = sizes.get(power)
        if found is None:
            nearest = min(sizes, key=lambda known: abs(known - power), default=None)
            every = max(EVERY, EVERY_BYTES >> power)
            found = sizes[power] = SlotStores(None if nearest is None else sizes[nearest], every)
        return found
