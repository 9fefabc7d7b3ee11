"""NPUs that `npu-smi` calls unhealthy: its table of all, and what it tells of the health of one.

It has no clock, but what it shows lasts until the NPU is reset.
"""

import re
from collections.abc import Iterator, Sequence

from ..nouns.facts import Failure
from ..surroundings.port_states import asked_host
from ..text.lines import LogMessage

_ROW = re.compile(r"^\| +(?P<number>\d{1,3}) +[\w-]+ +\| +(?P<health>OK|Warning|Alarm|Critical|UNKNOWN) +\|")
_ASKED = re.compile(r"\bnpu-smi info -t health\b.*? -i (?P<number>\d{1,3})\b")
_HEALTH = re.compile(r"^\s*Health Status\s*: (?P<health>\w+)")
_ERROR = re.compile(r"^\s*Error Information\s*: (?P<what>\S.{0,160})")
_ADDRESS = re.compile(r"^\s*(?P<host>\d{1,3}(?:\.\d{1,3}){3})(?:\s|$)")
_BAD = {"Alarm", "Critical"}


def read(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield the NPUs of one file that are unhealthy, each once, with what is told of its error."""
    host, number, is_asked = "", None, False
    found: dict[tuple[str, int], tuple[str, LogMessage]] = {}
    for message in messages:
        text = message.text
        if "npu-smi" in text or "hostname" in text:
            one = _ASKED.search(text)
            host = asked_host(text) or host
            number = int(one["number"]) if one else None
            is_asked = "hostname" in text
        elif is_asked and (address := _ADDRESS.match(text)):
            host, is_asked = address["host"], False
        on = message.host or host
        if "|" in text and (row := _ROW.match(text)):
            if row["health"] in _BAD:
                found.setdefault((on, int(row["number"])), (f"its health is {row['health']}", message))
        elif number is not None and (health := _HEALTH.match(text)):
            if health["health"] in _BAD:
                found.setdefault((on, number), (f"its health is {health['health']}", message))
        elif number is not None and (error := _ERROR.match(text)):
            found[on, number] = error["what"].strip(), message
    for (on, npu), (what, message) in found.items():
        told = f"NPU {npu}{f' of {on}' if on else ''}: {what}"
        yield Failure(kind="device", what=told, host=on, device=npu, where=message.where)
