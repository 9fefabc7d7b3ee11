"""The interface that Gloo and NCCL would take, by the rules that they follow.

Gloo (as torch makes its devices): the names in GLOO_SOCKET_IFNAME, exactly and separated by commas; without it, the
one that has the address of the own host name; if that address is on no interface, the loopback.
NCCL: NCCL_SOCKET_IFNAME is a list of prefixes, after "=" of exact names, after "^" of prefixes to leave out; without
it, interfaces that begin with "ib", then all others but docker and the loopback, then docker, then the loopback.
"""

from .facts import NetworkInterface, NodeFacts


def gloo_takes(facts: NodeFacts) -> list[NetworkInterface]:
    """Return the interfaces that Gloo would use, or none if it would fail."""
    names = facts.environment.get("GLOO_SOCKET_IFNAME", "")
    if names:
        known = {interface.name: interface for interface in facts.interfaces}
        return [known[name] for name in names.split(",") if name in known]
    by_name = [facts.interface_of(address) for address in facts.host_addresses]
    taken = [interface for interface in by_name if interface is not None][:1]
    return taken or [interface for interface in facts.interfaces if interface.loopback][:1]


def nccl_takes(facts: NodeFacts) -> list[NetworkInterface]:
    """Return the interfaces that NCCL would use, in its order, or none if it would fail."""
    usable = [interface for interface in facts.interfaces if interface.up and interface.addresses]
    text = facts.environment.get("NCCL_SOCKET_IFNAME", "")
    if text:
        names = text.lstrip("^=").split(",")
        if text.startswith("^"):
            return [i for i in usable if not i.name.startswith(tuple(names))]
        if text.startswith("="):
            return [i for i in usable if i.name in names]
        return [i for i in usable if i.name.startswith(tuple(names))]
    groups = (
        [i for i in usable if i.name.startswith("ib")],
        [i for i in usable if not i.name.startswith(("ib", "docker", "lo"))],
        [i for i in usable if i.name.startswith("docker")],
        [i for i in usable if i.name.startswith("lo")],
    )
    return next((group for group in groups if group), [])
