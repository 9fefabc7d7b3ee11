"""GPUs and NICs of this machine from sysfs: their place in the PCI tree, NUMA node, link rate and port rate."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from ...hardware.arithmetic import infiniband_bytes_per_s
from ...hardware.pci import pci_kind, vendor_name
from ..cpumask import mask_cpus
from ..graph import Device
from ..pcipath import PciDevice, below_highest_speed, card_of, make_of, pcie_bytes_per_s
from .local import format_cores

SYS = Path("/sys")
BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
NOT_A_NIC = ("lo", "ifb", "docker", "br-", "virbr", "dummy", "bond", "sit", "tunl", "gre", "erspan", "ip6")
RATE = re.compile(r"([\d.]+)\s*Gb/sec(?:\s*\((\d+)X\s*(\w+)\))?")


@dataclass(frozen=True, slots=True)
class InterfaceState:
    """The state of a network interface by netlink: whether it is up, and the rate that shaping leaves it."""

    up: bool
    limit_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """A network port: its name, its rate per direction, what it is, and the PCI function below it."""

    name: str
    bytes_per_s: float | None
    kind: str  # "infiniband", "roce", "ethernet", "virtual"
    bus_id: str | None
    down: bool = False  # an InfiniBand or RoCE port without a link: its rate is none


def pci_functions(root: Path = SYS) -> dict[str, Path]:
    """Return the folder of every PCI function by bus id."""
    folder = root / "bus/pci/devices"
    return {path.name: path.resolve() for path in sorted(folder.glob("*"))} if folder.is_dir() else {}


def pci_gpus(root: Path = SYS) -> list[PciDevice]:
    """Return the accelerators on the PCI bus in bus order, as GPU0 and on; their model is what the bus says.

    Devices that NVIDIA's driver lists in /proc beside /sys are accelerators too, where a copy has no ids of vendors.
    """
    found: list[PciDevice] = []
    driven = _folders_by_name(root.parent / "proc/driver/nvidia/gpus")
    for bus_id, folder in pci_functions(root).items():
        vendor = read(folder / "vendor")
        listed = driven.get(bus_id)
        if listed is None and pci_kind(read(folder / "class"), vendor, read(folder / "device")) != "gpu":
            continue
        gpu = Device(id=f"GPU{len(found)}", kind="gpu", model="nvidia" if listed else vendor_name(vendor))
        device = _placed(replace(gpu, memory_numa=_memory_numa(listed)) if listed else gpu, folder)
        found.append(_below(device, folder, bus_id))
    return found


def driver_names(root: Path = SYS) -> dict[str, str]:
    """Return what NVIDIA's driver calls the GPUs that it lists in /proc beside /sys, by bus id."""
    told = {
        bus_id: re.search(r"^Model:\s*(\S.*?)\s*$", read(folder / "information"), re.M)
        for bus_id, folder in _folders_by_name(root.parent / "proc/driver/nvidia/gpus").items()
    }
    return {bus_id: name.group(1) for bus_id, name in told.items() if name}


def _memory_numa(listed: Path) -> int | None:
    """Return the NUMA node that a GPU's own memory is to the system, where its driver says (POWER9, Grace)."""
    status = read(listed / "numa_status")
    node = re.search(r"^Node:\s*(\d{1,5})$", status, re.M)
    return int(node.group(1)) if node and re.search(r"^Status:\s*online", status, re.M) else None


def gpu_memory_nodes(root: Path = SYS) -> set[int]:
    """Return the NUMA nodes that are the memory of GPUs, where their driver says so in /proc beside /sys."""
    nodes = {_memory_numa(folder) for folder in _folders_by_name(root.parent / "proc/driver/nvidia/gpus").values()}
    return {node for node in nodes if node is not None}


def _folders_by_name(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in _folders(folder)}


def pci_id(bus_id: str, root: Path = SYS) -> str:
    """Return vendor and device of a function, such as "10de:2330"."""
    folder = root / "bus/pci/devices" / bus_id
    return ":".join(read(folder / name).removeprefix("0x").lower() for name in ("vendor", "device"))


def sleeping(gpus: Sequence[PciDevice], root: Path = SYS) -> list[str]:
    """Return the GPUs whose link runs below the speed that their rate counts, as links do that are idle."""
    found = []
    for gpu in gpus:
        folder = root / "bus/pci/devices" / gpu.bus_id
        now = pcie_bytes_per_s(read(folder / "current_link_speed"), read(folder / "current_link_width"))
        if now and gpu.rate_bytes_per_s and now < 0.99 * gpu.rate_bytes_per_s:
            found.append(gpu.device.id)
    return found


def slowed(nics: Sequence[PciDevice], root: Path = SYS) -> list[str]:
    """Return a warning for each NIC whose link is trained below its highest speed; of a card the first port."""
    found: dict[str, str] = {}
    for nic in nics:
        folder = root / "bus/pci/devices" / nic.bus_id
        now, most = (read(folder / f"{which}_link_speed").partition(" ")[0] for which in ("current", "max"))
        of_port = read((folder.resolve().parent) / "max_link_speed").partition(" ")[0]
        lanes = read(folder / "current_link_width")
        if nic.bus_id and (said := below_highest_speed(nic.device.id, now, most, lanes, of_port)):
            found.setdefault(card_of(nic.bus_id), said)
    return list(found.values())


def nics(root: Path = SYS, interfaces: Mapping[str, InterfaceState] | None = None) -> list[PciDevice]:
    """Return the NICs: a PCI function with its ports, or a virtual interface that is up."""
    functions = pci_functions(root)
    by_function: dict[str, list[Port]] = {}
    alone = []
    for port in ports(root, interfaces):
        if port.bus_id in functions:
            by_function.setdefault(port.bus_id or "", []).append(port)
        elif port.kind == "virtual":
            alone.append(port)
    found = []
    for bus_id, mine in sorted(by_function.items()):
        folder, first = functions[bus_id], mine[0]
        rates = [port.bytes_per_s for port in mine if port.bytes_per_s]
        rate = max(rates, default=None)
        device = Device(
            id=first.name, kind="nic", model=first.kind, network_bandwidth_bytes_per_s=rate, card=card_of(bus_id)
        )
        found.append(_below(_placed(device, folder), folder, bus_id))
    for port in alone:
        device = Device(id=port.name, kind="nic", model=port.kind, network_bandwidth_bytes_per_s=port.bytes_per_s)
        found.append(PciDevice(device, (), None))
    return found


def without_link(root: Path = SYS) -> list[str]:
    """Return the InfiniBand and RoCE devices of which no port has a link, where another has one."""
    down: dict[str, bool] = {}
    for port in ports(root, {}):
        down[port.name] = down.get(port.name, True) and port.down
    return [name for name, is_down in down.items() if is_down and not all(down.values())]


def ports(root: Path, interfaces: Mapping[str, InterfaceState] | None) -> list[Port]:
    """Return InfiniBand ports first, then the network interfaces but loopback; shaping counts as the rate.

    `interfaces` are those of this network namespace: sysfs may still show another's. None: take what sysfs shows.
    """
    found = []
    for folder in _folders(root / "class/infiniband"):
        for port in _folders(folder / "ports"):
            kind = "infiniband" if read(port / "link_layer") == "InfiniBand" else "roce"
            down = read(port / "state").endswith("DOWN")  # "1: DOWN", beside "10 Gb/sec (4X SDR)"
            rate = None if down else infiniband_rate(read(port / "rate"))
            found.append(Port(folder.name, rate, kind, _bus_id(folder / "device"), down))
    shown = {folder.name: folder for folder in _folders(root / "class/net")}
    for name in sorted(shown if interfaces is None else interfaces):
        port_found = (
            None if name.startswith(NOT_A_NIC) else _interface(name, shown.get(name), (interfaces or {}).get(name))
        )
        if port_found is not None:
            found.append(port_found)
    return found


def _interface(name: str, folder: Path | None, known: InterfaceState | None) -> Port | None:
    """Return one network interface as a port; None for a virtual one that is down."""
    bus_id = _bus_id(folder / "device") if folder else None
    up = known.up if known else folder is not None and read(folder / "operstate") in {"up", "unknown"}
    if bus_id is None and not up:
        return None
    megabits = read(folder / "speed") if folder else ""
    rate = int(megabits) * 1e6 / 8 if re.fullmatch(r"[1-9]\d{0,8}", megabits) else None
    if known and known.limit_bytes_per_s is not None:
        rate = min(known.limit_bytes_per_s, rate) if rate else known.limit_bytes_per_s
    return Port(name, rate, "ethernet" if bus_id else "virtual", bus_id)


def infiniband_rate(text: str) -> float | None:
    """Return the rate per direction of "400 Gb/sec (4X NDR)"; generation and width give the exact figure."""
    match = RATE.match(text)
    if match is None:
        return None
    gigabits, lanes, generation = match.groups()
    exact = infiniband_bytes_per_s(generation, int(lanes)) if generation and lanes else None
    return exact or float(gigabits) * 1e9 / 8 or None


def network_interfaces() -> dict[str, InterfaceState] | None:
    """Return the interfaces of this network namespace with the rate that tbf leaves them; None without netlink."""
    from pyroute2 import IPRoute

    try:
        with IPRoute() as netlink:
            limits = {
                qdisc["index"]: float(options.get_attr("TCA_TBF_PARMS")["rate"])
                for qdisc in netlink.get_qdiscs()
                if qdisc.get_attr("TCA_KIND") == "tbf" and (options := qdisc.get_attr("TCA_OPTIONS")) is not None
            }
            return {
                link.get_attr("IFLA_IFNAME"): InterfaceState(
                    up=link.get_attr("IFLA_OPERSTATE") in {"UP", "UNKNOWN"}, limit_bytes_per_s=limits.get(link["index"])
                )
                for link in netlink.get_links()
            }
    except OSError:
        return None


def network_bytes_per_s(root: Path = SYS) -> float | None:
    """Return what this machine's NICs carry together in one direction: those of InfiniBand or RoCE where it has any.

    Otherwise its Ethernet cards, or in a container or an emulated node its virtual interfaces. None where no rate is
    known.
    """
    cards = [card.device for card in nics(root, network_interfaces() if root == SYS else None)]
    for kinds in (("infiniband", "roce"), ("ethernet",), ("virtual",)):
        if rate := sum(card.network_bandwidth_bytes_per_s or 0.0 for card in cards if card.model in kinds):
            return rate
    return None


def link_bytes_per_s(folder: Path, *, may_idle: bool) -> float | None:
    """Return the PCIe rate of a function: the lanes that are trained, at the highest speed of a link that may idle.

    GPUs' links sleep at a lower speed when idle, so that theirs is an upper bound; others stay at the trained speed.
    """
    names = ("max_link_speed", "current_link_speed")
    speeds = [read(folder / name) for name in (names if may_idle else reversed(names))]
    widths = [read(folder / name) for name in ("current_link_width", "max_link_width")]
    width = next((w for w in widths if w.isdecimal() and int(w)), "")
    return next((rate for speed in speeds if (rate := pcie_bytes_per_s(speed, width))), None)


def _below(device: Device, folder: Path, bus_id: str) -> PciDevice:
    """Return a device with the ports above it and the rates of their links."""
    ports = [parent for parent in folder.parents if BUS_ID.fullmatch(parent.name)]
    may_idle = device.kind == "gpu"
    above = (None, *(link_bytes_per_s(port, may_idle=may_idle) for port in reversed(ports)))
    names = bridges(folder)
    make = make_of(*(read(folder / name) for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")))
    return PciDevice(device, names, link_bytes_per_s(folder, may_idle=may_idle), bus_id, above[: len(names)], make)


def bridges(folder: Path) -> tuple[str, ...]:
    """Return the host bridge and the ports above a PCI function, from the path of its folder."""
    parts = folder.parts
    start = next((i for i, part in enumerate(parts) if re.fullmatch(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", part)), None)
    return parts[start:-1] if start is not None else ()


def read(path: Path) -> str:
    """Return the text of a small file, "" where it is missing or refuses to be read; some kernels end it with a NUL."""
    try:
        return path.read_text().strip("\0 \t\r\n")
    except (OSError, UnicodeDecodeError):
        return ""


def numa_of(folder: Path) -> int | None:
    """Return the NUMA node of a PCI function; None where the firmware does not say (-1)."""
    text = read(folder / "numa_node")
    return int(text) if text.isdecimal() else None


def _placed(device: Device, folder: Path) -> Device:
    """Return the device with the NUMA node and the CPUs next to its PCI function."""
    listed = read(folder / "local_cpulist") or format_cores(mask_cpus(read(folder / "local_cpus")))
    return replace(device, numa=numa_of(folder), cpu_affinity=listed or None)


def _bus_id(device: Path) -> str | None:
    """Return the PCI function that a class device hangs on, itself or above it (virtio)."""
    if not device.exists():
        return None
    return next((part for part in reversed(device.resolve().parts) if BUS_ID.fullmatch(part)), None)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_dir()) if folder.is_dir() else []
