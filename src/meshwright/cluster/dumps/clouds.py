"""Places of instances in a cloud's network, as its command prints them: `aws ec2 describe-instance-topology` and
`gcloud compute instances list --format=json` or `yaml`, or `describe`, which prints YAML.

AWS lists network nodes from the top down, and names a Capacity Block for instances of one UltraServer. Google Cloud
names subblock, block and cluster of the physical host, where a reservation or compact placement shows them.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ...errors import InputError
from ..graph import Cluster, Placement
from .kubernetes_yaml import lines_below, values_below, yaml_line
from .places import from_places, missing_pages, said_types

_STATUS = re.compile(r"^resourceStatus:[ ]*$", re.M)
_BETWEEN = re.compile(r"^---.*$", re.M)
GOOGLE_LEVELS = ("subblock", "block", "cluster")  # the nearest first


def looks_like_cloud_json(data: object) -> bool:
    """Return whether an object is what one of the commands prints."""
    if isinstance(data, Mapping):
        return _all_have(data.get("Instances"), "NetworkNodes")
    return _all_have(data, "resourceStatus")


def from_cloud_json(data: Any, where: str) -> Cluster:
    """Return a cluster of placements only; InputError where an instance has no name or no instance a place."""
    is_aws = isinstance(data, Mapping)
    items = data["Instances"] if isinstance(data, Mapping) else data
    places = [_aws_place(item, where) if is_aws else _google_place(item, where) for item in items]
    wanted = "NetworkNodes of any instance" if is_aws else "resourceStatus.physicalHostTopology of any instance"
    cluster = from_places(places, where, f"expected {wanted}: none has a place in the network")
    types = said_types([_type(item) for item in items])
    return replace(cluster, warnings=(*cluster.warnings, *types, *missing_pages(data)))


def looks_like_cloud_yaml(text: str) -> bool:
    """Return whether a text is the YAML of instances of Google Cloud that names their physical hosts."""
    return _STATUS.search(text) is not None and "physicalHostTopology:" in text


def from_cloud_yaml(text: str, where: str) -> Cluster:
    """Return the same from YAML: of an instance, or of several with --- between them."""
    items = []
    for document in _BETWEEN.split(text):
        lines = [line for line in map(yaml_line, document.splitlines()) if line is not None and line.text]
        status = lines_below(lines, "resourceStatus")
        if status:
            host = values_below(lines_below(status, "physicalHostTopology"))
            items.append({**values_below(lines), "resourceStatus": {"physicalHostTopology": host}})
    return from_cloud_json(items, where)


def _all_have(items: object, key: str) -> bool:
    return isinstance(items, list) and bool(items) and all(isinstance(item, Mapping) and key in item for item in items)


def _aws_place(item: Mapping[str, Any], where: str) -> Placement:
    nodes = item["NetworkNodes"]
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise InputError(f"{where}: expected NetworkNodes of each instance as a list of names")
    return Placement(_name(item, "InstanceId", where), tuple(reversed(nodes)), str(item.get("CapacityBlockId") or ""))


def _google_place(item: Mapping[str, Any], where: str) -> Placement:
    status = item["resourceStatus"]
    host = status.get("physicalHostTopology") if isinstance(status, Mapping) else None
    levels = [str(host.get(level) or "") for level in GOOGLE_LEVELS] if isinstance(host, Mapping) else []
    return Placement(_name(item, "name", where), tuple(level for level in levels if level))


def _type(item: Mapping[str, Any]) -> str:
    """Return the machine type of an instance, of Google's address of it the last part, "" where it has none."""
    name = item.get("InstanceType") or item.get("machineType")
    return name.rpartition("/")[2][:60] if isinstance(name, str) else ""


def _name(item: Mapping[str, Any], key: str, where: str) -> str:
    name = item.get(key)
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: expected {key} of each instance")
    return name
