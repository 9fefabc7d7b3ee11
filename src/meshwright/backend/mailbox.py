"""Send and receive between ranks of one host: a line of slots for each ordered pair, and a box for early letters.

A message is a head (tag, size) and its bytes, cut into the slots of the line. The sender writes while there are free
slots and goes on whenever the receiver has emptied one, so a message that fits the line leaves at once. The receiver
gives a message to the first waiting `receive` with its source and tag; a message that none of the waiting ones wants,
and that stands in the way of the next, is put into the box.

All of it is one state machine that whoever waits drives, and a thread of its own drives when nobody waits, so that
messages in both directions, to many ranks, and receives in any order never block each other.
"""

import os
import struct
import threading
import time
from collections import deque
from ctypes import c_char, memmove, string_at
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from .failures import CollectiveError, Mismatch
from .local import LocalGroup
from .memory import LINE, MAIL_SLOTS
from .waiting import CHECK_S, SLEEP_S, YIELD_S
from .work import PendingWork

HEAD = struct.Struct("qq")  # tag, bytes
HEAD_BYTES = 64


@dataclass(slots=True, eq=False)
class Letter:
    """One send or receive: where its bytes are, and how many of them have crossed."""

    peer: int | None  # None: from any rank
    tag: int
    address: int
    size_bytes: int
    work: "LetterWork"
    done_bytes: int | None = None  # None: its head has not crossed yet
    started_s: float = field(default_factory=time.monotonic)


@dataclass(slots=True, eq=False)
class Arrival:
    """A message that is coming in: for a letter, or for the box."""

    tag: int
    size_bytes: int
    letter: Letter | None
    early: bytearray | None
    done_bytes: int = 0


class LetterWork(PendingWork):
    """A send or a receive; waiting for it drives the mailbox."""

    def __init__(self, mailbox: "Mailbox", name: str, number: int, tensors: Any, landing: Any = None) -> None:
        super().__init__(_nothing, tensors)
        self.name = name
        self.number = number
        self.source: int | None = None
        self._mailbox = mailbox
        self._landing = landing

    def complete(self, error: BaseException | None = None) -> None:
        """Bring a received message to its tensor and open the gate."""
        if error is None and self._landing is not None:
            self._landing()
        self.finish(error)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the message has left, or has come."""
        limit_s = timeout.total_seconds() if timeout is not None else 0.0
        self._mailbox.drive(self, limit_s if limit_s > 0 else None)
        return super().wait()

    def is_completed(self) -> bool:
        """Return whether the message has left, or has come; drives the mailbox once."""
        if not self._done:
            self._mailbox.push()
        return self._done

    def source_rank(self) -> int:
        """Return the rank that a received message came from."""
        assert self.source is not None
        return self.source

    _source_rank = source_rank


def _nothing() -> None:
    return None


class Mailbox:
    """The messages of one rank."""

    def __init__(self, group: LocalGroup) -> None:
        self._group = group
        self._memory = group.memory
        self._lock = threading.Lock()
        self._sending: dict[int, deque[Letter]] = {peer: deque() for peer in group.peers}
        self._waiting: list[Letter] = []
        self._coming: dict[int, Arrival] = {}
        self._early: dict[int, list[tuple[int, bytearray]]] = {peer: [] for peer in group.peers}
        self._drivers = 0
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def send(self, letter: Letter) -> None:
        """Start sending; the letter's work is done once all bytes have left."""
        self._start(letter, lambda: self._sending[self._peer(letter)].append(letter))

    def receive(self, letter: Letter) -> None:
        """Start receiving; the letter's work is done once all bytes have come."""
        self._start(letter, lambda: self._post(letter))

    def drive(self, work: LetterWork, limit_s: float | None) -> None:
        """Move messages until `work` is done; raise TimeoutError after `limit_s`."""
        if work._done:
            return
        self._drivers += 1
        try:
            start = moved_s = time.monotonic()
            next_check = start + CHECK_S
            while not work._done:
                if self.push():
                    moved_s = time.monotonic()
                    continue
                now = time.monotonic()
                if limit_s is not None and now - start > limit_s:
                    raise TimeoutError(f"{work.name} is not done after {limit_s:g} s")
                if now > next_check:
                    self._look(now)
                    next_check = now + CHECK_S
                if now - moved_s < YIELD_S:
                    os.sched_yield()
                else:
                    time.sleep(SLEEP_S)
        finally:
            self._drivers -= 1
            if self._busy():
                self._wake.set()

    def push(self) -> bool:
        """Move what can be moved now; return whether anything was."""
        with self._lock:
            return self._progress()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5.0)

    # ---- under the lock

    def _start(self, letter: Letter, enqueue: Any) -> None:
        if self._group.broken is not None:
            letter.work.complete(CollectiveError(f"{letter.work.name}: this group is broken: {self._group.broken}"))
            return
        with self._lock:
            enqueue()
            self._progress()
            if letter.work._done:
                return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="meshwright-mail", daemon=True)
            self._thread.start()
        self._wake.set()

    def _post(self, letter: Letter) -> None:
        """Look for a letter's message in the box, or let it wait."""
        for peer in [letter.peer] if letter.peer is not None else list(self._early):
            for i, (tag, data) in enumerate(self._early[peer]):
                if tag == letter.tag:
                    del self._early[peer][i]
                    letter.work.source = peer
                    if len(data) != letter.size_bytes:
                        letter.work.complete(self._wrong_size(letter, peer, len(data)))
                        return
                    memmove(letter.address, (c_char * len(data)).from_buffer(data), len(data))
                    letter.work.complete()
                    return
        self._waiting.append(letter)

    def _progress(self) -> bool:
        moved = False
        for peer, letters in self._sending.items():
            while letters and self._write(peer, letters[0]):
                moved = True
                if letters[0].done_bytes == letters[0].size_bytes:
                    letters.popleft().work.complete()
        if self._waiting or self._coming:
            anyone = any(letter.peer is None for letter in self._waiting)
            wanted = {letter.peer for letter in self._waiting}
            for peer in self._group.peers:
                while (anyone or peer in wanted or peer in self._coming) and self._read(peer):
                    moved = True
                    anyone = any(letter.peer is None for letter in self._waiting)
                    wanted = {letter.peer for letter in self._waiting}
        return moved

    def _write(self, peer: int, letter: Letter) -> bool:
        """Write the next part of a message; return False if there is no free slot."""
        group, memory = self._group, self._memory
        index = memory.mail_index(group.rank, peer)
        written = group.counters[index]
        if written - group.counters[index + LINE] >= MAIL_SLOTS:
            return False
        offset, room = memory.mail_at(group.rank, peer, written % MAIL_SLOTS), memory.mail_bytes
        if letter.done_bytes is None:
            HEAD.pack_into(group.buffer, offset, letter.tag, letter.size_bytes)
            offset, room, letter.done_bytes = offset + HEAD_BYTES, room - HEAD_BYTES, 0
        length = min(room, letter.size_bytes - letter.done_bytes)
        memmove(group.base + offset, letter.address + letter.done_bytes, length)
        letter.done_bytes += length
        if group.fence is not None:
            group.fence()
        group.counters[index] = written + 1
        return True

    def _read(self, peer: int) -> bool:
        """Read the next part of what comes from `peer`; return False if there is none."""
        group, memory = self._group, self._memory
        index = memory.mail_index(peer, group.rank)
        read = group.counters[index + LINE]
        if group.counters[index] == read:
            return False
        offset, room = memory.mail_at(peer, group.rank, read % MAIL_SLOTS), memory.mail_bytes
        arrival = self._coming.get(peer)
        if arrival is None:
            tag, size_bytes = HEAD.unpack_from(group.buffer, offset)
            arrival = self._coming[peer] = self._admit(peer, tag, size_bytes)
            offset, room = offset + HEAD_BYTES, room - HEAD_BYTES
        length = min(room, arrival.size_bytes - arrival.done_bytes)
        if arrival.letter is not None:
            memmove(arrival.letter.address + arrival.done_bytes, group.base + offset, length)
        else:
            assert arrival.early is not None
            arrival.early += string_at(group.base + offset, length)
        arrival.done_bytes += length
        if group.fence is not None:
            group.fence()  # the slot is read before it is given back
        group.counters[index + LINE] = read + 1
        if arrival.done_bytes == arrival.size_bytes:
            del self._coming[peer]
            if arrival.letter is not None:
                arrival.letter.work.source = peer
                arrival.letter.work.complete()
            else:
                assert arrival.early is not None
                self._early[peer].append((arrival.tag, arrival.early))
        return True

    def _admit(self, peer: int, tag: int, size_bytes: int) -> Arrival:
        """Return where a message that begins goes: to the first letter that wants it, or into the box."""
        for letter in self._waiting:
            if letter.tag == tag and letter.peer in (None, peer):
                self._waiting.remove(letter)
                if letter.size_bytes == size_bytes:
                    return Arrival(tag, size_bytes, letter, None)
                letter.work.complete(self._wrong_size(letter, peer, size_bytes))
                break
        return Arrival(tag, size_bytes, None, bytearray())

    # ---- trouble

    def _wrong_size(self, letter: Letter, peer: int, size_bytes: int) -> Mismatch:
        me, other = self._group.members[self._group.rank], self._group.members[peer]
        return Mismatch(f"{other} sent {size_bytes} bytes with tag {letter.tag}, {me} receives {letter.size_bytes}")

    def _peer(self, letter: Letter) -> int:
        assert letter.peer is not None
        return letter.peer

    def _look(self, now: float) -> None:
        """Give up every letter whose other side is dead, gone or late."""
        with self._lock:
            letters = [*self._waiting, *(letter for letters in self._sending.values() for letter in letters)]
            letters += [arrival.letter for arrival in self._coming.values() if arrival.letter is not None]
            for letter in letters:
                error = self._group.doubt(
                    [letter.peer] if letter.peer is not None else self._group.peers,
                    now - letter.started_s,
                    self._group.timeout_s,
                    (letter.work.name, letter.work.number, letter.size_bytes),
                    lambda peer: self._progress(),
                )
                if error is not None:
                    self._drop(letters, error)
                    return

    def _drop(self, letters: list[Letter], error: BaseException) -> None:
        for letter in letters:
            if not letter.work._done:
                letter.work.complete(error)
        self._waiting.clear()
        self._coming.clear()
        for queue in self._sending.values():
            queue.clear()

    def _busy(self) -> bool:
        return bool(self._waiting or self._coming or any(self._sending.values()))

    def _run(self) -> None:
        """Drive while there is something to move and nobody waits for it."""
        idle_since = next_check = time.monotonic()
        while not self._closed:
            if not self._busy():
                self._wake.clear()
                if not self._busy():
                    self._wake.wait()
                idle_since = time.monotonic()
                continue
            if self._drivers:
                time.sleep(20 * SLEEP_S)
                continue
            now = time.monotonic()
            if self.push():
                idle_since = now
            elif now - idle_since < YIELD_S:
                os.sched_yield()
            else:
                time.sleep(SLEEP_S)
                if now > next_check:
                    self._look(now)
                    next_check = now + CHECK_S
