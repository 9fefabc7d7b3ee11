"""GPUs and NICs of this machine from sysfs: their place in the PCI tree, NUMA node, link rate and port rate."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from ..hardware.arithmetic import INFINIBAND_LANE_GBPS
from .graph import Device
from .pcipath import PciDevice, pcie_bytes_per_s

SYS = Path("/sys")
DISPLAY_CLASSES, NETWORK_CLASSES = ("0x03", "0x12"), ("0x02",)  # 0x12: processing accelerators
GPU_VENDORS = {"0x10de": "nvidia", "0x1002": "amd", "0x1da3": "habana"}
BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
RATE = re.compile(r"([\d.]+)\s*Gb/sec(?:\s*\((\d+)X\s*(\w+)\))?")


@dataclass(frozen=True, slots=True)
class Port:
    """A network port: its name, its rate per direction, what it is, and the PCI function below it."""

    name: str
    bytes_per_s: float | None
    kind: str  # "infiniband", "roce", "ethernet", "virtual"
    bus_id: str | None


def pci_functions(root: Path = SYS) -> dict[str, Path]:
    """Return the folder of every PCI function by bus id."""
    folder = root / "bus/pci/devices"
    return {path.name: path.resolve() for path in sorted(folder.glob("*"))} if folder.is_dir() else {}


def pci_gpus(root: Path = SYS) -> list[PciDevice]:
    """Return the accelerators on the PCI bus in bus order, as GPU0 and on; their model is what the bus says."""
    found: list[PciDevice] = []
    for bus_id, folder in pci_functions(root).items():
        vendor = GPU_VENDORS.get(read(folder / "vendor"))
        if vendor and read(folder / "class").startswith(DISPLAY_CLASSES):
            device = _placed(Device(id=f"GPU{len(found)}", kind="gpu", model=vendor), folder)
            found.append(PciDevice(device, bridges(folder), link_bytes_per_s(folder), bus_id))
    return found


def nics(root: Path = SYS, shaped: Mapping[str, float] | None = None) -> list[PciDevice]:
    """Return the NICs: a PCI function with its ports, or a virtual interface that is up."""
    functions = pci_functions(root)
    by_function: dict[str, list[Port]] = {}
    alone = []
    for port in ports(root, shaped or {}):
        if port.bus_id in functions:
            by_function.setdefault(port.bus_id or "", []).append(port)
        elif port.kind == "virtual":
            alone.append(port)
    found = []
    for bus_id, mine in sorted(by_function.items()):
        folder, first = functions[bus_id], mine[0]
        rates = [port.bytes_per_s for port in mine if port.bytes_per_s]
        rate = max(rates, default=None)
        device = Device(id=first.name, kind="nic", model=first.kind, network_bandwidth_bytes_per_s=rate)
        found.append(PciDevice(_placed(device, folder), bridges(folder), link_bytes_per_s(folder), bus_id))
    for port in alone:
        device = Device(id=port.name, kind="nic", model=port.kind, network_bandwidth_bytes_per_s=port.bytes_per_s)
        found.append(PciDevice(device, (), None))
    return found


def ports(root: Path, shaped: Mapping[str, float]) -> list[Port]:
    """Return InfiniBand ports first, then the network interfaces but loopback; shaping counts as the rate."""
    found = []
    for folder in _folders(root / "class/infiniband"):
        for port in _folders(folder / "ports"):
            kind = "infiniband" if read(port / "link_layer") == "InfiniBand" else "roce"
            found.append(Port(folder.name, infiniband_rate(read(port / "rate")), kind, _bus_id(folder / "device")))
    for folder in _folders(root / "class/net"):
        if folder.name == "lo" or folder.name.startswith(("ifb", "docker", "br-", "virbr", "dummy", "bond")):
            continue
        bus_id, up = _bus_id(folder / "device"), read(folder / "operstate") in {"up", "unknown"}
        if bus_id is None and not up:
            continue
        megabits = read(folder / "speed")
        rate = int(megabits) * 1e6 / 8 if re.fullmatch(r"[1-9]\d{0,8}", megabits) else None
        limit = shaped.get(folder.name)
        if limit is not None:
            rate = min(limit, rate) if rate else limit
        found.append(Port(folder.name, rate, "ethernet" if bus_id else "virtual", bus_id))
    return found


def infiniband_rate(text: str) -> float | None:
    """Return the rate per direction of "400 Gb/sec (4X NDR)"; generation and width give the exact figure."""
    match = RATE.match(text)
    if match is None:
        return None
    gigabits, lanes, generation = match.groups()
    if generation in INFINIBAND_LANE_GBPS and lanes:
        return INFINIBAND_LANE_GBPS[generation] * int(lanes) * 1e9 / 8
    return float(gigabits) * 1e9 / 8 or None


def shaped_rates() -> dict[str, float]:
    """Return the rate in bytes per second of every interface that tbf or htb limits; none where netlink is closed."""
    from pyroute2 import IPRoute

    limits: dict[str, float] = {}
    try:
        with IPRoute() as netlink:
            names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in netlink.get_links()}
            for qdisc in netlink.get_qdiscs():
                options = qdisc.get_attr("TCA_OPTIONS")
                if qdisc.get_attr("TCA_KIND") == "tbf" and options is not None:
                    limits[names[qdisc["index"]]] = float(options.get_attr("TCA_TBF_PARMS")["rate"])
    except OSError:
        return {}
    return limits


def link_bytes_per_s(folder: Path) -> float | None:
    """Return the PCIe rate of a function at its widest: links sleep at a lower speed when idle."""
    best = pcie_bytes_per_s(read(folder / "max_link_speed"), read(folder / "max_link_width"))
    return best or pcie_bytes_per_s(read(folder / "current_link_speed"), read(folder / "current_link_width"))


def bridges(folder: Path) -> tuple[str, ...]:
    """Return the host bridge and the ports above a PCI function, from the path of its folder."""
    parts = folder.parts
    start = next((i for i, part in enumerate(parts) if re.fullmatch(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", part)), None)
    return parts[start:-1] if start is not None else ()


def read(path: Path) -> str:
    """Return the text of a small file, "" where it is missing or refuses to be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def numa_of(folder: Path) -> int | None:
    """Return the NUMA node of a PCI function; None where the firmware does not say (-1)."""
    text = read(folder / "numa_node")
    return int(text) if text.isdecimal() else None


def _placed(device: Device, folder: Path) -> Device:
    """Return the device with the NUMA node and the CPUs next to its PCI function."""
    return replace(device, numa=numa_of(folder), cpu_affinity=read(folder / "local_cpulist") or None)


def _bus_id(device: Path) -> str | None:
    """Return the PCI function that a class device hangs on, itself or above it (virtio)."""
    if not device.exists():
        return None
    return next((part for part in reversed(device.resolve().parts) if BUS_ID.fullmatch(part)), None)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_dir()) if folder.is_dir() else []
