"""The optional C helper of the TCP transport: moves the messages of an exchange, and sums what comes in.

`MESHWRIGHT_HELPER=0` goes without it. What it has no sum for (integers, products, float16 on the wire) and exchanges of
very many messages are left to the Python code, message by message the same bytes.
"""

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from socket import socket
from typing import Any

import torch
from torch import Tensor

from ...native import load_compiled
from ..local.helper import BF16, FLAGS
from .executor_reduce import add
from .transport import ExchangeError, Incoming, Outgoing, late, lost
from .transport_stream import HEADER, Deadline, Waits, check_header, header_of

SOURCE = Path(__file__).with_name("stream.c")
MOST = 64  # messages of one exchange
STAGE_BYTES = 256 * 1024  # received before it is added; fits a core's cache with its target
YIELD_NS = 200_000  # how long to look for more before the first sleep, from which a machine wakes in some 0.1 ms
SLICE_MS = 100  # how long C works before Python checks for signals and for the deadline
SEND, STORE, ADD_F32, ADD_F64, ADD_BF16, WIDEN_BF16 = range(6)
OVER, MOVED, IDLE, CLOSED, OUT_OF_STEP, FAILED = range(6)
_WAYS = {  # by whether it is added, the type on the wire and that of the target
    (True, torch.float32, torch.float32): ADD_F32,
    (True, torch.float64, torch.float64): ADD_F64,
    (True, torch.bfloat16, torch.float32): ADD_BF16,
    (False, torch.bfloat16, torch.float32): WIDEN_BF16,
}
Row = tuple[Outgoing | Incoming, torch.dtype, int, tuple[int, ...]]  # a message, its type, way, those it comes after


class StreamMessage(ctypes.Structure):
    """The struct Message of stream.c."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("done", ctypes.c_int64),
        ("after", ctypes.c_uint64),
        ("descriptor", ctypes.c_int32),
        ("way", ctypes.c_int32),
        ("header", ctypes.c_uint8 * HEADER.size),
        ("come", ctypes.c_uint8 * HEADER.size),
        ("torn", ctypes.c_uint8 * 8),
    )


class Stream:
    """The helper's exchanges for one rank; used by one thread at a time."""

    def __init__(
        self, library: ctypes.CDLL, rank: int, connections: Mapping[int, socket], *, crowded: bool = False
    ) -> None:
        self._library = library
        self._rank = rank
        self._connections = connections
        self._yield_ns = 0 if crowded else YIELD_NS
        self._stage = ctypes.create_string_buffer(STAGE_BYTES)

    def exchange(
        self, sends: Sequence[Outgoing], receives: Sequence[Incoming], timeout_s: float, call: int, waits: Waits
    ) -> bool:
        """Move all these messages, of collective `call`, as `Transport.exchange` does; False if none for the helper."""
        ways = [way for way in map(_way, receives) if way is not None]
        if len(ways) < len(receives) or len(sends) + len(receives) > MOST:
            return False
        rows: list[Row] = [(each, each.dtype, way, each.after) for each, way in zip(receives, ways, strict=True)]
        rows += [(send, send.data.dtype, SEND, ()) for send in sends]
        messages = self._messages(rows, call)
        which, deadline = ctypes.c_int64(), Deadline(timeout_s)
        while True:
            state = self._library.mw_exchange(
                messages, len(messages), self._stage, STAGE_BYTES, SLICE_MS, self._yield_ns, ctypes.byref(which)
            )
            if state == OVER:
                return True
            if state == MOVED:
                deadline = Deadline(timeout_s)
            elif state != IDLE:
                raise self._failure(state, messages[which.value], rows[which.value][0], call)
            else:
                first = next(row for row, message in zip(rows, messages, strict=True) if message.done < message.size)
                if not deadline.left_s:
                    raise late(self._rank, first[0].peer, "receive" if first[2] == SEND else "send", timeout_s)
                waits(first[0].peer, deadline.waited_s)

    def _messages(self, rows: Sequence[Row], call: int) -> Any:
        """Return the messages for C, each after those before it to or from the same peer."""
        messages = (StreamMessage * len(rows))()
        last: dict[tuple[int, bool], int] = {}
        for i, (either, dtype, way, after) in enumerate(rows):
            message, stream = messages[i], (either.peer, way == SEND)
            size_bytes = either.data.numel() * dtype.itemsize
            message.data = either.data.data_ptr()
            message.size = HEADER.size + size_bytes
            message.descriptor = self._connections[either.peer].fileno()
            message.way = way
            message.header[:] = header_of(size_bytes, call)
            message.after = sum(1 << j for j in {*after, last.get(stream, i)} - {i})
            last[stream] = i
        return messages

    def _failure(self, state: int, message: StreamMessage, either: Outgoing | Incoming, call: int) -> ExchangeError:
        if state == OUT_OF_STEP and isinstance(either, Incoming):
            check_header(self._rank, either, bytes(message.come), call)
        reason = os.strerror(ctypes.get_errno()) if state == FAILED else "connection closed"
        return lost(self._rank, either.peer, reason)


def load_stream() -> ctypes.CDLL | None:
    """Return the helper, built if need be; None where it is switched off or cannot be built."""
    return load_compiled(SOURCE, FLAGS, (BF16,), _declare)


def _declare(library: ctypes.CDLL) -> None:
    i64, pointer = ctypes.c_int64, ctypes.c_void_p
    library.mw_exchange.argtypes = (pointer, i64, pointer, i64, i64, i64, pointer)
    library.mw_narrow.argtypes = (pointer, pointer, i64, ctypes.c_int)
    library.mw_narrow.restype = None


def rounded_to_wire(part: Tensor, wire: torch.dtype, *, keep: bool) -> Tensor:
    """Return a contiguous tensor rounded to the type `wire`; `keep`: it is rounded where it lies, too."""
    library = load_stream()
    if library is not None and part.is_cpu and part.dtype == torch.float32 and wire == torch.bfloat16:
        narrow = torch.empty_like(part, dtype=wire)
        library.mw_narrow(part.data_ptr(), narrow.data_ptr(), part.numel(), keep)
        return narrow
    narrow = part.to(wire)
    if keep:
        part.copy_(narrow)
    return narrow


def _way(receive: Incoming) -> int | None:
    """Return how C applies a message; None where it cannot."""
    if receive.combine is None and receive.dtype == receive.data.dtype:
        return STORE
    if receive.combine not in (None, add):
        return None
    return _WAYS.get((receive.combine is add, receive.dtype, receive.data.dtype))
