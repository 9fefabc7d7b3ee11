"""Counters and states of ports by `perfquery` and `mlxlink`: one port a table, of the host that its file names.

A port without a cable is down from the start: one that `mlxlink` shows as down counts where it went down before.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from ..nouns.facts import PortDown
from ..nouns.identities import PortErrors
from ..nouns.network_state import NetworkAlarm
from ..surroundings.port_states import asked_host
from ..text.lines import LogMessage

_BEGINS = re.compile(
    r"^# Port (?:(?P<wide>extended) )?counters: Lid (?P<lid>\d+) port (?P<port>\d+)|^Operational Info\s*$"
)
_STATE = re.compile(r"^State\s+: (?P<state>\w+)")
_DEVICE = re.compile(r"\bmlxlink\b.* -d (?P<device>[a-z]\w+)")
_COUNTER = re.compile(
    r"^(?P<name>SymbolErrorCounter|LinkDowned(?:Counter)?|PortRcvErrors|LocalLinkIntegrityErrors|Link Down Counter"
    r"|LinkErrorRecovery(?:Counter)?|PortXmitWait|Effective Physical Errors)[.\s]*:[.\s]*(?P<count>\d{1,20})\s*$"
)
_BITS = {"SymbolErrorCounter": 16, "PortRcvErrors": 16, "LinkErrorRecovery": 8, "LinkDowned": 8, "PortXmitWait": 32}
_ERRORS = ("SymbolErrorCounter", "LinkErrorRecovery", "LinkDowned", "PortRcvErrors", "LocalLinkIntegrityErrors")
_FEW, _FEW_DOWNS = 100, 10  # errors and downs that may be of work on the cable
_LONG_WAIT, _TIMES = 1_000_000, 100  # ticks; times those of most ports of the file


class _Port(msgspec.Struct):
    """One port while its lines are read."""

    host: str
    message: LogMessage
    device: str
    state: str = ""
    downs: int = 0
    errors: int = 0
    name: str = ""  # LID and number, by perfquery
    is_wide: bool = False  # its counters have 64 bits
    counts: dict[str, int] = {}  # as the table names them, without a closing "Counter" of downs and recoveries


def read(messages: Sequence[LogMessage]) -> Iterator[PortDown | PortErrors | NetworkAlarm]:
    """Yield the counters of the ports of one file, the ports that went down, and those whose counters show trouble."""
    ports = _ports(messages)
    for port in ports:
        where = port.message.where
        yield PortErrors(host=port.host, downs=port.downs, errors=port.errors, where=where)
        if port.state == "down" and port.downs:
            yield PortDown(host=port.host, device=port.device, where=where)
    yield from _alarms(ports)


def _ports(messages: Sequence[LogMessage]) -> list[_Port]:
    ports: list[_Port] = []
    asked, device = "", ""
    for message in messages:
        text = message.text
        if "mlxlink" in text or "perfquery" in text:
            asked = asked_host(text)
            device = named["device"] if (named := _DEVICE.search(text)) else ""
        if begins := _BEGINS.match(text):
            host = message.host or message.where.host or asked
            name = f"LID {begins['lid']} port {begins['port']}" if begins["lid"] else ""
            ports.append(
                _Port(host=host, message=message, device=device, name=name, is_wide=bool(begins["wide"]), counts={})
            )
        elif ports and "tate" in text and (state := _STATE.match(text)):
            ports[-1].state, ports[-1].message = state["state"].lower(), message
        elif ports and (counter := _COUNTER.match(text)):
            count = int(counter["count"])
            ports[-1].counts[re.sub(r"(?<=Downed|covery)Counter$", "", counter["name"])] = count
            if counter["name"] == "PortXmitWait" or "Recovery" in counter["name"]:
                continue
            if "Down" in counter["name"]:
                ports[-1].downs = count
                ports[-1].message = message if count and not ports[-1].state else ports[-1].message
            else:
                ports[-1].errors = max(ports[-1].errors, count)
    return ports


def _alarms(ports: Sequence[_Port]) -> Iterator[NetworkAlarm]:
    """Yield the ports of perfquery with many errors, and the ones without whose peer does not take what they send."""
    waits: dict[str, list[int]] = defaultdict(list)
    for port in ports:
        waits[port.host].append(port.counts.get("PortXmitWait", 0))
    for port in ports if any(port.name for port in ports) else ():
        found = {name: port.counts[name] for name in _ERRORS if port.counts.get(name)}
        wait = port.counts.get("PortXmitWait", 0)
        what = ""
        if any(count > (_FEW_DOWNS if name == "LinkDowned" else _FEW) for name, count in found.items()):
            what = f"{', '.join(_at_least(name, count, port) for name, count in found.items())}: cable or transceiver"
        elif wait > max(_LONG_WAIT, _TIMES * median(waits[port.host])):
            what = (
                f"{_at_least('PortXmitWait', wait, port)} ticks and few errors: its peer takes data too slowly "
                "(congestion or a slow receiver behind it), no fault of the cable"
            )
        if port.name and what:
            yield NetworkAlarm(host=port.host, what=f"{port.name}: {what}", where=port.message.where)


def _at_least(name: str, count: int, port: _Port) -> str:
    """Return a counter in words: one at its largest value has counted at least that."""
    is_full = not port.is_wide and count >= 2 ** _BITS.get(name, 64) - 1
    return f"{name} {'at least ' if is_full else ''}{count:,}{' (full)' if is_full else ''}"
