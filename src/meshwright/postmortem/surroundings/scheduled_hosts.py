"""Hosts and pods whose number is their place in a scheduler's list, and the ones that were not started or did not come.

SLURM numbers the nodes of a job in the order of its list, Kubernetes the pods of an indexed Job or a StatefulSet. A
launcher's command that takes the number of its host from there says so by the name of the variable.
"""

import re
from collections.abc import Iterator, Sequence

from ...cluster.dumps.hostlist import expand_hosts
from ...errors import InputError
from ..nouns.facts import Absentees, Fact, Failure, PeerLost, StoreWait, Timeout, of
from ..nouns.identities import AgentRanks, HostList, NotStarted, NumberedHosts, Placed, RankIdentity, WorldSize
from ..nouns.where import Where
from ..nouns.world import ranks_seen, short_host, world_of
from ..ranks.hosts import ranks_of_host
from ..text.host_commands import PER_HOST
from ..text.lines import LogMessage
from .pods import kept_pods, waiting_pod

_NUMBER = (  # of a host, in a command or in the environment
    r"(?:--(?:node|machine)[-_]rank[= ]|\b(?:PET_)?(?:NODE|GROUP|MACHINE)_RANK=|\bnode_rank=)[\"'\\]{0,4}"
)
_BY_LIST = re.compile(rf"{_NUMBER}\$[{{(]?SLURM_(?P<of>NODEID|PROCID)\b")
_BY_INDEX = re.compile(
    rf"{_NUMBER}\$[{{(]{{0,2}}(?:JOB_COMPLETION_INDEX|POD_INDEX|(?:HOSTNAME|POD_NAME)##\*-)"
    r"|\b(?:PET_)?NODE_RANK:\s+\(v1:metadata\.\w+\['[\w./]*(?:job-completion-index|pod-index)'\]\)"
)
_COUNTED = re.compile(rf"{_NUMBER}\$\(\((?P<sum>[^()]{{5,200}})\)\)")  # by the shell's arithmetic
_BY_JOB = re.compile(  # of a JobSet: `JOB_INDEX * 4 + POD_INDEX`, in either order
    r"(?m:^)(?=.*\b(?:POD_INDEX|JOB_COMPLETION_INDEX|COMPLETION_INDEX)\b)"
    r"(?:.*\b\w*(?<!GLOBAL_)JOB_INDEX\}? ?\* ?[$]?\{?(?P<pods>\w{1,40})\b"
    r"|.*?(?<![\w{])[$]?\{?(?P<first>\w{1,40})\}? ?\* ?[$]?\{?\w*(?<!GLOBAL_)JOB_INDEX\b)"
)
_PARALLEL = re.compile(r"^\s*(?:parallelism|completions): +(?P<pods>\d{1,5})\s*$")  # of each job
_SET = re.compile(r"(?<![\w$])(?P<name>[A-Za-z_]\w{1,39})=[\"']?(?P<value>\d{1,5})\b")
_MAY_NUMBER = re.compile(r"[$]|v1:metadata")
_BY_TASK = re.compile(r"(?<![\w-])(?:RANK=|--rank[= ])[\"'\\]{0,4}\$[{(]?SLURM_PROCID\b")
_TASKS = re.compile(r"(?:--|\bSLURM_)(?:n?tasks[-_]per[-_]node|NTASKS_PER_NODE)[= ](?P<tasks>\d{1,3})\b")
_ACCELERATE = re.compile(r"--num[-_]processes[= ](?P<ranks>\d{1,6})\b")
_MACHINES = re.compile(r"--num[-_]machines[= ](?P<hosts>\d{1,5})\b")
_OTHER_ORDER = re.compile(r"rdzv\S*[ =]c10d|--distribution[= ](?!block)|(?<!\S)-m (?:cyclic|plane|arbitrary)")
_LIST = re.compile(
    r"\bscontrol +show +hostnames? +[\"']?(?P<asked>[A-Za-z][\w.,\[\]-]{2,2000})"
    r"|(?<![A-Za-z_])(?:SLURM_(?:JOB_|STEP_)?NODELIST|NodeList)[=:] ?[\"']?(?P<told>[A-Za-z][\w.,\[\]-]{2,2000})"
)
_ASKED = re.compile(r"\bscontrol +show +hostnames?\b(?! +[\"']?[A-Za-z])(?!.*\| *head)")
_HOST = re.compile(r"[A-Za-z][\w.-]*\d[\w.-]*")
_NOT_STARTED = re.compile(
    r"\bsrun: error: Task launch for \S+ failed on node (?P<host>[A-Za-z][\w.-]*): (?P<why>.{1,120})"
)
_MOST = 4096  # hosts
_FEW = 2


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the lists of a job's hosts, how commands number them, and where none of it was started."""
    yield from _lists(messages)
    yield from _numbered(messages)
    for message in messages:
        if "Task launch for" in message.text and (found := _NOT_STARTED.search(message.text)):
            what = f"its task on {found['host']} could not be started ({found['why'].strip()})"
            yield NotStarted(host=found["host"], by="SLURM", what=what, where=message.where)
        elif "/" in message.text and (pod := waiting_pod(message.text)):
            yield _pod_not_started(pod[0], pod[1], message)
    for message, name, reason in kept_pods(messages):
        yield _pod_not_started(name, reason, message)


def _pod_not_started(pod: str, why: str, message: LogMessage) -> NotStarted:
    return NotStarted(host=pod, by="Kubernetes", what=f"pod {pod} has not started ({why})", where=message.where)


def _lists(messages: Sequence[LogMessage]) -> Iterator[HostList]:
    """Yield the hosts of a job in the order of its list, as SLURM writes it or `scontrol show hostnames` prints it."""
    printed: list[LogMessage] | None = None
    for message in messages:
        text = message.text
        if printed is not None and _HOST.fullmatch(text.strip()):
            printed.append(message)
            continue
        if printed and len(printed) >= _FEW:
            yield HostList(hosts=tuple(one.text.strip() for one in printed), where=printed[0].where)
        printed = None
        if "scontrol" not in text and "NODELIST" not in text and "NodeList" not in text:
            continue
        for found in _LIST.finditer(text):
            if len(hosts := hosts_in_list((found["asked"] or found["told"]).rstrip(",."))) >= _FEW:
                yield HostList(hosts=hosts, where=message.where)
        if _ASKED.search(text):
            printed = []


def hosts_in_list(text: str) -> tuple[str, ...]:
    """Return the hosts of a list, () where it is none."""
    try:
        hosts = tuple(expand_hosts(text, ""))
    except InputError:
        return ()
    return hosts if len(hosts) <= _MOST and all(map(_HOST.fullmatch, hosts)) else ()


def _numbered(messages: Sequence[LogMessage]) -> Iterator[NumberedHosts]:
    """Yield that commands of one file number hosts by their place, with the ranks of each where it says them.

    Not where hosts are numbered as they come, or tasks go round them.
    """
    numbering = [one for one in messages if _MAY_NUMBER.search(one.text) and ("RANK" in one.text or "rank" in one.text)]
    if not numbering or any(_OTHER_ORDER.search(message.text) for message in messages):
        return
    tasks = {int(one["tasks"]) for message in messages for one in _TASKS.finditer(message.text)}
    sizes = {int(one["ranks"]) for message in messages for one in PER_HOST.finditer(message.text)}
    sizes |= {size for message in messages if (size := _by_accelerate(message.text))}
    for message in numbering:
        text = message.text
        by_list = _BY_LIST.search(text)
        if by_list and (by_list["of"] == "NODEID" or tasks <= {1}):
            yield NumberedHosts(per_host=_only(sizes), where=message.where)
        elif counted := _COUNTED.search(text):
            if pods := _pods_of_job(counted["sum"], messages):
                yield NumberedHosts(per_host=_only(sizes), are_pods=True, per_job=pods, where=message.where)
        elif _BY_INDEX.search(text):
            yield NumberedHosts(per_host=_only(sizes), are_pods=True, where=message.where)
        elif _BY_TASK.search(text) and tasks and not sizes:
            yield NumberedHosts(per_host=_only(tasks), where=message.where)


def _pods_of_job(counted: str, messages: Sequence[LogMessage]) -> int | None:
    """Return the pods of each job of a JobSet by the sum that numbers them, None where it is another sum.

    The variable in it is set in the same file, or it is how many pods run in parallel in each job.
    """
    found = _BY_JOB.match(counted)
    told = found["pods"] or found["first"] if found else None
    if told is None or told.isdecimal():
        return None if told is None else int(told)
    values = {int(one["value"]) for m in messages for one in _SET.finditer(m.text) if one["name"] == told}
    values = values or {int(one["pods"]) for m in messages if (one := _PARALLEL.match(m.text))}
    return _only(values)


def _by_accelerate(command: str) -> int | None:
    """Return the ranks of each host by the command of Hugging Face's launcher, which counts them all."""
    ranks, hosts = _ACCELERATE.search(command), _MACHINES.search(command)
    if not ranks or not hosts or not int(hosts["hosts"]) or int(ranks["ranks"]) % int(hosts["hosts"]):
        return None
    return int(ranks["ranks"]) // int(hosts["hosts"])


def _only(sizes: set[int]) -> int | None:
    return next(iter(sizes)) if len(sizes) == 1 else None


def with_not_started(facts: list[Fact]) -> list[Fact]:
    """Return the facts, the ranks of the one host or pod that was not started or did not come as whom others wait for.

    Not where a rank of it speaks, nobody waits, or something ended a pod of that name before.
    """
    if left := _not_joined(facts):
        return [*facts, left]
    told = {short_host(one.host): one for one in reversed(of(facts, NotStarted))}
    waits = any(isinstance(fact, StoreWait | Timeout | PeerLost) for fact in facts)
    if len(told) != 1 or not waits or any(fault.pod and not fault.follows for fault in of(facts, Failure)):
        return facts
    absent = next(iter(told.values()))
    ranks = ranks_of_host(absent.host, facts, {placed.pod for placed in of(facts, Placed)} - {absent.host})
    if not ranks or set(ranks) & ranks_seen(fact for fact in facts if not _only_places(fact)):
        return facts
    by = f"{absent.by}, where {absent.what},"
    return [*facts, Absentees(ranks=ranks, by=by, operation="", where=absent.where)]


def _only_places(fact: Fact) -> bool:
    """Whether a fact says on which host or in which pod a rank is to be, and of no process that it is there."""
    return isinstance(fact, RankIdentity) and fact.pid is None


def _not_joined(facts: list[Fact]) -> Absentees | None:
    """Return the ranks of the hosts that the first one lacks in the end, which counts hosts as they come to its store.

    Only where the commands on all others tell their ranks, and each of these shows an error behind its command: it had
    come before the first one gave up. Not where any of them could not reach the store.
    """
    waits, world = of(facts, StoreWait), world_of(facts)
    hosts = {size.ranks for size in of(facts, WorldSize) for wait in waits if wait.lacking and size.where == wait.where}
    lacking = next((wait for wait in waits if wait.is_host and wait.lacking), None)
    shares = {fact.ranks: fact.where for fact in of(facts, AgentRanks)}
    if not world or lacking is None or len(hosts) != 1 or any(wait.to for wait in waits):
        return None
    size, rest = divmod(world, hosts.pop())
    left = set(range(world)) - {rank for ranks in shares for rank in ranks}
    if size < _FEW or rest or len(left) != size * (lacking.lacking or 0) or {len(ranks) for ranks in shares} != {size}:
        return None
    ended = [fact.where for fact in facts if isinstance(fact, Failure | StoreWait | PeerLost | Timeout)]
    came = all(any(_is_behind(where, command) for where in ended) for command in shares.values())
    if not came or left & ranks_seen(facts):
        return None
    by = f"torchrun on the first host, to which {len(shares)} of {world // size} hosts came,"
    return Absentees(ranks=tuple(sorted(left)), by=by, operation="", where=lacking.where)


def _is_behind(line: Where, command: Where) -> bool:
    """Whether a line is of the host of a command, and came after it."""
    return (line.file, line.host) == (command.file, command.host) and line.line > command.line
