"""The broken end of a link: a port that fails on its own host, and peers that all lose that host."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from ..nouns.facts import Fact, Failure, LinkUp, PeerLost, PortDown, Timeout, of
from ..nouns.identities import Adapters, HostAddress, PortErrors, PortName
from ..nouns.where import Where
from ..nouns.world import identities_of, names_of_addresses, short_host
from .devices import NamedDevice, rank_of_device, ranks_of_port
from .hosts import SWITCH_PORT, are_all, told_ranks_of
from .owners import owners_of

_PEER = re.compile(r", peer (?P<address>[\w.:%\[\]-]+)$")
_GID = re.compile(r"\bremoteGids? ?(?P<gid>[0-9a-f:]*::?[0-9a-f:]+)")
_END = re.compile(r"\bdevice (?P<number>\d{1,4}) on (?P<host>[\w.:-]+)")  # of HCCL's links, which name both
_OWN_PORT = re.compile(r"^InfiniBand event: .*(?:port error|device fatal|fatal)", re.IGNORECASE)
_DEVICE = re.compile(
    r"\b(?:mlx[45]|bnxt_re|irdma|hns|qedr|efa|erdma)_(?:bond_)?\d+\b|\b[\da-f]{4}:[\da-f]{2}:[\da-f]{2}\.\d\b"
)
_WORD = re.compile(r"\w+")
_OFFLINE = re.compile(r"without any active (?:interface|slave|port)", re.IGNORECASE)  # no link is left
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")  # of EC2
_SILENT = re.compile(r"[Uu]nresponsive receiver|[Uu]nreachable remote")
_FEW = 2  # hosts, of which one would not stand apart from the other
_SLACK_S = 120.0  # after a link is up again, in which ranks still complain
_NEAR_S = 2100.0  # of a time-out of half an hour, and a little
_KERNEL = re.compile(
    r"link (?:is )?down|state change\w*:? .*down|cable (?:unplugged|error)|port .*down|without any active|lost carrier"
    r"|to down|is down|went down",
    re.IGNORECASE,
)


def lost_address(fault: Failure) -> str | None:
    """Return the address of the peer to which a rank's link broke, None where the fault names none."""
    peer = _PEER.search(fault.what) if fault.kind == "network" else None
    return peer["address"] if peer else None


def _lost_port(fault: Failure) -> str | None:
    """Return the GID of the port to which a rank's link broke, None where the line has none."""
    gid = _GID.search(fault.where.text)
    return gid["gid"] if gid else None


def at_broken_end(found: Sequence[Failure], facts: list[Fact]) -> tuple[int, ...]:
    """Return the one rank at whose own end a link broke, or all of its host; () where that is not told.

    The port of one host alone fails, by NCCL's event on it or by its kernel, shortly before the first complaint or for
    good (ports without a cable are down from the start), and ranks of other hosts that lose a peer all lose one.
    A completion with an error alone has two ends. All ranks of the host are at that end where none of them complains,
    its kernel says so, or all ports failed that they use. A switch alone knows only its own end of the cable: where a
    rank of the host lives and complains, too, the link is all that is known to have failed.
    """
    broken = [fault for fault in found if fault.kind == "network"]
    if npu := _at_port_of_npu(broken, facts):
        return npu
    events = [fault for fault in broken if _OWN_PORT.search(fault.what)]
    kernel = _seen_down(broken, facts)
    own = [*events, *kernel]
    if not own and (silent := _silent_peer(broken, facts)):
        whole = told_ranks_of(silent, facts)
        return () if are_all(whole, facts) else whole
    if not own and (far := _lost_host(broken, facts)):
        return _behind_ports(far, (), facts) or _of_one_port(far, facts)
    hosts = {short_host(fault.host) for fault in own if fault.host}
    if len(hosts) != 1 or any(not fault.host for fault in own):
        return ()
    host = next(iter(hosts))
    lost = [(fault, peer) for fault in broken if (peer := lost_address(fault))]
    elsewhere = [(fault, address) for fault, address in lost if fault.host and short_host(fault.host) != host]
    ports = {_lost_port(fault) for fault, _ in elsewhere}
    if len({address for _, address in elsewhere}) > 1 and (len(ports) > 1 or None in ports):
        return ()
    lost_here = {fault.rank for fault, _ in lost if fault.host and short_host(fault.host) == host}
    if lost_here and all(fault.what.startswith(SWITCH_PORT) for fault in own):
        return ()
    if ported := _behind_ports(host, own, facts):
        return ported
    if _are_all_ports(host, own, facts):
        whole = told_ranks_of(host, facts)
        return () if are_all(whole, facts) else whole
    told = {fault.rank for fault in events}
    for ranks in (told, lost_here):
        if len(ranks) == 1 and None not in ranks and not (lost_here - {None} - ranks):
            return tuple(rank for rank in ranks if rank is not None)
    one_of_many = len(_used(host, facts)) > 1 and bool(_ports_named(host, own, facts))
    one_of_many = one_of_many or _is_one_as_elsewhere(host, own, facts)
    whole = () if one_of_many or (lost_here and not kernel) else told_ranks_of(host, facts)
    return () if are_all(whole, facts) else whole


def ports_at_end(ends: Sequence[int], found: Sequence[Failure], facts: list[Fact]) -> list[Failure]:
    """Return in what words the port of these ranks told of its own fault: NCCL's event of theirs, or their kernel's.

    A kernel that counts from the start of its host says the same of a link that stayed down, and does not say when.
    """
    broken = [fault for fault in found if fault.kind == "network" and ends]
    events = [fault for fault in broken if _OWN_PORT.search(fault.what) and set(owners_of(fault)) & set(ends)]
    seen = _seen_down(broken, facts)
    seen += [fault for fault in broken if fault not in seen and _stayed_down(fault, facts)]
    kernel = [fault for fault in seen if set(ends) <= set(told_ranks_of(fault.host, facts))]
    return [*(replace(fault, what=_with_port(fault)) for fault in events), *kernel]


def _with_port(fault: Failure) -> str:
    """Return the words of an event of NCCL's with the port that its line names, and its host."""
    port = _DEVICE.search(fault.where.text)
    return f"{fault.what} of {port[0]}{f' on {fault.host}' * bool(fault.host)}" if port else fault.what


def _stayed_down(fault: Failure, facts: list[Fact]) -> bool:
    """Whether a kernel that counts from the start of its host saw a link fail, and not come up again."""
    is_up = any(up.down == fault.where for up in of(facts, LinkUp))
    return fault.where.time_s is None and not is_up and bool(_KERNEL.search(fault.what))


def _silent_peer(broken: Sequence[Failure], facts: list[Fact]) -> str:
    """Return the one host that EFA's devices of several others found silent while no rank of it complains; "" for none.

    A queue pair of InfiniBand that gives up does not know which of its two ends is the broken one.
    """
    lost = [(fault, peer) for fault in broken if (peer := lost_address(fault))]
    if not all(_INSTANCE.fullmatch(peer) and _SILENT.search(fault.where.text) for fault, peer in lost):
        return ""
    hosts = {_host_of_instance(peer, facts) for _, peer in lost}
    complain = {short_host(fault.host) for fault in broken}
    silent = hosts.pop() if len(hosts) == 1 else ""
    return silent if "" not in complain and silent not in complain and len(complain) >= _FEW else ""


def _host_of_instance(number: str, facts: list[Fact]) -> str:
    """Return the host of an instance: by a line that joins the two, or the one of all hosts whose own is not told."""
    names = names_of_addresses(facts)
    known = {name for other, name in names.items() if _INSTANCE.fullmatch(other)}
    left = {short_host(one.host) for one in identities_of(facts) if one.host} - known
    return names.get(number) or (left.pop() if known and len(left) == 1 else "")


def _lost_host(broken: Sequence[Failure], facts: list[Fact]) -> str:
    """Return the one host to which all links broke, where its port alone is down or has errors by its own tables.

    Its address is told by NCCL's lines; "" where any of this is not.
    """
    lost = {lost_address(fault) for fault in broken}
    hosts = {short_host(one.host) for one in of(facts, HostAddress) if one.address in lost}
    down = {short_host(port.host) for port in of(facts, PortDown)}
    counted = of(facts, PortErrors)
    bad = {short_host(one.host) for one in counted if one.downs or one.errors}
    is_alone = len({short_host(one.host) for one in counted}) > _FEW and len(bad) == 1
    ends = down or (bad if is_alone else set())
    return hosts.pop() if len(lost) == len(hosts) == 1 and hosts == ends else ""


def _of_one_port(host: str, facts: list[Fact]) -> tuple[int, ...]:
    """Return the ranks of a host whose processes use one port; () of one that has others."""
    whole = told_ranks_of(host, facts) or tuple({i.rank for i in identities_of(facts) if short_host(i.host) == host})
    return whole if len(_used(host, facts)) == 1 and not are_all(whole, facts) else ()


def _behind_ports(host: str, own: Sequence[Failure], facts: list[Fact]) -> tuple[int, ...]:
    """Return the ranks that use the ports of a host that failed, where others of it did not; () where not told."""
    ports = _ports_named(host, own, facts)
    if not ports or ports == _used(host, facts):
        return ()
    return tuple(sorted({rank for port in ports for rank in ranks_of_port(port, host, facts)}))


def _ports_named(host: str, own: Sequence[Failure], facts: list[Fact]) -> set[str]:
    """Return the ports that processes use on a host and that are called by their names where they failed."""
    names = {name for fault in own for name in _DEVICE.findall(fault.where.text)}
    calls = [one for one in of(facts, PortName) if short_host(one.host) == host]
    names |= {one.device for fault in own for one in calls if one.name in _WORD.findall(fault.where.text)}
    names |= {port.device for port in of(facts, PortDown) if short_host(port.host) == host}
    return names & _used(host, facts)


def _is_one_as_elsewhere(host: str, own: Sequence[Failure], facts: list[Fact]) -> bool:
    """Whether one port of a host failed, of which no list of ports is there, and every other host uses several."""
    lists = {short_host(one.host): len(one.ports) for one in of(facts, Adapters)}
    return host not in lists and bool(lists) and min(lists.values()) > 1 and len(_names(own)) == 1


def _names(own: Sequence[Failure]) -> set[str]:
    """Return the ports that are called by their names where they failed."""
    return {name for fault in own for name in _DEVICE.findall(fault.where.text) if ":" not in name}


def untold_port(found: Sequence[Failure], facts: list[Fact]) -> str:
    """Return the one port that is down, of whose host and user nothing else is told: in words, "" for none."""
    down = {(port.host, port.device) for port in of(facts, PortDown)}
    kernel = _seen_down([fault for fault in found if fault.kind == "network"], facts)
    hosts = {short_host(fault.host) for fault in kernel}
    if not down and len(hosts) == 1 and _is_one_as_elsewhere(min(hosts), kernel, facts):
        down = {(min(hosts), min(_names(kernel)))}
    host, device = down.pop() if len(down) == 1 else ("", "")
    return f"port {device} of {host}" if device else ""


def _used(host: str, facts: list[Fact]) -> set[str]:
    """Return the ports that the processes of a host use, by NCCL's list."""
    return {port for one in of(facts, Adapters) if short_host(one.host) == host for port in one.ports}


def _at_port_of_npu(broken: Sequence[Failure], facts: list[Fact]) -> tuple[int, ...]:
    """Return the rank of the one NPU whose port is down, where it is one of the two ends of each link that broke."""
    ports = {(short_host(port.host), port.number) for port in of(facts, PortDown) if port.number is not None}
    links = [{(short_host(end["host"]), int(end["number"])) for end in _END.finditer(fault.what)} for fault in broken]
    ends = set.intersection(ports, *filter(None, links)) if any(links) else set()
    if len(ends) != 1:
        return ()
    host, number = ends.pop()
    where = next(port.where for port in of(facts, PortDown) if short_host(port.host) == host)
    rank = rank_of_device(NamedDevice(host=host, number=number, where=where), facts)
    return () if rank is None else (rank,)


def ports_of_switches(found: Sequence[Failure], facts: list[Fact]) -> list[Failure]:
    """Return the ports of switches that went down before ranks complained of a link."""
    broken = [fault for fault in found if fault.kind == "network"]
    return [fault for fault in _seen_down(broken, facts) if fault.what.startswith(SWITCH_PORT)]


def _seen_down(broken: Sequence[Failure], facts: list[Fact]) -> list[Failure]:
    """Return the links that a kernel or a switch saw go down shortly before the first complaint, or for good."""
    down = {short_host(port.host) for port in of(facts, PortDown)}
    return [
        fault
        for fault in broken
        if _KERNEL.search(fault.what) and (_is_at_complaints(fault, facts) or short_host(fault.host) in down)
    ]


def _are_all_ports(host: str, own: Sequence[Failure], facts: list[Fact]) -> bool:
    """Whether all ports failed that the processes of a host use, by NCCL's list: the one, or as many as it names."""
    used = _used(host, facts)
    names = [set(_DEVICE.findall(fault.where.text)) for fault in own]
    by_name = {name for found in names for name in found if ":" not in name}
    by_bus = {name for found in names for name in found if ":" in name}
    return len(used) == 1 or (bool(used) and (used <= by_name or len(by_bus) >= len(used)))


def was_over(fault: Failure, facts: list[Fact]) -> bool:
    """Return whether a link was down for a while in which no rank complained, by the clock."""
    ups_s = [up.where.time_s for up in of(facts, LinkUp) if up.down == fault.where and up.where.time_s is not None]
    if not ups_s or fault.where.time_s is None:
        return False
    times_s = [at.time_s for at in _complaints(facts) if at.time_s is not None and at.is_utc == fault.where.is_utc]
    return not any(fault.where.time_s <= time_s <= min(ups_s) + _SLACK_S for time_s in times_s)


def _complaints(facts: list[Fact]) -> list[Where]:
    """Return the lines in which ranks say that they lost a peer, waited, or met a fault themselves."""
    return [f.where for f in facts if isinstance(f, PeerLost | Timeout) or (isinstance(f, Failure) and f.pid)]


def _is_at_complaints(fault: Failure, facts: list[Fact]) -> bool:
    """Whether a kernel saw a link go down in the minutes before ranks complained for the first time, by the clock.

    Without a clock, whether it saw the last one of a host go down for good: the job had run over it.
    """
    said = _complaints(facts)
    times_s = [at.time_s for at in said if at.time_s is not None and at.is_utc == fault.where.is_utc]
    if fault.where.time_s is None:  # the kernel counts from the start of its host
        is_up = any(up.down == fault.where for up in of(facts, LinkUp))
        return bool(said) and not is_up and _OFFLINE.search(fault.what) is not None
    if times_s:
        return 0 <= min(times_s) - fault.where.time_s <= _NEAR_S
    above_s = [at.above_s for at in said if at.above_s is not None]  # the complaints came at some time after these
    return bool(above_s) and abs(min(above_s) - fault.where.time_s) <= _NEAR_S
