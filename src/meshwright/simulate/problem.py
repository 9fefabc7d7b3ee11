"""Problem: traffic on a topology, ready to be folded, unrolled into a program, or bounded.

A rank is in one round at a time: it goes on when all of its transfers of the round are done, as the executor does. A
transfer starts when both its ends have come to its round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..units import counted
from .arrays import Floats, Ints, Lists, ints, lists
from .topology import Topology, find_links
from .traffic import Pattern, Traffic


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The cost of a message beside the time on its links."""

    latency_s: float | None = None  # of every message, in place of the topology's
    message_s: float = 0.0  # of each further message of a round out of its sender or into its receiver
    handling_s: float = 0.0  # of each message, on the cores that all ranks share
    burst_s: float = 0.0  # of its rate that each link lets pass at once after a pause, as token buckets do
    eager_bytes: float = -1.0  # messages up to this size are buffered: their sender waits for nobody
    reduce_bytes_per_s: float | None = None  # of a rank, reducing or copying inside its memory; None: at no cost


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """Deviations from the catalogue, by name or by seed, so that a run can be repeated."""

    slow: Mapping[str, float] = field(default_factory=dict)  # link: share of its rate that is left
    cut: tuple[str, ...] = ()
    slow_share: float = 0.0  # of all links, drawn at random
    slow_to: float = 0.5  # share of their rate that those keep
    late_s: Mapping[int, float] = field(default_factory=dict)  # rank: how much later it begins
    jitter: float = 0.0  # standard deviation of the logarithm of each latency and each computation
    seed: int = 0

    def __post_init__(self) -> None:
        for name, share in (*self.slow.items(), ("slow_to", self.slow_to)):
            if not 0 < share <= 1:
                raise InputError(f"{name}: {share:g}; expected a share of the rate above 0 and up to 1")
        if not 0 <= self.slow_share <= 1 or not 0 <= self.jitter <= 10:
            raise InputError("expected a share of slow links from 0 to 1 and a jitter from 0 to 10")

    def apply(self, topology: Topology) -> Floats:
        """Return the rates of the links that are left."""
        capacity = topology.capacity_bytes_per_s.copy()
        rng = np.random.default_rng(self.seed)
        if self.slow_share:
            capacity[rng.random(len(capacity)) < self.slow_share] *= self.slow_to
        named = find_links(topology, (*self.slow, *self.cut)) if self.slow or self.cut else {}
        for name, links in named.items():
            capacity[links] *= 0.0 if name in self.cut else self.slow[name]
        return capacity


@dataclass(frozen=True, eq=False)
class Round:
    """The transfers of one round on their links; in a folded problem each stands for `count` of them."""

    src: Ints
    dst: Ints
    size_bytes: Floats
    delay_s: Floats
    after_s: Floats  # from the last byte until the receiver has reduced all that the round brings it
    uses: Lists
    weight: Floats  # of each use: transfers of the class on each link of the class
    count: Ints
    local: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FlowProblem:
    """Rounds over ranks and links; in a folded problem these are classes of ranks and links."""

    members: Ints  # (ranks,) ranks of each class
    links: Ints  # (links,) links of each class
    capacity: Floats  # (links,) of one link
    rounds: tuple[Round, ...]
    order: Ints  # of each round, its number in `rounds`
    late_s: Floats  # (ranks,)
    handling_s: float = 0.0
    burst_s: float = 0.0  # of its rate that each link lets pass at once after a pause
    eager_bytes: float = -1.0

    @property
    def transfers(self) -> int:
        """Transfers of all rounds, those of a class counted once."""
        sizes = ints([len(r.src) for r in self.rounds])
        return int(sizes[self.order].sum()) if len(self.order) else 0

    @property
    def is_folded(self) -> bool:
        """Whether a rank stands for others."""
        return bool((self.members > 1).any())


def problem(
    traffic: Traffic, topology: Topology, size_bytes: int, costs: Costs | None = None,
    disturbance: Disturbance | None = None,
) -> FlowProblem:  # fmt: skip
    """Return the traffic of a payload of `size_bytes` on a topology; InputError where a cut link leaves no route."""
    costs, disturbance = costs or Costs(), disturbance or Disturbance()
    if traffic.ranks > topology.ranks:
        raise InputError(f"network: has {counted(topology.ranks, 'rank')}, the schedule needs {traffic.ranks}")
    if traffic.ranks and any(not 0 <= rank < traffic.ranks for rank in disturbance.late_s):
        raise InputError(f"late rank: no such rank (ranks: 0 to {traffic.ranks - 1})")
    capacity = disturbance.apply(topology)
    late_s = np.zeros(traffic.ranks)
    for rank, seconds in disturbance.late_s.items():
        late_s[rank] = seconds
    rounds = tuple(_round(p, topology, size_bytes, costs, capacity) for p in traffic.patterns)
    return FlowProblem(
        members=np.ones(traffic.ranks, dtype=np.int64),
        links=np.ones(len(capacity), dtype=np.int64),
        capacity=capacity,
        rounds=rounds,
        order=traffic.order,
        late_s=late_s,
        handling_s=costs.handling_s,
        burst_s=costs.burst_s,
        eager_bytes=costs.eager_bytes,
    )


def _round(pattern: Pattern, topology: Topology, size_bytes: int, costs: Costs, capacity: Floats) -> Round:
    count = len(pattern.src)
    local = pattern.src == pattern.dst
    wire = np.flatnonzero(~local)
    ways = topology.ways(pattern.src[wire], pattern.dst[wire], capacity)
    _refuse_cut(topology, ways.links, capacity)
    rows = np.repeat(wire, ways.links.counts())
    sent = size_bytes * pattern.share
    more = np.maximum(
        np.bincount(pattern.src[wire], minlength=topology.ranks)[pattern.src],
        np.bincount(pattern.dst[wire], minlength=topology.ranks)[pattern.dst],
    )
    delay = np.zeros(count)
    delay[wire] = ways.latency_s if costs.latency_s is None else costs.latency_s
    delay[wire] += costs.message_s * (more[wire] - 1)
    after = np.zeros(count)
    if costs.reduce_bytes_per_s:
        work = np.where(pattern.reduces | local, sent, 0.0)
        after = np.bincount(pattern.dst, work, minlength=topology.ranks)[pattern.dst] / costs.reduce_bytes_per_s
    return Round(
        src=pattern.src,
        dst=pattern.dst,
        size_bytes=np.where(local, 0.0, sent),
        delay_s=delay,
        after_s=after,
        uses=lists(rows, ways.links.items, count),
        weight=np.ones(len(rows)),
        count=np.ones(count, dtype=np.int64),
        local=local,
    )


def _refuse_cut(topology: Topology, links: Lists, capacity: Floats) -> None:
    dead = links.items[capacity[links.items] <= 0]
    if len(dead):
        raise InputError(f"link {topology.name(int(dead[0]))} is cut, and the routing has no other way")
