"""The rate that an all-reduce can reach by the catalogue's figures, to explain a published or measured one.

Three mechanisms: a ring moves 2(n-1)/n of the payload over every link, so that its bus bandwidth is the link's
attainable share; a switch that reduces takes each byte once, so that the algorithm bandwidth is bounded instead;
across nodes a pipelined tree of depth L adds its filling: time = (sqrt(L) + sqrt(n / rate))^2 at the best chunk size.
"""

import math

from ...collectives.pricing.figures import bus_factor
from ...hardware import Catalogue, Interconnect, NetworkPort, NodeType, Switch
from ...hardware.arithmetic import USUAL_SHARE, gpu_link


def attainable_bytes_per_s(link: Interconnect | NetworkPort) -> float:
    """Return what a large collective reaches on a link, per direction: its known share, else 85 % of the rate."""
    share = link.attainable.number if link.attainable else USUAL_SHARE
    return share * link.rate_bytes_per_s


def ring_busbw_bytes_per_s(link: Interconnect) -> float:
    """Return the bus bandwidth of a ring inside a node, for large messages."""
    return attainable_bytes_per_s(link)


def in_switch_busbw_bytes_per_s(link: Interconnect, switch: Switch, ranks: int) -> float | None:
    """Return the bus bandwidth of an all-reduce that the switch does; None where it cannot. It may exceed the link."""
    if switch.reduction_share is None:
        return None
    return bus_factor("all_reduce", ranks) * switch.reduction_share.number * link.rate_bytes_per_s


def network_bytes_per_s(network: NetworkPort, nics: int) -> float:
    """Return what all NICs of a node carry together, per direction, as an application sees it."""
    return nics * attainable_bytes_per_s(network)


def multi_node_busbw_bytes_per_s(catalogue: Catalogue, node: NodeType) -> float:
    """Return the bus bandwidth of a ring over several nodes: the tighter of the links inside and the NICs."""
    network = network_bytes_per_s(catalogue.node_network(node), node.ports)
    return min(ring_busbw_bytes_per_s(gpu_link(catalogue, node)), network)


def pipelined_time_s(size_bytes: float, bandwidth_bytes_per_s: float, depth_s: float) -> float:
    """Return the time of a pipeline with the best chunk size: (sqrt(depth) + sqrt(bytes / rate))^2."""
    return (math.sqrt(depth_s) + math.sqrt(size_bytes / bandwidth_bytes_per_s)) ** 2


def tree_all_reduce_s(catalogue: Catalogue, node: NodeType, nodes: int, size_bytes: float) -> float | None:
    """Return the time of a tree all-reduce over `nodes` nodes: chains inside, a binary tree across.

    The depth is one hop for each further GPU of a node and log2(nodes) hops across, as NCCL reckons. None where the
    catalogue has no latency for one of the links.
    """
    link, network = gpu_link(catalogue, node), catalogue.node_network(node)
    if link.latency is None or network.hop_latency is None:
        return None
    gpus = round(node.gpus.number)
    depth_s = (gpus - 1) * link.latency.number + math.log2(nodes) * network.hop_latency.number
    rate = multi_node_busbw_bytes_per_s(catalogue, node) / bus_factor("all_reduce", nodes * gpus)
    return pipelined_time_s(size_bytes, rate, depth_s)
