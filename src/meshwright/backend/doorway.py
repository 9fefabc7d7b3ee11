"""The door of a rank: everybody who connects says who they are, all at the same time, so that nobody holds it."""

import contextlib
import selectors
import socket
from types import TracebackType
from typing import Self

from .transport_stream import Deadline

MOST_WAITING = 512  # connections that have not said who they are; with more, the oldest is closed


class Doorway:
    """The connections to a listening socket, each with the first bytes that it sent."""

    def __init__(self, server: socket.socket, greeting_bytes: int) -> None:
        self._server = server
        self._greeting_bytes = greeting_bytes
        self._waiting: dict[socket.socket, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(server, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for connection in list(self._waiting):
            self._turn_away(connection)
        self._selector.close()

    def next(self, deadline: Deadline) -> tuple[socket.socket, bytes] | None:
        """Return the next connection that has sent a whole greeting, and the greeting; None after the deadline."""
        while deadline.left_s:
            for key, _ in self._selector.select(deadline.left_s):
                if key.fileobj is self._server:
                    self._let_in()
                    continue
                connection: socket.socket = key.fileobj  # type: ignore[assignment]
                if connection in self._waiting and self._hear(connection):
                    self._selector.unregister(connection)
                    return connection, self._waiting.pop(connection)
        return None

    def _let_in(self) -> None:
        with contextlib.suppress(OSError):  # it has gone again
            connection, _ = self._server.accept()
            connection.setblocking(False)
            self._waiting[connection] = b""
            self._selector.register(connection, selectors.EVENT_READ)
        if len(self._waiting) > MOST_WAITING:
            self._turn_away(next(iter(self._waiting)))

    def _hear(self, connection: socket.socket) -> bool:
        """Read what has come; return whether the greeting is whole."""
        data = b""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            data = connection.recv(self._greeting_bytes - len(self._waiting[connection]))
        if not data:
            self._turn_away(connection)
            return False
        self._waiting[connection] += data
        return len(self._waiting[connection]) == self._greeting_bytes

    def _turn_away(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._waiting[connection]
        connection.close()
