"""Evidence on single GPUs in a text: their names, their NVLinks' rates, memory, PCIe lanes and NVLink domain.

Such are `nvidia-smi -L`, its table, `nvidia-smi -q` (also -x), its --query-gpu, `nvidia-smi nvlink -s` and environment
reports. They say nothing of pairs, but settle what a matrix leaves open.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ...hardware import Catalogue
from ...units import counted
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device, Link
from .names import LISTED, LISTING, gpu_names, mig_parts, unnumbered_names
from .nvlink_errors import NvlinkErrors
from .pcie_generations import Generation, generation_notes, slower_generation
from .query_gpu import facts_by_gpu
from .xml import Element

LINK = re.compile(r"^\s*Link (\d+): (?:([\d.]+) GB/s|<inactive>)\s*$")
ALL_DOWN = re.compile(r"\ball links are in-?active\b", re.I)  # said also of GPUs that never had one
QUERY_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
FIELD = re.compile(r"^(\s+)([\w /]+?)\s*(?::\s*(.*?))?\s*$")
LOST = re.compile(
    r"Unable to determine the device handle for gpu ?(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): *"
    r"(?P<why>GPU is lost|Unknown Error|Not Found)",
    re.I,
)
SAME_LINK = 0.08  # signalling adds so much at most to the rate that a link carries: 26.56 is 25, 53.1 is 50


@dataclass(slots=True)
class GpuEvidence:
    """Facts by the number of the GPU."""

    models: dict[int, str] = field(default_factory=dict)
    unnumbered: list[str] = field(default_factory=list)  # what may be names of GPUs without their numbers
    link_rates: dict[int, list[float]] = field(default_factory=dict)  # bytes per second of each NVLink that is up
    links: dict[int, int] = field(default_factory=dict)  # NVLinks, dead ones too; absent where not all are listed
    inactive: dict[int, list[int]] = field(default_factory=dict)  # the numbers of the dead ones
    memory_bytes: dict[int, int] = field(default_factory=dict)
    domains: dict[int, str] = field(default_factory=dict)
    mig: dict[int, list[str]] = field(default_factory=dict)  # instances of the GPUs that MIG splits, where listed
    generations: dict[int, Generation] = field(default_factory=dict)  # of PCIe, where slower than the link can be
    notes: list[str] = field(default_factory=list)

    @property
    def gpus(self) -> list[int]:
        """The numbers of the GPUs of which something is said."""
        return sorted({*self.models, *self.links, *self.memory_bytes, *self.domains})

    def per_link_bytes_per_s(self, catalogue: Catalogue) -> float | None:
        """Return the rate of one NVLink, as catalogues count it, where all that are up have the same."""
        told = {rate for rates in self.link_rates.values() for rate in rates}
        if len(told) != 1:
            return None
        rate = told.pop()
        known = {
            k.link_bytes_per_s for k in catalogue.interconnects.values() if k.kind == "nvlink" and k.links.number > 1
        }
        near = min(known, key=lambda other: abs(other / rate - 1))
        return near if abs(near / rate - 1) <= SAME_LINK else rate


def evidence(lines: Sequence[str]) -> GpuEvidence:
    """Return what the lines of a text say of single GPUs."""
    found = GpuEvidence(models=gpu_names(lines), unnumbered=unnumbered_names(lines), mig=mig_parts(lines))
    last: int | None = None
    numbers: dict[int, list[int]] = {}  # of each GPU, those of its links that are listed
    down: list[int] = []
    errors = NvlinkErrors()
    for line in lines:
        errors.take(last, line)
        listed, link = LISTED.match(line) or LISTING.match(line), LINK.match(line)
        if listed and listed.group(1).isdecimal():
            last = int(listed.group(1))
        elif link and last is not None:
            numbers.setdefault(last, []).append(int(link.group(1)))
            found.link_rates.setdefault(last, [])
            if link.group(2) and link.group(2).count(".") < 2 and float(link.group(2)):
                found.link_rates[last].append(float(link.group(2)) * 1e9)
            else:
                found.inactive.setdefault(last, []).append(int(link.group(1)))
        elif last is not None and ALL_DOWN.search(line):
            down.append(last)
        elif lost := LOST.search(line):
            found.notes.append(
                f"the driver has lost the GPU {lost['bus']} ({lost['why']}): it is missing here, and GPUs behind "
                "it may have other numbers"
            )
    found.notes += errors.notes()
    if any(found.link_rates.values()):
        found.notes += [f"GPU{gpu}: all of its NVLinks are inactive, and those of other GPUs are up" for gpu in down]
    for gpu, listed_links in numbers.items():
        if listed_links == list(range(len(listed_links))):
            found.links[gpu] = len(listed_links)
        else:
            found.notes.append(
                f"GPU{gpu}: some of its NVLinks are left out of the list, so that how many are up is open"
            )
    _query(lines, found)
    for number, facts in facts_by_gpu(lines):
        _facts(number, _reader(facts), found)
    found.notes += generation_notes(found.generations)
    return found


def _query(lines: Iterable[str], found: GpuEvidence) -> None:
    """Take in `nvidia-smi -q`: sections by indentation below a line for each GPU."""
    number, path = -1, list[tuple[int, str]]()
    facts: dict[tuple[str, ...], str] = {}
    for line in lines:
        if QUERY_GPU.match(line):
            if number >= 0:
                _facts(number, _reader(facts), found)
            number, path, facts = number + 1, [], {}
        elif number >= 0 and (match := FIELD.match(line)):
            indent = len(match.group(1))
            path = [part for part in path if part[0] < indent]
            if match.group(3) is None:
                path.append((indent, match.group(2)))
            else:
                facts[(*(name for _, name in path), match.group(2))] = match.group(3)
    if number >= 0:
        _facts(number, _reader(facts), found)


def _reader(facts: dict[tuple[str, ...], str]) -> Callable[[str], str]:
    """Return a function from the last parts of a path, joined by dots, to the text there, of the GPU before a part."""

    def read(name: str) -> str:
        ends = [path for path in facts if path[-name.count(".") - 1 :] == tuple(name.split("."))]
        return facts[min(ends, key=len)] if ends else ""

    return read


# where `nvidia-smi -q -x` says what `nvidia-smi -q` says elsewhere
_AS_TEXT: dict[tuple[str, ...], tuple[str, ...]] = {
    ("product_name",): ("Product Name",),
    ("fb_memory_usage", "total"): ("FB Memory Usage", "Total"),
    ("mig_mode", "current_mig"): ("MIG Mode", "Current"),
    ("fabric", "state"): ("Fabric", "State"),
    ("fabric", "status"): ("Fabric", "Status"),
    ("fabric", "cliqueId"): ("Fabric", "CliqueId"),
    ("fabric", "clusterUuid"): ("Fabric", "ClusterUUID"),
    ("health", "summary"): ("Health", "Summary"),
    ("health", "bandwidth"): ("Health", "Bandwidth"),
    ("health", "route_recovery_in_progress"): ("Health", "Route Recovery in progress"),
    ("health", "route_unhealthy"): ("Health", "Route Unhealthy"),
    ("health", "access_timeout_recovery"): ("Health", "Access Timeout Recovery"),
    ("health", "incorrect_configuration"): ("Health", "Incorrect Configuration"),
    ("pcie_gen", "max_link_gen"): ("PCIe Generation", "Max"),
    ("pcie_gen", "current_link_gen"): ("PCIe Generation", "Current"),
    ("performance_state",): ("Performance State",),
    ("link_widths", "max_link_width"): ("Link Width", "Max"),
    ("link_widths", "current_link_width"): ("Link Width", "Current"),
}


# of a GPU in its NVLink fabric, what a sound one says
_HEALTH = {
    "Summary": "Healthy",
    "Bandwidth": "Full",
    "Route Recovery in progress": "False",
    "Route Unhealthy": "False",
    "Access Timeout Recovery": "False",
    "Incorrect Configuration": "None",
}


def evidence_of_xml(root: Element) -> GpuEvidence:
    """Return what `nvidia-smi -q -x` says of single GPUs."""
    found = GpuEvidence()
    for number, gpu in enumerate(root.named("gpu")):
        facts: dict[tuple[str, ...], str] = {}
        _leaves(gpu, (), facts)
        as_text = {(*path[:-2], *_AS_TEXT.get(path[-2:], path[-2:])): text for path, text in facts.items()}
        _facts(number, _reader(as_text), found)
    found.notes += generation_notes(found.generations)
    return found


def _leaves(element: Element, path: tuple[str, ...], facts: dict[tuple[str, ...], str]) -> None:
    for child in element.children:
        if child.children:
            _leaves(child, (*path, child.name), facts)
        else:
            facts[(*path, child.name)] = child.text.strip()


def _facts(number: int, read: Callable[[str], str], found: GpuEvidence) -> None:
    if name := read("Product Name"):
        found.models.setdefault(number, name)
    memory = re.fullmatch(r"(\d{1,9}) MiB", read("FB Memory Usage.Total"))
    if memory:
        found.memory_bytes[number] = int(memory.group(1)) * 2**20
    if read("MIG Mode.Current") == "Enabled":
        found.mig.setdefault(number, [])
    uuid, clique = read("Fabric.ClusterUUID"), read("Fabric.CliqueId")
    if re.search(r"[1-9a-fA-F]", uuid) and uuid != "N/A":  # all zeros where there is none
        found.domains[number] = f"{uuid}.{clique}"
    found.notes += _fabric_faults(f"GPU{number}", read)
    if slower := slower_generation(read):
        found.generations[number] = slower
    most, now = (re.fullmatch(r"(\d{1,3})x", read(f"Link Width.{which}")) for which in ("Max", "Current"))
    if most and now and int(now.group(1)) < int(most.group(1)):
        lanes = lanes_trained(f"GPU{number}", now.group(1), most.group(1))
        again = re.fullmatch(r"[1-9]\d{0,11}", read("Replays Since Reset"))
        found.notes.append(f"{lanes}, and its link repeated {again.group()} packets" if again else lanes)


def _fabric_faults(gpu: str, read: Callable[[str], str]) -> list[str]:
    """Return that a GPU is not in its NVLink fabric, or what ails it there."""
    faults = []
    state, status = read("Fabric.State"), read("Fabric.Status")
    if state not in {"", "N/A"} and (state != "Completed" or status not in {"Success", "N/A", ""}):
        faults.append(f"{gpu} is not registered with its NVLink fabric (state {state}, status {status})")
    told = {name: read(f"Health.{name}") for name in _HEALTH}
    ills = [f"{name}: {said}" for name, said in told.items() if said not in {"", "N/A", _HEALTH[name]}]
    if ills:
        lost = ", so that its NVLinks carry less than their full rate" if told["Bandwidth"] == "Degraded" else ""
        faults.append(f"{gpu} is not sound in its NVLink fabric ({', '.join(ills)}){lost}")
    return faults


def lanes_trained(device: str, lanes: str, of: str) -> str:
    """Say that a device runs on fewer PCIe lanes than it has."""
    return f"{device} has {lanes} of {of} PCIe lanes trained"


def from_evidence(found: GpuEvidence, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the GPUs that a text describes one by one; two of them are joined by all NVLinks that both have up.

    Not where others were left out of the list (it begins past GPU 0), nor by links of which some were.
    """
    described = {n: with_facts(Device(id=f"GPU{n}", kind="gpu"), n, found, catalogue, gpu) for n in found.gpus}
    devices = list(described.values())
    links, notes = list[Link](), [*found.notes, *single_gpu_notes(found, described)]
    cut = _cut_lists(found, described)
    up = {n: len(rates) for n, rates in found.link_rates.items() if n in found.links and n not in cut}
    rate = found.per_link_bytes_per_s(catalogue)
    if found.gpus == [0, 1] and (count := min((up.get(n, 0) for n in found.gpus), default=0)):
        a, b = (device.id for device in devices)
        total_rate = count * rate if rate else None
        links.append(Link(a=a, b=b, kind=f"NV{count}", bandwidth_bytes_per_s=total_rate))
        notes.append(f"nvlink -s names no far end: taken that all {count} NVLinks join {a} and {b}")
    elif rate and up:
        for count, gpus in _by_count(up).items():
            whose = f"each of {len(gpus)} GPUs" if len(gpus) > 1 else f"GPU{gpus[0]}"
            of_gpu = f"{count * rate / 1e9:g} GB/s per direction"
            notes.append(f"{counted(count, 'NVLink')} of {rate / 1e9:g} GB/s on {whose}: {of_gpu}")
    if not links and len(devices) > 1:
        notes.append("what lies between the GPUs is not said: give the output of nvidia-smi topo -m as well")
    return Cluster(name=where, devices=tuple(devices), links=tuple(links), warnings=tuple(notes))


def _by_count(up: Mapping[int, int]) -> dict[int, list[int]]:
    """Return the GPUs by how many NVLinks of theirs are up, most of them first."""
    return {count: [n for n, links in up.items() if links == count] for count in sorted(set(up.values()), reverse=True)}


def single_gpu_notes(found: GpuEvidence, devices: Mapping[int, Device]) -> list[str]:
    """Return what is to be said of GPUs by their numbers: NVLinks that are down, and MIG."""
    notes = []
    cut = _cut_lists(found, devices)
    for n, listed in found.links.items():
        up, device = len(found.link_rates.get(n, ())), devices.get(n)
        built = device.own_links if device and device.bridged else None
        total = min(listed, built or listed)  # a card shows links of its chip that no bridge reaches
        if n in cut:
            notes.append(f"GPU{n}: {listed} of its {cut[n]} NVLinks are in the list: it was cut")
        elif up < total:
            dead = found.inactive.get(n, []) if built is None else []  # which of a card's no bridge reaches is open
            which = f" (link{'s' if len(dead) > 1 else ''} {', '.join(map(str, dead))})" if up and dead else ""
            notes.append(f"GPU{n} has {up} of {total} NVLinks up: {total - up} down{which}")
    for n, parts in sorted(found.mig.items()):
        into = f" into {', '.join(parts)}" if parts else ""
        notes.append(f"GPU{n} is split by MIG{into}: its instances have no NVLink and no peer-to-peer")
    return notes


def _cut_lists(found: GpuEvidence, devices: Mapping[int, Device]) -> dict[int, int]:
    """Return the GPUs whose list of NVLinks ends before the last that their device has, and how many it has."""
    return {
        n: device.own_links
        for n, device in devices.items()
        if device.own_links and not device.bridged and 0 < found.links.get(n, 0) < device.own_links
    }


def with_facts(device: Device, number: int, found: GpuEvidence, catalogue: Catalogue, gpu: str | None = None) -> Device:
    """Return a GPU with what is said of it by its number."""
    device = replace(
        device,
        memory_bytes=device.memory_bytes or found.memory_bytes.get(number),
        domain=device.domain or found.domains.get(number, ""),
    )
    name = gpu or found.models.get(number)
    if not name or (device.model in catalogue.accelerators and not gpu):
        return device
    key = catalogue.driver_key(name)
    return with_catalogue(device, key, catalogue) if key else replace(device, model=device.model or name)
