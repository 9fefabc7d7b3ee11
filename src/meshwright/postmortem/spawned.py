"""Processes of ranks: by DeepSpeed's launcher, by SLURM's table of processes, by what programs print of themselves."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from .facts import Fact
from .identities import AgentRanks, RankIdentity
from .lines import LogMessage

_LABEL = re.compile(r"^(?P<host>\w[\w.-]*): ")  # pdsh's
_NODE = re.compile(r"\bnnodes=\d+, num_local_procs=\d+, node_rank=(?P<node>\d{1,5})\b")
_MAPPING = re.compile(r"\bglobal_rank_mapping=.*?(?P<hosts>\{.*\})")
_HOST = re.compile(r"['\"](?P<host>[\w.:-]+)['\"]: \[(?P<ranks>[\d, ]+)\]")
_SPAWNED = re.compile(r"\bprocess (?P<pid>\d+) spawned with command: .*?--local_rank[= ',\"]+(?P<local>\d{1,4})\b")
_COLUMNS = ("PID", "JOBID", "STEPID", "LOCALID", "GLOBALID")  # of `scontrol listpids`
_RANK = re.compile(  # of the job: not on its host, nor in a group
    r"(?<![\w-])(?<!local )(?<!node )(?<!group )(?<!parallel )(?<![tpdec]p )"
    r"(?:global[_ -]?|world[_ -]?)?rank[\"']?[ =:#]{1,3}(?P<rank>\d{1,6})\b(?![.\d]*\w)",
    re.IGNORECASE,
)
_PID = re.compile(
    r"(?<![\w-])(?:os[ _])?(?:pid|process[ _]id)[\"']?(?:[ =:#]{1,3}| is )(?P<pid>\d{2,8})\b", re.IGNORECASE
)
_OWN = re.compile(  # without a way back, since the words may stand in any number and order
    r"^(?:\W|(?:INFO|DEBUG|started|starting|running|worker|my|own|is|on|os)(?=\W)|host[^\s,;]*+)*+pid\b", re.IGNORECASE
)
_ON = re.compile(r"\b(?:host(?:name)?|node)[\"']?[ =:]{1,3}[\"']?(?P<host>[A-Za-z][\w.-]*)", re.IGNORECASE)
_OF_OTHERS = re.compile(  # of another process than the rank's own, or of one that is only told about
    r"child|worker|loader|kill|sending|subprocess|peer|exit|died|dead|fail|NCCL"
    r"|watchdog|signal|remote|wait|thread|helper|server|process group \d|parent|group[_ -]rank|from rank|to rank"
    r"|timeout",
    re.IGNORECASE,
)


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield which process is which rank, in the messages of one file."""
    yield from _of_deepspeed(messages)
    yield from _of_slurm(messages)
    yield from _introduced(messages)


def _introduced(messages: Sequence[LogMessage]) -> Iterator[RankIdentity]:
    """Yield the processes that programs print with their ranks; not where two have one: each host then counts."""
    found: dict[int, list[RankIdentity]] = defaultdict(list)
    for message in messages:
        text = message.text[:400]
        low = text.lower()
        if ("pid" not in low and "process" not in low) or _OF_OTHERS.search(text):
            continue
        host = message.host or (on["host"] if (on := _ON.search(text)) else "")
        for rank, pid in _pairs(message, text):
            where = message.where.by(rank)
            found[rank].append(RankIdentity(rank=rank, host=host, pid=pid, where=where))
    for told in found.values():
        if len({one.pid for one in told}) == 1:
            yield told[0]


def _pairs(message: LogMessage, text: str) -> list[tuple[int, int]]:
    """Return ranks and processes of a line: one of each, or several by turns; a process alone is of who speaks."""
    ranks, pids = list(_RANK.finditer(text)), list(_PID.finditer(text))
    if not ranks and len(pids) == 1 and message.rank is not None and _OWN.match(text):
        return [(message.rank, int(pids[0]["pid"]))]
    turns = [one.re is _RANK for one in sorted([*ranks, *pids], key=lambda one: one.start())]
    by_turns = all(turns[at] != turns[at + 1] for at in range(len(turns) - 1))
    if len(ranks) != len(pids) or not by_turns or message.rank not in {None, *(int(r["rank"]) for r in ranks)}:
        return []
    if len(ranks) > 1 and message.rank is not None:
        return []
    return [(int(rank["rank"]), int(pid["pid"])) for rank, pid in zip(ranks, pids, strict=True)]


def _of_deepspeed(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the processes that DeepSpeed's launcher of each host started: it maps their numbers there to ranks.

    Where lines of several hosts bear no label, the launchers of these cannot be told apart.
    """
    nodes: dict[str, set[int]] = defaultdict(set)
    mapping: list[tuple[str, list[int]]] = []
    spawned: dict[str, dict[int, tuple[int, LogMessage]]] = defaultdict(dict)
    for message in messages:
        text = message.text
        if "launch" not in text:
            continue
        label = _LABEL.match(text)
        host = message.host or (label["host"] if label else "")
        if node := _NODE.search(text):
            nodes[host].add(int(node["node"]))
        elif told := _MAPPING.search(text):
            mapping = [(one["host"], _numbers(one["ranks"])) for one in _HOST.finditer(told["hosts"])]
            for name, ranks in mapping:
                yield AgentRanks(ranks=tuple(ranks), where=replace(message.where, host=name))
        elif process := _SPAWNED.search(text):
            spawned[host][int(process["pid"])] = int(process["local"]), message
    for host, processes in spawned.items():
        if len(nodes[host]) != 1 or (node_rank := min(nodes[host])) >= len(mapping):
            continue
        name, ranks = mapping[node_rank]
        for pid, (local, message) in processes.items():
            if local < len(ranks):
                yield RankIdentity(rank=ranks[local], host=name, pid=pid, where=message.where.by(ranks[local]))


def _of_slurm(messages: Sequence[LogMessage]) -> Iterator[RankIdentity]:
    """Yield the processes of tasks by `scontrol listpids`, where a step has as many tasks as processes."""
    columns: list[str] = []
    rows: list[tuple[int, int, LogMessage]] = []
    for message in messages:
        words = message.text.split()
        if set(_COLUMNS) <= set(words):
            columns = words
        elif columns and len(words) == len(columns):
            row = dict(zip(columns, words, strict=True))
            if row["PID"].isdecimal() and row["GLOBALID"].isdecimal():
                rows.append((int(row["PID"]), int(row["GLOBALID"]), message))
    tasks = [task for _, task, _ in rows]
    if len(set(tasks)) == len(tasks) > 1:
        for pid, task, message in rows:
            yield RankIdentity(rank=task, host=message.host, pid=pid, where=message.where)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number.strip()]
