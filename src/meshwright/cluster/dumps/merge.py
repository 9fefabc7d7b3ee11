"""Several dumps of one machine, or one of each host, as one cluster; what contradicts is named."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from ..graph import Cluster, Device, Link
from ..paths import P2P, is_own, nvlink_count
from .nvidia import joined_hosts, on_node

FACTS = (
    "model",
    "numa",
    "cpu_affinity",
    "cores",
    "memory_bytes",
    "network_bandwidth_bytes_per_s",
    "domain",
    "memory_numa",
    "card",
)
PORTS = frozenset({"infiniband", "roce", "ethernet", "virtual"})  # what sysfs says of a NIC, and plans want to know
SAME_RATE = 0.15  # two tools count the same link so differently


def merged_dumps(name: str, parts: Sequence[tuple[str, Cluster]], *, one_machine: bool) -> Cluster:
    """Return the parts, (source, cluster), as one: dumps of one machine, or of a host each."""
    if len(parts) == 1:
        return parts[0][1]
    if not one_machine:
        hosts = [part if _has_nodes(part) else on_node(source, part) for source, part in parts]
        return with_domains(
            replace(joined_hosts(name, hosts), placements=tuple(p for h in hosts for p in h.placements))
        )
    notes: list[str] = []
    result = parts[0][1]
    for source, part in parts[1:]:
        result = _two(result, part, source, notes)
    return replace(result, name=name, warnings=tuple(dict.fromkeys((*notes, *result.warnings))))


def with_domains(cluster: Cluster) -> Cluster:
    """Return the cluster with NVLinks between GPUs of different hosts that registered with one NVLink domain.

    Each pair has as many as the lesser of the two has to its switch, which the pairs inside the hosts tell.
    """
    rates: dict[str, tuple[int, float | None]] = {}
    for link in cluster.links:
        if count := nvlink_count(link.kind):
            for end in (link.a, link.b):
                if count >= rates.get(end, (0, None))[0]:
                    rates[end] = (count, link.bandwidth_bytes_per_s)
    gpus = [gpu for gpu in cluster.of_kind("gpu") if gpu.domain and gpu.id in rates]
    added = []
    for a, b in itertools.combinations(gpus, 2):
        if a.node != b.node and a.domain == b.domain:
            count, rate = min(rates[a.id], rates[b.id], key=lambda known: known[0])
            added.append(Link(a=a.id, b=b.id, kind=f"NV{count}", bandwidth_bytes_per_s=rate))
    return replace(cluster, links=(*cluster.links, *added))


def _has_nodes(cluster: Cluster) -> bool:
    return len({device.node for device in cluster.of_kind("gpu")}) > 1 or bool(cluster.placements)


def _two(one: Cluster, other: Cluster, source: str, notes: list[str]) -> Cluster:
    if _has_ports_alone(one) and not _has_ports_alone(other) and other.of_kind("nic"):
        one, other = other, one
    devices = {device.id: device for device in one.devices}
    names = _same_devices(one, other)
    if _has_ports_alone(other) and one.of_kind("nic") and one.of_kind("gpu"):
        other = _known_ports(one, other, names, notes)
    node = next((device.node for device in one.devices), "")  # of one machine all devices sit in one
    for device in other.devices:
        known = devices.get(names[device.id])
        same = replace(device, id=names[device.id], node=node)
        devices[same.id] = _facts(known, same, source, notes) if known else same
    links = {frozenset((link.a, link.b)): link for link in one.links}
    for link in other.links:
        moved = replace(link, a=names[link.a], b=names[link.b])
        pair = frozenset((moved.a, moved.b))
        links[pair] = _better(links[pair], moved, source, notes) if pair in links else moved
    return replace(
        one,
        hosts=one.hosts or other.hosts,
        devices=tuple(devices.values()),
        links=tuple(links.values()),
        placements=one.placements or other.placements,
        warnings=tuple(w for w in (*one.warnings, *other.warnings) if not w.endswith("as well")),
    )


def _has_ports_alone(cluster: Cluster) -> bool:
    return bool(cluster.devices) and not cluster.links and all(device.kind == "nic" for device in cluster.devices)


def _known_ports(one: Cluster, ports: Cluster, names: Mapping[str, str], notes: list[str]) -> Cluster:
    """Return the ports that a machine's NICs have, by name; others are those NICs by another name, or no NICs of it."""
    known = {device.id for device in one.devices}
    strange = [port.id for port in ports.devices if names[port.id] not in known]
    if strange:
        notes.append(
            f"{', '.join(strange[:8])}: no NIC of the other dumps has such a name, so that these rates are of none of "
            "them (mst status -v and ibdev2netdev say which is which)"
        )
    return replace(ports, devices=tuple(port for port in ports.devices if port.id not in strange))


def _same_devices(one: Cluster, other: Cluster) -> dict[str, str]:
    """Return what each device of `other` is called in `one`: by its id, or a NIC by the name in a legend."""
    legend = {d.model: d.id for d in one.of_kind("nic") if d.model} | {d.id: d.id for d in one.devices}
    back = {d.model: d.id for d in other.of_kind("nic") if d.model}
    known = {d.id for d in one.devices}
    return {
        d.id: next(
            (k for k in (legend.get(d.id), d.model if d.model in known and d.model in back else None) if k), d.id
        )
        for d in other.devices
    }


def _facts(known: Device, more: Device, source: str, notes: list[str]) -> Device:
    """Return a device with what either says; where they differ the first is kept and the second named."""
    changes: dict[str, object] = {}
    for name in FACTS:
        first, second = getattr(known, name), getattr(more, name)
        if second in (None, "") or first == second:
            continue
        better = second in PORTS if known.kind == "nic" else not known.peak_flops_per_s
        if first in (None, "") or (name == "model" and better):
            changes[name] = second
        elif name in {"numa", "model"} and (name == "numa" or more.peak_flops_per_s):
            notes.append(f"{known.id}: {name} is {first} in the first dump and {second} in {source}: the first is used")
    for name in ("peak_flops_per_s", "memory_bandwidth_bytes_per_s", "own_links", "threads"):
        if not getattr(known, name) and "model" in changes:
            changes[name] = getattr(more, name)
    if "model" in changes:
        changes["bridged"] = more.bridged
    return replace(known, **changes)


def _better(known: Link, other: Link, source: str, notes: list[str]) -> Link:
    """Return the link of a pair of which two dumps speak: the GPUs' own before PCIe, and one with a rate."""
    if other.kind == P2P:
        return known
    if known.kind == P2P or (is_own(other.kind) and not is_own(known.kind)):
        return other
    if is_own(known.kind) and not is_own(other.kind):
        return known
    pair = f"{known.a}-{known.b}"
    if nvlink_count(known.kind) != nvlink_count(other.kind) and is_own(known.kind):
        notes.append(f"{pair} is {known.kind} in the first dump and {other.kind} in {source}: the first is used")
        return known
    first, second = known.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s
    if first is not None and second is not None and abs(second / first - 1) > SAME_RATE:
        notes.append(f"{pair}: {first / 1e9:g} GB/s in the first dump, {second / 1e9:g} in {source}: the first is used")
    return known if first is not None or second is None else replace(known, bandwidth_bytes_per_s=second)


def sources(parts: Iterable[tuple[str, Cluster]]) -> str:
    """Return the names of the dumps that a cluster was made of."""
    return " + ".join(source for source, _ in parts)
