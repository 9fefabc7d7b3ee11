"""Tables of ranks that scripts of jobs write: one rank a row with its host or process, hosts with their slots."""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from .facts import Fact
from .identities import AgentRanks, LocalProcess, RankIdentity
from .lines import LogMessage
from .world import MOST_RANKS

_COMMANDS = {"cmd", "command", "args"}  # which may hold blanks, at the end of a row
_COLUMNS = {
    **dict.fromkeys(("rank", "global_rank", "globalrank", "world_rank", "grank"), "rank"),
    **dict.fromkeys(("host", "hostname", "node", "nodename", "node_name", "host_name", "machine"), "host"),
    **dict.fromkeys(("pid", "process_id"), "pid"),
    **dict.fromkeys(("local_rank", "localrank", "lrank"), "local"),
}
_OTHERS = {  # that tables of ranks have beside these
    *("local", "node_rank", "nodeid", "node_id", "gpu", "device", "cuda", "ip"),
    *("ppid", "address", "port", "time", "date", "role", "gpu_id", "device_id", "bus_id", "world_size", "taskid"),
    *("user", "uid", "%cpu", "%mem", "rss", "vsz", "tty", "stat", "s", "state", "start", "stime", "started", "elapsed"),
    *("etime", "wchan", "psr", "c", *_COMMANDS),
}
_CELLS = re.compile(r"[\s,;|]+")
_REMARK = re.compile(r" *\([^()]{1,80}\) *$")  # behind the head: where a column comes from
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


def _rows(messages: Sequence[LogMessage]) -> Iterator[RankIdentity | LocalProcess]:
    """Yield the ranks of tables whose head names a column of ranks, or of ranks on a host, and hosts or processes."""
    columns: list[str] = []
    found: list[RankIdentity | LocalProcess] = []
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


def _whole(found: Sequence[RankIdentity | LocalProcess]) -> Sequence[RankIdentity | LocalProcess]:
    """Return the rows of a table, none where they are too few or two of them have one rank."""
    ranks = {(one.host, one.number) if isinstance(one, LocalProcess) else one.rank for one in found}
    return found if len(found) >= _FEW and len(ranks) == len(found) else ()


def _head(text: str) -> list[str]:
    """Return the columns that the last words of a line name, [] where it is no head of such a table."""
    remark = _REMARK.search(text)
    bare = text[: remark.start()] if remark else text
    words = [word.strip("#'\"()[]") for word in _CELLS.split(bare.lower().rpartition(":")[2].strip(" |#"))]
    first = next((at + 1 for at in reversed(range(len(words))) if words[at] not in _COLUMNS.keys() | _OTHERS), 0)
    columns = [_COLUMNS.get(word, word) for word in words[first:]]
    if remark and "local_rank" in remark[0].lower():
        columns = ["local" if column == "rank" else column for column in columns]
    told = [column for column in columns if column in {"rank", "local", "host", "pid"}]
    is_told = "rank" in told or {"local", "pid"} <= set(told)
    return columns if is_told and len(set(told)) == len(told) > 1 and set(told) != {"rank", "local"} else []


def _row(text: str, columns: Sequence[str], message: LogMessage) -> RankIdentity | LocalProcess | None:
    most = len(columns) - 1 if columns[-1] in _COMMANDS else 0
    cells = _CELLS.split(text.strip(" |"), maxsplit=most)
    if len(cells) != len(columns):
        return None
    row = dict(zip(columns, cells, strict=True))
    rank, pid, host = row.get("rank", row.get("local", "")), row.get("pid"), row.get("host", message.host)
    if not rank.isdecimal() or int(rank) >= MOST_RANKS or (pid is not None and not pid.isdecimal()):
        return None
    if "host" in row and not _NAME.fullmatch(host):
        return None
    process = int(pid) if pid else None
    if "rank" not in row:
        return LocalProcess(number=int(rank), host=host, pid=process, where=message.where)
    return RankIdentity(rank=int(rank), host=host, pid=process, where=message.where.by(int(rank)))


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
