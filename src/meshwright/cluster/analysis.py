"""What a cluster's graph means for a job: slow pairs and why, the NIC of each GPU, affinity, bisection bandwidth."""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from .builders import bisection_bytes_per_s
from .cuts import balanced_cut
from .graph import Cluster, Link
from .paths import MEANING, SLOW, is_switched, nvlink_count, rank
from .proximity import advice as closer


class SlowPairs(msgspec.Struct, frozen=True):
    """GPU pairs of one kind of link, and why they are slow."""

    kind: str
    pairs: tuple[tuple[str, str], ...]
    why: str


class Analysis(msgspec.Struct, frozen=True):
    """What follows from the graph."""

    slow: tuple[SlowPairs, ...]
    nic_of_gpu: dict[str, tuple[str, str]]  # GPU: (NIC, kind of path)
    bisection_bytes_per_s: float | None  # between the GPUs of one host, per direction; None where a rate is unknown
    bind: dict[str, str]  # GPU: CPUs that its process belongs on
    advice: tuple[str, ...]


def analyse(cluster: Cluster) -> Analysis:
    """Return what a user should know of the devices and links of a cluster."""
    gpus = cluster.of_kind("gpu")
    slow = slow_pairs(cluster)
    nics = nic_of_gpu(cluster)
    bind = {gpu.id: gpu.cpu_affinity for gpu in gpus if gpu.cpu_affinity}
    bisection = gpu_bisection_bytes_per_s(cluster) if gpus else bisection_bytes_per_s(cluster)
    return Analysis(slow, nics, bisection, bind, tuple(_advice(cluster, slow, nics)))


def slow_pairs(cluster: Cluster) -> tuple[SlowPairs, ...]:
    """Return the GPU pairs that a job should not put tensor parallelism on: PCIe through a CPU, or fewer NVLinks."""
    links = gpu_links(cluster)
    best = max((nvlink_count(link.kind) for link in links), default=0)
    found = []
    for kind in sorted({link.kind for link in links}, key=lambda k: (rank(k), -nvlink_count(k))):
        pairs = tuple((link.a, link.b) for link in links if link.kind == kind)
        count = nvlink_count(kind)
        if kind in SLOW:
            found.append(SlowPairs(kind, pairs, MEANING[kind]))
        elif count and count < best:
            found.append(SlowPairs(kind, pairs, f"{count} of the {best} NVLinks that other pairs have"))
        elif best and not count and rank(kind):
            found.append(SlowPairs(kind, pairs, f"PCIe, while other pairs have NVLink: {MEANING[kind]}"))
    return tuple(found)


def nic_of_gpu(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Return the NIC that serves each GPU best; GPUs share NICs evenly where several are equally near."""
    kinds = {device.id: device.kind for device in cluster.devices}
    near: dict[str, list[tuple[int, str, str]]] = {}
    for link in cluster.links:
        ends = {kinds.get(link.a): link.a, kinds.get(link.b): link.b}
        if set(ends) == {"gpu", "nic"}:
            near.setdefault(ends["gpu"], []).append((rank(link.kind), ends["nic"], link.kind))
    used: Counter[str] = Counter()
    chosen = {}
    order = {device.id: i for i, device in enumerate(cluster.devices)}
    for gpu in sorted(near, key=lambda g: order[g]):
        _, nic, kind = min(near[gpu], key=lambda c: (c[0], used[c[1]], order[c[1]]))
        used[nic] += 1
        chosen[gpu] = (nic, kind)
    return chosen


def gpu_links(cluster: Cluster) -> list[Link]:
    """Return the links between two GPUs."""
    gpus = {device.id for device in cluster.of_kind("gpu")}
    return [link for link in cluster.links if link.a in gpus and link.b in gpus]


def gpu_bisection_bytes_per_s(cluster: Cluster) -> float | None:
    """Return the rate per direction between two halves of the GPUs at the worst cut; None if a rate is unknown.

    Behind a switch each GPU brings its own rate once. PCIe pairs count by the link of each GPU, since all its pairs
    share it, and are an upper bound where the path crosses a CPU.
    """
    gpus, links = cluster.of_kind("gpu"), gpu_links(cluster)
    if len(gpus) < 2 or not links:
        return None
    number = {gpu.id: i for i, gpu in enumerate(gpus)}
    own = [link for link in links if not rank(link.kind)]
    counts = {numbered_pair(number, link): nvlink_count(link.kind) for link in own if nvlink_count(link.kind)}
    joined = own if own else links
    if any(link.bandwidth_bytes_per_s is None for link in joined):
        return None
    rates = {numbered_pair(number, link): link.bandwidth_bytes_per_s or 0.0 for link in joined}
    if is_switched(counts, len(gpus)) or not own:
        return len(gpus) // 2 * min(rates.values())
    return balanced_cut(len(gpus), rates)


def _advice(cluster: Cluster, slow: Sequence[SlowPairs], nics: dict[str, tuple[str, str]]) -> list[str]:
    advice = []
    total = len(gpu_links(cluster))
    for group in slow:
        example = "-".join(group.pairs[0])
        advice.append(f"{len(group.pairs)} of {total} GPU pairs are {group.kind} ({example}): {group.why}")
    far = {gpu: nic for gpu, nic in nics.items() if nic[1] in SLOW}
    for gpu, (nic, kind) in far.items():
        advice.append(f"{gpu} reaches its nearest NIC {nic} over {kind}: {MEANING[kind]}")
    by_numa = Counter(gpu.numa for gpu in cluster.of_kind("gpu"))
    if len(by_numa) > 1 and None not in by_numa:
        groups = ", ".join(f"{count} on node {numa}" for numa, count in sorted(by_numa.items(), key=str))
        advice.append(f"GPUs sit on {len(by_numa)} NUMA nodes ({groups}): bind each rank to its GPU's node")
    spread = closer(cluster, [place.node for place in cluster.placements])
    return [*advice, spread] if spread else advice


def numbered_pair(number: Mapping[str, int], link: Link) -> tuple[int, int]:
    """Return the numbers of a link's ends, the smaller first."""
    a, b = sorted((number[link.a], number[link.b]))
    return a, b
