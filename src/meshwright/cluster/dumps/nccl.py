"""NCCL's topology XML (NCCL_TOPO_DUMP_FILE) into a Cluster: CPUs, the PCI tree, GPUs with NVLink, NICs with speeds."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ...errors import InputError
from ...hardware import Catalogue
from ..cpumask import mask_cpus
from ..graph import Cluster, Device, Host, Link
from ..local import format_cores
from ..pcipath import PciDevice, host_links, pci_links, pcie_bytes_per_s, upper_bound_warnings
from .xml import Element

NVSWITCH_CLASS, GPU_CLASS = "0x068000", "0x03"


@dataclass(slots=True)
class _Gpu:
    """One GPU of the file with its own links: (target bus id, target class, links)."""

    name: str
    bus: str
    architecture: str
    links: list[tuple[str, str, int]]
    link_kind: str


@dataclass(slots=True)
class _Found:
    cpus: list[Device] = field(default_factory=list)
    devices: list[PciDevice] = field(default_factory=list)
    gpus: list[_Gpu] = field(default_factory=list)


def from_nccl(root: Element, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster of one host; `gpu` overrides the accelerator that the file's architecture implies."""
    found = _Found()
    for element in root.named("cpu"):
        _cpu(element, found, where)
    if not found.cpus:
        raise InputError(f"{where}: no cpu inside system, expected the XML that NCCL_TOPO_DUMP_FILE writes")
    if len({d.device.id for d in found.devices}) != len(found.devices):
        raise InputError(f"{where}: two devices of the same number")
    own, warnings = _own_links(found.gpus, catalogue, gpu)
    joined = {frozenset((link.a, link.b)) for link in own}
    pci = [link for link in pci_links(found.devices) if frozenset((link.a, link.b)) not in joined]
    keys = {g.name: _key(g, catalogue, gpu) for g in found.gpus}
    devices = [replace(d.device, model=keys.get(d.device.id) or d.device.model) for d in found.devices]
    host = Host(
        name=where,
        cores=max(1, sum(cpu.cores or 0 for cpu in found.cpus)),
        memory_bytes=0,
        numa_nodes=len(found.cpus),
    )
    return Cluster(
        name=where,
        hosts=(host,),
        devices=(*found.cpus, *sorted(devices, key=lambda d: (d.kind != "gpu", len(d.id), d.id))),
        links=(*own, *pci, *host_links(found.devices, found.cpus)),
        warnings=(*warnings, *upper_bound_warnings(pci)),
    )


def _cpu(element: Element, found: _Found, where: str) -> None:
    numa = _number(element, "numaid", where, minimum=-1)
    affinity = mask_cpus(element.attributes.get("affinity", ""))
    number = max(numa, 0)
    found.cpus.append(
        Device(
            id=f"CPU{number}",
            kind="cpu",
            numa=number,
            cores=len(affinity) or None,
            cpu_affinity=format_cores(affinity) or None,
        )
    )
    bridge = (f"CPU{number}",)
    for child in element.named("pci", "nic"):
        _pci(child, found, bridge, found.cpus[-1], None, where)


def _pci(
    element: Element, found: _Found, bridges: tuple[str, ...], cpu: Device, rate: float | None, where: str
) -> None:
    """Walk down the PCI tree; a pci element with a gpu or a nic inside is that device, any other is a bridge."""
    attributes, here = element.attributes, f"{where}:{element.line}"
    if element.name == "pci":
        rate = pcie_bytes_per_s(attributes.get("link_speed", ""), attributes.get("link_width", ""))
    for gpu in element.named("gpu"):
        name = f"GPU{_number(gpu, 'dev', where)}"
        found.gpus.append(_gpu(gpu, name, attributes.get("busid", ""), where))
        found.devices.append(PciDevice(_device(name, "gpu", cpu), bridges, rate))
    for net in [n for holder in (element, *element.named("nic")) for n in holder.named("net")]:
        name = net.attributes.get("name") or f"NIC{_number(net, 'dev', where)}"
        megabits = _number(net, "speed", where)
        device = replace(_device(name, "nic", cpu), network_bandwidth_bytes_per_s=megabits * 1e6 / 8 or None)
        found.devices.append(PciDevice(device, bridges, rate))
    inside = element.named("pci")
    if inside and not attributes.get("busid"):
        raise InputError(f"{here}: pci without busid")
    for child in inside:
        _pci(child, found, (*bridges, attributes["busid"]), cpu, rate, where)


def _device(name: str, kind: str, cpu: Device) -> Device:
    return Device(id=name, kind="gpu" if kind == "gpu" else "nic", numa=cpu.numa, cpu_affinity=cpu.cpu_affinity)


def _gpu(element: Element, name: str, bus: str, where: str) -> _Gpu:
    architecture = element.attributes.get("gcn") or f"sm{_number(element, 'sm', where)}"
    links = [
        (link.attributes.get("target", "").lower(), link.attributes.get("tclass", ""), _number(link, "count", where))
        for link in element.named("nvlink", "xgmi")
    ]
    return _Gpu(name, bus.lower(), architecture, links, "xGMI" if element.named("xgmi") else "NV")


def _own_links(gpus: Sequence[_Gpu], catalogue: Catalogue, named: str | None) -> tuple[list[Link], list[str]]:
    """Return the links between GPUs over NVLink or xGMI: through a switch, or direct ones by bus id."""
    links, warnings = [], []
    for a, b in itertools.combinations(gpus, 2):
        switched = [min(_to_switches(a), _to_switches(b))]
        direct = sum(count for target, kind, count in a.links if kind.startswith(GPU_CLASS) and target == b.bus)
        count = direct or switched[0]
        if not count:
            continue
        rate, warning = _link_rate(a, catalogue, named)
        warnings += [w for w in warning if w not in warnings]
        kind = f"NV{count}" if a.link_kind == "NV" else "xGMI"
        links.append(Link(a=a.name, b=b.name, kind=kind, bandwidth_bytes_per_s=count * rate if rate else None))
    return links, warnings


def _to_switches(gpu: _Gpu) -> int:
    return sum(count for _, kind, count in gpu.links if kind.startswith(NVSWITCH_CLASS))


def _link_rate(gpu: _Gpu, catalogue: Catalogue, named: str | None) -> tuple[float | None, list[str]]:
    """Return the rate of one link of a GPU: all accelerators of its architecture must agree on it."""
    if named is not None:
        accelerator = catalogue.accelerator(named)
        return catalogue.interconnect(accelerator.link or accelerator.host_link).link_bytes_per_s, []
    rates = {
        catalogue.interconnect(a.link).link_bytes_per_s
        for a in catalogue.accelerators.values()
        if a.architecture == gpu.architecture and a.link
    }
    if len(rates) == 1:
        return rates.pop(), []
    return None, [f"{gpu.architecture}: the rate of its links is not in the catalogue; say the device with --gpu NAME"]


def _key(gpu: _Gpu, catalogue: Catalogue, named: str | None) -> str:
    if named is not None:
        return catalogue.accelerator_key(named)
    total = sum(count for _, _, count in gpu.links)
    keys = [
        key
        for key, a in catalogue.accelerators.items()
        if a.architecture == gpu.architecture and a.link and catalogue.interconnect(a.link).links.number == total
    ]
    return keys[0] if len(keys) == 1 else ""


def _number(element: Element, key: str, where: str, *, minimum: int = 0) -> int:
    text = element.attributes.get(key, "")
    if not text.lstrip("-").isdecimal() or len(text) > 12 or int(text) < minimum:
        raise InputError(f"{where}:{element.line}: {element.name} {key}={text[:30]!r}, expected a whole number")
    return int(text)
