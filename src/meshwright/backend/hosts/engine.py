"""The engine for ranks on several hosts: shared memory inside each host, TCP between them.

The large reductions go in three steps: the ranks of a host reduce one piece each, ranks with the same place on their
hosts (a column) reduce their piece over the network, and the ranks of a host fetch each other's pieces. So all ranks of
a host share its NIC, and each byte crosses it as few times as possible. If all hosts have equally many ranks,
all-gather takes the last two of these steps and reduce-scatter the first two. Broadcasts and reductions to one rank
cross between one rank of each host.
"""

import contextlib
import ctypes
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..faults.blame_board import WORD_S
from ..faults.failures import CollectiveError, CollectiveMismatch, FaultyRank, RankFailure
from ..group.options import GroupOptions
from ..group.signature import Signature
from ..local.engine import LocalEngine
from ..local.reduce import piece_bounds
from ..local.reductions import Reduction, reduction
from ..local.segment import Segment
from ..local.weak import weakly
from ..wire.lines import RankLine, SharedLine, SocketLine
from ..wire.mailbox import Mailbox
from ..wire.transport import Incoming, Outgoing
from ..wire.transport_tcp import TcpTransport
from .network import HostsView, as_tensor
from .placement import GroupMember, hosts_of

MAX_SEGMENTS = 6
SEGMENT_BYTES = 2 * 2**20  # at least; smaller ones cost more in round trips than they hide
SMALL_BYTES = 64 * 1024  # up to here one rank of each host speaks for all of them


class HostsEngine:
    """The collectives of a group whose ranks are on several hosts."""

    inline = False

    def __init__(
        self,
        store: Any,
        segment: Segment,
        members: Sequence[GroupMember],
        me: GroupMember,
        timeout_s: float,
        *,
        address: str,
        options: GroupOptions,
    ) -> None:
        self.members = tuple(members)
        self._me = me
        self._hosts = hosts_of(members)
        mine = next(ranks for ranks in self._hosts if me.rank in ranks)
        self._place = mine.index(me.rank)
        self._local = LocalEngine(segment, [members[rank] for rank in mine], me, timeout_s)
        self.flight = self._local.flight
        with contextlib.ExitStack() as opened:  # a group that cannot be made leaves no descriptors
            opened.callback(self._local.close)
            self._connect(store, mine, timeout_s, address, options)
            opened.pop_all()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="meshwright-network")

    def _connect(self, store: Any, mine: Sequence[int], timeout_s: float, address: str, options: GroupOptions) -> None:
        """Connect to the ranks of other hosts, for collectives and for messages; `mine` are the ranks of this host."""
        group, me, members = self._local.group, self._me, self.members
        self.network = HostsView(
            store, members, self._hosts, group, timeout_s=timeout_s, address=address, options=options
        )
        self._even = all(len(ranks) == self.network.columns for ranks in self._hosts)
        mail = TcpTransport(store, me.rank, len(members), prefix="mail", address=address, timeout_s=timeout_s)
        lines: dict[int, RankLine] = {
            rank: SharedLine(group, mine.index(rank)) if rank in mine else SocketLine(connection)
            for rank, connection in sorted(mail.connections.items())  # from here on they are the mailbox's
        }
        self.mailbox = Mailbox(me, members, lines, weakly(self._diagnose_p2p_wait))
        self.network.say_last = self.mailbox.say
        self.network.last_word = partial(self.mailbox.last_word, patience_s=WORD_S)

    def ask(self, call: Signature) -> None:
        """Say what the next collectives are: the ranks compare it."""
        self._local.ask(call)
        self.network.ask(call)
        self.network.transport.timeout_s = self.flight.time_limit_s(self._local.group.timeout_s)

    def announce_and_poll(self, seconds: float) -> bool:
        """Return False: the network's part of a collective goes on beside computation."""
        return False

    # ---- reductions

    def all_reduce(self, address: int, count: int, kind: Reduction) -> None:
        """Reduce in place."""
        if not count:
            return
        self.network.look_at_links()
        base = reduction(kind.dtype, "sum") if kind.operator == "avg" else kind
        if count * kind.item_bytes <= SMALL_BYTES:
            self._local.reduce(address, count, base, 0)
            if self._place == 0:
                self.network.reduce_column(address, count, base)
            self._local.broadcast(address, count * kind.item_bytes, 0)
        else:
            self._in_segments(address, count, base)
        if kind.operator == "avg":
            kind.divide(kind.at(address, count), len(self.members))

    def _in_segments(self, address: int, count: int, kind: Reduction) -> None:
        """Reduce segment by segment, the network on its own thread, so that it seldom waits for the shared memory.

        Every rank does the same in the same order: all first steps, then all third steps, each once the network has
        brought its segment; the second steps follow each other on the network's thread.
        """
        segments = min(MAX_SEGMENTS, max(1, count * kind.item_bytes // SEGMENT_BYTES))
        edges = piece_bounds(count, segments, kind.item_bytes)
        under_way = []
        for first, last in pairwise(edges):
            starts, counts = self._pieces(address, first, last, kind)
            own, length = starts[self._place], counts[self._place]
            self._local.reduce_scatter(starts, own, counts, kind)
            future = None
            if length and segments == 1:  # nothing of this call goes on beside it
                self.network.reduce_column(own, length, kind)
            elif length:
                future = self._thread.submit(self.network.reduce_column, own, length, kind)
            under_way.append((starts, [n * kind.item_bytes for n in counts], future))
        for starts, sizes, future in under_way:
            if future is not None:
                future.result()
            self._local.all_gather(starts[self._place], starts, sizes)

    def _pieces(self, address: int, first: int, last: int, kind: Reduction) -> tuple[list[int], list[int]]:
        """Return address and element count of the piece of a segment that each rank of this host reduces."""
        local = self._local.group.size
        bounds = piece_bounds(last - first, self.network.columns, kind.item_bytes)
        bounds += [last - first] * (local - self.network.columns)
        starts = [address + (first + start) * kind.item_bytes for start in bounds[:local]]
        return starts, [bounds[i + 1] - bounds[i] for i in range(local)]

    def reduce(self, address: int, count: int, kind: Reduction, root: int) -> None:
        """Reduce into the root's memory: into one rank of every host, and from those into the root."""
        if not count:
            return
        base = reduction(kind.dtype, "sum") if kind.operator == "avg" else kind
        here, heads = self._heads(root)
        data = as_tensor(address, count, kind.dtype)
        scratch = data.clone() if self._me.rank in heads and self._me.rank != root else data
        head = heads[self._host_of(self._me.rank)]
        self._local.reduce(scratch.data_ptr(), count, base, self._place_of(head))
        if self._me.rank in heads:
            schedule = self.network.schedule("reduce", "binomial", len(heads), here)
            with self.network.blaming():
                self.network.among(heads).reduce(scratch, schedule, base.operator, wire=self.network.wire_of(base))
        if kind.operator == "avg" and self._me.rank == root:
            kind.divide(kind.at(address, count), len(self.members))

    def reduce_scatter(self, sources: Sequence[int], target: int, counts: Sequence[int], kind: Reduction) -> None:
        """Reduce block i of all ranks into rank i's target: inside the host the blocks of a column, then the column."""
        base = reduction(kind.dtype, "sum") if kind.operator == "avg" else kind
        parts = [as_tensor(source, count, kind.dtype) for source, count in zip(sources, counts, strict=True)]
        output = as_tensor(target, counts[self._me.rank], kind.dtype)
        ranks: Sequence[int] = range(len(self.members))
        if self._even:
            columns = list(zip(*self._hosts, strict=True))  # of each place the ranks, in the order of the hosts
            whole = torch.cat([parts[rank] for column in columns for rank in column])
            lengths = [sum(counts[rank] for rank in column) for column in columns]
            starts = [
                whole.data_ptr() + sum(lengths[:place]) * kind.item_bytes for place in range(self.network.columns)
            ]
            source = torch.empty(lengths[self._place], dtype=kind.dtype)
            self._local.reduce_scatter(starts, source.data_ptr(), lengths, base)
            ranks = self.network.column_ranks
        else:
            source = torch.cat(parts)
        if source.numel():
            schedule = self.network.schedule("reduce_scatter", "ring", len(ranks))
            own = [counts[rank] for rank in ranks]
            with self.network.blaming():
                self.network.among(ranks).reduce_scatter(
                    output, source, schedule, base.operator, counts=own, wire=self.network.wire_of(base)
                )
        if kind.operator == "avg" and output.numel():
            kind.divide(kind.at(target, output.numel()), len(self.members))

    # ---- copies

    def broadcast(self, address: int, size_bytes: int, root: int) -> None:
        """Copy from the root to all: to one rank of every host, and on from there."""
        if not size_bytes:
            return
        here, heads = self._heads(root)
        if self._me.rank in heads:
            schedule = self.network.schedule("broadcast", "binomial", len(heads), here)
            with self.network.blaming():
                self.network.among(heads).broadcast(_bytes(address, size_bytes), schedule)
        self._local.broadcast(address, size_bytes, self._place_of(heads[self._host_of(self._me.rank)]))

    def _heads(self, root: int) -> tuple[int, tuple[int, ...]]:
        """Return the root's host, and the rank of each host that speaks for it: the root on its own, else the first."""
        here = self._host_of(root)
        return here, tuple(root if i == here else ranks[0] for i, ranks in enumerate(self._hosts))

    def _host_of(self, rank: int) -> int:
        return next(i for i, ranks in enumerate(self._hosts) if rank in ranks)

    def _place_of(self, rank: int) -> int:
        return self._hosts[self._host_of(rank)].index(rank)

    def all_gather(self, source: int, targets: Sequence[int], sizes_bytes: Sequence[int]) -> None:
        """Copy every rank's source to every rank's target: along the columns, then inside the hosts."""
        mine = _bytes(source, sizes_bytes[self._me.rank])
        ranks: Sequence[int] = self.network.column_ranks if self._even else range(len(self.members))
        sizes = [sizes_bytes[rank] for rank in ranks]
        output = torch.empty(sum(sizes), dtype=torch.uint8)
        if output.numel():
            with self.network.blaming():
                self.network.among(ranks).all_gather(
                    output, mine, self.network.schedule("all_gather", "ring", len(ranks)), counts=sizes
                )
        if self._even:
            columns = list(zip(*self._hosts, strict=True))
            lengths = [sum(sizes_bytes[rank] for rank in column) for column in columns]
            whole = torch.empty(sum(lengths), dtype=torch.uint8)
            starts = [whole.data_ptr() + sum(lengths[:place]) for place in range(self.network.columns)]
            self._local.all_gather(output.data_ptr(), starts, lengths)
            output, ranks = whole, [rank for column in columns for rank in column]
        self._deal(output, [targets[rank] for rank in ranks], [sizes_bytes[rank] for rank in ranks])

    def gather(self, source: int, targets: Sequence[int], size_bytes: int, root: int) -> None:
        """Copy every rank's source to the root's targets."""
        ranks = len(self.members)
        output = torch.empty(ranks * size_bytes, dtype=torch.uint8) if self._me.rank == root else None
        with self.network.blaming():
            schedule = self.network.schedule("gather", "linear", ranks, root)
            self.network.among(range(ranks)).gather(output, _bytes(source, size_bytes), schedule)
        if output is not None:
            self._deal(output, targets, [size_bytes] * ranks)

    def scatter(self, sources: Sequence[int], target: int, size_bytes: int, root: int) -> None:
        """Copy the root's sources to every rank's target."""
        given = torch.cat([_bytes(source, size_bytes) for source in sources]) if self._me.rank == root else None
        ranks = len(self.members)
        with self.network.blaming():
            schedule = self.network.schedule("scatter", "linear", ranks, root)
            self.network.among(range(ranks)).scatter(_bytes(target, size_bytes), given, schedule)

    def all_to_all(
        self, sources: Sequence[int], sent_bytes: Sequence[int], targets: Sequence[int], received_bytes: Sequence[int]
    ) -> None:
        """Copy source j of rank i to target i of rank j, all at once."""
        me = self._me.rank
        ctypes.memmove(targets[me], sources[me], sent_bytes[me])
        others = [rank for rank in range(len(self.members)) if rank != me]
        sends = [Outgoing(rank, _bytes(sources[rank], sent_bytes[rank])) for rank in others]
        receives = [Incoming(rank, _bytes(targets[rank], received_bytes[rank])) for rank in others]
        with self.network.blaming():
            self.network.transport.exchange(sends, receives)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._local.barrier()
        if self._place == 0:
            with self.network.blaming():
                heads = self.network.among([ranks[0] for ranks in self._hosts])
                heads.barrier(self.network.schedule("barrier", "dissemination", len(self._hosts)))
        self._local.barrier()

    def _deal(self, output: Tensor, targets: Sequence[int], sizes_bytes: Sequence[int]) -> None:
        address = output.data_ptr()
        for target, size_bytes in zip(targets, sizes_bytes, strict=True):
            ctypes.memmove(target, address, size_bytes)
            address += size_bytes

    # ---- trouble

    @property
    def broken(self) -> CollectiveError | None:
        """Why no further collective can run, if so."""
        return self._local.broken

    def _diagnose_p2p_wait(
        self, late: Sequence[int], waited_s: float | None, call: tuple[str, int, int], arrived: Callable[[int], bool]
    ) -> CollectiveError | None:
        group = self._local.group
        places = {member.rank: i for i, member in enumerate(group.members)}
        away = [rank for rank in late if rank not in places]
        if away and (waited_s is None or waited_s > group.timeout_s):
            return self.network.failure(self.members[away[0]], call, lost=waited_s is None)
        near = [places[rank] for rank in late if rank in places]
        error = group.diagnose_p2p_wait(near, waited_s or 0.0, call, lambda place: arrived(group.members[place].rank))
        if error is not None:
            self.stopped(error)
        return error

    @property
    def connections(self) -> Mapping[int, socket.socket]:
        """The connections to ranks of other hosts that collectives go over, by rank."""
        return self.network.transport.connections

    def stopped(self, error: BaseException) -> None:
        """Tell the other hosts of an error that this host's shared memory told of."""
        culprit = error.culprit if isinstance(error, RankFailure | CollectiveMismatch) else None
        if culprit is not None:
            self.network.leave_calls()
            self.network.tell(culprit)

    def give_up(self, reason: str) -> None:
        """Tell the other ranks that this one stopped in the middle of a collective."""
        self._local.give_up(reason)
        self.network.tell(FaultyRank.of(self._me, reason))

    def set_timeout(self, timeout_s: float) -> None:
        """Set the time that a rank waits for another before it gives up."""
        self._local.set_timeout(timeout_s)

    def close(self) -> None:
        """Leave the group."""
        self.mailbox.close(farewell=self.broken is None)
        self._local.close()
        if self._local.group.broken is None:  # a later call finds no connections, and one under way loses them
            self._local.group.broken = CollectiveError("it was shut down")
        self.network.close()
        self._thread.shutdown(wait=False)  # what is queued fails: a caller that waits for it hears why

    def disown(self, error: CollectiveError) -> None:
        """Refuse every call with this error, in a forked child, and touch nothing that the ranks share."""
        self._local.disown(error)
        self.mailbox.disown(error)


def _bytes(address: int, size_bytes: int) -> Tensor:
    return as_tensor(address, size_bytes, torch.uint8)
