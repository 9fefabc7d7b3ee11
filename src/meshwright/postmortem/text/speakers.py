"""Speakers of the lines of one log: which rank's a message is that does not say so itself.

By the process or the task in front of it, by another line that shows both, by the name of the file.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from .coordinates import placed
from .host_commands import first_rank, ranks_of_agent
from .labels import BEFORE
from .lines import FileHint, LogMessage, anonymous_messages
from .sections import in_sections
from .servers import labelled
from .steps import is_of_error

RAY_RANK = re.compile(
    r"\bip=(?P<ip>[\w.:-]+), pid=(?P<pid>\d+)\) (?:world_)?rank=(?P<rank>\d{1,6})\b"
)  # Ray Train's list
RANK_OF_JOB = re.compile(  # of the job: not on its host, nor in a group
    r"(?<![\w-])(?<!local )(?<!node )(?<!group )(?<!parallel )(?<![tpdec]p )"
    r"(?:global[_ -]?|world[_ -]?)?rank[\"']?[ =:#]{1,3}(?P<rank>\d{1,6})\b(?![.\d]*\w)",
    re.IGNORECASE,
)
RANK_ON_HOST = re.compile(r"(?<![\w-])local[_ -]?rank[\"']?[ =:#]{1,3}(?P<rank>\d{1,4})\b(?![.\d]*\w)", re.IGNORECASE)
_LOCAL_LABEL = re.compile(  # what a program puts before its lines, as its own number on its host
    rf"(?:{BEFORE}){{0,4}}[\[(]?local[_ -]?rank[\"']?[ =:#]{{0,3}}(?P<number>\d{{1,3}})\b", re.IGNORECASE
)
_INTRODUCED = re.compile(  # vLLM, Ray Train, Lightning, torchvision, Hugging Face: a process says which rank it is
    r"\brank (\d{1,6}) in world size \d+ is assigned|\[rank=(\d{1,6}), world_size=\d+\]"
    r"|\bGLOBAL_RANK: (\d{1,6}), MEMBER"
    r"|distributed init \(rank (\d{1,6})\b|\bProcess rank: (\d{1,6})\b|\bworld_size=\d+ rank=(\d{1,6}) local_rank=\d"
    r"|\bprocess_(?:index|id)[=:] ?(\d{1,6})[, ]{1,3}(?:process_count|num_processes)[=:]"  # of JAX
)
_OF_ALL = re.compile(r"\[[Rr]ank[ =:]?(?P<rank>\d{1,6})/(?P<ranks>\d{1,6})\]")  # what programs put before their lines
_CALL_OF = re.compile(r"\[Rank (?P<place>\d{1,6})\] Watchdog .*?(?P<call>SeqNum=\d+, OpType=\w+)")
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_AGENT = re.compile(r"torchrun|torch[./]distributed[./](?:elastic|run)\b")
_PLACE = re.compile(r"\[Rank (\d{1,6})\]")
_PLACE_OF_NEURON = re.compile(r"\bglobal_device_id=(\d{1,6})\b")
_BY_LAUNCHER = re.compile(r"\[rank(?P<local>\d{1,6})\]:(?: ?\[rank(?P<rank>\d{1,6})\])?")
_LONGEST_HEAD = 160  # characters in front of a line
_NAMED_RANKS = re.compile(r"(?:torchrun|torch\.distributed\.run)\b(?=.* (?:--tee|-t)[ =]\S).*?--role[ =]rank\b")
_ON_SEVERAL = re.compile(r"--nnodes[ =](?!1\b)[\d$]")


def messages(text: str, *, file: str, order: int, hint: FileHint, first: int = 1) -> list[LogMessage]:
    """Return the messages of a log in the order of the file, each with its rank where prefix, process or file tell."""
    found = list(anonymous_messages(text, file=file, order=order, hint=hint, first=first))
    found, is_local = _without_roles(placed(found))
    found, is_local = _with_tracebacks(in_sections(labelled(found))), is_local or hint.is_local
    prefixed = {message.rank for message in found if message.rank is not None}
    of_file = hint.rank
    is_others = hint.is_guess and (
        bool(prefixed - {hint.rank}) or any(place != str(hint.rank) for place in _places(found)) or _has_agent(found)
    )
    if is_others or (hint.rank is not None and _speaks_for_several(found)):
        of_file = None
    elif (hint.rank is not None or hint.is_local) and prefixed:  # the folders of torchrun count on each host from 0
        of_file = prefixed.pop() if len(prefixed) == 1 else None
    of_process = _introduced(found) | _of_all(found) | _ranks_of_processes(found) | _ranks_of_ray(found)
    found = _started_by_agents(found)
    labels, of_pod = _Labels(found, is_local=is_local), _ranks_of_pods(found)
    told = [_attributed(message, of_pod.get(message.pod, of_file), of_process, labels) for message in found]
    return _counted_on_host(told)


def _counted_on_host(found: list[LogMessage]) -> list[LogMessage]:
    """Return the messages, those behind a number on their host with their ranks, where the log has its command."""
    labels = [
        _LOCAL_LABEL.match(one.text) if one.rank is None and "ocal" in one.text[:_LONGEST_HEAD] else None
        for one in found
    ]
    first = first_rank(found) if any(labels) else None
    if first is None:
        return found
    ranks = [None if label is None else first + int(label["number"]) for label in labels]
    return [
        one if rank is None else replace(one, rank=rank, where=one.where.by(rank))
        for one, rank in zip(found, ranks, strict=True)
    ]


def _started_by_agents(found: list[LogMessage]) -> list[LogMessage]:
    """Return the messages, those behind a number on their host with the rank that torchrun's agent gave it.

    The agent writes into the log of its host, and lists its ranks each time that it starts them. Not where one log has
    several lists without a restart between: these are of several hosts.
    """
    lists: dict[tuple[str, int | None, int | None], set[tuple[int, ...]]] = {}
    for one in found:
        if ranks := ranks_of_agent(one.text):
            lists.setdefault(_place(one), set()).add(ranks)
    own = {place: next(iter(told)) for place, told in lists.items() if len(told) == 1}
    whole: list[LogMessage] = []
    for one in found:
        ranks = own.get(_place(one), ()) if one.local_rank is not None and one.rank is None else ()
        rank = ranks[one.local_rank] if one.local_rank is not None and one.local_rank < len(ranks) else None
        whole.append(one if rank is None else replace(one, rank=rank, where=one.where.by(rank)))
    return whole


def _place(message: LogMessage) -> tuple[str, int | None, int | None]:
    """Return the launcher that a line is of: its host and task, and the attempt."""
    return message.host, message.task, message.where.attempt


def _without_roles(found: list[LogMessage]) -> tuple[list[LogMessage], bool]:
    """Return the messages, those behind torchrun's prefix of a role called `rank` with that number as their host's.

    Such a prefix shows itself where torch's own, which has the rank, follows it and differs; or by the command of a job
    of several hosts: whether the numbers are then known to be no ranks, for want of torch's own, is returned too.
    """
    prefixes = [_prefix_of_role(one) for one in found]
    own = {(prefix["local"], prefix["rank"]) for prefix in prefixes if prefix and prefix["rank"]}
    commands = [one.text for one in found if "--role" in one.text and _NAMED_RANKS.search(one.text)]
    several = any(_ON_SEVERAL.search(command) for command in commands)
    if not several and all(local == rank for local, rank in own):
        return found, False
    return [_behind_role(one, prefix) for one, prefix in zip(found, prefixes, strict=True)], several and not own


def _prefix_of_role(message: LogMessage) -> re.Match[str] | None:
    """Return the prefixes of a message whose rank they tell: of a role, and of torch's own behind it."""
    found = _BY_LAUNCHER.search(message.where.text[:_LONGEST_HEAD]) if message.rank is not None else None
    return found if found and message.rank == int(found["rank"] or found["local"]) else None


def _behind_role(message: LogMessage, prefix: re.Match[str] | None) -> LogMessage:
    if prefix is None:
        return message
    rank = int(prefix["rank"]) if prefix["rank"] else None
    return replace(message, rank=rank, local_rank=int(prefix["local"]), where=replace(message.where, rank=rank))


def _with_tracebacks(found: list[LogMessage]) -> list[LogMessage]:
    """Return the messages, the lines of a traceback that a logger began behind its label as those of that rank.

    Python's logger writes a traceback right below the line of an error that it logs.
    """
    whole: list[LogMessage] = []
    above: LogMessage | None = None  # the line above, of one that may go on
    for one in found:
        if one.rank is not None:
            above = one if one.text.endswith(_TRACEBACK) or is_of_error(one.where.text) else None
        elif above is not None and (one.pid, one.host) == (above.pid, above.host) and _goes_on(above, one.text):
            above = one = replace(one, rank=above.rank, where=one.where.by(above.rank))
        else:
            above = None
        whole.append(one)
    return whole


def _goes_on(line: LogMessage, text: str) -> bool:
    """Whether a line of a traceback may follow another: frames, what it ends in, and the next of a chain."""
    above = line.text
    if text == _TRACEBACK and is_of_error(line.where.text):
        return True
    if above.endswith(_TRACEBACK) or text[:1].isspace():
        return text[:1].isspace() and (above.endswith(_TRACEBACK) or above[:1].isspace())
    return above[:1].isspace() or text.startswith(_CHAINED) or (above.startswith(_CHAINED) and text == _TRACEBACK)


class _Labels:
    """Meaning of the numbers of tasks, and of ranks on a host, in front of lines: ranks of the job, or not.

    They are the ranks themselves unless some line shows both and they differ: a task may be the agent of a host, and
    each host counts its ranks from 0. Then a number is the one rank that it was seen with, if any; else it is counted
    from the first rank of its host or task, as others there are.
    """

    def __init__(self, found: Sequence[LogMessage], *, is_local: bool) -> None:
        spoken = [message for message in found if message.rank is not None]
        self._tasks = self._seen((message.task, message.rank) for message in spoken)
        both = [(message, message.rank) for message in spoken] + list(_saying_both(found))
        self._locals = self._seen((_local(message), rank) for message, rank in both)
        self._firsts = _first_ranks(both)
        self._is_task = all(message.task in {None, message.rank} for message in spoken)
        self._is_local = not is_local and all(message.local_rank in {None, rank} for message, rank in both)

    @staticmethod
    def _seen(pairs: Iterable[tuple[object, int | None]]) -> dict[object, set[int | None]]:
        seen: dict[object, set[int | None]] = {}
        for label, rank in pairs:
            seen.setdefault(label, set()).add(rank)
        return seen

    def rank_of(self, message: LogMessage) -> int | None:
        """Return the rank that the labels of a message without one lead to."""
        for label, seen, number, is_rank in (
            (message.task, self._tasks, message.task, self._is_task),
            (_local(message), self._locals, message.local_rank, self._is_local),
        ):
            if number is not None and (is_rank or len(seen.get(label, ())) == 1):
                return number if is_rank else next(iter(seen[label]))
        first = self._firsts.get((message.host, message.task))
        return None if first is None or message.local_rank is None else first + message.local_rank


def _first_ranks(both: Sequence[tuple[LogMessage, int | None]]) -> dict[tuple[str, int | None], int]:
    """Return the first rank of each host or task of which two ranks or more show it by their numbers there."""
    told: dict[tuple[str, int | None], set[tuple[int, int]]] = {}
    for message, rank in both:
        if message.local_rank is not None and rank is not None:
            told.setdefault((message.host, message.task), set()).add((message.local_rank, rank))
    firsts = {place: {rank - local for local, rank in pairs} for place, pairs in told.items() if len(pairs) > 1}
    return {place: min(own) for place, own in firsts.items() if len(own) == 1}


def _saying_both(found: Sequence[LogMessage]) -> Iterator[tuple[LogMessage, int]]:
    """Yield the messages behind a number on a host that say of that number which rank it is, and the rank."""
    for message in found:
        if message.rank is not None or message.local_rank is None or "local" not in message.text.lower():
            continue
        numbers = {int(told["rank"]) for told in RANK_ON_HOST.finditer(message.text)}
        ranks = {int(told["rank"]) for told in RANK_OF_JOB.finditer(message.text)}
        if numbers == {message.local_rank} and len(ranks) == 1:
            yield message, ranks.pop()


def _local(message: LogMessage) -> tuple[str, int | None, int | None]:
    return message.host, message.task, message.local_rank


def _speaks_for_several(found: Sequence[LogMessage]) -> bool:
    """Whether several places of a group tell of one call in a log without prefixes: it is no rank's own."""
    calls: dict[str, set[str]] = {}
    for message in found:
        if message.rank is None and "Watchdog" in message.text and (call := _CALL_OF.search(message.text)):
            calls.setdefault(call["call"], set()).add(call["place"])
    return any(len(places) > 1 for places in calls.values())


def _has_agent(found: Sequence[LogMessage]) -> bool:
    """Whether the launcher of a host's ranks writes into a log, which is then the host's."""
    return any("torch" in message.text and _AGENT.search(message.text) for message in found)


def _places(found: Sequence[LogMessage]) -> set[str]:
    """Return the places that lines of c10d's and of Neuron's runtime name, where no prefix says who speaks."""
    own = [message.text for message in found if message.rank is None]
    of_c10d = (_PLACE.search(text[:160]) for text in own if ".cpp:" in text[:80])
    of_neuron = (_PLACE_OF_NEURON.search(text) for text in own if "nrt_load_coll" in text)
    return {place[1] for place in (*of_c10d, *of_neuron) if place}


def _ranks_of_processes(found: Sequence[LogMessage]) -> dict[tuple[str, int], int]:
    """Return the rank of each process that speaks for one; a launcher passes on the lines of several."""
    ranks: dict[tuple[str, int], set[int]] = {}
    for message in found:
        if message.pid is not None and message.rank is not None:
            ranks.setdefault((message.host, message.pid), set()).add(message.rank)
    return {process: min(spoken) for process, spoken in ranks.items() if len(spoken) == 1}


def _introduced(found: Sequence[LogMessage]) -> dict[tuple[str, int], int]:
    """Return the ranks that processes give themselves; not where two give themselves one: each engine then counts."""
    ranks: dict[tuple[str, int], set[int]] = {}
    for message in found:
        if message.pid is not None and (told := _INTRODUCED.search(message.text)):
            ranks.setdefault((message.host, message.pid), set()).add(int(next(filter(None, told.groups()))))
    own = {process: min(told) for process, told in ranks.items() if len(told) == 1}
    numbers = list(own.values())
    return {process: rank for process, rank in own.items() if numbers.count(rank) == 1}


def _of_all(found: Sequence[LogMessage]) -> dict[tuple[str, int], int]:
    """Return the ranks of processes that call themselves one of a number of ranks (`[rank 3/8]`), counted from 0.

    Not where one process has two numbers, two have one, or they are of several numbers: these are ranks in groups.
    """
    told: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for message in found:
        if message.pid is not None and (one := _OF_ALL.match(message.text)):
            told.setdefault((message.host, message.pid), set()).add((int(one["rank"]), int(one["ranks"])))
    each = [numbers for own in told.values() for numbers in own]
    ranks, sizes = [rank for rank, _ in each], {size for _, size in each}
    is_plain = len(sizes) == 1 and len(set(ranks)) == len(ranks) == len(told)
    if not is_plain or min(ranks) != 0 or max(ranks) >= min(sizes):
        return {}
    return {process: min(own)[0] for process, own in told.items()}


def _ranks_of_pods(found: Sequence[LogMessage]) -> dict[str, int]:
    """Return the rank of each pod of a log, where each has one and these are all from 0 on.

    Pods of several ranks would hold the first ones together.
    """
    ranks: dict[str, set[int]] = {}
    for message in found:
        if message.pod:
            spoken = ranks.setdefault(message.pod, set())
            if message.rank is not None:
                spoken.add(message.rank)
            elif "rank" in message.text.lower() and (told := _INTRODUCED.search(message.text)):
                spoken.add(int(next(filter(None, told.groups()))))
    alone = [min(spoken) for spoken in ranks.values() if len(spoken) == 1]
    if len(ranks) < 2 or len(alone) < len(ranks) or sorted(alone) != list(range(len(ranks))):
        return {}
    return {pod: min(spoken) for pod, spoken in ranks.items()}


def _ranks_of_ray(found: Sequence[LogMessage]) -> dict[tuple[str, int], int]:
    """Return the ranks that Ray Train's list gives to processes; Ray leaves the address of its own host out."""
    listed = [told for message in found if "rank=" in message.text and (told := RAY_RANK.search(message.text))]
    pids = [told["pid"] for told in listed]
    ranks = {(told["ip"], int(told["pid"])): int(told["rank"]) for told in listed}
    shown = {message.host for message in found if message.pid is not None and message.host}
    heads = {told["ip"] for told in listed} - shown  # the one host of which no line bears the address
    own = [told for told in listed if pids.count(told["pid"]) == 1 or (shown and heads == {told["ip"]})]
    return ranks | {("", int(told["pid"])): int(told["rank"]) for told in own}


def _attributed(
    message: LogMessage, of_file: int | None, of_process: dict[tuple[str, int], int], labels: _Labels
) -> LogMessage:
    if message.rank is not None:
        return message
    rank = of_process.get((message.host, message.pid)) if message.pid is not None else None
    rank = of_file if rank is None else rank
    rank = labels.rank_of(message) if rank is None else rank
    return message if rank is None else replace(message, rank=rank, where=message.where.by(rank))
