"""`lspci -vvnn` into a Cluster: the PCI tree by bus numbers, with the lanes that are trained and NUMA nodes."""

import re
from dataclasses import dataclass, field

from ...errors import InputError
from ...hardware import Catalogue
from ...hardware.pci import WHAT_IS_SOUGHT, pci_kind
from ..described import with_catalogue
from ..graph import Cluster, Device
from ..pcipath import PciDevice, host_links, pci_links, pcie_bytes_per_s, upper_bound_warnings
from .pasted import plain_lines

FUNCTION = re.compile(
    r"^(?:([0-9a-f]{4}):)?([0-9a-f]{2}):([0-9a-f]{2}\.[0-7]) .*?\[([0-9a-f]{4})\]: (.*)\[([0-9a-f]{4}):([0-9a-f]{4})\]"
)
BUSES = re.compile(r"^\s+Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2})")
NUMA = re.compile(r"^\s+NUMA node: (\d{1,5})")
LINK = re.compile(r"^\s+Lnk(Cap|Sta):.*?Speed ([\d.]+) ?GT/s.*?, Width x(\d{1,2})")


@dataclass(slots=True)
class _Function:
    domain: str
    bus: str
    slot: str
    pci_class: str
    name: str
    vendor: str
    device: str
    secondary: str | None = None  # of a bridge: the bus below it
    numa: int | None = None
    links: dict[str, tuple[str, str]] = field(default_factory=dict)  # Cap and Sta: GT/s and lanes

    @property
    def bus_id(self) -> str:
        """Where it sits, as sysfs writes it."""
        return f"{self.domain}:{self.bus}:{self.slot}"

    @property
    def rate_bytes_per_s(self) -> float | None:
        """The trained lanes at the highest speed of the function."""
        speed, lanes = (self.links.get("Cap") or ("", ""))[0], (self.links.get("Sta") or ("", ""))[1]
        return pcie_bytes_per_s(f"{speed} GT/s", lanes) if speed and lanes != "0" else None


def looks_like_lspci(text: str) -> bool:
    """Return whether a text is of lspci with numbers, links and buses."""
    head = text[:200_000]
    return re.search(FUNCTION.pattern, head, re.M) is not None and re.search(LINK.pattern, head, re.M) is not None


def from_lspci(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the accelerators and network cards with the paths between them."""
    functions = _functions(text)
    bridges = {(f.domain, f.secondary or ""): f for f in functions if f.secondary is not None}
    items: list[PciDevice] = []
    for function in functions:
        kind = pci_kind(function.pci_class, function.vendor, function.device)
        if kind is not None and function.secondary is None:
            number = sum(1 for item in items if item.device.kind == kind)
            device = Device(
                id=f"{kind.upper()}{number}",
                kind=kind,
                model=function.name if kind == "nic" else "",
                numa=function.numa,
            )
            if kind == "gpu":
                name = gpu or catalogue.by_pci_id(f"{function.vendor}:{function.device}")
                device = with_catalogue(device, name, catalogue) if name else device
            items.append(_place(function, device, bridges, where))
    links = pci_links(items)
    numas = sorted({item.device.numa for item in items if item.device.numa is not None})
    cpus = [Device(id=f"CPU{n}", kind="cpu", numa=n) for n in numas]
    asleep = [
        item.device.id
        for item, function in ((i, f) for i in items for f in functions if f.bus_id == i.bus_id)
        if item.device.kind == "gpu" and function.links.get("Cap", ("",))[0] != function.links.get("Sta", ("",))[0]
    ]
    warnings = upper_bound_warnings(links)
    if asleep:
        said = "the PCIe link runs below its highest speed, as idle links do; its rate is an upper bound"
        warnings.insert(0, f"{', '.join(asleep)}: {said}")
    if not any(item.device.kind == "gpu" for item in items):
        warnings.append(f"no accelerator found: looked for {WHAT_IS_SOUGHT}")
    return Cluster(
        name=where,
        devices=(*cpus, *sorted((i.device for i in items), key=lambda d: d.kind != "gpu")),
        links=(*links, *host_links(items, cpus)),
        warnings=tuple(warnings),
    )


def _functions(text: str) -> list[_Function]:
    functions: list[_Function] = []
    for line in (plain.text for plain in plain_lines(text)):
        if match := FUNCTION.match(line):
            domain, bus, slot, pci_class, name, vendor, device = match.groups()
            functions.append(_Function(domain or "0000", bus, slot, pci_class, name.strip(), vendor, device))
        elif functions and (match := BUSES.match(line)):
            functions[-1].secondary = match.group(2)
        elif functions and (match := NUMA.match(line)):
            functions[-1].numa = int(match.group(1))
        elif functions and (match := LINK.match(line)):
            functions[-1].links.setdefault(match.group(1), (match.group(2), match.group(3)))
    return functions


def _place(function: _Function, device: Device, bridges: dict[tuple[str, str], _Function], where: str) -> PciDevice:
    """Return a device with the bridges above it, found by the number of the bus that each has below it."""
    above: list[_Function] = []
    bus = function.bus
    while (bridge := bridges.get((function.domain, bus))) is not None:
        if bridge in above:
            raise InputError(f"{where}: bus {bus} is below itself")
        above.insert(0, bridge)
        bus = bridge.bus
    names = (f"{function.domain}:{bus}", *(bridge.bus_id for bridge in above))
    rates = (None, *(bridge.rate_bytes_per_s for bridge in above))
    return PciDevice(device, names, function.rate_bytes_per_s, function.bus_id, rates)
