"""CPUs by their NUMA nodes, as every reader of a machine names them; CPUs of no node are counted too."""

from collections.abc import Iterable

from msgspec.structs import replace

from .discovery.local import format_cores, parse_cores
from .graph import Cluster, Device


def cpu_id(node: int | None) -> str:
    """Return the id of the CPU of a NUMA node, or of the cores that no node holds."""
    return "CPU of no node" if node is None else f"CPU{node}"


def node_count(cpus: Iterable[Device]) -> int:
    """Return how many NUMA nodes these are the CPUs of."""
    return sum(cpu.numa is not None for cpu in cpus)


def of_no_node(cpus: Iterable[Device]) -> list[str]:
    """Return a warning for the cores that no node holds, none where each has one."""
    return [
        f"CPUs {cpu.cpu_affinity} are in no NUMA node of this copy: which is nearest is not known"
        for cpu in cpus
        if cpu.numa is None
    ]


def without_disputed_cpus(cluster: Cluster) -> Cluster:
    """Return a cluster without the CPUs that its source gives to several NUMA nodes of one host, and say so.

    A CPU is in one node: such lists are copied by hand, or a virtual machine's, and would bind ranks far from their
    devices.
    """
    found: dict[str, dict[int, set[int]]] = {}  # of each host and NUMA node
    for device in cluster.devices:
        if device.numa is not None and device.cpu_affinity:
            cpus = found.setdefault(device.node, {}).setdefault(device.numa, set())
            cpus.update(parse_cores(device.cpu_affinity))
    disputed: dict[str, dict[int, set[int]]] = {}
    for node, by_numa in found.items():
        for numa, cpus in by_numa.items():
            if any(cpus & others for other, others in by_numa.items() if other != numa):
                disputed.setdefault(node, {})[numa] = cpus
    if not disputed:
        return cluster
    said = [
        f"{f'{node}: ' if node else ''}NUMA nodes {', '.join(map(str, sorted(by_numa)))} are said to have the same CPUs"
        f" ({format_cores(sorted(set.union(*by_numa.values())))}): which each has is not known; numactl -H says it"
        for node, by_numa in disputed.items()
    ]
    devices = [
        replace(device, cpu_affinity=None, cores=None, threads=None)
        if device.numa in disputed.get(device.node, {})
        else device
        for device in cluster.devices
    ]
    hosts = [host for host in cluster.hosts if host.memory_bytes or not disputed.keys() & {host.name, ""}]
    return replace(cluster, devices=tuple(devices), hosts=tuple(hosts), warnings=(*said, *cluster.warnings))
