"""Send and receive between one rank and all others, with a queue of unexpected messages.

A message goes to the first posted receive with its source and tag; one that matches none of them, and stands in the
way of the next, goes to the queue of unexpected messages. All of it is one state machine that the waiting thread
drives, and a thread of its own drives when nobody waits, so that messages in both directions, to many ranks, and
receives in any order never block each other.
"""

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_char, memmove
from datetime import timedelta
from functools import partial
from typing import Any

from ..faults.failures import ArgumentError, CollectiveError, CollectiveMismatch, WaitTimeout
from ..group.futures import WorkFuture
from ..group.signature import dtype_name
from ..group.work import PendingWork, limit_seconds
from ..hosts.placement import GroupMember
from ..local.helper import load_helper
from ..local.sched import request_short_time_slice
from ..local.waiting import (
    AWAITED,
    CHECK_S,
    CROWDED_YIELD_S,
    LONGEST_SLEEP_S,
    UNAWAITED,
    WaitCondition,
    nap_s,
    wait_any,
)
from .lines import Arriving, LineLost, LineMessage, RankLine, UnexpectedMessage

# from the ranks waited for (of several, any), the seconds waited (None: the line is lost), what waits (name, number,
# bytes) and a last look: why it cannot complete
DiagnoseWait = Callable[
    [Sequence[int], float | None, tuple[str, int, int], Callable[[int], bool]], CollectiveError | None
]
SAY_S = 0.5  # how long a rank that gives up waits for the lines to be free


class P2PWork(PendingWork):
    """One send or receive, and the Work of it; `peer` is None for a message from any rank."""

    def __init__(
        self,
        mailbox: "Mailbox",
        name: str,
        number: int,
        peer: int | None,
        message: LineMessage,
        tensors: Any,
        landing: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(_nothing, tensors)
        self.name = name
        self.number = number
        self.peer = peer
        self.message = message
        self.source: int | None = None
        self.engine: object = None  # the group's, kept alive by this work: it finds out why nothing comes
        self.started_s = time.monotonic()
        self._mailbox = mailbox
        self._landing = landing

    def complete(self, error: BaseException | None = None) -> None:
        """Bring a received message to its tensor and open the gate; under the mailbox's lock."""
        if error is None and self._landing is not None:
            try:
                self._landing()
            except Exception as failure:  # of this tensor alone: the mailbox goes on
                error = failure
        self.finish(error)

    def _call_back(self, future: WorkFuture, before_callbacks: Callable[[], object] | None) -> None:
        """Run callbacks on a thread of their own: they may send and receive."""
        call_back = partial(super()._call_back, future, before_callbacks)
        threading.Thread(target=call_back, name="meshwright-callback", daemon=True).start()

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Return when the message has left, or has come."""
        limit_s = limit_seconds(timeout) if timeout is not None else 0.0
        self._mailbox.drive(self, limit_s if limit_s > 0 else None)
        return super().wait()

    def is_completed(self) -> bool:
        """Return whether the message has left, or has come; drives the mailbox once."""
        if not self.done:
            self._mailbox.push()
        return self.done

    def source_rank(self) -> int:
        """Return the rank that a received message came from; ArgumentError where none has come."""
        if self.source is None:
            raise ArgumentError(f"{self.name}: source_rank(): only a receive that is done has a source")
        return self.source

    _source_rank = source_rank


def _nothing() -> None:
    return None


class Mailbox:
    """The messages of one rank; `lines` lead to each other rank."""

    def __init__(
        self,
        me: GroupMember,
        members: Sequence[GroupMember],
        lines: Mapping[int, RankLine],
        diagnose_wait: DiagnoseWait,
    ) -> None:
        self.broken: CollectiveError | None = None
        self._me = me
        self._members = members
        self._lines = lines
        self._diagnose_wait = diagnose_wait
        self._lock = threading.RLock()  # who finds out why a line is lost may read what is left in it
        self._sending: dict[int, deque[P2PWork]] = {peer: deque() for peer in lines}
        self._waiting: list[P2PWork] = []
        self._coming: dict[int, tuple[Arriving | None, P2PWork | None]] = {}
        self._unexpected: dict[int, list[UnexpectedMessage]] = {peer: [] for peer in lines}
        self._helper = load_helper()
        self._bells: list[int] = []  # eventfds that nobody uses
        self._lingering: dict[int, P2PWork | None] = {}  # by eventfd of a thread that waits in C: the work it waits for
        self._drivers = 0
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._has_said = False

    def send(self, work: P2PWork) -> None:
        """Start sending; the work is done once all bytes have left."""
        assert work.peer is not None
        self._start(work, self._sending[work.peer].append)

    def receive(self, work: P2PWork) -> None:
        """Start receiving; the work is done once all bytes have come."""
        self._start(work, self._post)

    def drive(self, work: P2PWork, limit_s: float | None) -> None:
        """Move messages until `work` is done; raise WaitTimeout after `limit_s`."""
        if work.done:
            return
        self._drivers += 1
        try:
            start = moved_s = time.monotonic()
            next_check = start + CHECK_S
            while not work.done:
                if self.push():
                    moved_s = time.monotonic()
                    continue
                now = time.monotonic()
                if limit_s is not None and now - start > limit_s:
                    raise WaitTimeout(f"{work.name} is not done after {limit_s:g} s")
                if now > next_check:
                    self._look()
                    next_check = now + CHECK_S
                self._linger(now - moved_s, work)
        finally:
            self._drivers -= 1
            if self._busy():
                self._wake.set()

    def _linger(self, waited_s: float, work: P2PWork | None) -> None:
        """Wait for something to move: for `CHECK_S` at most, without the helper for a nap.

        A waiter that has to look for its message only yields at first; looks are rare where nobody waits.
        """
        if work is not None and waited_s < CROWDED_YIELD_S and not self._wakes(work):
            os.sched_yield()
            return
        pace = AWAITED if work is not None else UNAWAITED
        if self._helper is None:
            time.sleep(nap_s(waited_s, pace))
            return
        with self._lock:
            signs = [self._lines[peer].room() for peer, works in self._sending.items() if works]
            signs += [self._lines[peer].arrival() for peer in self._peers_heard()]
            bell = self._bells.pop() if self._bells else os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._lingering[bell] = work
        wait_any(self._helper, (*signs, WaitCondition(descriptor=bell, events=select.POLLIN)), waited_s, pace)
        with self._lock:
            del self._lingering[bell]
            if self._closed:
                os.close(bell)
                return
            self._bells.append(bell)
            with contextlib.suppress(BlockingIOError):  # it has not been rung
                os.eventfd_read(bell)

    def _wakes(self, work: P2PWork) -> bool:
        """Return whether the waiter of a message is woken when it arrives."""
        return self._helper is not None and work.peer is not None and self._lines[work.peer].wakes

    def _ring(self, *, everyone: bool = False) -> None:
        """Wake the waiters whose message is complete, or all waiters."""
        for bell, work in self._lingering.items():
            if everyone or (work is not None and work.done):
                os.eventfd_write(bell, 1)

    def push(self) -> bool:
        """Move what can be moved now; return whether anything was."""
        with self._lock:
            moved = self._progress()
            if moved:  # perhaps what others wait for, and a connection that has been read does not wake them
                self._ring()
            return moved

    def say(self, word: bytes) -> None:
        """Tell the ranks of other hosts why this one gives up, over the lines that are between two messages."""
        if self._lock.acquire(timeout=SAY_S):
            try:
                if self._has_said or self.broken is not None:  # a message may have been dropped half sent
                    return
                self._has_said = True
                for peer, line in self._lines.items():
                    works = self._sending[peer]
                    if not works or works[0].message.done_bytes is None:
                        line.say(word)
            finally:
                self._lock.release()

    def last_word(self, peer: int, patience_s: float) -> bytes:
        """Return why a rank of another host has given up, b"" where its line ends, or nothing comes, without a word."""
        line, end = self._lines[peer], time.monotonic() + patience_s
        with self._lock, contextlib.suppress(LineLost):
            while line.wakes and not line.ended and (left_s := end - time.monotonic()) > 0:
                if not self._take(peer):
                    poll = select.poll()
                    poll.register(line.arrival().descriptor, select.POLLIN)
                    poll.poll(left_s * 1000)
        return line.word

    def close(self, *, farewell: bool = True) -> None:
        """End the thread and the lines; `farewell`: this rank leaves because it is done."""
        if self._closed:
            return
        with self._lock:  # other threads may wait for messages
            self._closed = True
            self._wake.set()
            self._ring(everyone=True)
            while self._bells:  # a waiter closes its own
                os.close(self._bells.pop())
            done = {peer for peer, works in self._sending.items() if not works} if self.broken is None else set()
            if works := self._open():
                why = None if farewell else self._why_not_done(works[0], 0.0)
                self._drop(why or CollectiveError(f"{works[0].name}: the group was shut down before it was done"))
            for peer, line in self._lines.items():
                line.close(farewell=farewell and peer in done)
        if self._thread is not None:
            self._thread.join(5.0)

    def disown(self, error: CollectiveError) -> None:
        """Refuse every message, in a forked child: the threads, and perhaps who holds the lock, are in its parent."""
        self.broken, self._lock, self._closed, self._thread = error, threading.RLock(), True, None
        pending = [*self._waiting, *(work for works in self._sending.values() for work in works)]
        self._sending, self._waiting, self._coming = {peer: deque() for peer in self._lines}, [], {}
        for work in pending:
            work.complete(error)

    # ---- under the lock

    def _start(self, work: P2PWork, enqueue: Callable[[P2PWork], None]) -> None:
        with self._lock:
            if self.broken is not None:
                work.complete(self.broken.of_later_call(work.name))
                return
            enqueue(work)
            self._progress()
            self._ring(everyone=not work.done)  # the waiters of other messages have not heard of this one
            if work.done:
                return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="meshwright-mail", daemon=True)
            self._thread.start()
        self._wake.set()

    def _post(self, work: P2PWork) -> None:
        """Take the message of a receive from the unexpected ones, or post the receive."""
        for peer in [work.peer] if work.peer is not None else list(self._unexpected):
            for i, unexpected in enumerate(self._unexpected[peer]):
                if unexpected.tag == work.message.tag:
                    del self._unexpected[peer][i]
                    self._hand_over(work, peer, unexpected)
                    return
        self._waiting.append(work)

    def _hand_over(self, work: P2PWork, peer: int, unexpected: UnexpectedMessage) -> None:
        """Give an unexpected message to the receive that matches it."""
        work.source = peer
        if error := self._unlike(work, peer, unexpected.size_bytes, unexpected.dtype_number):
            work.complete(error)
            return
        memmove(
            work.message.address, (c_char * unexpected.size_bytes).from_buffer(unexpected.data), unexpected.size_bytes
        )
        work.complete()

    def _progress(self) -> bool:
        moved = False
        for peer, works in self._sending.items():
            try:
                while works and self._lines[peer].write(works[0].message):
                    moved = True
                    if works[0].message.is_done:
                        works.popleft().complete()
            except LineLost:
                return self._lost(peer)
        while self._waiting or self._coming:
            try:
                some = [peer for peer in self._peers_heard() if self._read(peer)]
            except LineLost:
                return True
            if not some:
                break
            moved = True
        return moved

    def _peers_heard(self) -> list[int]:
        """Return the ranks from which something may come."""
        wanted = {work.peer for work in self._waiting}
        heard = [peer for peer in self._lines if peer in wanted or None in wanted or peer in self._coming]
        return [peer for peer in heard if not self._lines[peer].ended]

    def _read(self, peer: int) -> bool:
        """Read the next part of what comes from `peer`; return False if there is none. Gives up where it is lost."""
        try:
            return self._take(peer)
        except LineLost:
            self._lost(peer)
            raise

    def _take(self, peer: int) -> bool:
        """Read the next part of what comes from `peer`; return False if there is none."""
        place, owner = self._coming.get(peer, (None, None))

        def admit(tag: int, size_bytes: int, dtype_number: int) -> Arriving:
            nonlocal owner
            owner = self._match(peer, tag)
            error = self._unlike(owner, peer, size_bytes, dtype_number) if owner is not None else None
            if owner is not None and error is None:
                return owner.message
            if owner is not None:
                owner.complete(error)
                owner = None
            return UnexpectedMessage(tag, size_bytes, dtype_number, bytearray(), is_refused=error is not None)

        place, moved = self._lines[peer].read(place, admit)
        if place is None:
            return moved
        if isinstance(place, UnexpectedMessage):
            finished = len(place.data) == place.size_bytes
            if finished and not place.is_refused:
                self._enqueue_unexpected(peer, place)
        else:
            finished = place.is_done
            if finished and owner is not None:
                owner.source = peer
                owner.complete()
        if finished:
            self._coming.pop(peer, None)
        else:
            self._coming[peer] = (place, owner)
        return moved

    def _enqueue_unexpected(self, peer: int, unexpected: UnexpectedMessage) -> None:
        """Keep a message that was not expected; hand it over if its receive was posted while it arrived."""
        work = self._match(peer, unexpected.tag)
        if work is None:
            self._unexpected[peer].append(unexpected)
        else:
            self._hand_over(work, peer, unexpected)

    def _match(self, peer: int, tag: int) -> P2PWork | None:
        """Return the first posted receive of a message with this tag, if there is one; it waits no more."""
        for work in self._waiting:
            if work.message.tag == tag and work.peer in (None, peer):
                self._waiting.remove(work)
                return work
        return None

    # ---- trouble

    def _unlike(self, work: P2PWork, peer: int, size_bytes: int, dtype_number: int) -> CollectiveMismatch | None:
        """Return how a message differs from what a receive asks for, if it does."""
        message = work.message
        if (message.size_bytes, message.dtype_number) == (size_bytes, dtype_number):
            return None
        return CollectiveMismatch(
            f"{self._members[peer]} sent {size_bytes} bytes ({dtype_name(dtype_number)}) with tag {message.tag}, "
            f"{self._me} receives {message.size_bytes} ({dtype_name(message.dtype_number)})"
        )

    def _lost(self, peer: int) -> bool:
        """Give up, since the connection to `peer` is gone."""
        works = self._open()
        name = (works[0].name, works[0].number, works[0].message.size_bytes) if works else ("messages", 0, 0)
        error = self._diagnose_wait([peer], None, name, lambda _: False)
        self._drop(error or CollectiveError(f"{self._members[peer]}: connection lost"))
        return True

    def _look(self) -> None:
        """Fail every work if one waits for a rank that is dead, gone or late."""
        with self._lock:
            now = time.monotonic()
            for work in self._open():
                error = None if work.done else self._why_not_done(work, now - work.started_s)
                if error is not None:
                    self._drop(error)
                    return

    def _why_not_done(self, work: P2PWork, waited_s: float) -> CollectiveError | None:
        """Return why a work will never be done, if so; reads what the ranks that have gone left behind."""

        def arrived(peer: int) -> bool:
            self._progress()
            return work.done or peer not in self._awaited(work)

        awaited = self._awaited(work)
        gone = all(self._lines[peer].ended for peer in awaited)
        call = (work.name, work.number, work.message.size_bytes)
        return self._diagnose_wait(awaited, None if gone else waited_s, call, arrived)

    def _awaited(self, work: P2PWork) -> list[int]:
        """Return the ranks that a work waits for: of any, those from which something may still come, if there are."""
        if work.peer is not None:
            return [work.peer]
        return [peer for peer, line in self._lines.items() if not line.ended] or list(self._lines)

    def _open(self) -> list[P2PWork]:
        works = [*self._waiting, *(work for works in self._sending.values() for work in works)]
        return works + [work for _, work in self._coming.values() if work is not None]

    def _drop(self, error: CollectiveError) -> None:
        self.broken = error
        for work in self._open():
            if not work.done:
                work.complete(error)
        self._waiting.clear()
        self._coming.clear()
        for works in self._sending.values():
            works.clear()

    def _busy(self) -> bool:
        return bool(self._waiting or self._coming or any(self._sending.values()))

    def _run(self) -> None:
        """Drive while there is something to move and nobody waits for it."""
        request_short_time_slice()
        idle_since = next_check = time.monotonic()
        while not self._closed:
            if not self._busy():
                self._wake.clear()
                if not self._busy() and not self._closed:
                    self._wake.wait()
                idle_since = time.monotonic()
                continue
            if self._drivers:
                time.sleep(LONGEST_SLEEP_S)  # a driver may wait often and briefly, and sets `_wake` each time
                self._wake.clear()
                if self._drivers:
                    self._wake.wait(CHECK_S)
                continue
            now = time.monotonic()
            if self.push():
                idle_since = now
            else:
                self._linger(now - idle_since, None)
                if now > next_check:
                    self._look()
                    next_check = now + CHECK_S
