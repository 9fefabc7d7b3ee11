"""Rates as NCCL counts them, held against what a device was built with: its NVLinks, and its PCIe link.

Per NVLink and direction NCCL takes 18 GB/s of Pascal, 20 of Volta and Ampere, 20.6 of Hopper (20 in older versions)
and 40.1 of Blackwell (40 in older ones); of PCIe 3 x16 it takes 12, of others in proportion (its src/graph/topo.h).
"""

import math
from collections.abc import Mapping, Sequence

from ...hardware import Accelerator, Catalogue
from ...units import counted, first_few, format_rate

# GB/s of one NVLink per direction by its datasheet, and what NCCL counts for it
_OF_A_LINK = {20.0: (18.0,), 25.0: (20.6, 20.0), 50.0: (40.1, 40.0)}
_PCIE3_BYTES_PER_S = 12e9
_GENERATIONS = {12e9: "PCIe 3", 24e9: "PCIe 4", 48e9: "PCIe 5", 96e9: "PCIe 6"}  # of 16 lanes
_ROUNDED = 1e-3  # of a rate, which is printed with a decimal
_SLOWER = 0.95
_SHOWN = 8  # GPUs that a note names


def nvlink_notes(accelerator: Accelerator, catalogue: Catalogue, to_switch: Mapping[str, float]) -> list[str]:
    """Return how many NVLinks the rates of GPUs to their switches stand for, and how many the device was built with."""
    link = catalogue.interconnect(accelerator.link) if accelerator.link else None
    if link is None or link.kind != "nvlink":
        return []
    built, by_count = round(link.links.number), dict[tuple[int, float], list[str]]()
    for gpu, rate in to_switch.items():
        if count := _links(rate, link.link_bytes_per_s):
            by_count.setdefault((count, rate), []).append(gpu)
    said = []
    for (count, rate), gpus in by_count.items():
        of = f"all that {accelerator.title} has" if count == built else f"of {built} that {accelerator.title} has"
        lost = f": {counted(built - count, 'link')} of each is down" if count < built else ""
        said.append(
            f"{first_few(gpus, _SHOWN)}: {format_rate(rate)} is what NCCL counts for {counted(count, 'NVLink')}, {of} "
            f"({format_rate(count * link.link_bytes_per_s)} per direction by the datasheet){lost}"
        )
    return said


def _links(rate_bytes_per_s: float, link_bytes_per_s: float) -> int | None:
    """Return the NVLinks that a rate of NCCL's stands for, None where it is no whole number of them."""
    for one in _OF_A_LINK.get(link_bytes_per_s / 1e9, ()):
        count = round(rate_bytes_per_s / 1e9 / one)
        if count and abs(rate_bytes_per_s / 1e9 / one / count - 1) < _ROUNDED:
            return count
    return None


def pcie_notes(accelerator: Accelerator, catalogue: Catalogue, rates: Mapping[str, float | None]) -> list[str]:
    """Return which GPUs have a slower link to PCIe than their device was built with, by NCCL's figures."""
    host = catalogue.interconnect(accelerator.host_link)
    doubled = math.log2(host.rate_bytes_per_s / catalogue.interconnect("pcie-3").rate_bytes_per_s)
    full = _PCIE3_BYTES_PER_S * 2 ** round(doubled)
    slow: dict[float, list[str]] = {}
    for gpu, rate in rates.items():
        if host.kind == "pcie" and rate and rate < _SLOWER * full:
            slow.setdefault(rate, []).append(gpu)
    return [_slow_words(gpus, rate, full, accelerator.title, host.title) for rate, gpus in slow.items()]


def _slow_words(gpus: Sequence[str], rate: float, full: float, title: str, link: str) -> str:
    of_rate = _GENERATIONS.get(rate)
    means = f", which is {of_rate} x16 or as much over fewer lanes" if of_rate else ""
    return (
        f"{first_few(gpus, _SHOWN)}: NCCL counts {format_rate(rate)} to PCIe{means}; {title} has {link}, for which it "
        f"counts {format_rate(full)}: a slower slot or link, or a virtual machine that says so (lspci -vv: LnkSta)"
    )
