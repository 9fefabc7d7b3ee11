"""The arrangement of a machine's drawing: NUMA nodes, PCIe switches, a GPU and its NIC together."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..domains import Domain, domains, odd_pairs
from ..graph import Cluster, Device, Link
from ..paths import is_own

ON_ONE_SWITCH = frozenset({"PIX", "PSB", "PXB"})  # paths that meet no CPU
LARGE = 3  # GPUs of a domain, beside which one that is in none has lost its links
FEWER_SHARE = 0.95  # of the best GPU of a domain: one whose links carry less has lost some


class SwitchGroup(NamedTuple):
    """GPUs and NICs behind one PCIe switch, or one device that is behind none."""

    gpus: tuple[Device, ...]
    nics: tuple[Device, ...]
    switched: bool


class Numa(NamedTuple):
    """The devices next to one NUMA node; `number` is None for devices of which no source says where they are."""

    number: int | None
    groups: tuple[SwitchGroup, ...]
    cpus: tuple[Device, ...]  # and memory that stands alone


class HostArrangement(NamedTuple):
    """One host: its NUMA nodes, the switches of its GPU links, and the sets of GPUs that these links join."""

    name: str
    numas: tuple[Numa, ...]
    switches: tuple[Device, ...]
    domains: tuple[Domain, ...]
    links: tuple[Link, ...]


def arranged_hosts(cluster: Cluster, most_devices: int) -> tuple[list[HostArrangement], int]:
    """Return the hosts of a cluster in order, whole ones up to `most_devices`, and how many devices are left out."""
    by_node: dict[str, list[Device]] = {}
    for device in cluster.devices:
        by_node.setdefault(device.node, []).append(device)
    alone = by_node.pop("", []) if len(by_node) > 1 else []
    found: list[HostArrangement] = []
    drawn = 0
    for name, devices in by_node.items():
        if found and drawn + len(devices) > most_devices:
            break
        found.append(_machine(name, devices[:most_devices], cluster.links))
        drawn += min(len(devices), most_devices)
    return found, len(cluster.devices) - drawn - len(alone)


def _machine(name: str, devices: Sequence[Device], links: Iterable[Link]) -> HostArrangement:
    ids = {device.id for device in devices}
    inside = tuple(link for link in links if link.a in ids and link.b in ids)
    gpus = [device for device in devices if device.kind == "gpu"]
    gpu_ids = {gpu.id for gpu in gpus}
    numbers = sorted({d.numa for d in devices if d.kind != "switch"}, key=lambda n: (n is None, n))
    return HostArrangement(
        name=name,
        numas=tuple(_numa(number, [d for d in devices if d.numa == number], inside) for number in numbers),
        switches=tuple(device for device in devices if device.kind == "switch"),
        domains=tuple(
            domain
            for domain in domains(gpus, [link for link in inside if link.a in gpu_ids and link.b in gpu_ids])
            if len(domain.gpus) > 1
        ),
        links=inside,
    )


def _numa(number: int | None, devices: Sequence[Device], links: Sequence[Link]) -> Numa:
    ends = [device for device in devices if device.kind in {"gpu", "nic"}]
    group_of = {device.id: index for index, device in enumerate(ends)}
    for link in links:
        if link.kind in ON_ONE_SWITCH and link.a in group_of and link.b in group_of:
            old, new = sorted((group_of[link.a], group_of[link.b]), reverse=True)
            group_of = {name: new if group == old else group for name, group in group_of.items()}
    groups = []
    for _, members in itertools.groupby(sorted(ends, key=lambda d: group_of[d.id]), key=lambda d: group_of[d.id]):
        found = tuple(members)
        groups.append(
            SwitchGroup(
                tuple(device for device in found if device.kind == "gpu"),
                tuple(device for device in found if device.kind == "nic"),
                len(found) > 1,
            )
        )
    return Numa(number, tuple(groups), tuple(d for d in devices if d.kind in {"cpu", "memory"}))


def sick(machine: HostArrangement) -> dict[str, str]:
    """Return what is wrong with the links of each GPU that has fewer or slower ones than its peers."""
    found: dict[str, str] = {}
    joined = {gpu for domain in machine.domains for gpu in domain.gpus}
    if any(len(domain.gpus) >= LARGE for domain in machine.domains):
        alone = [gpu.id for numa in machine.numas for group in numa.groups for gpu in group.gpus]
        found |= {gpu: "no link to any peer" for gpu in alone if gpu not in joined}
    for domain in machine.domains:
        most = max(domain.links.values(), default=0)
        best = max((rate or 0.0 for rate in domain.rates.values()), default=0.0)
        for gpu in domain.gpus if domain.switched else ():
            count, rate = domain.links.get(gpu, 0), domain.rates.get(gpu)
            if count < most:
                found[gpu] = f"{count} of {most} links"
            elif rate is not None and rate < FEWER_SHARE * best:
                found[gpu] = f"{rate / best:.0%} of the best"
        for a, b, count, usual in odd_pairs(domain, machine.links):
            found |= {a: f"{count} of {usual} to {_tail(b)}", b: f"{count} of {usual} to {_tail(a)}"}
    return found


def _tail(name: str) -> str:
    return name.rpartition("/")[2]


def is_even(domain: Domain, links: Iterable[Link]) -> bool:
    """Return whether every pair of a domain has a link of its own, all of one kind and rate."""
    members = set(domain.gpus)
    own = [link for link in links if link.a in members and link.b in members and is_own(link.kind)]
    pairs = {frozenset((link.a, link.b)) for link in own}
    kinds = {(link.kind, link.bandwidth_bytes_per_s) for link in own}
    return len(kinds) == 1 and len(pairs) == len(members) * (len(members) - 1) // 2
