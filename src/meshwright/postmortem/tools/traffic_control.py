"""Delay, loss and rate limits that `tc qdisc show` lists on an interface: an emulated network that was left on."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..nouns.network_state import NetworkAlarm
from ..surroundings.port_states import asked_host
from ..text.lines import LogMessage

_QDISC = re.compile(r"^qdisc (?P<kind>\w+) \w+: dev (?P<name>[\w.@-]+) (?P<rest>.*)$")
_LIMIT = re.compile(r"\brate (?P<rate>\d[\w.]*)")
_IMPAIRED = re.compile(r"\b(?:delay|loss|duplicate|corrupt|reorder|rate)\b.*$")


def read(messages: Sequence[LogMessage]) -> Iterator[NetworkAlarm]:
    """Yield the interfaces of one file whose queues delay, drop or limit what is sent."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    first: dict[tuple[str, str], LogMessage] = {}
    asked = ""
    for message in messages:
        text = message.text.strip()
        if not text.startswith("qdisc "):
            asked = asked_host(text) if "tc " in text and "qdisc" in text else asked
            continue
        row = _QDISC.match(text)
        if row and (what := _impairs(row["kind"], row["rest"])):
            key = message.host or message.where.host or asked, row["name"]
            found[key].append(what)
            first.setdefault(key, message)
    for (host, name), told in found.items():
        whose = f"{name}{f' of {host}' if host else ''}"
        what = f"{whose} is slowed down on purpose: {', '.join(told)} (`tc qdisc del dev {name} root` takes it off)"
        yield NetworkAlarm(host=host, what=what, where=first[host, name].where)


def _impairs(kind: str, rest: str) -> str:
    """Return what a queue does to packets beyond queueing them, "" for nothing."""
    if kind == "netem" and (impaired := _IMPAIRED.search(rest)):
        return f"netem {' '.join(impaired[0].split())}"
    if kind == "tbf" and (limit := _LIMIT.search(rest)):
        return f"tbf limits it to {limit['rate']}/s" if limit["rate"].endswith("bit") else f"tbf rate {limit['rate']}"
    return ""
