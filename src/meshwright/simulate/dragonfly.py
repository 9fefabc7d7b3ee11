"""Dragonfly: routers of a group are joined all to all, and groups are joined all to all by one link each.

minimal  to the router of the group that has the link to the other group, over it, and on to the router of the receiver
valiant  to a random third group first, by the hash of sender and receiver, which spreads traffic between two groups
         (Kim, Dally, Scott and Abts, Technology-driven, highly-scalable dragonfly topology, ISCA 2008)
"""

import numpy as np

from ..cluster.graph import Fabric
from .arrays import Floats, Ints, ints
from .ports import Ports, mixed
from .topology import NOWHERE, LinkBlocks


class Dragonfly:
    """The routers of a dragonfly; the links are those of the graph of cluster.expand."""

    def __init__(self, fabric: Fabric, links: LinkBlocks, ports: Ports, *, valiant: bool, seed: int) -> None:
        self._valiant, self._seed = valiant, seed
        self._router = ports.node // fabric.nodes_per_leaf  # of each NIC
        routers = int(self._router.max(initial=0)) + 1
        width = self._width = fabric.leaves_per_group
        groups = self._groups = -(-routers // width)
        self._size = ints([min(width, routers - g * width) for g in range(groups)])  # routers of each group
        below = np.bincount(self._router, ports.rate_bytes_per_s, minlength=groups * width)
        local = np.zeros((groups, width, width))
        for g in range(groups):
            mine = below[g * width : (g + 1) * width]
            local[g] = np.minimum(mine[:, None], mine[None, :]) / max(1, self._size[g] - 1)
        out = below.reshape(groups, width).sum(axis=1) / fabric.oversubscription
        between = np.minimum(out[:, None], out[None, :]) / max(1, groups - 1)
        latency = fabric.hop_latency_s or None

        def name_local(i: int) -> str:
            g, rest = divmod(i, width * width)
            a, b = divmod(rest, width)
            return f"group{g}/router{a}>group{g}/router{b}"

        def name_global(i: int) -> str:
            a, b = divmod(i, groups)
            return f"group{a}/router{self._gateway(a, b)}>group{b}/router{self._gateway(b, a)}"

        self._local = links.add(local.ravel(), latency, name_local)
        self._global = links.add(between.ravel(), latency, name_global)

    def between(self, src: Ints, dst: Ints, capacity: Floats) -> Ints:
        """Return the local and global links between the routers of two NICs."""
        a, b = self._router[src], self._router[dst]
        if not self._valiant or self._groups < 3:
            return self._minimal(a, b)
        g, h = a // self._width, b // self._width
        third = mixed(self._seed, src, dst) % (self._groups - 2)
        low, high = np.minimum(g, h), np.maximum(g, h)
        third = third + (third >= low)
        third = third + (third >= high)  # neither of the two
        there = third * self._width + np.asarray(self._gateway(third, g))
        straight = self._minimal(a, b)
        first, second = self._minimal(a, there), self._minimal(there, b)
        table = np.concatenate([first, second], axis=1)
        table[g == h] = NOWHERE
        table[g == h, : straight.shape[1]] = straight[g == h]
        return table

    def _minimal(self, a: Ints, b: Ints) -> Ints:
        width = self._width
        g, h = a // width, b // width
        x, y = a % width, b % width
        table = np.full((len(a), 3), NOWHERE, dtype=np.int64)
        leave = np.where(g == h, y, self._gateway(g, h))
        enter = np.where(g == h, y, self._gateway(h, g))
        first, other, last = x != leave, g != h, enter != y
        table[first, 0] = self._local + (g * width * width + x * width + leave)[first]
        table[other, 1] = self._global + (g * self._groups + h)[other]
        table[last, 2] = self._local + (h * width * width + enter * width + y)[last]
        return table

    def _gateway(self, group: Ints | int, other: Ints | int) -> Ints:
        """Return the router of a group that has the link to another."""
        return ints(other % self._size[group])
