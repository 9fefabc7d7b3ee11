"""Transport through device memory, between processes of one host: receivers read what a sender has laid out for them.

Each rank has a buffer on its device that its peers open (CUDA IPC, which also lets several ranks share one GPU). What
it sends is copied there in the order of its stream, and a mark is left behind it. The receiver's stream waits for that
mark, stores or reduces straight from the sender's buffer, and leaves a mark of its own, for which the sender's stream
waits before it writes there again. The hosts touch no element and wait for no device: they only tell each other,
through shared memory, that a mark has been left, since a wait knows only of marks left before it.

`CudaMemory` has run on no GPU yet; the transport is tested over memory of the host.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor
from torch.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor

from .transport import DEFAULT_TIMEOUT_S, Incoming, Outgoing, check_size
from .transport_shm import SharedMemoryTransport

ALIGNMENT = 256  # bytes; where messages start in a buffer
LEAST_BYTES = 1 << 20  # of a buffer
HEAD_WORDS = 3  # of a message's head: number of the buffer, first byte, bytes


class DeviceMemory(Protocol):
    """Device resources that ranks of one host share: buffers of bytes, and marks in the order of their work."""

    def allocate(self, size_bytes: int) -> Tensor:
        """Return a buffer of this rank."""

    def share(self, buffer: Tensor) -> bytes:
        """Return what lets one peer, once, open a buffer of this rank."""

    def open(self, handle: bytes) -> Tensor:
        """Return the buffer of a peer; it is kept for as long as it is used here."""

    def mark(self) -> Any:
        """Return a mark, which has been left once."""

    def share_mark(self, mark: Any) -> bytes:
        """Return what lets any peer open a mark of this rank."""

    def open_mark(self, handle: bytes) -> Any:
        """Return the mark of a peer, to be waited for."""

    def leave(self, mark: Any) -> None:
        """Leave a mark behind all work that this rank has begun."""

    def wait(self, mark: Any) -> None:
        """Let all work that this rank begins from now on follow the mark as it was last left."""


class CudaHandle(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The handle of a buffer in another process: the parts of torch's pickle that are not always the same."""

    size_bytes: int
    offset_bytes: int  # in its storage
    device: int
    memory: bytes  # of the CUDA allocation that the storage lies in
    storage_bytes: int
    storage_offset_bytes: int  # in that allocation
    counter: bytes  # of the processes that have it open
    counter_offset: int
    event: bytes
    waits_for_event: bool


class CudaMark(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The handle of an event in another process."""

    device: int
    event: bytes


class CudaMemory:
    """The memory of one GPU, given with its index, which means the same GPU to all ranks.

    Work is that of the stream that is current in the calling thread.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def allocate(self, size_bytes: int) -> Tensor:
        """Return a buffer of this rank."""
        return torch.empty(size_bytes, dtype=torch.uint8, device=self.device)

    def share(self, buffer: Tensor) -> bytes:
        """Return what lets one peer, once, open a buffer of this rank."""
        rebuild, parts = reduce_tensor(buffer)  # type: ignore[no-untyped-call]
        assert rebuild is rebuild_cuda_tensor
        (_, _, _, offset, _, _, device, memory, size, start, _, counter, counter_offset, event, waits) = parts
        handle = CudaHandle(buffer.numel(), offset, device, memory, size, start, counter, counter_offset, event, waits)
        return msgspec.msgpack.encode(handle)

    def open(self, handle: bytes) -> Tensor:
        """Return the buffer of a peer; it is kept for as long as it is used here."""
        it = msgspec.msgpack.decode(handle, type=CudaHandle)
        storage = (it.device, it.memory, it.storage_bytes, it.storage_offset_bytes)
        shared = (it.counter, it.counter_offset, it.event, it.waits_for_event)
        shape = ((it.size_bytes,), (1,), it.offset_bytes)
        buffer: Tensor = rebuild_cuda_tensor(  # type: ignore[no-untyped-call]
            Tensor, *shape, torch.UntypedStorage, torch.uint8, *storage, False, *shared
        )
        return buffer

    def mark(self) -> torch.cuda.Event:
        """Return a mark, which has been left once."""
        event = torch.cuda.Event(interprocess=True)  # type: ignore[no-untyped-call]
        self.leave(event)
        return event

    def share_mark(self, mark: torch.cuda.Event) -> bytes:
        """Return what lets any peer open a mark of this rank."""
        handle = CudaMark(self.device.index, bytes(mark.ipc_handle()))  # type: ignore[no-untyped-call]
        return msgspec.msgpack.encode(handle)

    def open_mark(self, handle: bytes) -> torch.cuda.Event:
        """Return the mark of a peer, to be waited for."""
        it = msgspec.msgpack.decode(handle, type=CudaMark)
        where = torch.device("cuda", it.device)  # an event is opened on the device that it was made on
        return torch.cuda.Event.from_ipc_handle(where, it.event)  # type: ignore[no-untyped-call, no-any-return]

    def leave(self, mark: torch.cuda.Event) -> None:
        """Leave a mark behind all work that this rank has begun."""
        mark.record(torch.cuda.current_stream(self.device))

    def wait(self, mark: torch.cuda.Event) -> None:
        """Let all work that this rank begins from now on follow the mark as it was last left."""
        mark.wait(torch.cuda.current_stream(self.device))


class DeviceTransport:
    """Ranks of one host; `store` and `prefix` are the same on all of them, and `prefix` is not used again."""

    def __init__(
        self,
        memory: DeviceMemory,
        store: Any,
        rank: int,
        ranks: int,
        *,
        prefix: str = "meshwright",
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self.rank = rank
        self.ranks = ranks
        self._memory = memory
        self._store = store
        self._prefix = f"{prefix}/device"
        self._hosts = SharedMemoryTransport(store, rank, ranks, prefix=f"{prefix}/hosts", timeout_s=timeout_s)
        self._buffer: Tensor | None = None
        self._number = 0  # of the buffer: each larger one has the next
        self._opened: dict[int, tuple[int, Tensor]] = {}  # by peer: number and buffer
        self._filled, self._emptied, self._done = memory.mark(), memory.mark(), memory.mark()
        store.set(f"{self._prefix}/filled/{rank}", memory.share_mark(self._filled))
        store.set(f"{self._prefix}/emptied/{rank}", memory.share_mark(self._emptied))
        peers = [peer for peer in range(ranks) if peer != rank]
        self._filled_by = {p: memory.open_mark(store.get(f"{self._prefix}/filled/{p}")) for p in peers}
        self._emptied_by = {p: memory.open_mark(store.get(f"{self._prefix}/emptied/{p}")) for p in peers}
        self._tell(peers, peers)  # no rank goes on before all have opened its memory

    def exchange(self, sends: Sequence[Outgoing], receives: Sequence[Incoming]) -> None:
        """Move all these messages; return when that is queued, and all peers have queued their part of it."""
        receivers, senders = _peers(sends), _peers(receives)
        heads = [torch.empty(HEAD_WORDS, dtype=torch.int64) for _ in receives]
        self._hosts.exchange(
            [Outgoing(send.peer, head) for send, head in zip(sends, self._lay_out(sends), strict=True)],
            [Incoming(receive.peer, head) for receive, head in zip(receives, heads, strict=True)],
        )
        for peer in senders:
            self._memory.wait(self._filled_by[peer])
        for receive, head in zip(receives, heads, strict=True):  # in the listed order, as `Incoming.after` asks
            number, start, size_bytes = head.tolist()
            check_size(self.rank, receive, size_bytes)
            if not size_bytes:
                continue
            there = self._buffer_of(receive.peer, number)[start : start + size_bytes].view(receive.dtype)
            receive.apply(0, there.to(receive.data.device))
        self._memory.leave(self._emptied)
        self._tell(senders, receivers)
        for peer in receivers:
            self._memory.wait(self._emptied_by[peer])
        self._memory.leave(self._done)

    def _tell(self, told: Sequence[int], heard: Sequence[int]) -> None:
        """Tell some peers that this rank is so far, and return when others have told it the same."""
        self._hosts.exchange(
            [Outgoing(peer, torch.zeros(1, dtype=torch.uint8)) for peer in told],
            [Incoming(peer, torch.empty(1, dtype=torch.uint8)) for peer in heard],
        )

    def _lay_out(self, sends: Sequence[Outgoing]) -> list[Tensor]:
        """Copy what is sent into the buffer, the same elements once; return the head of each message."""
        places: dict[tuple[int, int], int] = {}  # by address and bytes: where
        different = {(send.data.data_ptr(), send.data.nbytes): send.data for send in sends}
        end = 0
        for key, data in different.items():
            places[key] = end
            end += -(-data.nbytes // ALIGNMENT) * ALIGNMENT
        if end:
            self._memory.wait(self._done)  # the call before may have used another stream
            buffer = self._grown(end)
            for key, data in different.items():
                buffer[places[key] : places[key] + data.nbytes].copy_(data.view(torch.uint8))
        self._memory.leave(self._filled)
        return [
            torch.tensor([self._number, places[send.data.data_ptr(), send.data.nbytes], send.data.nbytes])
            for send in sends
        ]

    def _grown(self, size_bytes: int) -> Tensor:
        """Return this rank's buffer; if it is too small, a new one, published to all peers."""
        if self._buffer is None or self._buffer.numel() < size_bytes:
            self._number += 1
            self._buffer = self._memory.allocate(max(LEAST_BYTES, 1 << (size_bytes - 1).bit_length()))
            for peer in self._filled_by:
                self._store.set(self._place(self.rank, peer, self._number), self._memory.share(self._buffer))
        return self._buffer

    def _buffer_of(self, peer: int, number: int) -> Tensor:
        """Return the buffer of a peer, opened when its number is seen first."""
        known = self._opened.get(peer)
        if known is None or known[0] != number:
            known = number, self._memory.open(self._store.get(self._place(peer, self.rank, number)))
            self._opened[peer] = known
        return known[1]

    def _place(self, owner: int, peer: int, number: int) -> str:
        return f"{self._prefix}/buffer/{owner}/{peer}/{number}"

    def close(self) -> None:
        """Let go of the buffers; torch keeps the memory of this rank's own while a peer still has it open."""
        self._hosts.close()
        self._opened.clear()
        self._buffer = None


def _peers(messages: Iterable[Outgoing | Incoming]) -> list[int]:
    return sorted({message.peer for message in messages})
