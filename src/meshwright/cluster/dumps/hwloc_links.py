"""The bandwidth matrices of hwloc's XML: NVLink between GPUs, to switches and to CPUs, and xGMI."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import InputError
from ...hardware import Catalogue
from ..discovery.local import parse_cores
from ..graph import Device, Link
from .xml import Element

Matrix = dict[tuple[str, str], int]
SELF_MB_PER_S = 1_000_000  # what hwloc writes on the diagonal
MAX_OBJECTS = 2048


@dataclass(slots=True)
class Objects:
    """The kinds of the file's objects, by gp_index."""

    devices: dict[str, str] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    packages: dict[str, set[int]] = field(default_factory=dict)  # to CPUs
    pci_ids: dict[str, str] = field(default_factory=dict)  # of a device


def bandwidth_links(
    root: Element,
    objects: Objects,
    models: Mapping[str, str],
    cpus: Sequence[Device],
    catalogue: Catalogue,
    where: str,
) -> tuple[list[Link], list[str]]:
    """Return the links that the file's matrices describe, and warnings.

    NVLinkBandwidth is in MB/s per direction. hwloc writes 100,000 MB/s for every xGMI link, whatever it is: there the
    model says the rate.
    """
    links: list[Link] = []
    warnings: list[str] = []
    for name, matrix in _matrices(root, where):
        if name == "NVLinkBandwidth":
            links += _nvlinks(matrix, objects, models, cpus, catalogue)
        elif name == "XGMIBandwidth":
            found, said = _xgmi_links(matrix, objects, models, catalogue)
            links, warnings = [*links, *found], [*warnings, *said]
    return list({frozenset((k.a, k.b)): k for k in links}.values()), warnings


def _matrices(root: Element, where: str) -> Iterator[tuple[str, Matrix]]:
    """Yield the name and the values of each matrix of distances between objects, by gp_index."""
    for element in root.named("distances2", "distances2hetero"):
        here = f"{where}:{element.line}"
        if element.attributes.get("indexing") == "os":
            continue
        indexes = [w.rpartition(":")[2] for part in element.named("indexes") for w in part.text.split()]
        words = [w for part in element.named("u64values") for w in part.text.split()]
        if len(indexes) > MAX_OBJECTS or len(words) != len(indexes) ** 2:
            raise InputError(f"{here}: {len(words)} values for {len(indexes)} objects, expected {len(indexes) ** 2}")
        if not all(word.isdecimal() and len(word) < 20 for word in words):
            raise InputError(f"{here}: u64values: expected whole numbers")
        pairs = itertools.product(indexes, indexes)
        yield element.attributes.get("name", ""), {p: int(w) for p, w in zip(pairs, words, strict=True) if int(w)}


def _nvlinks(
    matrix: Matrix, objects: Objects, models: Mapping[str, str], cpus: Sequence[Device], catalogue: Catalogue
) -> Iterator[Link]:
    direct: dict[tuple[str, str], int] = {}
    to_switches: dict[str, int] = {}
    for (a, b), megabytes in matrix.items():
        first, second = objects.devices.get(a), objects.devices.get(b)
        if first is None or (megabytes >= SELF_MB_PER_S and a == b):
            continue
        if b in objects.switches:
            to_switches[first] = to_switches.get(first, 0) + megabytes
        elif second is not None and first < second:
            direct[first, second] = megabytes
        elif b in objects.packages and (cpu := _cpu_of(objects.packages[b], cpus)):
            rate = megabytes * 1e6
            yield Link(a=first, b=cpu, kind=_kind(models[first], rate, catalogue), bandwidth_bytes_per_s=rate)
    switched = set(itertools.combinations(sorted(to_switches), 2)) - direct.keys()
    direct |= {(a, b): min(to_switches[a], to_switches[b]) for a, b in switched}
    order = {name: i for i, name in enumerate(models)}
    for a, b in sorted(direct, key=lambda pair: sorted((order[pair[0]], order[pair[1]]))):
        low, high = sorted((a, b), key=order.__getitem__)
        rate, kind = direct[a, b] * 1e6, _kind(models[a], direct[a, b] * 1e6, catalogue)
        yield Link(a=low, b=high, kind=kind, bandwidth_bytes_per_s=rate, switched=(a, b) in switched)


def _kind(model: str, bytes_per_s: float, catalogue: Catalogue) -> str:
    """Return NV and the number of links where the model says what one carries, "NVLink" otherwise."""
    accelerator = catalogue.accelerators.get(model)
    if accelerator is None or accelerator.link is None:
        return "NVLink"
    return f"NV{max(1, round(bytes_per_s / catalogue.interconnect(accelerator.link).link_bytes_per_s))}"


def _xgmi_links(
    matrix: Matrix, objects: Objects, models: Mapping[str, str], catalogue: Catalogue
) -> tuple[list[Link], list[str]]:
    links, warnings = [], list[str]()
    for a, b in matrix:
        first, second = objects.devices.get(a), objects.devices.get(b)
        if first is None or second is None or first >= second:
            continue
        accelerator = catalogue.accelerators.get(models[first])
        link = catalogue.interconnect(accelerator.link) if accelerator and accelerator.link else None
        rate = link.peer_rate.number if link and link.peer_rate else None
        if rate is None:
            warnings = ["xGMI: hwloc writes the same rate for every pair; say the device with --gpu NAME, or measure"]
        links.append(Link(a=first, b=second, kind="xGMI", bandwidth_bytes_per_s=rate))
    return links, warnings


def _cpu_of(package: set[int], cpus: Sequence[Device]) -> str | None:
    """Return the first CPU device that lies in a package."""
    return next((cpu.id for cpu in cpus if set(parse_cores(cpu.cpu_affinity or "")) & package), None)
