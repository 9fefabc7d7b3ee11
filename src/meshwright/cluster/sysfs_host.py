"""The host that a copy of /sys describes: CPUs and memory of its NUMA nodes, from devices/system."""

import re
from pathlib import Path

from ..errors import InputError
from .cpumask import mask_cpus
from .graph import Cluster, Device, Host
from .local import format_cores, parse_cores
from .sysfs import read


def is_sysfs(folder: Path) -> bool:
    """Return whether a folder holds what /sys does: PCI devices, CPUs or NUMA nodes."""
    return any((folder / part).is_dir() for part in ("bus/pci/devices", "devices/system/cpu", "devices/system/node"))


def host_of(folder: Path) -> Cluster:
    """Return the host and its CPUs, one a NUMA node that has CPUs, and the nodes that are memory alone.

    Without devices/system in the copy there is no host, and nothing is made up.
    """
    nodes = {
        int(path.name.removeprefix("node")): path
        for path in sorted((folder / "devices/system/node").glob("node[0-9]*"))
        if path.name.removeprefix("node").isdecimal()
    }
    online = _cores(folder / "devices/system/cpu/online") or _listed(folder / "devices/system/cpu")
    cpus, memories, total = list[Device](), list[Device](), 0
    for number, path in sorted(nodes.items()):
        its = _cores(path / "cpulist") or mask_cpus(read(path / "cpumap")) or _listed(path)
        memory = _memory_bytes(path)
        if online:
            its = [core for core in its if core in set(online)]
        total += memory or 0
        if its:
            cpus.append(_cpu(number, its, memory, folder))
        else:
            memories.append(
                Device(id=f"MEM{number}", kind="memory", node=folder.name, numa=number, memory_bytes=memory)
            )
    if not nodes and online:
        cpus.append(_cpu(0, online, None, folder))
    if not cpus:
        return Cluster(name=folder.name)
    cores = sum(cpu.cores or 0 for cpu in cpus)
    host = Host(name=folder.name, cores=cores, memory_bytes=total, numa_nodes=len(cpus))
    return Cluster(name=folder.name, hosts=(host,), devices=(*cpus, *memories))


def _cpu(number: int, its: list[int], memory: int | None, folder: Path) -> Device:
    siblings = {
        read(folder / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list") or str(core) for core in its
    }
    return Device(
        id=f"CPU{number}",
        kind="cpu",
        node=folder.name,
        numa=number,
        cores=len(siblings),
        threads=len(its),
        cpu_affinity=format_cores(its),
        memory_bytes=memory,
    )


def _cores(path: Path) -> list[int]:
    text = read(path)
    try:
        return parse_cores(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _listed(folder: Path) -> list[int]:
    """Return the CPUs that a folder holds a folder each of."""
    names = (re.fullmatch(r"cpu(\d{1,5})", path.name) for path in folder.glob("cpu[0-9]*"))
    return sorted(int(name.group(1)) for name in names if name)


def _memory_bytes(node: Path) -> int | None:
    found = re.search(r"MemTotal:\s+(\d+) kB", read(node / "meminfo"))
    return int(found.group(1)) * 1024 if found else None
