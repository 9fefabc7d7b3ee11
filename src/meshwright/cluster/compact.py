"""The groups of a cluster that lists its devices and links: a discovered machine as nodes that are all alike."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..errors import InputError
from ..hardware import Accelerator, Catalogue
from ..hardware.arithmetic import share_between_peers
from .analysis import gpu_links, numbered_pair
from .builders import KNOWN_LINK_NAMES
from .catalogue_devices import with_catalogue
from .domains import domains, links_by_node, own_links
from .graph import Cluster, Device, Fabric, Link, NodeGroup
from .nics import NicWay, best_ways, nic_way
from .paths import is_own, rank


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
    the fastest. GPUs of one node, and nodes, that differ all count as the slowest. Nodes that their GPUs' own links
    join are one domain. InputError for what is missing: GPUs, their model or peaks, the rate of a link, GPUs as many on
    each node; `where` (a file) opens its message.
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
        raise InputError(
            f"{where}: has no GPUs to plan for (it lists {found}); expected a machine with GPUs, or `plan` on the very "
            "machine (--cluster this)"
        )
    links = links_by_node(cluster)
    groups = [
        _group(where, replace(cluster, links=links.get(node, ())), gpus, catalogue) for node, gpus in by_node.items()
    ]
    different = [group for group in groups if group.gpus != groups[0].gpus]
    if different:
        names = f"{next(iter(by_node))} and {list(by_node)[groups.index(different[0])]}"
        raise InputError(f"{where}: {names} differ in their number of GPUs; plan needs nodes that are all alike")
    group = replace(_slowest(groups), count=len(groups))
    return replace(cluster, devices=(), links=(), groups=(group,), fabric=cluster.fabric or Fabric())


def _slowest(groups: Sequence[NodeGroup]) -> NodeGroup:
    """Return a node with the least that any of these has: a job over all of them runs at the pace of the slowest."""
    inside = min(groups, key=lambda group: group.gpu_bandwidth_bytes_per_s)
    outside = min(groups, key=lambda group: group.node_bandwidth_bytes_per_s)
    gpu = min((group.gpu for group in groups), key=lambda gpu: max(gpu.peak_flops_per_s.values(), default=0.0))
    return replace(
        inside,
        gpu=replace(gpu, memory_bytes=min(group.gpu.memory_bytes or 0 for group in groups) or None),
        host_bandwidth_bytes_per_s=min(group.host_bandwidth_bytes_per_s or 0.0 for group in groups) or None,
        nics=outside.nics,
        nic_kind=outside.nic_kind,
        nic_bandwidth_bytes_per_s=outside.nic_bandwidth_bytes_per_s,
        nic_latency_s=outside.nic_latency_s,
        scale_up_nodes=min(group.scale_up_nodes for group in groups),
    )


def _group(where: str, cluster: Cluster, gpus: Sequence[Device], catalogue: Catalogue) -> NodeGroup:
    """Return one node: `gpus` and the NICs that serve them."""
    accelerator = _accelerator(where, gpus, catalogue)
    gpus = [with_catalogue(gpu, gpu.model, catalogue) for gpu in gpus]
    own = {gpu.id for gpu in gpus}
    links = [link for link in gpu_links(cluster) if link.a in own and link.b in own]
    joined = _behind_switch(cluster, own) or _joined(where, gpus, links, accelerator, catalogue)
    share = _reduction_share(gpus[0].model, catalogue) if joined.switched else None
    rates = _nic_rates(cluster, own)
    fastest = max(rates.values(), default=0.0)
    used = [nic for nic, rate in rates.items() if rate == fastest]
    models = {device.id: device.model for device in cluster.of_kind("nic")}
    latencies = {link.latency_s for link in cluster.links if {link.a, link.b} & {*used}} - {None}
    kind = models[used[0]] if used else ""
    if kind == "ici":  # ports of the chip itself, which has no other way to a peer
        joined = _Joined(KNOWN_LINK_NAMES[kind], fastest * len(used), fastest * len(used))
    return NodeGroup(
        type="",
        count=1,
        gpus=len(gpus),
        gpu=_template(gpus, catalogue),
        gpu_link=joined.kind,
        gpu_bandwidth_bytes_per_s=joined.rate,
        peer_bandwidth_bytes_per_s=joined.peer_rate,
        gpu_latency_s=joined.latency_s,
        switched=joined.switched,
        reduction_bandwidth_bytes_per_s=None if share is None else share * joined.rate,
        host_bandwidth_bytes_per_s=_host_rate(cluster, own, accelerator, catalogue),
        nics=len(used),
        nic_kind=kind,
        nic_bandwidth_bytes_per_s=fastest,
        nic_latency_s=max((latency for latency in latencies if latency is not None), default=None),
        numa_nodes=max(1, len({gpu.numa for gpu in gpus} - {None})),
        mesh=joined.mesh,
        scale_up_nodes=cluster.scale_up_nodes or _domain_nodes(cluster, own),
    )


def _domain_nodes(cluster: Cluster, gpus: set[str]) -> int:
    """Return how many nodes are joined by their GPUs' own links to all of `gpus`, these included."""
    of_gpu = {gpu.id: gpu.node for gpu in cluster.of_kind("gpu")}
    reached: dict[str, set[str]] = {}
    for link in gpu_links(cluster):
        for near, far in ((link.a, link.b), (link.b, link.a)):
            if near in gpus and far not in gpus and is_own(link.kind):
                reached.setdefault(of_gpu[far], set()).add(near)
    return 1 + sum(1 for ends in reached.values() if ends == gpus)


def _host_rate(cluster: Cluster, gpus: set[str], accelerator: Accelerator, catalogue: Catalogue) -> float:
    """Return the rate of a GPU to its CPU: NVLink to the CPU where there is one, else PCIe as it is trained."""
    cpus = {cpu.id for cpu in cluster.of_kind("cpu")}
    own: dict[str, float] = {}
    pcie: dict[str, float] = {}
    for link in cluster.links:
        ends = {link.a, link.b}
        if ends & gpus and ends & cpus and link.bandwidth_bytes_per_s:
            gpu = link.a if link.a in gpus else link.b
            (own if is_own(link.kind) else pcie)[gpu] = link.bandwidth_bytes_per_s
    if len(own) == len(gpus):
        return min(own.values())
    if accelerator.cpu_link:  # it is always there, whether a dump shows it or not
        return catalogue.interconnect(accelerator.cpu_link).rate_bytes_per_s
    if len(pcie) == len(gpus):
        return min(pcie.values())
    return min([*pcie.values(), catalogue.interconnect(accelerator.host_link).rate_bytes_per_s])


def _accelerator(where: str, gpus: Sequence[Device], catalogue: Catalogue) -> Accelerator:
    """Return what the GPUs of a node are, the slowest of them where they differ; InputError if one is not known."""
    models = sorted({gpu.model for gpu in gpus})
    for model in models:
        if model not in catalogue.accelerators:
            known = f"{model} is not in the catalogue" if model else "does not say which GPUs it has"
            raise InputError(
                f"{where}: {known}; expected a file written with `topo --gpu NAME --save FILE`, "
                "or the device described in a TOML file given with --hardware FILE"
            )
    return min((catalogue.accelerators[m] for m in models), key=lambda a: max(a.peak_flops_per_s.values(), default=0))


def _template(gpus: Sequence[Device], catalogue: Catalogue) -> Device:
    """Return the GPU with the id "GPU" and no place; of GPUs that differ the least of each figure."""
    named = [with_catalogue(gpu, gpu.model, catalogue) for gpu in gpus]
    slowest = min(named, key=lambda gpu: max(gpu.peak_flops_per_s.values(), default=0.0))
    shared = set.intersection(*(set(gpu.peak_flops_per_s) for gpu in named))
    return replace(
        slowest,
        id="GPU",
        node="",
        numa=None,
        cpu_affinity=None,
        memory_numa=None,
        memory_bytes=min(gpu.memory_bytes or 0 for gpu in named) or None,
        memory_bandwidth_bytes_per_s=min(gpu.memory_bandwidth_bytes_per_s or 0.0 for gpu in named) or None,
        peak_flops_per_s={
            p: min(g.peak_flops_per_s[p] for g in named) for p in slowest.peak_flops_per_s if p in shared
        },
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
    where: str, gpus: Sequence[Device], links: Sequence[Link], accelerator: Accelerator, catalogue: Catalogue
) -> _Joined:
    number = {gpu.id: i for i, gpu in enumerate(gpus)}
    own = {numbered_pair(number, link): link for link in own_links(links)}
    parts = domains(gpus, links)
    if not own or len(parts) > 1:
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
    count = min(parts[0].links.values())
    kind = f"NV{count}" if count else next(iter(own.values())).kind
    if parts[0].switched:
        slowest = min(rate or 0.0 for rate in parts[0].rates.values())
        return _Joined(kind, slowest, slowest, switched=True, latency_s=latency_s)
    of_gpu = [sum(rate for pair, rate in rates.items() if i in pair) for i in range(len(gpus))]
    is_full = len(rates) == len(gpus) * (len(gpus) - 1) // 2 and len(set(rates.values())) == 1
    mesh = () if is_full else tuple((a, b, rate) for (a, b), rate in sorted(rates.items()))
    return _Joined(kind, min(of_gpu), max(rates.values()), mesh=mesh, latency_s=latency_s)


def _over_pcie(links: Sequence[Link], accelerator: Accelerator, catalogue: Catalogue) -> _Joined:
    """Return GPUs that share their PCIe links among all peers, at the slowest rate that is known of a pair."""
    host = catalogue.interconnect(accelerator.host_link)
    known = [link.bandwidth_bytes_per_s for link in links if rank(link.kind) and link.bandwidth_bytes_per_s]
    slowest = min([*known, host.rate_bytes_per_s]) * share_between_peers(accelerator, host)
    return _Joined(KNOWN_LINK_NAMES["pcie"], slowest, slowest, latency_s=host.latency.number if host.latency else None)


def _reduction_share(model: str, catalogue: Catalogue) -> float | None:
    """Return the share of its rate that an all-reduce in the switch between such GPUs reaches, if it reduces."""
    for node in catalogue.nodes.values():
        switch = catalogue.switches[node.switch] if node.accelerator == model and node.switch else None
        if switch is not None:
            return switch.reduction_share.number if switch.reduction_share else None
    return None


def _nic_rates(cluster: Cluster, gpus: set[str]) -> dict[str, float]:
    """Return the rates of the NICs that no other is faster or nearer to a GPU than, where they or their cables say one.

    A NIC behind the link between the sockets serves only where all of them are; none is faster than its PCIe slot, and
    the ports of one card are together no faster than theirs.
    """
    switches = {device.id for device in cluster.of_kind("switch")}
    cables = {end: link.bandwidth_bytes_per_s for link in cluster.links for end in (link.a, link.b)
              if {link.a, link.b} & switches}  # fmt: skip
    known = {nic.id: nic.network_bandwidth_bytes_per_s or cables.get(nic.id) for nic in cluster.of_kind("nic")}
    ways: dict[str, list[NicWay]] = {}
    slots: dict[str, float] = {}
    for link in cluster.links:
        ends = {link.a, link.b}
        if ends & gpus and ends & set(known):
            gpu, nic = (link.a, link.b) if link.a in gpus else (link.b, link.a)
            ways.setdefault(gpu, []).append(nic_way(nic, link, known[nic]))
            slots[nic] = max(slots.get(nic, 0.0), link.bandwidth_bytes_per_s or 0.0)
    best = [way for its in ways.values() for way in best_ways(its)]
    near = [way for way in best if rank(way.kind) < rank("SYS")]
    serving = dict.fromkeys(way.nic for way in near or best)
    rates = {nic: min(rate, slots[nic] or rate) for nic, rate in known.items() if nic in serving and rate}
    return _within_cards(rates, slots, cluster.of_kind("nic"))


def _within_cards(rates: dict[str, float], slots: dict[str, float], nics: Sequence[Device]) -> dict[str, float]:
    """Return the rates of NICs, those of ports that together ask more of their card's slot than it carries cut down."""
    cards: dict[tuple[str, str], list[str]] = {}
    for nic in nics:
        if nic.id in rates and nic.card:
            cards.setdefault((nic.node, nic.card), []).append(nic.id)
    for ports in cards.values():
        slot, asked = max(slots[port] for port in ports), sum(rates[port] for port in ports)
        if 0.0 < slot < asked:
            rates |= {port: rates[port] * slot / asked for port in ports}
    return rates
