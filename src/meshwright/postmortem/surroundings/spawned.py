"""Processes of ranks: by DeepSpeed's launcher, SLURM's table of processes, words of programs and notes of people."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from ..nouns.facts import Fact
from ..nouns.identities import AgentRanks, LocalProcess, RankIdentity
from ..text.lines import LogMessage
from ..text.speakers import RANK_OF_JOB, RANK_ON_HOST, RAY_RANK

_LABEL = re.compile(r"^(?P<host>\w[\w.-]*): ")  # pdsh's
_NODE = re.compile(r"\bnnodes=(?P<nodes>\d+), num_local_procs=(?P<processes>\d+), node_rank=(?P<node>\d{1,5})\b")
_MAPPING = re.compile(r"\b(?P<of>global_rank_mapping=|WORLD INFO DICT: ).*?(?P<hosts>\{.*\})")
_HOST = re.compile(r"['\"](?P<host>[\w.:-]+)['\"]: \[(?P<ranks>[\d, ]+)\]")
_HERE = {"localhost", "127.0.0.1"}  # names of every host
_SPAWNED = re.compile(
    r"\bprocess (?P<pid>\d+) spawned with command: (?:.*?--local[-_]rank[= ',\"]+(?P<local>\d{1,4})\b)?"
)
_COLUMNS = ("PID", "JOBID", "STEPID", "LOCALID", "GLOBALID")  # of `scontrol listpids`
_GPU = re.compile(  # of its own, by the number on its host
    r"\b(?:gpu|cuda|device)(?:[_ ]?(?:id|index))?[\"']?(?: ?[=:#] ?| )(?:cuda:)?"
    r"(?P<rank>\d{1,2})\b(?![.\d]*\w| ?[GM]i?B)",
    re.IGNORECASE,
)
_STARTS = re.compile(  # a launcher's word on a rank, before which nobody else is named
    r"\b(?:spawn|launch|start|fork)(?:ed|ing)\b(?: (?:an?|the|new|worker|process|trainer|for|with|of|as|child))*+"
    r"[ :,(\[]{1,3}(?:(?:local|global)[_ -]?)?rank\b",
    re.IGNORECASE,
)
_OWN_START = re.compile(  # how a process of a rank calls itself, and how many helpers it has
    r"^(?:\S+ ){0,4}?\W?(?:worker|trainer)(?: process)? (?:start(?:s|ed|ing)?|launched|ready|is up)\b"
    r"|\b(?:num_|n_)?workers ?[=:] ?\d+",
    re.IGNORECASE,
)
_PID = re.compile(
    r"(?<![\w-])(?:os[ _])?(?:pid|process[ _]id)[\"']?(?:[ =:#]{1,3}| is )(?P<pid>\d{2,8})\b", re.IGNORECASE
)
_OWN = re.compile(  # without a way back, since the words may stand in any number and order
    r"^(?:\W|(?:INFO|DEBUG|started|starting|running|worker|my|own|is|on|os)(?=\W)"
    r"|(?:cuda|xpu|npu|hpu|gpu|device)[ :=]?\d*(?=\W)|host[^\s,;]*+)*+pid\b",
    re.IGNORECASE,
)
_OWN_LABEL = re.compile(r"^\[(?=[^\]]{0,60}\brank\b)(?=[^\]]{0,60}\bpid\b)[^\[\]]{1,80}\]", re.IGNORECASE)
_FEW = 2  # processes of a list
_NUMBER = r"(?:(?P<kind>global|world|local)[ _-]?)?(?P<what>rank|gpu)[ _=:#-]{0,2}(?P<number>\d{1,5})"
_TO = r" ?(?:=|->|=>|\u2192|:|\bis\b|\() ?"
_NOTES = (  # of people, on whose process is which
    re.compile(rf"(?<![\w.:/=-])(?P<pid>\d{{3,8}}){_TO}{_NUMBER}(?![\w.])", re.IGNORECASE),
    re.compile(
        rf"(?<![\w-])(?<!node )(?<!group )(?<![tpdec]p ){_NUMBER}{_TO}(?:pid[ =:#]{{0,2}})?"
        r"(?P<pid>\d{3,8})(?![\w.:/%])",
        re.IGNORECASE,
    ),
)
_ARROW = re.compile(  # of a launcher, from each process to its rank
    rf"(?<![\w-])pid[ =:#]{{1,2}}(?P<pid>\d{{2,8}}) ?(?:->|=>|\u2192) ?{_NUMBER}(?![\w.])", re.IGNORECASE
)
_ON = re.compile(
    r"\b(?:host(?:name)?|node)[\"']?[ =:]{1,3}[\"']?(?P<host>[A-Za-z][\w.-]*|\d{1,3}(?:\.\d{1,3}){3}\b)", re.IGNORECASE
)
_OF_OTHERS = re.compile(  # of another process than the rank's own, or of one that is only told about
    r"child|worker|loader|kill|sending|subprocess|peer|exit|died|dead|fail|NCCL"
    r"|watchdog|signal|remote|wait|thread|helper|server|process group \d|parent|group[_ -]rank|from rank|to rank"
    r"|timeout|\(node_id=",  # Ray Train's list, whose lines begin with the driver's host
    re.IGNORECASE,
)


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield which process is which rank, in the messages of one file."""
    yield from _of_deepspeed(messages)
    yield from _of_slurm(messages)
    yield from _introduced(messages)
    yield from _noted(messages)


def _noted(messages: Sequence[LogMessage]) -> Iterator[RankIdentity | LocalProcess]:
    """Yield the processes of which a comment, or a line that lists several, says the rank, or the number on a host."""
    for message in messages:
        text = message.where.text
        low = text.lower()
        if message.is_of_library or not ("pid" in low or "py-spy" in low) or not ("rank" in low or "gpu" in low):
            continue
        least = 1 if text.startswith("#") else _FEW
        told = next((found for form in _NOTES if len(found := list(form.finditer(text))) >= least), [])
        told = told or list(_ARROW.finditer(text))
        if len({one["pid"] for one in told}) < len(told) or len({one["number"] for one in told}) < len(told):
            continue
        for one in told:
            pid, number, is_gpu = int(one["pid"]), int(one["number"]), one["what"].lower() == "gpu"
            if is_gpu or (one["kind"] or "").lower() == "local":
                yield LocalProcess(number=number, pid=pid, host=message.host, is_gpu=is_gpu, where=message.where)
            else:
                yield RankIdentity(rank=number, host=message.host, pid=pid, where=message.where.by(number))


def _introduced(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the processes that programs print with their ranks; not where two have one: each host then counts.

    Where a line has only a number on the host, or of the process's GPU, it is that: not where two have one GPU, for a
    process that sees no other calls it 0.
    """
    found: dict[int, list[RankIdentity]] = defaultdict(list)
    listed: dict[int, RankIdentity] = {}  # by one rank, in its own log
    users: dict[str, dict[int, LocalProcess]] = defaultdict(dict)
    for message in messages:
        text = label[0] if (label := _OWN_LABEL.match(message.text)) else message.text[:400]
        low = text.lower()
        if ("pid" not in low and "process" not in low) or _tells_of_others(text) or RAY_RANK.search(text):
            continue
        host = message.host or (on["host"] if (on := _ON.search(text)) else "")
        for rank, pid in _pairs(message, text, RANK_OF_JOB):
            where = message.where.by(rank)
            found[rank].append(RankIdentity(rank=rank, host=host, pid=pid, where=where))
        for rank, pid in _pairs(replace(message, rank=None), text, RANK_OF_JOB) if message.rank is not None else ():
            listed.setdefault(rank, RankIdentity(rank=rank, host=host, pid=pid, where=message.where.by(rank)))
        if "local" in low and not RANK_OF_JOB.search(text):
            for number, pid in _pairs(message, text, RANK_ON_HOST):
                yield LocalProcess(number=number, pid=pid, host=host, where=message.where)
        elif message.rank is None and not RANK_OF_JOB.search(text):
            for number, pid in _pairs(message, text, _GPU):
                own = LocalProcess(number=number, pid=pid, host=host, is_gpu=True, counts="given", where=message.where)
                users[host][pid] = own
    for table in users.values():
        if len({user.number for user in table.values()}) == len(table):
            yield from table.values()
    for told in found.values():
        if len({one.pid for one in told}) == 1:
            yield told[0]
    if listed.keys() == set(range(len(listed))) and len({(one.host, one.pid) for one in listed.values()}) > _FEW:
        yield from (one for rank, one in listed.items() if rank not in found)


def _tells_of_others(text: str) -> bool:
    """Whether a line is of another process than a rank's own; a launcher may call the ranks that it starts workers.

    So may a process that says its rank and its number on its host when it starts.
    """
    text = _STARTS.sub(" rank", text, count=1)
    if RANK_OF_JOB.search(text) and RANK_ON_HOST.search(text):
        text = _OWN_START.sub(" ", text)
    return _OF_OTHERS.search(text) is not None


def _pairs(message: LogMessage, text: str, numbers: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return ranks and processes of a line: one of each, or several by turns; a process alone is of who speaks.

    `numbers` finds the ranks, or the numbers on a host.
    """
    ranks, pids = list(numbers.finditer(text)), list(_PID.finditer(text))
    if numbers is RANK_OF_JOB and not ranks and len(pids) == 1 and message.rank is not None and _OWN.match(text):
        return [(message.rank, int(pids[0]["pid"]))]
    turns = [one.re is numbers for one in sorted([*ranks, *pids], key=lambda one: one.start())]
    by_turns = all(turns[at] != turns[at + 1] for at in range(len(turns) - 1))
    speaks = {None, *(int(r["rank"]) for r in ranks)} if numbers is RANK_OF_JOB else {None}
    if len(ranks) != len(pids) or not by_turns or message.rank not in speaks:
        return []
    if len(ranks) > 1 and message.rank is not None:
        return []
    return [(int(rank["rank"]), int(pid["pid"])) for rank, pid in zip(ranks, pids, strict=True)]


class _Launcher(msgspec.Struct):
    """Word of the launcher of one host: which node it is, of how many, and the processes that it started."""

    nodes: set[int] = set()
    sizes: set[tuple[int, int]] = set()  # of the job and of this node
    spawned: dict[int, tuple[int | None, LogMessage]] = {}

    def numbered(self) -> dict[int, tuple[int, LogMessage]]:
        """Return the number on the host of each process: it starts them in order where their commands bear none."""
        if all(local is not None for local, _ in self.spawned.values()):
            return {pid: (local, message) for pid, (local, message) in self.spawned.items() if local is not None}
        if any(local is not None for local, _ in self.spawned.values()) or len(self.sizes) != 1:
            return {}
        _, processes = next(iter(self.sizes))
        in_order = enumerate(self.spawned.items())
        return {p: (n, message) for n, (p, (_, message)) in in_order} if len(self.spawned) == processes else {}


def _of_deepspeed(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the processes that DeepSpeed's launcher of each host started: it maps their numbers there to ranks.

    Where lines of several hosts bear no label, the launchers of these cannot be told apart. A launcher that prints no
    map leaves a number on its host.
    """
    launchers: dict[str, _Launcher] = defaultdict(_Launcher)
    mapping: list[tuple[str, list[int]]] = []
    is_told = False
    for message in messages:
        text = message.text
        if "launch" not in text:
            continue
        label = _LABEL.match(text)
        own = launchers[message.host or (label["host"] if label else "")]
        if node := _NODE.search(text):
            own.nodes.add(int(node["node"]))
            own.sizes.add((int(node["nodes"]), int(node["processes"])))
        elif not is_told and (told := _MAPPING.search(text)):
            is_told = told["of"] != "WORLD INFO DICT: "
            found = _HOST.finditer(told["hosts"])
            hosts = [("" if one["host"] in _HERE else one["host"], _numbers(one["ranks"])) for one in found]
            mapping = hosts if is_told else _in_order(hosts)
            if is_told:
                yield from (AgentRanks(ranks=tuple(r), where=replace(message.where, host=n)) for n, r in hosts)
        elif process := _SPAWNED.search(text):
            local = None if process["local"] is None else int(process["local"])
            own.spawned[int(process["pid"])] = local, message
    for host, launcher in launchers.items():
        yield from _of_launcher(launcher, host, mapping)


def _in_order(hosts: Sequence[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """Return the ranks of hosts of which the GPUs are told: they are counted through them in order."""
    starts = accumulate((len(gpus) for _, gpus in hosts), initial=0)
    return [(name, list(range(start, start + len(gpus)))) for (name, gpus), start in zip(hosts, starts, strict=False)]


def _of_launcher(
    launcher: _Launcher, host: str, mapping: Sequence[tuple[str, list[int]]]
) -> Iterator[RankIdentity | LocalProcess | AgentRanks]:
    """Yield the processes of one launcher, with their ranks where it says which node of the map it is."""
    node = min(launcher.nodes) if len(launcher.nodes) == 1 else None
    if node is not None and node < len(mapping):
        name, ranks = mapping[node]
        for pid, (local, message) in launcher.numbered().items():
            if local < len(ranks):
                yield RankIdentity(rank=ranks[local], host=name, pid=pid, where=message.where.by(ranks[local]))
    else:
        several = len(mapping) > 1 or len(launcher.nodes) > 1 or any(nodes > 1 for nodes, _ in launcher.sizes)
        several = several or bool(host)  # pdsh labels the lines of several
        if not mapping and node is not None and len(launcher.sizes) == 1:
            yield from _share(launcher, node, host)
        for pid, (local, message) in launcher.numbered().items():
            yield LocalProcess(number=local, pid=pid, host=host, of_several=several, where=message.where)


def _share(launcher: _Launcher, node: int, host: str) -> Iterator[AgentRanks]:
    """Yield the ranks of a host by the number that its launcher gives it, as many for each host before it."""
    nodes, size = next(iter(launcher.sizes))
    lines = [message for _, message in launcher.spawned.values()]
    if host and lines and nodes > 1 and size > 1:
        ranks = tuple(range(node * size, (node + 1) * size))
        yield AgentRanks(ranks=ranks, where=replace(lines[0].where, host=host))


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
