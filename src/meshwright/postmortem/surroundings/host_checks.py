"""Hosts that a check of their state calls bad: tables of SLURM and Kubernetes, shells of many hosts, a line for each.

Such a check says nothing of when a host failed; it bears out the silence of the host's ranks (`groups`).
"""

import re
from collections.abc import Iterator, Sequence

from ..nouns.identities import HostCheck
from ..text.lines import LogMessage
from .placements import HOST
from .scheduled_hosts import hosts_in_list

_NODE = re.compile(  # kubectl get nodes
    rf"^(?P<host>{HOST}) +(?P<state>(?:Not)?Ready)(?:,\w+)* +(?:<none>|[\w,-]+) +\d+\w* +v\d"
)
_DOWN = r"(?:down|fail(?:ing|ed)?)\S?|[a-z]+\*"  # * marks what does not respond; what drains may still do its work
_OF_SINFO = re.compile(  # a row for each state, or for each node
    rf"^\S+ +(?:up|down|drain|inact) +(?:[\d:-]+|infinite) +\d+ +(?P<state>{_DOWN}) +"
    r"(?P<hosts>[A-Za-z][\w.,\[\]-]*)\s*$"
    rf"|^(?P<host>{HOST}) +\d+ +\S+ +(?P<of>{_DOWN})(?: |$)"
)
_REASON = re.compile(  # sinfo -R
    r"^(?P<why>\S.{0,80}?) +[\w.-]+ +\d{4}-\d\d-\d\dT\S+ +(?P<hosts>[A-Za-z][\w.,\[\]-]*)\s*$"
)
_REASONS = re.compile(r"^REASON +USER +TIMESTAMP +NODELIST\s*$")
_UNWELL = re.compile(  # other reasons are a person's plans
    r"\b(?:NHC|[Hh]ealth|GPU|gpu|[Xx]id|NVLink|ECC|[Ff]ail|[Ee]rror|[Nn]ot responding|rebooted|fell|hung|dead|down)"
)
_SHOWN = re.compile(r"\bNodeName=(?P<host>\S+)|\bState=(?P<state>\S+)|\bReason=(?P<why>.{2,80}?)(?: \[|$)")
_SHELL = re.compile(  # pdsh and clush
    rf"^(?:pdsh@\S+: )(?P<host>{HOST}): (?P<why>ssh exited with exit code 255|.*timed out)\s*$"
    rf"|^clush: (?P<of>{HOST}): (?P<what>exited with exit code 255|command timeout)\s*$"
)
_BAD = (
    r"unreachable|down|dead|offline|unhealthy|not ready|failed|failure|fail|no (?:response|answer|reply)"
    r"|not responding|off"
)
_GOOD = r"ok|alive|up|online|healthy|ready|reachable|pass(?:ed)?|success|on"
_LINE = re.compile(
    rf"^(?P<host>{HOST})(?:: | is | +\| +| +)(?:[\w ]{{1,40}} )??"
    rf"(?:(?P<bad>{_BAD})|(?P<good>{_GOOD}))!?(?: => \{{)?\s*$",
    re.IGNORECASE,
)
_ENOUGH = 2  # hosts of which the same check speaks well


def read(messages: Sequence[LogMessage]) -> Iterator[HostCheck]:
    """Yield the hosts of one file that a check calls bad, each with what it says."""
    by_line: list[tuple[re.Match[str], LogMessage]] = []
    node = state = ""
    is_listed = False
    for message in messages:
        text = message.where.text
        if message.rank is not None or len(text) > 300:
            continue
        is_listed = is_listed or _REASONS.match(text) is not None
        for shown in _SHOWN.finditer(text) if "=" in text else ():
            node, state = shown["host"] or node, "" if shown["host"] else shown["state"] or state
            if node and shown["why"] and re.search("DOWN|DRAIN|FAIL", state) and _UNWELL.search(shown["why"]):
                yield _bad(node, f"{state}, {shown['why']}", message)
        if (found := _NODE.match(text)) and found["state"] == "NotReady":
            yield _bad(found["host"], "NotReady", message)
        elif found := _OF_SINFO.match(text):
            for host in hosts_in_list(found["hosts"]) or (found["hosts"],) if found["hosts"] else (found["host"],):
                yield _bad(host, found["state"] or found["of"], message)
        elif is_listed and (found := _REASON.match(text)) and _UNWELL.search(found["why"]):
            for host in hosts_in_list(found["hosts"]) or (found["hosts"],):
                yield _bad(host, found["why"], message)
        elif found := _SHELL.match(text):
            yield _bad(found["host"] or found["of"], found["why"] or found["what"], message)
        elif found := _LINE.match(text):
            by_line.append((found, message))
    good = {found["host"] for found, _ in by_line if found["good"]}
    for found, message in by_line if len(good) >= _ENOUGH else ():
        if found["bad"] and found["host"] not in good:
            yield _bad(found["host"], found["bad"], message)


def _bad(host: str, what: str, message: LogMessage) -> HostCheck:
    return HostCheck(host=host, what=what, where=message.where)
