"""The link that `--link` names: of GPUs or a NIC of the catalogue, or a NIC by its rate alone."""

import msgspec

from ...errors import InputError, nearest
from ...hardware import Catalogue, Interconnect, NetworkPort
from ...hardware.arithmetic import USUAL_SHARE
from ...units import parse_rate
from .explain import attainable_bytes_per_s

# "we usually consider 24 GB/s the peak of a 200G NIC, 12 GB/s of a 100G one" (nccl-tests issue 119)
RDMA_SHARE = 24 / 25
RDMA = ("infiniband", "roce")
GOOD = 0.85  # of what is attainable: tables that maintainers call good reach 86 % and more, those they call low 68 %
BEYOND_RATE = 1.05  # of the rate of a link itself, which no transfer over it surpasses; the rest is rounding
ABOVE_USUAL = 1.02
IS_USUAL = "above that figure, which is usual for these links and not the most that they carry"
SLOW_NETWORK = (
    "the bytes may have gone another way (TCP in place of RDMA, another NIC or provider), the NIC's PCIe slot has "
    "fewer lanes (lspci -vv: LnkSta), or others used the link"
)
SLOW_SOCKETS = (
    "a port on the way may run slower (ethtool: Speed), packets may be lost or small (MTU), the NIC's PCIe slot has "
    "fewer lanes (lspci -vv: LnkSta), or others used the link"
)
SLOW_VERBS = (
    "its port may run at a lower rate or width (ibstat: Rate), the NIC's PCIe slot has fewer lanes or a lower speed "
    "(lspci -vv: LnkSta), or others used the link"
)
OWN_LINKS = "not all links or channels in use, other jobs, or peer access off (topo)"
SLOW_HOST_LINK = (
    "its PCIe link has fewer lanes or a lower speed than the GPU's (lspci -vv under load: LnkSta), the host's slots "
    "are of an older generation, or the copy came from the memory of another socket (numactl)"
)


class NamedLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link, per direction: its rate, and what large transfers reach of it."""

    title: str
    rate_bytes_per_s: float
    attainable_bytes_per_s: float
    link: Interconnect | None = None  # between GPUs of a node; None for a NIC
    family: str = ""  # of a NIC of the catalogue


def named_link(catalogue: Catalogue, name: str, *, is_rdma: bool = False) -> NamedLink:
    """Return the link by its key or, a NIC, by its rate alone ("400Gbps"); InputError for neither.

    `is_rdma` says of a rate alone that bytes went by RDMA, which has less overhead than sockets have.
    """
    if name[:1].isdecimal():
        rate, share = parse_rate(name), RDMA_SHARE if is_rdma else USUAL_SHARE
        return NamedLink(title=f"NIC of {name}", rate_bytes_per_s=rate, attainable_bytes_per_s=rate * share)
    own = catalogue.interconnects.get(name)
    found = catalogue.networks.get(name) or own
    if found is None:
        known = nearest(name, [*catalogue.networks, *catalogue.interconnects])
        raise InputError(f"--link {name}: expected a link or NIC of the catalogue ({known}), or a rate such as 400Gbps")
    attainable = nic_bytes_per_s(found) if isinstance(found, NetworkPort) else attainable_bytes_per_s(found)
    return NamedLink(
        title=found.title,
        rate_bytes_per_s=found.rate_bytes_per_s,
        attainable_bytes_per_s=attainable,
        link=own,
        family=found.family if isinstance(found, NetworkPort) else "",
    )


def nic_bytes_per_s(network: NetworkPort) -> float:
    """Return what NCCL's maintainers expect of a healthy NIC, per direction."""
    if network.family in RDMA:
        return RDMA_SHARE * network.rate_bytes_per_s
    return attainable_bytes_per_s(network)
