"""Price a schedule on a network: seconds from latencies, rates, and messages that share a resource.

Rounds follow each other; a round ends with its slowest message. A message takes its latency, and the time in which the
busiest resource on its way carries all that the round puts on it; then what it brings is reduced. So a round costs
max over its messages of a + b N, and a schedule is priced once, for any N.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .figures import chunk_share
from .network import Network
from .schedule import Schedule

Floats = NDArray[np.float64]


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted time of one collective of `bytes` bytes, and the rates that benchmarks print."""

    collective: str
    algorithm: str
    ranks: int
    bytes: int
    time_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float  # as nccl-tests define it


class PricedSchedule:
    """A schedule on a network, ready to be priced for any number of sizes at once."""

    def __init__(self, schedule: Schedule, network: Network) -> None:
        if schedule.ranks > network.ranks:
            raise InputError(f"network: has {network.ranks} ranks, the schedule needs {schedule.ranks}")
        self.schedule = schedule
        self.network = network
        self._capacities = network.capacities
        self._rounds = [rates for rates in (self._rates(r) for r in schedule.rounds) if len(rates)]

    def times_s(self, sizes_bytes: Sequence[int] | NDArray[Any]) -> Floats:
        """Return the seconds for each size."""
        sizes = np.asarray(sizes_bytes, dtype=np.float64)
        total = np.zeros_like(sizes)
        for rates in self._rounds:
            total += (rates[:, :1] + rates[:, 1:] * sizes).max(axis=0)
        return total

    def _rates(self, transfers: Sequence[Any]) -> Floats:
        """Return for each different message of a round its seconds at 0 bytes, and its seconds for each byte of N."""
        share = float(chunk_share(self.schedule))
        load: Counter[int] = Counter()
        out: Counter[int] = Counter()
        into: Counter[int] = Counter()
        memory: Counter[int] = Counter()  # chunks that a rank reduces, or copies inside
        routes = []
        for t in transfers:
            if t.reduce or t.is_local:
                memory[t.dst] += len(t.chunks)
            if t.is_local:
                continue
            route = self.network.route(t.src, t.dst)
            routes.append((t, route))
            load.update(dict.fromkeys(route.resources, len(t.chunks)))
            out[t.src] += 1
            into[t.dst] += 1
        memory_s = share / self.network.reduce_bytes_per_s if self.network.reduce_bytes_per_s else 0.0
        rates = {
            (
                route.latency_s + self.network.message_s * (max(out[t.src], into[t.dst]) - 1),
                share * max(load[r] / self._capacities[r] for r in route.resources) + memory_s * memory[t.dst],
            )
            for t, route in routes
        }
        if memory_s:
            rates |= {(0.0, memory_s * chunks) for chunks in memory.values()}
        return np.array(sorted(rates), dtype=np.float64).reshape(len(rates), 2)


def price(schedule: Schedule, network: Network, size_bytes: int) -> Price:
    """Predict the time of a schedule for a payload of `size_bytes` (see `figures` for what the payload is)."""
    time_s = float(PricedSchedule(schedule, network).times_s([size_bytes])[0])
    algbw = size_bytes / time_s if time_s else 0.0
    return Price(
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


def bus_factor(collective: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth: the share of the payload that each link must carry."""
    match collective:
        case "all_reduce":
            return 2 * (ranks - 1) / ranks
        case "all_gather" | "reduce_scatter" | "all_to_all" | "gather" | "scatter":
            return (ranks - 1) / ranks
        case _:
            return 1.0
