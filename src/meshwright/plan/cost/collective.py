"""Time of collectives over one axis of the mesh, on the links that the axis really crosses.

A ring over P ranks moves 2(P-1)/P of the bytes for an all-reduce and (P-1)/P for a gather or scatter. Its rate is that
of its slowest link: a GPU's links inside a node, or the NICs of a node shared by the rings that pass through it. With
k ranks of an axis in a node of G, G/k rings share the NICs (each GPU belongs to one).
"""

from dataclasses import dataclass

import numpy as np

from .coefficients import Coefficients
from .quantities import Grid, Machine, Number, stride


@dataclass(frozen=True, slots=True)
class Span:
    """How one axis of the mesh lies over the nodes."""

    ranks: Number
    inside: Number  # ranks of one group that sit in one node
    rate: Number  # bytes per second of the slowest link of a ring
    latency_s: Number  # of one hop

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
        latency_s=np.where(crosses, c.network_latency_s, c.link_latency_s),
    )


def axis_span(machine: Machine, c: Coefficients, grid: Grid, axis: str) -> Span:
    """Return how a mesh axis lies over the nodes."""
    return span(machine, c, getattr(grid, axis), stride(grid, axis))


def gather_s(c: Coefficients, over: Span, size_bytes: Number) -> Number:
    """Return seconds of an all-gather or reduce-scatter of `size_bytes` in all; zero for one rank.

    A start (the fill of NCCL's channels, `start_s`) and a latency for each of the P-1 steps of the ring.
    """
    steps = over.ranks - 1.0
    moved = size_bytes * steps / over.ranks / over.rate
    return np.where(steps > 0, moved + (c.start_s + steps * over.latency_s) / 2.0, 0.0)


def all_reduce_s(c: Coefficients, over: Span, size_bytes: Number) -> Number:
    """Return seconds of an all-reduce: a reduce-scatter and an all-gather."""
    return 2.0 * gather_s(c, over, size_bytes)


def all_to_all_s(machine: Machine, c: Coefficients, over: Span, size_bytes: Number) -> Number:
    """Return seconds of an all-to-all in which each rank sends `size_bytes`, evenly to all ranks."""
    steps = over.ranks - 1.0
    local = size_bytes * (over.inside - 1.0) / over.ranks / (machine.link_rate * c.link)
    per_gpu = machine.node_rate * c.network / machine.gpus_per_node
    remote = size_bytes * (over.ranks - over.inside) / over.ranks / per_gpu
    return np.where(steps > 0, np.maximum(local, remote) + c.start_s / 2.0 + over.latency_s, 0.0)
