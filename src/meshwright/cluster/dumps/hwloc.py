"""`lstopo` XML (hwloc 1 and 2) into a Cluster: NUMA nodes as CPUs, GPUs and NICs with their place in the PCI tree."""

from dataclasses import dataclass, field

from ...errors import InputError
from ...hardware import Catalogue
from ..cpumask import mask_cpus
from ..graph import Cluster, Device, Host
from ..local import format_cores
from ..paths import rank
from ..pcipath import PciDevice, host_links, pci_links, upper_bound_warnings
from .xml import Element

DISPLAY_VENDORS = {"1a03", "102b", "1234", "15ad", "1013"}  # consoles of servers and of virtual machines
NETWORK_OS_DEVICES = {"2", "3", "Network", "OpenFabrics"}


@dataclass(slots=True)
class _Found:
    """What the walk over the tree collects."""

    cpus: dict[int, set[int]] = field(default_factory=dict)  # NUMA node to CPUs
    memory: dict[int, int] = field(default_factory=dict)
    pus: set[int] = field(default_factory=set)
    devices: list[PciDevice] = field(default_factory=list)
    caches: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=lambda: {"gpu": 0, "nic": 0})


def from_hwloc(root: Element, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster of one host; `gpu` names the model of its GPUs where the file does not."""
    machine = next((e for e in root.walk() if e.name == "object" and e.attributes.get("type") == "Machine"), None)
    if machine is None:
        raise InputError(f"{where}: no object of type Machine, expected the XML of lstopo")
    found = _Found()
    _walk(machine, found, _nodes(machine, where), (), where)
    if not found.pus:
        raise InputError(f"{where}: no processing unit (type PU): the file is truncated or not of lstopo")
    cpus = _cpus(found)
    info = _infos(machine)
    links = pci_links(found.devices)
    host = Host(
        name=info.get("HostName", "host"),
        cpu_model=info.get("CPUModel", ""),
        cores=len(found.pus),
        memory_bytes=sum(found.memory.values()),
        cache_bytes=found.caches,
        numa_nodes=len(cpus),
        software={"kernel": info["OSRelease"]} if "OSRelease" in info else {},
    )
    model = catalogue.accelerator_key(gpu) if gpu else None
    devices = [_with_affinity(d.device, found, model) for d in found.devices]
    return Cluster(
        name=host.name,
        hosts=(host,),
        devices=(*cpus, *sorted(devices, key=lambda d: (d.kind != "gpu", d.id))),
        links=(*host_links(found.devices, cpus), *sorted(links, key=lambda link: rank(link.kind))),
        warnings=tuple(upper_bound_warnings(links)),
    )


def _walk(element: Element, found: _Found, numa: tuple[int, ...], bridges: tuple[str, ...], where: str) -> None:
    kind, here = element.attributes.get("type", ""), f"{where}:{element.line}"
    numa = _nodes(element, where) or numa
    if kind in {"NUMANode", "Node"}:
        number = _number(element, "os_index", here)
        found.memory[number] = found.memory.get(number, 0) + _memory(element, here)
        cpuset = element.attributes.get("cpuset")
        found.cpus.setdefault(number, set()).update(mask_cpus(cpuset) if cpuset else ())
        numa = (number,)
    elif kind == "PU":
        found.pus.add(_number(element, "os_index", here))
    elif kind == "Bridge":
        bridges = (*bridges, element.attributes.get("gp_index") or f"{element.line}")
    elif kind in {"L2Cache", "L3Cache"} or (kind == "Cache" and element.attributes.get("depth") in {"2", "3"}):
        name = kind[:2] if kind != "Cache" else f"L{element.attributes['depth']}"
        found.caches.setdefault(name, _number(element, "cache_size", here))
    elif kind == "PCIDev":
        _pci(element, found, numa, bridges, here)
    elif kind == "Machine" and "local_memory" in element.attributes:
        found.memory[0] = _memory(element, here)
    for child in element.named("object"):
        _walk(child, found, numa, bridges, where)


def _pci(element: Element, found: _Found, numa: tuple[int, ...], bridges: tuple[str, ...], where: str) -> None:
    """Take in one PCI device if it is a GPU or a NIC."""
    words = element.attributes.get("pci_type", "").replace("[", " ").replace(":", " ").split()
    if len(words) < 2:
        raise InputError(f"{where}: PCI device without pci_type, expected such as '0302 [10de:20b0] [...] a1'")
    if words[0].startswith("03") and words[1] not in DISPLAY_VENDORS:
        kind = "gpu"
    elif words[0].startswith("02"):
        kind = "nic"
    else:
        return
    speed = element.attributes.get("pci_link_speed", "0")
    try:
        rate = float(speed) * 1e9
    except ValueError:
        raise InputError(f"{where}: pci_link_speed {speed!r}, expected a number of GB/s") from None
    name, model = _named(element, kind, found.numbers[kind])
    found.numbers[kind] += 1
    device = Device(
        id=name, kind="gpu" if kind == "gpu" else "nic", model=model, numa=numa[0] if len(numa) == 1 else None
    )
    found.devices.append(PciDevice(device, bridges, rate if 0 < rate < 1e13 else None))


def _named(element: Element, kind: str, number: int) -> tuple[str, str]:
    """Return the id and the model of a device: GPUs by number, NICs by the name that the system gave them."""
    inside = [child for child in element.walk() if child.attributes.get("type") == "OSDev"]
    infos = _infos(element) | {k: v for child in inside for k, v in _infos(child).items()}
    model = infos.get("GPUModel") or infos.get("PCIDevice", "")
    if kind == "gpu":
        return f"GPU{number}", model
    networks = [c.attributes.get("name", "") for c in inside if c.attributes.get("osdev_type") in NETWORK_OS_DEVICES]
    infiniband = [name for name in networks if name.startswith(("mlx", "hfi", "bnxt_re", "efa", "rdmap", "irdma"))]
    return next(iter([*infiniband, *networks]), f"NIC{number}"), model


def _with_affinity(device: Device, found: _Found, model: str | None) -> Device:
    cpus = found.cpus.get(device.numa) if device.numa is not None else found.pus
    fields = {name: getattr(device, name) for name in device.__struct_fields__}
    fields["cpu_affinity"] = format_cores(sorted(cpus)) if cpus else None
    if model and device.kind == "gpu":
        fields["model"] = model
    return Device(**fields)


def _cpus(found: _Found) -> list[Device]:
    nodes = found.cpus or {0: found.pus}
    return [
        Device(
            id=f"CPU{number}",
            kind="cpu",
            numa=number,
            cores=len(cpus),
            cpu_affinity=format_cores(sorted(cpus)) or None,
            memory_bytes=found.memory.get(number),
        )
        for number, cpus in sorted((n, c or found.pus) for n, c in nodes.items())
    ]


def _nodes(element: Element, where: str) -> tuple[int, ...]:
    nodeset = element.attributes.get("nodeset")
    return tuple(mask_cpus(nodeset)) if nodeset else ()


def _infos(element: Element) -> dict[str, str]:
    return {
        i.attributes["name"]: i.attributes.get("value", "") for i in element.named("info") if "name" in i.attributes
    }


def _memory(element: Element, where: str) -> int:
    return _number(element, "local_memory", where) if "local_memory" in element.attributes else 0


def _number(element: Element, key: str, where: str) -> int:
    text = element.attributes.get(key, "")
    if not text.isdecimal() or len(text) > 19:
        raise InputError(f"{where}: {element.attributes.get('type')}: {key}={text[:30]!r}, expected a whole number")
    return int(text)
