"""What the codes of a topology matrix mean, how good they are, and which rate they determine."""

import re
from collections.abc import Mapping

from ..hardware import Accelerator, Catalogue, Interconnect

# best first; NV# and xGMI come before all of them
PCIE_ORDER = ("PIX", "PSB", "PXB", "PHB", "NODE", "SYS")
MEANING = {
    "PIX": "one PCIe switch between them",
    "PSB": "a PCIe switch between them",
    "PXB": "several PCIe switches between them, no CPU",
    "PHB": "through a CPU's PCIe host bridge: no peer-to-peer at full rate, staged through memory on many hosts",
    "NODE": "through the link between two host bridges of one NUMA node",
    "SYS": "through the link between CPU sockets (UPI, xGMI)",
}
SLOW = frozenset({"PHB", "NODE", "SYS"})
SAME_AS = {"SOC": "SYS"}  # what drivers before 2018 printed
NVLINK = re.compile(r"NV(\d{1,2})")
CODE = re.compile(r"X|NV\d{1,2}|PIX|PSB|PXB|PHB|NODE|SYS|SOC|C2C")

# GB/s of one NVLink per direction where the count alone determines it: 25 from NVLink 2 to NVLink 4
PER_LINK_BYTES_PER_S = 25e9


def rank(kind: str) -> int:
    """Return how good a kind of link is: 0 for GPU links, then the PCIe codes from PIX to SYS."""
    return PCIE_ORDER.index(kind) + 1 if kind in PCIE_ORDER else 0


def nvlink_count(kind: str) -> int:
    """Return the links that a code bonds: 12 for NV12, 0 for anything else."""
    match = NVLINK.fullmatch(kind)
    return int(match.group(1)) if match else 0


def is_switched(counts: Mapping[tuple[int, int], int], gpus: int) -> bool:
    """Return whether the NV# of all GPU pairs can only come from a switch: more links in all than any GPU has."""
    values = set(counts.values())
    if gpus < 3 or len(values) != 1 or len(counts) != gpus * (gpus - 1) // 2:
        return False
    return (gpus - 1) * values.pop() > 18


class RateRule:
    """Rates of the links of one dump; `warnings` collects, once each, why a rate stays unknown."""

    def __init__(self, catalogue: Catalogue, gpu: str | None, counts: Mapping[tuple[int, int], int], gpus: int) -> None:
        self.accelerator: Accelerator | None = catalogue.accelerator(gpu) if gpu else None
        self._catalogue = catalogue
        self._counts = counts
        self._link_totals = {g: sum(n for pair, n in counts.items() if g in pair) for g in range(gpus)}
        self.warnings: list[str] = []

    def bytes_per_s(self, kind: str) -> float | None:
        """Return the rate of a pair's link per direction, or None (and a warning) where the dump leaves it open."""
        count = nvlink_count(kind)
        if count:
            return self._nvlink(kind, count)
        if kind in PCIE_ORDER:
            return self._pcie(kind)
        return None

    def _nvlink(self, kind: str, count: int) -> float | None:
        own = self._own_link()
        if own is not None:
            if own.kind != "nvlink":
                return self._open(f"{kind}: {self._name()} has no NVLink")
            if count > own.links.number:
                return self._open(f"{kind}: {self._name()} has {own.links.number:.0f} NVLinks only")
            return count * own.link_bytes_per_s
        totals = set(self._link_totals.values())
        if count == 1 and totals == {4}:
            return self._catalogue.interconnect("nvlink-1").link_bytes_per_s
        if count == 18:
            return self._open(f"{kind}: 450 GB/s on H100 and H200, 900 on B200 and later; say which with --gpu NAME")
        if count == 1 and max(self._counts.values(), default=0) == 1:
            return self._open(f"{kind}: 20 GB/s on P100, 25 on V100; say which with --gpu NAME")
        if count == 4 and totals <= {0, 4}:
            return self._open(
                f"{kind}: 56 GB/s over a consumer or workstation bridge, 100 elsewhere; say which with --gpu NAME"
            )
        if count == 8:
            self._say("NV8: a cut-down part, A800 or H800: 200 GB/s per direction where A100 has 300 and H100 450")
        if count == 2 and max(self._counts.values(), default=0) == 2 and totals == {2}:
            self._say("NV2 is taken as 2 x 25 GB/s (NVLink 2); a P100 pair on POWER8 has 2 x 20")
        return count * PER_LINK_BYTES_PER_S

    def _pcie(self, kind: str) -> float | None:
        if self.accelerator is None:
            return self._open(f"{kind}: the dump does not say which PCIe generation; say the device with --gpu NAME")
        if kind in SLOW:
            self._say(
                f"{kind}: the rate is the PCIe link's, an upper bound; what the host makes of it must be measured"
            )
        return self._catalogue.interconnect(self.accelerator.host_link).rate_bytes_per_s

    def _own_link(self) -> Interconnect | None:
        if self.accelerator is None:
            return None
        return self._catalogue.interconnect(self.accelerator.link or self.accelerator.host_link)

    def _name(self) -> str:
        return self.accelerator.title if self.accelerator else "the device"

    def _open(self, warning: str) -> float | None:
        """Return None, the unknown rate, and keep the reason."""
        self._say(warning)
        return None

    def _say(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)
