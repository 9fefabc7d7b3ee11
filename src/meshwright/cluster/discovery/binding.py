"""Bind a rank to the NUMA node of its device: which CPUs and memory, and the system calls that do it."""

import ctypes
import os
import platform
from pathlib import Path

import msgspec

from ...errors import MeshwrightError
from ..graph import Cluster, Device
from .local import format_cores, parse_cores
from .sysfs import SYS, numa_of, read

SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "ppc64le": 261}  # system call numbers
MPOL_PREFERRED = 1


class Binding(msgspec.Struct, frozen=True):
    """Where a rank runs: CPUs as a list such as "0-7", and the node whose memory it prefers (None: any)."""

    cpus: str
    numa: int | None = None
    device: str = ""  # whose node it is


def binding(cluster: Cluster, local_rank: int, local_ranks: int) -> Binding | None:
    """Return where rank `local_rank` of `local_ranks` on this host belongs: with its GPU, else spread over CPU nodes.

    Ranks without a GPU go to the NUMA nodes in blocks, so that neighbours share one. None where nothing is known or
    the host has one node only: then there is nothing to choose.
    """
    cpus = [cpu for cpu in cluster.of_kind("cpu") if cpu.cpu_affinity]
    gpus = cluster.of_kind("gpu")
    if gpus and local_rank < len(gpus):
        return _with_gpu(gpus[local_rank], cpus)
    if len(cpus) < 2:
        return None
    node = cpus[local_rank * len(cpus) // max(local_ranks, 1) % len(cpus)]
    return Binding(node.cpu_affinity or "", node.numa, node.id)


def binding_of_gpu(bus_id: str, cluster: Cluster, root: Path = SYS) -> Binding | None:
    """Return where a rank belongs whose GPU has this PCI address; None where the system does not tell, or has one node.

    The address is the driver's answer for the device that the rank computes on: the order of GPUs on a machine says
    nothing of it where some are hidden from the rank, or shown in another order.
    """
    folder = root / "bus/pci/devices" / bus_id
    numa = numa_of(folder)
    cpus = read(folder / "local_cpulist") or next(
        (cpu.cpu_affinity or "" for cpu in cluster.of_kind("cpu") if numa is not None and cpu.numa == numa), ""
    )
    return Binding(cpus, numa, bus_id) if cpus and len(cluster.of_kind("cpu")) > 1 else None


def bind(place: Binding) -> None:
    """Bind this process and the threads that it starts from now on; MeshwrightError if the system refuses.

    CPUs that the process may not use anyway are left out, so that a container's or taskset's choice holds.
    """
    wanted = set(parse_cores(place.cpus)) & os.sched_getaffinity(0)
    if not wanted:
        raise MeshwrightError(
            f"cannot bind to CPUs {place.cpus} of {place.device}: this process may not use any of them"
        )
    os.sched_setaffinity(0, wanted)
    if place.numa is not None:
        _prefer_memory(place.numa)


def current() -> Binding:
    """Return the CPUs that this process is bound to now."""
    return Binding(format_cores(sorted(os.sched_getaffinity(0))))


def _with_gpu(gpu: Device, cpus: list[Device]) -> Binding | None:
    node = next((cpu for cpu in cpus if gpu.numa is not None and cpu.numa == gpu.numa), None)
    affinity = gpu.cpu_affinity or (node.cpu_affinity if node else None)
    return Binding(affinity, gpu.numa, gpu.id) if affinity else None


def _prefer_memory(node: int) -> None:
    number = SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise MeshwrightError(f"binding memory is not known on {platform.machine()}")
    words = node // 64 + 1
    mask = (ctypes.c_ulong * words)()
    mask[node // 64] = 1 << (node % 64)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, MPOL_PREFERRED, mask, ctypes.c_ulong(64 * words + 1)):
        code = ctypes.get_errno()
        raise MeshwrightError(f"cannot prefer the memory of NUMA node {node}: {os.strerror(code)}")
