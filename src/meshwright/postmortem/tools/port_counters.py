"""Counters and states of ports by `perfquery` and `mlxlink`: one port a table, of the host that its file names.

A port without a cable is down from the start: one that `mlxlink` shows as down counts where it went down before.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from ..nouns.facts import PortDown
from ..nouns.identities import PortErrors
from ..surroundings.port_states import asked_host
from ..text.lines import LogMessage

_BEGINS = re.compile(r"^# Port (?:extended )?counters: Lid \d+ port \d+|^Operational Info\s*$")
_STATE = re.compile(r"^State\s+: (?P<state>\w+)")
_DEVICE = re.compile(r"\bmlxlink\b.* -d (?P<device>[a-z]\w+)")
_COUNTER = re.compile(
    r"^(?P<name>SymbolErrorCounter|LinkDowned(?:Counter)?|PortRcvErrors|LocalLinkIntegrityErrors|Link Down Counter"
    r"|Effective Physical Errors)[.\s]*:[.\s]*(?P<count>\d{1,20})\s*$"
)


class _Port(msgspec.Struct):
    """One port while its lines are read."""

    host: str
    message: LogMessage
    device: str
    state: str = ""
    downs: int = 0
    errors: int = 0


def read(messages: Sequence[LogMessage]) -> Iterator[PortDown | PortErrors]:
    """Yield the counters of the ports of one file, and the ports that are down and were up before."""
    ports: list[_Port] = []
    asked, device = "", ""
    for message in messages:
        text = message.text
        if "mlxlink" in text or "perfquery" in text:
            asked = asked_host(text)
            device = named["device"] if (named := _DEVICE.search(text)) else ""
        if _BEGINS.match(text):
            host = message.host or message.where.host or asked
            ports.append(_Port(host=host, message=message, device=device))
        elif ports and "tate" in text and (state := _STATE.match(text)):
            ports[-1].state, ports[-1].message = state["state"].lower(), message
        elif ports and (counter := _COUNTER.match(text)):
            count = int(counter["count"])
            if "Down" in counter["name"]:
                ports[-1].downs = count
                ports[-1].message = message if count and not ports[-1].state else ports[-1].message
            else:
                ports[-1].errors = max(ports[-1].errors, count)
    for port in ports:
        where = port.message.where
        yield PortErrors(host=port.host, downs=port.downs, errors=port.errors, where=where)
        if port.state == "down" and port.downs:
            yield PortDown(host=port.host, device=port.device, where=where)
