"""`numactl -H`: the NUMA nodes of a host with their CPUs and memory."""

import re
from collections.abc import Sequence

from ...errors import InputError
from ..discovery.local import format_cores
from ..graph import Cluster, Device, Host

CPUS = re.compile(r"^\s*node (\d{1,6}) cpus:((?:\s+\d{1,6})*)\s*$", re.M)
NOTE = "numactl shows no devices: give the output of nvidia-smi topo -m or lstopo's XML as well"
SIZE = re.compile(r"^\s*node (\d{1,6}) size:\s+(\d{1,12}) MB", re.M)
DISTANCES = re.compile(r"^\s*(\d{1,6}):((?:\s+\d{1,3})+)\s*$", re.M)
THREADS = "numactl counts hardware threads, which it calls CPUs: cores and sockets are not told (lscpu tells them)"


def looks_like_numactl(text: str) -> bool:
    """Return whether a text is the output of numactl --hardware."""
    return CPUS.search(text) is not None


def from_numactl(text: str, where: str) -> Cluster:
    """Return the host and a CPU for each node that has CPUs; nodes without are memory alone, if they have any.

    numactl's "cpus" are hardware threads: how many cores they are is not known.
    """
    sizes = {int(node): int(size) * 2**20 for node, size in SIZE.findall(text)}
    cpus, memories = list[Device](), list[Device]()
    for number, listed in CPUS.findall(text):
        node, its = int(number), sorted({int(cpu) for cpu in listed.split()})
        memory = sizes.get(node)
        if not its and memory == 0:  # the place of a GPU's memory that is in parts, or of a device
            continue
        if not its:
            memories.append(Device(id=f"MEM{node}", kind="memory", numa=node, memory_bytes=memory))
            continue
        affinity = format_cores(its)
        cpus.append(
            Device(id=f"CPU{node}", kind="cpu", numa=node, threads=len(its), cpu_affinity=affinity, memory_bytes=memory)
        )
    listed_nodes = [number for number, _ in CPUS.findall(text)]
    if len(set(listed_nodes)) < len(listed_nodes):
        raise InputError(f"{where}: a node stands twice, expected the output of numactl -H of one host")
    if not cpus:
        raise InputError(f"{where}: no node has CPUs, expected the output of numactl -H")
    host = Host(name=where, cores=0, memory_bytes=sum(sizes.values()), numa_nodes=len(cpus))
    said = (*_without_memory(cpus), NOTE, *_near_nodes(text, [cpu.numa or 0 for cpu in cpus]), THREADS)
    return Cluster(name=where, hosts=(host,), devices=(*cpus, *memories), warnings=said)


def _near_nodes(text: str, nodes: Sequence[int]) -> list[str]:
    """Return which nodes with CPUs are nearer to one another than to the rest by the table of distances."""
    rows = {int(node): [int(cell) for cell in cells.split()] for node, cells in DISTANCES.findall(text)}
    listed = sorted(rows)
    if not set(nodes) <= set(rows) or any(len(cells) != len(rows) for cells in rows.values()):
        return []
    away = {(a, b): rows[a][listed.index(b)] for a in nodes for b in nodes if a != b}
    near, far = min(away.values(), default=0), max(away.values(), default=0)
    groups = {tuple(b for b in nodes if a == b or away[a, b] < far) for a in nodes} if near < far else set()
    if len(groups) < 2 or sum(map(len, groups)) != len(nodes):
        return []
    shown = ", ".join(format_cores(list(group)) for group in sorted(groups))
    return [f"by their distances NUMA nodes are in {len(groups)} groups, as those of a socket: {shown} ({far} across)"]


def _without_memory(cpus: Sequence[Device]) -> list[str]:
    """Return the nodes whose CPUs have no memory of their own though others have some."""
    bare = [cpu for cpu in cpus if cpu.memory_bytes == 0]
    if not bare or not any(cpu.memory_bytes for cpu in cpus):
        return []
    which = ", ".join(f"{cpu.numa} ({cpu.threads} CPUs)" for cpu in bare)
    return [
        f"no memory on NUMA node{'s' if len(bare) > 1 else ''} {which}, and on others there is: what runs there has "
        "all its memory on another node (modules missing or not seen)"
    ]
