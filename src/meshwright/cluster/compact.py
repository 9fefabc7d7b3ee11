"""The groups of a cluster that lists its devices and links: a discovered machine as nodes that are all alike."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..errors import InputError
from ..hardware import Accelerator, Catalogue
from .analysis import gpu_links, numbered_pair
from .builders import KNOWN_LINK_NAMES, gpu_template
from .graph import Cluster, Device, Fabric, Link, NodeGroup
from .paths import is_switched, nvlink_count, rank


class _Joined(NamedTuple):
    """How the GPUs of one node reach each other; rates in bytes per second, per direction."""

    kind: str
    rate: float  # of one GPU towards all its peers together
    peer_rate: float
    switched: bool = False
    mesh: tuple[tuple[int, int, float], ...] = ()
    latency_s: float | None = None


def compact(cluster: Cluster, catalogue: Catalogue, *, where: str | None = None) -> Cluster:
    """Return the cluster with `groups` in place of its devices and links; one that has groups is returned as it is.

    What the devices do not say of their model (peaks, memory) is the catalogue's. Where a node's own GPU links do not
    join all of its GPUs, its collectives cross PCIe, and that is their link. NICs that serve GPUs count, at the rate of
    the fastest. InputError for what is missing: GPUs, their model or peaks, the rate of a link, nodes that are alike;
    `where` (a file) opens its message.
    """
    if cluster.groups:
        return cluster
    where = where or cluster.name
    by_node: dict[str, list[Device]] = {}
    for gpu in cluster.of_kind("gpu"):
        by_node.setdefault(gpu.node, []).append(gpu)
    if not by_node:
        kinds = Counter(device.kind for device in cluster.devices)
        found = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "no devices"
        raise InputError(f"{where}: has no GPUs to plan for (it lists {found}); expected a machine with GPUs")
    groups = [_group(where, cluster, gpus, catalogue) for gpus in by_node.values()]
    different = [group for group in groups if group != groups[0]]
    if different:
        names = f"{next(iter(by_node))} and {list(by_node)[groups.index(different[0])]}"
        raise InputError(f"{where}: {names} differ; plan needs nodes that are all alike")
    group = replace(groups[0], count=len(groups))
    return replace(cluster, devices=(), links=(), groups=(group,), fabric=cluster.fabric or Fabric())


def _group(where: str, cluster: Cluster, gpus: Sequence[Device], catalogue: Catalogue) -> NodeGroup:
    """Return one node: `gpus` and the NICs that serve them."""
    accelerator = _accelerator(where, gpus, catalogue)
    own = {gpu.id for gpu in gpus}
    links = [link for link in gpu_links(cluster) if link.a in own and link.b in own]
    joined = _behind_switch(cluster, own) or _joined(where, [gpu.id for gpu in gpus], links, accelerator, catalogue)
    share = _reduction_share(gpus[0].model, catalogue) if joined.switched else None
    rates = _nic_rates(cluster, own)
    fastest = max(rates.values(), default=0.0)
    used = [nic for nic, rate in rates.items() if rate == fastest]
    models = {device.id: device.model for device in cluster.of_kind("nic")}
    latencies = {link.latency_s for link in cluster.links if {link.a, link.b} & {*used}} - {None}
    return NodeGroup(
        type="",
        count=1,
        gpus=len(gpus),
        gpu=_template(gpus[0], accelerator),
        gpu_link=joined.kind,
        gpu_bandwidth_bytes_per_s=joined.rate,
        peer_bandwidth_bytes_per_s=joined.peer_rate,
        gpu_latency_s=joined.latency_s,
        switched=joined.switched,
        reduction_bandwidth_bytes_per_s=None if share is None else share * joined.rate,
        host_bandwidth_bytes_per_s=catalogue.interconnect(accelerator.host_link).rate_bytes_per_s,
        nics=len(used),
        nic_kind=models[used[0]] if used else "",
        nic_bandwidth_bytes_per_s=fastest,
        nic_latency_s=max((latency for latency in latencies if latency is not None), default=None),
        numa_nodes=max(1, len({gpu.numa for gpu in gpus} - {None})),
        mesh=joined.mesh,
    )


def _accelerator(where: str, gpus: Sequence[Device], catalogue: Catalogue) -> Accelerator:
    """Return what the GPUs of a node are; InputError where they differ or the catalogue does not know them."""
    models = sorted({gpu.model for gpu in gpus})
    if len(models) > 1:
        raise InputError(f"{where}: {' and '.join(models)} in one node; plan needs GPUs that are all alike")
    if models[0] not in catalogue.accelerators:
        known = f"{models[0]} is not in the catalogue" if models[0] else "does not say which GPUs it has"
        raise InputError(f"{where}: {known}; expected a file written with `topo --gpu NAME --save FILE`")
    return catalogue.accelerators[models[0]]


def _template(gpu: Device, accelerator: Accelerator) -> Device:
    """Return the GPU with the id "GPU" and no place, what it does not say of itself taken from the catalogue."""
    known = gpu_template(gpu.model, accelerator)
    return replace(
        known,
        memory_bytes=gpu.memory_bytes or known.memory_bytes,
        memory_bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s or known.memory_bandwidth_bytes_per_s,
        peak_flops_per_s=gpu.peak_flops_per_s or known.peak_flops_per_s,
    )


def _behind_switch(cluster: Cluster, gpus: set[str]) -> _Joined | None:
    """Return the GPUs of a node that all hang on one switch of its own; None where they do not."""
    switches = {device.id for device in cluster.of_kind("switch") if device.node}
    legs = {gpu: link for link in cluster.links for gpu in (link.a, link.b)
            if gpu in gpus and {link.a, link.b} & switches}  # fmt: skip
    rates = [link.bandwidth_bytes_per_s for link in legs.values() if link.bandwidth_bytes_per_s]
    if len(rates) < len(gpus):
        return None
    latencies = [link.latency_s for link in legs.values() if link.latency_s is not None]
    kind = next(iter(legs.values())).kind
    return _Joined(kind, min(rates), min(rates), switched=True, latency_s=max(latencies, default=None))


def _joined(
    where: str, names: Sequence[str], links: Sequence[Link], accelerator: Accelerator, catalogue: Catalogue
) -> _Joined:
    number = {name: i for i, name in enumerate(names)}
    own = {numbered_pair(number, link): link for link in links if not rank(link.kind) and link.kind != "PCIe"}
    if not own or not _is_connected(own, len(names)):
        return _over_pcie(links, accelerator, catalogue)
    unknown = next((link for link in own.values() if link.bandwidth_bytes_per_s is None), None)
    if unknown is not None:
        raise InputError(
            f"{where}: link {unknown.a}-{unknown.b} ({unknown.kind}): its rate is not known; "
            "expected a file written with `topo --gpu NAME --save FILE`"
        )
    rates = {pair: link.bandwidth_bytes_per_s or 0.0 for pair, link in own.items()}
    latencies = [link.latency_s for link in own.values() if link.latency_s is not None]
    interconnect = catalogue.interconnect(accelerator.link) if accelerator.link else None
    known_latency_s = interconnect.latency.number if interconnect and interconnect.latency else None
    latency_s = max(latencies) if latencies else known_latency_s
    counts = {pair: nvlink_count(link.kind) for pair, link in own.items() if nvlink_count(link.kind)}
    kind = next(iter(own.values())).kind
    if is_switched(counts, len(names)):
        slowest = min(rates.values())
        return _Joined(kind, slowest, slowest, switched=True, latency_s=latency_s)
    of_gpu = [sum(rate for pair, rate in rates.items() if i in pair) for i in range(len(names))]
    is_full = len(rates) == len(names) * (len(names) - 1) // 2 and len(set(rates.values())) == 1
    mesh = () if is_full else tuple((a, b, rate) for (a, b), rate in sorted(rates.items()))
    return _Joined(kind, min(of_gpu), max(rates.values()), mesh=mesh, latency_s=latency_s)


def _over_pcie(links: Sequence[Link], accelerator: Accelerator, catalogue: Catalogue) -> _Joined:
    """Return GPUs that share their PCIe links among all peers, at the slowest rate that is known of a pair."""
    host = catalogue.interconnect(accelerator.host_link)
    known = [link.bandwidth_bytes_per_s for link in links if rank(link.kind) and link.bandwidth_bytes_per_s]
    slowest = min([*known, host.rate_bytes_per_s])
    return _Joined(KNOWN_LINK_NAMES["pcie"], slowest, slowest, latency_s=host.latency.number if host.latency else None)


def _is_connected(pairs: Mapping[tuple[int, int], Link], count: int) -> bool:
    """Return whether these links join all of the GPUs 0 to `count` - 1."""
    reached, todo = {0}, [0]
    while todo:
        here = todo.pop()
        near = {end for pair in pairs if here in pair for end in pair} - reached
        reached |= near
        todo += near
    return len(reached) == count


def _reduction_share(model: str, catalogue: Catalogue) -> float | None:
    """Return the share of its rate that an all-reduce in the switch between such GPUs reaches, if it reduces."""
    for node in catalogue.nodes.values():
        switch = catalogue.switches[node.switch] if node.accelerator == model and node.switch else None
        if switch is not None:
            return switch.reduction_share.number if switch.reduction_share else None
    return None


def _nic_rates(cluster: Cluster, gpus: set[str]) -> dict[str, float]:
    """Return the rates of the NICs that no other is nearer to a GPU than, where they or their cables say one."""
    ends = {nic.id for nic in cluster.of_kind("nic")}
    ways = [(link.a if link.a in gpus else link.b, link.b if link.a in gpus else link.a, rank(link.kind))
            for link in cluster.links if {link.a, link.b} & gpus and {link.a, link.b} & ends]  # fmt: skip
    nearest = {gpu: min(far for near, _, far in ways if near == gpu) for gpu, _, _ in ways}
    serving = {nic for gpu, nic, far in ways if far == nearest[gpu]}
    switches = {device.id for device in cluster.of_kind("switch")}
    cables = {end: link.bandwidth_bytes_per_s for link in cluster.links for end in (link.a, link.b)
              if end in serving and {link.a, link.b} & switches}  # fmt: skip
    known = {nic.id: nic.network_bandwidth_bytes_per_s or cables.get(nic.id) for nic in cluster.of_kind("nic")}
    return {nic: rate for nic, rate in known.items() if nic in serving and rate}
