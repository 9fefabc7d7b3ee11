"""Transport over shared memory, between processes of one host: a ring of bytes from each rank to each other.

Each rank makes one memory segment that has no name in any file system (a memfd), with a ring for every peer to write
into; peers open it through /proc while it is their own user's. The kernel frees it with the last process that has it.
A ring has two counters, each written by one side only: bytes written, and bytes read. What is reduced is reduced
straight from the ring. The counters rely on stores becoming visible in program order, as they do on x86; elsewhere
this transport refuses to start.
"""

import mmap
import os
import platform
import select
import time
from collections.abc import Sequence
from typing import Any

import torch

from .transport import DEFAULT_TIMEOUT_S, Incoming, Outgoing, TransportError, lost
from .transport_stream import HEADER, Deadline, IncomingState, OutgoingState, StreamExchange

RING_BYTES = 1 << 20  # of each ring; a power of two
HEAD_BYTES = 128  # before the bytes of a ring: the two counters, on cache lines of their own
WRITTEN, READ = 0, 8  # places of the counters in the head, in units of 8 bytes
GRAIN = 16  # messages start at multiples of it, so that an element never wraps round
PIECE_BYTES = RING_BYTES // 4  # moved at once, so that both sides work at the same time
TORCH_COPY_BYTES = 32 * 1024  # from here on torch copies, without holding Python's lock
YIELDS_BEFORE_SLEEP = 2000
SLEEP_S = 50e-6
SLEEPS_BEFORE_LOOK = 200  # at whether the peers' processes live: about every 10 ms


class SharedMemoryTransport:
    """Ranks of one host; `store` and `prefix` are the same on all of them, and `prefix` is not used again."""

    def __init__(
        self, store: Any, rank: int, ranks: int, *, prefix: str = "meshwright", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        if platform.machine() not in {"x86_64", "AMD64"}:
            raise TransportError(f"shared memory between ranks needs x86-64, this is {platform.machine()}; use TCP")
        self.rank = rank
        self.ranks = ranks
        self.timeout_s = timeout_s
        self._files: list[int] = []
        size = ranks * (HEAD_BYTES + RING_BYTES)
        own = os.memfd_create(f"meshwright-{rank}", os.MFD_CLOEXEC)
        self._files.append(own)
        os.posix_fallocate(own, 0, size)  # too little memory is an error here, not a signal later
        store.set(f"{prefix}/{rank}", f"{os.getpid()} {own}")
        self._into: dict[int, _Ring] = {}
        self._from: dict[int, _Ring] = {}
        self._alive: dict[int, int] = {}  # by file that becomes readable when a peer's process ends: the peer
        self._watch = select.poll()
        mine = mmap.mmap(own, size)
        for peer in range(ranks):
            if peer != rank:
                self._from[peer] = _Ring(mine, peer)
                self._into[peer] = self._open(store.get(f"{prefix}/{peer}").decode(), peer, size)
        store.add(f"{prefix}/attached", 1)
        deadline = Deadline(timeout_s)
        while store.add(f"{prefix}/attached", 0) < ranks:  # keep the segment reachable until everyone has it
            if not deadline.left_s:
                raise TransportError(f"rank {rank}: not all ranks attached to the shared memory in {timeout_s:g} s")
            time.sleep(0.001)
        self._close_files()

    def _open(self, place: str, peer: int, size: int) -> "_Ring":
        pid, number = map(int, place.split())
        try:
            process = os.pidfd_open(pid)
            self._alive[process] = peer
            self._watch.register(process, select.POLLIN)
            handle = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise TransportError(f"rank {self.rank}: no shared memory with rank {peer}: {error.strerror}") from None
        try:
            return _Ring(mmap.mmap(handle, size), self.rank)
        finally:
            os.close(handle)

    def exchange(self, sends: Sequence[Outgoing], receives: Sequence[Incoming]) -> None:
        """Move all these messages; return when all are received, and written to the rings to send."""
        exchange = StreamExchange(sends, receives)
        deadline, idle = Deadline(self.timeout_s), 0
        while not exchange.is_over:
            moved = False
            for peer in list(exchange.out):
                message = exchange.out[peer][0]
                moved |= self._into[peer].write(message)
                if message.sent == message.size:
                    exchange.finish_send(peer)
            for peer in list(exchange.inn):
                received = exchange.inn[peer][0]
                if received.ready:
                    moved |= self._from[peer].read(received, self.rank)
                if received.got == received.size:
                    exchange.finish_receive(peer)
            if moved:
                idle = 0
                continue
            idle += 1
            if idle == 1:
                deadline = Deadline(self.timeout_s)
            if idle < YIELDS_BEFORE_SLEEP:
                os.sched_yield()
            elif deadline.left_s:
                time.sleep(SLEEP_S)
                if idle % SLEEPS_BEFORE_LOOK == 0:
                    self._refuse_the_dead(exchange)
            else:
                raise exchange.lateness(self.rank, self.timeout_s)

    def _refuse_the_dead(self, exchange: StreamExchange) -> None:
        """Raise ExchangeError if the process of a peer that is waited for has ended."""
        for peer in (self._alive[process] for process, _ in self._watch.poll(0)):
            if peer in exchange.out or peer in exchange.inn:
                raise lost(self.rank, peer, "its process has ended")

    def _close_files(self) -> None:
        while self._files:
            os.close(self._files.pop())

    def close(self) -> None:
        """Let go of the rings; peers that still use them keep them."""
        self._close_files()
        for process in self._alive:
            os.close(process)
        self._alive.clear()
        self._into.clear()
        self._from.clear()


class _Ring:
    """Bytes from one rank to another: `write` at one end, `read` at the other."""

    def __init__(self, segment: mmap.mmap, index: int) -> None:
        start = index * (HEAD_BYTES + RING_BYTES)
        self._counters = memoryview(segment)[start : start + HEAD_BYTES].cast("Q")
        self._bytes = memoryview(segment)[start + HEAD_BYTES : start + HEAD_BYTES + RING_BYTES]
        self._tensor = torch.frombuffer(segment, dtype=torch.uint8, count=RING_BYTES, offset=start + HEAD_BYTES)

    def write(self, message: OutgoingState) -> bool:
        """Write as much of a message as there is room for; return whether there was any."""
        written = self._counters[WRITTEN]
        room = RING_BYTES - (written - self._counters[READ])
        if message.sent < HEADER.size:
            if room < HEADER.size:
                return False
            at = written % RING_BYTES
            self._bytes[at : at + HEADER.size] = message.header
            message.sent, written, room = HEADER.size, written + HEADER.size, room - HEADER.size
        elif room == 0:
            return False
        while message.sent < message.size and room:
            at, taken = written % RING_BYTES, message.sent - HEADER.size
            count = min(message.size - message.sent, room, RING_BYTES - at, PIECE_BYTES)
            self._store(at, message.data[taken : taken + count])
            message.sent += count
            if message.sent == message.size:
                count += -message.size % GRAIN
            written += count
            room -= count
            self._counters[WRITTEN] = written
        self._counters[WRITTEN] = written
        return True

    def read(self, message: IncomingState, rank: int) -> bool:
        """Store or reduce as much of a message as is there; return whether there was anything."""
        read = self._counters[READ]
        there = self._counters[WRITTEN] - read
        if not there:
            return False
        if message.got < HEADER.size:
            at = read % RING_BYTES
            message.header[:] = self._bytes[at : at + HEADER.size]
            message.check_header(rank)
            message.got, read, there = HEADER.size, read + HEADER.size, there - HEADER.size
        while message.got < message.size and there:
            at, given = read % RING_BYTES, message.got - HEADER.size
            count = min(message.size - message.got, there, RING_BYTES - at, PIECE_BYTES)
            self._apply(message, at, given, count)
            message.got += count
            if message.got == message.size:
                count += -message.size % GRAIN
            read += count
            there -= count
            self._counters[READ] = read
        self._counters[READ] = read
        return True

    def _store(self, at: int, data: memoryview) -> None:
        if len(data) < TORCH_COPY_BYTES:
            self._bytes[at : at + len(data)] = data
        else:
            self._tensor[at : at + len(data)].copy_(torch.frombuffer(data, dtype=torch.uint8))

    def _apply(self, message: IncomingState, at: int, given: int, count: int) -> None:
        if message.view is not None and count < TORCH_COPY_BYTES:
            message.view[given : given + count] = self._bytes[at : at + count]
            return
        incoming = self._tensor[at : at + count].view(message.message.dtype)
        message.message.apply(given // message.element, incoming)
