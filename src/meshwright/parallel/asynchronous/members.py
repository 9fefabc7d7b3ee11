"""Membership: workers join, are heard, and leave."""

from collections.abc import Iterator
from typing import NamedTuple


class MemberChange(NamedTuple):
    """A worker came or went."""

    rank: int
    pid: int
    joined: bool
    reason: str  # why it left
    members: int  # how many are in now


class JoinedWorker:
    """One worker that is in. `position` is the next exchange that it will contribute to.

    `leased` is the exchange that its next lease belongs to: one ahead while a contribution is under way.
    """

    def __init__(self, number: int, rank: int, pid: int, host: str, position: int, now_s: float) -> None:
        self.number, self.rank, self.pid, self.host = number, rank, pid, host
        self.position = self.leased = position
        self.heard_s = now_s
        self.parked = False  # it waits for work that may never come, and others do not wait for it
        self.finished = False
        self.unsynced = 0  # fragments that hold progress which has not been contributed
        self.version = 0  # of the weights that it computes with
        self.shares_per_s = 0.0


class Members:
    """The workers that are in, by a number that is given once."""

    def __init__(self) -> None:
        self._in: dict[int, JoinedWorker] = {}
        self._given = 0

    def __iter__(self) -> Iterator[JoinedWorker]:
        return iter(self._in.values())

    def __len__(self) -> int:
        return len(self._in)

    def __contains__(self, number: int) -> bool:
        return number in self._in

    def __getitem__(self, number: int) -> JoinedWorker:
        return self._in[number]

    def get(self, number: int) -> JoinedWorker | None:
        """Return a worker, None if it is not in."""
        return self._in.get(number)

    def join(self, rank: int, pid: int, host: str, position: int, now_s: float) -> JoinedWorker:
        """Let a worker in."""
        member = JoinedWorker(self._given, rank, pid, host, position, now_s)
        self._in[self._given] = member
        self._given += 1
        return member

    def leave(self, number: int) -> JoinedWorker | None:
        """Let a worker go; None if it was not in."""
        return self._in.pop(number, None)

    @property
    def ranks(self) -> list[int]:
        """The ranks that are in."""
        return sorted(member.rank for member in self)

    @property
    def working(self) -> list[JoinedWorker]:
        """The members that others wait for."""
        return [member for member in self if not member.parked and not member.finished]

    def silent_since(self, before_s: float) -> list[JoinedWorker]:
        """Return the members that have not been heard from since a time."""
        return [member for member in self if member.heard_s < before_s]
