"""Networks as the price of a schedule sees them: resources with a capacity, and which of them each message occupies.

Messages of one round that use one resource share its capacity. Rates are per direction.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ...cluster.graph import Cluster, Link, check_devices
from ...errors import InputError


class Route(NamedTuple):
    """The cost of a message between two ranks: a time of its own, and the resources that it occupies."""

    latency_s: float
    resources: tuple[int, ...]


class Network(Protocol):
    """`ranks` ranks; capacities in bytes per second; where each two ranks meet."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""

    @property
    def capacities(self) -> Sequence[float]:
        """Bytes per second of each resource."""

    @property
    def message_s(self) -> float:
        """Seconds that each message of a round costs a rank beyond its first one in each direction."""

    @property
    def crowding_s(self) -> float:
        """Seconds that each message of a round costs all others of it, for ranks that share a machine's cores."""

    @property
    def turn_s(self) -> float:
        """Extra seconds per round for each active rank after the second, when ranks share cores."""

    @property
    def burst_s(self) -> float:
        """Seconds of its rate that a resource lets pass at once after a pause, as token buckets of shaped links do."""

    @property
    def reduce_bytes_per_s(self) -> float | None:
        """Bytes per second that a rank reduces or copies inside its memory; None: at no cost."""

    @property
    def copy_s(self) -> float:
        """Seconds of a copy or sum of no bytes inside a rank's memory; its messages of the round wait for it."""

    def route(self, src: int, dst: int) -> Route:
        """Return the way of a message."""


class LinkRate(NamedTuple):
    """A link by its two figures."""

    latency_s: float
    bandwidth_bytes_per_s: float


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RankCosts:
    """The costs of messages and sums to ranks, beside the links, as `Network` says; by default none."""

    message_s: float = 0.0
    crowding_s: float = 0.0
    turn_s: float = 0.0
    burst_s: float = 0.0
    reduce_bytes_per_s: float | None = None
    copy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HostsNetwork(RankCosts):
    """Hosts with equal ranks: any two ranks are one link apart, and links between hosts pass the hosts' NICs.

    A rank sends and receives at once at the rate of its link inside the host; rank r of a host uses its NIC number
    r * nics // ranks_per_host, or all of its own where there are more NICs than ranks. With `shared_bytes_per_s`, all
    messages inside one host share that rate too.
    """

    ranks: int
    ranks_per_host: int
    inside: LinkRate
    between: LinkRate
    nics: int = 1
    shared_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.ranks_per_host < 1 or self.ranks % self.ranks_per_host:
            raise InputError(f"network: {self.ranks} ranks do not fill hosts of {self.ranks_per_host}")
        if self.nics < 1:
            raise InputError(f"network: expected at least 1 NIC a host, got {self.nics}")
        if min(self.inside.bandwidth_bytes_per_s, self.between.bandwidth_bytes_per_s) <= 0:
            raise InputError("network: rates must be positive")

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.ranks // self.ranks_per_host

    @property
    def capacities(self) -> Sequence[float]:
        """Ports out of and into each rank, NICs out of and into each host, and what each host shares."""
        ports = [self.inside.bandwidth_bytes_per_s] * (2 * self.ranks)
        nics = [self.between.bandwidth_bytes_per_s * self.nics / self._nic_ports] * (2 * self.hosts * self._nic_ports)
        return ports + nics + [self.shared_bytes_per_s or float("inf")] * self.hosts

    def route(self, src: int, dst: int) -> Route:
        """Return the ports of both ranks, or the NICs of both hosts."""
        here, there = src // self.ranks_per_host, dst // self.ranks_per_host
        if here == there:
            ports = (src, self.ranks + dst)
            if self.shared_bytes_per_s is None:  # nothing to queue for
                return Route(self.inside.latency_s, ports)
            return Route(self.inside.latency_s, (*ports, 2 * self.ranks + 2 * self.hosts * self._nic_ports + here))
        out = 2 * self.ranks + self._nic(src)
        into = 2 * self.ranks + self.hosts * self._nic_ports + self._nic(dst)
        return Route(self.between.latency_s, (out, into))

    def _nic(self, rank: int) -> int:
        host, place = divmod(rank, self.ranks_per_host)
        return host * self._nic_ports + place * self._nic_ports // self.ranks_per_host

    @property
    def _nic_ports(self) -> int:
        """NICs that serve one rank are one port, as in NodeGroup."""
        return min(self.nics, self.ranks_per_host)


def uniform(ranks: int, latency_s: float, bandwidth_bytes_per_s: float, **more: float) -> HostsNetwork:
    """Return a network where any two ranks are joined alike, and each sends and receives at once at full rate.

    `more`: message_s, crowding_s, turn_s, burst_s, reduce_bytes_per_s, copy_s, as in HostsNetwork.
    """
    wire = LinkRate(latency_s, bandwidth_bytes_per_s)
    return HostsNetwork(ranks, ranks, wire, wire, **more)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class GraphNetwork(RankCosts):
    """The links of a Cluster, each a resource in either direction; messages take the way with the fewest links.

    Between ways of as many links, the widest is taken; none leads through a device of `ends`. `devices[r]` is where
    rank r runs.
    """

    devices: tuple[str, ...]
    links: tuple[Link, ...]
    ends: frozenset[str] = frozenset()  # devices that pass nothing on, such as GPUs
    latency_s: float | None = None  # of every message; None: what the links say
    _around: dict[str, list[tuple[str, int]]] = field(init=False, default_factory=dict, repr=False)
    _routes: dict[tuple[int, int], Route] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for number, link in enumerate(self.links):
            self._around.setdefault(link.a, []).append((link.b, 2 * number))
            self._around.setdefault(link.b, []).append((link.a, 2 * number + 1))

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.devices)

    @property
    def capacities(self) -> Sequence[float]:
        """Each link there, then back."""
        return [_bandwidth(link) for link in self.links for _ in range(2)]

    def route(self, src: int, dst: int) -> Route:
        """Return the links between two ranks; InputError if there is no route, or a figure of it is not known."""
        if (src, dst) not in self._routes:
            self._routes[src, dst] = self._find(src, dst)
        return self._routes[src, dst]

    def _find(self, src: int, dst: int) -> Route:
        start, end = self.devices[src], self.devices[dst]
        queue: list[tuple[int, float, str, tuple[int, ...]]] = [(0, 0.0, start, ())]
        done: set[str] = set()
        while queue:
            hops, narrow, device, taken = heapq.heappop(queue)
            if device == end:
                return Route(self._latency_s(taken), taken)
            if device in done or (device in self.ends and device != start):
                continue
            done.add(device)
            for other, resource in self._around.get(device, ()):
                if other not in done:
                    rate = self.links[resource // 2].bandwidth_bytes_per_s or 0.0
                    slowness = max(narrow, 1 / rate if rate else float("inf"))
                    heapq.heappush(queue, (hops + 1, slowness, other, (*taken, resource)))
        raise InputError(f"cluster: no route from {start} to {end}")

    def _latency_s(self, resources: tuple[int, ...]) -> float:
        if self.latency_s is not None:
            return self.latency_s
        known = [self.links[r // 2].latency_s for r in resources]
        if None in known:
            link = self.links[resources[known.index(None)] // 2]
            raise InputError(f"cluster: link {link.a}-{link.b} has no latency_s; give one for all messages (--alpha)")
        return sum(latency for latency in known if latency is not None)


def network_of(cluster: Cluster, ranks: int, *, latency_s: float | None = None) -> GraphNetwork:
    """Return the network of a cluster's explicit links, with ranks on its GPUs (or CPUs) in their order."""
    places = cluster.of_kind("gpu") or cluster.of_kind("cpu")
    check_devices(cluster, len(places), ranks)
    devices = tuple(device.id for device in places[:ranks])
    gpus = frozenset(device.id for device in cluster.of_kind("gpu"))
    return GraphNetwork(devices, cluster.links, gpus, latency_s)


def _bandwidth(link: Link) -> float:
    if link.bandwidth_bytes_per_s is None:
        raise InputError(f"cluster: link {link.a}-{link.b} has no bandwidth_bytes_per_s")
    return link.bandwidth_bytes_per_s
