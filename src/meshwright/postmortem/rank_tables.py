"""Tables of ranks that scripts of jobs write: one rank a row with its host or process, hosts with their slots."""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from .facts import Fact
from .identities import AgentRanks, RankIdentity
from .lines import LogMessage
from .world import MOST_RANKS

_COLUMNS = {
    **dict.fromkeys(("rank", "global_rank", "globalrank", "world_rank", "grank"), "rank"),
    **dict.fromkeys(("host", "hostname", "node", "nodename", "node_name", "host_name", "machine"), "host"),
    **dict.fromkeys(("pid", "process_id"), "pid"),
}
_OTHERS = {  # that tables of ranks have beside these
    *("local_rank", "localrank", "lrank", "local", "node_rank", "nodeid", "node_id", "gpu", "device", "cuda", "ip"),
    *("ppid", "address", "port", "time", "date", "role", "gpu_id", "device_id", "bus_id", "world_size", "taskid"),
}
_CELLS = re.compile(r"[\s,;|]+")
_RULE = re.compile(r"^[\s|+=:-]+$")  # between the head of a table and its rows
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_HOST = re.compile(r"(?=[\w.-]*\d)[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*)*")
_NO_HOST = re.compile(r"(?:rank|gpu|cuda|step|epoch|iter|v)[_-]?[\d.]+", re.IGNORECASE)
_SLOTS = re.compile(r"^(?P<host>[A-Za-z][\w.-]*)(?:[ \t]+(?:max[-_]slots=\d+ +)?slots ?= ?|:)(?P<slots>\d{1,2})\b.*$")
_FEW = 2  # rows that make a table


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield which rank is which process, or on which host, by the tables of one file."""
    yield from _rows(messages)
    yield from _slots(messages)
    yield from _hostnames(messages)


def _rows(messages: Sequence[LogMessage]) -> Iterator[RankIdentity]:
    """Yield the ranks of tables whose head names a column of ranks and one of hosts or processes."""
    columns: list[str] = []
    found: list[RankIdentity] = []
    for message in messages:
        text = message.labelled
        if "rank" in text.lower() and (head := _head(text)):
            yield from _whole(found)
            columns, found = head, []
        elif columns and (one := _row(text, columns, message)):
            found.append(one)
        elif columns and found and not _RULE.match(text):
            yield from _whole(found)
            columns, found = [], []
    yield from _whole(found)


def _whole(found: Sequence[RankIdentity]) -> Sequence[RankIdentity]:
    """Return the rows of a table, none where they are too few or two of them have one rank."""
    ranks = {one.rank for one in found}
    return found if len(found) >= _FEW and len(ranks) == len(found) else ()


def _head(text: str) -> list[str]:
    """Return the columns that the last words of a line name, [] where it is no head of such a table."""
    words = [word.strip("#'\"()[]") for word in _CELLS.split(text.lower().rpartition(":")[2].strip(" |#"))]
    first = next((at + 1 for at in reversed(range(len(words))) if words[at] not in _COLUMNS.keys() | _OTHERS), 0)
    columns = [_COLUMNS.get(word, word) for word in words[first:]]
    told = [column for column in columns if column in {"rank", "host", "pid"}]
    return columns if "rank" in told and len(set(told)) == len(told) > 1 else []


def _row(text: str, columns: Sequence[str], message: LogMessage) -> RankIdentity | None:
    cells = _CELLS.split(text.strip(" |"))
    if len(cells) != len(columns):
        return None
    row = dict(zip(columns, cells, strict=True))
    rank, pid, host = row["rank"], row.get("pid"), row.get("host", message.host)
    if not rank.isdecimal() or int(rank) >= MOST_RANKS or (pid is not None and not pid.isdecimal()):
        return None
    if "host" in row and not _NAME.fullmatch(host):
        return None
    where = message.where.by(int(rank))
    return RankIdentity(rank=int(rank), host=host, pid=int(pid) if pid else None, where=where)


def _slots(messages: Sequence[LogMessage]) -> Iterator[AgentRanks]:
    """Yield the ranks of the hosts of a file of hosts with slots, which launchers fill in its order."""
    rows = [(message, _SLOTS.match(message.text)) for message in messages if not message.text.startswith("#")]
    hosts = [row["host"] for _, row in rows if row]
    if len(hosts) < len(rows) or len(hosts) < _FEW or len(set(hosts)) < len(hosts):
        return
    first = 0
    for message, row in rows:
        if row and (slots := int(row["slots"])):
            yield AgentRanks(ranks=tuple(range(first, first + slots)), where=replace(message.where, host=row["host"]))
            first += slots


def _hostnames(messages: Sequence[LogMessage]) -> Iterator[RankIdentity]:
    """Yield the hosts of ranks that print nothing else in a line, as `hostname` does behind a launcher's label."""
    said = [
        message
        for message in messages
        if message.rank is not None and _HOST.fullmatch(message.text) and not _NO_HOST.fullmatch(message.text)
    ]
    if len({message.rank for message in said}) == len(said) >= _FEW:
        for message in said:
            assert message.rank is not None
            yield RankIdentity(rank=message.rank, host=message.text, where=message.where)
