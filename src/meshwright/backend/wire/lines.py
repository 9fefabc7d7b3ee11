"""Carriers of the messages of one pair of ranks: slots in shared memory, or a TCP connection.

A message is a head (tag, size, element type) and its bytes. `write` and `read` move what can be moved at once and never
wait. Who leaves for good says so over a connection, whose mere end may as well be that of a rank that died; and who
gives up says why.
"""

import contextlib
import select
import socket
import struct
from collections.abc import Callable
from ctypes import c_char, memmove, string_at
from dataclasses import dataclass
from typing import ClassVar, Protocol

from ..local.memory import LINE, MAIL_SLOTS
from ..local.ranks import LocalGroup
from ..local.waiting import WaitCondition

HEAD = struct.Struct("qqq")  # tag, bytes, number of the element type
FAREWELL = HEAD.pack(0, -1, 0)  # in place of a message: no other follows
WORD = -2  # in place of a size: the other end gives up; the tag says how many bytes of reason follow
MAX_WORD_BYTES = 1024
HEAD_BYTES = 64  # of a slot: the data start on a cache line
MAX_MOVE_BYTES = 2**20  # of one system call
MAX_AWAITED_BYTES = 2**16  # a connection with so much to read wakes its waiter: less than its buffer can hold


@dataclass(slots=True, eq=False)
class LineMessage:
    """The bytes of one message at one end, and how many of them have crossed; no number before its head has.

    `dtype_number` is the signature's number of an element type.
    """

    tag: int
    address: int
    size_bytes: int
    dtype_number: int
    done_bytes: int | None = None

    @property
    def is_done(self) -> bool:
        """Whether all bytes have crossed."""
        return self.done_bytes == self.size_bytes


@dataclass(slots=True, eq=False)
class UnexpectedMessage:
    """A message that nobody has asked for yet, or (`is_refused`) that is another than the one asked for."""

    tag: int
    size_bytes: int
    dtype_number: int
    data: bytearray
    is_refused: bool = False


Arriving = LineMessage | UnexpectedMessage
Admit = Callable[[int, int, int], Arriving]  # from the head of a message that begins, where it goes


class LineLost(ConnectionError):
    """The other end of a line is gone."""


class RankLine(Protocol):
    """The messages to and from one rank."""

    wakes: ClassVar[bool]  # its signs wake a waiter, which need not poll

    @property
    def ended(self) -> bool:
        """Whether the other end has left, and all that it sent has been read."""

    def write(self, message: LineMessage) -> bool:
        """Write the next part of a message; return whether anything was moved."""

    def read(self, arrival: Arriving | None, admit: Admit) -> tuple[Arriving | None, bool]:
        """Read the next part of `arrival`, or of a new message; return it, and whether anything was moved."""

    def room(self) -> WaitCondition:
        """Return what shows that more can be written."""

    def arrival(self) -> WaitCondition:
        """Return what shows that there is something to read."""

    def say(self, word: bytes) -> None:
        """Leave word, between two messages, of why this end gives up, if the line takes it at once."""

    @property
    def word(self) -> bytes:
        """The other end's last word, b"" where there is none, or it has not been read."""

    def close(self, *, farewell: bool) -> None:
        """Let go of the line; with `farewell`, between two messages, after word that nothing more comes."""


class SharedLine:
    """Between two ranks of one host."""

    wakes: ClassVar[bool] = False

    def __init__(self, group: LocalGroup, peer: int) -> None:
        self._group = group
        self._peer = peer
        memory = group.memory
        self._out, self._in = memory.mail_index(group.rank, peer), memory.mail_index(peer, group.rank)
        self._slots_out = [memory.mail_at(group.rank, peer, turn) for turn in range(MAIL_SLOTS)]
        self._slots_in = [memory.mail_at(peer, group.rank, turn) for turn in range(MAIL_SLOTS)]
        self._room = memory.mail_bytes

    @property
    def ended(self) -> bool:
        """Whether the other end has left, and all that it sent has been read."""
        counters = self._group.counters
        return self._group.has_left(self._peer) and bool(counters[self._in] == counters[self._in + LINE])

    def write(self, message: LineMessage) -> bool:
        """Fill the next free slot."""
        group = self._group
        written = group.counters[self._out]
        if written - group.counters[self._out + LINE] >= MAIL_SLOTS:
            return False
        offset, room = self._slots_out[written % MAIL_SLOTS], self._room
        if message.done_bytes is None:
            HEAD.pack_into(group.buffer, offset, message.tag, message.size_bytes, message.dtype_number)
            offset, room, message.done_bytes = offset + HEAD_BYTES, room - HEAD_BYTES, 0
        length = min(room, message.size_bytes - message.done_bytes)
        memmove(group.base + offset, message.address + message.done_bytes, length)
        message.done_bytes += length
        if group.fence is not None:
            group.fence()
        group.counters[self._out] = written + 1
        return True

    def read(self, arrival: Arriving | None, admit: Admit) -> tuple[Arriving | None, bool]:
        """Empty the next filled slot."""
        group = self._group
        read = group.counters[self._in + LINE]
        if group.counters[self._in] == read:
            return arrival, False
        offset, room = self._slots_in[read % MAIL_SLOTS], self._room
        if arrival is None:
            arrival = admit(*HEAD.unpack_from(group.buffer, offset))
            offset, room = offset + HEAD_BYTES, room - HEAD_BYTES
        if isinstance(arrival, LineMessage):
            done = arrival.done_bytes or 0
            length = min(room, arrival.size_bytes - done)
            memmove(arrival.address + done, group.base + offset, length)
            arrival.done_bytes = done + length
        else:
            arrival.data += string_at(group.base + offset, min(room, arrival.size_bytes - len(arrival.data)))
        if group.fence is not None:
            group.fence()  # the slot is read before it is given back
        group.counters[self._in + LINE] = read + 1
        return arrival, True

    def room(self) -> WaitCondition:
        """Return the peer's count of slots that it has emptied, and when one is free."""
        return self._sign(self._out + LINE, self._group.counters[self._out] - MAIL_SLOTS + 1)

    def arrival(self) -> WaitCondition:
        """Return the peer's count of slots that it has filled, and when there is one more than were emptied."""
        return self._sign(self._in, self._group.counters[self._in + LINE] + 1)

    def _sign(self, index: int, target: int) -> WaitCondition:
        return WaitCondition(self._group.base + 8 * index, max(0, target))

    def say(self, word: bytes) -> None:
        """Say nothing here: the group's shared memory has a place for words."""

    word = b""

    def close(self, *, farewell: bool) -> None:
        """Nothing to let go of: the memory goes with the group."""


class SocketLine:
    """Between ranks of two hosts, over a non-blocking connection.

    What a slow link brings in many pieces wakes a waiter once: when the rest of a message is there, or plenty of it.
    """

    wakes: ClassVar[bool] = True

    def __init__(self, connection: socket.socket) -> None:
        self.ended = False
        self._connection = connection
        self._head_out = b""
        self._head_in = bytearray()
        self._awaited_bytes = 1
        self._word_in = bytearray()
        self._word_bytes = 0  # of the word that is coming

    def write(self, message: LineMessage) -> bool:
        """Give the kernel as much as it takes."""
        if message.done_bytes is None:
            self._head_out = HEAD.pack(message.tag, message.size_bytes, message.dtype_number)
            message.done_bytes = 0
        length = min(MAX_MOVE_BYTES, message.size_bytes - message.done_bytes)
        data = (c_char * length).from_address(message.address + message.done_bytes) if length else b""
        try:
            count = self._connection.sendmsg((self._head_out, data))
        except BlockingIOError:
            return False
        except OSError as error:
            raise LineLost(error.strerror) from None
        of_head = min(count, len(self._head_out))
        self._head_out = self._head_out[of_head:]
        message.done_bytes += count - of_head
        return count > 0 and not self._head_out  # an empty message is over only with its head

    def read(self, arrival: Arriving | None, admit: Admit) -> tuple[Arriving | None, bool]:
        """Take what the kernel has."""
        try:
            if self._word_bytes:
                return None, self._read_word()
            if arrival is None:
                self._head_in += self._some(HEAD.size - len(self._head_in))
                if len(self._head_in) < HEAD.size:
                    return None, True
                tag, size_bytes, dtype_number = HEAD.unpack(self._head_in)
                self._head_in.clear()
                if size_bytes == WORD and 0 < tag <= MAX_WORD_BYTES:
                    self._word_bytes = tag
                    return None, True
                if size_bytes < 0:
                    self.ended = True
                    return None, True
                arrival = admit(tag, size_bytes, dtype_number)
                if isinstance(arrival, LineMessage):
                    arrival.done_bytes = 0
                self._await(size_bytes)
                return arrival, True
            if isinstance(arrival, UnexpectedMessage):
                arrival.data += self._some(min(MAX_MOVE_BYTES, arrival.size_bytes - len(arrival.data)))
                self._await(arrival.size_bytes - len(arrival.data))
                return arrival, True
            done = arrival.done_bytes or 0
            place = (c_char * min(MAX_MOVE_BYTES, arrival.size_bytes - done)).from_address(arrival.address + done)
            count = self._connection.recv_into(place)
            if not count:
                raise LineLost("connection closed")
            arrival.done_bytes = done + count
            self._await(arrival.size_bytes - arrival.done_bytes)
        except BlockingIOError:
            return arrival, False
        except LineLost:
            raise
        except OSError as error:
            raise LineLost(error.strerror) from None
        return arrival, True

    def _read_word(self) -> bool:
        self._word_in += self._some(self._word_bytes - len(self._word_in))
        if len(self._word_in) == self._word_bytes:
            self._word_bytes, self.ended = 0, True
        return True

    @property
    def word(self) -> bytes:
        """Why the other end gave up, b"" where it has not said so."""
        return b"" if self._word_bytes else bytes(self._word_in)

    def say(self, word: bytes) -> None:
        """Send word of why this end gives up, between two messages."""
        word = word[:MAX_WORD_BYTES]
        with contextlib.suppress(OSError):  # the other end has gone, or the connection is full
            self._connection.send(HEAD.pack(len(word), WORD, 0) + word)

    def room(self) -> WaitCondition:
        """Return the connection, when it takes more."""
        return WaitCondition(descriptor=self._connection.fileno(), events=select.POLLOUT)

    def arrival(self) -> WaitCondition:
        """Return the connection, when it has something."""
        return WaitCondition(descriptor=self._connection.fileno(), events=select.POLLIN)

    def _await(self, left_bytes: int) -> None:
        """Make `arrival` readable once `left_bytes` (at most a buffer) are there; after a message, once anything is."""
        wanted = max(1, min(left_bytes, MAX_AWAITED_BYTES))
        if wanted != self._awaited_bytes:
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self._awaited_bytes = wanted

    def _some(self, most: int) -> bytes:
        data = self._connection.recv(most)
        if not data:
            raise LineLost("connection closed")
        return data

    def close(self, *, farewell: bool) -> None:
        """Close the connection."""
        if farewell:
            with contextlib.suppress(OSError):  # the other end may have left before
                self._connection.send(FAREWELL)
        self._connection.close()
