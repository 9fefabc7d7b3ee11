"""The codes of a topology matrix: their meaning, how good they are, and which rate they determine."""

import re
from collections.abc import Mapping

from ..hardware import Accelerator, Catalogue, Interconnect

# best first; NV# and xGMI come before all of them. PCIe is a path over PCIe of which no more is known
PCIE_ORDER = ("PIX", "PSB", "PXB", "PHB", "NODE", "SYS", "PCIe")
MEANING = {
    "PIX": "one PCIe switch between them",
    "PSB": "a PCIe switch between them",
    "PXB": "several PCIe switches between them, no CPU",
    "PHB": "through a CPU's PCIe host bridge: no peer-to-peer at full rate, staged through memory on many hosts",
    "NODE": "through the link between two host bridges of one NUMA node",
    "SYS": "through the link between CPU sockets (UPI, xGMI)",
    "PCIe": "over PCIe, on a path that the dump does not name",
}
SLOW = frozenset({"PHB", "NODE", "SYS"})
SAME_AS = {"SOC": "SYS"}  # what drivers before 2018 printed
NVLINK = re.compile(r"NV(\d{1,2})")
# links of other makers' own: Ascend, MetaX, Moore Threads, Intel
OTHERS_OWN = re.compile(r"HCCS_SW|HCCS|SIO|MX\d{0,2}|MT\d{1,2}|MDF|XL(?:\d{1,2}|\*)?")
CODE = re.compile(rf"{OTHERS_OWN.pattern}|X|NV\d{{1,2}}|PIX|PSB|PXB|PHB|NODE|SYS|SOC|C2C")
P2P = "P2P"  # peers that can copy to each other; over what is not known

# GB/s of one NVLink per direction where the count alone determines it: 25 from NVLink 2 to NVLink 4
PER_LINK_BYTES_PER_S = 25e9
# most NVLinks of a pair, where no device of NVLink 5 can have so few unless most of its links are down
SAME_RATE_COUNTS = frozenset({*range(2, 9), 12})


def rank(kind: str) -> int:
    """Return how good a kind of link is: 0 for GPU links, then the PCIe codes from PIX to SYS."""
    return PCIE_ORDER.index(kind) + 1 if kind in PCIE_ORDER else 0


def is_own(kind: str) -> bool:
    """Return whether a link between two GPUs is of their own kind (NVLink, xGMI, RoCE ports), and not PCIe."""
    return kind not in PCIE_ORDER and kind != P2P


def nvlink_count(kind: str) -> int:
    """Return the links that a code bonds: 12 for NV12, 0 for anything else."""
    match = NVLINK.fullmatch(kind)
    return int(match.group(1)) if match else 0


class RateRule:
    """Rates of the links of one dump; `warnings` collects, once each, why a rate stays unknown.

    All NVLinks of one matrix are of one generation, which the largest count tells where it can.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        gpu: str | None,
        counts: Mapping[tuple[int, int], int],
        gpus: int,
        per_link_bytes_per_s: float | None = None,
    ) -> None:
        self.accelerator: Accelerator | None = catalogue.accelerator(gpu) if gpu else None
        self._catalogue = catalogue
        self._told = per_link_bytes_per_s
        self._most = max(counts.values(), default=0)
        self._totals = {sum(n for pair, n in counts.items() if g in pair) for g in range(gpus)}
        self.warnings: list[str] = []

    def bytes_per_s(self, kind: str) -> float | None:
        """Return the rate of a pair's link per direction, or None (and a warning) where the dump leaves it open."""
        count = nvlink_count(kind)
        if count:
            return self._nvlink(kind, count)
        if kind in PCIE_ORDER:
            return self._pcie(kind)
        if OTHERS_OWN.fullmatch(kind):
            return self._open(f"{kind}: a link of its maker's own, of which no catalogue has the rate: measure it")
        return None

    def _nvlink(self, kind: str, count: int) -> float | None:
        if self.accelerator is not None:
            own = self._own_link(self.accelerator)
            if own.kind != "nvlink":
                return self._open(f"{kind}: {self.accelerator.title} has no NVLink")
            if count > own.links.number:
                return self._open(f"{kind}: {self.accelerator.title} has {own.links.number:.0f} NVLinks only")
            return count * own.link_bytes_per_s
        per_link = self._per_link(kind)
        return None if per_link is None else count * per_link

    def _per_link(self, kind: str) -> float | None:
        """Return the rate of one NVLink where the counts tell the generation."""
        if self._told is not None:
            return self._told
        most, totals = self._most, self._totals
        if most == 1 and totals == {4}:
            return self._catalogue.interconnect("nvlink-1").link_bytes_per_s
        if most <= 2 and (most == 1 or totals != {2}) and max(totals) <= 4:
            return self._open(f"{kind}: 20 GB/s a link on P100, 25 on V100; say which with --gpu NAME")
        if most == 4 and totals <= {0, 4}:
            return self._open(
                f"{kind}: 56 GB/s over a consumer or workstation bridge, 100 elsewhere; say which with --gpu NAME"
            )
        if most == 18:
            said = "450 GB/s on H100 and H200, 900 on B200 and later" if kind == "NV18" else "25 or 50 GB/s a link"
            return self._open(f"{kind}: {said}; say which with --gpu NAME")
        if most not in SAME_RATE_COUNTS:
            return self._open(f"{kind}: 25 GB/s a link up to H200, 50 on B200 and later; say which with --gpu NAME")
        if most == 8:
            self._say("NV8: a cut-down part, A800 or H800: 200 GB/s per direction where A100 has 300 and H100 450")
        if most == 2 and totals == {2}:
            self._say("NV2 is taken as 2 x 25 GB/s (NVLink 2); a P100 pair on POWER8 has 2 x 20")
        return PER_LINK_BYTES_PER_S

    def _pcie(self, kind: str) -> float | None:
        if self.accelerator is None:
            return self._open(f"{kind}: the dump does not say which PCIe generation; say the device with --gpu NAME")
        if kind in SLOW:
            self._say(
                f"{kind}: the rate is the PCIe link's, an upper bound; what the host makes of it must be measured"
            )
        return self._catalogue.interconnect(self.accelerator.host_link).rate_bytes_per_s

    def _own_link(self, accelerator: Accelerator) -> Interconnect:
        return self._catalogue.interconnect(accelerator.link or accelerator.host_link)

    def _open(self, warning: str) -> float | None:
        """Return None, the unknown rate, and keep the reason."""
        self._say(warning)
        return None

    def _say(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)
