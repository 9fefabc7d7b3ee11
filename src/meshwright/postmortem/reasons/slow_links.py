"""The one port that is slower than all ports of its name on other hosts, for a job whose steps last longer."""

from statistics import median

from msgspec.structs import replace

from ..nouns.facts import Fact, of
from ..nouns.identities import PortRate
from ..nouns.position import HangPosition
from ..nouns.world import short_host
from ..ranks.devices import rank_of_port

_OTHERS = 2  # hosts


def with_slow_link(found: HangPosition, facts: list[Fact]) -> HangPosition:
    """Return slower steps with the slow port, and as those of the rank whose GPU is nearest to it, where that is told.

    One of a storage network is slower than others of its host, but like those of its name elsewhere.
    """
    slow = _slow_ports(facts)
    if len(slow) != 1:
        return found if slow else _with_slow_beside(found, facts)
    port, usual = slow[0]
    why = f"{found.why.removesuffix(_UNTOLD)}; port {port.device} of {port.host} runs at {port.rate_gb_s} Gb/s, those"
    why += f" of its name on other hosts at {usual:.0f}"
    rank = rank_of_port(port.device, port.host, port.where, facts)
    lines = (*found.evidence, port.where)
    if rank is None:
        lacks = (f"which rank uses that port: `nvidia-smi topo -m` of {port.host}, and its ranks",)
        return replace(found, why=why, evidence=lines, missing=lacks)
    return replace(found, why=why, blamed=(rank,), certain=True, evidence=lines, missing=())


def _with_slow_beside(found: HangPosition, facts: list[Fact]) -> HangPosition:
    """Return slower steps with the one port that is slower than all others of its host, of which alone a table is here.

    Whether it carries the job's traffic, or is one of another network, no other host's table tells.
    """
    hosts: dict[str, dict[str, PortRate]] = {}
    for one in of(facts, PortRate):
        hosts.setdefault(short_host(one.host) or one.where.file, {})[one.device] = one
    for name, ports in hosts.items() if len(hosts) == 1 else ():
        slowest = min(ports.values(), key=lambda one: one.rate_gb_s)
        others = {one.rate_gb_s for one in ports.values() if one is not slowest}
        if len(ports) > _OTHERS and len(others) == 1 and slowest.rate_gb_s < min(others):
            why = f"{found.why}; port {slowest.device} of {name} runs at {slowest.rate_gb_s} Gb/s, the others there at"
            why += f" {min(others)}: it came up at less than its rate, or is one of another network"
            lacks = f"the rate of {slowest.device} on other hosts (`ibstat`), and since when it is so (`mlxlink -d"
            lacks += f" {slowest.device}`, the switch's log)"
            lines = (*found.evidence, slowest.where)
            return replace(found, why=why, evidence=lines, missing=(lacks, *found.missing))
    return found


_UNTOLD = ", and nothing tells whose"


def _slow_ports(facts: list[Fact]) -> list[tuple[PortRate, float]]:
    """Return the ports at less than the rate of all of their name on other hosts, by their last tables.

    Of one other host alone, where others of its own host have that rate, too.
    """
    rates = {(short_host(one.host), one.device): one for one in of(facts, PortRate) if one.host}
    found = []
    for (host, device), own in rates.items():
        others = [one.rate_gb_s for (at, name), one in rates.items() if name == device and at != host]
        beside = sum(one.rate_gb_s in others for (at, _), one in rates.items() if at == host)
        is_told = len(others) >= _OTHERS or (bool(others) and beside >= _OTHERS)
        if is_told and own.rate_gb_s < min(others):
            found.append((own, median(others)))
    return found
