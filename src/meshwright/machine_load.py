"""The load of a machine during a measurement: this process, other programs, the hypervisor.

Linux counts the time of every processor in /proc/stat, and in /proc/PID/task/TID/schedstat the nanoseconds that a
thread could have run and stood in the run queue. Elsewhere nothing is known, and `Load` is None.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from .units import counted

_PROC = Path("/proc")
_IDLE = (3, 4)  # columns of /proc/stat: idle, waiting for a disk
_STOLEN = 7
_COUNTED = 8  # columns; what follows (guest time) is in the first ones already
BUSY_SHARE = 0.1  # of the processors: what other programs take below is not worth a word
CROWDED = 2.0  # threads that want a processor, of each, before others count as in the way of a run
WAITED_SHARE = 0.05  # of the time: so long a process stood in the run queue before others count as in its way


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of one process, between two moments; seconds of processors are summed over the usable ones."""

    host: str
    wall_s: float
    processors: int
    own_s: float  # of this process
    all_s: float  # of all processes of the machine, on the processors that this one may use
    stolen_s: float  # by the hypervisor, for other machines
    waited_s: float  # of this process's threads in the run queue


class LoadCounters:
    """The counters at one moment."""

    def __init__(self) -> None:
        self._time_s, self._own_s = time.monotonic(), time.process_time()
        self._all_s, self._stolen_s = _processors()
        self._waited_s = _waited_s()

    def until_now(self) -> Load | None:
        """Return what happened since, None where this system does not count it."""
        now = LoadCounters()
        if self._all_s is None or now._all_s is None or self._stolen_s is None or now._stolen_s is None:
            return None
        return Load(
            host=os.uname().nodename,
            wall_s=now._time_s - self._time_s,
            processors=len(os.sched_getaffinity(0)),
            own_s=now._own_s - self._own_s,
            all_s=now._all_s - self._all_s,
            stolen_s=now._stolen_s - self._stolen_s,
            waited_s=max(0.0, now._waited_s - self._waited_s),
        )


def _processors() -> tuple[float | None, float | None]:
    """Return the seconds of work of the usable processors, and the seconds that a hypervisor gave to other machines."""
    try:
        lines = (_PROC / "stat").read_text().splitlines()
    except OSError:
        return None, None
    usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    worked = stolen = 0
    for name, *columns in (line.split() for line in lines if line.startswith("cpu")):
        if name in usable:
            ticks = [int(column) for column in columns[:_COUNTED]]
            worked += sum(count for place, count in enumerate(ticks) if place not in (*_IDLE, _STOLEN))
            stolen += ticks[_STOLEN] if len(ticks) > _STOLEN else 0
    return worked * tick_s, stolen * tick_s


def crowd_words() -> str:
    """Return what to do about a machine whose threads wait for processors, by its load average; "" where none does."""
    processors, wanting = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    if wanting < CROWDED * processors:
        return ""
    some = f"{wanting:.0f} threads want the {counted(processors, 'processor')} (load average of a minute)"
    return f"; {some}: end other programs (top shows them), or start again when the machine is quiet"


def run_queue_s(schedstat: Path) -> float:
    """Return how long a thread has been ready to run while others had its core, by a file of its name in /proc.

    It is 0 where the thread has ended or the kernel does not count. Source: the kernel's
    Documentation/scheduler/sched-stats.rst.
    """
    try:
        return int(schedstat.read_text("ascii").split()[1]) * 1e-9
    except (OSError, IndexError):
        return 0.0


def _waited_s() -> float:
    """Return the seconds that this process's threads have stood in the run queue; 0 where the kernel does not count."""
    return sum(map(run_queue_s, (_PROC / "self" / "task").glob("*/schedstat")))


def watched(seconds: float) -> Load | None:
    """Return who has the processors while this process sleeps; blocks for `seconds`, in which it waits for nobody."""
    begun = LoadCounters()
    time.sleep(seconds)
    return begun.until_now()


def others_share(loads: Sequence[Load]) -> float:
    """Return the share of a host's processors that neither these processes of it nor nothing had."""
    available_s = max((load.wall_s * load.processors for load in loads), default=0.0)
    taken_s = max((load.all_s + load.stolen_s for load in loads), default=0.0) - sum(load.own_s for load in loads)
    return min(1.0, max(0.0, taken_s / available_s)) if available_s else 0.0


def words_since(begun: LoadCounters) -> str:
    """Return how other programs kept the processors busy since then; "" where they did not, or nothing is known."""
    load = begun.until_now()
    return busy_words([load]) if load else ""


def busy_words(loads: Sequence[Load]) -> str:
    """Return which hosts other programs kept busy, and how long the processes waited for it; "" where none did."""
    said: dict[str, list[str]] = {}  # hosts of which the same is said
    for host in dict.fromkeys(load.host for load in loads):
        here = [load for load in loads if load.host == host]
        share = others_share(here)
        waited = max(load.waited_s / load.wall_s if load.wall_s else 0.0 for load in here)
        stolen = max(load.stolen_s / (load.wall_s * load.processors) if load.wall_s else 0.0 for load in here)
        if share >= BUSY_SHARE and max(waited, stolen) >= WAITED_SHARE:
            machines = f", {stolen:.0%} other virtual machines" if stolen >= WAITED_SHARE else ""
            said.setdefault(f"other programs took {share:.0%} of the processors{{}}{machines}", []).append(host)
    several = len({load.host for load in loads}) > 1
    return "; ".join(text.format(f" of {' and '.join(hosts)}" if several else "") for text, hosts in said.items())
