"""Broken or badly built parts of a machine, by name; a healthy machine has none."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ..units import counted
from .domains import Domain, domains, links_by_node, odd_pairs, unjoined_pairs
from .graph import Cluster, Device, Link
from .nics import carrying_nics
from .paths import is_own, rank

ONE_LANE = 2e9  # of PCIe 4, in bytes per second
SLACK = 0.9  # of a rate; below it a device has fewer lanes or a lower speed than its like
ALL_BUT_ONE = 7  # NICs of a machine that lacks one: nobody builds seven for eight GPUs
MOST_BEHIND_ONE_BRIDGE = 4  # cards that a CPU's host bridge takes; more of them "behind one" are a virtual machine's


def verdicts(cluster: Cluster, nics: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    """Return the verdicts on every node of a cluster; `nics` says which NIC serves each GPU, and over which path."""
    by_node: dict[str, list[Device]] = defaultdict(list)
    for gpu in cluster.of_kind("gpu"):
        by_node[gpu.node].append(gpu)
    of_node = links_by_node(cluster)
    found: list[str] = []
    for node, gpus in by_node.items():
        links = of_node.get(node, ())
        parts = domains(gpus, links)
        found += [*_mixed(gpus), *_links_down(gpus, parts), *_off_the_fabric(parts), *_none_at_all(gpus, parts, links)]
        found += [*_lost_pairs(gpus, parts, links), *_hidden_tree(gpus, links), *_narrow(cluster, gpus, links)]
        found += [*_far_nics(cluster, gpus, nics), *_shared_nics(cluster, gpus, nics)]
    return tuple(dict.fromkeys((*_nodes_differ(by_node, of_node), *found)))


def _nodes_differ(by_node: Mapping[str, Sequence[Device]], links: Mapping[str, Sequence[Link]]) -> Iterator[str]:
    """Name the nodes whose GPUs are linked or named unlike those of most nodes."""
    shapes: dict[str, tuple[tuple[str, int], ...]] = {}
    for node, gpus in by_node.items():
        ids = {gpu.id for gpu in gpus}
        kinds = Counter(k.kind for k in links.get(node, ()) if {k.a, k.b} <= ids and is_own(k.kind))
        models = Counter(gpu.model for gpu in gpus)
        shapes[node] = (*sorted(kinds.items()), *sorted(models.items()))
    usual = max(shapes.values(), key=[*shapes.values()].count, default=())
    odd = [node for node, shape in shapes.items() if shape != usual]
    if odd:
        one, other = (_shape(shape) for shape in (shapes[odd[0]], usual))
        yield f"{_names(odd)} differ{'s' if len(odd) == 1 else ''} from the other nodes: {one} there, {other} elsewhere"


def _shape(shape: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{count} x {what}" for what, count in shape if what) or "no links between GPUs"


def _mixed(gpus: Sequence[Device]) -> Iterator[str]:
    models = Counter(gpu.model for gpu in gpus if gpu.model)
    if len(models) > 1:
        parts = ", ".join(f"{_names([g.id for g in gpus if g.model == m])} {m}" for m in models)
        yield f"the GPUs differ ({parts}): a job runs at the pace of the slowest and fits the smallest"


def _links_down(gpus: Sequence[Device], parts: Sequence[Domain]) -> Iterator[str]:
    """Name the GPUs behind a switch that have fewer links up than their peers, or all of them than they were built."""
    built = {gpu.id: gpu.own_links for gpu in gpus}
    for part in parts:
        most = max(part.links.values())
        if not part.switched or not most:  # where links are not counted, none is down
            continue
        for gpu, count in part.links.items():
            if count < most:
                yield f"{gpu} has {counted(count, 'NVLink')}, the others {most}: {_are_down(most - count)}"
        whole = {built[gpu] for gpu in part.gpus}
        if len(whole) == 1 and (total := whole.pop()) and most < total:
            yield (
                f"{_names(part.gpus)}: {most} of {counted(total, 'NVLink')} each are up: "
                f"{_are_down(total - most)} on every GPU"
            )


def _are_down(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'} down"


def _off_the_fabric(parts: Sequence[Domain]) -> Iterator[str]:
    """Name GPUs without any link where all others are joined."""
    largest = max(parts, key=lambda part: len(part.gpus))
    if len(largest.gpus) < 3:
        return
    links = max(largest.links.values())
    have = f"{links} each" if largest.switched and links else "theirs"
    for part in parts:
        if len(part.gpus) == 1:
            yield f"{part.gpus[0]} has no NVLink or xGMI to any peer, the {len(largest.gpus)} other GPUs have {have}"


def _none_at_all(gpus: Sequence[Device], parts: Sequence[Domain], links: Sequence[Link]) -> Iterator[str]:
    """Say that devices which are always joined (SXM, OAM) show no link of their own."""
    ids = {gpu.id for gpu in gpus}
    always = [gpu for gpu in gpus if gpu.own_links and not gpu.bridged]
    described = any(link.a in ids and link.b in ids for link in links)
    if len(gpus) > 1 and len(always) == len(gpus) and described and len(parts) == len(gpus):
        yield (
            f"{always[0].model} has {counted(always[0].own_links, 'link')} to its peers, and none is "
            "shown: the dump leaves them "
            "out (topo -mp), the fabric manager is down, or a virtual machine was given none"
        )


def _lost_pairs(gpus: Sequence[Device], parts: Sequence[Domain], links: Sequence[Link]) -> Iterator[str]:
    """Name the links of a full mesh that are missing or thinner than the rest, and pairs that a switch leaves out."""
    for part in parts:
        for a, b, count, usual in odd_pairs(part, links):
            yield f"{a}-{b} has {counted(count, 'own link') if count else 'no own links in use'}, other pairs {usual}"
        for a, b in unjoined_pairs(part, links):
            yield f"{a}-{b} has no NVLink, although both reach the switch of the others: it is off between the two"


def _hidden_tree(gpus: Sequence[Device], links: Sequence[Link]) -> Iterator[str]:
    ids = {gpu.id for gpu in gpus}
    kinds = {k.kind for k in links if k.a in ids and k.b in ids}
    if kinds == {"PHB"} and len(gpus) > MOST_BEHIND_ONE_BRIDGE:
        yield (
            f"every pair of the {len(gpus)} GPUs is PHB: a virtual machine hides the PCIe tree, or ACS sends every "
            "transfer through the CPU; NCCL_TOPO_FILE can say what the tree is"
        )


def _narrow(cluster: Cluster, gpus: Sequence[Device], links: Sequence[Link]) -> Iterator[str]:
    """Name GPUs whose PCIe link to the host is slower than that of most others like it."""
    cpus = {cpu.id for cpu in cluster.of_kind("cpu")}
    rates = {
        gpu.id: link.bandwidth_bytes_per_s
        for gpu in gpus
        for link in links
        if gpu.id in (link.a, link.b) and {link.a, link.b} & cpus and link.kind == "PCIe" and link.bandwidth_bytes_per_s
    }
    best = max(rates.values(), default=0.0)
    if 0.0 < best < ONE_LANE:
        yield (
            f"{_names(list(rates))} reach{'es' if len(rates) == 1 else ''} the CPU at {best / 1e9:.3g} GB/s over PCIe, "
            "as through one lane: a riser, or a bridge that the file of a virtual machine writes as slow; NCCL "
            "takes it for the bottleneck"
        )
    for gpu, rate in rates.items():
        if rate < SLACK * best:
            yield (
                f"{gpu} reaches its CPU at {rate / 1e9:.3g} GB/s over PCIe, others at {best / 1e9:.3g}: "
                "fewer lanes or a slower slot"
            )


def _far_nics(cluster: Cluster, gpus: Sequence[Device], nics: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Name GPUs whose NIC hangs on another socket, although there are NICs enough for every GPU to have one.

    A machine with fewer was built so: one card, the two ports of one, or a card for each two GPUs.
    """
    served = [gpu for gpu in gpus if gpu.id in nics]
    far = [gpu for gpu in served if nics[gpu.id][1] == "SYS"]
    here = {nic.id for nic in carrying_nics(cluster, gpus[0].node)}
    near = {nics[gpu.id][0] for gpu in served if rank(nics[gpu.id][1]) <= rank("NODE")} & here
    if far and near and len(here) >= len(gpus):
        nic = nics[far[0].id][0]
        yield (
            f"{_names([gpu.id for gpu in far])} reach{'es' if len(far) == 1 else ''} a NIC over the link between the "
            f"sockets only ({nic}), the others have one on their own: a NIC is missing there or sits in the wrong slot"
        )


def _shared_nics(cluster: Cluster, gpus: Sequence[Device], nics: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Name NICs that serve more GPUs than the others do, where there are enough to share them evenly.

    Seven for eight GPUs are one too few; three for eight are how the machine was built.
    """
    sharing: dict[str, list[str]] = defaultdict(list)
    for gpu in gpus:
        if gpu.id in nics and nics[gpu.id][1] != "SYS":
            sharing[nics[gpu.id][0]].append(gpu.id)
    least = min((len(served) for served in sharing.values()), default=0)
    here = [nic.id for nic in carrying_nics(cluster, gpus[0].node)]
    served, cards = sum(map(len, sharing.values())), max(1, len(here))
    lacks_one = cards == served - 1 >= ALL_BUT_ONE
    if cards < served and served % cards and not lacks_one:
        return
    even = 1 if lacks_one else -(-served // cards)
    idle = [nic for nic in here if nic not in sharing]
    idly = f" ({_names(idle)}: nearest to none)" if idle else ""
    for nic, its in sharing.items():
        if len(its) > max(least, even):
            has = "one each" if least == 1 else f"one for every {least}"
            yield f"{' and '.join(its)} share {nic}, the other GPUs have {has}: a bottleneck between nodes{idly}"


def _names(ids: Sequence[str]) -> str:
    return ", ".join(ids) if len(ids) <= 4 else f"{ids[0]} to {ids[-1]} ({len(ids)})"
