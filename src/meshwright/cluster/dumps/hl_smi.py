"""`hl-smi topo -c -N`: the CPUs and the NUMA node of each module of a Gaudi host. It names no link between them."""

import re

from ...errors import InputError
from ..graph import Cluster, Device

_HEAD = re.compile(r"^\s*modID(?P<cpus>\s+CPU Affinity)?(?P<node>\s+NUMA Affinity)?\s*$", re.M)
_ROW = re.compile(r"^\s*(?P<number>\d{1,3})\s{2,}(?P<rest>\d[\d,\s-]*?)\s*$")
_CPUS = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
_NOTE = (
    "modules of Gaudi (hl-smi topo), of which it names no links and no NICs: a copy of /sys or lstopo --of xml has the "
    "PCI tree"
)


def looks_like_hl_smi_topo(text: str) -> bool:
    """Return whether a text holds the heading of that table and a row below it."""
    head = _HEAD.search(text)
    return bool(head and (head["cpus"] or head["node"]) and any(map(_ROW.match, text[head.end() :].splitlines())))


def from_hl_smi_topo(text: str, where: str) -> Cluster:
    """Return the accelerators with what the columns say of each; InputError where a module stands twice."""
    head = _HEAD.search(text)
    found: dict[int, Device] = {}
    for line in text[head.end() :].splitlines() if head else ():
        row = _ROW.match(line)
        if head is None or row is None:
            continue
        number, cpus, node = int(row["number"]), row["rest"], None
        if head["node"]:
            cpus, _, last = (" " * 2 + cpus).rpartition("  ")
            node = last.strip()
        listed = re.sub(r"\s", "", cpus)
        if (
            number in found
            or bool(listed and not _CPUS.fullmatch(listed))
            or (node is not None and not node.isdecimal())
        ):
            raise InputError(f"{where}: module {number}: expected one row, with a list of CPUs and a NUMA node")
        found[number] = Device(
            id=f"GPU{number}", kind="gpu", cpu_affinity=listed or None, numa=int(node) if node else None
        )
    return Cluster(name=where, devices=tuple(found[number] for number in sorted(found)), warnings=(_NOTE,))
