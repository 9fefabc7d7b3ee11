"""The interface that a process group has to its engine, and the engine for groups on one host.

Sizes and addresses only: tensors stay with the process group. All calls block, and come in the same order on all ranks.
"""

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..faults.failures import CollectiveError, FaultyRank
from ..faults.flight import FlightRecord
from ..group.signature import Signature
from ..hosts.placement import GroupMember
from ..wire.lines import SharedLine
from ..wire.mailbox import Mailbox
from . import move as local_move
from . import reduce as local_reduce
from .ranks import LocalGroup
from .reductions import Reduction
from .segment import Segment
from .weak import weakly


class GroupEngine(Protocol):
    """The collectives of one group."""

    members: tuple[GroupMember, ...]
    flight: FlightRecord
    mailbox: Mailbox
    inline: bool  # whether it is better to wait for an asynchronous collective than to compute beside it

    @property
    def broken(self) -> CollectiveError | None:
        """Why no further collective can run, if so."""

    def ask(self, call: Signature) -> None:
        """Say what the next collectives are, up to the next word: the ranks compare it."""

    def announce_and_poll(self, seconds: float) -> bool:
        """Say that this rank has come to its next collective; return whether all have, after `seconds` at most."""

    def all_reduce(self, address: int, count: int, kind: Reduction) -> None:
        """Reduce in place."""

    def reduce(self, address: int, count: int, kind: Reduction, root: int) -> None:
        """Reduce into the root's memory."""

    def reduce_scatter(self, sources: Sequence[int], target: int, counts: Sequence[int], kind: Reduction) -> None:
        """Reduce block i of all ranks into rank i's target."""

    def broadcast(self, address: int, size_bytes: int, root: int) -> None:
        """Copy from the root to all."""

    def all_gather(self, source: int, targets: Sequence[int], sizes_bytes: Sequence[int]) -> None:
        """Copy every rank's source to every rank's target."""

    def gather(self, source: int, targets: Sequence[int], size_bytes: int, root: int) -> None:
        """Copy every rank's source to the root's targets."""

    def scatter(self, sources: Sequence[int], target: int, size_bytes: int, root: int) -> None:
        """Copy the root's sources to every rank's target."""

    def all_to_all(
        self, sources: Sequence[int], sent_bytes: Sequence[int], targets: Sequence[int], received_bytes: Sequence[int]
    ) -> None:
        """Copy source j of rank i to target i of rank j."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    @property
    def connections(self) -> Mapping[int, socket.socket]:
        """The connections to ranks of other hosts that collectives go over, by rank."""

    def stopped(self, error: BaseException) -> None:
        """Hear of the error that ended a collective."""

    def set_timeout(self, timeout_s: float) -> None:
        """Set the time that a rank waits for another before it gives up."""

    def give_up(self, reason: str) -> None:
        """Tell the other ranks that this one stopped in the middle of a collective."""

    def close(self) -> None:
        """Leave the group."""

    def disown(self, error: CollectiveError) -> None:
        """Refuse every call with this error, in a forked child, and touch nothing that the ranks share."""


class LocalEngine:
    """All ranks on one host: everything goes through shared memory."""

    def __init__(self, segment: Segment, members: Sequence[GroupMember], me: GroupMember, timeout_s: float) -> None:
        group = self.group = LocalGroup(segment, members, me, timeout_s)
        self.members = group.members
        self.flight = group.flight
        lines = {member.rank: SharedLine(group, i) for i, member in enumerate(group.members) if i != group.rank}
        self.mailbox = Mailbox(me, group.members, lines, weakly(self._diagnose_wait))
        self.inline = group.crowded
        self.ask = group.ask
        self.announce_and_poll = group.announce_and_poll
        self.all_reduce = _bind(local_reduce.all_reduce, group)
        self.reduce = _bind(local_reduce.reduce, group)
        self.reduce_scatter = _bind(local_reduce.reduce_scatter, group)
        self.broadcast = _bind(local_move.broadcast, group)
        self.all_gather = _bind(local_move.all_gather, group)
        self.gather = _bind(local_move.gather, group)
        self.scatter = _bind(local_move.scatter, group)
        self.all_to_all = _bind(local_move.all_to_all, group)
        self.barrier = _bind(local_move.barrier, group)

    def _diagnose_wait(
        self,
        late: Sequence[int],
        waited_s: float | None,
        call: tuple[str, int, int],
        arrived: Callable[[int], bool],
    ) -> CollectiveError | None:
        return self.group.diagnose_p2p_wait(late, waited_s or 0.0, call, arrived)

    @property
    def broken(self) -> CollectiveError | None:
        """Why no further collective can run, if so."""
        return self.group.broken

    @property
    def connections(self) -> Mapping[int, socket.socket]:
        """None: all ranks are on one host."""
        return {}

    def stopped(self, error: BaseException) -> None:
        """Do nothing: the shared memory has told the others."""

    def set_timeout(self, timeout_s: float) -> None:
        """Set the time that a rank waits for another before it gives up."""
        self.group.timeout_s = timeout_s

    def give_up(self, reason: str) -> None:
        """Tell the other ranks that this one stopped in the middle of a collective."""
        culprit = FaultyRank.of(self.group.members[self.group.rank], reason)
        self.group.give_up(CollectiveError(str(culprit)), culprit)

    def close(self) -> None:
        """Leave the group."""
        self.mailbox.close(farewell=self.broken is None)
        self.group.leave()

    def disown(self, error: CollectiveError) -> None:
        """Refuse every call with this error, in a forked child, and touch nothing that the ranks share."""
        self.group.broken, self.inline = error, False
        self.mailbox.disown(error)


def _bind(function: Callable[..., None], group: LocalGroup) -> Callable[..., None]:
    """Return `function` with its first argument bound, as a method: no other form is called faster."""
    return function.__get__(group)  # type: ignore[no-any-return]
