"""Transport: what moves the messages of one stage of a rank's program, and the simplest one, between threads.

A transport is given all sends and receives of a stage at once and returns when all of them are done. Messages between
two ranks arrive in the order in which they were listed; the receiver must expect the size that was sent.
"""

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from ...errors import MeshwrightError
from .executor_reduce import Combine

DEFAULT_TIMEOUT_S = 1800.0  # as torch.distributed's for everything but NCCL


class TransportError(MeshwrightError):
    """A transport that could not be made, or is of no use any more."""


class ExchangeError(TransportError):
    """A message that could not be delivered; `peer` is the rank at its other end."""

    def __init__(self, peer: int, message: str) -> None:
        self.peer = peer
        super().__init__(message)


class LatePeer(ExchangeError):
    """A peer that did not do its part in time."""


class OtherMessage(ExchangeError):
    """A message that is another than was expected: of another size, or of another collective."""


@dataclass(slots=True)
class Outgoing:
    """A message to a peer: contiguous elements, which stay as they are until the exchange is over."""

    peer: int
    data: Tensor


@dataclass(slots=True)
class Incoming:
    """A message from a peer: contiguous elements that it is stored in, or reduced into by `combine`.

    `wire_dtype` is the element type on the wire. The message is applied only after those of the same exchange whose
    numbers are in `after`: so sums of several messages come out the same in every run.
    """

    peer: int
    data: Tensor
    combine: Combine | None = None
    wire_dtype: torch.dtype | None = None
    after: tuple[int, ...] = ()

    @property
    def dtype(self) -> torch.dtype:
        """Element type on the wire."""
        return self.wire_dtype or self.data.dtype

    def apply(self, start: int, incoming: Tensor) -> None:
        """Store or reduce elements that came in, from element `start` of the message on."""
        target = self.data[start : start + incoming.numel()]
        if self.combine is None:
            target.copy_(incoming)
        else:
            self.combine(target, incoming)


class Transport(Protocol):
    """Moves messages between the ranks 0 to ranks-1."""

    rank: int
    ranks: int

    def exchange(self, sends: Sequence[Outgoing], receives: Sequence[Incoming]) -> None:
        """Send and receive all these messages; return when they are delivered, ExchangeError if they cannot be."""

    def close(self) -> None:
        """Let go of what the transport holds; messages under way are lost."""


@dataclass(slots=True)
class _Posted:
    data: Tensor
    taken: threading.Event = field(default_factory=threading.Event)


class ThreadsHub:
    """Where the threads of one process leave messages for each other; `transport(rank)` is one rank's end."""

    def __init__(self, ranks: int, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self.ranks = ranks
        self.timeout_s = timeout_s
        self.boxes: dict[tuple[int, int], queue.SimpleQueue[_Posted]] = {
            (src, dst): queue.SimpleQueue() for src in range(ranks) for dst in range(ranks)
        }

    def transport(self, rank: int) -> "ThreadsTransport":
        """Return the transport of one rank, to be used by one thread at a time."""
        return ThreadsTransport(self, rank)


class ThreadsTransport:
    """Between threads of one process: the receiver reads the sender's elements where they lie. A send waits for it."""

    def __init__(self, hub: ThreadsHub, rank: int) -> None:
        self.rank = rank
        self.ranks = hub.ranks
        self._hub = hub

    def exchange(self, sends: Sequence[Outgoing], receives: Sequence[Incoming]) -> None:
        """Leave what is sent, take what is received in the listed order, wait until what was left is taken."""
        end = time.monotonic() + self._hub.timeout_s
        left = []
        for send in sends:
            posted = _Posted(send.data)
            self._hub.boxes[self.rank, send.peer].put(posted)
            left.append(posted)
        for receive in receives:
            try:
                posted = self._hub.boxes[receive.peer, self.rank].get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise late(self.rank, receive.peer, "send", self._hub.timeout_s) from None
            check_size(self.rank, receive, posted.data.numel() * posted.data.element_size())
            receive.apply(0, posted.data)
            posted.taken.set()
        for send, posted in zip(sends, left, strict=True):
            if not posted.taken.wait(max(0.0, end - time.monotonic())):
                raise late(self.rank, send.peer, "receive", self._hub.timeout_s)

    def close(self) -> None:
        """Nothing to let go of."""


def check_size(rank: int, receive: Incoming, size_bytes: int) -> None:
    """Raise OtherMessage if a message has another size than its receiver expects."""
    expected = receive.data.numel() * receive.dtype.itemsize
    if size_bytes != expected:
        raise OtherMessage(
            receive.peer, f"rank {receive.peer} sent {size_bytes} B where rank {rank} expects {expected} B"
        )


def late(rank: int, peer: int, verb: str, timeout_s: float) -> LatePeer:
    """Return the error for a peer that did not do its part in time."""
    return LatePeer(peer, f"rank {rank} waited {timeout_s:g} s for rank {peer} to {verb}")


def lost(rank: int, peer: int, reason: str | None) -> ExchangeError:
    """Return the error for a peer that can no longer be reached."""
    return ExchangeError(peer, f"rank {rank} lost rank {peer}: {reason}")
