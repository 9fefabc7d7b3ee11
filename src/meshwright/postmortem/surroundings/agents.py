"""Torchrun's agents: the ranks that each started on its host, and the host that was taken from the job."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from ...units import ranks_in_words, shortened
from ..nouns.facts import Exit, Fact, Failure, PeerLost, StoreWait, Timeout, of
from ..nouns.identities import AgentEnded, AgentRanks, NodeGone, Placed, Torchrun
from ..nouns.names import NO_LONGER_HEARD
from ..nouns.where import Where
from ..nouns.world import ranks_seen, short_host, world_of
from ..ranks.exits import CLOCKS_S
from ..ranks.hosts import all_told, host_of_file, places_of, ranks_of_host
from ..ranks.links import lost_address
from ..text.host_commands import ranks_of_agent
from ..text.lines import LogMessage
from .endings import TOLD_TO_END

Taken = tuple[tuple[int, ...], str, list[Where]]  # ranks, what befell them, the lines that say it
_OF_PODS = {"host_memory", "killed"}

_NODE_GONE = re.compile(
    r"\b(?P<what>Spot\w*Interrupt\w*|PreemptScheduled|NodePreempt\w*|TerminationNotice|TerminatingEvictedNode"
    r"|DisruptionTerminating|NodeNotReady|NodeShutdown|TerminateScheduled)\b"
    r"\s+(?:[Nn]ode|[Nn]odeclaim)/(?P<node>[\w.-]+)"
)
_TASK = re.compile(r"\s*(\d{1,6}): ")  # a label of srun's
_NOTICED_S = 1800.0  # in which a scheduler sees that a node no longer answers (SlurmdTimeout is 300 s, or more)
_OF_SCHEDULER = re.compile(r"node fail|^SLURM: node |^node \S+ failed$")  # `system`, `batch`
_OF_CLOUD = "preemption"  # `batch`
_MAY_TELL = ("global_ranks", "ignal", "ode/", "odeclaim/")


def read(messages: Sequence[LogMessage]) -> Iterator[Fact]:
    """Yield the ranks of the agents of one log, that one was told to end, and what befell nodes."""
    for message in messages:
        text = message.text
        if not any(word in text for word in _MAY_TELL):
            continue
        if ranks := ranks_of_agent(text):
            yield AgentRanks(ranks=ranks, where=message.where)
        elif TOLD_TO_END.search(text):
            yield AgentEnded(where=message.where)
        elif gone := _NODE_GONE.search(text):
            yield NodeGone(node=gone["node"], what=gone["what"], where=message.where)


def with_taken_host(facts: list[Fact]) -> list[Fact]:
    """Return the facts, and that the ranks of one agent were killed whose host was taken from the job before all else.

    Either events say that the node of its one pod went, and no other of the job's; or it was told to end, before any
    rank of the others complained, while the logs of others show that they were not, and the complaints name its host.
    """
    facts = [_as_sequel(f, facts) if isinstance(f, Failure) and _OF_CLOUD in f.what else f for f in facts]
    taken = _by_events(facts) or _by_node(facts) or _by_coordinator(facts) or _by_signal(facts)
    if taken is None:
        return _with_killed_pod(facts)
    ranks, what, lines = taken
    if _complain(ranks, facts):
        return facts
    is_soon = _was_noticed_soon(lines, facts)
    is_late = _was_noticed_late(ranks, facts)
    rest = [
        replace(f, follows=True)
        if isinstance(f, Failure) and (f.is_general or (is_soon and _is_of_lost_peer(f, ranks)))
        else f
        for f in facts
    ]
    return [
        *rest,
        *(Failure(kind="killed", what=what, rank=rank, where=lines[0], is_summary=is_late) for rank in ranks),
    ]


def _is_of_lost_peer(fault: Failure, ranks: Sequence[int]) -> bool:
    """Whether a rank outside of these lost a peer."""
    return lost_address(fault) is not None and fault.rank not in ranks


def _was_noticed_soon(lines: Sequence[Where], facts: list[Fact]) -> bool:
    """Whether a host's end was noticed soon after ranks lost their peers, as far as clocks tell."""
    notices = [f.where for f in of(facts, Failure) if f.is_general and f.kind == "killed"]
    noticed_s = [where.time_s for where in (*notices, *lines) if where.time_s is not None]
    lost_s = [lost.where.time_s for lost in of(facts, PeerLost) if lost.where.time_s is not None]
    return not noticed_s or not lost_s or max(noticed_s) - min(lost_s) <= _NOTICED_S


def _first_sign(name: str, facts: list[Fact]) -> Where | None:
    """Return the line on a lost connection that names a host that failed, where it came before all time-outs."""
    lost = [fact.where for fact in of(facts, PeerLost) if _names([fact], name)]
    waited = [fact.where for fact in of(facts, Timeout)]
    return next((line for line in lost if waited and all(line.before(other) for other in waited)), None)


def _was_noticed_late(ranks: Sequence[int], facts: list[Fact]) -> bool:
    """Whether a scheduler saw a node fail after others had timed out, and yet that came before.

    It sees it minutes later. Only where it saw it soon after the first call began that timed out, and ranks of all
    other hosts complain while none of this one does.
    """
    waits = [fact for fact in of(facts, Timeout) if fact.where.time_s is not None]
    begun_s = min((fact.where.time_s or 0.0) - (fact.waited_s or 0.0) for fact in waits) if waits else None
    seen = [f for f in of(facts, Failure) if f.is_general and _OF_SCHEDULER.search(f.what)]
    seen_s = max((fault.where.time_s for fault in seen if fault.where.time_s is not None), default=None)
    if begun_s is None or seen_s is None or not 0 <= seen_s - begun_s <= _NOTICED_S:
        return False
    return _complain_elsewhere(ranks, [*of(facts, PeerLost), *of(facts, Timeout)], facts)


def _complain_elsewhere(ranks: Sequence[int], complaints: Sequence[PeerLost | Timeout], facts: list[Fact]) -> bool:
    """Whether a rank of each other host complains; all hosts have as many ranks as these, in a row."""
    heard = {fact.rank // len(ranks) for fact in complaints if fact.rank is not None}
    hosts = {rank // len(ranks) for rank in all_told(facts) - set(ranks)}
    return bool(hosts) and hosts <= heard


def _complain(ranks: Sequence[int], facts: list[Fact]) -> bool:
    """Whether one of these ranks says that it waited, or lost another."""
    return any(isinstance(fact, PeerLost | Timeout | StoreWait) and fact.rank in ranks for fact in facts)


def _with_killed_pod(facts: list[Fact]) -> list[Fact]:
    """Return the facts, the fault that ended one pod as a whole with all its ranks, where files tell these.

    Not where several pods ended so, one of its ranks is known to have ended by itself, or lived to complain.
    """
    ended = [f for f in of(facts, Failure) if f.pod and f.rank is None and f.kind in _OF_PODS and not f.follows]
    pods = {fault.pod for fault in ended}
    if len(pods) != 1:
        return facts
    pod = pods.pop()
    ranks = ranks_of_host(pod, facts, {placed.pod for placed in of(facts, Placed)} - {pod})
    own = {f.rank for f in of(facts, Failure) if not f.is_over} | {end.rank for end in of(facts, Exit)}
    if len(ranks) < 2 or own & set(ranks) or _complain(ranks, facts) or len(ranks) == world_of(facts):
        return facts
    return [
        replace(fact, ranks=ranks, what=f"{fact.what}, pod {pod}")
        if isinstance(fact, Failure) and fact in ended
        else fact
        for fact in facts
    ]


def _by_events(facts: list[Fact]) -> Taken | None:
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
    ranks = ranks_of_host(pod, facts, {placed.pod for placed in of(facts, Placed)} - {pod})
    if not ranks:
        return None
    what = f"pod {pod}, ranks {shortened(ranks)}, was taken from the job ({gone.what})"
    return ranks, what, [gone.where]


def _by_node(facts: list[Fact]) -> Taken | None:
    """Return the ranks of the one host that a launcher saw fail, or that its cloud took back while others went on."""
    general = [f for f in of(facts, Failure) if f.is_general and f.kind == "killed" and not f.follows and not f.pod]
    if of(facts, Timeout):  # a limit or a person ends a job that waits, and may take a host; a node fails by itself
        general = [f for f in general if f.host]
    failed = {short_host(fault.host): fault for fault in reversed(general) if fault.host}
    if not failed and of(facts, PeerLost):
        of_cloud = [f for f in reversed(general) if _OF_CLOUD in f.what]
        failed = {name: f for f in of_cloud if (name := _host_of(f.where, facts) or next(iter(places_of(f.where)), ""))}
    failed = failed or _down(facts)
    if len(failed) != 1:
        return None
    name, fault = next(iter(failed.items()))
    ranks = _ranks_of_node(name, facts)
    if not ranks or len(ranks) == world_of(facts):
        return None
    who = fault.what if fault.host else f"{fault.what}: host {name}"
    line = _end_after(fault, facts) or _first_sign(name, facts) or fault.where
    return ranks, f"{who}, with ranks {shortened(ranks)}", [line]


def _by_coordinator(facts: list[Fact]) -> tuple[tuple[int, ...], str, list[Where]] | None:
    """Return the ranks in whose logs alone a cloud's notice is, where they are the ones that JAX's coordinator lost.

    Where others were told so too, the whole job was taken, and whom the coordinator lost first is chance.
    """
    lost = {f.rank for f in of(facts, Failure) if f.what.startswith(NO_LONGER_HEARD) and f.rank is not None}
    notices = {f.where.rank: f.where for f in reversed(of(facts, Failure)) if _OF_CLOUD in f.what}
    if not lost or notices.keys() != lost:
        return None
    ranks = tuple(sorted(lost))
    what = f"the cloud took back the machine of {ranks_in_words(ranks)} (preemption)"
    return ranks, what, list(notices.values())


def _end_after(notice: Failure, facts: list[Fact]) -> Where | None:
    """Return the line in which the agent was told to end whose host a cloud takes back, some minutes after it said so.

    Ranks of other hosts that fail between the two do so by themselves.
    """
    if _OF_CLOUD not in notice.what:
        return None
    host = _host_of(notice.where, facts)
    ended = [
        end.where
        for end in of(facts, AgentEnded)
        if _place(end.where) == _place(notice.where) or (host and _host_of(end.where, facts) == host)
    ]
    return next((line for line in ended if notice.where.before(line)), None)


def _host_of(where: Where, facts: list[Fact]) -> str:
    """Return the host whose line this is: by the label in front of it, else of those known the one in its path."""
    return short_host(where.host) if where.host else host_of_file(where.file, facts)


def _as_sequel(notice: Failure, facts: list[Fact]) -> Failure:
    """Return a cloud's notice as no cause where ranks of other hosts lost a peer before its own host ended."""
    end = _end_after(notice, facts)
    lost = [fact.where for fact in of(facts, PeerLost) if end and _place(fact.where) != _place(end)]
    return replace(notice, follows=True) if end and any(where.before(end) for where in lost) else notice


def _down(facts: list[Fact]) -> dict[str, Failure]:
    """Return the nodes with ranks of the job that SLURM shows as down, by name, where it ended the job for a node."""
    ends = [f for f in of(facts, Failure) if f.is_general and not f.follows and "node fail" in f.what]
    told: list[Fact] = [*ends, *of(facts, PeerLost), *of(facts, Timeout)]
    times_s = [fact.where.time_s for fact in told if fact.where.time_s is not None]
    found: dict[str, Failure] = {}
    for gone in of(facts, NodeGone) if ends else ():
        near = gone.where.time_s is None or any(abs(gone.where.time_s - time_s) <= _NOTICED_S for time_s in times_s)
        if near and ("[" in gone.node or _ranks_of_node(gone.node, facts)):
            what = f"node {gone.node} failed: {gone.what}"
            found[short_host(gone.node)] = Failure(kind="killed", what=what, host=gone.node, where=gone.where)
    return {} if any("[" in name for name in found) else found


def _ranks_of_node(name: str, facts: list[Fact]) -> tuple[int, ...]:
    return ranks_of_host(name, facts) or _ranks_of_tasks(name, facts)


def _ranks_of_tasks(host: str, facts: list[Fact]) -> tuple[int, ...]:
    """Return the ranks of a host that failed by the tasks that srun says were killed there, () where it does not tell.

    A task is a rank unless torchrun started the ranks, or a label of srun's stands in front of another rank. A host
    with one task may have several ranks, unless a label of srun's shows the number of a rank.
    """
    told = [(short_host(f.host), f.ranks) for f in of(facts, Failure) if f.host and f.ranks and not f.pod]
    own = {task for place, tasks in told if place == short_host(host) for task in tasks}
    others = {task for place, tasks in told if place != short_host(host) for task in tasks} | ranks_seen(facts)
    labels = {(int(label[1]), rank) for where, rank in _ranked(facts) if (label := _TASK.match(where.text))}
    unlike = any(task != rank for task, rank in labels)
    if of(facts, Torchrun) or unlike or others <= own or (len(own) == 1 and not any(rank for _, rank in labels)):
        return ()
    return tuple(sorted(own))


def _ranked(facts: Sequence[Fact]) -> Iterator[tuple[Where, int]]:
    """Yield the lines that name the rank that speaks, with that rank."""
    for fact in facts:
        if fact.where.rank is not None and f"rank{fact.where.rank}]" in fact.where.text:
            yield fact.where, fact.where.rank


def _by_signal(facts: list[Fact]) -> Taken | None:
    """Return the ranks of the one agent that was told to end, before the ranks of others complained."""
    ended = of(facts, AgentEnded)
    places = {_place(fact.where) for fact in ended}
    if len(places) != 1:
        return None
    file, place = places.pop()
    listed = {fact.ranks for fact in of(facts, AgentRanks) if _place(fact.where) == (file, place)}
    first = min(ended, key=lambda fact: fact.where.line).where
    complaints = [fact for fact in facts if isinstance(fact, PeerLost | Timeout)]
    others = [fact for fact in complaints if _place(fact.where) != (file, place)]
    name = place or PurePath(file).name.split(".")[0]
    if not listed and (whole := ranks_of_host(name, facts)):
        listed = {whole}
    if len(listed) != 1 or len(others) < len(complaints) or _by_order(facts, file):
        return None
    ranks = listed.pop()
    went_on = _others_went_on(ranks, facts) or _complain_elsewhere(ranks, of(facts, PeerLost), facts)
    if not (_names(others, name) or went_on):
        return None
    later_s = [fact.where.time_s for fact in others if fact.where.time_s is not None]
    if first.time_s is None or not later_s or min(later_s) - first.time_s < CLOCKS_S:
        return None
    what = f"torchrun's agent of ranks {shortened(ranks)} alone was told to end (SIGTERM): its host was taken away"
    return ranks, what, [first]


def _place(where: Where) -> tuple[str, str]:
    """Return where a line is from: the host in front of it, of logs that are glued together, else its file."""
    return ("", where.host) if where.host else (where.file, "")


def _others_went_on(ranks: tuple[int, ...], facts: list[Fact]) -> bool:
    """Whether the agents of all other ranks are in the files, which do not say that these were told to end, too."""
    others = {rank for fact in of(facts, AgentRanks) for rank in fact.ranks} - set(ranks)
    places = {_place(fact.where) for fact in of(facts, AgentRanks) if fact.ranks != ranks}
    broken = {_place(fact.where) for fact in of(facts, PeerLost)}
    world = world_of(facts) or max(ranks_seen(facts) | others | set(ranks)) + 1
    return bool(others) and others | set(ranks) == set(range(world)) and places <= broken


def _by_order(facts: list[Fact], file: str) -> bool:
    """Whether a batch system says that it ended the whole job: a limit, a person, a preemption."""
    orders = [fault for fault in of(facts, Failure) if fault.is_general and fault.kind == "killed"]
    named = [fault for fault in orders if fault.pod or fault.host or fault.where.host]
    return any(fault.where.file != file for fault in orders if fault not in named)


def _names(complaints: Sequence[Fact], name: str) -> bool:
    """Whether a complaint names the host or pod of a log, which is called after it."""
    named = re.compile(rf"(?<![\w])(?:[\w-]+-)?{re.escape(name)}(?![\w-])")
    return any(isinstance(fact, PeerLost) and named.search(fact.where.text) for fact in complaints)
