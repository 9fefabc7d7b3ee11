"""A cluster's graph judged for a job: slow pairs and why, the NIC of each GPU, affinity, bisection bandwidth."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set

import msgspec

from ..units import counted, first_few, format_rate
from .builders import bisection_bytes_per_s
from .cuts import least_cut
from .domains import Domain, domains, own_links
from .graph import Cluster, Link
from .nics import nic_of_gpu, undecided
from .paths import MEANING, PCIE_ORDER, SLOW, is_own, nvlink_count, rank
from .proximity import placement_advice as closer
from .verdicts import verdicts

MANY = 4  # GPUs with a NIC each, from which on a host has switches between them


class SlowPairs(msgspec.Struct, frozen=True):
    """GPU pairs of one kind of link, and why they are slow."""

    kind: str
    pairs: tuple[tuple[str, str], ...]
    why: str


class Analysis(msgspec.Struct, frozen=True):
    """The conclusions from the graph."""

    slow: tuple[SlowPairs, ...]
    nic_of_gpu: dict[str, tuple[str, str]]  # GPU: (NIC, kind of path)
    bisection_bytes_per_s: float | None  # between the GPUs of one host, per direction; None where a rate is unknown
    bind: dict[str, str]  # GPU: CPUs that its process belongs on
    advice: tuple[str, ...]
    verdicts: tuple[str, ...] = ()  # what is broken or badly built, by name; nothing on a healthy machine


def analyse(cluster: Cluster) -> Analysis:
    """Return what a user should know of the devices and links of a cluster."""
    gpus = cluster.of_kind("gpu")
    slow = slow_pairs(cluster)
    nics = nic_of_gpu(cluster)
    bind = {gpu.id: gpu.cpu_affinity for gpu in gpus if gpu.cpu_affinity}
    bisection = gpu_bisection_bytes_per_s(cluster) if gpus else bisection_bytes_per_s(cluster)
    return Analysis(slow, nics, bisection, bind, tuple(_advice(cluster, slow, nics)), verdicts(cluster, nics))


def slow_pairs(cluster: Cluster) -> tuple[SlowPairs, ...]:
    """Return the GPU pairs that a job should not put tensor parallelism on: PCIe through a CPU, or fewer NVLinks."""
    links = gpu_links(cluster)
    numa = {gpu.id: gpu.numa for gpu in cluster.of_kind("gpu")}
    own = sorted({re.sub(r"NV\d+", "NVLink", link.kind) for link in links if is_own(link.kind)})
    best = max((nvlink_count(link.kind) for link in links), default=0)
    found = []
    for kind in sorted({link.kind for link in links}, key=lambda k: (rank(k), -nvlink_count(k))):
        pairs = tuple((link.a, link.b) for link in links if link.kind == kind)
        count = nvlink_count(kind)
        if kind in SLOW:
            found.append(SlowPairs(kind, pairs, MEANING[kind]))
        elif count and count < best:
            found.append(SlowPairs(kind, pairs, f"{count} of the {best} NVLinks that other pairs have"))
        elif kind in PCIE_ORDER and (own or kind == "PCIe"):
            why = f"PCIe, while other pairs have {' and '.join(own)}: {MEANING[kind]}" if own else MEANING[kind]
            across = all(None not in (numa[a], numa[b]) and numa[a] != numa[b] for a, b in pairs)
            found.append(SlowPairs(kind, pairs, why + (", between the sockets" if across else "")))
    return tuple(found)


def mesh_rates(cluster: Cluster) -> list[float]:
    """Return what each GPU has to all its peers together where links join them in pairs and all rates are known."""
    parts = domains(cluster.of_kind("gpu"), gpu_links(cluster))
    rates = [rate for part in parts if part.switched is False and len(part.gpus) > 2 for rate in part.rates.values()]
    return [rate for rate in rates if rate] if all(rates) else []


def gpu_links(cluster: Cluster) -> list[Link]:
    """Return the links between two GPUs."""
    gpus = {device.id for device in cluster.of_kind("gpu")}
    return [link for link in cluster.links if link.a in gpus and link.b in gpus]


def gpu_bisection_bytes_per_s(cluster: Cluster) -> float | None:
    """Return the rate per direction between two halves of the GPUs at the worst cut.

    None if a rate is unknown, or where GPUs of several hosts are joined by the network between them only.

    Behind a switch each GPU brings its own rate once, in a mesh each pair its link. GPUs that no link of their own
    joins meet over PCIe: each brings its best rate to a peer across the cut, and all behind one PCIe switch together
    no more than its link to the others, taken to be as wide as a GPU's own; which is an upper bound.
    """
    gpus, links = cluster.of_kind("gpu"), gpu_links(cluster)
    if len(gpus) < 2 or not links:
        return None
    number = {gpu.id: i for i, gpu in enumerate(gpus)}
    nodes = {gpu.id: gpu.node for gpu in gpus}
    if len(set(nodes.values())) > 1 and all(nodes[link.a] == nodes[link.b] for link in links):
        return None
    parts = domains(gpus, links)
    joined = own_links(links)
    apart = {g: i for i, part in enumerate(parts) for g in part.gpus}
    pcie = [link for link in links if not is_own(link.kind) and apart[link.a] != apart[link.b]]
    if any(link.bandwidth_bytes_per_s is None for link in (*joined, *pcie)):
        return None
    if any(part.switched is None for part in parts):
        return None
    if len(parts) == 1 and parts[0].switched:  # the weaker half decides
        return sum(sorted(rate or 0.0 for rate in parts[0].rates.values())[: len(gpus) // 2])
    return least_cut(len(gpus), _Crossing(number, parts, joined, pcie, behind_pcie_switches(links)))


def behind_pcie_switches(links: Sequence[Link]) -> list[set[str]]:
    """Return the GPUs that share a PCIe switch with others, a set for each switch."""
    found: list[set[str]] = []
    for link in links:
        if link.kind == "PIX":
            joined = [one for one in found if one & {link.a, link.b}]
            found = [one for one in found if one not in joined] + [set().union({link.a, link.b}, *joined)]
    return found


class _Crossing:
    """The rate across a cut, given one half of the GPUs by their numbers."""

    def __init__(
        self,
        number: Mapping[str, int],
        parts: Sequence[Domain],
        own: Sequence[Link],
        pcie: Sequence[Link],
        switches: Sequence[set[str]],
    ) -> None:
        self._switched = [
            {number[gpu]: rate or 0.0 for gpu, rate in part.rates.items()} for part in parts if part.switched
        ]
        behind = {gpu for part in parts if part.switched for gpu in part.gpus}
        self._mesh = [_numbered(number, link) for link in own if link.a not in behind]
        self._pcie = [_numbered(number, link) for link in pcie]
        shared = [{number[gpu] for gpu in one} for one in switches]
        alone = set(number.values()).difference(*shared)
        self._sharing = [*shared, *({gpu} for gpu in alone)]

    def __call__(self, half: set[int]) -> float:
        total = sum(rate for a, b, rate in self._mesh if (a in half) != (b in half))
        for part in self._switched:
            inside = sum(rate for gpu, rate in part.items() if gpu in half)
            total += min(inside, sum(part.values()) - inside)
        best: dict[int, float] = {}  # over PCIe, of each GPU to a peer across the cut
        for a, b, rate in self._pcie:
            if (a in half) != (b in half):
                best[a], best[b] = max(best.get(a, 0.0), rate), max(best.get(b, 0.0), rate)
        rest = best.keys() - half
        return total + min(self._leaving(best, half), self._leaving(best, rest))

    def _leaving(self, best: Mapping[int, float], side: Set[int]) -> float:
        """Return what leaves one side over PCIe: of a switch that is wholly there what its one link carries."""
        total = 0.0
        for gpus in self._sharing:
            rates = [best[gpu] for gpu in gpus & side if gpu in best]
            total += max(rates, default=0.0) if gpus <= side else sum(rates)
        return total


def _numbered(number: Mapping[str, int], link: Link) -> tuple[int, int, float]:
    return number[link.a], number[link.b], link.bandwidth_bytes_per_s or 0.0


HIDDEN = (
    ", or so it looks where a virtual machine hides the PCIe switches between them: on Azure NCCL_TOPO_FILE says what "
    "the tree is (/opt/microsoft/*topo.xml); whether GPUDirect RDMA passes a CPU, this does not tell"
)


def _looks_hidden(nics: Mapping[str, tuple[str, str]]) -> bool:
    """Return whether every GPU has a NIC of its own, and none over a switch: hosts are seldom built like this."""
    kinds, served = {kind for _, kind in nics.values()}, {nic for nic, _ in nics.values()}
    return kinds in ({"NODE"}, {"PHB"}) and len(served) == len(nics) >= MANY


def _built_without_links(cluster: Cluster) -> str:
    """Return that cards have no links of their own by their kind, in words, "" where they have or it is not known."""
    gpus, links = cluster.of_kind("gpu"), gpu_links(cluster)
    models = {gpu.model for gpu in gpus}
    if not links or len(models) > 1 or any(gpu.own_links != 0 for gpu in gpus) or any(is_own(k.kind) for k in links):
        return ""
    return (
        f"{models.pop()} has no NVLink or other link of its own to peers: PCIe alone is how it is built, and no fault"
    )


def _advice(cluster: Cluster, slow: Sequence[SlowPairs], nics: dict[str, tuple[str, str]]) -> list[str]:
    advice = []
    total = len(gpu_links(cluster))
    for group in slow:
        example = "-".join(group.pairs[0])
        advice.append(f"{len(group.pairs)} of {total} GPU pairs are {group.kind} ({example}): {group.why}")
    for kind in sorted(SLOW, key=rank):
        far = {gpu: nic for gpu, (nic, path) in nics.items() if path == kind}
        reach = "each reach their" if len(far) > 1 else "reaches its"
        if far:
            shown = ", ".join(f"{gpu} {nic}" for gpu, nic in list(far.items())[:8]) + (", ..." if len(far) > 8 else "")
            advice.append(
                f"{len(far)} of {counted(len(nics), 'GPU')} {reach} NIC over {kind} ({shown}): {MEANING[kind]}"
                f"{HIDDEN if _looks_hidden(nics) else ''}"
            )
    if open_gpus := undecided(cluster, nics):
        advice.append(
            f"{first_few(open_gpus, 8)}: every NIC is SYS away: which of them serves which GPU is not told; the rates "
            "of NICs (ibstat) and their NUMA nodes (lstopo, lspci -vv) tell"
        )
    if said := _built_without_links(cluster):
        advice.append(said)
    if said := _ring_of_all(cluster):
        advice.append(said)
    if said := _groups_apart(cluster):
        advice.append(said)
    if said := _sharing(cluster):
        advice.append(said)
    by_numa = Counter(gpu.numa for gpu in cluster.of_kind("gpu"))
    if len(by_numa) > 1 and None not in by_numa:
        groups = ", ".join(f"{count} on node {numa}" for numa, count in sorted(by_numa.items(), key=str))
        advice.append(f"GPUs sit on {len(by_numa)} NUMA nodes ({groups}): bind each rank to its GPU's node")
    spread = closer(cluster, [place.node for place in cluster.placements])
    return [*advice, spread] if spread else advice


def _ring_of_all(cluster: Cluster) -> str:
    """Return what a ring over all GPUs of a host is bound by where some are joined and not all, in words."""
    gpus, links = cluster.of_kind("gpu"), gpu_links(cluster)
    parts = domains(gpus, links)
    if len({gpu.node for gpu in gpus}) > 1 or not 1 < len(parts) < len(gpus):
        return ""
    apart = {gpu: i for i, part in enumerate(parts) for gpu in part.gpus}
    between = [link for link in links if apart[link.a] != apart[link.b]]
    rates = [link.bandwidth_bytes_per_s for link in between if link.bandwidth_bytes_per_s is not None]
    if not between:
        return ""
    bound = f", at most {format_rate(max(rates))} per direction" if len(rates) == len(between) else ""
    return f"a ring over all {len(gpus)} GPUs leaves their own links for PCIe{bound}: it bounds collectives of them all"


def _groups_apart(cluster: Cluster) -> str:
    """Return the groups of GPUs that their own links join among themselves alone, in words; "" for a single one."""
    gpus = cluster.of_kind("gpu")
    groups = [part for part in domains(gpus, gpu_links(cluster)) if len(part.gpus) > 1]
    if len({gpu.node for gpu in gpus}) > 1 or len(groups) < 2:
        return ""
    shown = first_few([f"{', '.join(group.gpus)}{_as_built(cluster, group)}" for group in groups], 8, "; ")
    return f"{len(groups)} groups of GPUs that links of their own join: {shown}; a job on fewer GPUs belongs inside one"


def _as_built(cluster: Cluster, group: Domain) -> str:
    """Return that the GPUs of a group use every link that they have, one to each peer, in words; else ""."""
    have = {gpu.own_links for gpu in cluster.of_kind("gpu") if gpu.id in group.gpus}
    own = [link for link in gpu_links(cluster) if link.a in group.gpus and link.b in group.gpus and is_own(link.kind)]
    peers = len(group.gpus) - 1
    whole = have == {peers} and len(own) == len(group.gpus) * peers // 2 and not any(nvlink_count(k.kind) for k in own)
    return " (all of their links are in use)" if whole else ""


def _sharing(cluster: Cluster) -> str:
    """Return which GPUs meet all others through the one link of a PCIe switch, in words; "" where none do."""
    gpus, links = [gpu.id for gpu in cluster.of_kind("gpu")], gpu_links(cluster)
    outside = [
        one
        for one in behind_pcie_switches(links)
        if (beyond := [link for link in links if len({link.a, link.b} & one) == 1])
        and not any(is_own(link.kind) for link in beyond)
    ]
    if not outside:
        return ""
    shown = "; ".join(", ".join(gpu for gpu in gpus if gpu in one) for one in outside)
    return f"GPUs behind a PCIe switch share its link to the others ({shown}), taken to be as wide as one GPU's"


def numbered_pair(number: Mapping[str, int], link: Link) -> tuple[int, int]:
    """Return the numbers of a link's ends, the smaller first."""
    a, b = sorted((number[link.a], number[link.b]))
    return a, b
