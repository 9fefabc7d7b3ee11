"""`lstopo` XML (hwloc 1, 2 and 3) into a Cluster: NUMA nodes as CPUs, GPUs and NICs in the PCI tree."""

import dataclasses
import re
from dataclasses import dataclass, field

from msgspec.structs import replace

from ...errors import InputError
from ...hardware import Catalogue
from ...hardware.pci import WHAT_IS_SOUGHT, pci_kind, vendor_name
from ..catalogue_devices import with_catalogue
from ..cpumask import mask_cpus
from ..discovery.local import format_cores
from ..graph import Cluster, Device, Host, Link
from ..numa import cpu_id, node_count, of_no_node
from ..paths import rank
from ..pcipath import PciDevice, card_of, host_links, make_of, narrower_than_their_make, pci_links, upper_bound_warnings
from .hwloc_links import Objects, bandwidth_links
from .xml import Element

GPU_MEMORY = "GPUMemory"  # subtype of a NUMA node
NVSWITCH = ("0680", "10de")
# what an operating system's device is: numbers up to version 2, bits from version 3 on
NETWORK_TYPES = {"2", "3", "Network", "OpenFabrics"}
NETWORK_BITS = 1 << 4 | 1 << 5
PORT_STATE = re.compile(r"Port\d+State")  # of an InfiniBand or RoCE device
ACTIVE = "4"  # IBV_PORT_ACTIVE
INFINIBAND = ("mlx", "hfi", "bnxt_re", "efa", "rdmap", "irdma", "ionic", "cxi")


@dataclass(slots=True)
class _Found:
    """The findings of the walk over the tree."""

    version: int
    cpus: dict[int, set[int]] = field(default_factory=dict)  # NUMA node to CPUs
    cores: dict[int, set[int]] = field(default_factory=dict)  # a core's lowest CPU to its CPUs
    memory: dict[int, int] = field(default_factory=dict)
    subtypes: dict[int, str] = field(default_factory=dict)
    pus: set[int] = field(default_factory=set)
    devices: list[PciDevice] = field(default_factory=list)
    near: dict[str, tuple[int, ...]] = field(default_factory=dict)  # device to the NUMA nodes that it is near
    caches: dict[str, int] = field(default_factory=dict)
    asleep: list[str] = field(default_factory=list)  # GPUs whose PCIe link was
    dark: list[str] = field(default_factory=list)  # NICs of which no port was active
    objects: Objects = field(default_factory=Objects)

    def count(self, kind: str) -> int:
        """Return how many devices of a kind were found."""
        return sum(1 for item in self.devices if item.device.kind == kind)


def from_hwloc(root: Element, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster of one host; `gpu` names the model of its GPUs where the file does not."""
    machine = _machine(root)
    if machine is None:
        raise InputError(f"{where}: no object of type Machine, expected the XML of lstopo")
    found = _Found(version=_version(root))
    _walk(machine, found, _nodes(machine, where), PciDevice(Device(id="", kind="cpu"), (), None), where)
    counted = bool(found.pus)
    found.pus = found.pus or set(mask_cpus(machine.attributes.get("cpuset", "")))  # lstopo was told to leave PUs out
    if not found.pus:
        raise InputError(f"{where}: no processing unit (type PU): the file is truncated or not of lstopo")
    info = _infos(root) | _infos(machine)
    cpus, memories = _cpus(found)
    cpus = cpus if counted else [replace(cpu, cores=None, threads=None) for cpu in cpus]
    own_memory = sum(memory for node, memory in found.memory.items() if found.subtypes.get(node) != GPU_MEMORY)
    placed = [dataclasses.replace(item, device=_placed(item.device, found, cpus)) for item in found.devices]
    devices = [_named(item.device, found.objects.pci_ids[item.device.id], catalogue, gpu) for item in placed]
    models = {d.id: d.model for d in devices}
    own, notes = bandwidth_links(root, found.objects, models, cpus, catalogue, where)
    joined = {frozenset((link.a, link.b)) for link in own}
    pci = _rest(pci_links(placed), joined)
    host = Host(
        name=info.get("HostName", "host"),
        cpu_model=info.get("CPUModel", ""),
        cores=sum(cpu.cores or 0 for cpu in cpus),
        memory_bytes=own_memory,
        cache_bytes=found.caches,
        numa_nodes=node_count(cpus),
        software={"kernel": info["OSRelease"]} if "OSRelease" in info else {},
    )
    dark = [f"{name} carries nothing: no port of it was active when lstopo looked" for name in found.dark]
    nics = [item for item in placed if item.device.kind == "nic"]
    warnings = [
        *notes,
        *dark,
        *narrower_than_their_make(nics),
        *of_no_node(cpus),
        *_speed_warnings(placed, found),
        *upper_bound_warnings(pci),
    ]
    if not counted:
        warnings.append("no core and no processing unit (PU) is in the file: how many there are is not known")
    if not any(device.kind == "gpu" for device in devices):
        warnings.append(f"no accelerator found: looked for {WHAT_IS_SOUGHT}")
    return Cluster(
        name=host.name,
        hosts=(host,) if counted else (),
        devices=(*cpus, *memories, *sorted(devices, key=lambda d: (d.kind != "gpu", len(d.id), d.id))),
        links=(*own, *_rest(host_links(placed, cpus), joined), *sorted(pci, key=lambda link: rank(link.kind))),
        warnings=tuple(warnings),
    )


def _machine(root: Element) -> Element | None:
    """Return the outermost object: the machine, or the one NUMA node that version 1 may put in its place."""
    objects = [element for element in root.walk() if element.name == "object"]
    machine = next((element for element in objects if element.attributes.get("type") == "Machine"), None)
    if machine is None and objects and objects[0].attributes.get("type") in {"NUMANode", "Node", "System"}:
        return objects[0]
    return machine


def _rest(links: list[Link], joined: set[frozenset[str]]) -> list[Link]:
    """Return the links of pairs that nothing better joins."""
    return [link for link in links if frozenset((link.a, link.b)) not in joined]


def _version(root: Element) -> int:
    """Return the major version of the file's format: 1 where it is not said, as in files of hwloc 1."""
    major = root.attributes.get("version", "1").split(".")[0]
    return int(major) if major.isdecimal() and len(major) < 3 else 1


def _walk(element: Element, found: _Found, numa: tuple[int, ...], place: PciDevice, where: str) -> None:
    kind, here = element.attributes.get("type", ""), f"{where}:{element.line}"
    numa = _nodes(element, where) or numa
    if kind in {"NUMANode", "Node"}:
        number = _number(element, "os_index", here)
        found.memory[number] = found.memory.get(number, 0) + _memory(element, here)
        found.subtypes[number] = element.attributes.get("subtype", "")
        cpuset = element.attributes.get("cpuset")
        found.cpus.setdefault(number, set()).update(mask_cpus(cpuset) if cpuset else _pus_below(element, here))
        numa = (number,)
    elif kind == "PU":
        found.pus.add(_number(element, "os_index", here))
    elif kind == "Core":
        threads = _pus_below(element, here)
        if threads:
            found.cores[min(threads)] = threads
    elif kind == "Package":
        found.objects.packages[element.attributes.get("gp_index", "")] = _pus_below(element, here)
    elif kind == "Bridge":
        name = element.attributes.get("gp_index") or f"{element.line}"
        rate = _rate(element, here)
        rate = None if _is_asleep(rate) else rate
        place = dataclasses.replace(place, bridges=(*place.bridges, name), above=(*place.above, rate))
    elif kind in {"L2Cache", "L3Cache"} or (kind == "Cache" and element.attributes.get("depth") in {"2", "3"}):
        name = kind[:2] if kind != "Cache" else f"L{element.attributes['depth']}"
        found.caches.setdefault(name, _number(element, "cache_size", here))
    elif kind == "PCIDev":
        _pci(element, found, numa, place, here)
    elif kind == "Machine" and "local_memory" in element.attributes:
        found.memory[0] = _memory(element, here)
    for child in element.named("object"):
        _walk(child, found, numa, place, where)


def _pus_below(element: Element, where: str) -> set[int]:
    return {
        _number(e, "os_index", where) for e in element.walk() if e.name == "object" and e.attributes.get("type") == "PU"
    }


def _pci(element: Element, found: _Found, numa: tuple[int, ...], place: PciDevice, where: str) -> None:
    """Take in one PCI device if it is a GPU, a NIC or an NVSwitch."""
    words = element.attributes.get("pci_type", "").replace("[", " ").replace("]", " ").replace(":", " ").split()
    if len(words) < 3:
        raise InputError(f"{where}: PCI device without pci_type, expected such as '0302 [10de:20b0] [...] a1'")
    inside = [child for child in element.walk() if child.attributes.get("type") == "OSDev"]
    indexes = [e.attributes["gp_index"] for e in (element, *inside) if "gp_index" in e.attributes]
    if (words[0], words[1].lower()) == NVSWITCH:
        found.objects.switches.update(indexes)
    kind = pci_kind(words[0], words[1], words[2])
    if kind is None:
        return
    infos = _infos(element) | {k: v for child in inside for k, v in _infos(child).items()}
    name = _nic_name(inside, found) if kind == "nic" else f"GPU{found.count('gpu')}"
    if any(name == item.device.id for item in found.devices):
        name = f"{name}@{element.attributes.get('pci_busid', element.line)}"
    model = infos.get("GPUModel") or infos.get("PCIDevice", "")
    card = card_of(element.attributes.get("pci_busid", "")) if kind == "nic" else ""
    device = Device(id=name, kind=kind, model=model or (vendor_name(words[1]) if kind == "gpu" else ""), card=card)
    states = {value for key, value in infos.items() if PORT_STATE.fullmatch(key)}
    if states and ACTIVE not in states:
        found.dark.append(name)
    found.near[name] = numa
    found.objects.devices.update(dict.fromkeys(indexes, name))
    found.objects.pci_ids[name] = f"{words[1]}:{words[2]}".lower()
    rate = _rate(element, where)
    if kind == "gpu" and _is_asleep(rate):
        found.asleep.append(name)
        rate = None
    make = make_of(*words[1:5]) if len(words) > 4 else ""
    found.devices.append(dataclasses.replace(place, device=device, rate_bytes_per_s=rate, make=make))


def _rate(element: Element, where: str) -> float | None:
    speed = element.attributes.get("pci_link_speed", "0")
    try:
        rate = float(speed) * 1e9
    except ValueError:
        raise InputError(f"{where}: pci_link_speed {speed!r}, expected a number of GB/s") from None
    return rate if 0 < rate < 1e13 else None


def _is_asleep(bytes_per_s: float | None) -> bool:
    """Return whether a rate is one of 2.5 or 5 GT/s: no accelerator trains its link so low, but all idle links do."""
    quarters = (bytes_per_s or 0.0) / 0.25e9
    return 0.5 < quarters <= 32 and abs(quarters - round(quarters)) < 1e-3


def _nic_name(inside: list[Element], found: _Found) -> str:
    """Return the name that the system gave a NIC, of its InfiniBand device where it has one."""
    networks = [c.attributes.get("name", "") for c in inside if _is_network(c.attributes.get("osdev_type", ""), found)]
    infiniband = [name for name in networks if name.startswith(INFINIBAND)]
    return next(iter([*infiniband, *networks]), f"NIC{found.count('nic')}")


def _is_network(kind: str, found: _Found) -> bool:
    if found.version >= 3 and kind.isdecimal() and len(kind) < 9:
        return bool(int(kind) & NETWORK_BITS)
    return kind in NETWORK_TYPES


def _named(device: Device, pci_id: str, catalogue: Catalogue, gpu: str | None) -> Device:
    """Return the device as the catalogue knows it: by the user's word, its driver's name, or its PCI id."""
    if device.kind != "gpu":
        return device
    name = gpu or catalogue.driver_key(device.model) or catalogue.by_pci_id(pci_id)
    return with_catalogue(device, name, catalogue) if name else device


def _placed(device: Device, found: _Found, cpus: list[Device]) -> Device:
    """Return the device with its NUMA node, one that has CPUs, and the CPUs next to it."""
    near = [cpu for cpu in cpus if cpu.numa in found.near[device.id]]
    numa = near[0].numa if len(near) == 1 else None
    affinity = near[0].cpu_affinity if len(near) == 1 else format_cores(sorted(found.pus))
    return replace(device, numa=numa, cpu_affinity=affinity)


def _cpus(found: _Found) -> tuple[list[Device], list[Device]]:
    """Return a CPU for each NUMA node that has CPUs of its own, and the nodes that are memory alone."""
    cpus, memories, taken = list[Device](), list[Device](), set[int]()
    for number, its in sorted((found.cpus or {0: found.pus}).items()):
        its = (its & found.pus) if its else found.pus if len(found.cpus) == 1 else set()
        memory = found.memory.get(number)
        if its - taken:
            cpus.append(_cpu(number, its - taken, memory, found))
        elif memory != 0:
            model = found.subtypes.get(number, "")
            memories.append(Device(id=f"MEM{number}", kind="memory", model=model, numa=number, memory_bytes=memory))
        taken |= its
    if rest := found.pus - taken:
        cpus.append(_cpu(None, rest, None, found))
    return cpus, memories


def _cpu(number: int | None, its: set[int], memory: int | None, found: _Found) -> Device:
    """Return the CPU of a NUMA node, or what no node has."""
    cores = sum(1 for threads in found.cores.values() if threads & its)
    return Device(
        id=cpu_id(number),
        kind="cpu",
        numa=number,
        cores=cores or len(its),
        threads=len(its),
        cpu_affinity=format_cores(sorted(its)),
        memory_bytes=memory,
    )


def _speed_warnings(devices: list[PciDevice], found: _Found) -> list[str]:
    said = []
    if found.asleep:
        said.append(f"{', '.join(found.asleep)}: the PCIe link was asleep when lstopo looked, its rate is not known")
    if any(item.rate_bytes_per_s for item in devices if item.device.kind == "gpu"):
        said.append("PCIe rates are those at which the links ran when lstopo looked: a lower bound for idle devices")
    return said


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
