"""NCCL's lists of paths (NCCL_DEBUG_SUBSYS=GRAPH), where a log holds them and not the picture of the system above.

Each list says how one GPU or NIC reaches all others: hops, GB/s as NCCL counts them, and the worst step of the way. A
list of every GPU must be there: of some, pairs would be counted and NICs be shared that are not.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...errors import InputError
from ...hardware import Catalogue
from ...units import counted
from ..catalogue_devices import with_catalogue
from ..graph import Cluster, Device, Link

# "node1:11:22 [0] NCCL INFO GPU/5000 :GPU/0-4000 (2/370.8/NVL) CPU/0-0 (2/24.0/PHB) NET/0-1 (5/24.0/PHB)"
_LIST = re.compile(r"^(?P<before>.*?)\b(?:GPU|NET)/[0-9A-Fa-f]+(?:-[0-9A-Fa-f]+)? :(?=(?:GPU|NET|CPU|NVS)/)", re.M)
_STEP = re.compile(
    r"\b(?P<kind>GPU|NET|CPU)/(?:(?P<system>[0-9A-Fa-f]{1,16})-)?(?P<id>[0-9A-Fa-f]{1,16}) "
    r"\((?P<hops>\d{1,4})/(?P<rate>\d{1,6}(?:\.\d{1,9})?)/(?P<way>[A-Z0-9]{3})\)"
)
_KINDS = {"NVL": "NVLink", "PIX": "PIX", "PXB": "PXB", "PHB": "PHB", "SYS": "SYS"}
_SELF = "LOC"
_BY_SWITCH = 2  # NVLinks from GPU to GPU: through a switch, for that through a third GPU is "NVB"
MAX_DEVICES = 256
NEEDED = "the lines from '=== System' to '====='"

_End = tuple[str, int, int]  # GPU or NET, system, id


class _Way(NamedTuple):
    """How a path goes: the worst step, its rate in bytes per second, and how many links it has."""

    kind: str
    bytes_per_s: float
    hops: int


def looks_like_nccl_paths(text: str) -> bool:
    """Return whether a text holds a list of paths."""
    return _LIST.search(text) is not None


def from_nccl_paths(text: str, where: str, catalogue: Catalogue, gpu: str | None = None) -> Cluster:
    """Return the GPUs and NICs of the first host whose lists a text holds, and the ways that the lists say."""
    ways, numa, others = _read(text, where)
    ends = sorted({end for pair in ways for end in pair})
    if len(ends) > MAX_DEVICES:
        raise InputError(f"{where}: {len(ends)} GPUs and NICs in NCCL's lists of paths, expected {MAX_DEVICES} at most")
    gpus, nets = [e for e in ends if e[0] == "GPU"], [e for e in ends if e[0] == "NET"]
    listed = {start for start, _ in ways}
    if missing := [end for end in gpus if end not in listed]:
        has = f"{len(gpus) - len(missing)} of {counted(len(gpus), 'GPU')}"
        raise InputError(f"{where}: NCCL's lists of paths of {has}: expected one of each, or {NEEDED}")
    names = {end: f"GPU{i}" for i, end in enumerate(gpus)} | {end: f"NIC{i}" for i, end in enumerate(nets)}
    devices = [_device(end, names[end], numa, catalogue, gpu) for end in (*gpus, *nets)]
    links, detours = [], list[str]()
    for a, b in itertools.combinations((*gpus, *nets), 2):
        way = ways.get((a, b)) or ways.get((b, a))
        if a[0] == "NET" or way is None:
            continue  # from a NIC to a NIC nothing of a job goes
        if way.kind in _KINDS:
            kind, rate = _KINDS[way.kind], way.bytes_per_s or None
            switched = way.kind == "NVL" and way.hops == _BY_SWITCH
            links.append(Link(a=names[a], b=names[b], kind=kind, bandwidth_bytes_per_s=rate, switched=switched))
        else:
            detours.append(f"{names[a]}-{names[b]} ({way.kind})")
    return Cluster(name=where, devices=tuple(devices), links=tuple(links), warnings=tuple(_said(detours, others)))


def _read(text: str, where: str) -> tuple[dict[tuple[_End, _End], _Way], dict[_End, int], list[str]]:
    """Return the ways of the first host by their ends, the NUMA node of each end, and the other hosts."""
    ways: dict[tuple[_End, _End], _Way] = {}
    near: dict[_End, set[int]] = {}
    hosts: list[str] = []
    for line in text.splitlines():
        match = _LIST.match(line)
        if match is None:
            continue
        host = match["before"].split("NCCL INFO")[0].strip().partition(":")[0].split(" ")[-1].strip("`>*|")
        if host not in hosts:
            hosts.append(host)
        if host != hosts[0]:
            continue
        steps = list(_STEP.finditer(line, match.end()))
        own = next((_end(step) for step in steps if step["way"] == _SELF and step["kind"] != "CPU"), None)
        if own is None:
            continue  # cut off before it names itself, or too old to do so
        for step in steps:
            if step["kind"] == "CPU":
                if step["way"] != "SYS":
                    near.setdefault(own, set()).add(int(step["id"], 16))
            elif step["way"] != _SELF:
                way = _Way(step["way"], float(step["rate"]) * 1e9, int(step["hops"]))
                ways.setdefault((own, _end(step)), way)
    if not ways:
        raise InputError(f"{where}: NCCL's list of paths is cut off before it names its own device: expected {NEEDED}")
    numa = {end: min(nodes) for end, nodes in near.items() if len(nodes) == 1 and min(nodes) < 2**31}
    return ways, numa, hosts[1:]


def _end(step: re.Match[str]) -> _End:
    return step["kind"], int(step["system"] or "0", 16), int(step["id"], 16)


def _device(end: _End, name: str, numa: Mapping[_End, int], catalogue: Catalogue, gpu: str | None) -> Device:
    device = Device(id=name, kind="gpu" if end[0] == "GPU" else "nic", numa=numa.get(end))
    return with_catalogue(device, gpu, catalogue) if gpu and device.kind == "gpu" else device


def _said(detours: Sequence[str], others: Sequence[str]) -> list[str]:
    found = ["NCCL's lists of paths: a rate is that of a whole path, as NCCL counts it"]
    if detours:
        shown = f"{', '.join(detours[:4])}{', ...' if len(detours) > 4 else ''}"
        found.append(f"{counted(len(detours), 'path')} through another GPU or the network: {shown}")
    if others:
        found.append(f"lists of other hosts are left out: {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}")
    return found
