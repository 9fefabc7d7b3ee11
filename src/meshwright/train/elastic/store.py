"""The store of a job: a `torch.distributed.Store` that only processes which know the job's secret can use.

torch's own `TCPStore` has no password: any client that reaches its port can read, write and delete its keys.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import torch.distributed as dist
from torch.distributed import DistNetworkError, DistStoreError

from ...handshake import exactly, prove
from ...sockets import send_promptly
from .store_server import HEAD, Reply, StoreRequest, StoreServer, framed

TRY_AGAIN_S = 0.05  # after a server that is not there yet
HANDSHAKE_S = 5.0  # for a server that takes a connection to answer
ANSWER_S = 10.0  # for a server to answer beyond the time for which it may wait
LEAST_SILENCE_S = 10.0  # a cable that is out for less is nothing to give up a store for

_OPEN: set["SealedStore"] = set()  # torch keeps only the half of a store that is not Python's

_Store: Any = dist.Store  # its declared overloads name the C++ forms, of which Python needs the first only


class StoreEnded(DistNetworkError):
    """The process that hosts the store has ended it, and said why."""


class SealedStore(_Store):  # type: ignore[misc]
    """A connection to the store of a job. Raises DistStoreError where keys do not come within the timeout.

    Raises DistNetworkError where there is no server that knows the secret within `timeout_s`, or it is lost later: its
    process has ended, or its machine has acknowledged nothing for `timeout_s` (10 s at least). It lives until `close`.
    """

    def __init__(self, host: str, port: int, timeout_s: float, secret: bytes) -> None:
        super().__init__()
        self.set_timeout(timedelta(seconds=timeout_s))
        self._host, self.port, self._secret, self._timeout_s = host, port, secret, timeout_s
        self._lock = threading.Lock()
        self._clones: list[SealedStore] = []
        self._ended = ""  # why its server has ended it
        self.server: StoreServer | None = None  # where this process is the one that hosts it
        self._connection: socket.socket | None = self._connected()
        _OPEN.add(self)

    def set(self, key: str, value: str | bytes) -> None:
        """Write a value."""
        self._ask(StoreRequest("set", [key], _bytes(value)))

    def get(self, key: str) -> bytes:
        """Return a value, once there is one."""
        return self._ask(StoreRequest("get", [key], timeout_s=self._patience_s())).value

    def add(self, key: str, number: int) -> int:
        """Add to a whole number, 0 at first, and return the sum."""
        return self._ask(StoreRequest("add", [key], number=number)).number

    def compare_set(self, key: str, expected: str | bytes, value: str | bytes) -> bytes:
        """Write a value where `expected` is there (or nothing, and that is empty); return what is there now."""
        return self._ask(StoreRequest("compare_set", [key], _bytes(value), _bytes(expected))).value

    def delete_key(self, key: str) -> bool:
        """Remove a key; return whether it was there."""
        return bool(self._ask(StoreRequest("delete", [key])).number)

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        return bool(self._ask(StoreRequest("check", list(keys))).number)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return once all keys are there."""
        timeout_s = self._patience_s() if timeout is None else timeout.total_seconds()
        self._ask(StoreRequest("wait", list(keys), timeout_s=timeout_s))

    def num_keys(self) -> int:
        """Return how many keys there are."""
        return self._ask(StoreRequest("count")).number

    def clock(self) -> bytes:
        """Return what the clocks of the host say, as `CLOCKS`."""
        return self._ask(StoreRequest("clock")).value

    def clone(self) -> "SealedStore":
        """Return the same store over a connection of its own: a wait on it holds up nobody else."""
        other = SealedStore(self._host, self.port, self._timeout_s, self._secret)
        self._clones.append(other)
        return other

    def close(self, patience_s: float = 0.0, *, farewell: str = "") -> None:
        """Leave; where this process hosts the store, end it once the others have left, or after `patience_s`.

        `farewell` says why, to clients that have not left.
        """
        _OPEN.discard(self)
        for clone in self._clones:
            clone.close()
        self._break()
        if self.server is not None:
            self.server.close(patience_s, farewell=farewell)

    deleteKey, getNumKeys = delete_key, num_keys  # the names under which torch's C++ looks for them

    def _patience_s(self) -> float:
        return float(self.timeout.total_seconds())

    def _ask(self, request: StoreRequest) -> Reply:
        with self._lock:
            connection = self._connection
            if self._ended:
                raise StoreEnded(self._ended)
            if connection is None:
                raise DistNetworkError(f"{self._host}:{self.port}: the connection to the job's store is lost")
            try:
                patience_s = max(request.timeout_s, self._patience_s()) + ANSWER_S
                connection.settimeout(patience_s)
                connection.sendall(framed(request))
                end_s = time.monotonic() + patience_s
                (size,) = HEAD.unpack(exactly(connection, HEAD.size, end_s))
                reply = msgspec.msgpack.decode(exactly(connection, size, end_s), type=Reply)
            except BaseException as error:  # an interrupt too leaves half an answer behind
                self._break()
                if isinstance(error, OSError | ValueError):  # of msgspec, or not UTF-8
                    raise DistNetworkError(f"{self._host}:{self.port}: lost the job's store: {error}") from None
                raise
            if reply.farewell:
                self._break()
                self._ended = reply.farewell
                raise StoreEnded(self._ended)
        if reply.late:
            raise DistStoreError(f"wait timeout after {request.timeout_s:g} s, keys: {', '.join(request.keys)}")
        return reply

    def _break(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # a thread that waits for an answer hears of it
            connection.close()

    def _connected(self) -> socket.socket:
        """Return a connection to a server that knows the secret, once there is one."""
        end_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return self._shaken()
            except OSError as error:
                if time.monotonic() > end_s:
                    raise DistNetworkError(f"{self._host}:{self.port}: no store of this job: {error}") from None
            time.sleep(TRY_AGAIN_S)

    def _shaken(self) -> socket.socket:
        connection = socket.create_connection((self._host, self.port), timeout=HANDSHAKE_S)
        with contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            send_promptly(connection)
            notice_silence(connection, max(self._timeout_s, LEAST_SILENCE_S))
            prove(connection, self._secret, time.monotonic() + HANDSHAKE_S)
            stack.pop_all()
        return connection


def notice_silence(connection: socket.socket, silence_s: float) -> None:
    """Let the kernel break a connection whose other side has acknowledged nothing for so long; it waits for hours."""
    whole_s = max(1, round(silence_s))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, whole_s // 2))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, whole_s // 4))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * whole_s)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
