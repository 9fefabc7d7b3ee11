"""Domains of GPUs that their own links join, whether through a switch, and how fast each GPU then is."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .graph import Cluster, Device, Link
from .paths import is_own, nvlink_count

# NVLinks of the devices that exist: P100 and workstation cards, V100, A800 and H800, A100, H100 and later
TOTALS = frozenset({4, 6, 8, 12, 18})
ROUTED = "xGMI"
BEHIND_SWITCHES = TOTALS - {4}  # of those for which a switch was built


class Domain(NamedTuple):
    """GPUs that reach each other over their own links; a GPU that has none is a domain of one."""

    gpus: tuple[str, ...]
    switched: bool | None  # None: the counts fit a mesh as well as a switch
    links: dict[str, int]  # NVLinks of each GPU: up to the switch, or over all peers; 0 where they are not counted
    rates: dict[str, float | None]  # of each GPU over all of its links together, per direction


def own_links(links: Iterable[Link]) -> list[Link]:
    """Return the links of the GPUs' own kind among those between GPUs.

    Of xGMI pairs those without a rate, where others have one, are routed over the others and no links by themselves.
    """
    own = [link for link in links if is_own(link.kind)]
    measured = any(link.kind == ROUTED and link.bandwidth_bytes_per_s for link in own)
    return [k for k in own if k.kind != ROUTED or k.bandwidth_bytes_per_s or not measured]


def links_by_node(cluster: Cluster) -> dict[str, tuple[Link, ...]]:
    """Return the links that end in a device of each node; one between two nodes is both nodes'."""
    nodes = {device.id: device.node for device in cluster.devices}
    found: dict[str, list[Link]] = {}
    for link in cluster.links:
        for node in {nodes.get(link.a, ""), nodes.get(link.b, "")}:
            found.setdefault(node, []).append(link)
    return {node: tuple(links) for node, links in found.items()}


def domains(gpus: Sequence[Device], links: Iterable[Link]) -> tuple[Domain, ...]:
    """Return the domains of `gpus` in their order; `links` may hold other links as well."""
    ids = {gpu.id for gpu in gpus}
    own = own_links([link for link in links if link.a in ids and link.b in ids])
    near: dict[str, set[str]] = {gpu.id: set() for gpu in gpus}
    for link in own:
        near[link.a].add(link.b)
        near[link.b].add(link.a)
    found, seen = [], set[str]()
    for gpu in gpus:
        if gpu.id not in seen:
            members = _reached(gpu.id, near)
            seen |= members
            found.append(_domain([g for g in gpus if g.id in members], [k for k in own if k.a in members]))
    return tuple(found)


def _reached(start: str, near: Mapping[str, set[str]]) -> set[str]:
    reached, todo = {start}, [start]
    while todo:
        new = near[todo.pop()] - reached
        reached |= new
        todo += new
    return reached


def _domain(gpus: Sequence[Device], links: Sequence[Link]) -> Domain:
    of: dict[str, list[Link]] = {gpu.id: [] for gpu in gpus}
    for link in links:
        of[link.a].append(link)
        of[link.b].append(link)
    counts = {gpu: [nvlink_count(link.kind) for link in its] for gpu, its in of.items()}
    counted = bool(links) and all(nvlink_count(link.kind) for link in links)
    switched = _is_switched(gpus, links, counts) if counted else bool(links) and all(k.switched for k in links)
    through = max if switched else sum
    return Domain(
        gpus=tuple(of),
        switched=switched,
        links={gpu: through(its or [0]) for gpu, its in counts.items()},
        rates={gpu: _rate(its, switched) for gpu, its in of.items()},
    )


def _rate(links: Sequence[Link], switched: bool | None) -> float | None:
    known = [link.bandwidth_bytes_per_s for link in links if link.bandwidth_bytes_per_s is not None]
    if len(known) < len(links) or switched is None:
        return None
    return max(known, default=0.0) if switched else sum(known)


def _is_switched(gpus: Sequence[Device], links: Sequence[Link], counts: Mapping[str, Sequence[int]]) -> bool | None:
    """Return whether the NVLinks of a domain end in a switch; None where a mesh would look the same.

    They do where a GPU's add up to more than its device has, or any device. Otherwise every pair must have as many as
    the lesser of the two GPUs, and the counts must divide no device's links into a mesh. `counts` are each GPU's.
    """
    if len(gpus) < 3 or any(gpu.bridged for gpu in gpus):
        return False
    built = {gpu.own_links for gpu in gpus}
    totals = frozenset(total for total in built if total) if all(built) else TOTALS
    most = {gpu: max(its) for gpu, its in counts.items()}
    if max(map(sum, counts.values())) > max(totals):
        return True
    pairs = len(gpus) * (len(gpus) - 1) // 2
    if len(links) < pairs or any(nvlink_count(k.kind) != min(most[k.a], most[k.b]) for k in links):
        return False
    full = max(most.values())
    meshed = any(total % full == 0 and total // full >= len(gpus) - 1 for total in totals)
    if meshed and full in totals & BEHIND_SWITCHES:
        return None
    return not meshed


def unjoined_pairs(part: Domain, links: Iterable[Link]) -> list[tuple[str, str]]:
    """Return the pairs behind one switch that show another path than that through it."""
    inside = set(part.gpus)
    joined = {frozenset((k.a, k.b)): k.kind for k in links if {k.a, k.b} <= inside}
    pairs = itertools.combinations(part.gpus, 2) if part.switched else ()
    return [(a, b) for a, b in pairs if (kind := joined.get(frozenset((a, b)))) and not is_own(kind)]


def odd_pairs(part: Domain, links: Iterable[Link]) -> list[tuple[str, str, int, int]]:
    """Return the pairs of a full mesh whose links are missing or thinner: both GPUs, their links, those of the others.

    Empty for a mesh of another shape, such as a cube or one in which every GPU lacks as many peers, and for a switch.
    """
    if part.switched is not False or len(part.gpus) < 4:
        return []
    inside = set(part.gpus)
    own = {frozenset((k.a, k.b)): nvlink_count(k.kind) or 1 for k in own_links(links) if {k.a, k.b} <= inside}
    everyone = [frozenset(pair) for pair in itertools.combinations(part.gpus, 2)]
    usual, often = Counter(own.values()).most_common(1)[0]
    if not len(everyone) > often >= 0.8 * len(everyone):
        return []
    missing = [pair for pair in everyone if pair not in own]
    missed = Counter(gpu for pair in missing for gpu in pair)
    if missing and len({missed[gpu] for gpu in part.gpus}) == 1:  # every GPU lacks as many: built so
        return []
    odd = [pair for pair, count in own.items() if count != usual]
    found = []
    for pair in [*odd, *missing]:
        a, b = (gpu for gpu in part.gpus if gpu in pair)
        found.append((a, b, own.get(pair, 0), usual))
    return found
