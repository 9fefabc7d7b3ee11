"""The mailbox by itself, with lines that a test moves by hand."""

import ctypes
import time

import pytest

from meshwright.backend import mailbox as mailbox_module
from meshwright.backend.hosts import Member
from meshwright.backend.lines import HEAD, Early, SocketLine
from meshwright.backend.mailbox import Letter, Mailbox, Parcel
from meshwright.backend.waiting import LONGEST_SLEEP_S

MEMBERS = [Member(rank, rank, "here", "here", 1, (0,)) for rank in range(2)]


class ByHand:
    """A line on which `arrives(tag, parts)` puts a message, one part at a time."""

    def __init__(self):
        self.parts = []

    def arrives(self, tag, size_bytes, *parts):
        self.head, self.parts = (tag, size_bytes), list(parts)

    def write(self, parcel):
        return False

    def read(self, arrival, admit):
        if not self.parts:
            return arrival, False
        arrival = arrival or admit(*self.head)
        part = self.parts.pop(0)
        if isinstance(arrival, Early):
            arrival.data += part
        else:
            done = arrival.done_bytes or 0
            ctypes.memmove(arrival.address + done, part, len(part))
            arrival.done_bytes = done + len(part)
        return arrival, True

    def close(self):
        pass


def letter(mailbox, buffer, tag):
    parcel = Parcel(tag, ctypes.addressof(buffer), len(buffer))
    return Letter(mailbox, "recv", 1, None, parcel, [])


def test_a_letter_posted_while_its_message_comes_early_still_gets_it():
    line = ByHand()
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: line}, lambda *_: None)
    other, mine = ctypes.create_string_buffer(4), ctypes.create_string_buffer(4)
    never = letter(mailbox, other, tag=8)
    mailbox.receive(never)  # makes the mailbox read the line
    line.arrives(7, 4, b"ab")
    mailbox.push()  # the first half goes into the box: nobody has asked for tag 7
    wanted = letter(mailbox, mine, tag=7)
    mailbox.receive(wanted)
    line.parts = [b"cd"]
    mailbox.push()

    assert wanted.done
    assert mine.raw == b"abcd"
    assert wanted.source_rank() == 1
    assert not never.done
    mailbox.close()


class Slow(ByHand):
    """A line on which looking takes a while."""

    def read(self, arrival, admit):
        time.sleep(0.005)
        return arrival, False


def test_a_letter_that_begins_while_others_are_looked_at_has_not_waited_less_than_no_time():
    waits = []
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: Slow()}, lambda late, waited_s, *_: waits.append(waited_s))
    buffers = [ctypes.create_string_buffer(4) for _ in range(100)]
    for buffer in buffers:
        mailbox.receive(letter(mailbox, buffer, tag=8))
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
    connection, parcel = Sips(), Parcel(5, 0, 0)
    line = SocketLine(connection)
    while not line.write(parcel):
        pass

    assert parcel.is_done
    assert connection.taken == HEAD.pack(5, 0)


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


def test_the_longer_a_message_is_waited_for_the_more_seldom_it_is_looked_for(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(mailbox_module, "time", clock)
    monkeypatch.setattr(Mailbox, "_run", lambda _: None)
    mailbox = Mailbox(MEMBERS[0], MEMBERS, {1: ByHand()}, lambda *_: None)
    never = letter(mailbox, ctypes.create_string_buffer(4), tag=8)
    mailbox.receive(never)

    with pytest.raises(TimeoutError):
        mailbox.drive(never, limit_s=1.0)

    assert clock.sleeps_s == sorted(clock.sleeps_s)
    assert clock.sleeps_s[-1] == LONGEST_SLEEP_S
    assert len(clock.sleeps_s) < 1.2 / LONGEST_SLEEP_S
