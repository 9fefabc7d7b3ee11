"""`lspci -vvnn` into a Cluster: the PCI tree by bus numbers, with the lanes that are trained and NUMA nodes.

Without `-nn` classes and vendors are known by their names in the PCI ID database.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from ...errors import InputError
from ...hardware import Catalogue
from ...hardware.pci import WHAT_IS_SOUGHT, is_graphics, pci_kind
from ...units import first_few
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device, Link
from ..pcipath import (
    PciDevice,
    below_highest_speed,
    card_of,
    host_links,
    pci_links,
    pcie_bytes_per_s,
    tree_alone_warnings,
    upper_bound_warnings,
)
from .evidence import lanes_trained
from .lspci_acs import ACS, ATS, redirected, redirects
from .pasted import plain_lines

FUNCTION = re.compile(
    r"^(?:([0-9a-f]{4}):)?([0-9a-f]{2}):([0-9a-f]{2}\.[0-7]) .*?\[([0-9a-f]{4})\]: (.*)\[([0-9a-f]{4}):([0-9a-f]{4})\]"
)
# the same without -nn: "18:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)"
NAMED = re.compile(
    r"^(?:([0-9a-f]{4}):)?([0-9a-f]{2}):([0-9a-f]{2}\.[0-7]) ([0-9A-Z][^:]*?): (\S.*?)(?: \((?:rev|prog-if).*)?$"
)
PLACE = re.compile(r"^(?:([0-9a-f]{4}):)?([0-9a-f]{2}):([0-9a-f]{2}\.[0-7])\b")
HOST_BRIDGE = "0600"
CLASSES = {
    "VGA compatible controller": "0300", "3D controller": "0302", "Display controller": "0380",
    "Processing accelerators": "1200", "Ethernet controller": "0200", "Infiniband controller": "0207",
    "Network controller": "0280", "PCI bridge": "0604", "Host bridge": "0600",
}  # fmt: skip
BUSES = re.compile(r"^\s+Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2})")
NUMA = re.compile(r"^\s+NUMA node: (\d{1,5})")
# what tells a network card, and what of a maker of accelerators or cards is neither
CARDS = re.compile(
    r"ConnectX|BlueField|InfiniBand|Ethernet|NetXtreme|Elastic Fabric|Omni-Path|Pensando|Cassini|Virtio network", re.I
)
NO_CARD = re.compile(r"Audio|USB|UCSI|Serial|NVSwitch|bridge|DMA|management|Crypto|Co-processor|NVMe|switch", re.I)
CHIP = re.compile(r"\bG[A-Z]{1,2}\d{2,3}\w* \[|\[(?:Tesla|GeForce|Quadro|TITAN|RTX|[ABHL]\d{2,3})")
PORT = re.compile(r"^\s+Capabilities: .*Express \(v\d\) (Root|Upstream|Downstream) Port")
LINK = re.compile(r"^\s+Lnk(Cap|Sta):.*?Speed ([\d.]+) ?GT/s.*?, Width x(\d{1,2})")


@dataclass(slots=True)
class Function:
    """One function on the bus, as far as a listing says it."""

    domain: str
    bus: str
    slot: str
    pci_class: str
    name: str
    vendor: str
    device: str
    secondary: str | None = None  # of a bridge: the bus below it
    numa: int | None = None
    kind: Literal["gpu", "nic"] | None = None
    port: str = ""  # of a bridge: Root, Upstream or Downstream, where it is said
    links: dict[str, tuple[str, str]] = field(default_factory=dict)  # Cap and Sta: GT/s and lanes
    acs: str = ""  # the flags of its access control, as they are set
    ats: bool = False  # whether it asks the IOMMU for translations, and sends translated addresses

    @property
    def bus_id(self) -> str:
        """Where it sits, as sysfs writes it."""
        return f"{self.domain}:{self.bus}:{self.slot}"

    def rate_bytes_per_s(self, *, may_idle: bool) -> float | None:
        """Return the rate of the trained lanes: at the highest speed of a link that may idle, else at the trained."""
        (most, _), (speed, lanes) = (self.links.get(key) or ("", "") for key in ("Cap", "Sta"))
        speed = most if may_idle else speed
        return pcie_bytes_per_s(f"{speed} GT/s", lanes) if speed and lanes != "0" else None


def looks_like_lspci(text: str) -> bool:
    """Return whether a text is of lspci with numbers, links and buses."""
    head = _head(text)
    listed = re.search(FUNCTION.pattern, head, re.M) or re.search(NAMED.pattern, head, re.M)
    return listed is not None and re.search(LINK.pattern, head, re.M) is not None


def _head(text: str) -> str:
    """Return the beginning of a text that may be lspci's, without what launchers put before its lines; else ""."""
    head = text[:200_000]
    return "\n".join(line.text for line in plain_lines(head)) if "LnkSta:" in head or "LnkCap:" in head else ""


def looks_like_lspci_links(text: str) -> bool:
    """Return whether a text has places on the bus and links of lspci -vv, and of no function the name."""
    head = _head(text)
    return re.search(PLACE.pattern, head, re.M) is not None and re.search(LINK.pattern, head, re.M) is not None


def from_lspci_links(text: str, where: str) -> Cluster:
    """Return no devices, since which these are is not said, and a warning for what each PCIe link runs at."""
    said = []
    for function in _functions(text):
        if not {"Cap", "Sta"} <= function.links.keys():
            continue
        (most, wide), (speed, lanes) = function.links["Cap"], function.links["Sta"]
        now, full = (pcie_bytes_per_s(f"{s} GT/s", n) for s, n in ((speed, lanes), (most, wide)))
        if not now or not full or now >= full:
            continue
        idle = " (a lower speed may be that of an idle link)" if lanes == wide else ""
        said.append(
            f"{function.bus}:{function.slot} runs at {speed} GT/s x{lanes} ({now / 1e9:.3g} GB/s) of {most} GT/s "
            f"x{wide} ({full / 1e9:.3g} GB/s){idle}"
        )
    return Cluster(name=where, warnings=(*said, "which devices these PCIe links are of is not said: lspci -vvnn does"))


def from_lspci(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the accelerators and network cards with the paths between them."""
    functions = _functions(text)
    open_names = []
    for function in functions:
        if function.device:
            function.kind = pci_kind(function.pci_class, function.vendor, function.device)
        else:
            function.kind = kind_by_name(function.name, catalogue, function.pci_class)
            if function.kind is None and is_graphics(function.pci_class) and not _is_console(function.name):
                open_names.append(f"{function.bus}:{function.slot} {function.name}")
    cluster = assembled(functions, where, catalogue, gpu, roots=_root_buses(functions))
    said = [f"whether {', '.join(open_names[:3])} is an accelerator its name does not say; lspci -vvnn does"]
    said = said if open_names else []
    if any(link.kind == "SYS" for link in cluster.links) and not any(f.numa is not None for f in functions):
        said.append("the list does not say NUMA nodes: SYS may be NODE")
    return replace(cluster, warnings=(*cluster.warnings, *_above_nothing(functions), *said))


def _root_buses(functions: Sequence[Function]) -> set[str]:
    """Return the buses ("0000:00") that a list shows to begin at the CPU: with a host bridge or a root port on them."""
    return {
        f"{function.domain}:{function.bus}"
        for function in functions
        if function.bus == "00" or function.pci_class == HOST_BRIDGE or function.port == "Root"
    }


def _above_nothing(functions: Sequence[Function]) -> list[str]:
    """Return that bridges redirect peer traffic of which the list does not say what is below them."""
    bridges = [f for f in functions if f.pci_class == CLASSES["PCI bridge"] and f.secondary is None]
    redirecting = [f.bus_id for f in bridges if redirects(f.acs)]
    if not redirecting:
        return []
    return [
        f"ACS redirects peer traffic at {first_few(redirecting, 4)}; what is below is not said (Bus: secondary=): of a "
        "port of the CPU it changes little, of a switch it sends what goes between GPUs up to the CPU"
    ]


def assembled(
    functions: Sequence[Function], where: str, catalogue: Catalogue, gpu: str | None, roots: set[str] | None = None
) -> Cluster:
    """Return the accelerators and network cards among the functions, below the bridges among them.

    `roots` are the buses that begin at a CPU; None where the list is known to be whole. Of devices whose way up ends
    before one, only NUMA nodes tell whether a path crosses the sockets.
    """
    bridges = {(f.domain, f.secondary or ""): f for f in functions if f.secondary is not None}
    items: list[PciDevice] = []
    for function in functions:
        kind = function.kind
        if kind is not None and function.secondary is None:
            number = sum(1 for item in items if item.device.kind == kind)
            device = Device(
                id=f"{kind.upper()}{number}",
                kind=kind,
                model=function.name if kind == "nic" else "",
                numa=function.numa,
            )
            if kind == "gpu":
                by_id = f"{function.vendor}:{function.device}"
                found = catalogue.by_pci_id(by_id) if function.device else catalogue.driver_key(function.name)
                name = gpu or found
                if name:  # NVLink and xGMI are never in such a list: that none is shown says nothing
                    device = replace(with_catalogue(device, name, catalogue), own_links=None)
            items.append(_place(function, device, bridges, where))
    links, cut = _of_known_ways(pci_links(items), items, roots)
    numas = sorted({item.device.numa for item in items if item.device.numa is not None})
    cpus = [Device(id=f"CPU{n}", kind="cpu", numa=n) for n in numas]
    asleep = [
        item.device.id
        for item, function in ((i, f) for i in items for f in functions if f.bus_id == i.bus_id)
        if item.device.kind == "gpu" and function.links.get("Cap", ("",))[0] != function.links.get("Sta", ("",))[0]
    ]
    warnings = [*upper_bound_warnings(links), *_narrow(items, functions), *_slowed(items, functions, bridges)]
    warnings += _slow_uplinks(items, functions, bridges)
    by_place = {function.bus_id: function for function in functions}
    warnings += redirected([(item.device.id, by_place[item.bus_id].ats, _ports(item, by_place)) for item in items])
    if asleep:
        said = "the PCIe link runs below its highest speed, as idle links do; its rate is an upper bound"
        warnings.insert(0, f"{', '.join(asleep)}: {said}")
    warnings += tree_alone_warnings([item.device for item in items if item.device.kind == "gpu"])
    warnings += cut
    if len(items) > 1:
        warnings.append(", ".join(f"{item.device.id} is {item.bus_id}" for item in items))
    if not any(item.device.kind == "gpu" for item in items):
        warnings.append(f"no accelerator found: looked for {WHAT_IS_SOUGHT}")
    return Cluster(
        name=where,
        devices=(*cpus, *sorted((i.device for i in items), key=lambda d: d.kind != "gpu")),
        links=(*links, *host_links(items, cpus)),
        warnings=tuple(warnings),
    )


def _of_known_ways(
    links: Sequence[Link], items: Sequence[PciDevice], roots: set[str] | None
) -> tuple[list[Link], list[str]]:
    """Return the links, those between devices whose way up ends before a CPU as PCIe alone, and what is said of it."""
    if roots is None:
        return list(links), []
    numa = {item.device.id: item.device.numa for item in items}
    open_ways = {item.device.id for item in items if item.bridges[0] not in roots}
    found, cut = list[Link](), dict[str, None]()
    for link in links:
        apart = None not in (numa[link.a], numa[link.b]) and numa[link.a] != numa[link.b]
        if link.kind in {"SYS", "NODE"} and not apart and {link.a, link.b} & open_ways:
            cut.update(dict.fromkeys(device for device in (link.a, link.b) if device in open_ways))
            link = replace(link, kind="PCIe")
        found.append(link)
    said = (
        f"the bridges above {', '.join(cut)} are not in the list: over which switches, CPUs or sockets they meet is "
        "not known; the whole of lspci -vvnn, or nvidia-smi topo -m, says it"
    )
    return found, [said] if cut else []


def _ports(item: PciDevice, by_place: Mapping[str, Function]) -> list[tuple[str, str]]:
    """Return the ports of switches above a device, with the flags of their access control."""
    above = [by_place[place] for place in item.bridges if place in by_place]
    return [(bridge.bus_id, bridge.acs) for bridge in above if bridge.port != "Root"]


def _narrow(items: Sequence[PciDevice], functions: Sequence[Function]) -> list[str]:
    """Name the devices on fewer lanes than they have; of the ports of a card, which share its lanes, the first."""
    by_place = {function.bus_id: function for function in functions}
    found: dict[str, str] = {}
    for item in items:
        function = by_place[item.bus_id]
        most, now = ((function.links.get(key) or ("", ""))[1] for key in ("Cap", "Sta"))
        if most.isdecimal() and now.isdecimal() and 0 < int(now) < int(most):
            found.setdefault(card_of(item.bus_id), lanes_trained(item.device.id, now, most))
    return list(found.values())


def _slowed(
    items: Sequence[PciDevice], functions: Sequence[Function], bridges: Mapping[tuple[str, str], Function]
) -> list[str]:
    """Name the NICs whose link runs below its highest speed; of a card the first port."""
    by_place = {function.bus_id: function for function in functions}
    found: dict[str, str] = {}
    for item in items:
        function = by_place[item.bus_id]
        (most, _), (speed, lanes) = (function.links.get(key) or ("", "") for key in ("Cap", "Sta"))
        if item.device.kind != "nic" or lanes == "0":
            continue
        port = bridges.get((function.domain, function.bus))
        of_port = (port.links.get("Cap") or ("", ""))[0] if port else ""
        if said := below_highest_speed(item.device.id, speed, most, lanes, of_port):
            found.setdefault(card_of(item.bus_id), said)
    return list(found.values())


def _slow_uplinks(
    items: Sequence[PciDevice], functions: Sequence[Function], bridges: Mapping[tuple[str, str], Function]
) -> list[str]:
    """Name the switches whose link upwards has fewer lanes than both ends, or is slower and has NICs below.

    Switches inside a GPU's card have none, and may slow that link down when idle.
    """
    found = []
    for switch in (function for function in functions if function.port == "Upstream"):
        below = [item.device for item in items if switch.bus_id in item.bridges]
        above = bridges.get((switch.domain, switch.bus))
        ends = [function.links["Cap"] for function in (switch, above) if function and "Cap" in function.links]
        speed, lanes = switch.links.get("Sta") or ("", "0")
        by_speed = [(pcie_bytes_per_s(f"{s} GT/s", "1") or 0.0, s) for s, _ in [*ends, (speed, "")]]
        if not below or not ends or lanes == "0" or not all(rate for rate, _ in by_speed):
            continue
        (most_rate, most), wide = min(by_speed[:-1]), min(int(n) for _, n in ends)
        is_slow = by_speed[-1][0] < most_rate and any(device.kind == "nic" for device in below)
        if is_slow or int(lanes) < wide:
            now, full = by_speed[-1][0] * int(lanes), most_rate * wide
            found.append(
                f"the switch {switch.bus_id} ({', '.join(device.id for device in below)}) is linked upwards at {speed} "
                f"GT/s x{lanes} of {most} GT/s x{wide} ({now / 1e9:.3g} GB/s of {full / 1e9:.3g})"
            )
    return found


def kind_by_name(name: str, catalogue: Catalogue, pci_class: str = "") -> Literal["gpu", "nic"] | None:
    """Return what a function is by its name, and its class where that is said."""
    if pci_class.startswith("02") or (not pci_class and CARDS.search(name) and not NO_CARD.search(name)):
        return "nic"
    if (pci_class and not is_graphics(pci_class)) or NO_CARD.search(name):
        return None
    is_chip = name.startswith("NVIDIA Corporation") and (pci_class or CHIP.search(name))
    return "gpu" if is_chip or catalogue.driver_key(name) is not None else None


def _is_console(name: str) -> bool:
    return (
        re.search(r"ASPEED|Matrox|Cirrus|VMware|QXL|virtio|Red Hat|Integrated|UHD|Iris|Graphics \[", name, re.I)
        is not None
    )


def _functions(text: str) -> list[Function]:
    functions: list[Function] = []
    for line in (plain.text for plain in plain_lines(text)):
        if match := FUNCTION.match(line):
            domain, bus, slot, pci_class, name, vendor, device = match.groups()
            functions.append(Function(domain or "0000", bus, slot, pci_class, name.strip(), vendor, device))
        elif match := NAMED.match(line):
            domain, bus, slot, pci_class, name = match.groups()
            functions.append(Function(domain or "0000", bus, slot, CLASSES.get(pci_class, "ff"), name, "", ""))
        elif match := PLACE.match(line):  # what is said below it is of no other function
            domain, bus, slot = match.groups()
            functions.append(Function(domain or "0000", bus, slot, "ff", line[match.end() :].strip(), "", ""))
        elif functions and (match := BUSES.match(line)):
            functions[-1].secondary = match.group(2)
        elif functions and (match := PORT.match(line)):
            functions[-1].port = match.group(1)
        elif functions and (match := NUMA.match(line)):
            functions[-1].numa = int(match.group(1))
        elif functions and (match := LINK.match(line)):
            functions[-1].links.setdefault(match.group(1), (match.group(2), match.group(3)))
        elif functions and (match := ACS.match(line)):
            functions[-1].acs = match.group(1)
        elif functions and ATS.match(line):
            functions[-1].ats = True
    return functions


def _place(function: Function, device: Device, bridges: dict[tuple[str, str], Function], where: str) -> PciDevice:
    """Return a device with the bridges above it, found by the number of the bus that each has below it."""
    above: list[Function] = []
    bus = function.bus
    while (bridge := bridges.get((function.domain, bus))) is not None:
        if bridge in above:
            raise InputError(f"{where}: bus {bus} is below itself")
        above.insert(0, bridge)
        bus = bridge.bus
    # a downstream port is on no root bus: the switch's upstream port was left out, and this bus is inside the switch
    outer = (f"{function.domain}:above {bus}",) if above and above[0].port == "Downstream" else ()
    names = (*outer, f"{function.domain}:{bus}", *(bridge.bus_id for bridge in above))
    may_idle = device.kind == "gpu"
    rates = (*(None for _ in outer), None, *(bridge.rate_bytes_per_s(may_idle=may_idle) for bridge in above))
    return PciDevice(device, names, function.rate_bytes_per_s(may_idle=may_idle), function.bus_id, rates)
