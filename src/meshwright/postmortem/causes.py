"""The first fault: of everything that failed, what failed first and on a rank that does not merely wait."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

import msgspec
from msgspec.structs import replace

from .facts import (
    AgentEnded,
    Arrived,
    Exit,
    Fact,
    Failure,
    NotifyWait,
    PeerLost,
    RankIdentity,
    Shortened,
    SlowRank,
    Spoke,
    Stepped,
    StoreWait,
    Timeout,
    Torchrun,
    Where,
    of,
)
from .hosts import rank_on_host, ranks_of_host
from .links import at_broken_end
from .pods import rank_among
from .position import HangPosition
from .verdict import Kind, shortened
from .world import identities_of, is_address, ranks_seen, short_host, world_of

# where no clock tells what came first: the more a fault explains, the sooner it is taken for the cause
ORDER: tuple[Kind, ...] = (
    *("device", "host_memory", "device_memory", "exception", "killed", "data", "host", "absent", "network"),
)
CLOCKS_S = 2.0  # by which clocks of hosts, printed in whole seconds, may differ
SLACK_S = 3600.0  # an evaluation or a checkpoint between two calls may take so long
_LOG_S = 86400.0  # of a kernel's log, before its last fault
_ZONES_S = 15 * 3600.0  # by which the clocks of a job and of a kernel may differ
_OURS = re.compile(r"python|pt_|torch|ray::|train|main|triton|vllm|sglang|deepspeed|mpirun|_perf", re.IGNORECASE)
_OF_A_CGROUP = "Memory cgroup out of memory"
_NAME = re.compile(r"process \d+ \((?P<name>[^)]*)\)")
_LEAST_ORDER = ("killed", "exception", "network")  # of what shows only that something ended, or a link
_LACKS = {
    "host_memory": "which rank the killed process was: torchrun's summary or NCCL's Init lines name pids",
    "device": "which rank uses that GPU: NCCL's Init lines (NCCL_DEBUG=INFO) join bus id and rank",
}
_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
_ABORT, _KILL = 6, 9
_WAITS = (Timeout, StoreWait, PeerLost, NotifyWait, Arrived)  # of a rank that was left waiting
_CONSEQUENCES = {_ABORT, 15, 2, 1}  # of a watchdog, of torchrun that ends the others, of a keyboard or a terminal


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The fault that came first. `ranks` are the ranks that it befell, empty where that is not known."""

    kind: Kind
    what: str
    ranks: tuple[int, ...]
    lines: tuple[Where, ...]
    first: Failure
    is_general: bool = False  # befell the job, not a rank: a node, a preemption, all ranks alike

    def can_be_of(self, rank: int, facts: list[Fact]) -> bool:
        """Return whether nothing that is known of a rank speaks against its being the one that this befell."""
        known = [identity for identity in identities_of(facts) if identity.rank == rank]
        if self.first.host and any(i.host and not _same_host(i.host, self.first.host) for i in known):
            return False
        # the kernel's number of a process in a container is not its own there
        by_pid = self.first.pid is not None and not self.first.bus_id and _OF_A_CGROUP not in self.first.where.text
        if by_pid and any(i.pid is not None and i.pid != self.first.pid for i in known):
            return False
        local = self.first.device
        if local is not None and any(i.device is not None and i.device != local for i in known):
            return False
        return not (self.first.bus_id and any(i.bus_id and not _same_bus(i.bus_id, self.first.bus_id) for i in known))

    @property
    def lacks(self) -> str:
        """Evidence that would tell whose fault it was."""
        return _LACKS.get(self.kind, "which rank it was: lines with a prefix of each rank, or a file for each")


def cause_of(facts: list[Fact], position: HangPosition | None) -> Cause | None:
    """Return the first fault, None where nothing failed but what follows from the wait itself."""
    identities = identities_of(facts)
    waiting = set(position.waiting) if position else set()
    timeouts = of(facts, Timeout)
    waited = [fact.where for fact in timeouts]
    found = [_resolved(failure, identities, facts) for failure in of(facts, Failure)]
    found += _of_exits(of(facts, Exit), found, identities, facts)
    found = [fault for fault in _settled(found, waiting, facts) if not _is_elsewhere(fault, identities, facts)]
    begun_s, steps = _begun_s(facts), of(facts, Stepped)
    found = [fault for fault in found if not fault.follows and _is_job(fault) and not _too_old(fault, begun_s, steps)]
    found = [fault for fault in found if _can_be_first(fault, waiting, waited)]
    found = _of_who_is_missing(found, position, waited)
    if not found:
        return None
    first = _first(found)
    alike = [fault for fault in found if fault.kind == first.kind and _alike(fault, first)]
    ranks = tuple(sorted({rank for fault in alike for rank in _ranks(fault)}))
    everyone = len(ranks) > 1
    if first.kind == "host_memory" and not ranks:
        ranks = _killed(found, first)
    if first.kind == "device" and not ranks and not timeouts:
        ranks = _aborted(of(facts, Exit))
    told = max(alike, key=lambda fault: len(fault.what)) if not everyone else first
    joins = [i.where for i in identities if (i.rank,) == ranks and _leads_to(first, i)]
    kind: Kind = first.kind  # type: ignore[assignment]  # readers write a verdict's kinds
    return Cause(
        kind=kind,
        what=f"{told.what}{f', on ranks {shortened(ranks)}' if everyone else ''}",
        ranks=at_broken_end(found, facts)
        if kind == "network"
        else ()
        if everyone and _are_all(ranks, facts)
        else ranks,
        lines=tuple(dict.fromkeys((*(fault.where for fault in (*alike, *_same_rank(found, first))), *joins))),
        first=first,
        is_general=first.is_general or everyone,
    )


def _killed(found: Sequence[Failure], first: Failure) -> tuple[int, ...]:
    """Return the one rank that a launcher saw killed where memory ran out.

    SLURM says in one line what, in another whom; the kernel's number of a process in a container is not its own there.
    """
    killed = [fault for fault in found if fault.kind == "killed" and _ranks(fault)]
    if first.pid is not None:
        killed = [fault for fault in killed if _SIGNALS[_KILL] in fault.what and _is_near(fault, first)]
    ranks = {rank for fault in killed for rank in _ranks(fault)}
    return tuple(ranks) if len(ranks) == 1 else ()


def _is_near(fault: Failure, other: Failure) -> bool:
    """Whether two faults may be of one host; a pod's name is none."""
    return not fault.host or not other.host or _same_host(fault.host, other.host)


def _is_elsewhere(fault: Failure, identities: Sequence[RankIdentity], facts: list[Fact]) -> bool:
    """Whether a fault befell a host that has none of the job's ranks, where the host of each is known."""
    if not fault.host or _ranks(fault) or fault.is_general or fault.kind == "network":
        return False
    hosts = {identity.rank: identity.host for identity in identities if identity.host}
    world = world_of(facts) or max(ranks_seen(facts), default=0) + 1
    known = set(range(world)) <= hosts.keys()
    return known and not any(_same_host(host, fault.host) for host in hosts.values())


def _settled(found: Sequence[Failure], waiting: set[int], facts: list[Fact]) -> list[Failure]:
    """Return the faults; the end of a worker that usually follows is one where it alone ended, and had not waited.

    Where Ray folds the lines of several workers into one, who waited is not known.
    """
    ended = {rank for fault in found if fault.unless_first for rank in _ranks(fault) or (None,)}
    waits: list[Timeout | PeerLost | StoreWait] = [*of(facts, Timeout), *of(facts, PeerLost), *of(facts, StoreWait)]
    waited = waiting | {wait.rank for wait in waits}
    if len(ended) != 1 or ended & (waited | {None}) or of(facts, Shortened):
        return list(found)
    return [replace(fault, follows=False) if fault.unless_first else fault for fault in found]


def _aborted(exits: Sequence[Exit]) -> tuple[int, ...]:
    """Return the one rank that launchers name as first and as ended by SIGABRT: how a runtime ends on a device's fault.

    Where a watchdog spoke that signal may be its own.
    """
    first = [end for end in exits if end.first and _signal_of(end.code) == _ABORT]
    ranked = {end.rank: end.pid for end in first if end.rank is not None}
    others = [end for end in first if end.rank is None and (end.pid is None or end.pid not in ranked.values())]
    return tuple(ranked) if len(ranked) == 1 and not others else ()


def _are_all(ranks: Sequence[int], facts: list[Fact]) -> bool:
    """Whether a fault befell every rank alike: then nobody is to blame."""
    return set(ranks) >= (set(range(world_of(facts) or 0)) | ranks_seen(facts))


def least_evidence(facts: list[Fact]) -> Failure | None:
    """Return what usually follows from a fault elsewhere, for where nothing else shows: the first, a notice before all.

    What ended the job from outside (a time limit) says more than an error that a broken peer leaves behind. Not where
    an agent was told to end only after the process that held the store, on another host, was gone: that came first.
    """
    found = [f for f in of(facts, Failure) if f.kind in _LEAST_ORDER and f.follows and not f.is_over]
    ends = [end for end in of(facts, Exit) if end.first and _signal_of(end.code) in _CONSEQUENCES]
    gone = [f for f in found if f.kind == "killed" and not f.is_general]
    agents = {ended.where for ended in of(facts, AgentEnded)}
    found = [f for f in found if f.where not in agents or not any(one.where.before(f.where) for one in gone)]
    found += [replace(_exit_fault(end), follows=True) for end in ends]
    return min(found, key=lambda fault: (not fault.is_general, _LEAST_ORDER.index(fault.kind)), default=None)


def _resolved(failure: Failure, identities: Sequence[RankIdentity], facts: list[Fact]) -> Failure:
    """Return the failure with its rank, where process, GPU, task or a log that bears its pod's name lead to one."""
    if failure.rank is not None:
        return failure
    fitting = [i for i in identities if not failure.host or not i.host or _same_host(i.host, failure.host)]
    if failure.host and failure.host in {
        i.host for i in identities
    }:  # a process that is named without a host is then on another one
        fitting = [i for i in fitting if i.host]
    ranks: set[int] = set()
    if failure.pid is not None:
        ranks = {i.rank for i in fitting if i.pid == failure.pid}
    if not ranks and failure.bus_id:
        ranks = {i.rank for i in fitting if _same_bus(i.bus_id, failure.bus_id)}
    if failure.ranks and not failure.pod and of(facts, Torchrun):
        failure = replace(failure, ranks=())  # a task of SLURM is then a host's agent
    if not ranks and failure.ranks:
        ranks = set(failure.ranks)
    if not ranks and failure.pod:
        ranks = _of_pod(failure.pod, facts)
    if not ranks and failure.device is not None and _counts_on_host(failure, facts):
        own = rank_on_host(failure.device, failure.host, failure.where, facts)
        ranks = set() if own is None else {own}
    if len(ranks) == 1:
        rank = ranks.pop()
        return replace(failure, rank=rank, where=failure.where.by(rank))
    return failure


def _counts_on_host(failure: Failure, facts: list[Fact]) -> bool:
    """Whether the number of a fault is that of a rank on its host: a launcher's of who was killed, or a GPU's.

    Where every process calls its own GPU number 0, none has another number.
    """
    if failure.is_summary:
        return failure.kind == "killed"
    return failure.kind == "device_memory" and any(fault.device for fault in of(facts, Failure))


def rank_of_gpu(gpu: SlowRank, facts: list[Fact]) -> int | None:
    """Return the rank that uses a GPU: by NCCL's Init lines, or by its number where its host has one for each rank."""
    bus = gpu.bus_id.split(".")[0]
    number = f"{int(bus.replace(':', '') + '0', 16):x}" if bus else ""
    near = [i for i in identities_of(facts) if not gpu.host or not i.host or _same_host(i.host, gpu.host)]
    ranks = {i.rank for i in near if i.bus_id and _same_bus(i.bus_id, number)}
    if len(ranks) == 1:
        return ranks.pop()
    world = world_of(facts) or max(ranks_seen(facts), default=-1) + 1
    if gpu.rank is not None or gpu.device is None or world == gpu.devices:
        return gpu.device if gpu.rank is None else gpu.rank
    return rank_on_host(gpu.device, gpu.host, gpu.where, facts, size=gpu.devices)


def _of_pod(pod: str, facts: list[Fact]) -> set[int]:
    """Return the ranks that speak in the log of a pod; where there is none, the one that its siblings' logs lead to."""
    if len(whole := ranks_of_host(pod, facts)) > 1:
        return set(whole)  # which one of them it was is another question
    spoke: dict[str, set[int]] = {}
    for fact in of(facts, Spoke):
        spoke.setdefault(PurePath(fact.where.file).stem, set()).add(fact.rank)
    rank = rank_among(pod, spoke) if pod not in spoke else None
    return spoke.get(pod, set()) if rank is None else {rank}


def _leads_to(failure: Failure, identity: RankIdentity) -> bool:
    """Whether a line says that the process or the GPU of a failure is that of a rank."""
    if failure.pid is not None and failure.pid == identity.pid:
        return True
    return bool(failure.bus_id) and _same_bus(identity.bus_id, failure.bus_id)


def _same_host(one: str, other: str) -> bool:
    """Whether two names may be of one host: of a name and an address that is not known."""
    return is_address(one) != is_address(other) or short_host(one) == short_host(other)


def _same_bus(nccl: str, kernel: str) -> bool:
    try:
        return bool(nccl) and int(nccl, 16) & ~0xF == int(kernel, 16)
    except ValueError:
        return False


def _of_exits(
    exits: Sequence[Exit], told: Sequence[Failure], identities: Sequence[RankIdentity], facts: list[Fact]
) -> list[Failure]:
    """Return what a launcher's first failure says that no other line does."""
    found: list[Failure] = []
    exits = _together(_of_first_host(exits))
    ranked = any(end.first and end.rank is not None for end in exits)
    for end in exits:
        signal = _signal_of(end.code)
        if not end.first or signal in _CONSEQUENCES or not end.code or (ranked and end.rank is None):
            continue
        fault = _resolved(_exit_fault(end), identities, facts)
        known = any(set(_ranks(fault)) & set(_ranks(other)) or _is_one(fault, other) for other in (*told, *found))
        # an exit code says less than any error, and where its rank is not known it may be of a rank that waited
        unsaid = signal or end.rank is not None or not (of(facts, Timeout) or any(not f.follows for f in told))
        if not known and unsaid and (signal or not _may_have_waited(end, fault, facts)):
            found.append(fault)
    return found


def _may_have_waited(end: Exit, fault: Failure, facts: list[Fact]) -> bool:
    """Whether a process that gave up with a code may be one of which a line says that it waited for others until then.

    A time-out in a store, a rendezvous, a barrier or a collective ends a program like any error of its own. It is its
    own where the line is that rank's, and may be where the line is nobody's; not where a clock shows it to be later.
    """
    ranks = set(_ranks(fault))
    waits = [fact for fact in facts if isinstance(fact, _WAITS)]
    errors = [fault for fault in of(facts, Failure) if fault.kind == "exception" and fault.follows]
    return any(
        (wait.rank is None or not ranks or wait.rank in ranks)
        and not (end.time_s is not None and wait.where.time_s is not None and wait.where.time_s > end.time_s + CLOCKS_S)
        for wait in (*waits, *(error for error in errors if not error.is_over))
    )


def _of_first_host(exits: Sequence[Exit]) -> list[Exit]:
    """Return the exits without what the hosts' agents call the first failure and another host's came before.

    Each host has its own first failure. Where the clocks do not tell which code came first, none has a rank.
    """
    own = [end for end in exits if end.first and end.rank is not None and end.code > 0 and not _signal_of(end.code)]
    if len({end.rank for end in own}) < 2:
        return list(exits)
    times_s = sorted({end.rank: end.time_s for end in own}.values(), key=lambda time_s: (time_s is None, time_s))
    earliest_s, second_s = times_s[:2]
    if earliest_s is None or second_s is None or second_s - earliest_s <= CLOCKS_S:
        return [replace(end, rank=None, pid=None, local_rank=None) if end in own else end for end in exits]
    return [end for end in exits if end not in own or end.time_s == earliest_s]


def _together(exits: Sequence[Exit]) -> list[Exit]:
    """Return the exits, with all that ended in the second of the first one put beside it, or before it.

    Which of them torchrun "observed first" is chance: without an error file it takes the time at which it looked. Who
    ended by a signal that no launcher sends comes before who gave up with a code. Where several ended by one such
    signal (a full /dev/shm, a broken library) all are first; of equal codes none keeps its rank, for one of them may be
    the error that the others followed.
    """
    found = list(exits)
    for place, first in enumerate(exits):
        if not first.first or first.rank is None or first.time_s is None or not first.code:
            continue
        beside = [at for at, end in enumerate(exits) if not end.first and _ended_with(end, first)]
        killed = [at for at in beside if _signal_of(exits[at].code) not in {0, *_CONSEQUENCES}]
        if signal := _signal_of(first.code):
            killed = [at for at in killed if exits[at].code == first.code and signal not in _CONSEQUENCES]
        for at in killed:
            found[at] = replace(exits[at], first=True)
        if not signal and killed:
            found[place] = replace(first, first=False)
        elif not signal and any(exits[at].code == first.code for at in beside):
            found[place] = replace(first, rank=None, pid=None, local_rank=None)
    return found


def _ended_with(end: Exit, first: Exit) -> bool:
    """Whether two processes ended within the resolution of a summary's clock."""
    return end.time_s is not None and abs(end.time_s - (first.time_s or 0.0)) <= CLOCKS_S


def _signal_of(code: int) -> int:
    """Return the signal that an exit code tells of, 0 for none."""
    return -code if code < 0 else code - 128 if 128 < code < 160 else 0


def _exit_fault(end: Exit) -> Failure:
    signal = _signal_of(end.code)
    who = f"rank {end.rank}"
    if end.rank is None:
        place = f"task {end.task}" if end.task is not None else f"local rank {end.local_rank}"
        place = place if (end.task, end.local_rank) != (None, None) else ""
        who = f"process {end.pid} ({place})" if end.pid and place else f"process {end.pid}" if end.pid else place
        who = who or "a process"
    how = f"was ended by {_SIGNALS.get(signal, f'signal {signal}')}" if signal else f"ended with code {end.code}"
    return Failure(
        kind="killed" if signal else "exception",
        what=f"{who} {how}" if signal else f"{who} {how} before the others",
        rank=end.rank,
        ranks=() if end.task is None else (end.task,),
        device=end.local_rank if end.rank is None else None,
        host=end.host,
        pid=end.pid,
        where=end.where,
        is_summary=True,
    )


def _is_one(fault: Failure, other: Failure) -> bool:
    return fault.pid is not None and fault.pid == other.pid and not other.follows


def _is_job(fault: Failure) -> bool:
    """Whether a process that the kernel killed can belong to the job: it is one of its ranks, or a Python."""
    if fault.kind not in {"host_memory", "killed", "host"} or fault.rank is not None or fault.pid is None:
        return True
    if fault.is_summary:
        return True
    name = _NAME.search(fault.what)
    return name is None or bool(_OURS.search(name.group("name")))


def _begun_s(facts: list[Fact]) -> dict[bool, float]:
    """Return when the first call that timed out began, by clocks in UTC (True) and in local time; empty where unknown.

    Where no time-out has a clock, the last other line of its file that has one was written after it.
    """
    found: dict[bool, list[float]] = {}
    timeouts = [fact for fact in of(facts, Timeout) if fact.waited_s is not None]
    for timeout in timeouts:
        if timeout.where.time_s is not None:
            found.setdefault(timeout.where.is_utc, []).append(timeout.where.time_s - (timeout.waited_s or 0.0))
    if not found and timeouts:
        files = {timeout.where.file for timeout in timeouts}
        longest_s = max(timeout.waited_s or 0.0 for timeout in timeouts)
        for fact in facts:
            if fact.where.file in files and fact.where.time_s is not None:
                found.setdefault(fact.where.is_utc, []).append(fact.where.time_s - longest_s)
        return {is_utc: max(times_s) for is_utc, times_s in found.items()}
    return {is_utc: min(times_s) for is_utc, times_s in found.items()}


def _too_old(fault: Failure, begun_s: dict[bool, float], steps: Sequence[Stepped]) -> bool:
    """Whether a fault was long over when the call that timed out began, or long before the job's first step."""
    begun = begun_s.get(fault.where.is_utc)
    if fault.where.time_s is None:
        return False
    logs = [fact.times_s[0] for fact in steps if fact.where.is_utc == fault.where.is_utc]
    of_former_job = bool(logs) and fault.where.time_s < min(logs) - _ZONES_S - SLACK_S
    return of_former_job or (begun is not None and fault.where.time_s < begun - SLACK_S)


def _of_who_is_missing(
    found: Sequence[Failure], position: HangPosition | None, waited: Sequence[Where]
) -> list[Failure]:
    """Return the faults without those of GPUs of ranks that wait, where the GPU of the one that they wait for failed.

    Only those of which no clock says that they came before the time-outs: a kernel's log goes back for weeks. Of such
    faults of GPUs only the last day's count, for they are what somebody saved the log for.
    """
    devices = [fault for fault in found if fault.kind == "device"]
    last_s = max((f.where.time_s for f in devices if f.where.time_s is not None), default=0.0)
    old = [f for f in devices if f.where.time_s is not None and f.where.time_s < last_s - _LOG_S]
    found = [f for f in found if f not in old or is_ordered(f, waited)]
    if position is None or not position.certain or not position.blamed:
        return list(found)
    if not any(set(_ranks(fault)) & set(position.blamed) for fault in devices):
        return list(found)
    waiting = set(position.waiting)
    others = [f for f in devices if _ranks(f) and set(_ranks(f)) <= waiting and not is_ordered(f, waited)]
    return [fault for fault in found if fault not in others]


def is_ordered(fault: Failure, waited: Sequence[Where]) -> bool:
    """Return whether a clock or a file says that a fault came before or after one of the time-outs."""
    return any(fault.where.before(where) is not None for where in waited)


def _can_be_first(fault: Failure, waiting: set[int], waited: Sequence[Where]) -> bool:
    if fault.where.attempt is not None and any(
        where.attempt is not None and where.attempt > fault.where.attempt for where in waited
    ):
        return False
    orders = [fault.where.before(where) for where in waited]
    after = any(order is False for order in orders) and not any(order is True for order in orders)
    if fault.kind in {"device", "network"}:
        return not after
    if set(_ranks(fault)) & waiting:
        return bool(orders) and all(order is True for order in orders) and fault.kind != "exception"
    return fault.is_summary or not after


def _ranks(fault: Failure) -> tuple[int, ...]:
    return (fault.rank,) if fault.rank is not None else fault.ranks


def _first(found: Sequence[Failure]) -> Failure:
    """Return the fault before which none is known to be; of several that cannot be ordered, the one that tells most."""
    first = [
        fault
        for fault in found
        if not any(other.where.before(fault.where) and (_ranks(other) or other.is_general) for other in found)
    ] or list(found)
    known = [fault for fault in first if fault.kind != "network"] or first
    return min(known, key=lambda fault: (ORDER.index(fault.kind), not _ranks(fault)))


def _alike(fault: Failure, first: Failure) -> bool:
    """Whether two faults are one: the same text on several ranks, or two lines on one rank or process."""
    return _said(fault) == _said(first) or (bool(_ranks(fault)) and _ranks(fault) == _ranks(first))


def _said(fault: Failure) -> str:
    """Return how a fault begins; an exception's numbers are the rank, its device, a batch."""
    numbered = fault.kind == "exception" or (fault.is_summary and fault.rank is not None)
    return re.sub(r"\d+", "#", fault.what)[:40] if numbered else fault.what[:40]


def _same_rank(found: Iterable[Failure], first: Failure) -> list[Failure]:
    return [fault for fault in found if _ranks(first) and _ranks(fault) == _ranks(first)]
