"""The common part of transports over byte streams: the state of each message, and the loop that moves all of them.

A message is a header of 16 bytes (its size, and a word that tells of which collective it is) and its elements. Each
peer has a queue of messages to send and one of messages to receive; a transport moves bytes of the first of each
whenever it can, so that an exchange needs no thread, and reductions run while later bytes are on their way.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct

import torch
from torch import Tensor

from .transport import ExchangeError, Incoming, LatePeer, OtherMessage, Outgoing, check_size, late

HEADER = Struct("<QQ")
Waits = Callable[[int, float], object]  # told now and then which peer an exchange waits for, and for how many seconds
CHECK = 0x4D57  # the last two bytes of each word; a stream that is out of step is noticed


def header_of(size_bytes: int, call: int) -> bytes:
    """Return the header of a message of this many bytes; `call` is the number of the collective, 64 bits."""
    return HEADER.pack(size_bytes, call >> 16 << 16 | CHECK)


def check_header(rank: int, message: Incoming, header: bytes | bytearray, call: int) -> None:
    """Raise ExchangeError if `header` is not that of the message that `rank` expects."""
    size, word = HEADER.unpack(header)
    if word & 0xFFFF != CHECK:
        raise ExchangeError(message.peer, f"rank {rank}: the stream from rank {message.peer} is out of step")
    if word >> 16 != call >> 16:
        raise OtherMessage(message.peer, f"rank {message.peer} is in another collective than rank {rank}")
    check_size(rank, message, size)


class OutgoingState:
    """A message on its way out: `data` is what is left of it."""

    __slots__ = ("data", "header", "sent")

    def __init__(self, message: Outgoing, call: int) -> None:
        self.data = bytes_view(message.data)
        self.header = header_of(self.data.nbytes, call)
        self.sent = 0  # bytes, header included

    @property
    def size(self) -> int:
        """Bytes of the message with its header."""
        return HEADER.size + self.data.nbytes


class IncomingState:
    """A message on its way in: `got` counts its bytes, header included."""

    __slots__ = ("after", "call", "done", "element", "got", "header", "message", "size", "view")

    def __init__(self, message: Incoming, after: Sequence["IncomingState"], call: int) -> None:
        self.message = message
        self.after = after
        self.call = call
        self.header = bytearray(HEADER.size)
        self.got = 0
        self.element = message.dtype.itemsize
        self.size = HEADER.size + message.data.numel() * self.element
        self.done = False
        is_stored = message.combine is None and message.dtype == message.data.dtype
        self.view = bytes_view(message.data) if is_stored else None  # where it is stored as it comes in

    @property
    def ready(self) -> bool:
        """Whether the messages that must be applied before this one have been."""
        return all(other.done for other in self.after)

    def check_header(self, rank: int) -> None:
        """Raise ExchangeError if the header is not that of the message that is expected."""
        check_header(rank, self.message, self.header, self.call)


class StreamExchange:
    """The messages of one exchange by peer, all of collective `call`; a transport's loop empties it."""

    def __init__(self, sends: Sequence[Outgoing], receives: Sequence[Incoming], call: int = 0) -> None:
        self.out: dict[int, deque[OutgoingState]] = {}
        self.inn: dict[int, deque[IncomingState]] = {}
        states: list[IncomingState] = []
        for send in sends:
            self.out.setdefault(send.peer, deque()).append(OutgoingState(send, call))
        for receive in receives:
            states.append(IncomingState(receive, [states[i] for i in receive.after], call))
            self.inn.setdefault(receive.peer, deque()).append(states[-1])

    def finish_send(self, peer: int) -> None:
        """Take the first message to a peer off its queue."""
        self.out[peer].popleft()
        if not self.out[peer]:
            del self.out[peer]

    def finish_receive(self, peer: int) -> None:
        """Take the first message from a peer off its queue."""
        self.inn[peer].popleft().done = True
        if not self.inn[peer]:
            del self.inn[peer]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to send or to receive."""
        return not self.out and not self.inn

    def lateness(self, rank: int, timeout_s: float) -> LatePeer:
        """Return the error for the first peer that is waited for."""
        return late(rank, self.awaited, "send" if self.inn else "receive", timeout_s)

    @property
    def awaited(self) -> int:
        """The first peer that is waited for."""
        return next(iter(self.inn or self.out))


class Deadline:
    """The end of the time that an exchange may take, from the last progress on."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        """Seconds left, not below 0."""
        return max(0.0, self._end - time.monotonic())

    @property
    def waited_s(self) -> float:
        """Seconds since it began."""
        return self.timeout_s - self._end + time.monotonic()


def bytes_view(tensor: Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor."""
    if not tensor.numel():
        return memoryview(b"")
    memory: memoryview = tensor.view(torch.uint8).numpy().data
    return memory
