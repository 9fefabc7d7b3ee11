"""Ports of InfiniBand that are down while others are active, by `ibstat` on one host or, with labels, on several.

Or by `ibdev2netdev`, which also tells by which name the kernel calls the network of each.
"""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import PortDown
from ..nouns.identities import PortName
from ..text.lines import LogMessage
from .placements import HOST

_MACHINE = rf"(?:{HOST}|\d{{1,3}}(?:\.\d{{1,3}}){{3}})(?![\w.])"  # by its name or its address
_ASKED_HOST = re.compile(rf"\bssh +(?:-\S+ +)*(?:[\w.-]+@)?(?P<to>{_MACHINE})|^\[?\w+@(?P<at>{_MACHINE})")
_DEVICE = re.compile(r"\b(?P<device>(?:mlx[45]|bnxt_re|irdma|hns|qedr)_(?:bond_)?\d+)\b")
_LABEL = re.compile(r"^(?P<host>" + HOST + r"): ")  # pdsh's
_HEADER = re.compile(
    r"^[-=*#>][-=*#> ]{0,40}(?:(?:host|node)[ :]{1,2})?(?P<host>" + HOST + r")[ :=*#-]{0,40}$"
)  # of a script
_FIRST = re.compile(r"^CA '\w{1,30}'$|^hca_id:\s+\w{1,30}$")  # of what the tool prints
_NETWORK = re.compile(  # of ibdev2netdev
    r"^(?P<device>[a-z]\w+) port \d+ ==> (?P<name>[a-z]\w+) \((?P<state>Up|Down)\)\s*$"
)
_STATE = re.compile(r"^\s*(?:Port \d+: *)?(?:State|state|port_state): +(?:\d: +|PORT_)?(?P<state>\w+)", re.IGNORECASE)


def asked_host(command: str) -> str:
    """Return the host that a command is run on, by its ssh or its prompt; "" where neither tells."""
    told = _ASKED_HOST.search(command)
    return (told["to"] or told["at"]) if told else ""


def read(messages: Sequence[LogMessage]) -> Iterator[PortDown | PortName]:
    """Yield the ports of one file that are down beside active ones, and by which names their networks are called."""
    yield from _of_networks(messages)
    yield from _of_states(messages)


def _of_networks(messages: Sequence[LogMessage]) -> Iterator[PortName | PortDown]:
    """Yield the ports of `ibdev2netdev`, and the ones that are down while most of their host are up."""
    asked = ""
    tables: dict[str, list[tuple[re.Match[str], LogMessage]]] = {}
    for message in messages:
        text = message.text
        if "ibdev2netdev" in text:
            asked = asked_host(text)
        elif "==>" in text and (row := _NETWORK.match(text)):
            tables.setdefault(message.host or message.where.host or asked, []).append((row, message))
    for host, rows in tables.items():
        down = [(row, message) for row, message in rows if row["state"] == "Down"]
        for row, message in rows:
            yield PortName(host=host, device=row["device"], name=row["name"], where=message.where)
        for row, message in down if 2 * len(down) < len(rows) else ():
            yield PortDown(host=host, device=row["device"], where=message.where)


def _of_states(messages: Sequence[LogMessage]) -> Iterator[PortDown]:
    """Yield the ports that are down beside active ones of the same host, or of the same name elsewhere."""
    is_asked, asked, named = False, "", ""
    devices: dict[str, str] = {}  # of each host, the one of which lines follow
    states: dict[tuple[str, str], tuple[str, LogMessage]] = {}
    for message in messages:
        text = message.text
        if "ibstat" in text or "ibv_devinfo" in text:
            is_asked, devices = True, {}
            asked = asked_host(text)
            named = device["device"] if (device := _DEVICE.search(text)) else ""
            continue
        if header := _HEADER.match(text):
            asked, devices, named = header["host"], {}, ""
        is_asked = is_asked or _FIRST.match(text) is not None
        if not is_asked:
            continue
        label = _LABEL.match(text)
        host = message.host or (label["host"] if label else asked)
        text = text[label.end() :] if label else text
        if text.startswith(("$ ", "[root@")):
            is_asked = False
        elif ("CA '" in text or "hca_id" in text) and (device := _DEVICE.search(text)):
            devices[host] = device["device"]
        elif "tate:" in text and (row := _STATE.match(text)) and (port := devices.get(host, named)):
            states[host, port] = row["state"].lower(), message
    active = [key for key, (state, _) in states.items() if state == "active"]
    for (host, own), (state, message) in states.items():
        if state == "down" and host and any(host == other or own == its for other, its in active):
            yield PortDown(host=host, device=own, where=message.where)
