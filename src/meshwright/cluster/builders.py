"""Clusters from the catalogue: a number of nodes of a type on a fabric, in compact form."""

import math

from msgspec.structs import replace

from ..errors import InputError
from ..hardware import Catalogue, FabricType, NodeType
from ..hardware.arithmetic import gpu_link, share_between_peers
from ..units import counted
from .catalogue_devices import described_device
from .cuts import balanced_cut
from .graph import Cluster, Device, Fabric, NodeGroup

KNOWN_LINK_NAMES = {
    "nvlink": "NV", "xgmi": "xGMI", "pcie": "PCIe", "ethernet-mesh": "RoCE", "ici": "ICI", "neuronlink": "NeuronLink",
}  # fmt: skip


def node_group(catalogue: Catalogue, name: str) -> NodeGroup:
    """Return one node of the catalogue's type `name`, with the GPUs that drivers list; InputError if unknown."""
    name = catalogue.node_key(name)
    node = catalogue.listed_node(name)
    accelerator = catalogue.accelerators[node.accelerator]
    link = gpu_link(catalogue, node)
    switch = catalogue.switches[node.switch] if node.switch else None
    network = catalogue.network(node.network) if node.network else None
    gpus, shared = round(node.gpus.number), share_between_peers(accelerator, link)
    prefix = KNOWN_LINK_NAMES[link.kind]
    share = switch.reduction_share if switch else None
    return NodeGroup(
        type=name,
        count=1,
        gpus=gpus,
        gpu=described_device(Device(id="GPU", kind="gpu"), node.accelerator, accelerator, catalogue),
        gpu_link=f"{prefix}{link.links.number:.0f}" if prefix == "NV" else prefix,
        gpu_bandwidth_bytes_per_s=link.rate_bytes_per_s * shared,
        peer_bandwidth_bytes_per_s=_peer_bytes_per_s(catalogue, node) * shared,
        gpu_latency_s=link.latency.number if link.latency else None,
        switched=switch is not None,
        reduction_bandwidth_bytes_per_s=share.number * link.rate_bytes_per_s if share else None,
        host_bandwidth_bytes_per_s=catalogue.interconnect(
            accelerator.cpu_link or accelerator.host_link
        ).rate_bytes_per_s,
        host_memory_bytes=round(node.host_memory.number) if node.host_memory else None,
        host_memory_bandwidth_bytes_per_s=node.host_memory_rate.number if node.host_memory_rate else None,
        nics=node.ports,
        nic_kind=network.family if network else "",
        nic_bandwidth_bytes_per_s=network.rate_bytes_per_s if network else 0.0,
        nic_latency_s=network.latency.number if network and network.latency else None,
        numa_nodes=round(node.numa_nodes.number),
        mesh=tuple((a, b, count * link.link_bytes_per_s) for a, b, count in node.mesh),
        scale_up_nodes=round(node.scale_up_nodes.number) if node.scale_up_nodes else 1,
    )


def uneven_nodes(gpus: int, per_node: int, node: str) -> str:
    """Return the words for a number of GPUs that whole nodes do not have, with the nearest ones that they do."""
    below = gpus // per_node * per_node
    near = f"{below} and {below + per_node} are" if below else f"{per_node} is"
    return f"{counted(gpus, 'GPU')} {'is' if gpus == 1 else 'are'} not a multiple of the {per_node} of {node}; {near}"


def catalogue_cluster(
    catalogue: Catalogue,
    name: str,
    *,
    nodes: int | None = None,
    gpus: int | None = None,
    fabric: str = "flat",
    joined: bool = False,
    in_parts: int = 0,
    **changes: float,
) -> Cluster:
    """Return a cluster of one node type: `nodes` of them, or as many as `gpus` need, on a fabric of the catalogue.

    `changes` replace keys of the fabric (nodes_per_leaf, oversubscription, ...). `joined` says that the caller knows
    the network between the nodes, of which the catalogue need not know any. A GPU count under one node's gives
    one node with fewer GPUs and NICs; one that is no multiple of a node is an InputError, or with `in_parts` nodes that
    are all alike with fewer GPUs and NICs: with as many as it says, where that goes.
    """
    name = catalogue.node_key(name)
    group = node_group(catalogue, name)
    if nodes is None:
        nodes, rest = divmod(gpus or group.gpus, group.gpus)
        fits = 1 < in_parts < group.gpus and not (gpus or 0) % in_parts
        each = in_parts if fits else math.gcd(gpus or 0, group.gpus)
        if rest and nodes and in_parts and each > 1:
            group, nodes, rest = _part_of_node(group, each), (gpus or 0) // each, 0
        if rest and nodes:
            raise InputError(uneven_nodes(gpus or 0, group.gpus, f"a {name}"))
        if rest:
            return Cluster(name=name, groups=(_part_of_node(group, rest),), fabric=Fabric())
    if nodes < 1:
        raise InputError(f"{name}: expected 1 or more nodes, got {nodes}")
    own = catalogue.nodes[name]
    if nodes > 1 and own.no_network and not joined:
        raise InputError(f"{name}: {counted(nodes, 'node')}: {own.no_network}")
    kind = catalogue.fabric(own.fabric if fabric == "flat" else fabric)
    slices = _slices(name, nodes, own) if kind.kind == "torus" else 1
    found = fabric_for(kind, nodes // slices, **changes)
    if slices > 1 and own.slice_rate:
        found = replace(found, slices=slices, slice_bytes_per_s=own.slice_rate.number)
    return Cluster(name=name, groups=(replace(group, count=nodes),), fabric=found)


def fabric_assumed(catalogue: Catalogue, cluster: Cluster) -> tuple[str, ...]:
    """Return that nodes hang on one switch, where the catalogue knows that these are joined otherwise; else nothing."""
    node = catalogue.nodes.get(cluster.groups[0].type) if cluster.groups else None
    flat = (cluster.fabric or Fabric()).kind == "flat" and cluster.num_nodes > 1
    if node is None or not node.built_as or not flat:
        return ()
    fabric = node.built_as
    return (f"one switch between all nodes, where {node.title} has a {fabric} (--fabric {fabric} prices it)",)


def _slices(name: str, nodes: int, node: NodeType) -> int:
    """Return over how few slices, all alike, these nodes lie; InputError where nothing is known to join them."""
    if not node.most_nodes or nodes <= (most := round(node.most_nodes.number)):
        return 1
    told = f"{name}: {counted(nodes, 'node')}; expected up to {most}, as many as one slice joins"
    if node.slice_rate is None:
        raise InputError(f"{told}: the network between slices is not in the catalogue")
    slices = -(-nodes // most)
    if nodes % slices:
        raise InputError(f"{told}, or a multiple of {slices}: {slices} slices, all alike")
    return slices


_TREE = frozenset({"nodes_per_leaf", "leaves_per_group", "oversubscription", "hop_latency_s"})
_KEYS_OF = {
    "flat": frozenset[str](), "fat-tree": _TREE, "rail-optimised": _TREE, "dragonfly": _TREE,
    "torus": frozenset({"hop_latency_s"}),
}  # fmt: skip


def fabric_for(kind: FabricType, nodes: int, **changes: float) -> Fabric:
    """Return the fabric of that number of nodes; a torus gets sides as equal as its dimension allows."""
    unknown = sorted(set(changes) - {"nodes_per_leaf", "leaves_per_group", "oversubscription", "hop_latency_s"})
    if unknown:
        raise InputError(f"fabric: unknown key {unknown[0]}")
    for key in sorted(set(changes) - _KEYS_OF[kind.kind]):
        having = ", ".join(other for other, keys in _KEYS_OF.items() if key in keys)
        raise InputError(f"fabric: a {kind.kind} network has no {key}; kinds that have: {having}")
    try:
        return Fabric(
            kind=kind.kind,
            nodes_per_leaf=int(changes.get("nodes_per_leaf", kind.nodes_per_leaf)),
            leaves_per_group=int(changes.get("leaves_per_group", kind.leaves_per_group)),
            oversubscription=changes.get("oversubscription", kind.oversubscription),
            sides=_sides(nodes, kind.dimensions) if kind.kind == "torus" else (),
            hop_latency_s=changes.get("hop_latency_s", 0.0),
        )
    except ValueError as error:
        raise InputError(f"fabric: {error}") from None


def bisection_bytes_per_s(cluster: Cluster) -> float | None:
    """Return the rate per direction between the better-connected halves of the nodes; of the GPUs for one node.

    None where the cluster has no groups or its nodes differ.
    """
    if len(cluster.groups) != 1 or cluster.fabric is None:
        return None
    group, fabric = cluster.groups[0], cluster.fabric
    if group.count == 1:
        half = group.gpus // 2
        if group.switched:
            return half * group.gpu_bandwidth_bytes_per_s
        if group.mesh:
            return balanced_cut(group.gpus, {(a, b): rate for a, b, rate in group.mesh})
        return half * (group.gpus - half) * group.peer_bandwidth_bytes_per_s
    if group.count <= group.scale_up_nodes:
        return group.count // 2 * group.gpus * group.gpu_bandwidth_bytes_per_s
    half, node = group.count // 2, group.node_bandwidth_bytes_per_s
    if fabric.kind == "torus" and fabric.slice_bytes_per_s is not None:
        return half * fabric.slice_bytes_per_s
    if fabric.kind == "torus":
        return _torus_cut(fabric.sides) * node / (2 * len(fabric.sides))
    if fabric.kind == "flat" or group.count <= fabric.nodes_per_leaf:
        return half * node
    return half * node / fabric.oversubscription


def _peer_bytes_per_s(catalogue: Catalogue, node: NodeType) -> float:
    link = gpu_link(catalogue, node)
    if node.switch:
        return link.rate_bytes_per_s
    if node.peer_links is not None:
        return node.peer_links.number * link.link_bytes_per_s
    if node.mesh:
        return max(count for _, _, count in node.mesh) * link.link_bytes_per_s
    return link.peer_bytes_per_s(round(node.gpus.number) - 1, switched=link.kind == "pcie")


def _part_of_node(group: NodeGroup, gpus: int) -> NodeGroup:
    """Return one node of which only `gpus` GPUs are used; each keeps its share of the NICs, at least one."""
    mesh = tuple(edge for edge in group.mesh if max(edge[:2]) < gpus)
    return replace(group, gpus=gpus, nics=max(1, group.nics * gpus // group.gpus), mesh=mesh, numa_nodes=1)


def _sides(nodes: int, dimensions: int) -> tuple[int, ...]:
    """Split `nodes` into factors as equal as can be; InputError where only a line would do."""
    if dimensions == 1:
        return (nodes,)
    target = round(nodes ** (1 / dimensions))
    side = next(s for s in range(max(1, target), 0, -1) if nodes % s == 0)
    return tuple(sorted((side, *_sides(nodes // side, dimensions - 1)), reverse=True))


def _torus_cut(sides: tuple[int, ...]) -> int:
    """Return the links that halving the longest side cuts: two rings' worth (one where the side is 2)."""
    longest = max(sides)
    nodes = 1
    for side in sides:
        nodes *= side
    return nodes // longest * (2 if longest > 2 else 1) if longest > 1 else 0
