"""`fi_info -v` and `lldpctl`: the NICs of a host by libfabric, and the ports of switches that they hang on by LLDP.

libfabric prints a NIC once for each kind of endpoint (ofi_nic_tostr: speed in bits per second, 0 where not known).
LLDP has the rate as the type of medium that the switch's port runs (MAU oper type), of many fast ones "unknown".
"""

import re
from collections.abc import Iterator, Mapping

from ..graph import Cluster, Device
from .ibstat import PORTS_ALONE
from .pasted import plain_lines

_DEVICE = re.compile(r"^\s+(?:fi_)?device_attr:\s*$")
_LINK = re.compile(r"^\s+(?:fi_)?link_attr:\s*$")
_FIELD = re.compile(r"^\s+(name|speed|state): +(\S+)\s*$")
_INTERFACE = re.compile(r"^\s*Interface: +(\S+?), via:? *\w+")
_NEIGHBOUR = re.compile(r"^\s*(SysName|PortID|PortDescr|PortDesc|MAU oper type): +(\S.*?)\s*$")
_MEDIUM = re.compile(r"(\d{1,4})(G|Gig)?base", re.I)  # 1000BaseTFD, 10GigBaseCX4, 100GbaseCR4


def looks_like_fi_info(text: str) -> bool:
    """Return whether a text has a link of libfabric's long form."""
    return re.search(r"^\s+(?:fi_)?link_attr:\s*\n(?:\s+\w+: .*\n)*?\s+speed: \d", text, re.M) is not None


def from_fi_info(text: str, where: str) -> Cluster:
    """Return the NICs with their rates; those without a link, and those without a rate, are named."""
    devices, said = [], []
    for name, (speed, state) in dict(_cards_of_libfabric(text)).items():
        up = state != "FI_LINK_DOWN"
        rate = int(speed) / 8 if up and speed.isdecimal() and len(speed) < 15 else None
        devices.append(Device(id=name, kind="nic", network_bandwidth_bytes_per_s=rate or None))
        if not up:
            said.append(f"{name} carries nothing ({state})")
        elif not rate:
            said.append(f"{name}: libfabric does not know its rate")
    return Cluster(name=where, devices=tuple(devices), warnings=(*said, PORTS_ALONE))


def _cards_of_libfabric(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    name, facts, section = "", dict[str, str](), ""
    for line in [*(plain.text for plain in plain_lines(text)), "  device_attr:"]:
        if _DEVICE.match(line):
            if name:
                yield name, (facts.get("speed", ""), facts.get("state", ""))
            name, facts, section = "", {}, "device"
        elif _LINK.match(line):
            section = "link"
        elif (field := _FIELD.match(line)) and section == "device" and field.group(1) == "name":
            name = name or field.group(2)
        elif field and section == "link":
            facts.setdefault(field.group(1), field.group(2))


def looks_like_lldp(text: str) -> bool:
    """Return whether a text lists the neighbours of interfaces as lldpctl does."""
    patterns = (r"^\s*LLDP neighbors:", _INTERFACE.pattern, r"^\s*(?:SysName|MAU oper type): +\S")
    return all(re.search(pattern, text, re.M) for pattern in patterns)


def from_lldp(text: str, where: str) -> Cluster:
    """Return the interfaces with their rates as the switches say them; on which port each hangs is said."""
    devices, said = [], []
    for name, facts in _interfaces(text).items():
        medium = _MEDIUM.match(facts.get("MAU oper type", ""))
        rate = int(medium.group(1)) * (1e9 if medium.group(2) else 1e6) / 8 if medium else None
        devices.append(Device(id=name, kind="nic", network_bandwidth_bytes_per_s=rate))
        port = facts.get("PortID", "").removeprefix("ifname ") or facts.get("PortDescr", "")
        said.append(f"{name} hangs on {port or 'a port'} of {facts.get('SysName', 'a switch without a name')}")
        if rate is None:
            said.append(f"{name}: the switch does not say its rate; ethtool does")
    if any(device.network_bandwidth_bytes_per_s for device in devices):
        said.append("rates are of the kind of medium that the switch says (MAU): virtual ports may say any")
    return Cluster(name=where, devices=tuple(devices), warnings=(*said, PORTS_ALONE))


def _interfaces(text: str) -> Mapping[str, Mapping[str, str]]:
    """Return the first neighbour of each interface."""
    found: dict[str, dict[str, str]] = {}
    facts: dict[str, str] = {}
    for line in (plain.text for plain in plain_lines(text)):
        if interface := _INTERFACE.match(line):
            facts = {}
            found.setdefault(interface.group(1), facts)
        elif field := _NEIGHBOUR.match(line):
            facts.setdefault(field.group(1), field.group(2))
    return found
