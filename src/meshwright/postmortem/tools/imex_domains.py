"""Domains of NVLink across hosts by `nvidia-imex-ctl -N`: nodes that cannot reach others, and why by the table."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from ..nouns.network_state import NetworkAlarm
from ..text.lines import LogMessage

_NODE = re.compile(
    r"^Node #(?P<node>\d{1,4})\s+- (?P<address>\S+)\s+- (?P<state>[A-Z_]+)\s+- Version: (?P<version>\S+)"
)
_ROW = re.compile(r"^(?P<node>\d{1,4})\s+(?P<cells>(?:(?:!\w!|[A-Z])\s*)+)$")
_STATE = re.compile(r"^Domain State: (?P<state>\w+)")
_MEANINGS = {
    "I": "not reachable",
    "N": "never connected",
    "R": "connection lost",
    "D": "disconnected",
    "A": "still authenticating",
    "!V!": "another version, so that communication is disabled",
    "!M!": "another node map, so that communication is disabled",
}


def read(messages: Sequence[LogMessage]) -> Iterator[NetworkAlarm]:
    """Yield the nodes of one file's domain that most others do not reach; all may say READY nevertheless."""
    nodes: dict[int, re.Match[str]] = {}
    cells: dict[int, list[str]] = {}
    last: LogMessage | None = None
    state = ""
    for message in messages:
        text = message.text.strip()
        if node := _NODE.match(text):
            nodes[int(node["node"])], last = node, message
        elif nodes and (row := _ROW.match(text)):
            cells[int(row["node"])] = row["cells"].split()
        elif nodes and (told := _STATE.match(text)):
            state, last = told["state"], message
    if last is None:
        return
    told_of = [what for number in nodes if (what := _trouble(number, nodes, cells))]
    if told_of or state not in {"", "UP"}:
        shown = "; ".join(told_of) or "no node stands apart"
        yield NetworkAlarm(host="", what=f"IMEX domain {state or 'of unsaid state'}: {shown}", where=last.where)


def _trouble(number: int, nodes: dict[int, re.Match[str]], cells: dict[int, list[str]]) -> str:
    """Return what keeps one node from most of the others, "" for nothing."""
    node = nodes[number]
    listed = sorted(nodes)
    own = dict(zip(listed, cells.get(number, ()), strict=False))
    marks = Counter(mark for other, mark in own.items() if other != number and mark != "C")
    versions = Counter(other["version"] for other in nodes.values())
    usual = versions.most_common(1)[0][0]
    is_apart = 2 * marks.total() > len(nodes) - 1 or node["state"] != "READY"
    if not is_apart:
        return ""
    why = ", ".join(_MEANINGS.get(mark, mark) for mark in marks) or node["state"]
    version = f", version {node['version']} of {usual}" if node["version"] != usual else ""
    return f"node {number} ({node['address']}{version}): {why}; it says {node['state']}"
