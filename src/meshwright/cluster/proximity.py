"""How near two nodes are: hops over the switches between them, an order of nodes that keeps neighbours near."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from ..errors import InputError
from ..units import counted
from .graph import Cluster, Placement

# how each cloud or scheduler gives nodes that are close to each other
CLOSE_NODES = {
    "aws": "a cluster placement group (and capacity blocks in one UltraCluster)",
    "azure": "one virtual machine scale set with a single placement group, or an availability set",
    "gcp": "a compact placement policy",
    "oci": "a cluster network",
    "slurm": "sbatch --switches=1, or --contiguous",
}


def hops(cluster: Cluster, a: str, b: str) -> int:
    """Return the level of the lowest switch that two nodes share: 0 one node, 1 same leaf, 2 same spine, 3 further.

    On a torus it is the number of links between them. InputError for a node that has no place.
    """
    if a == b:
        return 0
    if cluster.placements:
        return _shared_level(_placement(cluster, a), _placement(cluster, b))
    fabric = cluster.fabric
    if fabric is None:
        raise InputError(f"{cluster.name}: no fabric and no placements, so the distance of {a} and {b} is not known")
    i, j = _number(cluster, a), _number(cluster, b)
    if fabric.kind == "torus":
        if len({number // math.prod(fabric.sides) for number in (i, j)}) > 1:
            raise InputError(f"{cluster.name}: {a} and {b} are of different slices, between which no links are known")
        return _torus_distance(i, j, fabric.sides)
    if fabric.kind == "flat" or i // fabric.nodes_per_leaf == j // fabric.nodes_per_leaf:
        return 1
    per_group = fabric.nodes_per_leaf * fabric.leaves_per_group
    if fabric.kind == "dragonfly" and i // per_group != j // per_group:
        return 3
    return 2


def nearest_order(placements: Iterable[Placement]) -> list[str]:
    """Return the nodes so that nodes of one leaf are neighbours, then nodes of one spine, and so on."""
    return [p.node for p in sorted(placements, key=lambda p: (tuple(reversed(p.switches)), _natural(p.node)))]


def nearest_nodes(placements: Sequence[Placement], count: int) -> tuple[Placement, ...]:
    """Return `count` nodes that lie under as few switches as neighbours in `nearest_order` can, in that order.

    InputError where there are fewer.
    """
    if not 0 < count <= len(placements):
        raise InputError(f"placements: of {counted(count, 'node')}, {len(placements)} are described")
    by_name = {placement.node: placement for placement in placements}
    ordered = [by_name[name] for name in nearest_order(placements)]

    def spread(start: int) -> tuple[int, int]:
        first, last = ordered[start], ordered[start + count - 1]
        return _shared_level(first, last), leaves[start + count - 1] - leaves[start]

    changes = [a.switches[:1] != b.switches[:1] for a, b in pairwise(ordered)]
    leaves = [0, *accumulate(changes)]  # of each node, numbered in their order
    start = min(range(len(ordered) - count + 1), key=spread)
    return tuple(ordered[start : start + count])


def placement_advice(cluster: Cluster, nodes: Sequence[str], cloud: str | None = None) -> str | None:
    """Return what to do where the nodes of a job are spread over leaves; None where they share one, or have none."""
    if not cluster.placements and (cluster.fabric is None or cluster.fabric.kind in {"flat", "torus"}):
        return None
    distance = max(_distances(cluster, nodes), default=0)
    if distance <= 1:
        return None
    ways = [CLOSE_NODES[cloud]] if cloud in CLOSE_NODES else [f"{name}: {way}" for name, way in CLOSE_NODES.items()]
    return f"the nodes are up to {distance} switch levels apart; ask for close ones with {'; '.join(ways)}"


def _distances(cluster: Cluster, nodes: Sequence[str]) -> Iterable[int]:
    """Return how far each node is from the first one."""
    if not cluster.placements:
        return (hops(cluster, nodes[0], other) for other in nodes[1:])
    places = {placement.node: placement for placement in cluster.placements}
    return (_shared_level(places[nodes[0]], places[other]) for other in nodes[1:])


def _placement(cluster: Cluster, node: str) -> Placement:
    for placement in cluster.placements:
        if placement.node == node:
            return placement
    raise InputError(f"{cluster.name}: no such node {node} among its {len(cluster.placements)} placements")


def _shared_level(a: Placement, b: Placement) -> int:
    common = [level for level, switch in enumerate(a.switches, start=1) if switch in b.switches]
    return common[0] if common else max(len(a.switches), len(b.switches)) + 1


def _number(cluster: Cluster, node: str) -> int:
    digits = node.removeprefix("node")
    if not digits.isdecimal() or int(digits) >= cluster.num_nodes:
        raise InputError(f"{cluster.name}: no such node {node} (node0 to node{cluster.num_nodes - 1})")
    return int(digits)


def _torus_distance(i: int, j: int, sides: tuple[int, ...]) -> int:
    total = 0
    for side in reversed(sides):
        (i, a), (j, b) = divmod(i, side), divmod(j, side)
        total += min((a - b) % side, (b - a) % side)
    return total


def _natural(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def nearest_hosts(hosts: Iterable[tuple[Sequence[int], Sequence[str]]]) -> list[tuple[int, ...]]:
    """Return the ranks of each host, those of hosts under one switch next to each other at each level.

    A host is given by its ranks, ascending, and the switches above it, the highest first. Otherwise the lowest rank
    decides, of a host and of all hosts under a switch.
    """
    known = [(tuple(ranks), tuple(above)) for ranks, above in hosts]
    first: dict[tuple[str, ...], int] = {}  # of each switch, named with those above it, the lowest rank below
    for ranks, above in known:
        for level in range(1, len(above) + 1):
            first[above[:level]] = min(first.get(above[:level], ranks[0]), ranks[0])

    def near(host: tuple[tuple[int, ...], tuple[str, ...]]) -> tuple[int, ...]:
        ranks, above = host
        return (*(first[above[:level]] for level in range(1, len(above) + 1)), ranks[0])

    return [ranks for ranks, _ in sorted(known, key=near)]
