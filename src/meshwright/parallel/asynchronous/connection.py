"""A connection that carries messages with tensors, and counts the bytes that it moves.

A frame is a header (a check word, the size of the message, the size of the payload), the message as JSON, and the
payload. Nothing is pickled. Before the first, both sides show that they know the random word of the run (`handshake`).
"""

import contextlib
import socket
import threading
import time
from struct import Struct

import msgspec
import torch
from torch import Tensor

from ...errors import MeshwrightError
from ...handshake import prove
from ...sockets import send_promptly
from .messages import Message, Refused

HEADER = Struct("<QIQ")
CHECK = 0x4D57_4153_594E_0001  # a stream that is out of step, or not ours, is noticed
MAX_MESSAGE_BYTES = 64 * 2**20  # a worker's record is the largest
MAX_PAYLOAD_BYTES = 2**40
CONNECT_TIMEOUT_S = 30.0
HANDSHAKE_S = 5.0  # for a server that takes a connection to answer
TRY_AGAIN_S = 0.05  # after a server that has not: it may have had too many strangers
EMPTY = torch.empty(0, dtype=torch.uint8)

_decoder = msgspec.json.Decoder(Message)


class ConnectionLost(MeshwrightError):
    """The other side has gone, or does not speak our language."""


class RefusedError(MeshwrightError):
    """The other side did not do what it was asked for; the message is its reason."""


class Connection:
    """One end of a connection. Sends of several threads do not mix; one thread at a time receives."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self.moved_bytes = 0  # sent and received, headers included
        send_promptly(stream)

    def send(self, message: Message, payload: Tensor = EMPTY) -> None:
        """Send a message and the bytes of a contiguous tensor; ConnectionLost if the other side has gone."""
        text = msgspec.json.encode(message)
        data = payload.view(torch.uint8).view(-1).numpy().data if payload.numel() else memoryview(b"")
        with self._sending:
            self.moved_bytes += HEADER.size + len(text) + data.nbytes  # before the other side can have it
            try:
                self._stream.sendall(HEADER.pack(CHECK, len(text), data.nbytes) + text)
                self._stream.sendall(data)
            except OSError as error:
                raise ConnectionLost(f"lost the connection: {error.strerror or error}") from None

    def receive(self, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> tuple[Message, Tensor]:
        """Wait for a message; return it with its payload as bytes. ConnectionLost if none will come."""
        check, size, payload_bytes = HEADER.unpack(self._exactly(torch.empty(HEADER.size, dtype=torch.uint8)))
        if check != CHECK or size > MAX_MESSAGE_BYTES or payload_bytes > max_payload_bytes:
            raise ConnectionLost("the other side does not speak our language")
        try:
            message = _decoder.decode(self._exactly(torch.empty(size, dtype=torch.uint8)))
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConnectionLost(f"the other side does not speak our language: {error}") from None
        payload = torch.empty(payload_bytes, dtype=torch.uint8)
        self._exactly(payload)
        return message, payload

    def ask(self, message: Message, payload: Tensor = EMPTY) -> tuple[Message, Tensor]:
        """Send a request and return its reply; RefusedError if it was refused."""
        with self._asking:
            self.send(message, payload)
            reply, data = self.receive()
        if isinstance(reply, Refused):
            raise RefusedError(reply.reason)
        return reply, data

    def close(self) -> None:
        """Close; waiters on the other side and in other threads here lose the connection."""
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._stream.close()

    def _exactly(self, target: Tensor) -> memoryview:
        view: memoryview = target.numpy().data
        got = 0
        while got < view.nbytes:
            try:
                count = self._stream.recv_into(view[got:])
            except OSError as error:
                raise ConnectionLost(f"lost the connection: {error.strerror or error}") from None
            if not count:
                raise ConnectionLost("the other side has gone")
            got += count
        self.moved_bytes += got
        return view


def connect(address: str, word: str, timeout_s: float = CONNECT_TIMEOUT_S) -> Connection:
    """Return a connection to HOST:PORT that has been let in; ConnectionLost if no server there knows the word."""
    host, _, port = address.rpartition(":")
    end_s = time.monotonic() + timeout_s
    while True:
        try:
            return _let_in(host.strip("[]"), int(port), word, end_s)
        except OSError as error:
            if isinstance(error, ConnectionRefusedError) or time.monotonic() + TRY_AGAIN_S > end_s:
                raise ConnectionLost(f"cannot reach the server at {address}: {error.strerror or error}") from None
        time.sleep(TRY_AGAIN_S)


def _let_in(host: str, port: int, word: str, end_s: float) -> Connection:
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(socket.create_connection((host, port), max(0.001, end_s - time.monotonic())))
        prove(stream, word.encode(), min(end_s, time.monotonic() + HANDSHAKE_S))
        stream.settimeout(None)
        stack.pop_all()
    return Connection(stream)
