"""Find the ranks to share memory with: their abstract Unix sockets answer (tried, never inferred).

An abstract socket is reached from its own network namespace, on its own kernel: from containers of one machine that
share the network too, whatever their process, host name and file system are; never from another machine, even if that
is a clone with the same names. A rank joins the lowest that it reaches, of its own user, and keeps the connection, over
which the memory will come. With it goes a sign of life, a descriptor that shows when this process has ended.
"""

import contextlib
import os
import secrets
import socket
import struct
import time
from types import TracebackType
from typing import Self

import msgspec

from .waiting import sign_of_life

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid as SO_PEERCRED returns them
GREETING = struct.Struct("<I")  # the rank
FULL_S = 5e-3  # before another try at a socket with many before this one


class ProcessPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's statement of where it is."""

    door: str  # the name of its socket; empty where it has none
    pretended: str  # the name of the host that it pretends to be on
    machine: str  # equal for ranks that look as if they were on one machine; empty where that is unknown


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's findings: `network` and `leader` are the lowest rank in its network, and to share memory with.

    `why` is not empty where a lower rank looks as if it were on this machine, and cannot be shared memory with.
    """

    network: int
    leader: int
    why: str = ""


class RankSocket:
    """The abstract socket of one rank, and its connection to the rank that leads its host."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.name = ""
        self.connection: socket.socket | None = None  # to the leader, unless it is this rank
        self._rank = rank
        self._leader_door = ""
        self._closed_because = ""
        self._listener: socket.socket | None = None
        try:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            name = f"meshwright-{secrets.token_hex(16)}-{rank}"
            self._listener.bind(f"\0{name}")
            self._listener.listen(max(1, ranks))
            self.name = name
        except OSError as error:
            self._closed_because = f"this rank cannot have one: {error}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket, and with it the connections that nobody has taken."""
        for end in (self.connection, self._listener):
            if end is not None:
                end.close()

    def look(self, places: list[ProcessPlace]) -> Reached:
        """Knock at the doors of all lower ranks in turn, up to the first that this rank can share memory with."""
        mine, network, why = places[self._rank], self._rank, ""
        if self.connection is not None:  # to a rank of an earlier try
            self.connection.close()
            self.connection = None
        for peer, place in enumerate(places[: self._rank]):
            is_host = place.pretended == mine.pretended
            try:
                connection = self._knock(place.door)
            except BlockingIOError:  # more are before its door than can stand there, until it lets them in
                network = min(network, peer)
                if not is_host:
                    continue
                self._leader_door = place.door
                return Reached(network=network, leader=peer)
            except OSError as error:
                if is_host and mine.machine and mine.machine == place.machine:
                    why = why or f"rank {peer} is not reached over its abstract Unix socket ({error.strerror or error})"
                continue
            network = min(network, peer)
            if is_host and user_of(connection) == os.geteuid():
                self.connection = connection
                return Reached(network=network, leader=peer)
            if is_host:
                why = why or f"rank {peer} is of user {user_of(connection)}, this one of {os.geteuid()}"
            connection.close()
        return Reached(network=network, leader=self._rank, why=why)

    def accept(self, patience_s: float) -> socket.socket:
        """Return the next connection of a rank that this one leads; TimeoutError where none comes soon."""
        assert self._listener is not None
        self._listener.settimeout(patience_s)
        return self._listener.accept()[0]

    def greet(self, end: float) -> socket.socket:
        """Send the leader this rank and its sign of life; return the connection. TimeoutError after the time `end`."""
        while self.connection is None:
            with contextlib.suppress(BlockingIOError):
                self.connection = self._knock(self._leader_door)
                break
            if time.monotonic() > end:
                raise TimeoutError("no place before the door of the rank that leads this host")
            time.sleep(FULL_S)
        if user_of(self.connection) != os.geteuid():
            raise PermissionError(f"the memory is of user {user_of(self.connection)}, this rank of {os.geteuid()}")
        self.connection.settimeout(max(0.001, end - time.monotonic()))
        life = sign_of_life()
        try:
            socket.send_fds(self.connection, [GREETING.pack(self._rank)], [life])
        finally:
            os.close(life)
        return self.connection

    def _knock(self, name: str) -> socket.socket:
        """Return a connection; OSError at once if there is no such socket on this machine and network."""
        if not name or not self.name:
            raise ConnectionRefusedError(self._closed_because or "it has none")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.connect(f"\0{name}")
        except BaseException:
            connection.close()
            raise
        return connection


def user_of(connection: socket.socket) -> int:
    """Return the user at the other end, as this rank's user namespace numbers users."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])
