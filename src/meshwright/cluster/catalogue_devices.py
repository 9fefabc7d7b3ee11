"""A device with what the catalogue says of its model."""

from msgspec.structs import replace

from ..hardware import Accelerator, Catalogue
from .graph import Device

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
