"""Torus: every node has a router with two links along each dimension (one where the side is 2).

Dimension order: a message goes all its way along the first dimension, the shorter way round, then along the next. Where
both ways round are as long, every second node sends upwards and the others downwards, so that both carry as much.
"""

import numpy as np

from ..cluster.graph import Fabric
from ..errors import InputError
from ..units import counted
from .arrays import Floats, Ints, ints
from .ports import Ports
from .topology import NOWHERE, LinkBlocks


class Torus:
    """The routers of a torus; the links are those of the graph of cluster.expand."""

    def __init__(self, fabric: Fabric, links: LinkBlocks, ports: Ports) -> None:
        self._sides = fabric.sides
        if fabric.between_slices:
            raise InputError(f"fabric: {fabric.between_slices}")
        if int(np.prod(fabric.sides)) != ports.nodes:
            raise InputError(
                f"fabric: sides {fabric.sides} hold {counted(int(np.prod(fabric.sides)), 'node')}, but "
                f"there are {ports.nodes}"
            )
        self._node = ports.node
        dims = self._dims = len(fabric.sides)
        rate = np.repeat(ports.node_rate_bytes_per_s / (2 * dims), 2 * dims)

        def name(i: int) -> str:
            node, way = divmod(i, 2 * dims)
            axis, down = divmod(way, 2)
            place = ints(np.unravel_index(node, self._sides))
            place[axis] = (place[axis] + (-1 if down else 1)) % self._sides[axis]
            return f"node{node}/router>node{np.ravel_multi_index(tuple(place), self._sides)}/router"

        self._first = links.add(rate, fabric.hop_latency_s or None, name)

    def between(self, src: Ints, dst: Ints, capacity: Floats) -> Ints:
        """Return the links from router to router."""
        here = np.array(np.unravel_index(self._node[src], self._sides))
        there = np.array(np.unravel_index(self._node[dst], self._sides))
        columns = []
        for axis, side in enumerate(self._sides):
            ahead = (there[axis] - here[axis]) % side
            down = ahead * 2 + here[axis] % 2 > side
            hops = np.where(down, side - ahead, ahead)
            for hop in range(int(hops.max(initial=0))):
                node = np.ravel_multi_index(tuple(here), self._sides)
                link = self._first + node * 2 * self._dims + 2 * axis + down
                columns.append(np.where(hop < hops, link, NOWHERE))
                here[axis] = np.where(hop < hops, (here[axis] + np.where(down, -1, 1)) % side, here[axis])
        return np.stack(columns, axis=1).astype(np.int64) if columns else np.zeros((len(src), 0), dtype=np.int64)
