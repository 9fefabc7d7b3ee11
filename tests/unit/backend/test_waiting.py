"""Waiting, fences and the watch over processes."""

import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from meshwright.backend.local import waiting
from meshwright.backend.local.helper import load_helper
from meshwright.backend.local.waiting import LONGEST_SLEEP_S, LivenessWatch, Patience, make_fence, membarrier_fence

HELPERS = [None, load_helper()]


class GaveUp(Exception):
    pass


def counters():
    memory = np.zeros(64, np.uint64)
    return memory, memoryview(memory)


@pytest.mark.parametrize("helper", HELPERS, ids=["python", "helper"])
@pytest.mark.parametrize("crowded", [False, True])
def test_a_wait_ends_when_the_counter_has_come_far_enough(helper, crowded):
    memory, view = counters()
    patience = Patience(view, memory.ctypes.data, crowded=crowded, helper=helper)

    def count():
        for number in range(1, 2001):
            view[16] = number

    thread = threading.Thread(target=count)
    thread.start()
    patience.wait(16, 2000, lambda *_: None)
    thread.join()

    assert view[16] == 2000


@pytest.mark.parametrize("helper", HELPERS, ids=["python", "helper"])
def test_who_glances_at_a_counter_for_long_sleeps_in_between(helper, monkeypatch):
    memory, view = counters()
    patience = Patience(view, memory.ctypes.data, crowded=True, helper=helper)
    slept_s = []
    monkeypatch.setattr(waiting.time, "sleep", slept_s.append)

    patience.glance(16, 1, 0.0)
    at_first_s = list(slept_s)
    patience.glance(16, 1, 0.004)
    patience.glance(16, 1, 1.0)

    assert (at_first_s, slept_s) == ([], [0.0005, LONGEST_SLEEP_S])


@pytest.mark.parametrize("helper", HELPERS, ids=["python", "helper"])
def test_a_long_wait_asks_whether_it_is_hopeless(helper):
    memory, view = counters()
    asked = []

    def check(index, target, waited_s):
        asked.append((index, target))
        if len(asked) == 3:
            raise GaveUp

    with pytest.raises(GaveUp):
        Patience(view, memory.ctypes.data, crowded=True, helper=helper).wait(32, 7, check)
    assert asked == [(32, 7)] * 3


def test_x86_needs_no_fence_and_arm_does():
    assert make_fence("x86_64") is None
    if os.uname().machine in {"x86_64", "aarch64"}:
        membarrier_fence(os.uname().machine)()
    with pytest.raises(OSError, match="no memory barrier for toaster"):
        make_fence("toaster")


SIGN = """
import os, socket, sys
from meshwright.backend.local import waiting

def denied(pid):
    raise PermissionError("denied")

if sys.argv[2] == "pipe":
    os.pidfd_open = denied
ours = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(ours, [b"s"], [waiting.sign_of_life()])
child = os.fork()  # which lives on
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["pidfd", "pipe"])
def test_the_end_of_a_process_is_seen_before_it_is_reaped_though_a_child_lives_on(kind):
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", SIGN, str(theirs.fileno()), kind]
    with ours, subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        (sign,) = socket.recv_fds(ours, 1, 1)[1]
        lives = LivenessWatch({1: sign})
        assert not lives.ended(1)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and still a zombie
        until = time.monotonic() + 100  # its child has just been forked, and may not have closed its end of the pipe
        while not lives.ended(1) and time.monotonic() < until:
            time.sleep(0.01)
        assert lives.ended(1)
        assert not lives.ended(2)  # of which nothing is known
        lives.close()


@pytest.mark.parametrize("helper", HELPERS, ids=["python", "helper"])
def test_a_waiter_that_is_stopped_meanwhile_holds_that_time_against_nobody(helper):
    """A scheduler that suspends a job, or Ctrl-Z, stops all its ranks: none of them is late when they go on."""
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    memory = np.frombuffer(shared, np.uint64)
    patience = Patience(memoryview(memory), memory.ctypes.data, crowded=False, helper=helper)
    waited_s = []
    pid = os.fork()
    if pid == 0:
        patience.wait(16, 1, lambda index, target, seconds: waited_s.append(seconds))
        os._exit(int(10 * max(waited_s)))

    time.sleep(0.3)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.3)
    memory[16] = 1

    _, status = os.waitpid(pid, 0)
    assert 3 <= os.waitstatus_to_exitcode(status) < 30


def test_a_rank_is_not_taken_for_dead_because_another_thread_stops_watching_it(monkeypatch):
    lives = LivenessWatch({1: os.pidfd_open(os.getpid())})
    poll = select.poll

    def polled():
        closing = threading.Thread(target=lives.close)
        closing.start()
        closing.join(0.2)  # it closes what is about to be asked, if it can
        return poll()

    monkeypatch.setattr(waiting.select, "poll", polled)

    assert not lives.ended(1)
