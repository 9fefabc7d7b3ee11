"""`rocm-smi --showtopo` into a Cluster: link types, hops and NUMA nodes of the GPUs."""

import re
from collections.abc import Sequence

from ...errors import InputError
from ...hardware import Catalogue
from ..graph import Cluster, Device, Link
from .matrix import ANSI

SECTION = re.compile(r"=+\s*(.*?)\s*=+\s*$")
NUMA = re.compile(r"GPU\[(\d+)\]\s*:\s*\(Topology\)\s*Numa (Node|Affinity):\s*(-?\d+)")
TYPES = {"XGMI": "xGMI", "PCIE": "PCIe", "PCIe": "PCIe", "0": "X"}
MAX_GPUS = 128


def looks_like_rocm(text: str) -> bool:
    """Return whether a text is the output of rocm-smi."""
    return "Link Type between two GPUs" in text or ("(Topology)" in text and "GPU[" in text)


def from_rocm_topology(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the cluster of a saved rocm-smi --showtopo; `gpu` names the device, which decides the rates."""
    lines = [ANSI.sub("", line).rstrip() for line in text.splitlines()]
    types = _table(lines, "Link Type between two GPUs", where)
    if not types:
        raise InputError(f"{where}: no table 'Link Type between two GPUs', expected the output of rocm-smi --showtopo")
    hops = _table(lines, "Hops between two GPUs", where)
    count = len(types)
    rate, warnings = _rate(catalogue, gpu)
    numa: dict[int, int] = {}
    for line in lines:
        match = NUMA.match(line.strip())
        if match and match.group(2) == "Node" and int(match.group(3)) >= 0:
            numa[int(match.group(1))] = int(match.group(3))
    key = catalogue.accelerator_key(gpu) if gpu else ""
    devices = tuple(Device(id=f"GPU{i}", kind="gpu", model=key, numa=numa.get(i)) for i in range(count))
    links, far = [], []
    for i in range(count):
        for j in range(i + 1, count):
            kind, hop = _kind(types[i][j], where, i, j), hops[i][j] if hops else "1"
            if kind != _kind(types[j][i], where, j, i):
                raise InputError(f"{where}: GPU{i} to GPU{j} is {types[i][j]} one way and {types[j][i]} the other")
            direct = kind == "xGMI" and hop == "1"
            if kind == "xGMI" and not direct:
                far.append(f"GPU{i}-GPU{j}")
            links.append(Link(a=f"GPU{i}", b=f"GPU{j}", kind=kind, bandwidth_bytes_per_s=rate if direct else None))
    if far:
        warnings.append(
            f"{len(far)} pairs are more than one xGMI hop apart ({far[0]}, ...): their rate must be measured"
        )
    if any(link.kind == "PCIe" for link in links):
        warnings.append("PCIe: the dump does not say which generation; measure with bench p2p")
    return Cluster(name=where, devices=devices, links=tuple(links), warnings=tuple(warnings))


def _kind(cell: str, where: str, i: int, j: int) -> str:
    kind = TYPES.get(cell)
    if kind is None or kind == "X":
        raise InputError(f"{where}: GPU{i} to GPU{j}: link type {cell!r}, expected XGMI or PCIE")
    return kind


def _rate(catalogue: Catalogue, gpu: str | None) -> tuple[float | None, list[str]]:
    if gpu is None:
        return None, ["xGMI: 50 GB/s to a peer on MI250X, 64 on MI300X; say which with --gpu NAME"]
    accelerator = catalogue.accelerator(gpu)
    link = catalogue.interconnect(accelerator.link or accelerator.host_link)
    if link.kind != "xgmi":
        return None, [f"{accelerator.title} has no xGMI: the rates are left open"]
    return link.peer_bytes_per_s(7, switched=False), []


def _table(lines: Sequence[str], title: str, where: str) -> list[list[str]]:
    """Return the cells of the table under a section title: one row a GPU."""
    start = next(
        (i for i, line in enumerate(lines) if (m := SECTION.match(line.strip())) and m.group(1) == title), None
    )
    if start is None:
        return []
    names: list[str] = []
    rows: list[list[str]] = []
    for number, line in enumerate(lines[start + 1 :], start=start + 2):
        tokens = line.split()
        if not tokens:
            continue
        if SECTION.match(line.strip()):
            break
        if not names:
            names = tokens
            if names != [f"GPU{i}" for i in range(len(names))] or len(names) > MAX_GPUS:
                raise InputError(f"{where}:{number}: expected the columns GPU0 to GPU{MAX_GPUS - 1} at most")
        elif tokens[0] == f"GPU{len(rows)}" and len(tokens) == len(names) + 1:
            rows.append(tokens[1:])
        else:
            raise InputError(f"{where}:{number}: expected the row GPU{len(rows)} with {len(names)} cells")
    if len(rows) != len(names) or not rows:
        raise InputError(f"{where}: table {title!r}: {len(rows)} rows for {len(names)} GPUs: it is truncated")
    return rows
