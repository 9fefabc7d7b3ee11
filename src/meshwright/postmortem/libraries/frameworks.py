"""Text of other runtimes than c10d: JAX's coordination service, XLA's rendezvous, Accelerate and more."""

import re
from collections.abc import Iterator, Sequence

from ...units import shortened
from ..nouns.facts import Absentees, Arrived, Exit, Fact, Failure, Fingerprint, StoreWait
from ..nouns.identities import WorldSize
from ..nouns.names import NO_LONGER_HEARD, NO_PROGRESS, collective_in, spelled
from ..text.lines import LogMessage
from ..text.steps import MANY_STEPS, is_step

_TELLS = re.compile(
    r"unhealthy|imed out|Failed to meet|task:\d|oordination|rendezvous"
    r"|crashed with exit code|problematic ranks|DeepEP timeout|died unexpectedly"
)
_TASK = re.compile(r"/job:\w+/(?:replica:\d+/)?task:(?P<task>\d{1,6})\b")
_TASK_SILENT = re.compile(r"/task:(?P<task>\d{1,6}) heartbeat timeout")
_TASK_RAISED = re.compile(
    r"Error reported from /job:\w+/(?:replica:\d+/)?task:(?P<task>\d{1,6})\b:? ?(?P<what>.{0,160})"
)
_TASK_AGAIN = re.compile(r"/task:(?P<task>\d{1,6}) unexpectedly tried to connect with a different incarnation")
_LEADER_GONE = re.compile(  # of the agent of a task
    r"\bfailed to connect to all addresses\b.*?\bipv[46]:(?P<at>[\w.:%\[\]-]+?): .*?Connection refused"
    r"|Failed to send RPC to coordination service\. Either the leader"
)
_BY_SERVICE = re.compile(  # at the end of a process that may be any but the one that failed
    r"Terminating process because the (?:JAX|coord)|oordination (?:service )?agent is (?:set to|in) ERROR\b"
)
_OF_AGENT = re.compile(r"Watch\w+Async failed|PollForError|oordination|Heartbeat|RegisterTask")
_TASKS_UNHEALTHY = re.compile(r"following tasks are unhealthy")
_BARRIER = re.compile(r"[Tt]imed out task names:")
_REACHED = re.compile(r"reached the barrier: (?P<came>\d+)/(?P<all>\d+)")
_RENDEZVOUS = re.compile(
    r"(?:waiting for|Termination timeout for) `(?P<what>[^`]*)`.*?"
    r"Expected (?P<all>\d+) threads to join the rendezvous, but (?:only (?P<came>\d+)|not all)"
)
_PARTICIPANT = re.compile(  # of XLA: one of the devices that have come
    r"may be stuck: participant (?:for device ordinal (?P<device>\d{1,6})|\w+\{.{0,200}?\brank=(?P<place>\d{1,6}))\b"
    r".*?RendezvousKey\{(?P<key>run_id=(?:RunId: )?\d+, global_devices=\[(?P<devices>[\d, ]*)\],"
    r" num_local_participants=(?P<all>\d{1,6})\b[^}]*)"
    r"|waiting for `(?:initialize|acquire) clique for rank (?P<rank>\d{1,6}); "
    r"(?P<clique>clique=devices=\[(?P<ids>[\d,]+)\][^`]*)`.*? Expected (?P<threads>\d{1,6}) threads",
    re.IGNORECASE,
)
_FREED = "Thread is unstuck"
_COMPOSER = re.compile(r"Rank (?P<rank>\d{1,6}) crashed with exit code (?P<code>-?\d+)")
_QUORUM = re.compile(  # of torchft's lighthouse
    r"\b(?:quorum not ready|No quorum), only have (?P<came>\d{1,6}) participants,"
    r" need (?:min_replicas |at least half of )?(?P<all>\d{1,6})"
    r"|\bValid quorum with (?P<there>\d{1,6}) participants, waiting for (?P<late>\d{1,6}) healthy"
)
_MET = re.compile(r"\bQuorum! |\b(?:bumping|reconfiguring for) quorum_id\b|\b(?:Fast|Valid) quorum found\b")
_UCC = re.compile(
    r"Aborting comms #(?P<seq>\d+) \(op=(?P<operation>\w+)\) due to the problematic ranks: \[(?P<ranks>[\d, ]+)\]"
)
# a GPU of DeepEP's waits for the signal of each other on its host: above 0 it has not come
_DEEPEP = re.compile(
    r"DeepEP timeout check failed: rank = (?P<rank>\d+), thread = (?P<other>\d+), value = (?P<left>-?\d+)"
)
_LATER_HOST = re.compile(r"^\s*rank\s*: (?P<rank>\d+) \(local_rank: (?!(?P=rank)\))")  # in torchrun's summary
_VLLM = re.compile(r"Worker proc (?P<worker>\S+) died unexpectedly")  # it counts workers of one engine
_MONITOR = re.compile(  # of one rank, by ft_launcher, which ends a rank that stands still: it may wait for another
    r"\[RankMonitorServer:(?P<rank>\d{1,6})\] (?:Did not get \w+ heartbeat\. Waited (?P<beat>\d+)"
    r"|Section '[^']{0,80}' has been open for (?P<open>\d+)|Was out of section for (?P<out>\d+))\S* seconds"
)
_XRT = re.compile(r"Failed to meet rendezvous '(?P<what>[^']*)'")
_CHECKED = re.compile(r"^\s*Operation: `(?:[\w.]+\.)?(?P<name>\w+)`")  # Hugging Face Accelerate's, before a collective
_BROUGHT = re.compile(r"^\s*- ?Process (?P<rank>\d{1,6}): ?(?P<shape>[\[{(].{0,300})$")
_NAMES = 32  # lines over which a list of tasks goes on


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield what runtimes other than c10d say in the messages of one file."""
    waits: list[tuple[int, StoreWait]] = []
    for index, message in enumerate(messages):
        text = message.text
        if not _TELLS.search(text):
            continue
        yield from _jax(messages, index)
        if met := _RENDEZVOUS.search(text):
            came = f"{met['came']} of {met['all']}" if met["came"] else f"not all of {met['all']}"
            what = f"for others at XLA's rendezvous '{met['what'][:80]}' ({came} came)"
            waits.append((index, StoreWait(rank=message.rank, where=message.where, what=what)))
        yield from _others(message)
    if waits and not any(_FREED in message.text for message in messages[waits[-1][0] :]):
        yield from unfinished(messages, waits)
    yield from unfinished(messages, _quorum(messages))
    yield from unfinished(messages, list(_without_leader(messages)))
    yield from _deepep(messages)
    yield from _accelerate(messages)
    yield from _monitored(messages)
    yield from _participants(messages)


def _quorum(messages: Sequence[LogMessage]) -> list[tuple[int, StoreWait]]:
    """Return the waits of torchft's replicas for others since their last quorum, each with the place of its message.

    Between two quorums the lighthouse says that none has come to the next: nobody waits there.
    """
    waits: list[tuple[int, StoreWait]] = []
    was_met = False
    for index, message in enumerate(messages):
        if "uorum" not in message.text:
            continue
        if _MET.search(message.text):
            waits, was_met = [], True
        elif short := _QUORUM.search(message.text):
            came = int(short["came"] or short["there"])
            needed = int(short["all"] or came + int(short["late"] or 0))
            what = f"for replicas at torchft's quorum ({came} of {needed} came)"
            if came or not was_met:
                waits.append((index, StoreWait(rank=message.rank, where=message.where, what=what)))
    return waits


def unfinished(messages: Sequence[LogMessage], found: Sequence[tuple[int, Fact]]) -> Iterator[Fact]:
    """Yield the waits of a file after which nobody trained on; a validation on one rank alone makes one that ends."""
    last = found[-1][0] if found else len(messages)
    if sum(is_step(message.text) for message in messages[last + 1 :]) < MANY_STEPS:
        yield from (fact for _, fact in found)


def _jax(messages: Sequence[LogMessage], index: int) -> Iterator[Fact]:
    """Yield the tasks that JAX's coordination service misses; a task is a process, which JAX numbers like ranks."""
    message = messages[index]
    text, where = message.text, message.where
    if silent := _TASK_SILENT.search(text):
        yield _silent(int(silent.group("task")), message)
    elif again := _TASK_AGAIN.search(text):
        yield _silent(int(again.group("task")), message, "its process had ended and was started anew")
    elif raised := _TASK_RAISED.search(text):
        what = f"JAX's task {raised['task']} reported an error: {raised['what']}".rstrip(": ")
        yield Failure(kind="exception", what=what, rank=int(raised["task"]), where=where)
    elif _TASKS_UNHEALTHY.search(text):
        for task, line in _listed(messages, index, "tasks are unhealthy"):
            yield _silent(task, line)
    elif _BARRIER.search(text):
        tasks = [task for task, _ in _listed(messages, index, "imed out task names:")]
        if tasks:
            yield Absentees(ranks=tuple(tasks), where=where, by="JAX's coordination service", operation="barrier")
    elif "Barrier timed out" in text:
        yield StoreWait(rank=message.rank, where=where, what="at a barrier of JAX's coordination service")
    if reached := _REACHED.search(text):
        yield WorldSize(ranks=int(reached.group("all")), where=where)


def _without_leader(messages: Sequence[LogMessage]) -> Iterator[tuple[int, Failure]]:
    """Yield that JAX's coordinator could not be spoken to, or had a process ended: who says so is not who failed."""
    for index, message in enumerate(messages):
        text = message.text
        if not any(word in text for word in ("onnect", "RPC", "Terminating", "agent is")):
            continue
        gone = _LEADER_GONE.search(text) if _OF_AGENT.search(text) else None
        if gone is not None:
            at = f"nobody listens at {gone['at']}, where" if gone["at"] else "no word from where"
            what = f"{at} JAX's coordinator (the process of task 0) is to be: it has ended, or did not begin"
            yield index, Failure(kind="killed", what=what, where=message.where, follows=True)
        elif _BY_SERVICE.search(text):
            what = "JAX's distributed service ended a process for an error that most likely began in another task"
            yield index, Failure(kind="killed", what=what, where=message.where, follows=True)


def _silent(task: int, message: LogMessage, happened: str = "it crashed, was killed or preempted") -> Failure:
    what = f"{NO_LONGER_HEARD} {task}: {happened}"
    return Failure(kind="killed", what=what, rank=task, where=message.where)


def _listed(messages: Sequence[LogMessage], index: int, after: str = "") -> Iterator[tuple[int, LogMessage]]:
    """Yield the tasks on a line behind `after`, and on the lines of names alone that follow it."""
    rest = messages[index].text.rsplit(after, 1)[-1] if after else messages[index].text
    yield from ((int(found["task"]), messages[index]) for found in _TASK.finditer(rest))
    for message in messages[index + 1 : index + _NAMES]:
        if not message.text.strip().startswith("/job:"):
            return
        yield from ((int(found["task"]), message) for found in _TASK.finditer(message.text))


def _participants(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the one device of a process that did not come to XLA's last rendezvous, which the others wait at.

    Each device that has come says so; a process that has them all numbers them as ranks.
    """
    met: dict[str, set[int]] = {}
    last: tuple[int, re.Match[str]] | None = None
    for index, message in enumerate(messages):
        if "may be stuck" in message.text and (found := _PARTICIPANT.search(message.text)):
            last = index, found
            key, devices = found["key"] or found["clique"], _numbers(found["devices"] or found["ids"])
            place = int(found["place"] or found["rank"] or 0)
            if found["device"]:
                met.setdefault(key, set()).add(int(found["device"]))
            elif place < len(devices):
                met.setdefault(key, set()).add(devices[place])
        elif _FREED in message.text:
            last = None
    if last is None:
        return
    index, found = last
    devices, came = _numbers(found["devices"] or found["ids"]), met.get(found["key"] or found["clique"], set())
    is_alone, left = len(devices) == int(found["all"] or found["threads"]), set(devices) - came
    where = messages[index].where
    if is_alone and len(left) == 1 < len(came):
        absent = Absentees(ranks=tuple(left), by="XLA's rendezvous", operation="", where=where)
        yield from unfinished(messages, [(index, absent)])
    elif found["key"] and not (is_alone and not left):
        what = f"for others at XLA's rendezvous ({len(came)} of {found['all']} say that they came)"
        yield from unfinished(messages, [(index, StoreWait(rank=messages[index].rank, where=where, what=what))])


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,6}", text)]


def _deepep(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield which of DeepEP's ranks wait, and for whom.

    They count inside a group on their host: of a job that has more ranks nobody is named, nor where more are said to
    be missing than wait, since then one who waits alone may be the one that went another way.
    """
    lines = {
        (int(found["rank"]), int(found["other"])): (int(found["left"]) > 0, message.where)
        for message in messages
        if (found := _DEEPEP.search(message.text))
    }
    if not lines:
        return
    told = sorted(lines.items(), key=lambda line: line[1][0])  # of each rank the last, of one that has not come
    waiting = {rank: where for (rank, _), (_, where) in told}
    late = {other for (_, other), (is_late, _) in lines.items() if is_late} - waiting.keys()
    size = 1 << max(max(pair) for pair in lines).bit_length()  # of a group: 2, 4 or 8
    largest = max((message.rank for message in messages if message.rank is not None), default=0)
    are_ranks = largest < size and not any(_LATER_HOST.search(message.text) for message in messages)
    ranks = tuple(sorted(late)) if are_ranks and len(late) <= len(waiting) else ()
    yield Absentees(ranks=ranks, by="DeepEP", operation="all_to_all", where=list(waiting.values())[-1])
    for rank, where in waiting.items():
        yield Arrived(rank=rank if are_ranks else None, where=where)


def _accelerate(messages: Sequence[LogMessage]) -> Iterator[Fingerprint]:
    """Yield what each rank brought to the last call whose shapes Accelerate found to differ; every rank prints all."""
    operation, brought = "", dict[int, Fingerprint]()
    for message in messages:
        if "Operation: `" in message.text and (checked := _CHECKED.match(message.text)):
            operation, brought = collective_in(checked["name"]), {}
        elif "- " in message.text and "Process " in message.text and (one := _BROUGHT.match(message.text)):
            rank, shape = int(one["rank"]), one["shape"].strip()
            brought[rank] = Fingerprint(rank=rank, operation=operation, shape=shape, where=message.where)
    if operation:
        yield from brought.values()


def _monitored(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield the ranks that their monitors ended, of several in words that single none of them out."""
    lines = ((message, _MONITOR.search(message.text)) for message in messages if "RankMonitor" in message.text)
    told = [(int(still["rank"]), still, message) for message, still in lines if still]
    ranks = sorted({rank for rank, _, _ in told})
    whose = f"monitors of {len(ranks)} ranks ({shortened(ranks)})" if len(ranks) > 1 else "monitor of rank {}"
    for rank, still, message in told:
        seconds = still["beat"] or still["open"] or still["out"]
        what = f"the {whose.format(rank)} saw {NO_PROGRESS} for {seconds} s, and ended {'them' if ranks[1:] else 'it'}"
        yield Failure(kind="killed", what=what, rank=rank, where=message.where.by(rank), follows=True)


def _others(message: LogMessage) -> Iterator[Fact]:
    text, where, rank = message.text, message.where, message.rank
    if crashed := _COMPOSER.search(text):
        yield Exit(rank=int(crashed.group("rank")), code=int(crashed.group("code")), first=True, where=where)
    if dead := _VLLM.search(text):
        what = f"vLLM's {dead['worker']} ended unexpectedly: killed, out of memory or crashed"
        yield Failure(kind="killed", what=what, host=message.host, where=where)
    if late := _UCC.search(text):
        yield Absentees(
            ranks=tuple(int(number) for number in re.findall(r"\d+", late["ranks"])),
            by="UCC",
            operation=spelled(late["operation"]),
            seq=int(late["seq"]),
            where=where,
        )
    if met := _XRT.search(text):
        yield StoreWait(rank=rank, where=where, what=f"for others at PyTorch/XLA's rendezvous '{met.group('what')}'")
