"""The links of the nodes of a cluster, as the yardstick of a table that was measured on them.

A sick link is no excuse: what it is held against is the link that the catalogue has for the GPUs, not the rate at
which the file says that it trained. How many GPUs and NICs there are is the file's; that the hosts of a rack share
NVLink, which a file of one of them cannot show, is the catalogue's.
"""

from msgspec.structs import replace

from ...cluster.compact import compact
from ...cluster.graph import Cluster, NodeGroup
from ...hardware import Catalogue
from ...hardware.arithmetic import USUAL_SHARE
from .explain import attainable_bytes_per_s
from .named_link import RDMA, RDMA_SHARE, NamedLink, named_link
from .yardstick import TableLinks, links_of_card


def nodes_of(cluster: Cluster, catalogue: Catalogue, link: str | None, where: str) -> NodeGroup:
    """Return the nodes of a cluster; NICs without a rate (as of `nvidia-smi topo -m`) get that of `link`."""
    rate = named_link(catalogue, link).rate_bytes_per_s if link and link not in catalogue.interconnects else None
    devices = tuple(
        replace(device, network_bandwidth_bytes_per_s=device.network_bandwidth_bytes_per_s or rate)
        if device.kind == "nic"
        else device
        for device in cluster.devices
    )
    return compact(replace(cluster, devices=devices), catalogue, where=where).groups[0]


def links_of_nodes(catalogue: Catalogue, nodes: NodeGroup) -> TableLinks:
    """Return the links of nodes that are all alike."""
    key = nodes.gpu.model if nodes.gpu.model in catalogue.accelerators else None
    accelerator = catalogue.accelerators[key] if key else None
    host, nic = nodes.host_bandwidth_bytes_per_s, nodes.nic_bandwidth_bytes_per_s or 0.0
    machine = links_of_card(catalogue, key)
    changes: dict[str, object] = {
        "gpus": nodes.gpus,
        "domain": nodes.gpus * max(nodes.scale_up_nodes, _hosts_of_rack(catalogue, key)),
    }
    if accelerator and accelerator.link and nodes.gpu_link != "PCIe":
        link = catalogue.interconnect(accelerator.link)
        share = nodes.reduction_bandwidth_bytes_per_s
        changes |= {"link_key": accelerator.link, "link": link, "bridge": None, "is_switched": nodes.switched}
        changes |= {"reduces_in_switch": share and share / nodes.gpu_bandwidth_bytes_per_s}
    if accelerator and accelerator.cpu_link:
        changes |= {"cpu_bytes_per_s": attainable_bytes_per_s(catalogue.interconnect(accelerator.cpu_link))}
    elif host:
        changes |= {"host_bytes_per_s": host * USUAL_SHARE}
    if nodes.nics and nic:
        changes |= {"nics": nodes.nics, "nics_said": True}
        reached = nic * (RDMA_SHARE if nodes.nic_kind in RDMA else USUAL_SHARE)
        kind = nodes.nic_kind
        title = f"{kind} {8 * nic / 1e9:g} Gb/s"
        changes |= {"nic": NamedLink(title=title, rate_bytes_per_s=nic, attainable_bytes_per_s=reached, family=kind)}
    return replace(machine, **changes)


def _hosts_of_rack(catalogue: Catalogue, accelerator: str | None) -> int:
    """Return how many hosts these GPUs' own links join in the smallest node type that has them."""
    found = [node.scale_up_nodes for node in catalogue.whole_nodes.values() if node.accelerator == accelerator]
    return min((round(hosts.number) if hosts else 1 for hosts in found), default=1)
