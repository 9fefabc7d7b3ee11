"""`kubectl get nodes --show-labels` (also -o json, -o yaml): labels of clouds and operators for where a node hangs.

With `-L LABEL` the table has a column for a label, headed by what stands behind the label's last slash.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...errors import InputError
from ...units import counted, first_few
from ..graph import Cluster, Placement
from .kubernetes_yaml import holds_nodes, labelled_nodes
from .places import from_places, missing_pages

HEADER = re.compile(r"^\s*NAME\s+STATUS\s.*$")
# by who sets them, the nearest switch first; the first family that a node has counts
FAMILIES: tuple[tuple[str, ...], ...] = (
    tuple(f"network.topology.nvidia.com/{level}" for level in ("leaf", "spine", "core")),  # NVIDIA's topograph
    tuple(f"network.topology.nvidia.com/{level}" for level in ("block", "spine", "datacenter")),  # before 2025
    tuple(f"topology.k8s.aws/network-node-layer-{level}" for level in (4, 3, 2, 1)),  # 1 is the top
    tuple(f"cloud.google.com/gce-topology-{level}" for level in ("subblock", "block")),
    tuple(f"oci.oraclecloud.com/rdma.{level}_id" for level in ("local_block", "network_block", "hpc_island")),
)
DOMAINS = ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator", "topology.k8s.aws/ultraserver-id")
GPUS, PRODUCT = "nvidia.com/gpu.count", "nvidia.com/gpu.product"  # of NVIDIA's feature discovery
COLUMNS = {
    label.rpartition("/")[2].upper(): label
    for label in (*(key for keys in FAMILIES for key in keys), *DOMAINS, GPUS, PRODUCT)
}
SHOWN_OUT = 4  # nodes that a warning names
SOUGHT = "network.topology.nvidia.com, topology.k8s.aws, cloud.google.com/gce-topology, oci.oraclecloud.com/rdma"


def looks_like_kubernetes(text: str) -> bool:
    """Return whether a text is the table of nodes with their labels, or their YAML."""
    return _is_table(text) or holds_nodes(text)


def _is_table(text: str) -> bool:
    return any(_columns(line) for line in text[:200_000].splitlines())


def _columns(line: str) -> dict[str, tuple[int, int | None]]:
    """Return where each column of a header begins and ends, {} where a line is no header with labels."""
    if HEADER.match(line) is None:
        return {}
    heads = [(head.group(), head.start()) for head in re.finditer(r"\S+(?: \S+)*", line)]
    ends = [*(start for _, start in heads[1:]), None]
    found = {head: (start, end) for (head, start), end in zip(heads, ends, strict=True)}
    placing = {head for head, label in COLUMNS.items() if label not in {GPUS, PRODUCT}}
    return found if "LABELS" in found or placing & found.keys() else {}


def looks_like_kubernetes_json(data: object) -> bool:
    """Return whether an object is what `kubectl get nodes -o json` prints, of one node or a list."""
    items = data.get("items", [data]) if isinstance(data, dict) else None
    return (
        isinstance(items, list) and bool(items) and all(isinstance(i, dict) and i.get("kind") == "Node" for i in items)
    )


def from_kubernetes(text: str, where: str) -> Cluster:
    """Return a cluster of placements only, from the table with the column LABELS or from YAML."""
    if not _is_table(text):
        return _placed(list(labelled_nodes(text)), where)
    rows = list(_rows(text))
    cluster = _placed([(name, labels) for name, _, labels in rows], where)
    return replace(cluster, warnings=(*cluster.warnings, *_unready([(name, status) for name, status, _ in rows])))


def from_kubernetes_json(data: Mapping[str, Any], where: str) -> Cluster:
    """Return the same from -o json."""
    nodes = []
    for item in data.get("items", [data]):
        told = item.get("metadata")
        if not isinstance(told, dict) or not isinstance(told.get("name"), str):
            raise InputError(f"{where}: expected metadata.name of each node")
        labels = told.get("labels") or {}
        if not isinstance(labels, dict):
            raise InputError(f"{where}: {told['name'][:60]}: expected labels of names and texts")
        nodes.append((told["name"], {str(key): str(value) for key, value in labels.items()}))
    cluster = _placed(nodes, where)
    return replace(cluster, warnings=(*cluster.warnings, *missing_pages(data)))


def _rows(text: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the name, the status and the labels of each node of a table."""
    columns: dict[str, tuple[int, int | None]] = {}
    for line in text.splitlines():
        words = line.split()
        if found := _columns(line):
            columns = found
        elif columns and len(words) > 3:
            yield words[0], words[1], _labels(line, columns)
        elif columns and words:
            return  # a prompt or prose below the table


def _labels(line: str, columns: Mapping[str, tuple[int, int | None]]) -> dict[str, str]:
    """Return the labels of a row; one that a node does not have leaves its column empty."""
    pairs = (pair.partition("=") for pair in (line.split()[-1].split(",") if "LABELS" in columns else ()))
    cells = {COLUMNS[head]: line[slice(*place)].strip() for head, place in columns.items() if head in COLUMNS}
    return {key: value for key, value in cells.items() if value != "<none>"} | {key: value for key, _, value in pairs}


def _unready(nodes: Sequence[tuple[str, str]]) -> list[str]:
    """Return the nodes that take no work now, by their status."""
    out = [f"{name} ({status})" for name, status in nodes if status != "Ready"]
    verb = "takes" if len(out) == 1 else "take"
    return [f"{len(out)} of {len(nodes)} nodes {verb} no work now: {first_few(out, SHOWN_OUT)}"] if out else []


def _placed(nodes: Sequence[tuple[str, dict[str, str]]], where: str) -> Cluster:
    places = []
    for name, labels in nodes:
        switches = max((_values(family, labels) for family in FAMILIES), key=len)
        block = next((labels[key] for key in DOMAINS if labels.get(key)), "")
        places.append(Placement(name, switches or ((block,) if block else ()), block))
    cluster = from_places(places, where, f"no node has a label of its place in the network; looked for {SOUGHT}")
    return replace(cluster, warnings=(*cluster.warnings, *_labelled_gpus([labels for _, labels in nodes])))


def _labelled_gpus(nodes: Sequence[Mapping[str, str]]) -> list[str]:
    """Return what labels say of GPUs: where pods take turns the count is that of the GPUs themselves."""
    told = Counter(
        (labels[GPUS], labels.get(PRODUCT) or "GPUs of an unsaid product")
        for labels in nodes
        if labels.get(GPUS, "").isdecimal()
    )
    if not told:
        return []
    shown = ", ".join(f"{count} x {name} on {counted(often, 'node')}" for (count, name), often in told.items())
    shared = "; -SHARED: pods take turns on a GPU, which adds none" if "-SHARED" in shown else ""
    return [f"labels alone tell of GPUs, of which no devices are made: {shown}{shared}"]


def _values(family: Sequence[str], labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels[key] for key in family if labels.get(key))
