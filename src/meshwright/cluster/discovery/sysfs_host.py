"""The host that a copy of /sys describes: CPUs and memory of its NUMA nodes, from devices/system."""

import re
from pathlib import Path

from ...errors import InputError
from ..cpumask import mask_cpus
from ..graph import Cluster, Device, Host
from ..numa import cpu_id, node_count, of_no_node
from .local import format_cores, parse_cores
from .sysfs import gpu_memory_nodes, read


def is_sysfs(folder: Path) -> bool:
    """Return whether a folder holds what /sys does: PCI devices, CPUs or NUMA nodes."""
    return any((folder / part).is_dir() for part in ("bus/pci/devices", "devices/system/cpu", "devices/system/node"))


def host_of(folder: Path) -> Cluster:
    """Return the host and its CPUs, one a NUMA node that has CPUs, and the nodes that are memory alone.

    CPUs that are offline do not count; CPUs that no node lists are one CPU of unknown node, and a CPU that several
    nodes list is counted once, with a warning. Nodes without CPUs and memory, and nodes that are a GPU's memory, are
    left out. Without devices/system in the copy there is no host, and nothing is made up.
    """
    nodes = {
        int(path.name.removeprefix("node")): path
        for path in sorted((folder / "devices/system/node").glob("node[0-9]*"))
        if path.name.removeprefix("node").isdecimal()
    }
    online, of_gpus = _online(folder / "devices/system/cpu"), gpu_memory_nodes(folder)
    cpus, memories, taken, doubled, total = list[Device](), list[Device](), set[int](), list[int](), 0
    for number, path in sorted(nodes.items()):
        its = set(_cores(path / "cpulist") or mask_cpus(read(path / "cpumap")) or _listed(path))
        its = its & online if online else its
        memory = _memory_bytes(path)
        if number in of_gpus or (not its and memory == 0):
            continue
        total += memory or 0
        doubled += [number] if its & taken else []
        if its - taken:
            cpus.append(_cpu(number, sorted(its - taken), memory, folder))
        else:
            memories.append(
                Device(id=f"MEM{number}", kind="memory", node=folder.name, numa=number, memory_bytes=memory)
            )
        taken |= its
    warnings = []
    if doubled:
        names = ", ".join(map(str, doubled))
        warnings.append(f"NUMA nodes {names} list CPUs that another node lists too: which are theirs is not known")
    if rest := sorted(online - taken):
        cpus.append(_cpu(None if cpus else 0, rest, None, folder))
        warnings += of_no_node(cpus)
    if not cpus:
        return Cluster(name=folder.name)
    cores = sum(cpu.cores or 0 for cpu in cpus)
    host = Host(name=folder.name, cores=cores, memory_bytes=total, numa_nodes=node_count(cpus))
    return Cluster(name=folder.name, hosts=(host,), devices=(*cpus, *memories), warnings=tuple(warnings))


def _cpu(number: int | None, its: list[int], memory: int | None, folder: Path) -> Device:
    siblings = {
        read(folder / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list") or str(core) for core in its
    }
    return Device(
        id=cpu_id(number),
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


def _online(folder: Path) -> set[int]:
    """Return the CPUs that take work: those in the list, or with a folder, whose own word is not that they are off."""
    found = _cores(folder / "online") or _listed(folder)
    return {core for core in found if read(folder / f"cpu{core}/online").strip() != "0"}


def _listed(folder: Path) -> list[int]:
    """Return the CPUs that a folder holds a folder each of."""
    names = (re.fullmatch(r"cpu(\d{1,5})", path.name) for path in folder.glob("cpu[0-9]*"))
    return sorted(int(name.group(1)) for name in names if name)


def _memory_bytes(node: Path) -> int | None:
    found = re.search(r"MemTotal:\s+(\d+) kB", read(node / "meminfo"))
    return int(found.group(1)) * 1024 if found else None
