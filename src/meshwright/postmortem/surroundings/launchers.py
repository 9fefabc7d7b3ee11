"""Launchers' words on a process that ended: torch's elastic agent, DeepSpeed, Lightning, mpirun, Hydra, Ray.

A launcher counts as it likes: torchrun, DeepSpeed and Lightning say the rank on its host, MPI a task, Ray a process.
The summary at the end of torchrun is read in `endings`.
"""

import re
import signal as signal_module
from collections.abc import Iterator, Sequence

from ..nouns.facts import Exit, Fact, Failure
from ..nouns.identities import Environment, RankIdentity, Spoke, ToldToEnd, WorldSize
from ..nouns.names import bus_number
from ..ranks.exits import CLOCKS_S
from ..text.host_commands import PER_HOST
from ..text.lines import LogMessage
from ..text.speakers import RAY_RANK

_MAY_TELL = (  # a quick look, since most lines are none of these
    *("exitcode: ", "return code = ", "Child process with PID", "noticed that", "exited with non-zero", "BAD TERM"),
    *("MPI_ABORT was", "ray.exc", "killed due to", "Killing worker", "Ray killed", "worker process has died"),
    *("Worker unexpectedly", "called MPI_Abort", "lost communication with a remote daemon", "marked dead"),
    *("its node has died", "died with <Signals", "terminated with", "RayletDied", "NodeDied", "its owner has died"),
    "killed by `ray.kill`",
)
_CODE_OF_RANK = re.compile(r"[Rr]ank.{1,60}(?:code|status|rc)[ =:]")
_ELASTIC = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)")
# the command that DeepSpeed prints is that of the process it started last, whichever has ended
_DEEPSPEED = re.compile(r"exits with return code = (?P<code>-?\d+)")
# the number is the place among the processes that this host's main process started, and it is rank 0
_LIGHTNING = re.compile(
    r"\[rank: (?P<local>\d+)\] Child process with PID (?P<pid>\d+) terminated with code (?P<code>-?\d+)"
)
_OPEN_MPI = re.compile(
    r"noticed that process rank (?P<task>\d+) with PID (?P<pid>\d+) on node (?P<host>\S+)"
    r" exited on signal (?P<signal>\d+)"
)
_OPEN_MPI_CODE = re.compile(  # and Horovod's own launcher's
    r"Process name: (?:\[\[\d+,\d+\],)?(?P<task>\d+)\]? Exit code: (?P<code>\d+)"
)
_HYDRA = re.compile(
    r"RANK (?P<task>\d+) PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)(?: =)?"
    r" (?:KILLED BY SIGNAL: (?P<signal>\d+)|EXIT CODE: (?P<code>\d+))"
)
_ABORTED = re.compile(r"MPI_ABORT was invoked on rank (?P<task>\d+) in communicator .*?errorcode (?P<code>-?\d+)")
_RAY_MEMORY = re.compile(
    r"ray\.exceptions\.OutOfMemoryError|Workers \(tasks / actors\) killed due to memory pressure"
    r"|Task was killed due to the node running low on memory"
    r"|\bKilling worker with (?:task|actor)|\bRay killed this worker\b"  # the raylet's own log
)
_RAY_DIED = re.compile(r"actor is dead because its worker process has died|Worker unexpectedly exits")
_RAY_NODE = re.compile(
    r"node with node id: \w+ and (?:ip|address): (?P<host>[\w.:-]+)\b.*marked dead|its node has died"
    r"|(?:LocalRaylet|Node)DiedError"
)
_RAY_OWNER = re.compile(r"\bOwner Ip address: (?P<host>[\w.:-]+)")
_MPICH = re.compile(r"called MPI_Abort\(\w+, (?P<code>-?\d+)\) - process (?P<task>\d+)")
# torch.multiprocessing.spawn; the number is the place among its processes
_NAMES = "|".join(sorted(signal_module.Signals.__members__, key=len, reverse=True))  # another's line may follow at once
_SPAWN = re.compile(rf"process (?P<local>\d+) terminated with (?:signal (?P<name>{_NAMES})|exit code (?P<code>\d+))")
_CALLED = re.compile(r"died with <Signals\.SIG\w+: (?P<signal>\d+)>")
# of launchers of one's own, which know ranks
_OF_RANK = re.compile(
    r"\b[Rr]ank[ =:#]{1,2}(?P<rank>\d{1,6})\b(?:,? \([^)]*\))?(?: process)? (?:has |was )?"
    r"(?:exited|ended|failed|terminated|died|finished|returned)(?: \w+){0,3}?"
    r" (?:exit(?:[ _-]?code)?|code|status|rc)[ =:]{1,2}(?P<code>-?\d{1,3})\b"
)
_OF_A_LINE = (_LIGHTNING, _DEEPSPEED, _MPICH, _SPAWN, _CALLED)
_DAEMON = re.compile(r"Remote daemon: \S+ on node (?P<host>\S+)")
# what programs print of themselves when they begin: that a rank exists
_BEGAN = re.compile(r"(?:distributed init \(rank |\bProcess rank: )(\d{1,6})\b")
_ON_BUS = re.compile(  # what a program says of its GPU, PCI address and all
    r"(?<!local_)(?<!local )(?<!node_)(?<!group )\b[Rr](?:ank|ANK)[ =:_-]{0,2}(?P<rank>\d{1,6})\b"
    r".*?(?<![\w:])(?P<bus>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)\b"
)
_ENVIRONMENT = re.compile(r"(?<![A-Z_])RANK=(?P<rank>\d{1,6})\b.*?(?<![A-Z_])WORLD_SIZE=(?P<world>\d{1,6})\b")
_OF_LOGGER = re.compile(  # the process, by itself in a logger's head
    r"(?<![\w.:,/+-])[\[(]?(?P<pid>\d{4,8})[\])]?(?![\w.:,+/-])"
)
_HEAD = 60  # characters
_OF_JAX = re.compile(  # what programs of JAX, and of Hugging Face's Accelerate, print of their own process
    r"\bprocess[_ ](?:index|id)(?:\(\))?[\"']?[ =:]{1,3}(?P<rank>\d{1,6})\b.{1,40}?"
    r"\b(?:process[_ ]count|num[_ ]processes)(?:\(\))?[\"']?[ =:]{1,3}(?P<world>\d{1,6})\b"
    r"|\bJAX (?:process|host)(?:[ _](?:index|id))?: (?P<index>\d{1,6}) ?(?:/|of) ?(?P<count>\d{1,6})\b",
    re.IGNORECASE,
)
# torchrun's agent ends what is left of its host's ranks, by their processes; DeepSpeed's ends all
_CLOSES = re.compile(
    r"(?: (?P<agent>\d+) \S+\] )?(?:Sending process (?P<pid>\d+) closing signal|Killing subprocess (?P<killed>\d+))"
)
_COMMAND = re.compile(
    r"(?:\btorchrun|torch\.distributed\.(?:run|launch)|\baccelerate launch|\bdeepspeed|\bmpirun|\bhorovodrun)\b"
    r"(?P<options>(?: +-\S+(?:[ =][^- ]\S*)?)+)"
)
_AGENT = re.compile(r"^[EW]\d{4} [\d:.]+ (\d+) ")
_PER_HOST = re.compile(r" --(?:nproc[_-]per[_-]node|num_gpus)[= ](\d{1,4})\b")
_HOSTS = re.compile(r" --(?:nnodes|num_nodes)[= ](\S+)")
_NODES = re.compile(r"\bnnodes[ =:]{1,2}(\d{1,5})\b(?!:)")  # not of a range, which is elastic
_IN_ALL = re.compile(r" (?:--num_processes|-np|-n)[= ](\d{1,6})\b")
_PID = re.compile(r"\b(?:pid[=:] ?|PID )(\d+)")
_IP = re.compile(r"^\s*ip: (?P<host>[\w.:-]+)$")
_RAY_AT = re.compile(r"\bon the node \(IP: (?P<host>[\w.:-]+)")
_RAY_WORKER = re.compile(r"Worker IP address: (?P<host>[\w.:-]+) .*?Worker PID: (?P<pid>\d+)")
_RAY_USERS = re.compile(r"(?P<pid>\d{1,8})\s+(?P<gb>\d{1,6}(?:\.\d+)?)\s+(?P<command>ray::\S+)?")  # by their memory
_RAY_ONE = re.compile(r"\b(?P<killed>\d+) Workers \(tasks")
_ABOVE = 2.0  # times the memory of the next: it filled the host
_SPREAD = 6  # lines over which MPI spreads one notice
_QUOTES = "=> \t"
_NOBODY = ("", None)  # says what no host or rank does: the launcher itself
_FEW = 2  # processes that introduce themselves
_SEVERAL = 3  # processes that somebody ended


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield what launchers say of ended processes in the messages of one file."""
    yield from _workers(messages)
    yield from _introduced(messages)
    yield from _sizes(messages)
    yield from _ended_at_once(messages)
    for index, message in enumerate(messages):
        text = message.text
        yield from _environments(message)
        if "rank" in text and (began := _BEGAN.search(text)):
            yield Spoke(rank=int(began[1]), where=message.where)
        has_gpu = ("cuda" in text or "GPU" in text) and "ank" in text and "Xid" not in text
        if has_gpu and (on := _ON_BUS.search(text)):
            rank, where = int(on["rank"]), message.where
            yield RankIdentity(rank=rank, host=message.host, bus_id=bus_number(on["bus"]), where=where.by(rank))
        if "rank=" in text and (listed := RAY_RANK.search(text)):
            rank, where = int(listed["rank"]), message.where
            yield RankIdentity(rank=rank, host=listed["ip"], pid=int(listed["pid"]), where=where)
        if not any(word in text for word in _MAY_TELL) and not _CODE_OF_RANK.search(text):
            continue
        if "noticed that" in text or "exited with non-zero" in text or "BAD TERM" in text or "MPI_ABORT" in text:
            yield from _mpi(message, messages[index : index + _SPREAD])
        elif _RAY_MEMORY.search(text) or _RAY_DIED.search(text):
            before, after = messages[max(0, index - _SPREAD) : index][::-1], messages[index : index + _SPREAD]
            # an actor's error says who it was, and then why it died
            yield from _ray(message, [*before, *after] if "actor is dead" in text else [*after, *before])
        elif "its owner has died" in text or "killed by `ray.kill`" in text:
            yield _owner(message)
        elif "lost communication with a remote daemon" in text or _RAY_NODE.search(text):
            yield from _node(message, messages[max(0, index - _SPREAD) : index], messages[index : index + _SPREAD])
        else:
            yield from _of_a_line(message, text)


def _environments(message: LogMessage) -> Iterator[Environment]:
    """Yield the number of a process, or of a host, and how many there are, as a program prints its own."""
    text, where = message.text, message.where
    if "RANK=" in text and (set_ := _ENVIRONMENT.search(text)) and int(set_["rank"]) < int(set_["world"]):
        local = "LOCAL_RANK=" in text
        yield Environment(number=int(set_["rank"]), world=int(set_["world"]), has_local=local, where=where)
    if ("process" in text or "JAX" in text) and (jax := _OF_JAX.search(text)):
        number, world = int(jax["rank"] or jax["index"]), int(jax["world"] or jax["count"])
        if number < world:
            yield Environment(number=number, world=world, has_local=True, where=where)


def _introduced(messages: Sequence[LogMessage]) -> Iterator[RankIdentity]:
    """Yield the processes of ranks that print their own number behind a logger's head with that of the process.

    Only where each rank has one process and no two have the same: the number may be a thread's or a line's.
    """
    told: dict[int, set[int]] = {}
    lines: dict[int, LogMessage] = {}
    for message in messages:
        for own in _environments(message):
            numbers = {int(one["pid"]) for one in _OF_LOGGER.finditer(message.where.text[:_HEAD])}
            if own.has_local and len(numbers) == 1:
                told.setdefault(own.number, set()).update(numbers)
                lines.setdefault(own.number, message)
    pids = [pid for own in told.values() for pid in own]
    if _FEW <= len(told) == len(pids) == len(set(pids)):
        for rank, own_pids in told.items():
            where = lines[rank].where.by(rank)
            yield RankIdentity(rank=rank, host=lines[rank].host, pid=min(own_pids), where=where)


def _ended_at_once(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield that somebody ended all processes of a log: the shell of each says "Terminated" within seconds."""
    ended = [message for message in messages if message.text.strip() == "Terminated"]
    speakers = {_speaker(message) for message in ended}
    times_s = [message.where.time_s for message in ended if message.where.time_s is not None]
    if len(speakers) < _SEVERAL or not {_speaker(m) for m in messages} - {_NOBODY} <= speakers:
        return
    if len(times_s) == len(ended) and max(times_s) - min(times_s) <= CLOCKS_S:
        what = f"all {len(speakers)} processes were told to end (SIGTERM) at once"
        yield Failure(kind="killed", what=what, where=ended[0].where, follows=True, is_general=True)


def _speaker(message: LogMessage) -> tuple[str, int | None]:
    return message.host, message.rank


def _sizes(messages: Sequence[LogMessage]) -> Iterator[WorldSize | ToldToEnd]:
    """Yield how many ranks there are, or at least: by a launcher's command, by the processes that torchrun ends."""
    ended: dict[tuple[int | None, str | None], set[int]] = {}
    for message in messages:
        text, where = message.text, message.where
        if ("Sending process" in text or "Killing sub" in text) and (closed := _CLOSES.search(text)):
            pid = int(closed["pid"] or closed["killed"])
            ended.setdefault((where.attempt, closed["agent"]), set()).add(pid)
            if closed["pid"]:
                yield ToldToEnd(pid=pid, where=where)
        elif "failed (exitcode" in text and (failed := _ELASTIC.search(text)):
            agent = _AGENT.search(text)
            ended.setdefault((where.attempt, agent[1] if agent else None), set()).add(int(failed["pid"]))
        elif "nnodes" in text and (hosts := _NODES.search(text)) and (each := PER_HOST.search(text)):
            yield WorldSize(ranks=int(hosts[1]) * int(each["ranks"]), where=where)
        elif " -" in text and (command := _COMMAND.search(text)) and (ranks := _started_by(command["options"])):
            yield WorldSize(ranks=ranks, is_of_host=_is_on_one_host(command["options"]), where=where)
    if ended and messages:
        yield WorldSize(ranks=max(map(len, ended.values())), where=messages[0].where)


def _started_by(options: str) -> int:
    """Return the ranks that a launcher's options ask for, 0 where they do not say it."""
    if in_all := _IN_ALL.search(options):
        return int(in_all[1])
    per_host, hosts = _PER_HOST.search(options), _HOSTS.search(options)
    if not per_host or (hosts and not hosts[1].isdecimal()) or (not hosts and "--hostfile" in options):
        return 0
    return int(per_host[1]) * int(hosts[1] if hosts else 1)


def _is_on_one_host(options: str) -> bool:
    """Whether torchrun's options ask for the ranks of one host alone."""
    hosts = _HOSTS.search(options)
    return "nproc" in options and (hosts[1] == "1" if hosts else _IN_ALL.search(options) is None)


def _workers(messages: Sequence[LogMessage]) -> Iterator[RankIdentity]:
    """Yield which rank a worker of Ray is, by the process and the address before its lines."""
    ranks: dict[tuple[str, int], dict[int, LogMessage]] = {}
    for message in messages:
        if message.pid is not None and message.rank is not None:
            ranks.setdefault((message.host, message.pid), {}).setdefault(message.rank, message)
    for (host, pid), spoken in ranks.items():
        if len(spoken) == 1:  # an engine inside a worker counts for itself
            rank, message = next(iter(spoken.items()))
            yield RankIdentity(rank=rank, host=host, pid=pid, where=message.where)


def _of_a_line(message: LogMessage, text: str) -> Iterator[Fact]:
    if own := _OF_RANK.search(text):
        code = int(own["code"])
        yield Exit(rank=int(own["rank"]), host=message.host, code=code, first=code != 0, where=message.where)
        return
    for agent in _ELASTIC.finditer(text):
        yield _exit(message, agent)
    if found := next((found for form in _OF_A_LINE if (found := form.search(text))), None):
        yield _exit(message, found)


def _exit(message: LogMessage, found: re.Match[str]) -> Exit:
    told = found.groupdict()
    pid, signal = int(told.get("pid") or 0), told.get("signal")
    if told.get("name") in signal_module.Signals.__members__:
        signal = signal_module.Signals[told["name"]].value
    return Exit(
        rank=None,
        task=int(told["task"]) if told.get("task") else None,
        local_rank=int(told["local"]) if told.get("local") else None,
        pid=pid or None,  # MPI prints 0 for one that it does not know
        host=told.get("host") or message.host,
        code=-int(signal) if signal else int(told["code"]),
        first=True,
        where=message.where,
    )


def _mpi(message: LogMessage, following: Sequence[LogMessage]) -> Iterator[Fact]:
    told = " ".join(line.text.strip(_QUOTES) for line in following)
    told = re.sub(r"\s+", " ", told)
    if found := _OPEN_MPI.search(told) or _OPEN_MPI_CODE.search(told) or _HYDRA.search(told) or _ABORTED.search(told):
        yield _exit(message, found)


def _ray(message: LogMessage, around: Sequence[LogMessage]) -> Iterator[Fact]:
    """Read the end of a worker, with its process in the first of the lines around that names one and is of no list."""
    around = [line for line in around if not RAY_RANK.search(line.text)]
    pid = next((int(found[1]) for line in around if (found := _PID.search(line.text))), message.pid)
    host = next((found["host"] for line in around if (found := _IP.match(line.text))), message.host)
    if not host and _RAY_MEMORY.search(message.text):
        host = next((found["host"] for line in around if (found := _RAY_AT.search(line.text))), "")
    if worker := next((found for line in around if (found := _RAY_WORKER.search(line.text))), None):
        pid, host = int(worker["pid"]), worker["host"]
    counted = _RAY_ONE.search(message.text)
    if pid is None and counted and int(counted["killed"]) == 1:
        pid = _largest(around)
    if _RAY_MEMORY.search(message.text):
        what = "Ray killed a worker, for the memory of its node ran low"
        yield Failure(kind="host_memory", what=what, pid=pid, host=host, where=message.where)
    else:
        what = "the process of a Ray worker ended unexpectedly: killed, out of memory or crashed"
        yield Failure(
            kind="killed", what=what, pid=pid, host=host, where=message.where, follows=True, unless_first=True
        )


def _owner(message: LogMessage) -> Failure:
    """Read that the process that started an actor ended it, or itself ended before it, alone or with its node."""
    text = message.text
    host = found["host"] if (found := _RAY_OWNER.search(text)) else ""
    if "Owner's node has crashed" in text:
        what = f"Ray: node {host} no longer answers" if host else "Ray: the node of an actor's owner has died"
        return Failure(kind="killed", what=what, host=host, where=message.where, is_general=True)
    what = "the process that started a Ray actor "
    what += "ended it (ray.kill)" if "ray.kill" in text else "ended before it"
    return Failure(kind="killed", what=what, where=message.where, follows=True)


def _largest(lines: Sequence[LogMessage]) -> int | None:
    """Return the process of Ray's that has far more memory than all others of a table, None where none has."""
    rows = [row for line in lines if (row := _RAY_USERS.match(line.text.strip()))]
    rows.sort(key=lambda row: -float(row["gb"]))
    if len(rows) < 2 or not rows[0]["command"] or float(rows[0]["gb"]) < _ABOVE * float(rows[1]["gb"]):
        return None
    return int(rows[0]["pid"])


def _node(message: LogMessage, around: Sequence[LogMessage], following: Sequence[LogMessage]) -> Iterator[Fact]:
    """Read that a whole node no longer answers, or was taken: to Ray's head, or to Open MPI's.

    An error of Ray's names the address of the node in the lines above (`around`).
    """
    if found := _RAY_NODE.search(message.text):
        above = (own["host"] for line in reversed(around) if (own := _IP.match(line.text)))
        host = found.group("host") or next(above, "")
        end = "was preempted" if any("preempted: " in line.text for line in following[:2]) else "no longer answers"
        what = f"Ray: node {host} {end}" if host else "Ray: the node of a worker has died"
        yield Failure(kind="killed", what=what, host=host, where=message.where, is_general=True)
        return
    host = next((found["host"] for line in following if (found := _DAEMON.search(line.text))), "")
    what = f"Open MPI lost its daemon on node {host}" if host else "Open MPI lost its daemon on a node"
    yield Failure(kind="network", what=what, host=host, where=message.where)
