"""Suspicions of a cluster that a file describes: figures that a datasheet or a unit made too large or small."""

from collections.abc import Iterator

from ...cluster.builders import KNOWN_LINK_NAMES
from ...cluster.graph import NodeGroup
from ...hardware import Accelerator, Catalogue, NodeType
from ...hardware.arithmetic import duplex_trap, node_network_bytes_per_s, sparsity_trap
from ...units import format_bytes, format_network_rate

LARGER = 4.0  # times what the catalogue has of the same accelerator: bits taken for bytes make 8 of it
SMALLER = 10.0  # times less memory than the accelerator has: the seventh part of a card is the smallest that is sold


def suspicions_of(group: NodeGroup, catalogue: Catalogue) -> list[str]:
    """Return what looks wrong in the figures of a node, each by its key, beside the catalogue's of its accelerator.

    An accelerator that the catalogue lacks has nothing to be held against. Slow networks are nobody's slip.
    """
    known = catalogue.accelerators.get(group.gpu.model)
    if known is None:
        return []
    found = [*_links(group, known, catalogue), *_peaks(group, catalogue), *_memory(group, known)]
    usual = max((_network_of_gpu(catalogue, node) for node in catalogue.nodes.values() if _has(node, group)), default=0)
    given = group.node_bandwidth_bytes_per_s / group.gpus
    if 0.0 < LARGER * usual < given:
        found.append(
            f"nic_bandwidth_bytes_per_s: {format_network_rate(given)} a GPU; nodes of {group.gpu.model} have up to "
            f"{format_network_rate(usual)}: is it in bits?"
        )
    return found


def _has(node: NodeType, group: NodeGroup) -> bool:
    return node.accelerator == group.gpu.model


def _network_of_gpu(catalogue: Catalogue, node: NodeType) -> float:
    return node_network_bytes_per_s(catalogue, node) / node.gpus.number


def _links(group: NodeGroup, known: Accelerator, catalogue: Catalogue) -> Iterator[str]:
    own = None if group.gpu_link == KNOWN_LINK_NAMES["pcie"] else known.link
    link = catalogue.interconnect(known.host_link if own is None else own)
    rates = {"gpu": group.gpu_bandwidth_bytes_per_s, "peer": group.peer_bandwidth_bytes_per_s}
    keys = [f"{name}_bandwidth_bytes_per_s" for name, rate in rates.items() if duplex_trap(rate, link)]
    if keys:
        yield f"{' and '.join(keys)}: {duplex_trap(2 * link.rate_bytes_per_s, link)}"


def _peaks(group: NodeGroup, catalogue: Catalogue) -> Iterator[str]:
    for precision, peak in group.gpu.peak_flops_per_s.items():
        trap = sparsity_trap(catalogue, group.gpu.model, precision, peak)
        if trap:
            yield f"gpu.peak_flops_per_s: {trap}"


def _memory(group: NodeGroup, known: Accelerator) -> Iterator[str]:
    given = group.gpu.memory_bytes
    if given is not None and 0 < given * SMALLER < known.memory_bytes:
        yield (
            f"gpu.memory_bytes: {format_bytes(given)}, and {group.gpu.model} has {format_bytes(known.memory_bytes)}: "
            "is it in bytes?"
        )
