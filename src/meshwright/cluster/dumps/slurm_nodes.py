"""`scontrol show node`: the accelerators of each node by SLURM's count, and the CPUs that jobs may use.

It names no links and no place of a single GPU: what it says of them as a group are warnings.
"""

import re
from collections.abc import Iterator

from ...errors import InputError
from ..graph import Cluster, Device
from .hostlist import MAX_NAMES
from .nvidia import joined_hosts, on_node

_NODE = re.compile(r"^\s*NodeName=(\S{1,200})\s", re.M)
_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")
_GPUS = re.compile(r"gpu(?::(?P<type>[A-Za-z][\w.-]*))?:(?P<count>\d{1,4})(?:\(S:(?P<sockets>[\d,-]+)\))?")
_USED = re.compile(r"gres/gpu=(\d{1,4})\b")
_LINKS = "SLURM names no links: give the output of nvidia-smi topo -m as well"


def looks_like_slurm_nodes(text: str) -> bool:
    """Return whether a text is of scontrol show node."""
    return re.search(r"^\s*NodeName=\S+ Arch=", text[:200_000], re.M) is not None


def from_slurm_nodes(text: str, where: str) -> Cluster:
    """Return the accelerators of each node."""
    starts = [match.start() for match in _NODE.finditer(text)]
    parts = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    if len(parts) > MAX_NAMES:
        raise InputError(f"{where}: more than {MAX_NAMES} nodes")
    nodes = [(facts["NodeName"], _node(facts, where)) for facts in map(_facts, parts)]
    if len(nodes) == 1:
        return nodes[0][1]
    return joined_hosts(where, [on_node(name, node) for name, node in nodes])


def _facts(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in _PAIR.findall(text):
        found.setdefault(key, value)
    return found


def _node(facts: dict[str, str], where: str) -> Cluster:
    devices: list[Device] = []
    groups = list(_GPUS.finditer(facts.get("Gres", "")))
    for group in groups:
        for _ in range(int(group["count"])):
            devices.append(Device(id=f"GPU{len(devices)}", kind="gpu", model=group["type"] or ""))
    said = [*_cpus(facts), *(_tied(group) for group in groups if group["sockets"])]
    if devices and (used := _USED.search(facts.get("AllocTRES", ""))):
        said.append(f"{used[1]} of {len(devices)} GPUs are in use")
    if not devices:
        said.append("SLURM counts no GPUs here (Gres)")
    return Cluster(name=where, devices=tuple(devices), warnings=(*said, _LINKS))


def _cpus(facts: dict[str, str]) -> Iterator[str]:
    total, usable = (facts.get(key, "") for key in ("CPUTot", "CPUEfctv"))
    if not total.isdecimal():
        return
    shape = [facts.get(key, "") for key in ("Sockets", "CoresPerSocket", "ThreadsPerCore")]
    each = f" ({shape[0]} sockets x {shape[1]} cores x {shape[2]} threads)" if all(shape) else ""
    kept = facts.get("CPUSpecList", "")
    less = f", of which jobs may use {usable}" if usable.isdecimal() and usable != total else ""
    yield f"{total} CPUs{each}{less}" + (f": {kept} are kept for the system" if less and kept else "")


def _tied(group: re.Match[str]) -> str:
    several = re.search(r"\D", group["sockets"]) is not None
    which = ": which GPU is at which is not said" if several else ""
    return f"the {group['count']} GPUs hang on socket{'s' if several else ''} {group['sockets']}{which}"
