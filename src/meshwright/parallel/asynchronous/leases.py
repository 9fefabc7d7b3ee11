"""Leases: which worker trains on which shares of the data.

A share is what one worker would draw of one global batch: share k is part k % workers of step k // workers. Shares are
leased in runs, in order; what a worker that has left did not finish is leased again.
"""

import heapq

import msgspec


class ShareRun(msgspec.Struct, frozen=True, order=True):
    """Shares `first` to `first + count - 1`."""

    first: int
    count: int


class Leases:
    """The shares from `first` to `end - 1`, each trained on once."""

    def __init__(self, first: int, end: int) -> None:
        self.end = end
        self.done = first  # how many shares are done
        self._next = first
        self._returned: list[ShareRun] = []
        self._out: dict[int, list[ShareRun]] = {}  # a worker may ask for more while its contribution is under way

    @property
    def left(self) -> int:
        """Shares that nobody has leased yet."""
        return self.end - self._next + sum(run.count for run in self._returned)

    def reach(self, workers: int) -> int:
        """Return how many steps, of `workers` shares, the next share lies ahead of the oldest under way."""
        oldest = min((run.first for mine in self._out.values() for run in mine), default=None)
        if oldest is None or self._returned:  # what was returned is older than what is out, or was leased with it
            return 0
        return self._next // workers - oldest // workers

    @property
    def holders(self) -> list[int]:
        """Members with shares under way, each as often as it has leases."""
        return [member for member, mine in self._out.items() for _ in mine]

    @property
    def is_over(self) -> bool:
        """Whether all shares are done."""
        return not self.left and not any(self._out.values())

    def take(self, member: int, count: int) -> ShareRun | None:
        """Lease up to `count` shares to a member; None if none is left."""
        if self._returned:
            run = heapq.heappop(self._returned)
            if run.count > count:
                heapq.heappush(self._returned, ShareRun(run.first + count, run.count - count))
                run = ShareRun(run.first, count)
        elif self._next < self.end:
            run = ShareRun(self._next, min(count, self.end - self._next))
            self._next += run.count
        else:
            return None
        self._out.setdefault(member, []).append(run)
        return run

    def finish(self, member: int, first: int) -> None:
        """Note that a member has contributed the lease that starts at `first`; KeyError if it has no such lease."""
        mine = self._out.get(member, [])
        run = next((run for run in mine if run.first == first), None)
        if run is None:
            raise KeyError(f"worker {member} has not leased share {first}")
        mine.remove(run)
        self.done += run.count

    def give_back(self, member: int) -> None:
        """Take back what a member that has left did not finish."""
        for run in self._out.pop(member, []):
            heapq.heappush(self._returned, run)

    def stop(self) -> None:
        """Lease nothing any more."""
        self.end = self._next
        self._returned.clear()
