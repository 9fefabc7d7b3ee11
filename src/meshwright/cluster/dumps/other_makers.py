"""Matrices of other makers' tools in the words of `nvidia-smi topo -m`: Ascend, MetaX, Moore Threads, Intel.

Codes that differ only in their name become the usual ones (SPB is PIX, S is X), NPU0 and Phy-ID0 become GPU0, and the
tiles of Intel's cards (GPU 0/0, GPU 0/1) are counted through. Codes of a maker's own links stay; no catalogue has their
rates. Forms: xpu-smi's documentation, the others from public posts and guides.
"""

import re
from dataclasses import dataclass, field

from msgspec.structs import replace

from ...hardware import Catalogue
from ..graph import Cluster
from .evidence import GpuEvidence
from .nvidia import from_nvidia_matrix

FRONT = r"^[ \t>|]*"  # what quoting and tables put before a row
NODE_FIRST = re.compile(r"NUMA Affinity(\s+)CPU Affinity", re.I)
LAST_TWO = re.compile(r"(\S*\d)(\s+)(\S*\d)[ \t]*$")
PCIE = "X|PIX|PXB|PIB|PHB|NODE|SYS"


@dataclass(frozen=True, slots=True)
class Maker:
    """A maker's matrix: who prints it, its labels (the group is the number) and its own codes.

    `same_as` has a maker's code to the usual one.
    """

    title: str
    command: str
    label: str
    own: str
    same_as: dict[str, str] = field(default_factory=dict)
    meaning: str = ""  # of its own codes, where its documentation says it

    def looks(self, text: str) -> bool:
        """Return whether a text holds a row that only this maker prints."""
        codes = [self.own, *self.same_as] + ([] if self.label.startswith("GPU(") else [PCIE])
        row = rf"{FRONT}{self.label}[ \t|].*(?<![^\s|])(?:{'|'.join(codes)})(?![^\s|])"
        return bool(re.search(row, text[:100_000], re.M))

    def read(
        self, text: str, where: str, catalogue: Catalogue, gpu: str | None = None, facts: GpuEvidence | None = None
    ) -> Cluster:
        """Return the cluster of such a matrix; the rates of the maker's own links stay open."""
        numbers: dict[str, str] = {}
        usual = "\n".join(_usual(line, self, numbers) for line in _columns_in_order(text).split("\n"))
        cluster = from_nvidia_matrix(usual, where, catalogue, gpu, facts)
        tiles = [f"GPU{number} is {tile}" for tile, number in numbers.items() if "/" in tile]
        said = f"a matrix of {self.title} ({self.command})" + (f": {', '.join(tiles)}" if tiles else "")
        said += f"; {self.meaning}" if self.meaning else ""
        return replace(cluster, warnings=(said, *cluster.warnings))


MAKERS = (
    Maker("Ascend NPUs", "npu-smi info -t topo", r"(?:NPU|Phy-ID)(\d+)", r"HCCS_SW|HCCS|SIO"),
    Maker("MetaX GPUs", "mx-smi topo -m", r"GPU(\d+)", r"MX\d*"),
    Maker("Moore Threads GPUs", "mthreads-gmi topo -m", r"GPU(\d+)", r"MT\d+", {"SPB": "PIX", "MPB": "PXB"}),
    Maker("Intel GPUs", "xpu-smi topology -m", r"GPU (\d+/\d+)", r"MDF|XL(?:\d+|\*)?", {"S": "X"},
          "MDF joins the tiles of a card, XL16 is an Xe Link of 16 lanes, XL* goes over Xe Link and MDF"),
)  # fmt: skip


def _columns_in_order(text: str) -> str:
    """Return the text with the CPUs of a row before its NUMA node, as nvidia-smi prints them."""
    text = re.sub(r"Node Affinity", "NUMA Affinity", text)
    if not NODE_FIRST.search(text):
        return text
    rows = [LAST_TWO.sub(r"\3\2\1", line) for line in text.split("\n")]
    return NODE_FIRST.sub(r"CPU Affinity\1NUMA Affinity", "\n".join(rows))


def _usual(line: str, maker: Maker, numbers: dict[str, str]) -> str:
    """Return a line of the matrix in the usual words; other lines stay as they are."""
    if not re.match(FRONT + maker.label, line):
        return line

    def renamed(label: re.Match[str]) -> str:
        number = label[1]
        return f"GPU{numbers.setdefault(number, str(len(numbers)) if '/' in number else number)}"

    line = re.sub(maker.label, renamed, line.replace("|", " "))
    for code, usual in maker.same_as.items():
        line = re.sub(rf"(?<![^\s|]){code}(?![^\s|])", usual, line)
    return line
