"""The machine that this process runs on: cores, NUMA nodes, memory, caches, accelerators. No measurement."""

import hashlib
import importlib.metadata
import os
import platform
import re
import socket
from pathlib import Path

import psutil

from ...errors import InputError
from ...units import consecutive, parse_bytes
from ..cpumask import MAX_CPU
from ..graph import Cluster, Device, Host, Link

_SYS = Path("/sys/devices/system")


def discover_host() -> Host:
    """Return this machine as its operating system describes it."""
    return Host(
        name=socket.gethostname(),
        cpu_model=_cpu_model(),
        cores=usable_cores(),
        memory_bytes=usable_memory_bytes(),
        cache_bytes=_caches(),
        numa_nodes=max(1, len(_numa_nodes())),
        software={
            "kernel": platform.release(),
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("meshwright", "numpy", "torch")},
        },
    )


def local_cluster(gpus: tuple[Device, ...] = ()) -> Cluster:
    """Return this machine as a Cluster: one CPU device a NUMA node, and the `gpus` that the caller found."""
    host = discover_host()
    nodes = _numa_nodes() or {0: sorted(os.sched_getaffinity(0))}
    cpus = tuple(
        Device(
            id=f"CPU{index}",
            kind="cpu",
            model=host.cpu_model,
            node=host.name,
            numa=index,
            cpu_affinity=format_cores(cores),
            cores=len(cores),
            memory_bytes=_numa_memory_bytes(index) or host.memory_bytes,
        )
        for index, cores in sorted(nodes.items())
    )
    links = tuple(
        Link(a=a.id, b=b.id, kind="SYS", bandwidth_bytes_per_s=None) for i, a in enumerate(cpus) for b in cpus[i + 1 :]
    )
    return Cluster(name=host.name, hosts=(host,), devices=cpus + gpus, links=links)


def fingerprint(host: Host, *more: str) -> str:
    """Return a short name for a machine and its versions, under which its measurements are kept."""
    facts = (host.cpu_model, str(host.cores), str(host.memory_bytes >> 30), *sorted(map(str, host.cache_bytes.items())))
    versions = sorted(f"{name}={version}" for name, version in host.software.items())
    return hashlib.sha256("\n".join((*facts, *versions, *more)).encode()).hexdigest()[:16]


def usable_cores() -> int:
    """Return how many cores this process may run on: its affinity, and a container's CPU quota where one is set."""
    cores = len(os.sched_getaffinity(0))
    limit = _cgroup("cpu.max")
    if limit and not limit.startswith("max"):
        quota, period = map(int, limit.split())
        cores = max(1, min(cores, quota // period))
    return cores


def usable_memory_bytes() -> int:
    """Return the memory that this process may use: the machine's, or a container's limit where one is set."""
    total = int(psutil.virtual_memory().total)
    limit = _cgroup("memory.max")
    return min(total, int(limit)) if limit and limit.isdecimal() else total


def available_memory_bytes() -> int:
    """Return the memory that is free for new processes now."""
    return min(int(psutil.virtual_memory().available), usable_memory_bytes())


def threads_per_rank(ranks: int) -> int:
    """Return the compute threads of each of `ranks` ranks of this host: an equal share of the cores, at least 1."""
    return max(1, usable_cores() // ranks)


def parse_cores(text: str) -> list[int]:
    """Return the core numbers of a kernel list such as "0-7,16-23"."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise InputError(f"{text!r}: expected a list of cores such as 0-7,16-23")
        if len(last or first) > 5 or int(last or first) > MAX_CPU:
            raise InputError(f"{text[:60]!r}: expected numbers of cores up to {MAX_CPU}")
        cores += range(int(first), int(last or first) + 1)
    return cores


def format_cores(cores: list[int]) -> str:
    """Return core numbers as a kernel list: [0, 1, 2, 5] is "0-2,5"."""
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in consecutive(cores))


def _cpu_model() -> str:
    try:
        found = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.machine()


def _caches() -> dict[str, int]:
    """Return the size of each data cache that core 0 sees, by level."""
    caches = {}
    for index in sorted((_SYS / "cpu/cpu0/cache").glob("index*")):
        if _read(index / "type") != "Instruction" and (size := _read(index / "size")):
            caches[f"L{_read(index / 'level')}"] = parse_bytes(size)
    return caches


def _numa_nodes() -> dict[int, list[int]]:
    """Return the usable cores of each NUMA node that has any."""
    usable = os.sched_getaffinity(0)
    nodes = {}
    for folder in (_SYS / "node").glob("node[0-9]*"):
        cores = [core for core in parse_cores(_read(folder / "cpulist")) if core in usable]
        if cores:
            nodes[int(folder.name.removeprefix("node"))] = cores
    return nodes


def _numa_memory_bytes(node: int) -> int | None:
    found = re.search(r"MemTotal:\s+(\d+) kB", _read(_SYS / f"node/node{node}/meminfo"))
    return int(found.group(1)) * 1024 if found else None


def _cgroup(name: str) -> str:
    return _read(Path("/sys/fs/cgroup") / name)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
