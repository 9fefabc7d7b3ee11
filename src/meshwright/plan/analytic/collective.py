"""Time of collectives over one axis of the mesh, on the links that the axis really crosses.

A ring over P ranks moves 2(P-1)/P of the bytes for an all-reduce and (P-1)/P for a gather or scatter. Its rate is that
of its slowest link: a GPU's links inside a node, or the NICs of a node shared by the rings that pass through it. With
k ranks of an axis in a node of G, G/k rings share the NICs (each GPU belongs to one). Of a ring with m nodes under a
leaf switch one hop in m climbs to the next level; where the links above are oversubscribed s times, the ring reaches
m/s of the NICs' rate at most, so that near nodes cost less than far ones. On a torus of nodes a ring has the links
along the dimensions of its axis (`torus`), and no trees are built; over several such slices those of a group that sit
in one share what they have to the others, the network of their hosts. Through a switch a group of k of a node's G GPUs
reaches all of their links, where links join pairs of GPUs (k-1)/(G-1) of them.
"""

from dataclasses import dataclass

import numpy as np

from ...cluster.curve import ONE_MIB
from ...mesh import stride
from .coefficients import Coefficients
from .quantities import Grid, Machine, Number
from .torus import on_torus

RING_STEPS = 7.0  # of the eight ranks whose curve was measured
# of a ring's step over a GPU's links, as NCCL's own model has it (src/graph/tuning.cc, the simple protocol over NVLink)
NEAR_HOP_S = 3.4e-6
# exponent of (ranks - 1) / 7 beyond eight ranks of one domain: 72 GB200 take 1.81 ms for an all-reduce of 512 MiB, of
# which 0.6 ms are neither its start nor the links' rate
LARGE_GROUP = 0.5
IN_SWITCH_RANKS = 8.0  # from which on the switch's sum gains all that `in_switch` says; of fewer its share of 2(P-1)/P


@dataclass(frozen=True, slots=True)
class AxisPlacement:
    """How one axis of the mesh lies over the nodes; rates in bytes per second."""

    ranks: Number
    inside: Number  # ranks of one group that sit in one node
    link_rate: Number  # that a ring reaches on a GPU's links
    network_rate: Number  # of the NICs that one group of a node may use; infinite where it leaves none
    latency_s: Number  # of one step that leaves a node
    near: Number = np.inf  # ranks of one group that sit under one leaf switch
    together: Number = np.inf  # ranks of one group that sit in one slice
    on_torus: bool = False  # nodes reach their neighbours only
    cut: Number = 1.0  # of an all-to-all there: `OnTorus.cut`

    @property
    def crosses(self) -> Number:
        """True where the axis leaves a node."""
        return self.inside < self.ranks

    @property
    def rate(self) -> Number:
        """Rate of the slowest link of a ring."""
        return np.minimum(self.link_rate, self.network_rate)


def span(machine: Machine, c: Coefficients, ranks: Number, step: Number) -> AxisPlacement:
    """Return how an axis of `ranks` ranks, `step` ranks apart, lies over the nodes."""
    inside = np.clip(np.floor(machine.domain / step), 1.0, ranks)
    crosses = inside < ranks
    near = np.clip(np.floor(machine.nodes_per_leaf * machine.gpus_per_node / step), inside, ranks)
    climbs = np.where(near < ranks, np.minimum(1.0, near / inside / machine.oversubscription), 1.0)
    latency = c.network_latency_s + np.where(near < ranks, 2.0 * machine.hop_latency_s, 0.0)
    rate = machine.node_rate * c.network / machine.gpus_per_node * inside * climbs
    cut: Number = 1.0
    together = np.clip(np.floor(machine.slice_ranks / step), inside, ranks)
    if machine.sides:
        nodes, apart = together / inside, np.maximum(1.0, step / machine.gpus_per_node)
        found = on_torus(machine.sides, nodes, apart)
        rate, cut = rate * found.share, found.cut
        latency = latency * (found.hops + ranks / together - 1.0) / np.maximum(1.0, ranks / inside - 1.0)
        rate = np.minimum(rate, np.where(together < ranks, machine.slice_rate * c.network * together, np.inf))
    reached = (np.maximum(inside - 1.0, 1.0) / np.maximum(machine.gpus_per_node - 1.0, 1.0)) ** c.direct_links
    return AxisPlacement(
        ranks=ranks,
        inside=inside,
        link_rate=machine.rate_among(inside) * c.link * reached,
        network_rate=np.where(crosses, rate, np.inf),
        latency_s=np.where(crosses, latency, 0.0),
        near=near,
        together=together,
        on_torus=bool(machine.sides),
        cut=cut,
    )


def axis_span(machine: Machine, c: Coefficients, grid: Grid, axis: str) -> AxisPlacement:
    """Return how a mesh axis lies over the nodes."""
    return span(machine, c, getattr(grid, axis), stride(grid, axis))


def gather_s(c: Coefficients, over: AxisPlacement, size_bytes: Number) -> Number:
    """Return seconds of an all-gather or reduce-scatter of `size_bytes` in all by a ring; zero for one rank."""
    steps = over.ranks - 1.0
    moved = size_bytes * steps / over.ranks / over.rate + steps * _step_s(over)
    return np.where(steps > 0, _curve(c, over, size_bytes, 2.0 * moved) / 2.0, 0.0)


def all_reduce_s(c: Coefficients, over: AxisPlacement, size_bytes: Number) -> Number:
    """Return seconds of an all-reduce of `size_bytes`: a ring, or a tree between nodes where that is faster.

    The ring moves 2(P-1)/P of the bytes over its slowest link in 2(P-1) steps. Inside a node whose switch adds up
    (NVLS) a sum is `in_switch` times faster than the ring. Between nodes a double binary tree (`tree_share`) takes
    2 log2 N steps, but moves everything twice over the links inside, or once into the switch that adds up (NVLSTree).
    NCCL takes the faster (Jeaugey 2019, "Massively scale your deep learning training with NCCL 2.4").
    """
    ways = all_reduce_ways_s(c, over, size_bytes)
    return np.where(over.ranks > 1, _curve(c, over, size_bytes, np.minimum(*ways)), 0.0)


def all_reduce_ways_s(c: Coefficients, over: AxisPlacement, size_bytes: Number) -> tuple[Number, Number]:
    """Return the seconds of moving the bytes of an all-reduce by a ring, and in the switch or by a tree of nodes."""
    steps = over.ranks - 1.0
    nodes = over.ranks / over.inside
    # a switch that adds up takes each byte once, however many ranks; what it gains grows with a ring's 2(P-1)/P
    few = np.minimum(1.0, steps / over.ranks * IN_SWITCH_RANKS / (IN_SWITCH_RANKS - 1.0))
    links = over.link_rate * np.maximum(1.0, c.in_switch * np.where(over.crosses, 1.0, few))
    ring = 2.0 * size_bytes * steps / over.ranks / over.rate + 2.0 * steps * _step_s(over)
    between = size_bytes * tree_share(nodes) / over.network_rate
    tree = np.maximum(between, 2.0 * size_bytes / links) + 2.0 * np.log2(nodes) * over.latency_s
    tree = ring if over.on_torus else tree
    return ring, np.where(over.crosses, tree, 2.0 * size_bytes * steps / over.ranks / links)


def _step_s(over: AxisPlacement) -> Number:
    """Return the mean latency of a ring's steps: of those through a node one leaves it."""
    near = np.minimum(NEAR_HOP_S, over.latency_s)
    return near + (over.latency_s - near) / over.inside


def tree_share(nodes: Number) -> Number:
    """Return how often its payload the busiest node of a double binary tree sends, and receives.

    Each tree carries half. An inner node of one sends its half up once and down to two children, and as a leaf of the
    other up once: 2 in all. Two nodes send half in each tree, the middle of three 3/2; the mean is 2(N-1)/N.
    """
    return np.minimum(2.0, nodes / 2.0)


def _curve(c: Coefficients, over: AxisPlacement, size_bytes: Number, moved_s: Number) -> Number:
    """Return an all-reduce's time with its start: max(start, small s^power, moved + fill s^(1/3)), s = size / 1 MiB.

    As a sweep over links bends (`cluster.curve`), with the constants of a node's links or of the network.
    """
    mib = size_bytes / ONE_MIB
    steps = (over.inside - 1.0) / RING_STEPS
    group = steps ** np.where(steps > 1.0, LARGE_GROUP, c.small_group)
    inside = np.maximum(c.start_s, c.small_s * mib**c.small_power) * group
    # what goes over nodes goes through each domain too: it starts and fills no sooner than inside one
    across = np.maximum(inside, np.maximum(c.network_start_s, c.network_small_s * mib**c.network_power))
    # the network's was fitted over nodes of eight; a larger domain fills later, and only then what leaves it
    wide = np.maximum(c.network_fill_s, c.fill_s) + c.fill_s * (np.maximum(group, 1.0) - 1.0)
    fill = np.where(over.crosses, np.maximum(wide, c.fill_s * group), c.fill_s * group)
    return np.maximum(np.where(over.crosses, across, inside), moved_s + fill * np.cbrt(mib))


def all_to_all_s(
    machine: Machine,
    c: Coefficients,
    over: AxisPlacement,
    size_bytes: Number,
    *,
    peer_s: Number = 0.0,
    once: Number = 1.0,
) -> Number:
    """Return seconds of an all-to-all in which each rank sends `size_bytes`, evenly to all ranks.

    `peer_s` is what a message to one more peer on another node costs, where nothing hides it; `once` the share of the
    bytes for other nodes that leaves, where what several ranks of a node want is sent to it once.
    """
    steps = over.ranks - 1.0
    local = size_bytes * (over.inside - 1.0) / over.ranks / (machine.rate_among(over.inside) * c.link)
    per_gpu = machine.node_rate * c.network / machine.gpus_per_node
    remote = once * size_bytes * (over.ranks - over.inside) / over.ranks / per_gpu
    far = once * size_bytes * (over.ranks - np.minimum(over.near, over.ranks)) / over.ranks / per_gpu
    if over.on_torus:
        far = np.where(over.crosses, once * size_bytes * over.cut / per_gpu, 0.0)
        abroad = (over.ranks - np.minimum(over.together, over.ranks)) / over.ranks
        far = np.maximum(far, once * size_bytes * abroad / (machine.slice_rate * c.network))
    slowest = np.maximum(local, np.maximum(remote, far * machine.oversubscription))
    started = c.small_s / 2.0 + over.latency_s + peer_s * (over.ranks - over.inside)
    return np.where(steps > 0, slowest + started, 0.0)
