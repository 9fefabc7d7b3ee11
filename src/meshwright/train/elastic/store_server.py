"""The server of a job's store: keys and values for peers that know the job's secret, and for nobody else.

Wire form: the greeting of `handshake.prove`, then requests and replies, each 4 bytes of length (big endian) and
MessagePack.
"""

import math
import selectors
import socket
import struct
import threading
import time
from typing import Literal

import msgspec

from ...handshake import Guest as Greeted
from ...handshake import answer, guarded
from ...sockets import send_promptly

MOST_BYTES = 2**28  # of one request
HEAD = struct.Struct(">I")
CLOCKS = struct.Struct(">dd")  # answers "clock": seconds of the host's wall clock, and of its monotonic one


class StoreRequest(msgspec.Struct, frozen=True, array_like=True):
    """A client's request; "get" and "wait" are answered once all keys are there."""

    operation: Literal["set", "get", "add", "compare_set", "delete", "check", "wait", "count", "clock"]
    keys: list[str] = []
    value: bytes = b""
    expected: bytes = b""
    number: int = 0
    timeout_s: float = 0.0


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The reply; `late` where the keys did not come in time, `farewell` where the server ends, and why."""

    value: bytes = b""
    number: int = 0
    late: bool = False
    farewell: str = ""


class Values:
    """Keys and values, with the operations of `torch.distributed.Store`."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def answer(self, request: StoreRequest) -> Reply | None:
        """Do what a request asks for; None where it waits for keys. ValueError where it asks for the senseless."""
        values, keys = self._values, request.keys
        match request.operation:
            case "check":
                return Reply(number=int(all(key in values for key in keys)))
            case "count":
                return Reply(number=len(values))
            case "clock":
                return Reply(CLOCKS.pack(time.time(), time.monotonic()))
            case "wait":
                return Reply() if all(key in values for key in keys) else None
        (key,) = keys
        match request.operation:
            case "get":
                return Reply(values[key]) if key in values else None
            case "set":
                values[key] = request.value
            case "delete":
                return Reply(number=int(values.pop(key, None) is not None))
            case "add":
                number = int(values.get(key, b"0")) + request.number
                values[key] = str(number).encode()
                return Reply(number=number)
            case "compare_set":
                if values.get(key, b"") == request.expected:
                    values[key] = request.value
                return Reply(values.get(key, request.expected))
        return Reply()


class StoreGuest:
    """One connection of a client that knows the secret."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.received = bytearray()
        self.unsent = bytearray()
        self.waits: StoreRequest | None = None
        self.deadline_s = 0.0


class StoreServer:
    """A store in a thread of this process; takes over the listening socket."""

    def __init__(self, listener: socket.socket, secret: bytes) -> None:
        self.port: int = listener.getsockname()[1]
        self._listener, self._secret = listener, secret
        self._values = Values()
        self._guests: dict[StoreGuest, None] = {}
        self._wake, self._woken = socket.socketpair()
        self._farewell = ""
        self._end_s = math.inf  # of the monotonic clock: guests that are still there then are let go
        self._selector = selectors.DefaultSelector()
        self._door = guarded(listener, self._selector)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def close(self, patience_s: float = 0.0, *, farewell: str = "") -> None:
        """End the store once its guests have left, or after `patience_s`: clients that are still there get an error.

        `farewell` says why it ends, to those.
        """
        self._farewell = farewell
        self._end_s = time.monotonic() + patience_s
        self._wake.close()
        self._thread.join()

    def _run(self) -> None:
        while self._end_s == math.inf or (self._guests and time.monotonic() < self._end_s):
            for key, events in self._selector.select(self._patience_s()):
                if key.fileobj is self._woken:
                    self._selector.unregister(self._woken)
                elif key.data is self._door:
                    self._let_in(self._door.turn_to(key.fileobj))
                else:
                    self._turn_to(key.data, events)
            self._door.expire()
            now_s = time.monotonic()
            for guest in [guest for guest in self._guests if guest.waits and guest.deadline_s <= now_s]:
                guest.waits = None
                self._reply(guest, Reply(late=True))
        self._end()

    def _patience_s(self) -> float | None:
        end_s = min([self._end_s, self._door.next_end_s, *(guest.deadline_s for guest in self._guests if guest.waits)])
        return None if end_s == math.inf else max(end_s - time.monotonic(), 0.0)

    def _end(self) -> None:
        for guest in list(self._guests):
            if self._farewell:
                self._reply(guest, Reply(farewell=self._farewell))
            self._let_go(guest)
        self._door.close()
        self._selector.close()
        self._listener.close()
        self._woken.close()

    def _let_in(self, greeted: Greeted | None) -> None:
        if greeted is None:
            return
        seal = answer(greeted, self._secret)
        if seal is None:
            return greeted.connection.close()
        send_promptly(greeted.connection)
        guest = StoreGuest(greeted.connection)
        self._guests[guest] = None
        self._selector.register(guest.connection, selectors.EVENT_READ, guest)
        self._send(guest, seal)

    def _turn_to(self, guest: StoreGuest, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush(guest)
        if events & selectors.EVENT_READ and guest.connection.fileno() >= 0:
            self._hear(guest)

    def _hear(self, guest: StoreGuest) -> None:
        try:
            data = guest.connection.recv(2**16)
        except BlockingIOError:
            return
        except OSError:  # it broke the connection off
            data = b""
        guest.received += data
        if not data:
            self._let_go(guest)
        else:
            self._take(guest)

    def _take(self, guest: StoreGuest) -> None:
        while len(guest.received) >= HEAD.size and guest.waits is None:
            (size,) = HEAD.unpack_from(guest.received)
            if size > MOST_BYTES:
                return self._let_go(guest)
            if len(guest.received) < HEAD.size + size:
                return
            body = bytes(guest.received[HEAD.size : HEAD.size + size])
            del guest.received[: HEAD.size + size]
            try:
                request = msgspec.msgpack.decode(body, type=StoreRequest)
                reply = self._values.answer(request)
            except ValueError:  # msgspec's errors are ValueErrors too
                return self._let_go(guest)
            if reply is None:
                guest.waits, guest.deadline_s = request, time.monotonic() + request.timeout_s
            else:
                self._reply(guest, reply)
                if request.operation in ("set", "add", "compare_set"):
                    self._answer_waiting_clients()

    def _answer_waiting_clients(self) -> None:
        for guest in [guest for guest in self._guests if guest.waits]:
            assert guest.waits is not None
            reply = self._values.answer(guest.waits)
            if reply is not None:
                guest.waits = None
                self._reply(guest, reply)

    def _reply(self, guest: StoreGuest, reply: Reply) -> None:
        self._send(guest, framed(reply))

    def _send(self, guest: StoreGuest, data: bytes) -> None:
        guest.unsent += data
        self._flush(guest)

    def _flush(self, guest: StoreGuest) -> None:
        try:
            sent = guest.connection.send(guest.unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            return self._let_go(guest)
        del guest.unsent[:sent]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if guest.unsent else 0)
        if self._selector.get_key(guest.connection).events != wanted:
            self._selector.modify(guest.connection, wanted, guest)

    def _let_go(self, guest: StoreGuest) -> None:
        if guest.connection.fileno() < 0:
            return
        self._selector.unregister(guest.connection)
        guest.connection.close()
        guest.waits = None
        self._guests.pop(guest, None)


def framed(message: StoreRequest | Reply) -> bytes:
    """Return a message as it travels."""
    body = msgspec.msgpack.encode(message)
    return HEAD.pack(len(body)) + body
