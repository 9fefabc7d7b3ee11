"""PCI devices of a host and the kind of path between two of them, whatever the source: sysfs, hwloc or NCCL."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .graph import Device, Link
from .paths import SLOW

GENERATION = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256, 128.0: 242 / 256}


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One GPU or NIC: its place below the host bridges and the rate of its own PCIe link."""

    device: Device
    bridges: tuple[str, ...]  # from the host bridge down to the port above the device
    rate_bytes_per_s: float | None
    bus_id: str = ""


def pcie_bytes_per_s(transfers: str, width: str) -> float | None:
    """Return the rate of "16.0 GT/s PCIe" with "16" lanes per direction, after line coding; None if not known."""
    speed = re.match(r"\s*([\d.]+)\s*GT/s", transfers)
    lanes = re.match(r"\s*x?(\d+)", width)
    if speed is None or lanes is None:
        return None
    giga, count = float(speed.group(1)), int(lanes.group(1))
    share = GENERATION.get(giga)
    return giga * 1e9 * share * count / 8 if share and 0 < count <= 32 else None


def path_code(a: PciDevice, b: PciDevice) -> str:
    """Return PIX, PXB, PHB, NODE or SYS: what lies between two devices."""
    common = len([1 for x, y in zip(a.bridges, b.bridges, strict=False) if x == y])
    if common and a.bridges[0] == b.bridges[0]:
        if common == 1:
            return "PHB"
        # each switch is an upstream and a downstream port; one switch lies between two ports of the same upstream
        below = (len(a.bridges) - common, len(b.bridges) - common)
        return "PIX" if max(below) <= 1 else "PXB"
    if a.device.numa is not None and a.device.numa == b.device.numa:
        return "NODE"
    return "SYS"


def pci_links(devices: Sequence[PciDevice]) -> list[Link]:
    """Return one link for every pair of GPUs and every GPU with every NIC."""
    links = []
    for a, b in itertools.combinations(devices, 2):
        if "gpu" in {a.device.kind, b.device.kind}:
            rates = [rate for rate in (a.rate_bytes_per_s, b.rate_bytes_per_s) if rate]
            rate = min(rates) if len(rates) == 2 else None
            links.append(Link(a=a.device.id, b=b.device.id, kind=path_code(a, b), bandwidth_bytes_per_s=rate))
    return links


def host_links(devices: Sequence[PciDevice], cpus: Sequence[Device]) -> list[Link]:
    """Return the PCIe link of each device to the CPU of its NUMA node."""
    by_numa = {cpu.numa: cpu.id for cpu in cpus}
    default = cpus[0].id if len(cpus) == 1 else None
    return [
        Link(a=d.device.id, b=cpu, kind="PCIe", bandwidth_bytes_per_s=d.rate_bytes_per_s)
        for d in devices
        if (cpu := by_numa.get(d.device.numa, default)) is not None
    ]


def upper_bound_warnings(links: Sequence[Link]) -> list[str]:
    """Return a warning where a rate is only the PCIe link's although the path crosses a CPU or the sockets."""
    kinds = sorted({link.kind for link in links if link.kind in SLOW and link.bandwidth_bytes_per_s})
    return [f"{', '.join(kinds)}: the rate is the PCIe link's, an upper bound; measure with bench p2p"] if kinds else []
