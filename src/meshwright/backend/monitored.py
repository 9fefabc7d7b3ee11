"""A barrier that says which ranks did not come, through the store: the group can be used whatever comes of it."""

import time
from collections.abc import Sequence

from torch.distributed import Store

from .failures import CollectiveError, Culprit
from .hosts import Member

KEY, VERDICT = "monitored-barrier", "verdict"
PAUSE_S = 2e-3  # between two looks
GRACE_S = 1.0  # how much later than it should rank 0 may be with its verdict


class MonitoredBarrier:
    """The monitored barriers of one group, seen from `me`."""

    def __init__(self, store: Store, members: Sequence[Member], me: int) -> None:
        self._store = store
        self._members = {member.rank: member for member in members}
        self._me = me
        self._number = 0

    def wait(self, timeout_s: float) -> None:
        """Return when all ranks have come.

        Errors: `CollectiveError` that names those who did not come in time, on every rank that did.
        """
        self._number += 1
        self._store.set(self._key(self._me), "")
        reason = self._judge(timeout_s) if self._me == 0 else self._verdict(timeout_s)
        if reason:
            raise CollectiveError(f"Rank {self._me} timed out in monitoredBarrier {reason}")

    def _judge(self, timeout_s: float) -> str:
        """Look who comes in time, and tell all; return who did not, "" if all came. For rank 0."""
        deadline = time.monotonic() + timeout_s
        late = [self._members[rank] for rank in sorted(self._members) if not self._comes(rank, deadline)]
        reason = _reason(timeout_s, late) if late else ""
        self._store.set(self._key(VERDICT), reason)
        if not late and self._number > 1:
            self._tidy_up(self._number - 1)
        return reason

    def _tidy_up(self, number: int) -> None:
        """Remove what a barrier has left in the store, once all have come to the next one. For rank 0."""
        parts: list[int | str] = [*self._members, VERDICT]
        for part in parts:
            self._store.delete_key(self._key(part, number))

    def _verdict(self, timeout_s: float) -> str:
        """Return what rank 0 has found."""
        came = self._comes(0, time.monotonic() + timeout_s)
        if came and self._comes(VERDICT, time.monotonic() + timeout_s + GRACE_S):
            return self._store.get(self._key(VERDICT)).decode()
        return _reason(timeout_s, [self._members[0]])

    def _comes(self, part: int | str, deadline: float) -> bool:
        while not self._store.check([self._key(part)]):
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE_S)
        return True

    def _key(self, part: int | str, number: int | None = None) -> str:
        return f"{KEY}/{number or self._number}/{part}"


def _reason(timeout_s: float, late: Sequence[Member]) -> str:
    return f"after {timeout_s:g} s: " + ", ".join(str(Culprit.of(member, "did not come")) for member in late)
