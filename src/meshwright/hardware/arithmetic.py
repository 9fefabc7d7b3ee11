"""Arithmetic on link rates that people get wrong: duplex, shares of a mesh, InfiniBand widths."""

from ..units import format_rate
from .catalogue import YOUR_OWN, Catalogue
from .kinds import Accelerator, Interconnect, NodeType

# Gb/s of one lane per direction, by generation (InfiniBand Trade Association roadmap)
INFINIBAND_LANE_GBPS = {
    "SDR": 2.5,
    "DDR": 5,
    "QDR": 10,
    "FDR": 14,
    "EDR": 25,
    "HDR": 50,
    "NDR": 100,
    "XDR": 200,
    "GDR": 400,
}
EXPECTED_SHARE = (0.8, 0.9)  # of the advertised rate that reaches the application
USUAL_SHARE = sum(EXPECTED_SHARE) / 2  # what is expected where one figure is wanted
# of the NICs' rate, what all NICs of a host with PCIe 3 carry together: 79 of 100 GB/s on 16 DGX-2 (dgx2_256)
PCIE3_NICS_SHARE = 0.8
PCIE3_BYTES_PER_S = 20e9  # hosts below this, per direction, have PCIe 3 or older


def infiniband_bytes_per_s(generation: str, lanes: int) -> float | None:
    """Return the rate of an InfiniBand link of `lanes` lanes, None for a generation that there is not.

    NDR of 4 lanes has 50e9, NDR200 is NDR of 2.
    """
    lane = INFINIBAND_LANE_GBPS.get(generation)
    return None if lane is None else lane * lanes * 1e9 / 8


def gpu_link(catalogue: Catalogue, node: NodeType) -> Interconnect:
    """Return the links between the accelerators of a node: their own, or PCIe where they have none, or no peer.

    Chips of a torus have their own links whatever stands in one node. Bridges count where a mesh says which pairs have
    one: nobody knows of a cloud's cards.
    """
    accelerator = catalogue.accelerators[node.accelerator]
    in_torus = node.network is not None and catalogue.network(node.network).family == "ici"
    wired = not accelerator.bridged or bool(node.mesh)
    own = (node.link or accelerator.link) if wired and (node.gpus.number > 1 or node.switch or in_torus) else None
    return catalogue.interconnect(own or accelerator.host_link)


def share_between_peers(accelerator: Accelerator, link: Interconnect) -> float:
    """Return the share of a link's rate between two such devices: less than 1 where they have no peer access."""
    staged = link.kind == "pcie" and not accelerator.peer_access
    return link.through_host.number if staged and link.through_host else 1.0


def dies_told(catalogue: Catalogue, key: str) -> tuple[str, ...]:
    """Return what a GPU is taken for where its accelerator is one die of a card; nothing where it is a card."""
    card = next((card for card in catalogue.accelerators.values() if card.shown_as == key), None)
    if card is None:
        return ()
    return (f"a GPU is one die of a card ({card.title}), as drivers list them; links between all pairs alike",)


def without_peers(accelerator: Accelerator, link: Interconnect) -> str:
    """Return what is assumed of a node whose devices have no peer access over PCIe, "" where they have."""
    share = share_between_peers(accelerator, link)
    if share == 1.0:
        return ""
    return (
        f"{accelerator.title} has no peer access: what goes to another passes the host's memory, at {share:g} of "
        f"{link.title}'s rate (--intra says another)"
    )


def node_network_bytes_per_s(catalogue: Catalogue, node: NodeType) -> float:
    """Return the rate of all compute NICs of a node together, per direction."""
    if node.nics is None or node.network is None:
        return 0.0
    return node.nics.number * catalogue.network(node.network).rate_bytes_per_s


def duplex_trap(rate_bytes_per_s: float, link: Interconnect) -> str | None:
    """Return a warning if a rate that is meant per direction is the duplex figure of the link, otherwise None."""
    if abs(rate_bytes_per_s / link.duplex_bytes_per_s - 1) > 0.03:
        return None
    return (
        f"{format_rate(rate_bytes_per_s)} is the duplex figure of {link.title}; per direction it is "
        f"{format_rate(link.rate_bytes_per_s)}"
    )


def sparsity_trap(catalogue: Catalogue, key: str, precision: str, flops_per_s: float) -> str | None:
    """Return a warning if a peak is twice the dense one of the catalogue, as datasheets print it with sparsity."""
    peak = catalogue.accelerators[key].peak_flops_per_s.get(precision)
    if peak is None or abs(flops_per_s / (2 * peak) - 1) > 0.02:
        return None
    return f"{flops_per_s / 1e12:.0f} TFLOP/s is {key}'s {precision} peak with sparsity; dense it is {peak / 1e12:.0f}"


def suspicions(mine: Catalogue, shipped: Catalogue) -> list[str]:
    """Return what looks wrong in figures that a user's file replaced: duplex rates, peaks with sparsity."""
    found: list[str] = []
    for key, link in shipped.interconnects.items():
        trap = duplex_trap(mine.interconnects[key].rate_bytes_per_s, link)
        found += [f"interconnects.{key}: {trap}"] if trap else []
    for key in shipped.accelerators:
        for precision, peak in mine.accelerators[key].peak_flops_per_s.items():
            trap = sparsity_trap(shipped, key, precision, peak)
            found += [f"accelerators.{key}: {trap}"] if trap else []
    return found


def intra_node_ratio_needed(gpus: int) -> float:
    """Return how much faster than the node's network the links inside must be: 2(P-1)/P of tensor parallelism.

    A rule of thumb that counts one all-reduce per pipeline cut; the planner's verdict comes from the full model.
    """
    return 2 * (gpus - 1) / gpus


def peak_lacking(catalogue: Catalogue, accelerator: str, precision: str, kind: str) -> str:
    """Return why there is no peak in a precision of this kind: nobody published it, or it is not multiplied.

    What another accelerator of the architecture multiplies, this one does too.
    """
    listed = catalogue.accelerators.get(accelerator)
    if listed is None:
        return f"{accelerator} has no {precision}"
    if kind in listed.peak_flops_per_s:  # a cluster's own figures lack what there is
        peak = f"{listed.peak_flops_per_s[kind] / 1e12:,.0f} TFLOP/s"
        return f"the cluster gives no peak of {accelerator} in {kind}, the catalogue {peak}"
    alike = (other for other in catalogue.accelerators.values() if other.architecture == listed.architecture)
    if listed.architecture and any(kind in other.peak_flops_per_s for other in alike):
        return f"the peak of {accelerator} in {kind} is not known: {YOUR_OWN}"
    return f"{accelerator} has no {precision}"
