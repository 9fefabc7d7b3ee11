"""On which address a rank listens for ranks of other hosts: one interface, never all.

`MESHWRIGHT_INTERFACE` (or `GLOO_SOCKET_IFNAME`) names the interface. Otherwise it is the one that leads to the host of
the group's store, however the group was initialised. Where that is this machine's loopback (rank 0 often knows its own
name as 127.0.1.1), that address is useless on another machine: the interface is then the one that leads to the first
rank on another machine whose address is better, or the only interface left.
"""

import contextlib
import ipaddress
import os
import socket
from collections.abc import Sequence
from typing import Any

from ...errors import InputError

INTERFACE_VARIABLE = "MESHWRIGHT_INTERFACE"
VARIABLES = (INTERFACE_VARIABLE, "GLOO_SOCKET_IFNAME")
FAR = ("192.0.2.1", "2001:db8::1")  # of nobody (RFC 5737, RFC 3849): the way there is the default route
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def network_address(store_host: str | None = None) -> str:
    """Return the address of the interface that is named, or else that leads to the host of the store; "" if none does.

    `store_host` is by default the launcher's `MASTER_ADDR`. InputError where what is named is not there.
    """
    named = _named()
    host = os.environ.get("MASTER_ADDR", "") if store_host is None else store_host
    if named is not None:
        return _of_interface(*named, like=_way_to(host))
    return _way_to(host)


def host_of_store(store: Any) -> str:
    """Return the host that a store is on, as this rank was told; "" for a store that is on none."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return str(getattr(store, "host", "") or os.environ.get("MASTER_ADDR", ""))


def common_address(mine: str, others: Sequence[str]) -> str:
    """Return an address of this rank on which ranks of other machines reach it, where `mine` may be the loopback one.

    `others` are what ranks of other machines have found of themselves. InputError where there is none.
    """
    if mine and not is_loopback(mine):
        return mine
    named = _named()
    if named is not None:
        raise InputError(f"{'='.join(named)}: its address {mine} leads to no other machine")
    targets = (*(other for other in others if other and not is_loopback(other)), *FAR)
    for target in targets:
        found = _way_to(target)
        if found and not is_loopback(found):
            return found
    found_all = _outside()
    if len(found_all) != 1:
        names = ", ".join(f"{name} ({address})" for name, address in found_all) or "there is none beside loopback"
        raise InputError(f"no address that leads to other machines: set {INTERFACE_VARIABLE} to an interface: {names}")
    return found_all[0][1]


def is_loopback(address: str) -> bool:
    """Return whether an address means the machine itself on every machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    return False


def listening_at(address: str) -> tuple[socket.AddressFamily, Any]:
    """Return the family of an address and what to bind to there, at a port that is free."""
    family, _, _, _, place = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0]
    return family, place


def from_here(theirs: str, mine: str) -> str:
    """Return the address of another rank as this one reaches it: a link-local one counts on this rank's own link."""
    scope = mine.partition("%")[2]
    return f"{theirs.partition('%')[0]}%{scope}" if scope and _is_link_local(theirs) else theirs


def address_advice() -> str:
    """Return what a user can do about an address that is not reached."""
    named = _named()
    return f"{'='.join(named)} named the interface" if named else f"{INTERFACE_VARIABLE} names the interface to take"


def _named() -> tuple[str, str] | None:
    """Return the variable that names the interface, and what it says; None where none does."""
    return next(((name, os.environ[name]) for name in VARIABLES if os.environ.get(name)), None)


def _of_interface(variable: str, names: str, like: str) -> str:
    """Return the address of the first of these interfaces, of the family of `like` where it has one."""
    import psutil  # where an interface is looked for

    interfaces = psutil.net_if_addrs()
    families = sorted(_FAMILIES, key=lambda family: (family == socket.AF_INET6) != (":" in like))
    for name in names.split(","):
        for family in families:
            found = [str(item.address) for item in interfaces.get(name.strip(), []) if item.family == family]
            if found:
                return min(found, key=_is_link_local)
    known = ", ".join(sorted(interfaces))
    raise InputError(f"{variable}={names}: no such interface with an IPv4 or IPv6 address (there are {known})")


def _way_to(host: str) -> str:
    """Return this machine's address on the way to a host, "" without a route. Nothing is sent: the kernel picks it.

    A host of several addresses counts with the first to which the way leaves the machine.
    """
    found = []
    with contextlib.suppress(OSError):
        for family, kind, _, _, target in socket.getaddrinfo(host or None, 9, type=socket.SOCK_DGRAM) if host else []:
            with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(target)
                address, *_ = socket.getnameinfo(probe.getsockname(), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
                found.append(address)
    return min(found, key=is_loopback, default="")


def _outside() -> list[tuple[str, str]]:
    """Return the interfaces that are up and lead out of the machine, each with its first address."""
    import psutil

    states, found = psutil.net_if_stats(), []
    for name, items in psutil.net_if_addrs().items():
        addresses = [str(item.address) for family in _FAMILIES for item in items if item.family == family]
        usable = [address for address in addresses if not is_loopback(address)]
        if usable and name in states and states[name].isup:
            found.append((name, min(usable, key=_is_link_local)))
    return found


def _is_link_local(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_link_local
