"""The engine for ranks on several hosts: shared memory inside each host, TCP between them.

The large reductions go in three steps: the ranks of a host reduce one piece each, ranks with the same place on their
hosts (a column) reduce their piece over the network, and the ranks of a host fetch each other's pieces; so that all
ranks of a host share its NIC, and each byte crosses it as rarely as can be. All-gather and reduce-scatter take the last
two and the first two of these steps where all hosts have equally many ranks. Broadcasts and reductions to one rank
cross between one rank of each host.
"""

import contextlib
import ctypes
import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..collectives import algorithms
from .choice import Links, choose, price_s
from .engine import LocalEngine
from .executor import Executor
from .failures import CollectiveError, RankFailure
from .hosts import Member, hosts_of
from .lines import Line, SharedLine, SocketLine
from .links import LinkCache, Watch, measure
from .local_reduce import piece_bounds
from .mailbox import Mailbox
from .options import WIRE_TYPES, GroupOptions
from .reductions import Reduction, reduction
from .transport import Incoming, Outgoing, Transport, TransportError
from .transport_tcp import TcpTransport

BLAME_KEY = "blame"
MAX_SEGMENTS = 6
SEGMENT_BYTES = 2 * 2**20  # at least; smaller ones cost more in round trips than they hide
SMALL_BYTES = 64 * 1024  # up to here one rank of each host speaks for all of them


class Among:
    """The part of a transport that joins some of its ranks, numbered in their order."""

    def __init__(self, whole: Transport, members: Sequence[int]) -> None:
        self.rank = members.index(whole.rank)
        self.ranks = len(members)
        self._whole = whole
        self._members = members

    def exchange(self, sends: Sequence[Outgoing], receives: Sequence[Incoming]) -> None:
        """Send and receive all these messages."""
        for outgoing in sends:
            outgoing.peer = self._members[outgoing.peer]
        for incoming in receives:
            incoming.peer = self._members[incoming.peer]
        self._whole.exchange(sends, receives)

    def close(self) -> None:
        """Nothing of its own to let go of."""


class HostsEngine:
    """The collectives of a group whose ranks are on several hosts."""

    inline = False

    def __init__(
        self,
        store: Any,
        members: Sequence[Member],
        me: Member,
        timeout_s: float,
        *,
        address: str,
        options: GroupOptions,
    ) -> None:
        self.members = tuple(members)
        self._me = me
        self._store = store
        self._hosts = hosts_of(members)
        mine = next(ranks for ranks in self._hosts if me.rank in ranks)
        self._local = LocalEngine(store, [members[rank] for rank in mine], me, timeout_s, members)
        self._place = mine.index(me.rank)
        self._columns = min(len(ranks) for ranks in self._hosts)
        self._even = all(len(ranks) == self._columns for ranks in self._hosts)
        self._network = TcpTransport(
            store, me.rank, len(members), prefix="collectives", address=address, timeout_s=timeout_s
        )
        mail = TcpTransport(store, me.rank, len(members), prefix="mail", address=address, timeout_s=timeout_s)
        group = self._local.group
        lines: dict[int, Line] = {
            rank: SharedLine(group, mine.index(rank)) if rank in mine else SocketLine(connection)
            for rank, connection in mail.connections.items()  # from here on they are the mailbox's
        }
        self.mailbox = Mailbox(me, members, lines, self._doubt_letters)
        self.flight = self._local.flight
        self._executors: dict[tuple[int, ...], Executor] = {}
        self._column_ranks = tuple(ranks[self._place] for ranks in self._hosts) if self._place < self._columns else ()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="meshwright-network")
        self._schedules: dict[tuple[str, str, int, int], Any] = {}
        self._algorithm = options.algorithm
        self._wire = WIRE_TYPES[options.wire]
        self._watch = Watch()
        self._cache = LinkCache(members, self._columns, address)
        self.links = self._known() or self._measured()

    def _known(self) -> Links | None:
        """Return the links that rank 0 remembers, the same on all ranks, or None."""
        links = self._cache.get() if self._me.rank == 0 else None
        alpha_s, beta_s_per_byte = self._largest([links.alpha_s, links.beta_s_per_byte] if links else [0.0, 0.0])
        return Links(alpha_s, beta_s_per_byte) if alpha_s else None

    def _measured(self) -> Links:
        """Measure the links with all columns at work at once, agree on the slowest, and remember them."""
        figures = [0.0, 0.0]
        if self._column_ranks:
            with self._blaming():
                column = self._among(self._column_ranks)
                links = measure(column, self._schedule("all_reduce", "one_shot", len(self._hosts)))
            figures = [links.alpha_s, links.beta_s_per_byte]
        links = Links(*self._largest(figures))
        if self._me.rank == 0:
            self._cache.put(links)
        return links

    def _largest(self, figures: Sequence[float]) -> list[float]:
        """Return the largest of each figure over all ranks."""
        tensor = torch.tensor(figures, dtype=torch.float64)
        with self._blaming():
            everyone = self._among(range(len(self.members)))
            everyone.all_reduce(tensor, self._schedule("all_reduce", "recursive_doubling"), "max")
        return tensor.tolist()

    def _look_again(self) -> None:
        """Measure the links again where reductions have left their price for good on any rank."""
        taken = self._watch.taken()
        slow, quick = self._largest([taken, 1 / taken if taken else 0.0])
        ratio = slow if slow > 1 or not quick else 1 / quick
        if self._watch.has_left(ratio):
            before, self.links = self.links, self._measured()
            self._watch.measured_again(ratio, before, self.links)

    def _among(self, ranks: Sequence[int]) -> Executor:
        """Return the executor of some ranks, always the same one, so that it compiles each program once."""
        key = tuple(ranks)
        if key not in self._executors:
            self._executors[key] = Executor(Among(self._network, key))
        return self._executors[key]

    # ---- reductions

    def all_reduce(self, address: int, count: int, kind: Reduction) -> None:
        """Reduce in place."""
        if not count:
            return
        if not self._algorithm and self._watch.is_due():
            self._look_again()
        base = reduction(kind.dtype, "sum") if kind.operator == "avg" else kind
        if count * kind.item_bytes <= SMALL_BYTES:
            self._local.reduce(address, count, base, 0)
            if self._place == 0:
                self._reduce_column(address, count, base)
            self._local.broadcast(address, count * kind.item_bytes, 0)
        else:
            self._in_segments(address, count, base)
        if kind.operator == "avg":
            kind.divide(kind.at(address, count), len(self.members))

    def _in_segments(self, address: int, count: int, kind: Reduction) -> None:
        """Reduce segment by segment, the network on its own thread, so that it hardly waits for the shared memory.

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
            future = self._thread.submit(self._reduce_column, own, length, kind) if length else None
            under_way.append((starts, [n * kind.item_bytes for n in counts], future))
        for starts, sizes, future in under_way:
            if future is not None:
                future.result()
            self._local.all_gather(starts[self._place], starts, sizes)

    def _pieces(self, address: int, first: int, last: int, kind: Reduction) -> tuple[list[int], list[int]]:
        """Return address and element count of the piece of a segment that each rank of this host reduces."""
        local = self._local.group.size
        bounds = piece_bounds(last - first, self._columns, kind.item_bytes)
        bounds += [last - first] * (local - self._columns)
        starts = [address + (first + start) * kind.item_bytes for start in bounds[:local]]
        return starts, [bounds[i + 1] - bounds[i] for i in range(local)]

    def _reduce_column(self, address: int, count: int, kind: Reduction) -> None:
        hosts, size_bytes = len(self._hosts), count * kind.item_bytes
        wire = self._wire_of(kind)
        name = self._algorithm or choose(self.links, hosts, size_bytes)
        start = time.perf_counter()
        with self._blaming():
            self._among(self._column_ranks).all_reduce(
                _tensor(address, count, kind.dtype),
                self._schedule("all_reduce", name, hosts),
                kind.operator,
                wire=wire,
            )
        if not self._algorithm and wire is None:
            self._watch.note(time.perf_counter() - start, price_s(name, self.links, hosts, size_bytes))

    def _wire_of(self, kind: Reduction) -> torch.dtype | None:
        return self._wire if kind.dtype == torch.float32 and kind.operator == "sum" else None

    def reduce(self, address: int, count: int, kind: Reduction, root: int) -> None:
        """Reduce into the root's memory: into one rank of every host, and from those into the root."""
        if not count:
            return
        base = reduction(kind.dtype, "sum") if kind.operator == "avg" else kind
        here, heads = self._heads(root)
        data = _tensor(address, count, kind.dtype)
        scratch = data.clone() if self._me.rank in heads and self._me.rank != root else data
        head = heads[self._host_of(self._me.rank)]
        self._local.reduce(scratch.data_ptr(), count, base, self._place_of(head))
        if self._me.rank in heads:
            schedule = self._schedule("reduce", "binomial", len(heads), here)
            with self._blaming():
                self._among(heads).reduce(scratch, schedule, base.operator, wire=self._wire_of(base))
        if kind.operator == "avg" and self._me.rank == root:
            kind.divide(kind.at(address, count), len(self.members))

    def reduce_scatter(self, sources: Sequence[int], target: int, counts: Sequence[int], kind: Reduction) -> None:
        """Reduce block i of all ranks into rank i's target: inside the host the blocks of a column, then the column."""
        base = reduction(kind.dtype, "sum") if kind.operator == "avg" else kind
        parts = [_tensor(source, count, kind.dtype) for source, count in zip(sources, counts, strict=True)]
        output = _tensor(target, counts[self._me.rank], kind.dtype)
        ranks: Sequence[int] = range(len(self.members))
        if self._even:
            columns = list(zip(*self._hosts, strict=True))  # of each place the ranks, in the order of the hosts
            whole = torch.cat([parts[rank] for column in columns for rank in column])
            lengths = [sum(counts[rank] for rank in column) for column in columns]
            starts = [whole.data_ptr() + sum(lengths[:place]) * kind.item_bytes for place in range(self._columns)]
            source = torch.empty(lengths[self._place], dtype=kind.dtype)
            self._local.reduce_scatter(starts, source.data_ptr(), lengths, base)
            ranks = self._column_ranks
        else:
            source = torch.cat(parts)
        if source.numel():
            schedule = self._schedule("reduce_scatter", "ring", len(ranks))
            own = [counts[rank] for rank in ranks]
            with self._blaming():
                self._among(ranks).reduce_scatter(
                    output, source, schedule, base.operator, counts=own, wire=self._wire_of(base)
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
            schedule = self._schedule("broadcast", "binomial", len(heads), here)
            with self._blaming():
                self._among(heads).broadcast(_bytes(address, size_bytes), schedule)
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
        ranks: Sequence[int] = self._column_ranks if self._even else range(len(self.members))
        sizes = [sizes_bytes[rank] for rank in ranks]
        output = torch.empty(sum(sizes), dtype=torch.uint8)
        if output.numel():
            with self._blaming():
                self._among(ranks).all_gather(
                    output, mine, self._schedule("all_gather", "ring", len(ranks)), counts=sizes
                )
        if self._even:
            columns = list(zip(*self._hosts, strict=True))
            lengths = [sum(sizes_bytes[rank] for rank in column) for column in columns]
            whole = torch.empty(sum(lengths), dtype=torch.uint8)
            starts = [whole.data_ptr() + sum(lengths[:place]) for place in range(self._columns)]
            self._local.all_gather(output.data_ptr(), starts, lengths)
            output, ranks = whole, [rank for column in columns for rank in column]
        self._deal(output, [targets[rank] for rank in ranks], [sizes_bytes[rank] for rank in ranks])

    def gather(self, source: int, targets: Sequence[int], size_bytes: int, root: int) -> None:
        """Copy every rank's source to the root's targets."""
        ranks = len(self.members)
        output = torch.empty(ranks * size_bytes, dtype=torch.uint8) if self._me.rank == root else None
        with self._blaming():
            schedule = self._schedule("gather", "linear", ranks, root)
            self._among(range(ranks)).gather(output, _bytes(source, size_bytes), schedule)
        if output is not None:
            self._deal(output, targets, [size_bytes] * ranks)

    def scatter(self, sources: Sequence[int], target: int, size_bytes: int, root: int) -> None:
        """Copy the root's sources to every rank's target."""
        given = torch.cat([_bytes(source, size_bytes) for source in sources]) if self._me.rank == root else None
        ranks = len(self.members)
        with self._blaming():
            schedule = self._schedule("scatter", "linear", ranks, root)
            self._among(range(ranks)).scatter(_bytes(target, size_bytes), given, schedule)

    def all_to_all(
        self, sources: Sequence[int], sent_bytes: Sequence[int], targets: Sequence[int], received_bytes: Sequence[int]
    ) -> None:
        """Copy source j of rank i to target i of rank j, all at once."""
        me = self._me.rank
        ctypes.memmove(targets[me], sources[me], sent_bytes[me])
        others = [rank for rank in range(len(self.members)) if rank != me]
        sends = [Outgoing(rank, _bytes(sources[rank], sent_bytes[rank])) for rank in others]
        receives = [Incoming(rank, _bytes(targets[rank], received_bytes[rank])) for rank in others]
        with self._blaming():
            self._network.exchange(sends, receives)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._local.barrier()
        if self._place == 0:
            with self._blaming():
                heads = self._among([ranks[0] for ranks in self._hosts])
                heads.barrier(self._schedule("barrier", "dissemination", len(self._hosts)))
        self._local.barrier()

    def _deal(self, output: Tensor, targets: Sequence[int], sizes_bytes: Sequence[int]) -> None:
        address = output.data_ptr()
        for target, size_bytes in zip(targets, sizes_bytes, strict=True):
            ctypes.memmove(target, address, size_bytes)
            address += size_bytes

    def _schedule(self, collective: str, name: str, ranks: int | None = None, root: int = 0) -> Any:
        """Return a schedule, always the same object, so that it is proved and compiled once."""
        key = (collective, name, ranks or len(self.members), root)
        if key not in self._schedules:
            self._schedules[key] = algorithms.build(collective, name, key[2], root=root)
        return self._schedules[key]

    # ---- trouble

    @property
    def broken(self) -> CollectiveError | None:
        """Why no further collective can run, if so."""
        return self._local.broken

    @contextlib.contextmanager
    def _blaming(self) -> Iterator[None]:
        """Turn the loss of a connection into an error that names the rank that is to blame."""
        try:
            yield
        except TransportError as error:
            peer = self.members[int(re.findall(r"rank (\d+)", str(error))[-1])]
            raise self._failure(peer, str(error), self.flight.current()) from None

    def _failure(self, peer: Member, why: str, call: tuple[str, int, int]) -> RankFailure:
        """Return the error for a lost peer: what it left word of, or else that it is gone itself."""
        what = "did not arrive in time" if "waited" in why else "died or left (its connection is closed)"
        with contextlib.suppress(Exception):  # the store may have gone with the rank that held it
            if self._store.check([BLAME_KEY]):
                rank, what = json.loads(self._store.get(BLAME_KEY))
                peer = self.members[rank]
        name, sequence, size_bytes = call
        error = RankFailure(
            f"{peer} {what}",
            rank=peer.rank,
            host=peer.host,
            operation=name,
            sequence=sequence,
            size_bytes=size_bytes,
        )
        self._local.group.give_up(error, peer.rank, what)
        self._tell(peer.rank, what)
        return error

    def _doubt_letters(
        self, late: Sequence[int], waited_s: float | None, call: tuple[str, int, int], arrived: Callable[[int], bool]
    ) -> CollectiveError | None:
        group = self._local.group
        places = {member.rank: i for i, member in enumerate(group.members)}
        away = [rank for rank in late if rank not in places]
        if away and (waited_s is None or waited_s > group.timeout_s):
            return self._failure(self.members[away[0]], "lost" if waited_s is None else "waited", call)
        near = [places[rank] for rank in late if rank in places]
        error = group.doubt(
            near, waited_s or 0.0, group.timeout_s, call, lambda place: arrived(group.members[place].rank)
        )
        if error is not None:
            self._tell(error.rank, str(error))
        return error

    def _tell(self, rank: int, what: str) -> None:
        """Leave word of who is to blame, and close the connections, so that the other hosts notice at once."""
        with contextlib.suppress(Exception):
            if not self._store.check([BLAME_KEY]):
                self._store.set(BLAME_KEY, json.dumps([rank, what]))
        self._network.close()

    @property
    def connections(self) -> Mapping[int, socket.socket]:
        """The connections to ranks of other hosts that collectives go over, by rank."""
        return self._network.connections

    def arrivals(self) -> dict[int, int]:
        """Return the last step that each rank of this host has entered."""
        return self._local.arrivals()

    def stopped(self, error: BaseException) -> None:
        """Tell the other hosts of an error that this host's shared memory told of."""
        if isinstance(error, RankFailure):
            self._tell(error.rank, error.what)

    def give_up(self, reason: str) -> None:
        """Tell the other ranks that this one stopped in the middle of a collective."""
        self._local.give_up(reason)
        self._tell(self._me.rank, reason)

    def set_timeout(self, timeout_s: float) -> None:
        """Set the time that a rank waits for another before it gives up."""
        self._local.set_timeout(timeout_s)
        self._network.timeout_s = timeout_s

    def close(self) -> None:
        """Leave the group."""
        self.mailbox.close()
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._local.close()
        self._network.close()


def _tensor(address: int, count: int, dtype: torch.dtype) -> Tensor:
    if not count:
        return torch.empty(0, dtype=dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype, count=count)


def _bytes(address: int, size_bytes: int) -> Tensor:
    return _tensor(address, size_bytes, torch.uint8)
