"""The topology that NCCL prints with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=GRAPH: "=== System : maxBw ... ===".

Rates are GB/s as NCCL counts them, per direction: less than the links' own, by its factors for protocol overhead.
"""

import dataclasses
import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...errors import InputError
from ...hardware import Catalogue
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device, Link
from ..pcipath import PciDevice, host_links, pci_links, upper_bound_warnings
from .nccl_rates import nvlink_notes, pcie_notes

START = re.compile(r"=== System : max(?:Bw|Width) ([\d.]+) total(?:Bw|Width) ([\d.]+) ===")  # Width before 2.12
PREFIX = re.compile(r"^(.*?) NCCL INFO ?")
NODE = re.compile(r"(CPU|PCI|GPU|NIC|NET|NVS|PPI|GIN)/([0-9A-Fa-f]+)(?:-([0-9A-Fa-f]+))?")
_WHOLE = "expected all lines from '=== System' to '====='"
OWN = {"NVL": "NVLink", "XGMI": "xGMI"}
BRANCH = re.compile(r"^(\s*)\+ (\w+)\[([\d.]+)\] - (.*)$")


@dataclass(slots=True)
class _Edge:
    """One line: how deep it stands, the kind of link, its rate in bytes per second, and the node at its end."""

    number: int
    depth: int
    kind: str
    rate: float
    end: str
    name: str


def looks_like_nccl_log(text: str) -> bool:
    """Return whether a log holds NCCL's picture of the system."""
    return START.search(text) is not None


def from_nccl_log(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the machine of the first picture in a log; a GPU's number is its place in bus order.

    Of a picture without its last line the last GPU is left out where it lacks the links that others have.
    """
    edges, whole = _edges(text, where)
    if not whole and not any(edge.end == "GPU" for edge in edges):
        raise InputError(f"{where}: NCCL's picture of the system is cut off before its first GPU: {_WHOLE}")
    cpus = {edge.name: _cpu(edge.name) for edge in edges if edge.kind == "" and edge.end == "CPU"}
    if not cpus:
        raise InputError(f"{where}: a system without CPUs, expected lines such as 'CPU/0-0 (1/2/-1)'")
    items, to_switch, direct = _devices(edges, cpus, where)
    cut = "" if whole else _cut_gpu(items, {*to_switch, *itertools.chain(*direct)})
    items = [item for item in items if item.device.id != cut]
    gpus = sorted({d.device.id for d in items if d.device.kind == "gpu"})
    ids = {name: f"GPU{i}" for i, name in enumerate(gpus)}
    items = [
        dataclasses.replace(d, device=_renamed(d.device, ids, catalogue, gpu)) if d.device.id in ids else d
        for d in items
    ]
    own = _own_links(gpus, ids, to_switch, direct)
    joined = {frozenset((k.a, k.b)) for k in own}
    pci = [k for k in pci_links(items, whole_switches=True) if frozenset((k.a, k.b)) not in joined]
    warnings = []
    if not whole:
        warnings.append(f"the picture of the system is cut off, more devices may follow: {_WHOLE}")
    if cut:
        warnings.append(f"{cut} is left out: where it leads is cut off")
    warnings += ["rates are NCCL's own, with its allowance for protocol overhead", *upper_bound_warnings(pci)]
    if gpu is not None:
        accelerator = catalogue.accelerators[catalogue.shown_key(gpu)]
        to_switches = {ids[name]: to_switch[name] for name in gpus if name in to_switch}
        warnings += nvlink_notes(accelerator, catalogue, to_switches)
        to_pcie = {d.device.id: d.rate_bytes_per_s for d in items if d.device.kind == "gpu"}
        warnings += pcie_notes(accelerator, catalogue, to_pcie)
    if len(gpus) == 1 and gpus[0] in to_switch:
        warnings.append(f"GPU0 reaches its NVLink switches at {to_switch[gpus[0]] / 1e9:g} GB/s")
    if not gpus:
        warnings.append("no accelerator found: looked for lines with GPU/...")
    devices = (*cpus.values(), *sorted((d.device for d in items), key=lambda d: (d.kind != "gpu", len(d.id), d.id)))
    links = (*own, *pci, *host_links(items, list(cpus.values())))
    return Cluster(name=where, devices=devices, links=links, warnings=tuple(warnings))


def _edges(text: str, where: str) -> tuple[list[_Edge], bool]:
    """Return the lines of the first picture, and whether its last line is there."""
    found: list[_Edge] = []
    inside, prefix = False, ""
    for number, line in enumerate(text.splitlines(), start=1):
        head = PREFIX.match(line)
        said = head.group(1) if head else ""
        plain = line[head.end() :] if head else line
        if not inside and START.search(line):
            inside, prefix = True, said
        elif inside and said == prefix:
            if plain.startswith("===="):
                return found, True
            branch, root = BRANCH.match(plain), NODE.match(plain)
            if branch and (node := NODE.match(branch.group(4))):
                rate = float(branch.group(3)) * 1e9 if branch.group(3).count(".") < 2 else 0.0
                depth = len(branch.group(1)) + 2
                found.append(_Edge(number, depth, branch.group(2), rate, node.group(1), node.group()))
            elif root:
                found.append(_Edge(number, 0, "", 0.0, root.group(1), root.group()))
    if not inside:
        raise InputError(f"{where}: no line '=== System : maxBw ...'")
    return found, False


def _cpu(name: str) -> Device:
    numa = int(name.rpartition("-")[2].rpartition("/")[2], 16)
    if numa >= 2**31:  # -1, where the kernel knows no NUMA node
        return Device(id="CPU0", kind="cpu")
    return Device(id=f"CPU{numa}", kind="cpu", numa=numa)


def _devices(
    edges: Sequence[_Edge], cpus: dict[str, Device], where: str
) -> tuple[list[PciDevice], dict[str, float], dict[tuple[str, str], tuple[str, float]]]:
    """Return the GPUs and NICs in their tree, the GPUs' rates to switches, and the rates of direct links."""
    items: dict[str, PciDevice] = {}
    to_switch: dict[str, float] = {}
    direct: dict[tuple[str, str], tuple[str, float]] = {}
    stack: list[_Edge] = []
    for edge in edges:
        stack = [above for above in stack if above.depth < edge.depth]
        if edge.kind == "PCI" and edge.end in {"GPU", "NIC"}:
            items.setdefault(edge.name, _place(edge, stack, cpus, where))
        elif edge.kind == "NET" and stack and stack[-1].name in items:
            nic = items[stack[-1].name]
            rate = max(edge.rate, nic.device.network_bandwidth_bytes_per_s or 0.0)
            name = nic.device.id
            if "/" in name:  # its first port
                name = f"NIC{sum(1 for i in items.values() if i.device.kind == 'nic' and '/' not in i.device.id)}"
            model = nic.device.model or edge.name  # as NCCL calls it elsewhere
            device = Device(id=name, kind="nic", model=model, numa=nic.device.numa, network_bandwidth_bytes_per_s=rate)
            items[stack[-1].name] = dataclasses.replace(nic, device=device)
        elif edge.kind in OWN and stack and stack[-1].end == "GPU":
            if edge.end == "NVS":
                to_switch[stack[-1].name] = edge.rate
            elif edge.end == "GPU":
                low, high = sorted((stack[-1].name, edge.name))
                direct[low, high] = (OWN[edge.kind], edge.rate)
        stack.append(edge)
    return [item for item in items.values() if not item.device.id.startswith("NIC/")], to_switch, direct


def _cut_gpu(items: Sequence[PciDevice], linked: Collection[str]) -> str:
    """Return the last GPU of a picture that is cut off, where others have links of their own and it shows none."""
    gpus = [item.device.id for item in items if item.device.kind == "gpu"]
    return gpus[-1] if gpus and gpus[-1] not in linked and len(linked) else ""


def _place(edge: _Edge, stack: Sequence[_Edge], cpus: dict[str, Device], where: str) -> PciDevice:
    cpu = next((cpus[above.name] for above in stack if above.name in cpus), None)
    if cpu is None:
        raise InputError(f"{where}:{edge.number}: {edge.name} stands below no CPU")
    above = [e for e in stack if e.end == "PCI"]
    device = Device(id=edge.name, kind="gpu" if edge.end == "GPU" else "nic", numa=cpu.numa)
    bridges = (cpu.id, *(e.name for e in above))
    return PciDevice(device, bridges, edge.rate or None, above=(None, *(e.rate or None for e in above)))


def _renamed(device: Device, ids: dict[str, str], catalogue: Catalogue, gpu: str | None) -> Device:
    named = Device(id=ids[device.id], kind="gpu", numa=device.numa)
    return with_catalogue(named, gpu, catalogue) if gpu else named


def _own_links(
    gpus: Sequence[str],
    ids: dict[str, str],
    to_switch: dict[str, float],
    direct: dict[tuple[str, str], tuple[str, float]],
) -> list[Link]:
    links = []
    for a, b in itertools.combinations(gpus, 2):
        found = direct.get((a, b))
        if found is None and a in to_switch and b in to_switch:
            rate = min(to_switch[a], to_switch[b])
            links.append(Link(a=ids[a], b=ids[b], kind="NVLink", bandwidth_bytes_per_s=rate, switched=True))
        elif found is not None:
            links.append(Link(a=ids[a], b=ids[b], kind=found[0], bandwidth_bytes_per_s=found[1]))
    return links
