"""Price a schedule on a network: seconds from latencies, rates, and messages that share a resource.

The messages of a round that share a resource share its rate, so each takes its latency, and then the time in which the
busiest resource on its way carries all that the round puts on it; what it brings is reduced after that. A message costs
the network's `message_s` more for each further one of its round out of its sender or into its receiver, and, where
ranks share a machine's cores, its `crowding_s` for each other one of the round and its `turn_s` for each further rank
at work in it, all while what the round sends is on its way; the cores' work on all messages and turns is the least that
a schedule takes. Before its messages of a round a rank copies inside its memory, `copy_s` each. Two models:

as executed   A rank goes on as soon as its own messages of a round are done, as the executor does. A message starts
              when both its ends are in its round and the resources on its way are done with earlier rounds.
in lockstep   Rounds follow each other; a round ends with its slowest message. The model of textbooks.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ..schedules.schedule import Round, Schedule
from .figures import bus_factor, chunk_share
from .network import Network, Route

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CollectivePrice(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted time of one collective of `bytes` bytes, and the rates that benchmarks print."""

    collective: str
    algorithm: str
    ranks: int
    bytes: int
    time_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float  # as nccl-tests define it


class _Round(msgspec.Struct, frozen=True):
    """The messages of a round as arrays, in seconds at no bytes and in seconds per byte of payload."""

    src: Ints
    dst: Ints
    copies_s: Floats  # of each rank, before its messages
    latency_s: Floats
    handling_s: Floats  # of the other messages and ranks of the round
    memory_s_per_byte: Floats  # all that the destination reduces or copies in this round
    user: Ints  # of each use of a resource: the message,
    resource: Ints  # the resource,
    load_s_per_byte: Floats  # and all that the round puts on it


class PricedSchedule:
    """A schedule on a network, ready to be priced for any number of sizes at once."""

    def __init__(self, schedule: Schedule, network: Network) -> None:
        if schedule.ranks > network.ranks:
            raise InputError(f"network: has {network.ranks} ranks, the schedule needs {schedule.ranks}")
        self.schedule = schedule
        self.network = network
        self._capacities = network.capacities
        self._rounds = [self._round(transfers) for transfers in schedule.rounds if transfers]

    def times_s(self, sizes_bytes: Sequence[int] | NDArray[Any], *, lockstep: bool = False) -> Floats:
        """Return the seconds for each size."""
        sizes = np.asarray(sizes_bytes, dtype=np.float64)
        clock = np.zeros((self.schedule.ranks, len(sizes)))
        free = np.full((len(self._capacities), len(sizes)), -self.network.burst_s)
        for r in self._rounds:
            clock += r.copies_s[:, None]
            begun = np.maximum(clock[r.src], clock[r.dst]) + r.latency_s[:, None]
            end = begun + r.handling_s[:, None]  # while others of the round travel
            # a token bucket: it may have run ahead of time by its burst, but no further
            done = np.maximum(free[r.resource], begun[r.user] - self.network.burst_s)
            done += r.load_s_per_byte[:, None] * sizes
            np.maximum.at(free, r.resource, done)
            np.maximum.at(end, r.user, done)
            np.maximum.at(clock, r.src, end)
            np.maximum.at(clock, r.dst, end + r.memory_s_per_byte[:, None] * sizes)
            if lockstep:
                clock[:] = clock.max(axis=0)
        times: Floats = np.maximum(clock.max(axis=0), self._work_s())
        return times

    def _work_s(self) -> float:
        """Return the seconds that the ranks' shared cores have to work, whatever runs at once."""
        messages = turns = 0
        for transfers in self.schedule.rounds:
            ends = [(t.src, t.dst) for t in transfers if not t.is_local]
            messages += len(ends)
            turns += len({rank for pair in ends for rank in pair})
        return self.network.crowding_s * messages + self.network.turn_s * turns

    def _round(self, transfers: Round) -> _Round:
        share = float(chunk_share(self.schedule))
        memory_rate = self.network.reduce_bytes_per_s or float("inf")
        out = Counter(t.src for t in transfers if not t.is_local)
        into = Counter(t.dst for t in transfers if not t.is_local)
        copies = Counter(t.dst for t in transfers if t.is_local)
        load: defaultdict[int, float] = defaultdict(float)
        memory: defaultdict[int, float] = defaultdict(float)
        routes = []
        for t in transfers:
            route = Route(0.0, ()) if t.is_local else self.network.route(t.src, t.dst)
            routes.append(route)
            for r in route.resources:
                load[r] += share * len(t.chunks) / self._capacities[r]
            if t.reduce or t.is_local:
                memory[t.dst] += share * len(t.chunks) / memory_rate
        at_work = len(out.keys() | into.keys())
        crowd_s = self.network.crowding_s * (out.total() - 1) + self.network.turn_s * max(0, at_work - 2)
        more_s = [
            0.0 if t.is_local else crowd_s + self.network.message_s * (max(out[t.src], into[t.dst]) - 1)
            for t in transfers
        ]
        uses = [(i, r) for i, route in enumerate(routes) for r in route.resources]
        return _Round(
            src=np.array([t.src for t in transfers], dtype=np.int64),
            dst=np.array([t.dst for t in transfers], dtype=np.int64),
            copies_s=np.array([self.network.copy_s * copies[rank] for rank in range(self.schedule.ranks)]),
            latency_s=np.array([route.latency_s for route in routes]),
            handling_s=np.array(more_s),
            memory_s_per_byte=np.array([memory[t.dst] for t in transfers]),
            user=np.array([i for i, _ in uses], dtype=np.int64),
            resource=np.array([r for _, r in uses], dtype=np.int64),
            load_s_per_byte=np.array([load[r] for _, r in uses]),
        )


def price_schedule(schedule: Schedule, network: Network, size_bytes: int, *, lockstep: bool = False) -> CollectivePrice:
    """Predict the time of a schedule for a payload of `size_bytes` (see `figures` for what the payload is)."""
    time_s = float(PricedSchedule(schedule, network).times_s([size_bytes], lockstep=lockstep)[0])
    algbw = size_bytes / time_s if time_s else 0.0
    return CollectivePrice(
        collective=schedule.collective,
        algorithm=schedule.name,
        ranks=schedule.ranks,
        bytes=size_bytes,
        time_s=time_s,
        algbw_bytes_per_s=algbw,
        busbw_bytes_per_s=algbw * bus_factor(schedule.collective, schedule.ranks),
    )


def cheapest(schedules: Sequence[Schedule], network: Network, sizes_bytes: Sequence[int]) -> list[Schedule]:
    """Return for each size the schedule with the least time, the first of equals."""
    times = np.array([PricedSchedule(schedule, network).times_s(sizes_bytes) for schedule in schedules])
    return [schedules[i] for i in times.argmin(axis=0)]
