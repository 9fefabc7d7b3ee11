"""Dumps name what joins pairs of GPUs; messages of a simulation cross a switch once, and take time to start.

A pair behind a switch has the switch's link to both in a dump, so that each GPU would have as many of them as peers.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from ..hardware import Catalogue
from ..units import first_few, format_time
from .analysis import gpu_links
from .domains import domains
from .graph import Cluster, Device, Link
from .paths import is_own

_SHOWN = 4  # kinds of links that a note names


def as_network(cluster: Cluster, catalogue: Catalogue) -> tuple[Cluster, tuple[str, ...]]:
    """Return a cluster of listed links as messages meet them, and what was assumed of it, in words.

    GPUs behind a switch get a link to it each, in place of one to every peer. Links between GPUs that have no latency
    get that of the catalogue's link, where the GPUs are of a kind that it has.
    """
    known = {device.id: device for device in cluster.devices}
    joined = {frozenset((link.a, link.b)) for link in gpu_links(cluster)}
    links, notes = list[Link](), dict[str, float]()
    for link in cluster.links:
        latency_s = _latency_s(link, known, catalogue) if frozenset((link.a, link.b)) in joined else None
        if link.latency_s is None and latency_s is not None:
            notes.setdefault(link.kind, latency_s)
            link = replace(link, latency_s=latency_s)
        links.append(link)
    said = [f"{kind} {format_time(latency_s)}" for kind, latency_s in notes.items()]
    words = (f"latency of a message by the catalogue: {first_few(said, _SHOWN)}; --alpha says another",) if said else ()
    return _with_switches(replace(cluster, links=tuple(links))), words


def _latency_s(link: Link, devices: Mapping[str, Device], catalogue: Catalogue) -> float | None:
    """Return the latency of a link between two GPUs by their model, the larger of both; None where one is not known."""
    found = []
    for end in (link.a, link.b):
        accelerator = catalogue.accelerators.get(devices[end].model)
        key = accelerator and (
            (accelerator.link or accelerator.host_link) if is_own(link.kind) else accelerator.host_link
        )
        interconnect = catalogue.interconnect(key) if key else None
        if interconnect is None or interconnect.latency is None:
            return None
        found.append(interconnect.latency.number)
    return max(found)


def _with_switches(cluster: Cluster) -> Cluster:
    """Return the cluster with a switch in place of the pairs that it joins; half of their latency is on either side."""
    gpus, links = cluster.of_kind("gpu"), cluster.links
    devices = list(cluster.devices)
    for number, part in enumerate(domains(gpus, gpu_links(cluster))):
        if not part.switched or None in part.rates.values():
            continue
        inside, name = set(part.gpus), f"switch of GPUs {number}"
        pairs = [link for link in links if {link.a, link.b} <= inside and is_own(link.kind)]
        latency_s = max((link.latency_s for link in pairs if link.latency_s is not None), default=None)
        half = None if latency_s is None else latency_s / 2
        legs = [
            Link(a=gpu, b=name, kind=pairs[0].kind, bandwidth_bytes_per_s=rate, latency_s=half)
            for gpu, rate in part.rates.items()
        ]
        devices.append(Device(id=name, kind="switch"))
        links = (*(link for link in links if link not in pairs), *legs)
    return replace(cluster, devices=tuple(devices), links=links)
