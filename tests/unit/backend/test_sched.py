"""Threads that carry messages ask for short turns on a processor."""

import ctypes
import os
import platform
import struct
import threading

import pytest

from meshwright.backend.local.helper import load_helper
from meshwright.backend.local.sched import TURN_NS, request_short_time_slice
from meshwright.native import HELPER_VARIABLE

SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}
LAYOUT = struct.Struct("IIQiIQQQ")  # struct sched_attr of Linux: size, policy, flags, nice, priority, runtime, ...


def turn_ns():
    """Return what the calling thread has asked for, or what the kernel gives it."""
    found = ctypes.create_string_buffer(LAYOUT.size)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(SCHED_GETATTR[platform.machine()], 0, found, LAYOUT.size, 0) == 0, os.strerror(
        ctypes.get_errno()
    )
    return LAYOUT.unpack(found.raw)[5]


def on_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.skipif(platform.machine() not in SCHED_GETATTR, reason="the number of the system call is not known here")
def test_the_thread_that_asks_gets_short_turns_and_no_other():
    before = turn_ns()
    if before == 0:
        pytest.skip("before Linux 6.12 all threads have turns of one length")
    if load_helper() is None:
        pytest.skip("there is no compiler for the helper")

    took_note, turn = on_a_thread(lambda: (request_short_time_slice(), turn_ns()))

    assert (took_note, turn) == (True, TURN_NS)
    assert turn_ns() == before
    assert os.getpriority(os.PRIO_PROCESS, 0) == on_a_thread(lambda: os.getpriority(os.PRIO_PROCESS, 0))


def test_nobody_is_asked_without_the_helper(monkeypatch):
    monkeypatch.setenv(HELPER_VARIABLE, "0")

    assert on_a_thread(request_short_time_slice) is False
