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
    **dict.fromkeys(("gpu", "gpu_id", "device", "device_id", "cuda"), "gpu"),
}
_OTHERS = {  # that tables of ranks have beside these
    *("local_rank", "localrank", "lrank", "local", "node_rank", "nodeid", "node_id", "ip", "ppid", "address", "port"),
    *("time", "date", "role", "bus_id", "world_size", "taskid"),
}
_CELLS = re.compile(r"[\s,;|]+")
_RULE = re.compile(r"^[\s|+=:-]+$")  # between the head of a table and its rows
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_HOST = re.compile(r"(?=[\w.-]*\d)[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*)*")
_NO_HOST = re.compile(r"(?:rank|gpu|cuda|step|epoch|iter|v)[_-]?[\d.]+", re.IGNORECASE)
_SLOTS = re.compile(r"^(?P<host>[A-Za-z][\w.-]*)(?:[ \t]+(?:max[-_]slots=\d+ +)?slots ?= ?|:)(?P<slots>\d{1,2})\b.*$")
_FEW = 2  # rows that make a table
_MOST_SAID = 200  # characters of a line of numbers
_SAID = re.compile(  # of what a process prints of itself behind the name of its host
    r"[ ,;:|]+\(?(?P<name>SLURM_[A-Z_]{1,24}|(?:[a-z]{1,8}[_ ]?)?(?:rank|id)|pid|task|gpus?|cuda|device"
    r"|world[_ ]?size|n?procs?|CUDA_VISIBLE_DEVICES|OMPI_COMM_WORLD_(?:LOCAL_)?(?:RANK|SIZE))"
    r"(?: ?[=:] ?| )(?P<value>\d{1,8}(?:,\d{1,3})*)\)?",
    re.IGNORECASE,
)
_OF_JOB = {"slurm_procid", "procid", "rank", "globalrank", "worldrank", "ompi_comm_world_rank"}
_GPU = {"gpu", "cuda", "device", "gpuid", "deviceid"}  # their numbers on a host


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
    """Return the rows of a table, none where they are too few or two of them have one rank.

    Numbers of GPUs count only where no two ranks of a host have one: a process that sees one GPU calls it 0.
    """
    if len(found) < _FEW or len({one.rank for one in found}) < len(found):
        return ()
    gpus = [(one.host, one.device) for one in found]
    return found if len(set(gpus)) == len(gpus) else [replace(one, device=None) for one in found]


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
    gpu = row.get("gpu", "")
    device = int(gpu) if gpu.isdecimal() else None
    return RankIdentity(rank=int(rank), host=host, pid=int(pid) if pid else None, device=device, where=where)


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
    """Yield the hosts of ranks by lines that begin with a host and say only what `hostname` and a few numbers do.

    The rank is that of the launcher's label in front, or one of these numbers; where both tell, they must agree.
    """
    yield from _whole([one for message in messages if (one := _introduced(message)) is not None])


def _introduced(message: LogMessage) -> RankIdentity | None:
    """Return what a line says of its own process, None where it says anything else."""
    host = _HOST.match(message.text) if len(message.text) <= _MOST_SAID else None
    if host is None or _NO_HOST.fullmatch(host[0]):
        return None
    numbers: dict[str, str] = {}
    place = host.end()
    while found := _SAID.match(message.text, place):
        numbers[re.sub(r"[_ ](?=rank|id)", "", found["name"].lower())] = found["value"]
        place = found.end()
    ranks = {int(value) for name, value in numbers.items() if name in _OF_JOB and value.isdecimal()}
    ranks |= set() if message.rank is None else {message.rank}
    if place < len(message.text) or len(ranks) != 1:
        return None
    gpus = {int(value) for name, value in numbers.items() if name in _GPU and value.isdecimal()}
    pid = numbers.get("pid", "")
    rank = ranks.pop()
    return RankIdentity(
        rank=rank,
        host=host[0],
        pid=int(pid) if pid.isdecimal() else None,
        device=gpus.pop() if len(gpus) == 1 else None,
        where=message.where.by(rank),
    )
