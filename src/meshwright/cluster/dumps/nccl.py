"""NCCL's and RCCL's topology XML into a Cluster: CPUs, the PCI tree, GPUs with NVLink or xGMI, NICs with speeds.

Read are dumps (NCCL_TOPO_DUMP_FILE), in which gpu and net elements stand, the dumps of several hosts of one NVLink
domain fused into one (told apart by host_hash), and the files that clouds ship as NCCL_TOPO_FILE, in which the PCI
class alone says what a device is. A pci element without a device is a whole switch.
"""

import dataclasses
from dataclasses import dataclass, field

from msgspec.structs import replace

from ...errors import InputError
from ...hardware import Catalogue
from ...hardware.pci import WHAT_IS_SOUGHT, is_graphics, pci_kind, vendor_name
from ..catalogue_devices import with_catalogue
from ..cpumask import mask_cpus
from ..discovery.local import format_cores
from ..graph import Cluster, Device, Host, Link
from ..pcipath import (
    PciDevice,
    card_of,
    crowded_cards,
    host_links,
    make_of,
    narrower_than_their_make,
    pci_links,
    pcie_bytes_per_s,
    too_fast,
    tree_alone_warnings,
    upper_bound_warnings,
)
from .nccl_links import (
    GpuLinks,
    accelerator_key,
    c2c_links,
    gpu_of,
    link_rate,
    links_between_gpus,
    links_down,
    links_to_nothing,
    without_gpudirect,
)
from .xml import Element, whole_number

_MAKE = ("vendor", "device", "subsystem_vendor", "subsystem_device")
_ANSWERS = {"0": False, "1": True}


@dataclass(slots=True)
class _Found:
    """The parts of one host."""

    cpus: list[Device] = field(default_factory=list)
    devices: list[PciDevice] = field(default_factory=list)
    gpus: list[GpuLinks] = field(default_factory=list)
    at_cpu: dict[str, str] = field(default_factory=dict)  # GPU to its CPU
    gpudirect: dict[str, bool] = field(default_factory=dict)  # of the NICs of which the file says it


def from_nccl(root: Element, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster that the file describes; `gpu` overrides the accelerator that it implies."""
    elements = root.named("cpu")
    if not elements:
        raise InputError(f"{where}: no cpu inside system, expected the XML that NCCL_TOPO_DUMP_FILE writes")
    by_host: dict[str, list[Element]] = {}
    for element in elements:
        by_host.setdefault(element.attributes.get("host_hash", ""), []).append(element)
    names = [f"node{i}" for i in range(len(by_host))] if len(by_host) > 1 else [""]
    hosts = [_read(cpus, name, root, where) for name, cpus in zip(names, by_host.values(), strict=True)]
    gpus = [gpu_found for host in hosts for gpu_found in host.gpus]
    keys = {g.id: accelerator_key(g, catalogue, gpu) for g in gpus}
    rates, warnings = link_rate(gpus, keys, catalogue)
    warnings += [*links_to_nothing(gpus), *links_down(gpus, keys, catalogue)]
    if gpus:
        warnings += without_gpudirect([nic for host in hosts for nic in host.gpudirect.items()])
    own = links_between_gpus(gpus, rates, keys, catalogue)
    joined = {frozenset((link.a, link.b)) for link in own}
    pci, to_host = list[Link](), list[Link]()
    for host in hosts:
        pci += [k for k in pci_links(host.devices, whole_switches=True) if frozenset((k.a, k.b)) not in joined]
        better = c2c_links(host.gpus, host.at_cpu, rates)
        near = {link.a for link in better}
        to_host += [*better, *(link for link in host_links(host.devices, host.cpus) if link.a not in near)]
        nics = [d for d in host.devices if d.device.kind == "nic"]
        warnings += [*too_fast(nics), *crowded_cards(nics), *narrower_than_their_make(nics)]
    devices = [d for name, host in zip(names, hosts, strict=True) for d in _devices(host, keys, catalogue)]
    if not any(element.name == "gpu" for element in root.walk()):
        warnings += tree_alone_warnings([d for d in devices if d.kind == "gpu"])
    if not gpus:
        warnings.append(f"no accelerator found: looked for gpu elements and {WHAT_IS_SOUGHT}")
    return Cluster(
        name=where,
        hosts=tuple(h for name, host in zip(names, hosts, strict=True) for h in _host(name or where, host)),
        devices=tuple(devices),
        links=(*own, *pci, *to_host),
        warnings=(*dict.fromkeys(warnings), *upper_bound_warnings(pci)),
    )


def _read(cpus: list[Element], host: str, root: Element, where: str) -> _Found:
    found = _Found()
    by_class = {
        "gpu": not any(element.name == "gpu" for element in root.walk()),
        "nic": not any(element.name == "net" for element in root.walk()),
    }
    for element in cpus:
        _cpu(element, found, host, by_class, where)
    ids = [d.device.id for d in found.devices]
    twice = next((i for i in ids if ids.count(i) > 1), None)
    if twice is not None:
        raise InputError(f"{where}: two devices of the same number: {twice}")
    return found


def _host(name: str, found: _Found) -> list[Host]:
    """Return the host, where the affinity of every CPU says how many cores it has."""
    cores = [cpu.cores for cpu in found.cpus]
    if not all(cores):
        return []
    return [Host(name=name, cores=sum(filter(None, cores)), memory_bytes=0, numa_nodes=len(cores))]


def _devices(host: _Found, keys: dict[str, str], catalogue: Catalogue) -> list[Device]:
    absurd = {warning.split(":")[0] for warning in too_fast([d for d in host.devices if d.device.kind == "nic"])}
    devices = []
    for item in host.devices:
        device = item.device
        if device.id in absurd:
            device = replace(device, network_bandwidth_bytes_per_s=None)
        elif keys.get(device.id):
            device = with_catalogue(device, keys[device.id], catalogue)
        devices.append(device)
    return [*host.cpus, *sorted(devices, key=lambda d: (d.kind != "gpu", len(d.id), d.id))]


def _cpu(element: Element, found: _Found, host: str, by_class: dict[str, bool], where: str) -> None:
    numa = whole_number(element, "numaid", where, minimum=-1)
    affinity = mask_cpus(element.attributes.get("affinity", ""))
    cpu = Device(
        id=_id(host, f"CPU{max(numa, 0)}"),
        kind="cpu",
        node=host,
        numa=numa if numa >= 0 else None,
        cores=len(affinity) or None,
        cpu_affinity=format_cores(affinity) or None,
    )
    if all(known.id != cpu.id for known in found.cpus):
        found.cpus.append(cpu)
    walk = _Walk(found, cpu, host, by_class, where)
    for child in element.named("pci", "nic"):
        walk.down(child, PciDevice(cpu, (cpu.id,), None, above=(None,)))


def _id(host: str, name: str) -> str:
    return f"{host}/{name}" if host else name


@dataclass(frozen=True, slots=True)
class _Walk:
    """The way down the PCI tree below one CPU."""

    found: _Found
    cpu: Device
    host: str
    by_class: dict[str, bool]
    where: str

    def down(self, element: Element, place: PciDevice) -> None:
        """Take in the devices of an element and go on below it; `place` says what is above."""
        attributes = element.attributes
        rate, bus = place.rate_bytes_per_s, place.bus_id
        if element.name == "pci":
            width = attributes.get("link_width", "")
            # a virtual machine does not know the width; NCCL takes 16 lanes (src/graph/topo.cc)
            rate = pcie_bytes_per_s(attributes.get("link_speed", ""), "16" if width == "0" else width)
            bus = attributes.get("busid", "").lower()
        here = dataclasses.replace(place, rate_bytes_per_s=rate, bus_id=bus)
        self._gpus(element, here)
        self._nets(element, here)
        inside = element.named("pci")
        if not inside and element.name == "pci":
            self._by_class(element, here)
        if inside and not bus:
            raise InputError(f"{self.where}:{element.line}: pci without busid")
        below = dataclasses.replace(place, bridges=(*place.bridges, bus), above=(*place.above, rate))
        for child in inside:
            self.down(child, below)

    def _gpus(self, element: Element, here: PciDevice) -> None:
        for inside in element.named("gpu"):
            self._add_gpu(f"GPU{whole_number(inside, 'dev', self.where)}", element, inside, here)

    def _nets(self, element: Element, here: PciDevice) -> None:
        for net in [n for holder in (element, *element.named("nic")) for n in holder.named("net")]:
            name = net.attributes.get("name") or f"NIC{whole_number(net, 'dev', self.where)}"
            megabits = whole_number(net, "speed", self.where)
            rate = megabits * 1e6 / 8 or None
            device = self._device(name, "nic", network_bandwidth_bytes_per_s=rate, card=card_of(here.bus_id))
            make = make_of(*(element.attributes.get(key, "") for key in _MAKE))
            self.found.devices.append(dataclasses.replace(here, device=device, make=make))
            if net.attributes.get("gdr") in _ANSWERS:
                self.found.gpudirect[device.id] = _ANSWERS[net.attributes["gdr"]]

    def _by_class(self, element: Element, here: PciDevice) -> None:
        """Take in a device of which only its PCI class is given."""
        has = element.attributes
        vendor = has.get("vendor", "")
        if vendor:
            kind = pci_kind(has.get("class", ""), vendor, has.get("device", ""))
        else:
            nic = has.get("class", "").lower().removeprefix("0x").startswith("02")
            kind = "gpu" if is_graphics(has.get("class", "")) else "nic" if nic else None
        if kind is None or not self.by_class[kind] or element.named("gpu", "nic", "net"):
            return
        number = sum(1 for d in self.found.devices if d.device.kind == kind)
        if kind == "gpu":
            self._add_gpu(f"GPU{number}", element, None, here)
        else:
            self.found.devices.append(dataclasses.replace(here, device=self._device(f"NIC{number}", "nic")))

    def _add_gpu(self, name: str, pci: Element, inside: Element | None, here: PciDevice) -> None:
        device = self._device(name, "gpu", model=vendor_name(pci.attributes.get("vendor", "")))
        self.found.devices.append(dataclasses.replace(here, device=device))
        self.found.gpus.append(gpu_of(device.id, pci, inside, self.where))
        self.found.at_cpu[device.id] = self.cpu.id

    def _device(self, name: str, kind: str, **more: object) -> Device:
        return Device(
            id=_id(self.host, name),
            kind="gpu" if kind == "gpu" else "nic",
            node=self.host,
            numa=self.cpu.numa,
            cpu_affinity=self.cpu.cpu_affinity,
            **more,  # type: ignore[arg-type]
        )
