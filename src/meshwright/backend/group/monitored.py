"""A barrier that says which ranks did not come, through the store: the group can be used whatever comes of it."""

import time
from collections.abc import Sequence

from torch.distributed import Store

from ..faults.failures import CollectiveError, FaultyRank
from ..hosts.placement import GroupMember

KEY, VERDICT = "monitored-barrier", "verdict"
PAUSE_S = 2e-3  # between two looks
GRACE_S = 1.0  # how late the verdict of rank 0 may be


class MonitoredBarrier:
    """The monitored barriers of one group, seen from `me`."""

    def __init__(self, store: Store, members: Sequence[GroupMember], me: int) -> None:
        self._store = store
        self._members = {member.rank: member for member in members}
        self._me = me
        self._number = 0

    def wait(self, timeout_s: float, *, name_all: bool) -> None:
        """Return when all ranks have come.

        Errors: `CollectiveError` that names the late ranks, raised on every rank that came in time. It begins as Gloo's
        does, with the first late rank in group order, or with all of them if rank 0 has `name_all`.
        """
        self._number += 1
        self._store.set(self._key(self._me), "")
        if self._me == 0:
            late = self._judge(timeout_s)
            if late:
                ranks = f"Ranks {', '.join(map(str, late))}" if name_all else f"Rank {late[0]}"
                raise CollectiveError(f"{ranks} failed to pass monitoredBarrier. {self._timed_out(timeout_s, late)}")
        elif not self._comes(0, time.monotonic() + timeout_s):
            raise CollectiveError(self._timed_out(timeout_s, [0]))
        elif reason := self._verdict(timeout_s):
            reached = f"Rank {self._me} successfully reached monitoredBarrier, but received errors while waiting for"
            raise CollectiveError(f"{reached} send/recv from rank 0. {reason}")

    def _judge(self, timeout_s: float) -> list[int]:
        """Find the ranks that come in time, and publish the result; return the late ones. Called on rank 0."""
        deadline = time.monotonic() + timeout_s
        late = [rank for rank in sorted(self._members) if not self._comes(rank, deadline)]
        self._store.set(self._key(VERDICT), self._timed_out(timeout_s, late) if late else "")
        if not late and self._number > 1:
            self._tidy_up(self._number - 1)
        return late

    def _tidy_up(self, number: int) -> None:
        """Remove what a barrier has left in the store, once all have come to the next one. For rank 0."""
        parts: list[int | str] = [*self._members, VERDICT]
        for part in parts:
            self._store.delete_key(self._key(part, number))

    def _verdict(self, timeout_s: float) -> str:
        """Return what rank 0 has found, "" if all came."""
        if self._comes(VERDICT, time.monotonic() + timeout_s + GRACE_S):
            return self._store.get(self._key(VERDICT)).decode()
        return self._timed_out(timeout_s, [0])

    def _timed_out(self, timeout_s: float, late: Sequence[int]) -> str:
        names = ", ".join(str(FaultyRank.of(self._members[rank], "did not come")) for rank in late)
        return f"Rank {self._me} timed out in monitoredBarrier after {timeout_s:g} s: {names}"

    def _comes(self, part: int | str, deadline: float) -> bool:
        while not self._store.check([self._key(part)]):
            if time.monotonic() >= deadline:
                return False
            time.sleep(PAUSE_S)
        return True

    def _key(self, part: int | str, number: int | None = None) -> str:
        return f"{KEY}/{number or self._number}/{part}"
