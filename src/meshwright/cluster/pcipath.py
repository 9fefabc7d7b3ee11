"""PCI devices of a host and the kind of path between two of them, whatever the source: sysfs, hwloc or NCCL."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from .graph import Device, Link
from .paths import SLOW

GENERATION = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256, 128.0: 242 / 256}
NARROW = 0.9  # of the PCIe link of a card that is alike; more is a difference of coding
ABSURD = 2  # times what its PCIe slot carries: no NIC's rate


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One GPU or NIC: its place below the host bridges and the rate of its own PCIe link."""

    device: Device
    bridges: tuple[str, ...]  # from the host bridge down: ports, or whole switches as NCCL counts them
    rate_bytes_per_s: float | None
    bus_id: str = ""
    above: tuple[float | None, ...] = ()  # the rates of the links of `bridges`, None where one does not limit
    make: str = ""  # vendor, device and both of the subsystem: cards with the same are alike; "" where one is missing

    def rate_below(self, bridge: int) -> float | None:
        """Return the least rate of the links from the device up to its `bridge`-th bridge, that one excluded."""
        if self.rate_bytes_per_s is None:
            return None
        return min([self.rate_bytes_per_s, *(rate for rate in self.above[bridge:] if rate)])


def pcie_bytes_per_s(transfers: str, width: str) -> float | None:
    """Return the rate of "16.0 GT/s PCIe" with "16" lanes per direction, after line coding; None if not known."""
    speed = re.match(r"\s*(\d{1,4}(?:\.\d{1,4})?)\s*GT/s", transfers)
    lanes = re.match(r"\s*x?(\d+)", width)
    if speed is None or lanes is None:
        return None
    giga, count = float(speed.group(1)), int(lanes.group(1))
    share = GENERATION.get(giga)
    return giga * 1e9 * share * count / 8 if share and 0 < count <= 32 else None


def path_code(a: PciDevice, b: PciDevice, *, whole_switches: bool = False) -> str:
    """Return PIX, PXB, PHB, NODE or SYS: what lies between two devices.

    `whole_switches`: each bridge but the first is a switch with all its ports, and the first is a CPU.
    """
    common = _common(a, b)
    if common == 0:
        return "NODE" if a.device.numa is not None and a.device.numa == b.device.numa else "SYS"
    if common == 1:
        return "PHB"
    below = (len(a.bridges) - common, len(b.bridges) - common)
    if whole_switches:
        return "PIX" if max(below) == 0 else "PXB"
    # each switch is an upstream and a downstream port; one switch lies between two ports of the same upstream
    return "PIX" if max(below) <= 1 else "PXB"


def _common(a: PciDevice, b: PciDevice) -> int:
    """Return how many bridges two devices share, from the top."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a.bridges, b.bridges, strict=False))
    return sum(1 for _ in pairs)


def path_bytes_per_s(a: PciDevice, b: PciDevice) -> float | None:
    """Return the least rate of the links between two devices; None if one's own is not known."""
    common = _common(a, b)
    rates = (a.rate_below(common), b.rate_below(common))
    return None if None in rates else min(rate for rate in rates if rate is not None)


def pci_links(devices: Sequence[PciDevice], *, whole_switches: bool = False) -> list[Link]:
    """Return one link for every pair of GPUs and every GPU with every NIC."""
    return [
        Link(
            a=a.device.id,
            b=b.device.id,
            kind=path_code(a, b, whole_switches=whole_switches),
            bandwidth_bytes_per_s=path_bytes_per_s(a, b),
        )
        for a, b in itertools.combinations(sorted(devices, key=lambda item: item.device.kind != "gpu"), 2)
        if a.device.kind == "gpu"
    ]


def host_links(devices: Sequence[PciDevice], cpus: Sequence[Device]) -> list[Link]:
    """Return the PCIe path of each device to the CPU of its NUMA node; where that is not known, to the only CPU."""
    by_numa = {cpu.numa: cpu.id for cpu in cpus if cpu.numa is not None}
    default = cpus[0].id if len(cpus) == 1 else None
    return [
        Link(a=d.device.id, b=cpu, kind="PCIe", bandwidth_bytes_per_s=d.rate_below(0))
        for d in devices
        if (cpu := default if d.device.numa is None else by_numa.get(d.device.numa, default)) is not None
    ]


def upper_bound_warnings(links: Sequence[Link]) -> list[str]:
    """Return a warning where a rate is only the PCIe link's although the path crosses a CPU or the sockets."""
    kinds = sorted({link.kind for link in links if link.kind in SLOW and link.bandwidth_bytes_per_s})
    return [f"{', '.join(kinds)}: the rate is the PCIe link's, an upper bound; measure with bench p2p"] if kinds else []


def tree_alone_warnings(gpus: Sequence[Device]) -> list[str]:
    """Return a warning for several GPUs of which a source shows the PCI tree and could show no other link."""
    if len(gpus) < 2 or (gpus[0].model and gpus[0].own_links == 0):
        return []
    return ["a PCI tree shows no NVLink and no xGMI: GPUs may have them beside these paths; nvidia-smi topo -m says it"]


def too_fast(nics: Sequence[PciDevice]) -> list[str]:
    """Return a warning for each NIC whose port is said to carry more than twice what its PCIe slot does."""
    return [
        f"{nic.device.id}: {rate / 1e9:,.0f} GB/s is said of its port, its PCIe slot carries {slot / 1e9:.3g}: "
        "the figure is not used"
        for nic in nics
        if (rate := nic.device.network_bandwidth_bytes_per_s) and (slot := nic.rate_below(0)) and rate > ABSURD * slot
    ]


def card_of(bus_id: str) -> str:
    """Return the card of a PCI function ("0000:3b:00.1"): its bus and device, "" where the id is not known."""
    return bus_id.rpartition(".")[0] or bus_id


def crowded_cards(nics: Sequence[PciDevice]) -> list[str]:
    """Return a warning for the NICs of each card that carry more together than its PCIe link does."""
    cards: dict[str, list[PciDevice]] = {}
    for nic in nics:
        if nic.device.card:
            cards.setdefault(f"{nic.device.node} {nic.device.card}", []).append(nic)
    found = []
    for ports in cards.values():
        rates = [port.device.network_bandwidth_bytes_per_s or 0.0 for port in ports]
        slot = min((rate for port in ports if (rate := port.rate_below(0))), default=0.0)
        if len(ports) > 1 and slot and all(0 < rate <= ABSURD * slot for rate in rates) and sum(rates) > slot:
            names = ", ".join(port.device.id for port in ports)
            found.append(
                f"{names} share the PCIe link of one card: {slot / 1e9:.3g} GB/s together, not the "
                f"{sum(rates) / 1e9:.3g} of their ports"
            )
    return found


def below_highest_speed(device: str, now: str, most: str, lanes: str, of_port: str = "") -> str:
    """Return that the link of a NIC is trained below its highest speed, in words, "" where it is not.

    Speeds are those of a lane in GT/s; `of_port` is the highest of the port above, where it is known. A GPU's link
    speed "may be reduced when the GPU is not in use" (man nvidia-smi); of a NIC the kernel takes the trained speed for
    what is available (pcie_print_link_status, which mlx5, bnxt and ice call once, when they start).
    """
    rate, full = (pcie_bytes_per_s(f"{speed} GT/s", lanes) for speed in (now, most))
    if not rate or not full or float(now) >= float(most):
        return ""
    slot = f"its slot has no more than {of_port}" if of_port == now else "a slower slot, a riser or a fault"
    return (
        f"{device}: its PCIe link runs at {now} GT/s of {most} ({rate / 1e9:.3g} GB/s of {full / 1e9:.3g}): {slot}; "
        "NICs do not slow down when idle"
    )


def make_of(vendor: str, device: str, subsystem_vendor: str, subsystem_device: str) -> str:
    """Return what tells one make of card from another, "" where one of the four ids is missing."""
    ids = [text.lower().removeprefix("0x") for text in (vendor, device, subsystem_vendor, subsystem_device)]
    return ":".join(ids) if all(text.strip("0") for text in ids) else ""


def narrower_than_their_make(nics: Sequence[PciDevice]) -> list[str]:
    """Return a warning for each NIC with less of a PCIe link than another of the same make on its node has."""
    found = []
    for nic in nics:
        alike = [
            other for other in nics if nic.make and other.make == nic.make and other.device.node == nic.device.node
        ]
        best = max(alike, key=lambda other: other.rate_bytes_per_s or 0.0, default=nic)
        rate, most = nic.rate_bytes_per_s, best.rate_bytes_per_s
        if not rate or not most or rate > NARROW * most:
            continue
        slow, fast = (item.device.network_bandwidth_bytes_per_s for item in (nic, best))
        ports = f", and runs at {slow * 8e-9:.3g} Gb/s, not {fast * 8e-9:.3g}" if slow and fast and slow < fast else ""
        found.append(
            f"{nic.device.id} has a PCIe link of {rate / 1e9:.3g} GB/s, {best.device.id} of the same make one of "
            f"{most / 1e9:.3g}: fewer lanes or a slower slot{ports}"
        )
    return found
