"""The link that `--link` names: of GPUs or a NIC of the catalogue, or a NIC by its rate alone."""

import msgspec

from ..errors import InputError, nearest
from ..hardware import Catalogue, Interconnect
from ..hardware.arithmetic import EXPECTED_SHARE
from ..units import parse_rate
from .explain import attainable_bytes_per_s


class NamedLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link, per direction: its rate, and what large transfers reach of it."""

    title: str
    rate_bytes_per_s: float
    attainable_bytes_per_s: float
    link: Interconnect | None = None  # between GPUs of a node; None for a NIC


def named_link(catalogue: Catalogue, name: str) -> NamedLink:
    """Return the link by its key or, a NIC, by its rate alone ("400Gbps"); InputError for neither."""
    if name[:1].isdecimal():
        rate = parse_rate(name)
        return NamedLink(
            title=f"NIC of {name}", rate_bytes_per_s=rate, attainable_bytes_per_s=rate * sum(EXPECTED_SHARE) / 2
        )
    own = catalogue.interconnects.get(name)
    found = catalogue.networks.get(name) or own
    if found is None:
        known = nearest(name, [*catalogue.networks, *catalogue.interconnects])
        raise InputError(f"--link {name}: expected a link or NIC of the catalogue ({known}), or a rate such as 400Gbps")
    return NamedLink(
        title=found.title,
        rate_bytes_per_s=found.rate_bytes_per_s,
        attainable_bytes_per_s=attainable_bytes_per_s(found),
        link=own,
    )
