"""The network side of a group over several hosts: executors over TCP, measured links, and blame.

Everything here is called by the engine of such a group (`hosts_engine`), which adds the shared memory inside each host.
"""

import contextlib
import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...collectives.catalogue import build_schedule
from ..faults.blame import StoreBlameBoard
from ..faults.blame_board import Word, word_in
from ..faults.failures import DISAGREE, CollectiveError, FaultyRank
from ..group.options import WIRE_TYPES, GroupOptions
from ..group.signature import Signature, mix
from ..local.ranks import HINT_AFTER_S, LocalGroup
from ..local.reductions import Reduction
from ..local.weak import weakly
from ..wire.executor import Executor
from ..wire.transport import ExchangeError, Incoming, LatePeer, OtherMessage, Outgoing, Transport
from ..wire.transport_tcp import TcpTransport
from .choice import MessageCost, choose_all_reduce, price_s, still_serves
from .links import LinkCache, PriceWatch, measure
from .placement import GroupMember

RECENT = 32  # calls that a rank can tell others of


class SubsetTransport:
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


class HostsView:
    """The ranks of all hosts as one rank reaches them; `columns` are the ranks with the same place on their hosts."""

    def __init__(
        self,
        store: Any,
        members: Sequence[GroupMember],
        hosts: Sequence[Sequence[int]],
        local: LocalGroup,
        *,
        timeout_s: float,
        address: str,
        options: GroupOptions,
    ) -> None:
        self.members = tuple(members)
        self.columns = min(len(ranks) for ranks in hosts)
        self._hosts, self._local = hosts, local
        self._me = local.members[local.rank]
        self._board = StoreBlameBoard(store, self._me)
        place = local.rank
        self.column_ranks = tuple(ranks[place] for ranks in hosts) if place < self.columns else ()
        self.transport = TcpTransport(
            store, self._me.rank, len(members), prefix="collectives", address=address, timeout_s=timeout_s,
            crowded=local.patience.crowded,
        )  # fmt: skip
        self.transport.waits = weakly(self._wait_for)
        self._recent: deque[tuple[int, Signature]] = deque(maxlen=RECENT)
        self._executors: dict[tuple[int, ...], Executor] = {}
        self._schedules: dict[tuple[str, str, int, int], Any] = {}
        self._algorithm = options.algorithm
        self._wire = WIRE_TYPES[options.wire]
        self._watch = PriceWatch()
        self._cache = LinkCache(members, self.columns, address)
        local.before_blame = weakly(self.leave_calls)
        # the words that ranks leave each other beside the store, which goes with the rank that holds it
        self.say_last: Callable[[bytes], object] = lambda word: None
        self.last_word: Callable[[int], bytes] = lambda rank: b""
        self.links = self._known() or self._kept(self._measured())

    def ask(self, call: Signature) -> None:
        """Say what this rank calls next: its messages carry a number made of all that it has called so far."""
        self._recent.append((self._local.flight.sequence, call))
        for number in call:
            self.transport.call = mix(self.transport.call, number)

    def _known(self) -> MessageCost | None:
        """Return the links that rank 0 remembers, the same on all ranks, or None."""
        links = self._cache.get() if self._me.rank == 0 else None
        alpha_s, beta_s_per_byte = self._largest([links.alpha_s, links.beta_s_per_byte] if links else [0.0, 0.0])
        return MessageCost(alpha_s, beta_s_per_byte) if alpha_s else None

    def _measured(self) -> MessageCost:
        """Measure the links with all columns at work at once, and agree on the slowest."""
        figures = [0.0, 0.0]
        if self.column_ranks:
            with self.blaming():
                column = self.among(self.column_ranks)
                links = measure(column, self.schedule("all_reduce", "one_shot", len(self._hosts)))
            figures = [links.alpha_s, links.beta_s_per_byte]
        return MessageCost(*self._largest(figures))

    def _kept(self, links: MessageCost) -> MessageCost:
        """Remember links and return them."""
        if self._me.rank == 0:
            self._cache.put(links)
        return links

    def _largest(self, figures: Sequence[float]) -> list[float]:
        """Return the largest of each figure over all ranks."""
        tensor = torch.tensor(figures, dtype=torch.float64)
        with self.blaming():
            everyone = self.among(range(len(self.members)))
            everyone.all_reduce(tensor, self.schedule("all_reduce", "recursive_doubling"), "max")
        return tensor.tolist()

    def look_at_links(self) -> None:
        """Measure the links again where reductions have left their price for good on any rank; before a reduction."""
        if self._algorithm or not self._watch.is_due():
            return
        taken = self._watch.taken()
        slow, quick = self._largest([taken, 1 / taken if taken else 0.0])
        ratio = slow if slow > 1 or not quick else 1 / quick
        if self._watch.has_left(ratio):
            found = self._measured()
            kept = still_serves(self.links, found, len(self._hosts), narrow=self._wire is not None)
            if not kept:
                self.links = self._kept(found)
            self._watch.measured_again(ratio, kept=kept)

    def among(self, ranks: Sequence[int]) -> Executor:
        """Return the executor of some ranks, always the same one, so that it compiles each program once."""
        key = tuple(ranks)
        if key not in self._executors:
            self._executors[key] = Executor(SubsetTransport(self.transport, key))
        return self._executors[key]

    def reduce_column(self, address: int, count: int, kind: Reduction) -> None:
        """Reduce in place over this rank's column, by the cheapest way on the links as measured."""
        hosts, size_bytes = len(self._hosts), count * kind.item_bytes
        wire = self.wire_of(kind)
        name = self._algorithm or choose_all_reduce(self.links, hosts, size_bytes, narrow=wire is not None)
        start = time.perf_counter()
        with self.blaming():
            self.among(self.column_ranks).all_reduce(
                as_tensor(address, count, kind.dtype),
                self.schedule("all_reduce", name, hosts),
                kind.operator,
                wire=wire,
            )
        if not self._algorithm and wire is None:
            self._watch.note(time.perf_counter() - start, price_s(name, self.links, hosts, size_bytes))

    def wire_of(self, kind: Reduction) -> torch.dtype | None:
        """Return the type that a reduction's elements travel in, None: their own."""
        return self._wire if kind.dtype == torch.float32 and kind.operator == "sum" else None

    def schedule(self, collective: str, name: str, ranks: int | None = None, root: int = 0) -> Any:
        """Return a schedule, always the same object, so that it is proved and compiled once."""
        key = (collective, name, ranks or len(self.members), root)
        if key not in self._schedules:
            self._schedules[key] = build_schedule(collective, name, key[2], root=root)
        return self._schedules[key]

    @contextlib.contextmanager
    def blaming(self) -> Iterator[None]:
        """Turn the loss of a connection into an error that names the rank that is to blame."""
        try:
            yield
        except OtherMessage as error:
            raise self._mismatch(self.members[error.peer], str(error)) from None
        except ExchangeError as error:
            peer, is_lost = self.members[error.peer], not isinstance(error, LatePeer)
            raise self.failure(peer, self._local.flight.current(), lost=is_lost) from None

    def _wait_for(self, peer: int, waited_s: float) -> None:
        """Publish that this rank waits for a rank of another host: who waits for this one then blames that one.

        Ranks of its own host may time out before it does, whose time starts again with each byte.
        """
        if waited_s > HINT_AFTER_S and self.members[peer] not in self._local.members:
            self._local.wait_for(self.members[peer], self._local.flight.current())

    def _mismatch(self, peer: GroupMember, why: str) -> CollectiveError:
        """Return the error for a peer that calls something else: what it says that it calls, if it says so soon."""
        said = self._other_call(peer) or f"{self._me} in {self._recent[-1][1]}; {peer} not: {why}"
        return self._failed(FaultyRank.of(peer, DISAGREE + said), self._local.flight.current())

    def failure(self, peer: GroupMember, call: tuple[str, int, int], *, lost: bool) -> CollectiveError:
        """Return the error for a peer that is `lost`, or late: what it left word of, or else that itself is to blame.

        No peer is to blame for a connection that another thread of this rank has closed.
        """
        if (culprit := self._local.own_fault()) is not None:
            return self._failed(culprit, call)
        suspect = FaultyRank.of(peer, "died or left (its connection is closed)" if lost else "did not arrive in time")
        if lost:
            self.leave_calls()  # the peer may have closed because it calls something else
            if peer in self._local.members:
                near = self._local.blamed(self._local.members.index(peer), suspect.what_happened)
                return self._failed(near, call)
            if word := self.last_word(peer.rank):
                return self._failed(word_in(word.decode(errors="replace")).culprit, call)
        else:  # first for ranks that wait for this one: the store may be beyond a cable that is out
            self._local.leave_word(Word(suspect, final=False))
            self.leave_calls()
        culprit = self._board.culprit(
            peer.rank,
            suspect,
            lost=lost,
            limit_s=self.transport.timeout_s,
            differs=lambda theirs: self._difference(peer, theirs),
        )
        if culprit == suspect and self._board.is_out_of_reach and (word := self.last_word(peer.rank)):
            culprit = word_in(word.decode(errors="replace")).culprit  # the frozen rank may be the one with the store
        return self._failed(culprit, call)

    def _failed(self, culprit: FaultyRank, call: tuple[str, int, int]) -> CollectiveError:
        error = self._local.failure(culprit, call)
        self.tell(culprit)
        return error

    def leave_calls(self) -> None:
        """Leave word of what this rank has called last."""
        self._board.leave_calls({number: str(call) for number, call in self._recent})

    def _other_call(self, peer: GroupMember) -> str:
        """Return the first of the last calls that a peer made otherwise, both sides of it; "" where none is known."""
        self.leave_calls()
        return self._difference(peer, self._board.calls_of(peer.rank))

    def _difference(self, peer: GroupMember, theirs: Mapping[int, str]) -> str:
        """Return the first of the last calls that are not the same, both sides of it; "" where none is known."""
        for number, mine in self._recent:
            if theirs.get(number, str(mine)) != str(mine):
                return f"{self._me} in {mine}; {peer} in {theirs[number]}"
        return ""

    def tell(self, culprit: FaultyRank) -> None:
        """Publish the culprit and close the connections, so that the other hosts notice at once."""
        self.say_last(Word(culprit, final=True).line().encode())
        self._board.tell(culprit)
        self.transport.close()

    def close(self) -> None:
        """Close the connections."""
        self._board.close()
        self.transport.close()


def as_tensor(address: int, count: int, dtype: torch.dtype) -> Tensor:
    """Return the memory at an address as a tensor."""
    if not count:
        return torch.empty(0, dtype=dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype, count=count)
