"""The yardsticks of a measurement: a node of the catalogue, the GPUs of this machine, or its memory."""

from ...cluster.graph import Cluster
from ...hardware import Catalogue
from ...hardware.arithmetic import gpu_link, node_network_bytes_per_s
from .named_link import named_link
from .verdict import Spec, slower_ways

GLOO_HINT = "Gloo moves bytes between ranks of one host through the loopback's TCP; --backend meshwright shares memory"


def node_spec(catalogue: Catalogue, name: str, ranks: int) -> Spec:
    """Return the spec of a catalogue node: its GPU links for ranks inside one node, its NICs for more."""
    node = catalogue.node(name)
    link = gpu_link(catalogue, node)
    domain = round(node.gpus.number) * (round(node.scale_up_nodes.number) if node.scale_up_nodes else 1)
    if ranks > domain:
        network = catalogue.node_network(node)
        nics = node.ports
        rate = node_network_bytes_per_s(catalogue, node)
        if rate < link.rate_bytes_per_s:
            return Spec(name=f"{nics} x {network.title}", bytes_per_s=rate, nics=nics)
    switch = catalogue.switches[node.switch] if node.switch else None
    accelerator = catalogue.accelerators[node.accelerator]
    return Spec(
        name=link.title,
        bytes_per_s=link.rate_bytes_per_s,
        link=link,
        reduces_in_switch=switch is not None and switch.reduction_share is not None,
        slower=slower_ways(catalogue, accelerator.host_link) if accelerator.link else (),
    )


def link_spec(catalogue: Catalogue, name: str) -> Spec:
    """Return the spec of one link or NIC of the catalogue, or of a NIC by its rate."""
    found = named_link(catalogue, name)
    return Spec(name=found.title, bytes_per_s=found.rate_bytes_per_s, link=found.link)


def gpu_spec(catalogue: Catalogue, cluster: Cluster) -> Spec | None:
    """Return the spec of this machine's GPU links, None where they are not known."""
    own = [link for link in cluster.links if link.kind.startswith(("NV", "xGMI")) and link.bandwidth_bytes_per_s]
    if not own:
        return None
    model = next(device.model for device in cluster.of_kind("gpu"))
    accelerator = catalogue.accelerators.get(model)
    rate = min(link.bandwidth_bytes_per_s or 0.0 for link in own)
    slower = slower_ways(catalogue, accelerator.host_link) if accelerator else ()
    return Spec(name=own[0].kind, bytes_per_s=rate, slower=slower)


def network_spec(cluster: Cluster) -> Spec | None:
    """Return the NICs of this host together, None where their rates are not known."""
    rates = [rate for nic in cluster.of_kind("nic") if (rate := nic.network_bandwidth_bytes_per_s)]
    if not rates:
        return None
    return Spec(name="the NICs of a host" if len(rates) > 1 else "the NIC", bytes_per_s=sum(rates), nics=len(rates))


def memory_spec(copy_bytes_per_s: float, backend: str) -> Spec:
    """Return the yardstick of ranks that share a host's memory: what one of them copies while all copy."""
    hint = GLOO_HINT if backend == "gloo" else ""
    return Spec(name="the memory copy of all ranks at once", bytes_per_s=copy_bytes_per_s, hint=hint, is_measured=True)
