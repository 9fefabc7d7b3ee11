"""Calls of collectives as nouns: what each rank has called in each group, whatever file it was read from."""

import msgspec

from .where import GroupName, Where


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of one rank. `started` is None where the record does not tell whether the device began it."""

    rank: int
    seq: int
    operation: str
    where: Where
    numel_in: int | None = None
    numel_out: int | None = None
    types: tuple[str, ...] = ()
    ended: bool = False
    started: bool | None = None
    peer: int | None = None  # of a send or a receive, the other rank
    frame: str = ""  # the user's line that made it
    created_ns: int = 0
    took_s: float | None = None  # on the device, from its start to its end
    grain_s: float = 0.0  # by which that may be wrong

    @property
    def size(self) -> tuple[int | None, int | None]:
        """Elements in and out, None where they are not known."""
        return self.numel_in, self.numel_out

    def __str__(self) -> str:
        return f"{self.operation} #{self.seq}".lstrip()


class RankGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of one group: its calls by number, and how far it came by its own count."""

    rank: int
    calls: dict[int, Call] = {}
    transfers: tuple[Call, ...] = ()  # sends and receives, in order
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None
    where: Where | None = None

    def open(self) -> list[Call]:
        """Return the calls that have not ended, the oldest first."""
        return [call for _, call in sorted(self.calls.items()) if not call.ended]

    def came_to(self, seq: int) -> bool | None:
        """Return whether this rank has called number `seq`; None where its record does not tell."""
        if seq in self.calls:
            return True
        last = max([*self.calls, *([] if self.enqueued is None else [self.enqueued])], default=None)
        return None if last is None else last >= seq


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One process group with what its ranks wrote of it.

    `members` are the ranks that belong to it, as far as known; `whole` says that no other can.
    """

    name: GroupName
    ranks: dict[int, RankGroup]
    members: tuple[int, ...] = ()
    whole: bool = False

    def of(self, seq: int) -> dict[int, Call]:
        """Return each rank's call of this number."""
        return {rank: part.calls[seq] for rank, part in sorted(self.ranks.items()) if seq in part.calls}


def with_counted(
    calls: dict[int, Call], rank: int, enqueued: int | None, completed: int | None, where: Where
) -> dict[int, Call]:
    """Return the calls with the one that the counts show to be open, where no record of it is left."""
    if enqueued is None or completed is None or enqueued <= completed:
        return calls
    opened = max(completed, 0) + 1  # calls count from 1: c10d prints -1 before the first has ended
    return calls if opened in calls else {**calls, opened: Call(rank=rank, seq=opened, operation="", where=where)}
