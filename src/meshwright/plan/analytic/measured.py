"""Links of a cluster as `bench --save` measured them, in place of the constants for such links."""

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from ...cluster.graph import Cluster, CollectiveFit, NodeGroup
from ...collectives.pricing.figures import bus_factor
from ...units import format_bytes
from .coefficients import Coefficients
from .collective import tree_share
from .quantities import Machine, Number

BACKEND = "nccl"  # whose collectives the constants describe
LEAST_BYTES = 2**26  # a smaller message does not reach a link's rate
# of the NICs' rate, that an all-reduce of large messages alone on the network reaches; in training it is less. Over
# three nodes or more 0.94 (4 x DGX H100, 4 x DGX-1) to 0.98 (12 H100 nodes, one 100 Gb/s NIC a node) are published
IDLE_SHARE = 0.96
BOUND_BY_LINKS = 0.9  # of the links' rate, from which on an all-reduce over nodes says nothing of the network


def on_measured_links(
    c: Coefficients, machine: Machine, cluster: Cluster, *, links: bool, network: bool, idle: float = IDLE_SHARE
) -> Coefficients:
    """Return the coefficients with the shares of the rates that the cluster's own fits say are reached.

    `links` and `network` tell which of both still have the cluster's rates: what a user gave in their place was not
    measured. An all-reduce over nodes alone on the network says how much faster or slower than others' it is, which
    reach a share `idle` of the NICs' rate.
    """
    return with_fits_used(c, machine, cluster, links=links, network=network, idle=idle)[0]


def with_fits_used(
    c: Coefficients, machine: Machine, cluster: Cluster, *, links: bool, network: bool, idle: float = IDLE_SHARE
) -> tuple[Coefficients, tuple[CollectiveFit, ...]]:
    """Return what `on_measured_links` does, and the fits that it took."""
    fits = cluster.measured.collectives if cluster.measured else ()
    large = [fit for fit in fits if fit.backend == BACKEND and fit.max_bytes >= LEAST_BYTES and fit.ranks > 1]
    inside = [fit for fit in large if links and fit.ranks <= machine.domain]
    reduce, gather = _widest(inside, "all_reduce"), _widest(inside, "all_gather")
    reduced, gathered = _rate(reduce), _rate(gather)
    if gathered is not None:
        in_switch = c.in_switch if reduced is None else reduced / gathered
        c = replace(c, link=gathered / machine.link_rate, in_switch=in_switch)
    elif reduced is not None:
        c = replace(c, link=reduced / machine.link_rate / c.in_switch)
    across = _widest((fit for fit in large if network and fit.ranks > machine.domain), "all_reduce")
    between = _rate(across)
    if across and between and between < BOUND_BY_LINKS * machine.link_rate * c.link * c.in_switch:
        share = _share_of_others(between / (idle * machine.node_rate), across.ranks, across.ranks / machine.domain)
        c = replace(c, network=c.network * share, sends=c.sends * share)
    else:
        across = None
    return c, tuple(fit for fit in (reduce, gather, across) if fit is not None)


def unused_words(cluster: Cluster, machine: Machine, used: Sequence[CollectiveFit]) -> tuple[str, ...]:
    """Return that an all-reduce over nodes changed no price, in words: what is as fast as the links inside a node."""
    fits = cluster.measured.collectives if cluster.measured else ()
    large = (fit for fit in fits if fit.backend == BACKEND and fit.max_bytes >= LEAST_BYTES)
    across = _widest((fit for fit in large if fit.ranks > machine.domain), "all_reduce")
    if across is None or across in used:
        return ()
    return (
        f"{in_words([across])} as measured on {cluster.name} is as fast as the links inside a node let it be, says "
        "nothing of the network and changes no price",
    )


def _share_of_others(of_ring: Number, ranks: int, nodes: Number) -> Number:
    """Return how fast the network is by an all-reduce's bus bandwidth over what a ring reaches elsewhere.

    More than a ring can is a tree's, which over two or three nodes sends less; whatever is below may be either's.
    """
    fewer = np.maximum(1.0, bus_factor("all_reduce", ranks) / tree_share(nodes))
    return np.where(of_ring <= 1.0, of_ring, np.maximum(1.0, of_ring / fewer))


def with_switch(c: Coefficients, group: NodeGroup) -> Coefficients:
    """Return the coefficients of these nodes: nothing is gained by a switch that does not add up."""
    return c if group.reduction_bandwidth_bytes_per_s is not None else replace(c, in_switch=1.0)


def _widest(fits: Iterable[CollectiveFit], collective: str) -> CollectiveFit | None:
    """Return the fit over most ranks, of those the one up to the largest size; of several types the last measured."""
    found = [fit for fit in fits if fit.collective == collective]
    return max(reversed(found), key=lambda fit: (fit.ranks, fit.max_bytes)) if found else None


def _rate(fit: CollectiveFit | None) -> float | None:
    """Return the bus bandwidth at the largest size of a fit, in bytes per second."""
    return None if fit is None else bus_factor(fit.collective, fit.ranks) * fit.max_bytes / fit.time_s(fit.max_bytes)


def in_words(fits: Sequence[CollectiveFit]) -> str:
    """Return which measured collectives these are: what, on how many ranks, up to which size."""
    return ", ".join(f"{fit.collective} on {fit.ranks} ranks to {format_bytes(fit.max_bytes)}" for fit in fits)
