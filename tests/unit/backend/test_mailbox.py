"""The mailbox by itself, with lines that a test moves by hand."""

import contextlib
import ctypes
import os
import socket
import threading
import time

import pytest
import torch

from meshwright.backend.faults.failures import CollectiveError
from meshwright.backend.group.signature import dtype_number
from meshwright.backend.hosts.placement import GroupMember
from meshwright.backend.local import waiting
from meshwright.backend.local.helper import load_helper
from meshwright.backend.local.waiting import CHECK_S, LONGEST_SLEEP_S, SLEEP_S, UNAWAITED, WaitCondition
from meshwright.backend.wire import mailbox as mailbox_module
from meshwright.backend.wire.lines import HEAD, SocketLine, UnexpectedMessage
from meshwright.backend.wire.mailbox import LineMessage, Mailbox, P2PWork

MEMBERS = [GroupMember(rank, rank, "here", "here", 1, (0,)) for rank in range(3)]
UINT8 = dtype_number(torch.uint8)
needs_helper = pytest.mark.skipif(load_helper() is None, reason="the C helper cannot be built here")


class ByHand:
    """A line on which `arrives(tag, parts)` puts a message, one part at a time."""

    ended, wakes = False, False

    def __init__(self):
        self.parts = []
        self.arrived = ctypes.c_uint64(0)

    def arrives(self, tag, size_bytes, *parts):
        self.head, self.parts = (tag, size_bytes, UINT8), list(parts)
        self.arrived.value = 1

    def room(self):
        return WaitCondition(ctypes.addressof(self.arrived), 2**63)

    def arrival(self):
        return WaitCondition(ctypes.addressof(self.arrived), 1)

    def write(self, message):
        return False

    def read(self, arrival, admit):
        if not self.parts:
            return arrival, False
        arrival = arrival or admit(*self.head)
        part = self.parts.pop(0)
        if isinstance(arrival, UnexpectedMessage):
            arrival.data += part
        else:
            done = arrival.done_bytes or 0
            ctypes.memmove(arrival.address + done, part, len(part))
            arrival.done_bytes = done + len(part)
        return arrival, True

    def close(self, *, farewell):
        pass


def work(mailbox, buffer, tag, peer=None):
    message = LineMessage(tag, ctypes.addressof(buffer), len(buffer), UINT8)
    direction = "recv" if peer is None else "send"
    return P2PWork(mailbox, direction, 1, peer, message, [], lambda: buffer)  # it lives as long as its work


def test_a_receive_posted_while_its_message_comes_early_still_gets_it():
    line = ByHand()
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: line}, lambda *_: None)
    other, mine = ctypes.create_string_buffer(4), ctypes.create_string_buffer(4)
    never = work(mailbox, other, tag=8)
    mailbox.receive(never)  # makes the mailbox read the line
    line.arrives(7, 4, b"ab")
    mailbox.push()  # the first half goes into the box: nobody has asked for tag 7
    wanted = work(mailbox, mine, tag=7)
    mailbox.receive(wanted)
    line.parts = [b"cd"]
    mailbox.push()

    assert wanted.done
    assert mine.raw == b"abcd"
    assert wanted.source_rank() == 1
    assert not never.done
    mailbox.close()


def test_a_message_that_has_not_come_has_no_source_and_says_so():
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: ByHand()}, lambda *_: None)
    never = work(mailbox, ctypes.create_string_buffer(4), tag=8)
    mailbox.receive(never)

    with pytest.raises(RuntimeError, match=r"recv: source_rank\(\): only a receive that is done has a source"):
        never.source_rank()
    mailbox.close()


class Leaving(ByHand):
    """A line whose other end may leave, with messages still to be read."""

    left = False

    @property
    def ended(self):
        return self.left and not self.parts


def from_two_ranks_that_may_leave():
    """Return a mailbox that gives up where a rank that is waited for has left, and its lines."""
    lines = {1: Leaving(), 2: Leaving()}

    def diagnose_wait(late, waited_s, call, arrived):
        left = [peer for peer in late if lines[peer].left and not arrived(peer)]
        return CollectiveError(f"rank {left[0]} has left") if left else None

    return Mailbox(MEMBERS[0], MEMBERS, lines, diagnose_wait), lines


@pytest.mark.parametrize("peers", [(None, None), (1, 2)], ids=["any", "each"])
def test_messages_of_ranks_that_have_left_since_are_all_received(monkeypatch, peers):
    monkeypatch.setattr(Mailbox, "_run", lambda _: None)
    mailbox, lines = from_two_ranks_that_may_leave()
    buffers = [ctypes.create_string_buffer(4) for _ in peers]
    works = [
        P2PWork(mailbox, "recv", 1, peer, LineMessage(8, ctypes.addressof(buffer), 4, UINT8), [])
        for peer, buffer in zip(peers, buffers, strict=True)
    ]
    mailbox.receive(works[0])
    if peers[1] is not None:
        mailbox.receive(works[1])
    for peer, line in lines.items():
        line.arrives(8, 4, b"abcd" if peer == 1 else b"efgh")
        line.left = True

    mailbox._look()
    if peers[1] is None:
        mailbox.receive(works[1])

    assert mailbox.broken is None
    assert [buffer.raw for buffer in buffers] == [b"abcd", b"efgh"]
    mailbox.close()


def test_a_message_from_any_rank_may_still_come_when_another_leaves_while_it_is_looked_for(monkeypatch):
    monkeypatch.setattr(Mailbox, "_run", lambda _: None)
    mailbox, lines = from_two_ranks_that_may_leave()
    diagnose_wait = mailbox._diagnose_wait

    def leaves_before(*arguments):
        lines[1].left = True
        return diagnose_wait(*arguments)

    mailbox._diagnose_wait = leaves_before
    buffer = ctypes.create_string_buffer(4)
    mailbox.receive(work(mailbox, buffer, tag=8))
    mailbox._look()
    lines[2].arrives(8, 4, b"abcd")
    mailbox.push()

    assert mailbox.broken is None
    assert buffer.raw == b"abcd"
    mailbox.close()


class Slow(ByHand):
    """A line on which looking takes a while."""

    def read(self, arrival, admit):
        time.sleep(0.005)
        return arrival, False


def test_a_receive_that_begins_while_others_are_looked_at_has_not_waited_less_than_no_time():
    waits = []
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: Slow()}, lambda late, waited_s, *_: waits.append(waited_s))
    buffers = [ctypes.create_string_buffer(4) for _ in range(100)]
    for buffer in buffers:
        mailbox.receive(work(mailbox, buffer, tag=8))
    mailbox.close()

    assert waits
    assert min(waits) >= 0


class Sips:
    """A connection that takes three bytes at a time."""

    def __init__(self):
        self.taken = b""

    def sendmsg(self, parts):
        sip = b"".join(bytes(part) for part in parts)[:3]
        self.taken += sip
        return len(sip)


def test_an_empty_message_is_not_done_before_its_whole_head_has_left():
    connection, message = Sips(), LineMessage(5, 0, 0, UINT8)
    line = SocketLine(connection)
    while not line.write(message):
        pass

    assert message.is_done
    assert connection.taken == HEAD.pack(5, 0, UINT8)


class Clock:
    """A clock that only looks at it and sleeps move."""

    def __init__(self):
        self.now_s = 0.0
        self.sleeps_s = []

    def monotonic(self):
        self.now_s += 1e-5
        return self.now_s

    def sleep(self, seconds):
        self.sleeps_s.append(seconds)
        self.now_s += seconds


def test_the_longer_a_message_is_waited_for_without_the_helper_the_more_seldom_it_is_looked_for(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(mailbox_module, "time", clock)
    monkeypatch.setattr(mailbox_module, "load_helper", lambda: None)
    monkeypatch.setattr(Mailbox, "_run", lambda _: None)
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: ByHand()}, lambda *_: None)
    never = work(mailbox, ctypes.create_string_buffer(4), tag=8)
    mailbox.receive(never)

    with pytest.raises(TimeoutError):
        mailbox.drive(never, limit_s=1.0)

    assert clock.sleeps_s == sorted(clock.sleeps_s)
    assert clock.sleeps_s[-1] == LONGEST_SLEEP_S
    assert len(clock.sleeps_s) < 1.2 / LONGEST_SLEEP_S


def test_where_nobody_waits_for_a_message_looks_are_few_from_the_start(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(mailbox_module, "time", clock)
    monkeypatch.setattr(mailbox_module, "load_helper", lambda: None)
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: ByHand()}, lambda *_: None)
    awaited = work(mailbox, ctypes.create_string_buffer(4), tag=8)

    for waited_s in (0.0, 2e-3, 1.0):
        mailbox._linger(waited_s, awaited)
        mailbox._linger(waited_s, None)

    assert clock.sleeps_s == [SLEEP_S, 0.25e-3, 1e-3, LONGEST_SLEEP_S, UNAWAITED.longest_s]


def test_the_mailbox_s_own_thread_hardly_looks_while_another_drives(monkeypatch):
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: ByHand()}, lambda *_: None)
    never = work(mailbox, ctypes.create_string_buffer(4), tag=8)
    mailbox.receive(never)
    sleeps_s = []
    sleep = time.sleep

    def noted_sleep(seconds):
        if threading.current_thread() is mailbox._thread:
            sleeps_s.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", noted_sleep)
    with pytest.raises(TimeoutError):
        mailbox.drive(never, limit_s=10 * CHECK_S)

    mailbox.close()
    assert len(sleeps_s) <= 12


def waits_for(mailbox, awaited):
    """Return a thread that waits for a work, in C."""
    waiter = threading.Thread(target=mailbox.drive, args=(awaited, None))
    waiter.start()
    while not mailbox._lingering:
        time.sleep(0.001)
    return waiter


def connected():
    """Return a line and the other end of its connection."""
    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    return SocketLine(mine), theirs


@needs_helper
def test_python_looks_for_a_message_only_as_often_as_for_dead_ranks(monkeypatch):
    monkeypatch.setattr(mailbox_module, "CROWDED_YIELD_S", 0.0)
    monkeypatch.setattr(Mailbox, "_run", lambda _: None)
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: ByHand()}, lambda *_: None)
    never = work(mailbox, ctypes.create_string_buffer(4), tag=8)
    mailbox.receive(never)
    looks = []
    push = mailbox.push
    monkeypatch.setattr(mailbox, "push", lambda: (looks.append(None), push())[1])

    with pytest.raises(TimeoutError):
        mailbox.drive(never, limit_s=10 * CHECK_S)

    mailbox.close()
    assert len(looks) <= 12


@needs_helper
@pytest.mark.parametrize("shared", [True, False], ids=["shared memory", "connection"])
def test_a_wait_ends_when_the_message_comes(monkeypatch, shared):
    monkeypatch.setattr(waiting, "CHECK_NS", 10**12)  # nothing else ends it
    line, theirs = (ByHand(), None) if shared else connected()
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: line}, lambda *_: None)
    buffer = ctypes.create_string_buffer(4)
    wanted = work(mailbox, buffer, tag=8)
    mailbox.receive(wanted)

    def send():
        if theirs is None:
            line.arrives(8, 4, b"abcd")
        else:
            theirs.sendall(HEAD.pack(8, 4, UINT8) + b"abcd")

    sender = threading.Timer(0.1, send)
    sender.start()
    mailbox.drive(wanted, limit_s=None)

    sender.join()
    mailbox.close()
    if theirs is not None:
        theirs.close()
    assert buffer.raw == b"abcd"


@needs_helper
def test_who_waits_for_a_message_also_moves_one_that_another_thread_sends_meanwhile(monkeypatch):
    monkeypatch.setattr(waiting, "CHECK_NS", 10**12)
    silent, other = ByHand(), connected()
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: silent, 2: other[0]}, lambda *_: None)
    awaited = work(mailbox, ctypes.create_string_buffer(4), tag=8)
    mailbox.receive(awaited)
    waiter = waits_for(mailbox, awaited)

    size = 2**23  # more than a connection holds
    data = ctypes.create_string_buffer(size)
    sent = P2PWork(mailbox, "send", 2, 2, LineMessage(7, ctypes.addressof(data), size, UINT8), [])
    mailbox.send(sent)
    left = HEAD.size + size
    while left:
        left -= len(other[1].recv(min(left, 2**20)))

    silent.arrives(8, 4, b"abcd")
    waiter.join()
    mailbox.close()
    other[1].close()
    assert sent.done


@needs_helper
def test_who_waits_for_a_message_that_another_thread_has_moved_waits_no_longer(monkeypatch):
    monkeypatch.setattr(waiting, "CHECK_NS", 10**12)
    monkeypatch.setattr(Mailbox, "_run", lambda _: None)
    line, theirs = connected()
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: line}, lambda *_: None)
    buffer = ctypes.create_string_buffer(4)
    mailbox._lock = threading.RLock()
    awaited = work(mailbox, buffer, tag=8)
    mailbox.receive(awaited)
    waiter = waits_for(mailbox, awaited)

    with mailbox._lock:  # so that this thread is the quicker one
        theirs.sendall(HEAD.pack(8, 4, UINT8) + b"abcd")
        while not awaited.done:
            mailbox.push()

    waiter.join()
    mailbox.close()
    theirs.close()
    assert buffer.raw == b"abcd"


@needs_helper
def test_who_waits_for_one_message_is_not_woken_for_another(monkeypatch):
    monkeypatch.setattr(waiting, "CHECK_NS", 10**12)
    monkeypatch.setattr(Mailbox, "_run", lambda _: None)
    silent, (line, theirs) = ByHand(), connected()
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: silent, 2: line}, lambda *_: None)
    buffers = [ctypes.create_string_buffer(4) for _ in range(2)]
    awaited, other = (
        P2PWork(mailbox, "recv", 1, peer, LineMessage(8, ctypes.addressof(buffer), 4, UINT8), [])
        for peer, buffer in zip((1, 2), buffers, strict=True)
    )
    mailbox.receive(awaited)
    waiter = waits_for(mailbox, awaited)

    (bell,) = mailbox._lingering
    theirs.sendall(HEAD.pack(8, 4, UINT8) + b"abcd")
    mailbox.receive(other)
    assert other.done
    with pytest.raises(BlockingIOError):
        os.eventfd_read(bell)

    silent.arrives(8, 4, b"abcd")
    waiter.join()
    mailbox.close()
    theirs.close()


def connected_over_tcp():
    """Return a line and the other end of its connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        mine, _ = server.accept()
    mine.setblocking(False)
    theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return SocketLine(mine), theirs


@needs_helper
def test_a_message_that_comes_in_many_pieces_wakes_who_waits_for_it_when_it_is_whole(monkeypatch):
    monkeypatch.setattr(waiting, "CHECK_NS", 10**12)
    monkeypatch.setattr(Mailbox, "_run", lambda _: None)
    line, theirs = connected_over_tcp()
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: line}, lambda *_: None)
    buffers = [ctypes.create_string_buffer(2000) for _ in range(2)]
    works = [
        P2PWork(mailbox, "recv", 1, 1, LineMessage(8, ctypes.addressof(buffer), len(buffer), UINT8), [])
        for buffer in buffers
    ]
    for each in works:
        mailbox.receive(each)
    lingered = []
    linger = mailbox._linger
    monkeypatch.setattr(mailbox, "_linger", lambda *arguments: (lingered.append(arguments), linger(*arguments)))
    waiter = threading.Thread(target=lambda: [mailbox.drive(each, None) for each in works])
    waiter.start()

    for _ in works:
        theirs.sendall(HEAD.pack(8, 2000, UINT8))
        for _ in range(20):
            time.sleep(0.002)
            theirs.sendall(b"x" * 100)

    waiter.join()
    mailbox.close()
    theirs.close()
    assert [buffer.raw for buffer in buffers] == [b"x" * 2000] * 2
    assert len(lingered) <= 8


@pytest.fixture
def pair():
    """Return the mailboxes of two ranks of different hosts, joined by a connection."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    boxes = [Mailbox(MEMBERS[i], MEMBERS, {1 - i: SocketLine(ends[i])}, lambda *_: None) for i in (0, 1)]
    yield boxes
    for box in boxes:
        box.close()


def test_the_word_of_a_rank_that_gives_up_is_read_after_the_messages_before_it(pair):
    sent, received = ctypes.create_string_buffer(b"abcd", 4), ctypes.create_string_buffer(4)
    pair[0].send(work(pair[0], sent, tag=3, peer=1))

    pair[0].say(b"rank 5 died")

    assert pair[1].last_word(0, 5.0) == b"rank 5 died"
    late = work(pair[1], received, tag=3)
    pair[1].receive(late)
    assert late.done
    assert received.raw == sent.raw


def test_a_rank_that_died_has_left_no_word_and_is_not_waited_for(pair):
    pair[0].close(farewell=False)
    start = time.monotonic()

    assert pair[1].last_word(0, 5.0) == b""
    assert time.monotonic() - start < 4.0


def test_a_rank_that_says_nothing_is_waited_for_as_long_as_told(pair):
    assert pair[1].last_word(0, 0.05) == b""


def test_a_word_longer_than_a_line_takes_ends_the_line(pair):
    pair[0]._lines[1]._connection.send(HEAD.pack(2**40, -2, 0))

    assert pair[1].last_word(0, 5.0) == b""
    assert pair[1]._lines[0].ended


def test_a_word_is_said_once_and_never_after_messages_were_dropped_half_sent(pair):
    large = ctypes.create_string_buffer(2**24)
    pair[0].send(work(pair[0], large, tag=3, peer=1))  # more than the connection takes
    with pair[0]._lock:
        pair[0]._drop(CollectiveError("broken"))
    pair[0].say(b"rank 5 died")
    got = 0
    with contextlib.suppress(BlockingIOError):
        while part := pair[1]._lines[0]._connection.recv(2**20):
            assert b"rank 5 died" not in part
            got += len(part)

    assert 0 < got < 2**24


class Ends:
    """A thread of the mailbox's own that takes its time to end."""

    def join(self, timeout_s):
        time.sleep(0.1)


@needs_helper
def test_a_thread_that_waits_while_the_mailbox_closes_is_let_go_and_loses_nothing_meanwhile(monkeypatch):
    monkeypatch.setattr(waiting, "CHECK_NS", 10**12)
    monkeypatch.setattr(Mailbox, "_run", lambda _: None)
    line, theirs = connected()
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: line}, lambda *_: None)
    awaited = work(mailbox, ctypes.create_string_buffer(4), tag=8)
    mailbox.receive(awaited)
    mailbox._thread = Ends()
    read = os.eventfd_read
    monkeypatch.setattr(os, "eventfd_read", lambda bell: (time.sleep(0.3), read(bell))[1])
    waiter = waits_for(mailbox, awaited)
    (bell,) = mailbox._lingering

    mailbox.close()
    waiter.join()
    theirs.close()

    with pytest.raises(CollectiveError, match="^recv: the group was shut down before it was done$"):
        awaited.wait()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(bell)
