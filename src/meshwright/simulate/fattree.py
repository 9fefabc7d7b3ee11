"""Fat-trees of two or three levels, plain or rail-optimised.

Two levels: a leaf has one link to each of U spines, where U x oversubscription is the number of its NICs. Three levels
(leaves_per_group above 1): the leaves of a pod have one link each to the pod's U middle switches, and each of those has
as many links up as down, to the cores of its own plane. A message goes up only as far as it must, and down the one way
that is left: the only choice is the switch at which it turns.

ideal     all parallel links of a switch are one: what perfect balancing gives (the graph of cluster.expand)
ecmp      the switch of the turn is a hash of sender and receiver
adaptive  each message of a round takes the turn whose links are taken least so far
"""

import numpy as np
from numpy.typing import NDArray

from ..cluster.graph import Fabric
from ..errors import InputError
from .arrays import Floats, Ints
from .ports import Ports, mixed
from .topology import NOWHERE, LinkBlocks


class FatTree:
    """The switches of a flat, fat-tree or rail-optimised fabric."""

    def __init__(self, fabric: Fabric, links: LinkBlocks, ports: Ports, routing: str, seed: int) -> None:
        self._routing, self._seed = routing, seed
        unit = ports.node // fabric.nodes_per_leaf
        rails = int(ports.place.max(initial=0)) + 1 if fabric.kind == "rail-optimised" else 1
        self._leaf = unit if rails == 1 else unit * rails + ports.place
        if routing == "one switch":
            self._leaf = np.zeros_like(unit)
        leaves = int(self._leaf.max(initial=0)) + 1
        per_pod = fabric.leaves_per_group * rails if fabric.leaves_per_group > 1 else leaves
        self._pod = np.arange(leaves) // per_pod
        pods = int(self._pod[-1]) + 1
        below = np.bincount(self._leaf, ports.rate_bytes_per_s, minlength=leaves)
        nics = int(np.bincount(self._leaf).max(initial=1))
        self._turns = 1 if routing in ("ideal", "one switch") else max(1, round(nics / fabric.oversubscription))
        self._cores = 1 if self._turns == 1 else per_pod  # links up of a middle switch, one to each core of its plane
        latency = fabric.hop_latency_s or None
        turns, cores = self._turns, self._cores
        rate = np.repeat(below / fabric.oversubscription / turns, turns)
        label = [_leaf_name(leaf, rails) for leaf in range(leaves)]
        spine = "spine" if pods == 1 else "pod{pod}/middle"

        def up(i: int) -> str:
            at = spine.format(pod=self._pod[i // turns])
            return f"{label[i // turns]}>{at}{i % turns if turns > 1 else ''}"

        self._up = links.add(rate, latency, up)
        self._down = links.add(rate, latency, lambda i: ">".join(reversed(up(i).split(">"))))
        self._pods = pods
        if pods > 1:
            pod_rate = np.bincount(self._pod, below / fabric.oversubscription)
            high = np.repeat(pod_rate / turns / cores, turns * cores)

            def higher(i: int) -> str:
                pod, rest = divmod(i, turns * cores)
                plane, core = divmod(rest, cores)
                number = f"{plane}" if turns > 1 else ""
                return f"pod{pod}/middle{number}>core{f'{plane}.{core}' if turns > 1 else ''}"

            self._high_up = links.add(high, latency, higher)
            self._high_down = links.add(high, latency, lambda i: ">".join(reversed(higher(i).split(">"))))

    def between(self, src: Ints, dst: Ints, capacity: Floats) -> Ints:
        """Return the links up and down between the leaves of two NICs."""
        a, b = self._leaf[src], self._leaf[dst]
        table = np.full((len(src), 4 if self._pods > 1 else 2), NOWHERE, dtype=np.int64)
        climbs = np.flatnonzero(a != b)
        a, b = a[climbs], b[climbs]
        p, q = self._pod[a], self._pod[b]
        if self._turns == 1:
            turn = core = np.zeros(len(climbs), dtype=np.int64)
        elif self._routing == "ecmp":
            turn, core = self._hashed(src[climbs], dst[climbs], a, b, p, q, capacity)
        else:
            turn, core = self._least_taken(a, b, p, q, capacity)
        table[climbs, 0] = self._up + a * self._turns + turn
        table[climbs, -1] = self._down + b * self._turns + turn
        if self._pods > 1:
            over = p != q
            plane = turn[over] * self._cores + core[over]
            table[climbs[over], 1] = self._high_up + p[over] * self._turns * self._cores + plane
            table[climbs[over], 2] = self._high_down + q[over] * self._turns * self._cores + plane
        return table

    def _hashed(self, src: Ints, dst: Ints, a: Ints, b: Ints, p: Ints, q: Ints, capacity: Floats) -> tuple[Ints, Ints]:
        """Hash sender and receiver; where a link of that way is cut, hash again, as switches do with a dead port."""
        turn = mixed(self._seed, src, dst) % self._turns
        core = mixed(self._seed + 1, src, dst) % self._cores
        for attempt in range(2, 2 + 64):
            dead = ~self._alive(a, b, p, q, turn, core, capacity)
            if not dead.any():
                return turn, core
            turn[dead] = mixed(self._seed + attempt, src[dead], dst[dead]) % self._turns
            core[dead] = mixed(self._seed + 64 + attempt, src[dead], dst[dead]) % self._cores
        raise InputError("fabric: too many links of a leaf are cut; no route is left")

    def _alive(self, a: Ints, b: Ints, p: Ints, q: Ints, turn: Ints, core: Ints, capacity: Floats) -> NDArray[np.bool_]:
        alive = (capacity[self._up + a * self._turns + turn] > 0) & (capacity[self._down + b * self._turns + turn] > 0)
        if self._pods > 1:
            plane = turn * self._cores + core
            wide = self._turns * self._cores
            high = (capacity[self._high_up + p * wide + plane] > 0) & (capacity[self._high_down + q * wide + plane] > 0)
            alive = alive & ((p == q) | high)
        return np.asarray(alive)

    def _least_taken(self, a: Ints, b: Ints, p: Ints, q: Ints, capacity: Floats) -> tuple[Ints, Ints]:
        """Give one message after the other the turn, and then the core, whose links are taken least."""
        turns, cores = self._turns, self._cores
        leaves, pods = len(self._pod), self._pods
        rate_up = capacity[self._up : self._up + leaves * turns].reshape(leaves, turns)
        rate_down = capacity[self._down : self._down + leaves * turns].reshape(leaves, turns)
        cut_up, cut_down = (np.where(rate > 0, 0.0, np.inf) for rate in (rate_up, rate_down))
        high_up, high_down = np.zeros((pods, turns, cores)), np.zeros((pods, turns, cores))
        if pods > 1:
            for taken, first in ((high_up, self._high_up), (high_down, self._high_down)):
                taken[capacity[first : first + taken.size].reshape(taken.shape) <= 0] = np.inf
        turn, core = np.zeros(len(a), dtype=np.int64), np.zeros(len(a), dtype=np.int64)
        for i in range(len(a)):
            turn[i] = t = int(np.argmin(np.maximum(cut_up[a[i]], cut_down[b[i]])))
            cut_up[a[i], t] += 1
            cut_down[b[i], t] += 1
            if p[i] != q[i]:
                core[i] = c = int(np.argmin(np.maximum(high_up[p[i], t], high_down[q[i], t])))
                high_up[p[i], t, c] += 1
                high_down[q[i], t, c] += 1
        return turn, core


def _leaf_name(leaf: int, rails: int) -> str:
    return f"leaf{leaf}" if rails == 1 else f"unit{leaf // rails}/rail{leaf % rails}"
