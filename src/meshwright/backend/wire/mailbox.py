"""Send and receive: letters of one rank to and from all others, and a box for early ones.

A message goes to the first waiting `receive` with its source and tag; one that none of the waiting ones wants, and that
stands in the way of the next, is put into the box. All of it is one state machine that the waiting thread drives, and a
thread of its own drives when nobody waits, so that messages in both directions, to many ranks, and receives in any
order never block each other.
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

from ..faults.failures import CollectiveError, CollectiveMismatch
from ..group.futures import WorkFuture
from ..group.signature import dtype_name
from ..group.work import PendingWork
from ..hosts.placement import GroupMember
from ..local.helper import load_helper
from ..local.sched import request_short_time_slice
from ..local.waiting import AWAITED, CHECK_S, CROWDED_YIELD_S, LONGEST_SLEEP_S, UNAWAITED, Sign, nap_s, wait_any
from .lines import Arriving, LineLost, LineMessage, RankLine, UnexpectedMessage

# from the ranks waited for (of several, any), the seconds waited (None: the line is lost), what waits (name, number,
# bytes) and a last look: why it cannot complete
DiagnoseWait = Callable[
    [Sequence[int], float | None, tuple[str, int, int], Callable[[int], bool]], CollectiveError | None
]
SAY_S = 0.5  # for the lines to be free, for a rank that gives up


class P2PWork(PendingWork):
    """One send or receive, and the Work of it; `peer` is None for a message from any rank."""

    def __init__(
        self,
        mailbox: "Mailbox",
        name: str,
        number: int,
        peer: int | None,
        parcel: LineMessage,
        tensors: Any,
        landing: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(_nothing, tensors)
        self.name = name
        self.number = number
        self.peer = peer
        self.parcel = parcel
        self.source: int | None = None
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

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the message has left, or has come."""
        limit_s = timeout.total_seconds() if timeout is not None else 0.0
        self._mailbox.drive(self, limit_s if limit_s > 0 else None)
        return super().wait()

    def is_completed(self) -> bool:
        """Return whether the message has left, or has come; drives the mailbox once."""
        if not self.done:
            self._mailbox.push()
        return self.done

    def source_rank(self) -> int:
        """Return the rank that a received message came from."""
        assert self.source is not None
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
        self._early: dict[int, list[UnexpectedMessage]] = {peer: [] for peer in lines}
        self._helper = load_helper()
        self._bells: list[int] = []  # eventfds that nobody uses
        self._lingering: dict[int, P2PWork | None] = {}  # those of threads that wait in C, and for which letter
        self._drivers = 0
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._has_said = False

    def send(self, letter: P2PWork) -> None:
        """Start sending; the letter is done once all bytes have left."""
        assert letter.peer is not None
        self._start(letter, self._sending[letter.peer].append)

    def receive(self, letter: P2PWork) -> None:
        """Start receiving; the letter is done once all bytes have come."""
        self._start(letter, self._post)

    def drive(self, letter: P2PWork, limit_s: float | None) -> None:
        """Move messages until `letter` is done; raise TimeoutError after `limit_s`."""
        if letter.done:
            return
        self._drivers += 1
        try:
            start = moved_s = time.monotonic()
            next_check = start + CHECK_S
            while not letter.done:
                if self.push():
                    moved_s = time.monotonic()
                    continue
                now = time.monotonic()
                if limit_s is not None and now - start > limit_s:
                    raise TimeoutError(f"{letter.name} is not done after {limit_s:g} s")
                if now > next_check:
                    self._look()
                    next_check = now + CHECK_S
                self._linger(now - moved_s, letter)
        finally:
            self._drivers -= 1
            if self._busy():
                self._wake.set()

    def _linger(self, waited_s: float, letter: P2PWork | None) -> None:
        """Wait for something to move: for `CHECK_S` at most, without the helper for a nap.

        Who waits for a letter and has to look for it at first only gives way; where none is waited for, looks are few.
        """
        if letter is not None and waited_s < CROWDED_YIELD_S and not self._wakes(letter):
            os.sched_yield()
            return
        pace = AWAITED if letter is not None else UNAWAITED
        if self._helper is None:
            time.sleep(nap_s(waited_s, pace))
            return
        with self._lock:
            signs = [self._lines[peer].room() for peer, letters in self._sending.items() if letters]
            signs += [self._lines[peer].arrival() for peer in self._peers_heard()]
            bell = self._bells.pop() if self._bells else os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._lingering[bell] = letter
        wait_any(self._helper, (*signs, Sign(descriptor=bell, events=select.POLLIN)), waited_s, pace)
        with self._lock:
            del self._lingering[bell]
            self._bells.append(bell)
            with contextlib.suppress(BlockingIOError):  # it has not been rung
                os.eventfd_read(bell)

    def _wakes(self, letter: P2PWork) -> bool:
        """Return whether the waiter of a message is woken when it arrives."""
        return self._helper is not None and letter.peer is not None and self._lines[letter.peer].wakes

    def _ring(self, *, everyone: bool = False) -> None:
        """Wake the waiters whose message is complete, or all waiters."""
        for bell, letter in self._lingering.items():
            if everyone or (letter is not None and letter.done):
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
                if self._has_said or self.broken is not None:  # what was dropped half sent is not to be seen any more
                    return
                self._has_said = True
                for peer, line in self._lines.items():
                    letters = self._sending[peer]
                    if not letters or letters[0].parcel.done_bytes is None:
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
        self._closed = True
        self._wake.set()
        with self._lock:
            self._ring(everyone=True)
        if self._thread is not None:
            self._thread.join(5.0)
        while self._bells:
            os.close(self._bells.pop())
        for peer, line in self._lines.items():
            line.close(farewell=farewell and self.broken is None and not self._sending[peer])

    # ---- under the lock

    def _start(self, letter: P2PWork, enqueue: Callable[[P2PWork], None]) -> None:
        with self._lock:
            if self.broken is not None:
                letter.complete(self.broken.of_later_call(letter.name))
                return
            enqueue(letter)
            self._progress()
            self._ring(everyone=not letter.done)  # the waiters of other messages have not heard of this one
            if letter.done:
                return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="meshwright-mail", daemon=True)
            self._thread.start()
        self._wake.set()

    def _post(self, letter: P2PWork) -> None:
        """Look for a letter's message in the box, or let it wait."""
        for peer in [letter.peer] if letter.peer is not None else list(self._early):
            for i, early in enumerate(self._early[peer]):
                if early.tag == letter.parcel.tag:
                    del self._early[peer][i]
                    self._hand_over(letter, peer, early)
                    return
        self._waiting.append(letter)

    def _hand_over(self, letter: P2PWork, peer: int, early: UnexpectedMessage) -> None:
        """Give a message from the box to the letter that wants it."""
        letter.source = peer
        if error := self._unlike(letter, peer, early.size_bytes, early.dtype_number):
            letter.complete(error)
            return
        memmove(letter.parcel.address, (c_char * early.size_bytes).from_buffer(early.data), early.size_bytes)
        letter.complete()

    def _progress(self) -> bool:
        moved = False
        for peer, letters in self._sending.items():
            try:
                while letters and self._lines[peer].write(letters[0].parcel):
                    moved = True
                    if letters[0].parcel.is_done:
                        letters.popleft().complete()
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
        wanted = {letter.peer for letter in self._waiting}
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
                return owner.parcel
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
                self._box(peer, place)
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

    def _box(self, peer: int, early: UnexpectedMessage) -> None:
        """Keep a message that has come early, unless a letter has asked for it while it came."""
        letter = self._match(peer, early.tag)
        if letter is None:
            self._early[peer].append(early)
        else:
            self._hand_over(letter, peer, early)

    def _match(self, peer: int, tag: int) -> P2PWork | None:
        """Return the first letter that waits for a message with this tag, if there is one; it waits no more."""
        for letter in self._waiting:
            if letter.parcel.tag == tag and letter.peer in (None, peer):
                self._waiting.remove(letter)
                return letter
        return None

    # ---- trouble

    def _unlike(self, letter: P2PWork, peer: int, size_bytes: int, dtype_number: int) -> CollectiveMismatch | None:
        """Return how a message differs from what a letter asks for, if it does."""
        parcel = letter.parcel
        if (parcel.size_bytes, parcel.dtype_number) == (size_bytes, dtype_number):
            return None
        return CollectiveMismatch(
            f"{self._members[peer]} sent {size_bytes} bytes ({dtype_name(dtype_number)}) with tag {parcel.tag}, "
            f"{self._me} receives {parcel.size_bytes} ({dtype_name(parcel.dtype_number)})"
        )

    def _lost(self, peer: int) -> bool:
        """Give up, since the connection to `peer` is gone."""
        letters = self._open()
        name = (letters[0].name, letters[0].number, letters[0].parcel.size_bytes) if letters else ("messages", 0, 0)
        error = self._diagnose_wait([peer], None, name, lambda _: False)
        self._drop(error or CollectiveError(f"{self._members[peer]}: connection lost"))
        return True

    def _look(self) -> None:
        """Give up every letter if one waits for a rank that is dead, gone or late."""
        with self._lock:
            now = time.monotonic()
            for letter in self._open():
                error = None if letter.done else self._why_in_vain(letter, now - letter.started_s)
                if error is not None:
                    self._drop(error)
                    return

    def _why_in_vain(self, letter: P2PWork, waited_s: float) -> CollectiveError | None:
        """Return why a letter will never be done, if so; reads what the ranks that have gone left behind."""

        def arrived(peer: int) -> bool:
            self._progress()
            return letter.done or peer not in self._awaited(letter)

        awaited = self._awaited(letter)
        gone = all(self._lines[peer].ended for peer in awaited)
        call = (letter.name, letter.number, letter.parcel.size_bytes)
        return self._diagnose_wait(awaited, None if gone else waited_s, call, arrived)

    def _awaited(self, letter: P2PWork) -> list[int]:
        """Return the ranks that a letter waits for: of any, those from which something may still come, if there are."""
        if letter.peer is not None:
            return [letter.peer]
        return [peer for peer, line in self._lines.items() if not line.ended] or list(self._lines)

    def _open(self) -> list[P2PWork]:
        letters = [*self._waiting, *(letter for letters in self._sending.values() for letter in letters)]
        return letters + [letter for _, letter in self._coming.values() if letter is not None]

    def _drop(self, error: CollectiveError) -> None:
        self.broken = error
        for letter in self._open():
            if not letter.done:
                letter.complete(error)
        self._waiting.clear()
        self._coming.clear()
        for letters in self._sending.values():
            letters.clear()

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
