"""The compact form of a cluster as a graph: every device and link of its nodes and of the fabric between them.

What a fabric's many parallel switches carry together is one link: a leaf has one uplink to "spine" with the capacity
of all of them, which is what ideal routing gives.
"""

import itertools
from collections.abc import Iterator

from msgspec.structs import replace

from ..errors import InputError
from ..units import counted
from .graph import Cluster, Device, Fabric, Link, NodeGroup
from .paths import nvlink_count

MAX_NODES = 20_000


def expanded(cluster: Cluster) -> Cluster:
    """Return the cluster with devices and links for its groups added, and no groups."""
    if not cluster.groups:
        return cluster
    if cluster.num_nodes > MAX_NODES:
        raise InputError(
            f"{cluster.name}: {counted(cluster.num_nodes, 'node')}; a graph is made of {MAX_NODES} at most"
        )
    devices, links = list(cluster.devices), list(cluster.links)
    named = list(nodes(cluster))
    for name, group in named:
        inside_devices, inside_links = one_node(name, group)
        devices += inside_devices
        links += inside_links
    if len(named) > 1:
        outside_devices, outside_links = _fabric(named, cluster.fabric or Fabric())
        devices += outside_devices
        links += outside_links
    return replace(cluster, devices=tuple(devices), links=tuple(links), groups=(), fabric=None)


def nodes(cluster: Cluster) -> Iterator[tuple[str, NodeGroup]]:
    """Yield the name and the group of every node, in order."""
    numbers = itertools.count()
    for group in cluster.groups:
        for _ in range(group.count):
            yield f"node{next(numbers)}", group


def one_node(name: str, group: NodeGroup) -> tuple[list[Device], list[Link]]:
    """Return the devices and links of one node: GPUs, their switch or mesh, and NICs with the GPUs that they serve."""
    gpus = [f"{name}/GPU{i}" for i in range(group.gpus)]
    numa = [i * group.numa_nodes // group.gpus for i in range(group.gpus)]
    devices = [replace(group.gpu, id=gpu, node=name, numa=n) for gpu, n in zip(gpus, numa, strict=True)]
    links: list[Link] = []
    if group.switched:
        switch = f"{name}/NVSwitch"
        devices.append(Device(id=switch, kind="switch", node=name))
        links += [
            _link(gpu, switch, group.gpu_link, group.gpu_bandwidth_bytes_per_s, group.gpu_latency_s) for gpu in gpus
        ]
    elif group.mesh:
        links += [
            _link(gpus[a], gpus[b], _pair_kind(group, rate), rate, group.gpu_latency_s) for a, b, rate in group.mesh
        ]
    else:
        rate = group.peer_bandwidth_bytes_per_s
        links += [
            _link(a, b, _pair_kind(group, rate), rate, group.gpu_latency_s) for a, b in itertools.combinations(gpus, 2)
        ]
    for i in range(group.nics):
        nic = f"{name}/NIC{i}"
        served = sorted(
            {g for g in range(group.gpus) if g * group.nics // group.gpus == i} or {i * group.gpus // group.nics}
        )
        devices.append(Device(id=nic, kind="nic", model=group.nic_kind, node=name, numa=numa[served[0]]))
        links += [_link(gpus[g], nic, "PIX", group.nic_path_bytes_per_s, None) for g in served]
    return devices, links


def _pair_kind(group: NodeGroup, rate: float) -> str:
    """Return the code of a direct link: of a GPU's NVLinks as many as make up its rate."""
    share = rate / group.gpu_bandwidth_bytes_per_s
    total = nvlink_count(group.gpu_link)
    return f"NV{max(1, round(total * share))}" if total else group.gpu_link


def _fabric(named: list[tuple[str, NodeGroup]], fabric: Fabric) -> tuple[list[Device], list[Link]]:
    builder = {
        "flat": _flat,
        "fat-tree": _fat_tree,
        "rail-optimised": _rails,
        "dragonfly": _dragonfly,
        "torus": _torus,
    }[fabric.kind]
    links = builder(named, fabric)
    owned = {f"{name}/NIC{i}" for name, group in named for i in range(group.nics)}
    switches = dict.fromkeys(end for link in links for end in (link.a, link.b) if end not in owned)
    return [Device(id=name, kind="switch") for name in switches], links


def _to_switch(name: str, group: NodeGroup, switch: str) -> list[Link]:
    """Return the links of all NICs of a node to one switch."""
    return [
        _link(f"{name}/NIC{i}", switch, group.nic_kind, group.nic_bandwidth_bytes_per_s, group.nic_latency_s)
        for i in range(group.nics)
    ]


def _flat(named: list[tuple[str, NodeGroup]], fabric: Fabric) -> list[Link]:
    return [link for name, group in named for link in _to_switch(name, group, "switch")]


def _fat_tree(named: list[tuple[str, NodeGroup]], fabric: Fabric) -> list[Link]:
    links: list[Link] = []
    below: dict[str, float] = {}
    for number, (name, group) in enumerate(named):
        leaf = f"leaf{number // fabric.nodes_per_leaf}"
        links += _to_switch(name, group, leaf)
        below[leaf] = below.get(leaf, 0.0) + group.node_bandwidth_bytes_per_s
    return links + _uplinks(below, fabric)


def _rails(named: list[tuple[str, NodeGroup]], fabric: Fabric) -> list[Link]:
    """NIC i of every node of a unit hangs on the unit's leaf i, so that equal GPUs meet after one switch."""
    links: list[Link] = []
    below: dict[str, float] = {}
    for number, (name, group) in enumerate(named):
        for i in range(group.nics):
            leaf = f"unit{number // fabric.nodes_per_leaf}/rail{i}"
            rate = group.nic_bandwidth_bytes_per_s
            links.append(_link(f"{name}/NIC{i}", leaf, group.nic_kind, rate, group.nic_latency_s))
            below[leaf] = below.get(leaf, 0.0) + rate
    return links + _uplinks(below, fabric)


def _uplinks(below: dict[str, float], fabric: Fabric) -> list[Link]:
    latency = fabric.hop_latency_s or None
    return [_link(leaf, "spine", "uplink", rate / fabric.oversubscription, latency) for leaf, rate in below.items()]


def _dragonfly(named: list[tuple[str, NodeGroup]], fabric: Fabric) -> list[Link]:
    """Routers of a group and groups of the fabric are joined all to all; the global links are oversubscribed."""
    links: list[Link] = []
    below: dict[tuple[int, int], float] = {}
    for number, (name, group) in enumerate(named):
        router = number // fabric.nodes_per_leaf
        place = (router // fabric.leaves_per_group, router % fabric.leaves_per_group)
        links += _to_switch(name, group, _router(place))
        below[place] = below.get(place, 0.0) + group.node_bandwidth_bytes_per_s
    latency = fabric.hop_latency_s or None
    groups: dict[int, list[tuple[int, int]]] = {}
    for place in below:
        groups.setdefault(place[0], []).append(place)
    for routers in groups.values():
        for a, b in itertools.combinations(routers, 2):
            rate = min(below[a], below[b]) / max(1, len(routers) - 1)
            links.append(_link(_router(a), _router(b), "local", rate, latency))
    out = {g: sum(below[r] for r in routers) / fabric.oversubscription for g, routers in groups.items()}
    for a_group, b_group in itertools.combinations(groups, 2):
        rate = min(out[a_group], out[b_group]) / (len(groups) - 1)
        ends = groups[a_group][b_group % len(groups[a_group])], groups[b_group][a_group % len(groups[b_group])]
        links.append(_link(_router(ends[0]), _router(ends[1]), "global", rate, latency))
    return links


def _router(place: tuple[int, int]) -> str:
    return f"group{place[0]}/router{place[1]}"


def _torus(named: list[tuple[str, NodeGroup]], fabric: Fabric) -> list[Link]:
    """Every node has a router of its own, with two links along each dimension (one where the side is 2)."""
    if fabric.between_slices:
        raise InputError(f"fabric: {fabric.between_slices}")
    count = 1
    for side in fabric.sides:
        count *= side
    if count != len(named):
        raise InputError(f"fabric: sides {fabric.sides} hold {counted(count, 'node')}, but there are {len(named)}")
    links = [link for name, group in named for link in _to_switch(name, group, f"{name}/router")]
    places = list(itertools.product(*(range(side) for side in fabric.sides)))
    number = {place: i for i, place in enumerate(places)}
    for place in places:
        for axis, side in enumerate(fabric.sides):
            if side == 1 or (side == 2 and place[axis] == 1):
                continue
            peer = (*place[:axis], (place[axis] + 1) % side, *place[axis + 1 :])
            (a, group), (b, _) = named[number[place]], named[number[peer]]
            rate = group.node_bandwidth_bytes_per_s / (2 * len(fabric.sides))
            links.append(_link(f"{a}/router", f"{b}/router", "torus", rate, fabric.hop_latency_s or None))
    return links


def _link(a: str, b: str, kind: str, rate: float | None, latency_s: float | None) -> Link:
    return Link(a=a, b=b, kind=kind, bandwidth_bytes_per_s=rate, latency_s=latency_s)
