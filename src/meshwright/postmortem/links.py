"""The broken end of a link: a port that fails on its own host, and peers that all lose that host."""

import re
from collections.abc import Sequence

from .facts import Failure
from .world import short_host

_PEER = re.compile(r", peer (?P<address>[\w.:%\[\]-]+)$")
_OWN_PORT = re.compile(r"^InfiniBand event: .*(?:port error|device fatal|fatal)", re.IGNORECASE)
_KERNEL = re.compile(r"link (?:is )?down|state change\w*:? .*down|cable (?:unplugged|error)|port .*down", re.IGNORECASE)


def at_broken_end(found: Sequence[Failure]) -> tuple[int, ...]:
    """Return the one rank at whose own end a link broke, () where that is not told.

    The port of one host alone fails, by NCCL's event on it or by its kernel, and ranks of other hosts that lose a peer
    all lose one address. A completion with an error alone has two ends.
    """
    broken = [fault for fault in found if fault.kind == "network"]
    events = [fault for fault in broken if _OWN_PORT.search(fault.what)]
    own = [*events, *(fault for fault in broken if _KERNEL.search(fault.what))]
    hosts = {short_host(fault.host) for fault in own if fault.host}
    if len(hosts) != 1 or any(not fault.host for fault in own):
        return ()
    host = next(iter(hosts))
    lost = [(fault, peer["address"]) for fault in broken if (peer := _PEER.search(fault.what))]
    if len({address for fault, address in lost if fault.host and short_host(fault.host) != host}) > 1:
        return ()
    told = {fault.rank for fault in events}
    lost_here = {fault.rank for fault, _ in lost if fault.host and short_host(fault.host) == host}
    for ranks in (told, lost_here):
        if len(ranks) == 1 and None not in ranks and not (lost_here - {None} - ranks):
            return tuple(rank for rank in ranks if rank is not None)
    return ()
