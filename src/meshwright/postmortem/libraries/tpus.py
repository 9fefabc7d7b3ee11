"""Text of JAX and PyTorch/XLA on TPUs: whose process is where, faults of chips, and Megascale's digest of a hang.

The digest calls a chip bad whose program does not go on. One that stands at its very start, at a program counter of 0,
was given no program: its host has not come. The causes are those of Google's "Megascale Hangs Playbook".
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from ..nouns.facts import Absentees, Fact, Failure, StoreWait
from ..nouns.identities import AgentRanks, Environment
from ..nouns.names import collective_in
from ..nouns.where import Where
from ..surroundings.endings import is_of_others
from ..surroundings.placements import HOST
from ..text.lines import LogMessage

_PROCESS = re.compile(
    r"\bJAX process(?:[_ ](?:index|id))?[ =:#]{1,3}(?P<rank>\d{1,6})\b(?P<rest>.{0,80})", re.IGNORECASE
)
_ON_HOST = re.compile(rf"\bhost(?:name)?[ =:]{{1,3}}(?P<host>{HOST})\b")
_OF_LABEL = re.compile(  # of a viewer of pods, before a line of JAX or MaxText
    rf"^(?P<host>{HOST})[: ]\s*.*\bprocess_id\)?[ =:]{{1,3}}(?P<rank>\d{{1,6}})"
    r"(?:,? (?:of|num_processes[ =:])) ?(?P<ranks>\d{1,6})\b"
)
_LIST = re.compile(r"\bprocess(?:[_ ](?:index|id))?(?:es)?\b.{0,12}\bhost(?:s|names?)?[ :=]{1,3}", re.IGNORECASE)
_ENTRY = re.compile(rf"(?<![\w.-])(?P<rank>\d{{1,6}}) ?(?:->|=>|[:=])? ?(?P<host>{HOST})(?![\w-])")
_OF_ALL = re.compile(r" ?(?:/|of) ?(?P<ranks>\d{1,6})\b")
_CAUSE = re.compile(r"^\W*Potential cause: (?P<cause>[A-Za-z][\w -]{2,60}?)\s*$")
_CULPRITS = re.compile(r"^\W*Potential culprit workers?: (?P<hosts>\S.{0,4000})$")
_STATE = re.compile(
    r"^\s*[\w.-]{1,40}:(?P<pc>0x[0-9a-fA-F]{1,16}|\d{1,16}) ?\((?P<program>.{0,200}?)\): (?P<hosts>\S.*)$"
)
_COUNTER = re.compile(r"^\s+(?P<hosts>[A-Za-z][\w.:/-]*): (?P<pc>0x[0-9a-fA-F]{1,16}|\d{1,16})$")
_OF_STATES = re.compile(r"^\s*(?:TPU (?:stat\w+|program fingerprints)|Module|Fingerprint|Launch ID|Executable)\b")
_COLLECTIVE = re.compile(r"^(?P<name>[a-z]+(?:-[a-z]+)*?)(?:-(?:start|done))?(?:\.\d+)?$")
_TIMED_OUT = re.compile(r"Megascale (?:hang detected|detects a hang)")
_CHIP = re.compile(r"bad (?:tpu|sc|tensor|sparse)", re.IGNORECASE)
_OTHER_PROGRAM = re.compile(r"different module|fingerprint|inconsistent", re.IGNORECASE)
_BY = "Megascale"
_FATAL = re.compile(  # of its driver, on a chip of the process that prints it
    r"FATAL ERROR !!!! for \[?(?P<chip>/dev/\w[\w/]*)|Received Error Interrupt! fatal: true"
    r"|\berror has occurred, all pending programs will fail"
)
# PyTorch/XLA's, by the number of a core among all of the job: that of its rank
_RAISED = re.compile(r"^Exception in device=TPU:(?P<rank>\d{1,6}): (?P<what>.{0,300})")
_EXHAUSTED = re.compile(r"^(?:RESOURCE_EXHAUSTED|Resource exhausted): ")
_FULL = re.compile(
    r"Attempting to \w+ (?P<wanted>[\d.]+\w?).{0,60}?There are (?P<free>[\d.]+\w?) free|[Oo]ut of memory"
)
_ABORTED = re.compile(r"^(?:Aborted|ABORTED|Unavailable|UNAVAILABLE|Cancelled|CANCELLED|Deadline Exceeded): ")
_BELOW = 12  # lines of an error


class _Digest(msgspec.Struct, kw_only=True):
    """One digest while it is read: its cause, whom it suspects, and where the program of each host stands."""

    cause: str
    head: LogMessage
    named: LogMessage | None = None  # the line of the suspects
    culprits: list[str] = []
    counters: dict[str, int] = {}
    programs: dict[str, str] = {}


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the processes and hosts of one file, and what the digests of hangs say."""
    yield from _processes([message for message in messages if "process" in message.text])
    yield from _of_chips(messages)
    digests = list(_digests(messages))
    for digest in digests:
        yield from _of_digest(digest)
    waits = [message for message in messages if "egascale" in message.text and _TIMED_OUT.search(message.text)]
    if waits and not digests:
        yield StoreWait(rank=waits[-1].rank, what="for a graph of Megascale's to complete", where=waits[-1].where)


def _processes(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the ranks of hosts, and whose the log is that has its own process only."""
    hosts: dict[str, dict[int, LogMessage]] = defaultdict(dict)
    alone: dict[int, tuple[int, LogMessage]] = {}
    yield from _of_labels(messages)
    for message in messages:
        one = _PROCESS.search(message.text)
        if one is None:
            for host, rank in _listed(message.text).items():
                hosts[host].setdefault(rank, message)
            continue
        if on := _ON_HOST.search(one["rest"]):
            hosts[on["host"]].setdefault(int(one["rank"]), message)
        elif among := _OF_ALL.match(one["rest"]):
            alone[int(one["rank"])] = int(among["ranks"]), message
    for host, ranks in hosts.items():
        where = replace(next(iter(ranks.values())).where, host=host)
        yield AgentRanks(ranks=tuple(sorted(ranks)), where=where)
    for rank, (world, message) in alone.items():
        yield Environment(number=rank, world=world, has_local=True, where=message.where)


def _of_labels(messages: Sequence[LogMessage]) -> Iterator[AgentRanks]:
    """Yield the one process of each pod, where labels of several pods stand before the lines in which each says its."""
    told: dict[str, set[int]] = defaultdict(set)
    lines: dict[str, Where] = {}
    for message in messages:
        if "process_id" in message.text and (one := _OF_LABEL.match(message.where.text)):
            told[one["host"]].add(int(one["rank"]))
            lines[one["host"]] = message.where
    ranks = [rank for own in told.values() for rank in own]
    if len(told) > 1 and len(ranks) == len(set(ranks)) == len(told):
        for host, own in told.items():
            yield AgentRanks(ranks=tuple(own), where=replace(lines[host], host=host))


def _listed(text: str) -> dict[str, int]:
    """Return the process of each host by a line that lists them all from 0 on; {} for any other line."""
    head = _LIST.search(text) if "host" in text else None
    found = [(one["host"], int(one["rank"])) for one in _ENTRY.finditer(text, head.end())] if head else []
    is_whole = len(found) > 1 and [rank for _, rank in found] == list(range(len(found)))
    return dict(found) if is_whole and len(dict(found)) == len(found) else {}


def _of_chips(messages: Sequence[LogMessage]) -> Iterator[Failure]:
    """Yield the chips that failed, and the ranks that raised an error in PyTorch/XLA."""
    for index, message in enumerate(messages):
        text, where = message.text, message.where
        if (" error" in text or "rror Interrupt" in text or "FATAL" in text) and (fatal := _FATAL.search(text)):
            what = f"a TPU chip met a fatal error{f' ({chip})' if (chip := fatal['chip']) else ''}"
            yield Failure(kind="device", what=what, rank=message.rank, pid=message.pid, host=message.host, where=where)
        elif "device=TPU:" in text and (raised := _RAISED.match(text)):
            below = [one.text for one in messages[index : index + _BELOW] if one.host == message.host]
            yield _of_core(raised, "\n".join(below), where.by(int(raised["rank"])))


def _of_core(raised: re.Match[str], error: str, where: Where) -> Failure:
    """Return the error that a core's process raised; what another one's end leaves behind only follows."""
    rank, what = int(raised["rank"]), raised["what"].strip()
    if _EXHAUSTED.match(what) and (full := _FULL.search(error)):
        sizes = f": {full['wanted']} wanted, {full['free']} free" if full["wanted"] else ""
        return Failure(kind="device_memory", what=f"out of TPU memory{sizes}", rank=rank, where=where)
    follows = _ABORTED.match(what) is not None or is_of_others("RuntimeError", what)
    return Failure(kind="exception", what=what[:160], rank=rank, where=where, follows=follows)


def _digests(messages: Sequence[LogMessage]) -> Iterator[_Digest]:
    """Yield each digest of a file, whole: it ends where a line begins that says something else."""
    digest: _Digest | None = None
    for message in messages:
        text = message.text
        cause = _CAUSE.match(text) if "otential cause" in text else None
        if digest is not None and (cause or not _note(digest, message)):
            yield digest
            digest = None
        if cause:
            digest = _Digest(cause=cause["cause"], head=message, culprits=[], counters={}, programs={})
    if digest is not None:
        yield digest


def _note(digest: _Digest, message: LogMessage) -> bool:
    """Note what a line says of a digest's hosts; return whether it may be a line of the digest."""
    text = message.text
    if named := _CULPRITS.match(text):
        digest.culprits, digest.named = _hosts(named["hosts"]), message
        return True
    state = _STATE.match(text) or _COUNTER.match(text)
    if state is None:
        return text[:1].isspace() or _OF_STATES.match(text) is not None
    for host in _hosts(state["hosts"]):
        counter = int(state["pc"], 16 if state["pc"].startswith("0x") else 10)
        digest.counters[host] = max(counter, digest.counters.get(host, 0))
        digest.programs.setdefault(host, state.groupdict().get("program") or "")
    return True


def _hosts(text: str) -> list[str]:
    """Return the hosts of a list of workers: each its name, or its job and task and then its name."""
    return [worker.strip().rsplit(":", 1)[-1] for worker in text.split(",") if worker.strip()]


def _of_digest(digest: _Digest) -> Iterator[Fact]:
    """Yield what a digest says: the cause that it names, and of a chip whether it was given a program at all."""
    cause, where, culprits = digest.cause.replace("_", " "), digest.head.where, tuple(digest.culprits)
    others = tuple(host for host, counter in digest.counters.items() if counter and host not in culprits)
    idle = [host for host in culprits if digest.counters.get(host) == 0]
    said = f"{_BY}: {cause.lower()}"
    digest_of = f"{_BY}'s digest"
    if _OTHER_PROGRAM.search(cause):
        yield Absentees(ranks=(), kind="desync", by=said, operation="", where=where)
    elif re.search(r"network", cause, re.IGNORECASE):
        host = culprits[0] if len(culprits) == 1 else ""
        yield Failure(kind="network", what=said, host=host, where=where)
    elif re.search(r"not queued", cause, re.IGNORECASE) or (idle and len(idle) == len(culprits)):
        operation = _operation(digest, others)
        yield Absentees(ranks=(), hosts=culprits, came=others, by=digest_of, operation=operation, where=where)
    elif _CHIP.search(cause) or re.search(r"input stall|unrecoverable", cause, re.IGNORECASE):
        kind = "device" if _CHIP.search(cause) else "data" if "input" in cause.lower() else "exception"
        where = digest.named.where if digest.named else where
        for host in culprits or ("",):
            yield Failure(kind=kind, what=f"{said}{f' on {host}' if host else ''}", host=host, where=where)
    else:
        yield StoreWait(rank=None, what="for a graph of Megascale's to complete", where=where)


def _operation(digest: _Digest, hosts: Sequence[str]) -> str:
    """Return the collective in whose instruction hosts stand, "" where they stand in several or in none."""
    names = {found["name"] for host in hosts if (found := _COLLECTIVE.match(digest.programs.get(host, "")))}
    return collective_in(names.pop().replace("-", "_")) if len(names) == 1 else ""
