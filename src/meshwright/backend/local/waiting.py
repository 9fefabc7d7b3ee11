"""How a rank waits for another: spin, yield, sleep, and look now and then whether the other still lives.

Counters in shared memory only ever grow. A waiter first spins, if every rank has a processor of its own; then it gives
its processor away at each look; then it sleeps between looks, the longer the longer it has waited (a wake-up takes a
processor from ranks that work), and also checks, every few milliseconds, that the rank it waits for is alive, that no
other rank has given up, and that there is time left.
"""

import ctypes
import os
import platform
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...native import warn_on_first

SPINS = 60  # looks before the first yield where ranks do not share processors
HELPER_SPINS = 1000  # the same in C, where a look is shorter and other threads of the process go on
YIELD_S = 1e-3  # how long to yield before the first sleep
HELPER_YIELD_S = 2e-3  # the same in C
CROWDED_YIELD_S = 0.3e-3  # the same where ranks share processors: each look costs one that works its turn
SLEEP_S = 50e-6  # the first sleep
LONGEST_SLEEP_S = 1e-3
CHECK_S = 20e-3  # how often the slow path looks for dead ranks
CHECK_NS = int(CHECK_S * 1e9)
STOPPED_S = 1.0  # a waiter that did not look for so long was stopped itself: the others are not late
GLANCE_NS = 200_000  # how long to look at one counter where another may tell the same
ORDERED_MACHINES = {"x86_64", "i686", "s390x"}  # stores become visible in program order
_MEMBARRIER = {"aarch64": 283, "riscv64": 283, "ppc64le": 365, "loongarch64": 283, "x86_64": 324}
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 2, 4

Counters = memoryview  # of unsigned 64-bit numbers


class LookPace(NamedTuple):
    """How late a look may come: by a `share`-th of the wait so far, and by `longest_s` at most."""

    share: int
    longest_s: float


AWAITED = LookPace(8, LONGEST_SLEEP_S)
UNAWAITED = LookPace(2, 8e-3)  # for work that nobody waits for: each look takes a core from a rank that computes


class Patience:
    """The waiting policy of one group of ranks on one host."""

    def __init__(self, counters: Counters, address: int, *, crowded: bool, helper: ctypes.CDLL | None) -> None:
        self._counters = counters
        self._address = address
        self._helper = helper
        self.crowded = crowded  # more ranks than processors
        self.spins = 0 if crowded else SPINS
        self.yield_s = CROWDED_YIELD_S if crowded else YIELD_S
        self.helper_spins = 0 if crowded else HELPER_SPINS
        self.helper_yield_ns = int((CROWDED_YIELD_S if crowded else HELPER_YIELD_S) * 1e9)

    def wait(self, index: int, target: int, check: Callable[[int, int, float], None]) -> None:
        """Return once counter `index` is at least `target`.

        `check(index, target, waited_s)` is called every few milliseconds and raises to give up.
        """
        if self._helper is None:
            self._wait(index, target, check)
            return
        address, spins, yield_ns = self._address + 8 * index, self.helper_spins, self.helper_yield_ns
        waited = None
        while not self._helper.mw_wait(address, target, spins, yield_ns, CHECK_NS):
            waited = waited or OwnWait(CHECK_S)
            check(index, target, waited.seconds())
            spins = yield_ns = 0

    def glance(self, index: int, target: int, waited_s: float) -> None:
        """Wait for counter `index` to be at least `target`, for a little while; others may have to be looked at too.

        `waited_s` is for how long it has been glanced at: as in a wait, a rank that has yielded for long enough sleeps.
        """
        if waited_s > self.yield_s:
            time.sleep(nap_s(waited_s))
        elif self._helper is not None:
            address = self._address + 8 * index
            self._helper.mw_wait(address, target, self.helper_spins, GLANCE_NS, GLANCE_NS)
        else:
            for _ in range(self.spins):
                if self._counters[index] >= target:
                    return
            os.sched_yield()

    def _wait(self, index: int, target: int, check: Callable[[int, int, float], None]) -> None:
        counters, start, waited = self._counters, time.monotonic(), OwnWait()
        for _ in range(self.spins):
            if counters[index] >= target:
                return
        give_way = os.sched_yield
        while time.monotonic() - start < self.yield_s:
            for _ in range(8):
                if counters[index] >= target:
                    return
                give_way()
        next_check = start + CHECK_S
        while counters[index] < target:
            time.sleep(nap_s(time.monotonic() - start))
            now = time.monotonic()
            if now >= next_check:
                check(index, target, waited.seconds())
                next_check = now + CHECK_S


class OwnWait:
    """The seconds of a wait, without those in which the waiter was stopped itself.

    A scheduler that suspends a job, Ctrl-Z or a machine that is paused stops all its ranks: when they go on, none of
    them has kept the others waiting. Between two looks at a wait lie some milliseconds; where they are further apart
    than `STOPPED_S`, the waiter did not run.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._last = time.monotonic()
        self._seconds = seconds

    def seconds(self) -> float:
        """Return for how long it has been waited; to be asked at every look."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        self._seconds += passed if passed < STOPPED_S else CHECK_S
        return self._seconds


def nap_s(waited_s: float, pace: LookPace = AWAITED) -> float:
    """Return how long to sleep before the next look, after a wait of `waited_s`."""
    return min(max(SLEEP_S, waited_s / pace.share), pace.longest_s)


class WaitCondition(NamedTuple):
    """The end of a wait: the counter at `address` has reached `target`, or a descriptor is ready for `events`."""

    address: int = 0
    target: int = 0
    descriptor: int = -1  # none: it is the counter
    events: int = 0


class _File(ctypes.Structure):
    """The struct pollfd of the system."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def wait_any(helper: ctypes.CDLL, signs: Sequence[WaitCondition], waited_s: float, pace: LookPace) -> None:
    """Return when one of the signs is there, after `CHECK_S` at the latest; `waited_s` have been waited before."""
    counters = [sign for sign in signs if sign.descriptor < 0]
    files = [_File(sign.descriptor, sign.events) for sign in signs if sign.descriptor >= 0]
    addresses = (ctypes.c_uint64 * len(counters))(*(sign.address for sign in counters))
    targets = (ctypes.c_uint64 * len(counters))(*(sign.target for sign in counters))
    polled = (_File * len(files))(*files)
    waited_ns, longest_ns = int(waited_s * 1e9), int(pace.longest_s * 1e9)
    helper.mw_wait_any(
        addresses, targets, len(counters), polled, len(files), waited_ns, pace.share, longest_ns, CHECK_NS
    )


def make_fence(machine: str | None = None) -> Callable[[], object] | None:
    """Return what a writer must call between filling a slot and raising its counter, or None where nothing is needed.

    x86 shows stores to other processors in program order, and loads happen in program order, so plain stores suffice.
    Elsewhere (Arm) the writer calls membarrier(GLOBAL_EXPEDITED): the kernel then runs a full barrier on every
    processor that runs a registered process. A reader that sees the new counter does so after that barrier, and its
    later loads of the slot come after it too, so that the barrier of the writer orders both sides.
    """
    machine = machine or platform.machine()
    if machine in ORDERED_MACHINES:
        return None
    return membarrier_fence(machine)


def membarrier_fence(machine: str) -> Callable[[], object]:
    """Register this process for expedited global barriers and return the function that makes one."""
    number = _MEMBARRIER.get(machine)
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    if number is None or syscall(number, _REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0:
        raise OSError(
            f"no memory barrier for {machine}: membarrier is not there ({os.strerror(ctypes.get_errno())}); "
            "build the C helper (a C compiler on PATH is enough)"
        )

    def fence() -> None:
        if syscall(number, _GLOBAL_EXPEDITED, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "membarrier failed")

    return fence


class _Pipe:
    """A pipe whose writing end only this process holds: the pipe ends when the process does."""

    def __init__(self) -> None:
        self._ends: tuple[int, int] | None = None
        os.register_at_fork(after_in_child=self._close)

    def reader(self) -> int:
        """Return a new descriptor of the reading end."""
        if self._ends is None:
            self._ends = os.pipe2(os.O_CLOEXEC)
        return os.dup(self._ends[0])

    def _close(self) -> None:
        """Let go of what is the parent's: a child may outlive it."""
        if self._ends is not None:
            os.close(self._ends[0])
            os.close(self._ends[1])
            self._ends = None


_PIPE = _Pipe()


def sign_of_life() -> int:
    """Return a new descriptor that any process may hold, which is ready for reading once this process has ended.

    It is a pidfd, which the kernel keeps for itself; where that is denied (by a seccomp filter, or by an old kernel),
    the reading end of a pipe.
    """
    try:
        return os.pidfd_open(os.getpid())
    except (OSError, AttributeError) as error:
        warn_on_first(f"the end of a rank is seen by a pipe of its own, since there is no pidfd_open: {error}")
        return _PIPE.reader()


class LivenessWatch:
    """Watches processes of this host by their signs of life: says which have ended, zombies included."""

    def __init__(self, signs: Mapping[int, int]) -> None:
        """Take over the descriptors, one for each rank."""
        self._descriptors = dict(signs)
        self._dead: set[int] = set()
        self._lock = threading.RLock()  # of the descriptors: one that is closed may be another file's the next moment

    def ended(self, rank: int) -> bool:
        """Return whether the process of `rank` has ended (it is known within a millisecond of the end)."""
        if rank in self._dead:
            return True
        with self._lock:
            descriptor = self._descriptors.get(rank)
            if descriptor is None:
                return False
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if poll.poll(0):
                self._dead.add(rank)
        return rank in self._dead

    def close(self) -> None:
        """Stop watching; other threads may still ask."""
        with self._lock:
            for descriptor in self._descriptors.values():
                os.close(descriptor)
            self._descriptors.clear()
