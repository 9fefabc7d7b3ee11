"""The links of GPUs in NCCL's and RCCL's XML: NVLink, xGMI and C2C, and which accelerator they are of."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...hardware import Catalogue
from ...units import first_few
from ..graph import Link
from .xml import Element, whole_number

# classes of what a link ends at (nccl src/graph/xml.h: kvDictPciClass)
SWITCH, CPU, GPU = "0x068000", "0x068001", ("0x03", "0x12")
# how RCCL writes architectures, now and before names had letters; gfx940 and gfx941 are early gfx942
SAME_ARCHITECTURE = {
    "910": "gfx90a",
    **dict.fromkeys(("940", "941", "942", "gfx940", "gfx941"), "gfx942"),
    "950": "gfx950",
}
_SHOWN = 8  # NICs that a warning names
_IT = {False: "it sends and receives goes", True: "they send and receive goes"}


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """One GPU of the file with its own links: (target bus id, target class, links)."""

    id: str
    host: str
    bus: str
    pci_id: str  # "10de:2330"
    architecture: str
    links: list[tuple[str, str, int]]
    link_kind: str
    c2c_bytes_per_s: float

    @property
    def to_switches(self) -> int:
        """Links that end in a switch."""
        return sum(count for _, kind, count in self.links if kind.startswith(SWITCH))

    @property
    def to_cpu(self) -> int:
        """Links that end in a CPU (POWER)."""
        return sum(count for _, kind, count in self.links if kind.startswith(CPU))

    def to(self, other: "GpuLinks") -> int:
        """Return the links that end in another GPU of this host."""
        if self.host != other.host:
            return 0
        return sum(count for target, kind, count in self.links if kind.startswith(GPU) and target == other.bus)


def gpu_of(name: str, pci: Element, gpu: Element | None, where: str) -> GpuLinks:
    """Return the GPU `name` of a pci element, `gpu` the element inside it where there is one."""
    host, _, _ = name.rpartition("/")
    has = pci.attributes
    pci_id = f"{has.get('vendor', '').removeprefix('0x')}:{has.get('device', '').removeprefix('0x')}".lower()
    bus = has.get("busid", "").lower()
    if gpu is None:
        return GpuLinks(name, host, bus, pci_id, "", [], "NV", 0.0)
    gcn = gpu.attributes.get("gcn", "")
    architecture = SAME_ARCHITECTURE.get(gcn) or (f"gfx{gcn}" if gcn.isdecimal() else gcn)
    architecture = architecture or f"sm{whole_number(gpu, 'sm', where)}"
    links = [
        (
            k.attributes.get("target", "").lower(),
            k.attributes.get("tclass", "").lower(),
            whole_number(k, "count", where),
        )
        for k in gpu.named("nvlink", "xgmi")
    ]
    c2c = sum(whole_number(c, "bw", where) * whole_number(c, "count", where) * 1e6 for c in gpu.named("c2c"))
    return GpuLinks(name, host, bus, pci_id, architecture, links, "xGMI" if gpu.named("xgmi") else "NV", c2c)


def links_between_gpus(
    gpus: Sequence[GpuLinks], rates: Mapping[str, float | None], keys: Mapping[str, str], catalogue: Catalogue
) -> list[Link]:
    """Return the links between GPUs over NVLink or xGMI: through switches, on all hosts of the file, or direct ones.

    One xGMI link may stand for all that a pair has: there the model says what a peer gets.
    """
    links = []
    for a, b in itertools.combinations(gpus, 2):
        count = a.to(b) or b.to(a) or min(a.to_switches, b.to_switches)
        if count:
            kind = f"NV{count}" if a.link_kind == "NV" else "xGMI"
            one = rates[a.id]
            rate = count * one if one else None
            model = catalogue.accelerators.get(keys[a.id])
            own = catalogue.interconnect(model.link) if model and model.link else None
            if count == 1 and own and own.kind == "xgmi" and own.peer_rate:
                rate = own.peer_rate.number
            links.append(Link(a=a.id, b=b.id, kind=kind, bandwidth_bytes_per_s=rate))
    return links


def links_to_nothing(gpus: Sequence[GpuLinks]) -> list[str]:
    """Return a warning for links that end in a GPU which is not in the file: they join nothing here."""
    known = {(gpu.host, gpu.bus) for gpu in gpus}
    lost: dict[str, list[str]] = {}
    for gpu in gpus:
        for target, kind, count in gpu.links:
            if kind.startswith(GPU) and (gpu.host, target) not in known:
                lost.setdefault(target, []).append(f"{count} of {gpu.id}")
    return [
        f"links to a GPU at {target[:20]!r}, which is not in the file, are left out: {', '.join(ends)}"
        for target, ends in lost.items()
    ]


def without_gpudirect(nics: Sequence[tuple[str, bool]]) -> list[str]:
    """Return a warning of the NICs that NCCL found unable to reach a GPU's memory (gdr="0"), by name and answer."""
    lost = [name for name, reaches in nics if not reaches]
    others = [name for name, reaches in nics if reaches]
    if not lost:
        return []
    beside = f", {first_few(others, _SHOWN)} {'has' if len(others) == 1 else 'have'} it" if others else ""
    return [
        f'{first_few(lost, _SHOWN)}: no GPUDirect RDMA (gdr="0" in the file){beside}: what {_IT[len(lost) > 1]} '
        "through host memory; nvidia-peermem or dma-buf is missing, or the NIC is used through sockets"
    ]


def links_down(gpus: Sequence[GpuLinks], keys: Mapping[str, str], catalogue: Catalogue) -> list[str]:
    """Return which of one or two GPUs have fewer links to their switches than they were built with.

    The pairs of three or more tell it themselves (`verdicts`).
    """
    found = []
    most = max((gpu.to_switches for gpu in gpus), default=0)
    for gpu in gpus if len(gpus) < 3 else ():
        model = catalogue.accelerators.get(keys[gpu.id])
        own = catalogue.interconnect(model.link) if model and model.link and not model.bridged else None
        built = max(most, int(own.links.number) if own and own.kind == "nvlink" else 0)
        if 0 < gpu.to_switches < built:
            lost = built - gpu.to_switches
            found.append(
                f"{gpu.id} has {gpu.to_switches} of {built} NVLinks: {lost} {'is' if lost == 1 else 'are'} down"
            )
    return found


def c2c_links(gpus: Sequence[GpuLinks], at_cpu: Mapping[str, str], rates: Mapping[str, float | None]) -> list[Link]:
    """Return the links of GPUs to their CPU that are not PCIe: NVLink-C2C, and NVLink on POWER."""
    links = []
    for gpu in gpus:
        rate = rates[gpu.id]
        if gpu.c2c_bytes_per_s:
            links.append(Link(a=gpu.id, b=at_cpu[gpu.id], kind="C2C", bandwidth_bytes_per_s=gpu.c2c_bytes_per_s))
        elif gpu.to_cpu:
            total = gpu.to_cpu * rate if rate else None
            links.append(Link(a=gpu.id, b=at_cpu[gpu.id], kind=f"NV{gpu.to_cpu}", bandwidth_bytes_per_s=total))
    return links


def link_rate(
    gpus: Sequence[GpuLinks], keys: Mapping[str, str], catalogue: Catalogue
) -> tuple[dict[str, float | None], list[str]]:
    """Return the rate of one link of each GPU: its model's, else what all accelerators of its architecture agree on."""
    rates: dict[str, float | None] = {}
    warnings = []
    for gpu in gpus:
        known = [catalogue.accelerators[keys[gpu.id]]] if keys[gpu.id] else catalogue.of_architecture(gpu.architecture)
        found = {catalogue.interconnect(a.link).link_bytes_per_s for a in known if a.link}
        rates[gpu.id] = found.pop() if len(found) == 1 else None
        if rates[gpu.id] is None and gpu.links:
            warnings.append(
                f"{gpu.architecture}: the rate of its links is not in the catalogue; say the device with --gpu NAME"
            )
    return rates, warnings


def accelerator_key(gpu: GpuLinks, catalogue: Catalogue, named: str | None) -> str:
    """Return the key of the accelerator: as the user says, by its PCI id, or by architecture and links; "" if open.

    A PCI id of another architecture than the file's is not believed.
    """
    if named is not None:
        return catalogue.shown_key(named)
    by_id = catalogue.by_pci_id(gpu.pci_id)
    if by_id and (not gpu.architecture or catalogue.accelerators[by_id].architecture == gpu.architecture):
        return by_id
    total = sum(count for _, _, count in gpu.links)
    keys = [
        key
        for key, a in catalogue.accelerators.items()
        if gpu.architecture
        and a.architecture == gpu.architecture
        and a.link
        and not (a.bridged and gpu.to_switches)
        and catalogue.interconnect(a.link).links.number == total
    ]
    return keys[0] if len(keys) == 1 else ""
