"""Problem: traffic on a topology, ready to be folded, unrolled into a program, or bounded.

A rank is in one round at a time: it goes on when all of its transfers of the round are done, as the executor does. A
transfer starts when both its ends have come to its round.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .arrays import Floats, Ints, Lists, ints, lists
from .program import Program
from .topology import Topology, find_links
from .traffic import Pattern, Traffic


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a message costs beside the time on its links."""

    latency_s: float | None = None  # of every message, in place of the topology's
    message_s: float = 0.0  # of each further message of a round out of its sender or into its receiver
    handling_s: float = 0.0  # of each message, on the cores that all ranks share
    reduce_bytes_per_s: float | None = None  # of a rank, reducing or copying inside its memory; None: at no cost


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """What is not as the catalogue says: all of it by name or by seed, so that it can be had again."""

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
class Problem:
    """Rounds over ranks and links; in a folded problem these are classes of ranks and links."""

    members: Ints  # (ranks,) ranks of each class
    links: Ints  # (links,) links of each class
    capacity: Floats  # (links,) of one link
    rounds: tuple[Round, ...]
    order: Ints  # of each round, its number in `rounds`
    late_s: Floats  # (ranks,)
    handling_s: float = 0.0

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
) -> Problem:  # fmt: skip
    """Return the traffic of a payload of `size_bytes` on a topology; InputError where a cut link leaves no way."""
    costs, disturbance = costs or Costs(), disturbance or Disturbance()
    if traffic.ranks > topology.ranks:
        raise InputError(f"network: has {topology.ranks} ranks, the schedule needs {traffic.ranks}")
    if traffic.ranks and any(not 0 <= rank < traffic.ranks for rank in disturbance.late_s):
        raise InputError(f"late rank: no such rank (ranks: 0 to {traffic.ranks - 1})")
    capacity = disturbance.apply(topology)
    late_s = np.zeros(traffic.ranks)
    for rank, seconds in disturbance.late_s.items():
        late_s[rank] = seconds
    rounds = tuple(_round(p, topology, size_bytes, costs, capacity) for p in traffic.patterns)
    return Problem(
        members=np.ones(traffic.ranks, dtype=np.int64),
        links=np.ones(len(capacity), dtype=np.int64),
        capacity=capacity,
        rounds=rounds,
        order=traffic.order,
        late_s=late_s,
        handling_s=costs.handling_s,
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


def unroll(folded: Problem, disturbance: Disturbance | None = None) -> Program:
    """Return the program of all rounds; the transfers come first, in the order of their rounds."""
    rounds, order = folded.rounds, folded.order
    sizes = ints([len(rounds[o].src) for o in order])
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n = int(first[-1])
    ranks = len(folded.members)
    gate_of = np.arange(ranks)  # the gate that lets each rank into its next round
    gates = ranks
    waits: list[tuple[Ints, Ints]] = []  # (gate, activity)
    signals: list[tuple[Ints, Ints]] = []  # (activity, gate)
    late = _late(folded, n)
    waits += late[0]
    signals += late[1]
    extra = n + len(late[2])
    delays, works = [late[2]], [np.zeros(len(late[2]))]
    taking = [np.unique(np.concatenate([r.src, r.dst])) for r in rounds]
    reducing = [np.flatnonzero(r.after_s > 0) for r in rounds]
    handled = [np.flatnonzero(~r.local) if folded.handling_s else np.zeros(0, dtype=np.int64) for r in rounds]
    handling: list[Ints] = []
    for number, o in enumerate(order):
        r = rounds[o]
        ids = np.arange(first[number], first[number + 1])
        enter = ids.copy()  # the activity that waits for the ranks: the transfer, or its handling
        chosen = handled[o]
        if len(chosen):
            before = extra + np.arange(len(chosen))
            handling.append(before)
            enter[chosen] = before
            gate = gates + np.arange(len(chosen))
            signals.append((before, gate))
            waits.append((gate, ids[chosen]))
            delays.append(np.zeros(len(chosen)))
            works.append(np.full(len(chosen), folded.handling_s))
            extra += len(chosen)
            gates += len(chosen)
        waits.append((gate_of[r.src], enter))
        other = r.src != r.dst
        waits.append((gate_of[r.dst[other]], enter[other]))
        gate_of[taking[o]] = gates + np.arange(len(taking[o]))
        gates += len(taking[o])
        leave = ids.copy()
        chosen = reducing[o]
        if len(chosen):
            after = extra + np.arange(len(chosen))
            gate = gates + np.arange(len(chosen))
            signals.append((ids[chosen], gate))
            waits.append((gate, after))
            delays.append(r.after_s[chosen])
            works.append(np.zeros(len(chosen)))
            leave[chosen] = after
            extra += len(chosen)
            gates += len(chosen)
        signals.append((ids, gate_of[r.src]))
        far = other | (leave != ids)
        signals.append((leave[far], gate_of[r.dst[far]]))
    cpu = len(folded.capacity)
    handled_ids = np.concatenate(handling) if handling else np.zeros(0, dtype=np.int64)
    use_rows = [np.repeat(np.arange(first[i], first[i + 1]), rounds[o].uses.counts()) for i, o in enumerate(order)]
    uses = lists(
        np.concatenate([*use_rows, handled_ids]).astype(np.int64),
        np.concatenate([*(rounds[o].uses.items for o in order), np.full(len(handled_ids), cpu)]).astype(np.int64),
        extra,
    )
    delay = np.concatenate([*(rounds[o].delay_s for o in order), *delays])
    if disturbance is not None and disturbance.jitter:
        delay = delay * np.exp(disturbance.jitter * np.random.default_rng(disturbance.seed).standard_normal(len(delay)))
    return Program(
        work=np.concatenate([*(rounds[o].size_bytes for o in order), *works]),
        delay_s=delay,
        uses=uses,
        weight=np.concatenate([*(rounds[o].weight for o in order), np.ones(len(handled_ids))]),
        capacity=np.append(folded.capacity, 1.0),
        releases=_joined(waits, gates),
        signals=_joined(signals, extra),
    )


def _late(folded: Problem, n: int) -> tuple[list[tuple[Ints, Ints]], list[tuple[Ints, Ints]], Floats]:
    """Return the waits, signals and delays of activities that hold late ranks back, numbered from `n` on."""
    ranks = np.flatnonzero(folded.late_s > 0)
    ids = n + np.arange(len(ranks))
    return [], [(ids, ranks)], folded.late_s[ranks]


def _joined(pairs: list[tuple[Ints, Ints]], rows: int) -> Lists:
    row = np.concatenate([pair[0] for pair in pairs]) if pairs else np.zeros(0, dtype=np.int64)
    item = np.concatenate([pair[1] for pair in pairs]) if pairs else np.zeros(0, dtype=np.int64)
    return lists(row, item, rows)
