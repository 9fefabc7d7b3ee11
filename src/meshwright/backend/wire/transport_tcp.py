"""Transport over TCP: one connection between each two ranks, non-blocking, moved by the thread that waits, in C where
the helper is there (stream.py).

Ranks meet through a torch.distributed store: each listens on an unused port of one address (the loopback one unless
told otherwise) and writes it there. A connection is accepted only with the random word that rank 0 put in the store.
"""

import contextlib
import hmac
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import torch

from ...handshake import HandshakeListener
from ...sockets import send_promptly
from ..hosts.addresses import address_advice, from_here, listening_at
from .stream import SLICE_MS, STAGE_BYTES, Stream, load_stream
from .transport import DEFAULT_TIMEOUT_S, Incoming, Outgoing, TransportError, lost
from .transport_stream import HEADER, Deadline, IncomingState, StreamExchange, Waits, bytes_view

GREETING = Struct("<32sI")  # the random word, the rank
CONNECT_TIMEOUT_S = 300.0
STARVING_S = 3.0  # without a descriptor for the connection of another rank
LOOK_S = 0.5  # between two looks at whether another rank has given up


class TcpTransport:
    """Ranks of any hosts; `store` and `prefix` are the same on all of them, and `prefix` is not used again.

    `crowded`: this host has more ranks than processors, so that a rank that waits sleeps at once.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        ranks: int,
        *,
        prefix: str = "meshwright",
        address: str = "127.0.0.1",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        crowded: bool = False,
    ) -> None:
        self.rank = rank
        self.ranks = ranks
        self.timeout_s = timeout_s
        self.waits: Waits = lambda peer, waited_s: None
        self.call = 0  # the number of the collective that the next exchanges are of, the same on all ranks
        self._stages: dict[int, torch.Tensor] = {}
        self.connections: dict[int, socket.socket] = {}  # by rank; non-blocking once all are there
        self._at_work = threading.RLock()  # held during an exchange
        self._closing = threading.RLock()  # held while connections are shut down or closed, never while waiting
        self._is_closed = False
        helper = load_stream()
        self._stream = Stream(helper, rank, self.connections, crowded=crowded) if helper else None
        try:
            self._connect(store, prefix, address)
        except BaseException:
            self.close()
            raise

    def _connect(self, store: Any, prefix: str, address: str) -> None:
        deadline = Deadline(min(self.timeout_s, CONNECT_TIMEOUT_S))
        if self.rank == 0:
            store.set(f"{prefix}/word", secrets.token_hex(16))
        family, place = listening_at(address)
        with socket.create_server(place, family=family, backlog=max(self.ranks, 16)) as server:
            store.set(f"{prefix}/{self.rank}", f"{address} {server.getsockname()[1]}")
            word = store.get(f"{prefix}/word")
            for peer in range(self.rank):
                theirs, _, port = store.get(f"{prefix}/{peer}").decode().rpartition(" ")
                host = from_here(theirs, address)
                try:
                    connection = socket.create_connection((host, int(port)), timeout=deadline.left_s)
                except OSError as error:
                    text = (
                        f"rank {self.rank} cannot reach rank {peer} at {host} port {port}: {error}; {address_advice()}"
                    )
                    store.set(f"{prefix}/failed", text)
                    raise TransportError(text) from None
                self.connections[peer] = connection
                connection.sendall(GREETING.pack(word, self.rank))
            try:
                self._accept(server, word, deadline, lambda: _told(store, f"{prefix}/failed"))
            except OSError as error:
                text = f"rank {self.rank} cannot let other ranks connect to it: {error}"
                store.set(f"{prefix}/failed", text)
                raise TransportError(text) from None
        for connection in self.connections.values():
            send_promptly(connection)
            connection.setblocking(False)

    def _accept(self, server: socket.socket, word: bytes, deadline: Deadline, told: Callable[[], str]) -> None:
        """Take in the ranks above this one; strangers keep nobody waiting, whether they talk or are silent.

        `told` returns why another rank has given up, if one has.
        """
        patience_s = deadline.left_s
        with HandshakeListener(server, GREETING.size, patience_s=patience_s, starving_s=STARVING_S) as handshake:
            while len(self.connections) < self.ranks - 1:
                guest = handshake.next(time.monotonic() + min(deadline.left_s, LOOK_S))
                if guest is None and deadline.left_s:
                    failed = told()
                    if failed:
                        raise TransportError(failed)
                    continue
                if guest is None:
                    missing = next(r for r in range(self.rank + 1, self.ranks) if r not in self.connections)
                    raise TransportError(f"rank {missing} did not connect to rank {self.rank} in time")
                theirs, peer = GREETING.unpack(guest.greeting)
                known = hmac.compare_digest(theirs, word) and self.rank < peer < self.ranks
                if known and peer not in self.connections:
                    self.connections[peer] = guest.connection
                else:
                    guest.connection.close()  # a stranger

    def exchange(self, sends: Sequence[Outgoing], receives: Sequence[Incoming]) -> None:
        """Move all these messages; return when the last byte has been received, and given to the kernel to send."""
        with self._at_work:
            if self._is_closed and (peers := [send.peer for send in sends] or [receive.peer for receive in receives]):
                raise lost(self.rank, peers[0], "connection closed")
            if self._stream is None or not self._stream.exchange(
                sends, receives, self.timeout_s, self.call, self.waits
            ):
                self._exchange(sends, receives)

    def _exchange(self, sends: Sequence[Outgoing], receives: Sequence[Incoming]) -> None:
        exchange = StreamExchange(sends, receives, self.call)
        deadline = Deadline(self.timeout_s)
        while not exchange.is_over:
            moved = False
            for peer in list(exchange.out):
                moved |= self._send(exchange, peer)
            for peer in list(exchange.inn):
                moved |= self._receive(exchange, peer)
            if moved:
                deadline = Deadline(self.timeout_s)
            elif not exchange.is_over:
                self._wait(exchange, deadline)

    def _send(self, exchange: StreamExchange, peer: int) -> bool:
        """Send what the kernel takes; return whether it took anything."""
        message = exchange.out[peer][0]
        before = message.sent
        try:
            if message.sent < HEADER.size:
                message.sent += self.connections[peer].sendmsg((message.header[message.sent :], message.data))
            else:
                message.sent += self.connections[peer].send(message.data[message.sent - HEADER.size :])
        except BlockingIOError:
            return False
        except OSError as error:
            raise lost(self.rank, peer, error.strerror) from None
        if message.sent == message.size:
            exchange.finish_send(peer)
        return message.sent > before

    def _receive(self, exchange: StreamExchange, peer: int) -> bool:
        """Receive what is there and apply it; return whether there was anything."""
        message = exchange.inn[peer][0]
        if not message.ready:
            return False
        try:
            count = self._receive_header(message) if message.got < HEADER.size else self._receive_data(message)
        except BlockingIOError:
            return False
        except OSError as error:
            raise lost(self.rank, peer, error.strerror) from None
        if count == 0:
            raise lost(self.rank, peer, "connection closed")
        if message.got == message.size:
            exchange.finish_receive(peer)
        return True

    def _receive_header(self, message: IncomingState) -> int:
        """Receive the header, and the elements after it where they are stored as they come."""
        rest = memoryview(message.header)[message.got :]
        places = (rest, message.view) if message.view else (rest,)
        count = self.connections[message.message.peer].recvmsg_into(places)[0]
        reached = message.got + count
        if message.got < HEADER.size <= reached:
            message.check_header(self.rank)
        message.got = reached
        return count

    def _receive_data(self, message: IncomingState) -> int:
        connection, at = self.connections[message.message.peer], message.got - HEADER.size
        if message.view is not None:
            count = connection.recv_into(message.view[at:])
            message.got += count
            return count
        return self._receive_staged(connection, message, at)

    def _receive_staged(self, connection: socket.socket, message: IncomingState, at: int) -> int:
        """Receive into the stage and apply the elements that are complete; a torn one stays there for its rest."""
        peer, element = message.message.peer, message.element
        stage = self._stages.get(peer)
        if stage is None:
            stage = self._stages[peer] = torch.empty(STAGE_BYTES, dtype=torch.uint8)
        torn = at % element
        memory = bytes_view(stage)
        count = connection.recv_into(memory[torn : torn + min(STAGE_BYTES - element, message.size - message.got)])
        whole = (torn + count) // element * element
        if whole:
            message.message.apply(at // element, stage[:whole].view(message.message.dtype))
            memory[: torn + count - whole] = memory[whole : torn + count]
        message.got += count
        return count

    def _wait(self, exchange: StreamExchange, deadline: Deadline) -> None:
        """Sleep until a peer can be sent to or received from."""
        poll = select.poll()
        for peer in exchange.out.keys() | exchange.inn.keys():
            events = select.POLLOUT if peer in exchange.out else 0
            if peer in exchange.inn and exchange.inn[peer][0].ready:
                events |= select.POLLIN
            poll.register(self.connections[peer], events)
        while not poll.poll(min(deadline.left_s * 1000, SLICE_MS)):
            if not deadline.left_s:
                raise exchange.lateness(self.rank, self.timeout_s)
            self.waits(exchange.awaited, deadline.waited_s)

    def close(self) -> None:
        """Close all connections; an exchange of another thread, if there is one, fails first."""
        with self._closing:
            for connection in list(self.connections.values()):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        with self._at_work, self._closing:  # their numbers are free for other files from here on
            self._is_closed = True
            for connection in self.connections.values():
                connection.close()
            self.connections.clear()


def _told(store: Any, key: str) -> str:
    """Return what a key of the store holds, "" where it is not there."""
    return store.get(key).decode() if store.check([key]) else ""
