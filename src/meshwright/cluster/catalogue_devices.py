"""A device with what the catalogue says of its model."""

from msgspec.structs import replace

from ..hardware import Accelerator, Catalogue
from .graph import Cluster, Device

SHOWN = frozenset({"nvlink", "xgmi"})  # links that dumps show; ports of a card that are Ethernet are in none


def described_device(device: Device, key: str, accelerator: Accelerator, catalogue: Catalogue) -> Device:
    """Return a GPU with the peaks, the memory and the links of its model where it does not say them itself."""
    link = catalogue.interconnect(accelerator.link) if accelerator.link else None
    none = 0 if link is None else None
    return replace(
        device,
        model=key,
        memory_bytes=device.memory_bytes or accelerator.memory_bytes,
        memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s or accelerator.memory_rate.number,
        peak_flops_per_s=device.peak_flops_per_s or accelerator.peak_flops_per_s,
        own_links=round(link.links.number) if link and link.kind in SHOWN else none,
        bridged=accelerator.bridged,
    )


def with_catalogue(device: Device, name: str, catalogue: Catalogue) -> Device:
    """Return the GPU described under a key of the catalogue or a driver's name; InputError if neither is known.

    It is what drivers list: one die of a card with several.
    """
    key = catalogue.shown_key(name)
    return described_device(device, key, catalogue.accelerators[key], catalogue)


def most_trays(model: str, catalogue: Catalogue) -> int:
    """Return how many hosts a domain of these GPUs' own links joins at most, 0 for GPUs whose links end in a host."""
    racks = [node.scale_up_nodes for node in catalogue.nodes.values() if node.accelerator == model]
    return max((round(trays.number) for trays in racks if trays), default=0)


def open_domain(cluster: Cluster, catalogue: Catalogue) -> str:
    """Return that one host does not say how many share its GPUs' links, in words, "" where that is no question."""
    gpus = cluster.of_kind("gpu")
    models, nodes = {gpu.model for gpu in gpus}, {gpu.node for gpu in gpus}
    trays = most_trays(models.pop(), catalogue) if len(models) == len(nodes) == 1 else 0
    if not trays or cluster.groups or cluster.scale_up_nodes:
        return ""
    return (
        f"{len(gpus)} {gpus[0].model} of one host: how many hosts such as this one share an NVLink domain it does not "
        f"say (up to {trays}, {trays * len(gpus)} GPUs); nvidia-smi -q on each names the domain, and --domain says it"
    )
