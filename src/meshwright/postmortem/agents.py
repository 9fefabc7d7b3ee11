"""Torchrun's agents: the ranks that each started on its host, and the host that was taken from the job."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from .causes import CLOCKS_S
from .facts import AgentEnded, AgentRanks, Fact, Failure, NodeGone, PeerLost, Placed, RankIdentity, Timeout, Where, of
from .lines import LogMessage
from .verdict import shortened
from .world import short_host, world_of

_RANKS = re.compile(r"\bglobal_ranks=\[(?P<ranks>\d[\d, ]*)\]")
_TOLD = re.compile(r"Received (?:Signals\.SIGTERM|15) death signal|SignalException: Process \d+ got signal: 15")
_PLACED = re.compile(r"Successfully assigned (?:[\w.-]+/)?(?P<pod>[\w.-]+) to (?P<node>[\w.-]+)")
_NODE_GONE = re.compile(
    r"\b(?P<what>Spot\w*Interrupt\w*|PreemptScheduled|NodePreempt\w*|TerminationNotice|TerminatingEvictedNode"
    r"|DisruptionTerminating|NodeNotReady|NodeShutdown|TerminateScheduled)\b"
    r"\s+(?:[Nn]ode|[Nn]odeclaim)/(?P<node>[\w.-]+)"
)
_MAY_TELL = ("global_ranks", "ignal", "Successfully assigned", "ode/", "odeclaim/")


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the ranks of the agents of one log, that one was told to end, and where pods were and what befell nodes."""
    for message in messages:
        text = message.text
        if not any(word in text for word in _MAY_TELL):
            continue
        if found := _RANKS.search(text):
            ranks = tuple(int(number) for number in found["ranks"].split(","))
            yield AgentRanks(ranks=ranks, where=message.where)
        elif _TOLD.search(text):
            yield AgentEnded(where=message.where)
        elif placed := _PLACED.search(text):
            yield Placed(pod=placed["pod"], node=placed["node"], where=message.where)
        elif gone := _NODE_GONE.search(text):
            yield NodeGone(node=gone["node"], what=gone["what"], where=message.where)


def with_taken_host(facts: list[Fact]) -> list[Fact]:
    """Return the facts, and that the ranks of one agent were killed whose host was taken from the job before all else.

    Either events say that the node of its one pod went, and no other of the job's; or it was told to end, before any
    rank of the others complained, while the logs of others show that they were not, and the complaints name its host.
    """
    taken = _by_events(facts) or _by_node(facts) or _by_signal(facts)
    if taken is None:
        return facts
    ranks, what, lines = taken
    complaints = [fact for fact in facts if isinstance(fact, PeerLost | Timeout)]
    if {fact.rank for fact in complaints} & set(ranks):
        return facts
    rest = [replace(f, follows=True) if isinstance(f, Failure) and f.is_general else f for f in facts]
    return [*rest, *(Failure(kind="killed", what=what, rank=rank, where=lines[0]) for rank in ranks)]


def _by_events(facts: list[Fact]) -> tuple[tuple[int, ...], str, list[Where]] | None:
    """Return the ranks of the one pod of the job whose node went, by events; not where ranks had timed out before.

    Nodes go after a job, too: the connections that break show that this one went while others were at work.
    """
    lost = of(facts, PeerLost)
    if not lost or of(facts, Timeout):
        return None
    nodes = {gone.node: gone for gone in of(facts, NodeGone)}
    pods: dict[str, NodeGone | Failure] = {
        placed.pod: nodes[placed.node] for placed in of(facts, Placed) if placed.node in nodes
    }
    pods |= {f.pod: f for f in of(facts, Failure) if f.pod and f.is_general and f.kind == "killed"}
    if len(pods) != 1:
        return None
    pod, gone = next(iter(pods.items()))
    siblings = {placed.pod for placed in of(facts, Placed)} - {pod}
    ranks = _ranks_of(pod, siblings, facts)
    if not ranks:
        return None
    what = f"pod {pod}, ranks {shortened(ranks)}, was taken from the job ({gone.what})"
    return ranks, what, [gone.where]


def _by_node(facts: list[Fact]) -> tuple[tuple[int, ...], str, list[Where]] | None:
    """Return the ranks of the one node that a launcher saw fail, where NCCL says the host of every rank."""
    failed = [f for f in of(facts, Failure) if f.is_general and f.kind == "killed" and f.host and not f.follows]
    hosts = {identity.rank: short_host(identity.host) for identity in of(facts, RankIdentity) if identity.host}
    names = {short_host(fault.host) for fault in failed}
    if len(names) != 1 or of(facts, Timeout) or set(hosts) != set(range(world_of(facts) or 0)):
        return None
    ranks = tuple(sorted(rank for rank, host in hosts.items() if host in names))
    if not ranks or len(ranks) == len(hosts):
        return None
    return ranks, f"{failed[0].what}, with ranks {shortened(ranks)}", [failed[0].where]


def _ranks_of(pod: str, siblings: set[str], facts: list[Fact]) -> tuple[int, ...]:
    """Return the ranks of a pod by its own log, else the ones that the logs of all its siblings leave."""
    own = {fact.ranks for fact in of(facts, AgentRanks) if _is_log_of(fact.where.file, pod)}
    if len(own) == 1:
        return next(iter(own))
    listed = {other: f.ranks for f in of(facts, AgentRanks) for other in siblings if _is_log_of(f.where.file, other)}
    world = world_of(facts)
    if own or not siblings or listed.keys() != siblings or not world:
        return ()
    left = tuple(sorted(set(range(world)) - {rank for ranks in listed.values() for rank in ranks}))
    return left if {len(ranks) for ranks in listed.values()} == {len(left)} else ()


def _is_log_of(file: str, pod: str) -> bool:
    stem = PurePath(file).name.split(".")[0]
    return stem == pod or pod.endswith(f"-{stem}") or stem.endswith(f"-{pod}")


def _by_signal(facts: list[Fact]) -> tuple[tuple[int, ...], str, list[Where]] | None:
    """Return the ranks of the one agent that was told to end, before the ranks of others complained."""
    ended = of(facts, AgentEnded)
    files = {fact.where.file for fact in ended}
    if len(files) != 1:
        return None
    file = next(iter(files))
    listed = {fact.ranks for fact in of(facts, AgentRanks) if fact.where.file == file}
    first = min(ended, key=lambda fact: fact.where.line).where
    others = [fact for fact in facts if isinstance(fact, PeerLost | Timeout) and fact.where.file != file]
    own = any(isinstance(fact, Timeout | PeerLost) and fact.where.file == file for fact in facts)
    if len(listed) != 1 or own or _by_order(facts, file) or not _names(others, PurePath(file).name.split(".")[0]):
        return None
    later_s = [fact.where.time_s for fact in others if fact.where.time_s is not None]
    if first.time_s is None or not later_s or min(later_s) - first.time_s < CLOCKS_S:
        return None
    ranks = next(iter(listed))
    what = f"torchrun's agent of ranks {shortened(ranks)} alone was told to end (SIGTERM): its host was taken away"
    return ranks, what, [first]


def _by_order(facts: list[Fact], file: str) -> bool:
    """Whether a batch system says that it ended the whole job: a limit, a person, a preemption."""
    orders = [fault for fault in of(facts, Failure) if fault.is_general and fault.kind == "killed"]
    return any(fault.where.file != file and not fault.pod and not fault.host for fault in orders)


def _names(complaints: Sequence[Fact], name: str) -> bool:
    """Whether a complaint names the host or pod of a log, which is called after it."""
    named = re.compile(rf"(?<![\w])(?:[\w-]+-)?{re.escape(name)}(?![\w-])")
    return any(isinstance(fact, PeerLost) and named.search(fact.where.text) for fact in complaints)
