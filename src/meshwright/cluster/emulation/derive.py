"""The emulation of a given Cluster: its nodes, its topology and the ratios of its rates, scaled to this machine.

What is kept is the ratio of a node's inner links (all of its accelerators' links together) to its NICs (together), and
the oversubscription of its leaves. DGX A100: 8 x 300 GB/s to 8 x 25 GB/s is 12 to 1.
"""

import socket
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ...errors import InputError
from ...units import counted
from ..graph import Cluster, Link
from .spec import MAX_NODES, MAX_RATE_BYTES_PER_S, EmulationSpec

_PROBE_S = 0.3
_PROBE_BYTES = 2**20


def derived(
    cluster: Cluster, *, carry_bytes_per_s: float, nodes: int | None = None, ranks: int | None = None
) -> EmulationSpec:
    """Return what to put into the box for `cluster`; `carry_bytes_per_s` is what all inner links get together.

    `nodes` takes only that number of them, the first; `ranks` a node, by default one for each accelerator.
    """
    names = _nodes(cluster, nodes)
    place = {device.id: device.node for device in cluster.devices}
    for link in cluster.links:
        for end in (link.a, link.b):
            if end not in place:
                raise InputError(f"{cluster.name}: link {link.a} - {link.b}: no such device {end}")
    outer = {name: _outer_bytes_per_s(cluster.links, place, name) for name in names}
    inner = {name: _inner_bytes_per_s(cluster, name) for name in names}
    first = names[0]
    for name in names:
        if (outer[name], inner[name]) != (outer[first], inner[first]):
            raise InputError(f"{cluster.name}: {name} and {first} differ in their rates; expected nodes that are alike")
    if len(names) > 1 and not outer[first]:
        raise InputError(f"{cluster.name}: no link with a rate leads out of {first}; expected one to a switch")
    gpus = sum(device.kind == "gpu" and device.node == first for device in cluster.devices)
    largest = max(inner[first], outer[first])
    scale = min(1.0, min(carry_bytes_per_s / len(names), MAX_RATE_BYTES_PER_S) / largest) if largest else 1.0
    per_leaf, oversubscription = _leaves(cluster, names, place)
    return EmulationSpec(
        nodes=len(names),
        ranks_per_node=ranks or max(1, gpus),
        nic_bytes_per_s=outer[first] * scale or None,
        intra_bytes_per_s=inner[first] * scale or None,
        topology="star" if per_leaf is None else "fat-tree",
        nodes_per_leaf=per_leaf or 2,
        oversubscription=oversubscription,
    )


def measure_carry() -> float:
    """Return the bytes per second that this machine moves through its loopback, by one short TCP transfer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=_send, args=(server.getsockname(),))
        sender.start()
        connection, _ = server.accept()
        with connection:
            buffer, received, began = bytearray(_PROBE_BYTES), 0, time.perf_counter()
            while count := connection.recv_into(buffer):
                received += count
            elapsed_s = time.perf_counter() - began
        sender.join()
    return received / elapsed_s


def _send(address: tuple[str, int]) -> None:
    chunk, end = bytes(_PROBE_BYTES), time.perf_counter() + _PROBE_S
    with socket.create_connection(address) as connection:
        while time.perf_counter() < end:
            connection.sendall(chunk)


def _nodes(cluster: Cluster, wanted: int | None) -> list[str]:
    names = list(dict.fromkeys(device.node for device in cluster.devices if device.node))
    if not names:
        raise InputError(f"{cluster.name}: has no devices with a node; expected a Cluster with devices and links")
    if wanted is not None and wanted > len(names):
        raise InputError(f"--nodes {wanted}: {cluster.name} has {len(names)}")
    if wanted is None and len(names) > MAX_NODES:
        raise InputError(f"{cluster.name}: {counted(len(names), 'node')}; expected --nodes with {MAX_NODES} at most")
    return names[:wanted]


def _outer_bytes_per_s(links: Sequence[Link], place: Mapping[str, str], node: str) -> float:
    crossing = [link for link in links if (place[link.a] == node) != (place[link.b] == node)]
    return sum(link.bandwidth_bytes_per_s or 0.0 for link in crossing)


def _inner_bytes_per_s(cluster: Cluster, node: str) -> float:
    """Return the rate of all accelerators of a node towards each other, added up; without any, of its loopback."""
    kinds = {device.id: device.kind for device in cluster.devices if device.node == node}
    inner = [link for link in cluster.links if link.a in kinds and link.b in kinds]
    total = 0.0
    for link in inner:
        ends = [kinds[link.a], kinds[link.b]]
        rate = link.bandwidth_bytes_per_s or 0.0
        if set(ends) <= {"gpu", "switch"}:
            total += rate * ends.count("gpu")  # a cable between two accelerators lets each of them send
        elif link.kind == "loopback":
            total += rate
    return total


def _leaves(cluster: Cluster, names: Sequence[str], place: Mapping[str, str]) -> tuple[int | None, float]:
    """Return nodes per leaf and oversubscription of a fat-tree, (None, 1) for a star; InputError for anything else."""
    outside = {device.id for device in cluster.devices if device.kind == "switch" and not device.node}
    below: dict[str, set[str]] = defaultdict(set)
    down: dict[str, float] = defaultdict(float)
    up: dict[str, float] = defaultdict(float)
    above: set[str] = set()
    for link in cluster.links:
        for end, other in ((link.a, link.b), (link.b, link.a)):
            if end in outside and place[other]:
                below[end].add(place[other])
                down[end] += link.bandwidth_bytes_per_s or 0.0
    for link in cluster.links:
        if link.a in outside and link.b in outside:
            leaf, spine = (link.a, link.b) if link.a in below else (link.b, link.a)
            up[leaf] += link.bandwidth_bytes_per_s or 0.0
            above.add(spine)
    if not up and len(below) <= 1:
        return None, 1.0
    homes = [{leaf for leaf, nodes in below.items() if name in nodes} for name in names]
    if any(len(home) != 1 for home in homes) or len(above) != 1 or above & below.keys() or 0.0 in up.values():
        raise InputError(
            f"{cluster.name}: its fabric is neither a star nor a fat-tree of two levels; emulate builds those"
        )
    leaf = next(iter(homes[0]))
    per_leaf = len(below[leaf])
    if [next(iter(home)) for home in homes] != [next(iter(homes[i - i % per_leaf])) for i in range(len(names))]:
        raise InputError(f"{cluster.name}: its leaves hold different numbers of nodes; emulate builds equal ones")
    return per_leaf, max(1.0, down[leaf] / up[leaf])
