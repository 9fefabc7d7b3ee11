"""A cluster as text for a terminal: the devices by NUMA node, and the matrix of links."""

from collections.abc import Sequence

from ...units import counted, first_few, format_bytes, format_network_rate, format_rate
from ..analysis import Analysis, gpu_links, mesh_rates
from ..graph import Cluster, Device, Host, Link
from ..paths import is_own, rank

MAX_MATRIX = 32
SHOWN_PAIRS = 8  # of a rate, where a kind of link has several


def draw(cluster: Cluster, analysis: Analysis) -> str:
    """Return the drawing: hosts and groups, devices under their NUMA node, matrix, findings."""
    parts = [*_hosts(cluster), *_groups(cluster), *_places(cluster), *_tree(cluster, analysis), *_matrix(cluster)]
    parts += _domain(cluster)
    if rates := sorted(set(mesh_rates(cluster))):
        ends = " to ".join(dict.fromkeys(format_rate(rate) for rate in (rates[0], rates[-1])))
        parts += ["", f"a GPU to all its peers together: {ends} per direction"]
    if analysis.bisection_bytes_per_s is not None:
        over = ", over PCIe" if (links := gpu_links(cluster)) and not any(is_own(link.kind) for link in links) else ""
        parts += ["", f"bisection bandwidth: {format_rate(analysis.bisection_bytes_per_s)} per direction{over}"]
    findings = [f"- {line}" for line in analysis.advice]
    warnings = [f"! {line}" for line in (*analysis.verdicts, *cluster.warnings)]
    return "\n".join([*parts, *([""] if findings or warnings else []), *findings, *warnings]).strip("\n")


def _hosts(cluster: Cluster) -> list[str]:
    lines = []
    for host in cluster.hosts:
        caches = ", ".join(f"{name} {format_bytes(size)}" for name, size in sorted(host.cache_bytes.items()))
        memory = f", {format_bytes(host.memory_bytes)} memory" if host.memory_bytes else ""
        model = f"{host.cpu_model}, " if host.cpu_model else ""
        detail = f"{model}{_processors(cluster, host)} on {counted(host.numa_nodes, 'NUMA node')}{memory}"
        lines.append(f"{host.name}: {detail}" + (f", {caches}" if caches else ""))
    return lines


def _processors(cluster: Cluster, host: Host) -> str:
    """Return the cores of a host in words, or the hardware threads of its CPUs where these alone are known."""
    threads = sum(cpu.threads or 0 for cpu in cluster.of_kind("cpu"))
    alone = not host.cores and threads and len(cluster.hosts) == 1
    return counted(threads, "hardware thread") if alone else counted(host.cores, "core")


def _groups(cluster: Cluster) -> list[str]:
    lines = []
    for group in cluster.groups:
        kind = "switched" if group.switched else "mesh"
        lines.append(
            f"{group.count} x {group.type}: {group.gpus} x {group.gpu.model}, {group.gpu_link} {kind}, "
            f"{format_rate(group.gpu_bandwidth_bytes_per_s)} a GPU and "
            f"{format_rate(group.peer_bandwidth_bytes_per_s)} to one peer, {group.nics} x "
            f"{format_network_rate(group.nic_bandwidth_bytes_per_s)} {group.nic_kind} (all per direction)"
        )
    if cluster.fabric and cluster.num_nodes > 1:
        f = cluster.fabric
        sides = f" {' x '.join(map(str, f.sides))}" if f.sides else ""
        sides += f" ({f.slices} slices)" if f.slices > 1 else ""
        lines.append(
            f"fabric: {f.kind}{sides}, {counted(f.nodes_per_leaf, 'node')} a leaf, oversubscription "
            f"{f.oversubscription:g}"
        )
    return lines


def _places(cluster: Cluster) -> list[str]:
    """Return the switches with the nodes below them, the first few of them."""
    by_leaf: dict[tuple[str, ...], list[str]] = {}
    for placement in cluster.placements:
        by_leaf.setdefault(tuple(reversed(placement.switches)), []).append(placement.node)
    if not by_leaf:
        return []
    lines = [f"{' > '.join(path)}: {_shortened(names)}" for path, names in sorted(by_leaf.items())]
    blocks: dict[str, list[str]] = {}
    for placement in cluster.placements:
        blocks.setdefault(placement.block, []).append(placement.node)
    only_blocks = all(placement.switches[:1] == (placement.block,) for placement in cluster.placements)
    where = f"in {counted(len(by_leaf), 'block')}" if only_blocks else f"below {counted(len(by_leaf), 'leaf switch')}"
    if not only_blocks:
        lines += [f"block {name}: {_shortened(names)}" for name, names in sorted(blocks.items()) if name]
    return [f"{counted(len(cluster.placements), 'node')} {where}", *lines[:40], *_ports(cluster)]


def _ports(cluster: Cluster) -> list[str]:
    """Return what the ports of the nodes carry, or that places are all that is said."""
    by_ports: dict[tuple[float, ...], list[str]] = {}
    for placement in cluster.placements:
        if placement.ports_bytes_per_s:
            by_ports.setdefault(placement.ports_bytes_per_s, []).append(placement.node)
    if by_ports:
        most_first = sorted(by_ports.items(), key=lambda item: -len(item[1]))
        return [f"ports of {_shortened(names)}: {_each(rates)} each way" for rates, names in most_first[:SHOWN_PAIRS]]
    if cluster.devices or cluster.groups:
        return []
    return ["places alone: neither GPUs nor the rates of links are said"]


def _each(rates: Sequence[float]) -> str:
    """Return the rates of ports in words, equal ones together."""
    return ", ".join(f"{rates.count(rate)} x {format_network_rate(rate)}" for rate in dict.fromkeys(rates))


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{names[0]} ... {names[-1]} ({len(names)})"


def _tree(cluster: Cluster, analysis: Analysis) -> list[str]:
    several = len({device.node for device in cluster.devices}) > 1
    places = sorted({(d.node, d.numa) for d in cluster.devices}, key=lambda p: (p[0], p[1] is None, p[1] or 0))
    to_cpu = _links_to_cpus(cluster)
    lines = []
    for node, numa in places:
        members = [device for device in cluster.devices if (device.node, device.numa) == (node, numa)]
        where = "NUMA node not known" if numa is None else f"NUMA node {numa}"
        lines.append(f"{node}: {where}" if several and node else where)
        for i, device in enumerate(members):
            branch = "`-" if i == len(members) - 1 else "|-"
            lines.append(f" {branch} {_describe(device, analysis)}{to_cpu.get(device.id, '')}")
    return lines[:200]


def _links_to_cpus(cluster: Cluster) -> dict[str, str]:
    """Return what to say of the GPUs that reach their CPU by something better than PCIe."""
    cpus = {cpu.id for cpu in cluster.of_kind("cpu")}
    said = {}
    for link in cluster.links:
        ends = {link.a, link.b}
        if ends & cpus and not ends <= cpus and is_own(link.kind) and link.bandwidth_bytes_per_s:
            (gpu,) = ends - cpus
            (cpu,) = ends & cpus
            said[gpu] = f"  {link.kind} to {cpu} {format_rate(link.bandwidth_bytes_per_s)}"
    return said


def _describe(device: Device, analysis: Analysis) -> str:
    parts = [device.id]
    if device.model and device.model != device.id:
        parts.append(device.model)
    if device.cores:
        threads = f" ({counted(device.threads, 'thread')})" if device.threads and device.threads != device.cores else ""
        parts.append(f"{counted(device.cores, 'core')}{threads}")
    elif device.threads:
        parts.append(counted(device.threads, "hardware thread"))
    if device.memory_bytes:
        parts.append(format_bytes(device.memory_bytes))
    if device.network_bandwidth_bytes_per_s:
        parts.append(format_network_rate(device.network_bandwidth_bytes_per_s))
    if device.cpu_affinity:
        parts.append(f"CPUs {device.cpu_affinity}")
    if device.memory_numa is not None:
        parts.append(f"memory is NUMA node {device.memory_numa}")
    if device.id in analysis.nic_of_gpu:
        nic, kind = analysis.nic_of_gpu[device.id]
        parts.append(f"NIC {nic} ({kind})")
    return "  ".join(parts)


def _matrix(cluster: Cluster) -> list[str]:
    """Return the matrix of kinds of link between GPUs and NICs, and a line for each kind with its rate."""
    devices = [device for device in cluster.devices if device.kind in {"gpu", "nic"}]
    known = {(link.a, link.b): link for link in cluster.links} | {(link.b, link.a): link for link in cluster.links}
    if len(devices) < 2 or len(devices) > MAX_MATRIX or not cluster.links:
        return []
    kinds = {link.kind for link in cluster.links}
    width = max(len(text) for text in (*kinds, *(device.id for device in devices), "SYS")) + 1
    lines = ["", " " * width + "".join(f"{device.id:>{width}}" for device in devices)]
    for a in devices:
        cells = ["X" if a is b else known[a.id, b.id].kind if (a.id, b.id) in known else "-" for b in devices]
        lines.append(f"{a.id:<{width}}" + "".join(f"{cell:>{width}}" for cell in cells))
    shown = {device.id for device in devices}
    return [*lines, "", *_rates_of_kinds([link for link in cluster.links if {link.a, link.b} <= shown])]


def _rates_of_kinds(links: Sequence[Link]) -> list[str]:
    """Return a line for each kind of link with its rate, fastest first; where it has several, with pairs of each."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for link in sorted(links, key=lambda link: -(link.bandwidth_bytes_per_s or 0.0)):
        rate = format_rate(link.bandwidth_bytes_per_s) if link.bandwidth_bytes_per_s else "rate not known"
        kinds.setdefault(link.kind, {}).setdefault(rate, []).append(f"{link.a}-{link.b}")
    lines = []
    for kind in sorted(kinds, key=lambda kind: (rank(kind), kind)):
        rates = kinds[kind]
        several = [f"{rate} ({first_few(pairs, SHOWN_PAIRS)})" for rate, pairs in rates.items()]
        lines.append(f"{kind}: {', '.join(several if len(rates) > 1 else rates)} per direction")
    return lines


def _domain(cluster: Cluster) -> list[str]:
    """Return how many GPUs the nodes that share GPU links have together."""
    nodes, gpus = cluster.scale_up_nodes or 1, len(cluster.of_kind("gpu"))
    if nodes < 2 or not gpus or cluster.groups or len({device.node for device in cluster.devices}) > 1:
        return []
    return [
        "",
        f"{nodes} nodes such as this one share a domain of GPU links: {counted(nodes * gpus, 'GPU')} (--domain)",
    ]
