"""`dcgmi topo --gpuid N`: the paths from one GPU to every other, in words; of several GPUs, one table after another.

What lies between two GPUs of which neither has a table is not said. A "CPU-level link" is one inside a socket or
between two, as the CPUs of both ends tell where both have tables.
"""

import itertools
import re
from collections.abc import Sequence

from ...errors import InputError
from ...hardware import Catalogue
from ..graph import Cluster
from .evidence import GpuEvidence, evidence
from .matrix import Matrix
from .nvidia import from_matrix

_ROW = re.compile(r"\|\s*(?P<title>[^|]*?)\s*\|\s*(?P<words>[^|]*?)\s*\|\s*$")
_GPU, _PEER = re.compile(r"GPU ID: (\d{1,3})"), re.compile(r"To GPU (\d{1,3})")
_CPUS = "CPU Core Affinity"
_PATHS = {
    "an on-board PCIe switch": "PSB",
    "a single PCIe switch": "PIX",
    "multiple PCIe switches": "PXB",
    "a PCIe host bridge": "PHB",
}
_OVER_CPU = "a CPU-level link"
# more than twelve are "Unknown"
_COUNTS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_NVLINKS = re.compile(rf"Connected via ({'|'.join(_COUNTS)}) NVLINKs?\b")
_Tables = dict[int, dict[str, list[str]]]  # of each GPU, the lines of each title


def looks_like_dcgmi_topo(text: str) -> bool:
    """Return whether a text holds a table of one GPU with a path to another."""
    return bool(re.search(r"\|\s*GPU ID: \d+\s*\|\s*Topology Information", text)) and _PEER.search(text) is not None


def from_dcgmi_topo(
    text: str, where: str, catalogue: Catalogue, gpu: str | None = None, facts: GpuEvidence | None = None
) -> Cluster:
    """Return the GPUs and the paths that are said; the pairs of which nothing is said are named."""
    tables = _tables(text)
    numbers = sorted(
        {*tables, *(int(match[1]) for told in tables.values() for match in map(_PEER.match, told) if match)}
    )
    cpus = {number: _cpus(told) for number, told in tables.items() if told.get(_CPUS)}
    codes: dict[tuple[int, int], str] = {}
    unknown: list[str] = []
    for i, j in itertools.combinations(range(len(numbers)), 2):
        a, b = numbers[i], numbers[j]
        ways = [tables[x][f"To GPU {y}"] for x, y in ((a, b), (b, a)) if f"To GPU {y}" in tables.get(x, {})]
        both = {_code(said, cpus.get(a), cpus.get(b)) for said in ways} - {""}
        if len(both) > 1:
            raise InputError(
                f"{where}: GPU {a} and GPU {b} name different paths to each other: {ways[0][0]}; {ways[1][0]}"
            )
        said = ways[0] if ways else []
        if code := next(iter(both), ""):
            codes[i, j] = code
        else:
            unknown.append(f"GPU{a}-GPU{b}" + (f" ({', '.join(said)})" if said else ""))
    here = evidence(text.splitlines())
    matrix = Matrix(
        tuple(f"GPU{number}" for number in numbers), codes, facts=here if here.gpus or facts is None else facts,
        cpu_affinity={f"GPU{number}": listed for number, listed in cpus.items()},
    )  # fmt: skip
    if unknown:
        shown = ", ".join(unknown[:6]) + (", ..." if len(unknown) > 6 else "")
        matrix.warnings.append(
            f"what lies between {shown} is not said: dcgmi topo shows one GPU's paths; give the output of nvidia-smi "
            "topo -m"
        )
    return from_matrix(matrix, where, catalogue, gpu)


def _tables(text: str) -> _Tables:
    found: _Tables = {}
    told: dict[str, list[str]] | None = None
    title = ""
    for line in text.splitlines():
        row = _ROW.search(line)
        if row is None:
            continue
        if head := _GPU.fullmatch(row["title"]):
            told, title = found.setdefault(int(head[1]), {}), ""
        elif row["words"] == "Topology Information":  # of a group
            told = None
        elif told is not None:
            title = row["title"] or title  # what a line has no room for stands below it without a title
            told.setdefault(title, []).append(row["words"])
    return found


def _cpus(told: dict[str, list[str]]) -> str:
    return re.sub(r"\s", "", "".join(told[_CPUS]))


def _code(said: Sequence[str], cpus: str | None, other: str | None) -> str:
    """Return the code of a path, "" where the words leave it open."""
    for words in said:
        if match := _NVLINKS.match(words):
            return f"NV{_COUNTS.index(match[1]) + 1}"
    if len(said) != 1:  # a second line is of NVLinks that are too many for its words
        return ""
    path = said[0].removeprefix("Connected via ")
    if path == _OVER_CPU and cpus and other:
        return "NODE" if cpus == other else "SYS"
    return _PATHS.get(path, "")
