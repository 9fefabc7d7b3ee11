"""The door of a listening socket: a peer is a stranger until it has said who it is, and holds up nobody.

All strangers are heard at the same time. Each may send only a few bytes, within one deadline for all of them together;
of too many strangers the oldest is closed, so that the process keeps its descriptors for itself.

`prove` and `answer` are the two sides of a greeting that shows knowledge of a secret: each sends a seal (HMAC-SHA256)
over random bytes of the other, so the secret never travels, what was heard is worth nothing later, and a server that
does not know it is found out as well. What follows is neither sealed nor encrypted.
"""

import errno
import hashlib
import hmac
import math
import resource
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal, NamedTuple, Self

CHALLENGE_BYTES, SEAL_BYTES = 32, 32
GREETING_S = 30.0  # for a stranger to say who it is
MOST_STRANGERS = 512
DESCRIPTOR_SHARE = 4  # strangers hold at most 1 / DESCRIPTOR_SHARE of the descriptors that this process may open
STARVED_S = 0.01  # before another look, where there is no descriptor left and no stranger to close
_STARVED = {errno.EMFILE, errno.ENFILE}
_CLOSED = {errno.EINVAL, errno.EBADF}  # of accept: nobody listens any more


class Guest(NamedTuple):
    """Somebody who has sent a whole greeting."""

    connection: socket.socket  # non-blocking
    greeting: bytes
    challenge: bytes  # that it was sent


class _Stranger:
    def __init__(self, challenge: bytes, end_s: float) -> None:
        self.challenge, self.end_s = challenge, end_s
        self.heard = b""


class HandshakeListener:
    """The strangers at a listening socket, which becomes non-blocking; `selector` is one that others use too.

    A greeting is whole with `greeting_bytes` bytes, or earlier if `is_whole` says so. Each stranger is first sent
    `challenge_bytes` random bytes. Where this process has no descriptor left for whom it lets in, it looks again for
    `starving_s`, and then raises that error.
    """

    def __init__(
        self,
        server: socket.socket,
        greeting_bytes: int,
        *,
        challenge_bytes: int = 0,
        patience_s: float = GREETING_S,
        is_whole: Callable[[bytes], bool] = lambda _: False,
        selector: selectors.BaseSelector | None = None,
        starving_s: float = math.inf,
    ) -> None:
        self._server, self._greeting_bytes, self._challenge_bytes = server, greeting_bytes, challenge_bytes
        self._patience_s, self._is_whole = patience_s, is_whole
        self._starving_s, self._starving_since_s = starving_s, math.inf
        self._strangers: dict[socket.socket, _Stranger] = {}  # the oldest first
        self.most = most_strangers()
        self._selector = selector or selectors.DefaultSelector()
        self._closes_selector = selector is None
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of all strangers; the listening socket stays open."""
        for connection in list(self._strangers):
            self._turn_away(connection)
        if self._closes_selector:
            self._selector.close()
        else:
            self._selector.unregister(self._server)

    def next(self, end_s: float = math.inf) -> Guest | None:
        """Return the next guest; None at `end_s` of the monotonic clock. OSError once nobody listens any more."""
        while (now_s := time.monotonic()) < end_s:
            self.expire()
            wake_s = min(end_s, self.next_end_s)
            for key, _ in self._selector.select(None if wake_s == math.inf else max(0.0, wake_s - now_s)):
                guest = self.turn_to(key.fileobj)
                if guest is not None:
                    return guest
        return None

    def turn_to(self, connection: object) -> Guest | None:
        """Accept somebody, or hear a stranger, as the selector has told; return who has become a guest."""
        if connection is self._server:
            self._let_in()
        elif isinstance(connection, socket.socket) and connection in self._strangers:
            return self._hear(connection)
        return None

    @property
    def next_end_s(self) -> float:
        """When the next stranger has had its time, by the monotonic clock; infinity without strangers."""
        return next((stranger.end_s for stranger in self._strangers.values()), math.inf)

    def expire(self) -> None:
        """Close the connections of strangers that have had their time."""
        now_s = time.monotonic()
        while self.next_end_s <= now_s:
            self._turn_away_the_oldest()

    def _let_in(self) -> None:
        try:
            connection, _ = self._server.accept()
        except BlockingIOError:
            return
        except OSError as error:  # it has gone again, or this process has no descriptor left
            if error.errno in _CLOSED or (error.errno in _STARVED and self._has_starved()):
                raise
            if self._strangers:
                self._turn_away_the_oldest()
            else:
                time.sleep(STARVED_S)
            return
        self._starving_since_s = math.inf
        try:
            connection.setblocking(False)
            challenge = secrets.token_bytes(self._challenge_bytes)
            connection.send(challenge)
            self._selector.register(connection, selectors.EVENT_READ, self)
        except OSError:  # it has gone again
            connection.close()
            return
        self._strangers[connection] = _Stranger(challenge, time.monotonic() + self._patience_s)
        if len(self._strangers) > self.most:
            self._turn_away_the_oldest()

    def _has_starved(self) -> bool:
        now_s = time.monotonic()
        self._starving_since_s = min(self._starving_since_s, now_s)
        return now_s - self._starving_since_s > self._starving_s

    def _hear(self, connection: socket.socket) -> Guest | None:
        stranger = self._strangers[connection]
        data = b""
        try:
            data = connection.recv(self._greeting_bytes - len(stranger.heard))
        except BlockingIOError:
            return None
        except OSError:  # it broke the connection off
            pass
        stranger.heard += data
        if not data:
            self._turn_away(connection)
        elif len(stranger.heard) == self._greeting_bytes or self._is_whole(stranger.heard):
            self._selector.unregister(connection)
            del self._strangers[connection]
            return Guest(connection, stranger.heard, stranger.challenge)
        return None

    def _turn_away_the_oldest(self) -> None:
        self._turn_away(next(iter(self._strangers)))

    def _turn_away(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._strangers[connection]
        connection.close()


def most_strangers() -> int:
    """Return how many strangers a door of this process may hold."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_STRANGERS if limit == resource.RLIM_INFINITY else max(1, min(MOST_STRANGERS, limit // DESCRIPTOR_SHARE))


def guarded(server: socket.socket, selector: selectors.BaseSelector | None = None) -> HandshakeListener:
    """Return the door for clients that `prove` that they know a secret."""
    size = CHALLENGE_BYTES + SEAL_BYTES
    return HandshakeListener(server, size, challenge_bytes=CHALLENGE_BYTES, selector=selector)


def answer(guest: Guest, secret: bytes) -> bytes | None:
    """Return the seal to send to a guest of a guarded door; None for one who does not know the secret."""
    theirs, shown = guest.greeting[:CHALLENGE_BYTES], guest.greeting[CHALLENGE_BYTES:]
    if not hmac.compare_digest(shown, _seal(secret, b"client", theirs, guest.challenge)):
        return None
    return _seal(secret, b"server", guest.challenge, theirs)


def prove(connection: socket.socket, secret: bytes, end_s: float) -> None:
    """Show the server of a connection that this side knows the secret; OSError unless it does too, by `end_s`."""
    theirs, ours = exactly(connection, CHALLENGE_BYTES, end_s), secrets.token_bytes(CHALLENGE_BYTES)
    connection.sendall(ours + _seal(secret, b"client", ours, theirs))
    if not hmac.compare_digest(exactly(connection, SEAL_BYTES, end_s), _seal(secret, b"server", theirs, ours)):
        raise OSError("it does not know the secret of this job")


def exactly(connection: socket.socket, size: int, end_s: float) -> bytes:
    """Return `size` bytes that arrive by `end_s` of the monotonic clock; OSError otherwise."""
    data = bytearray()
    while len(data) < size:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"{len(data)} of {size} bytes have come in time")
        connection.settimeout(left_s)
        try:
            part = connection.recv(size - len(data))
        except TimeoutError:
            continue
        if not part:
            raise OSError("the other side closed the connection")
        data += part
    return bytes(data)


def _seal(secret: bytes, side: Literal[b"client", b"server"], ours: bytes, theirs: bytes) -> bytes:
    """Return the proof of one side that it knows the secret, over the random bytes of both."""
    return hmac.digest(secret, side + ours + theirs, hashlib.sha256)
