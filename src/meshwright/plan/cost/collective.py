"""Time of collectives over one axis of the mesh, on the links that the axis really crosses.

A ring over P ranks moves 2(P-1)/P of the bytes for an all-reduce and (P-1)/P for a gather or scatter. Its rate is that
of its slowest link: a GPU's links inside a node, or the NICs of a node shared by the rings that pass through it. With
k ranks of an axis in a node of G, G/k rings share the NICs (each GPU belongs to one).
"""

from dataclasses import dataclass

import numpy as np

from ...cluster.curve import ONE_MIB, SHARE_OF_SIZE
from .coefficients import Coefficients
from .quantities import Grid, Machine, Number, stride

SMALL_POWER = 0.2  # of the size, for messages that the start dominates


@dataclass(frozen=True, slots=True)
class Span:
    """How one axis of the mesh lies over the nodes."""

    ranks: Number
    inside: Number  # ranks of one group that sit in one node
    rate: Number  # bytes per second of the slowest link of a ring
    latency_s: Number  # of one step that leaves a node

    @property
    def crosses(self) -> Number:
        """True where the axis leaves a node."""
        return self.inside < self.ranks


def span(machine: Machine, c: Coefficients, ranks: Number, step: Number) -> Span:
    """Return how an axis of `ranks` ranks, `step` ranks apart, lies over the nodes."""
    inside = np.clip(np.floor(machine.domain / step), 1.0, ranks)
    shared = machine.node_rate * c.network / machine.gpus_per_node * inside  # NIC rate of one ring
    links = machine.link_rate * c.link
    crosses = inside < ranks
    return Span(
        ranks=ranks,
        inside=inside,
        rate=np.where(crosses, np.minimum(shared, links), links),
        latency_s=np.where(crosses, c.network_latency_s, 0.0),
    )


def axis_span(machine: Machine, c: Coefficients, grid: Grid, axis: str) -> Span:
    """Return how a mesh axis lies over the nodes."""
    return span(machine, c, getattr(grid, axis), stride(grid, axis))


def gather_s(c: Coefficients, over: Span, size_bytes: Number) -> Number:
    """Return seconds of an all-gather or reduce-scatter of `size_bytes` in all; zero for one rank.

    Half of an all-reduce's curve over links (`cluster.curve`): max(small s^0.2, bytes / rate + fill s^(1/3)) with
    s = size / 1 MiB, and a latency for each of the P-1 steps that leave a node.
    """
    steps = over.ranks - 1.0
    moved = size_bytes * steps / over.ranks / over.rate
    mib = size_bytes / ONE_MIB
    group = (steps / 7.0) ** c.small_group / 2.0
    small = c.small_s * group * mib**SMALL_POWER
    return np.where(
        steps > 0, np.maximum(small, moved + c.fill_s * group * mib**SHARE_OF_SIZE) + steps * over.latency_s, 0.0
    )


def all_reduce_s(c: Coefficients, over: Span, size_bytes: Number) -> Number:
    """Return seconds of an all-reduce: a reduce-scatter and an all-gather."""
    return 2.0 * gather_s(c, over, size_bytes)


def all_to_all_s(machine: Machine, c: Coefficients, over: Span, size_bytes: Number) -> Number:
    """Return seconds of an all-to-all in which each rank sends `size_bytes`, evenly to all ranks."""
    steps = over.ranks - 1.0
    local = size_bytes * (over.inside - 1.0) / over.ranks / (machine.link_rate * c.link)
    per_gpu = machine.node_rate * c.network / machine.gpus_per_node
    remote = size_bytes * (over.ranks - over.inside) / over.ranks / per_gpu
    return np.where(steps > 0, np.maximum(local, remote) + c.small_s / 2.0 + over.latency_s, 0.0)
