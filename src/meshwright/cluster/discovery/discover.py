"""The live machine as a Cluster: CPUs from the system, GPUs from the drivers, NICs and the PCI tree from sysfs."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from ...errors import InputError
from ...hardware import Catalogue
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device, Link
from ..pcipath import PciDevice, crowded_cards, host_links, narrower_than_their_make, pci_links, upper_bound_warnings
from .kfd import amd_links
from .local import local_cluster
from .nvml import NvidiaGpu, NvmlError, nvidia_gpus
from .sysfs import (
    SYS,
    InterfaceState,
    driver_names,
    network_interfaces,
    nics,
    pci_gpus,
    pci_id,
    sleeping,
    slowed,
    without_link,
)


def discover(catalogue: Catalogue, gpu: str | None = None, root: Path = SYS) -> Cluster:
    """Return this machine with all its devices and links; `gpu` names the accelerator where the driver cannot."""
    base = local_cluster()
    warnings: list[str] = []
    try:
        known = nvidia_gpus()
    except NvmlError as error:
        known = []
        warnings.append(f"NVML: {error}; GPUs are described from the PCI bus alone")
    interfaces = network_interfaces() if root == SYS else None
    return assemble(base, catalogue, known, gpu, root, interfaces, warnings)


def assemble(
    base: Cluster,
    catalogue: Catalogue,
    known: Sequence[NvidiaGpu],
    gpu: str | None,
    root: Path,
    interfaces: dict[str, InterfaceState] | None,
    warnings: Sequence[str] = (),
) -> Cluster:
    """Return `base` with the GPUs and NICs that sysfs below `root` shows, GPUs named and joined as drivers say."""
    found = pci_gpus(root)
    by_bus = {item.bus_id: item for item in known}
    order = {item.bus_id: i for i, item in enumerate(known)}
    found.sort(key=lambda item: order.get(item.bus_id, len(order)))
    node = base.hosts[0].name if base.hosts else ""
    notes = list(warnings)
    gpus = []
    called = driver_names(root)
    for number, item in enumerate(found):
        device = _near(replace(item.device, id=f"GPU{number}", node=node), base.of_kind("cpu"))
        bus_name = called.get(item.bus_id) or catalogue.by_pci_id(pci_id(item.bus_id, root))
        described, note = _described(device, by_bus.get(item.bus_id), bus_name, catalogue, gpu)
        notes += [note] if note else []
        gpus.append(dataclasses.replace(item, device=described))
    if loose := [item.device.id for item in gpus if not item.bridges]:
        notes.append(f"{', '.join(loose)}: the bridges above are not in this copy of /sys: no PCIe links are known")
    if asleep := sleeping(gpus, root):
        notes.append(
            f"{', '.join(asleep)}: the PCIe link is idle; its rate is that of its highest speed, an upper bound"
        )
    if dark := without_link(root):
        notes.append(
            f"{', '.join(dark)}: no port has a link, other cards have one: unused, or a cable or switch is dead"
        )
    cards = [dataclasses.replace(item, device=replace(item.device, node=node)) for item in nics(root, interfaces)]
    own = [*_nvlinks(gpus, by_bus, catalogue), *_xgmi_links(gpus, root)]
    joined = {frozenset((link.a, link.b)) for link in own}
    physical = [item for item in (*gpus, *cards) if item.bridges]
    placed = [item for item in cards if item.bridges]
    notes += [*crowded_cards(placed), *narrower_than_their_make(placed), *slowed(placed, root)]
    pci = [link for link in pci_links(physical) if frozenset((link.a, link.b)) not in joined]
    cpus = base.of_kind("cpu")
    return replace(
        base,
        devices=(*base.devices, *(item.device for item in (*gpus, *cards))),
        links=(*base.links, *own, *pci, *host_links(physical, cpus)),
        warnings=(*base.warnings, *dict.fromkeys(notes), *upper_bound_warnings(pci)),
    )


def _near(device: Device, cpus: Sequence[Device]) -> Device:
    """Return a device without a NUMA node with that of the CPUs next to it, where they are those of one node."""
    if device.numa is not None or not device.cpu_affinity:
        return device
    same = [cpu.numa for cpu in cpus if cpu.cpu_affinity == device.cpu_affinity]
    return replace(device, numa=same[0]) if len(same) == 1 else device


def _described(
    device: Device, driver: NvidiaGpu | None, bus_name: str | None, catalogue: Catalogue, named: str | None
) -> tuple[Device, str | None]:
    """Return the device with what the driver and the catalogue know of it, and a warning where its name is unknown.

    `bus_name` is the key of the catalogue that its PCI id means, for where no driver names it.
    """
    name = named or (driver.name if driver else "") or bus_name or ""
    device = replace(device, memory_bytes=driver.memory_bytes if driver else None)
    if not name:
        return device, None
    try:
        return with_catalogue(device, name, catalogue), None
    except InputError:
        if named:
            raise
        said = f"{name} is not in the catalogue: no peaks are known (add it in a file: --hardware FILE)"
        return replace(device, model=name), said


def _nvlinks(gpus: Sequence[PciDevice], by_bus: dict[str, NvidiaGpu], catalogue: Catalogue) -> list[Link]:
    """Return the NVLinks between GPUs: direct ones, or as many as both have to switches."""
    links = []
    for a, b in itertools.combinations(gpus, 2):
        first, second = by_bus.get(a.bus_id), by_bus.get(b.bus_id)
        if first is None or second is None:
            continue
        count = first.to_gpus.get(second.bus_id) or min(first.to_switches, second.to_switches)
        if count:
            one = _link_rate(a.device.model, catalogue)
            rate = count * one if one else None
            links.append(Link(a=a.device.id, b=b.device.id, kind=f"NV{count}", bandwidth_bytes_per_s=rate))
    return links


def _link_rate(model: str, catalogue: Catalogue) -> float | None:
    accelerator = catalogue.accelerators.get(model)
    if accelerator is None or accelerator.link is None:
        return None
    return catalogue.interconnect(accelerator.link).link_bytes_per_s


def _xgmi_links(gpus: Sequence[PciDevice], root: Path) -> list[Link]:
    ids = {item.bus_id: item.device.id for item in gpus}
    return [
        Link(a=ids[a], b=ids[b], kind="xGMI", bandwidth_bytes_per_s=rate)
        for (a, b), rate in sorted(amd_links(root).items())
        if a in ids and b in ids
    ]
