"""NICs that carry the traffic of GPUs, told from those for management beside them by their rates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .graph import Cluster, Device, Link
from .paths import rank

SLOW_SHARE = 0.5  # of the fastest NIC's rate: one that carries no more is for management or storage
AS_FAST = 0.9  # of a rate; paths of one machine differ by less through their slots


class NicWay(NamedTuple):
    """A NIC, the kind of path to it, and the rate of the slower of the two per direction; None where it is unknown."""

    nic: str
    kind: str
    bytes_per_s: float | None


def nic_of_gpu(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Return for each GPU the NIC that serves it best, and the kind of path to it.

    The fastest NICs serve, of those the nearest; GPUs share NICs evenly where several are as fast and as near. Rates
    count only where those of all NICs of a GPU are known. A GPU to which all are far has the one of a GPU of its NUMA
    node; it is left out where nothing tells one NIC from another (`undecided`).
    """
    ways = {gpu: best_ways(its) for gpu, its in _ways(cluster).items()}
    near = {way.nic: gpu for gpu, its in ways.items() if not _is_far(its) for way in its}
    numa = {device.id: device.numa for device in cluster.devices}
    numa |= {nic: numa[gpu] for nic, gpu in near.items() if numa[nic] is None}
    order = {device.id: i for i, device in enumerate(cluster.devices)}
    used: Counter[str] = Counter()
    chosen = {}
    for gpu in sorted(ways, key=lambda g: (_is_far(ways[g]), order[g])):
        beside = {way.nic: numa[gpu] is not None and numa[way.nic] == numa[gpu] for way in ways[gpu]}
        best = min(ways[gpu], key=lambda w: (w.nic not in near, not beside[w.nic], used[w.nic], order[w.nic]))
        told = best.nic in near or beside[best.nic] or best.bytes_per_s or len(ways[gpu]) == 1
        if told or not _is_far(ways[gpu]):
            used[best.nic] += 1
            chosen[gpu] = (best.nic, best.kind)
    return {gpu: chosen[gpu] for gpu in sorted(chosen, key=lambda g: order[g])}


def undecided(cluster: Cluster, nics: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return the GPUs to which all NICs are equally far, so that nothing tells which one serves them."""
    return [gpu for gpu in _ways(cluster) if gpu not in nics]


def _ways(cluster: Cluster) -> dict[str, list[NicWay]]:
    """Return the ways of each GPU to every NIC that has a link to it."""
    kinds = {device.id: device.kind for device in cluster.devices}
    rates = {nic.id: nic.network_bandwidth_bytes_per_s for nic in cluster.of_kind("nic")}
    ways: dict[str, list[NicWay]] = {}
    for link in cluster.links:
        ends = {kinds.get(link.a): link.a, kinds.get(link.b): link.b}
        if set(ends) == {"gpu", "nic"}:
            ways.setdefault(ends["gpu"], []).append(nic_way(ends["nic"], link, rates[ends["nic"]]))
    return ways


def _is_far(ways: Sequence[NicWay]) -> bool:
    """Return whether the best ways of a GPU cross the sockets."""
    return all(rank(way.kind) >= rank("SYS") for way in ways)


def nic_way(nic: str, link: Link, bytes_per_s: float | None) -> NicWay:
    """Return the way over a link to a NIC of that rate."""
    path = link.bandwidth_bytes_per_s
    return NicWay(nic, link.kind, min(bytes_per_s, path) if bytes_per_s and path else bytes_per_s)


def best_ways(ways: Sequence[NicWay]) -> list[NicWay]:
    """Return the ways to the NICs of a GPU that are as fast and as near as any; by nearness alone without rates."""
    if not all(way.bytes_per_s for way in ways):
        return _nearest(ways)
    near = _nearest(_at_least(ways, SLOW_SHARE))
    return _at_least(near, AS_FAST)


def _nearest(ways: Sequence[NicWay]) -> list[NicWay]:
    nearest = min(rank(way.kind) for way in ways)
    return [way for way in ways if rank(way.kind) == nearest]


def _at_least(ways: Sequence[NicWay], share: float) -> list[NicWay]:
    """Return the ways that carry more than a share of what the fastest does."""
    fastest = max(way.bytes_per_s or 0.0 for way in ways)
    return [way for way in ways if (way.bytes_per_s or 0.0) > share * fastest]


def carrying_nics(cluster: Cluster, node: str) -> list[Device]:
    """Return the NICs of a node without those for management; all of them where a rate is not known."""
    nics = [nic for nic in cluster.of_kind("nic") if nic.node == node]
    rates = [nic.network_bandwidth_bytes_per_s or 0.0 for nic in nics]
    if not all(rates):
        return nics
    return [nic for nic, rate in zip(nics, rates, strict=True) if rate > SLOW_SHARE * max(rates)]
