"""The first fault: of everything that failed, what failed first and on a rank that does not merely wait."""

import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from ...units import shortened
from ..nouns.facts import (
    Exit,
    Fact,
    Failure,
    PeerLost,
    PortDown,
    Shortened,
    StackTrace,
    StoreWait,
    Timeout,
    of,
)
from ..nouns.identities import AgentEnded, RankIdentity, TimeUp
from ..nouns.names import BY_REQUEST, same_bus
from ..nouns.next_steps import says_how
from ..nouns.paces import Stepped
from ..nouns.position import HangPosition
from ..nouns.verdict import Kind
from ..nouns.where import Where
from ..nouns.world import identities_of, may_be_same_host, ranks_seen, short_host, world_of
from ..positions.stack_positions import by_stacks
from ..ranks.devices import is_of_no_rank
from ..ranks.exits import ABORT, CLOCKS_S, CONSEQUENCES, KILL, SIGNALS, exit_fault, of_exits, signal_of
from ..ranks.hosts import are_all, is_elsewhere, knows_all_hosts, ranks_of_host, told_ranks_of
from ..ranks.jobs_of_pods import is_of_other_job
from ..ranks.links import at_broken_end, ports_at_end, ports_of_switches, untold_port, was_over
from ..ranks.owners import can_be_of, leads_to, owners_of, with_rank, with_said_again
from ..ranks.unmade import without_unmade
from ..tools.gpu_memory_errors import COUNTED
from .kills import is_near, killed_for_memory
from .traps import with_traps

# where no clock tells what came first: the more a fault explains, the sooner it is taken for the cause
ORDER: tuple[Kind, ...] = (
    *("device", "host_memory", "device_memory", "exception", "killed", "data", "host", "absent", "network"),
)
SLACK_S = 3600.0  # an evaluation or a checkpoint between two calls may take so long
_LATE_S = 900.0  # after which a node that is gone is known to be, and links that broke are no sign of it
_LOG_S = 86400.0  # of a kernel's log, before its last fault
_ZONES_S = 15 * 3600.0  # by which the clocks of a job and of a kernel may differ
_OURS = re.compile(r"python|pt_|torch|ray::|train|main|triton|vllm|sglang|deepspeed|mpirun|_perf", re.IGNORECASE)
_NAME = re.compile(r"process \d+ \((?P<name>[^)]*)\)")
_BY_LIMIT = {"exception", "data", "killed", "network"}  # what programs that are told to end may leave behind
_PASSED_ON = ("ActorDiedError", "RayActorError", "RayTaskError", "WorkerCrashedError")  # Ray's, by who waited for it
_LEAST_ORDER = ("killed", "exception", "network")  # of what shows only that something ended, or a link
_ADDRESS = re.compile(r"\b(?:on address|at) (0x[0-9a-f]{4,16})\b")
_NVLINK, _AFTER = "NVLink error", "caused by previous Xid"
_OF_PROGRAMS = {"desync", "sizes", "circle"}  # what programs do wrong
_LACKS = {
    "host_memory": "which rank the killed process was: torchrun's summary or NCCL's Init lines name pids",
    "device": "which rank uses that GPU: NCCL's Init lines (NCCL_DEBUG=INFO) join bus id and rank",
}


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """The fault that came first. `ranks` are the ranks that it befell, empty where that is not known."""

    kind: Kind
    what: str
    ranks: tuple[int, ...]
    lines: tuple[Where, ...]
    first: Failure
    is_general: bool = False  # befell the job, not a rank: a node, a preemption, all ranks alike
    among: tuple[int, ...] = ()  # the ranks of the host that it befell, one of which it is
    port: str = ""  # that is down, and whose user is not told

    def can_be_of(self, rank: int, facts: list[Fact]) -> bool:
        """Return whether nothing that is known of a rank speaks against its being the one that this befell."""
        return can_be_of(self.first, rank, facts)

    @property
    def lacks(self) -> str:
        """Evidence that would tell whose fault it was."""
        if self.port:
            return (
                f"which rank uses {self.port}: NCCL's list of ports and its channels (NCCL_DEBUG=INFO prints `via"
                " NET/IB/N`), or `nvidia-smi topo -m` of that host"
            )
        if self.kind == "device" and "NPU" in self.what:
            return (
                "which rank uses that NPU: HCCL's table of ranks (hccl.json, RANK_TABLE_FILE) with the address of"
                f" {self.first.host or 'its host'} (`hostname -I`), or CANN's log of its process"
            )
        if self.kind == "device" and _NVLINK in self.what and not _tells_its_end(self.first):
            return (
                "at which GPU it began: the kernel's log of the host (`dmesg -T`: Xid 74, or 149 and the like with the"
                " word Fatal), `nvidia-smi nvlink -e`"
            )
        if self.kind == "device" and self.among:
            return (
                f"which of ranks {shortened(self.among)} uses that GPU: NCCL's Init lines (NCCL_DEBUG=INFO), or, with"
                " CUDA_VISIBLE_DEVICES of these ranks, `nvidia-smi --query-gpu=index,pci.bus_id,uuid --format=csv` on"
                f" {self.first.host}"
            )
        return _LACKS.get(self.kind, "which rank it was: lines with a prefix of each rank, or a file for each")


def cause_of(facts: list[Fact], position: HangPosition | None) -> Cause | None:
    """Return the first fault, None where nothing failed but what follows from the wait itself."""
    identities = identities_of(facts)
    waiting = set(position.waiting) if position else set()
    timeouts = of(facts, Timeout)
    waited = [fact.where for fact in timeouts]
    found = [with_rank(failure, identities, facts) for failure in of(facts, Failure) if not was_over(failure, facts)]
    found = with_traps(without_unmade(with_said_again(found)))
    found += of_exits(of(facts, Exit), found, identities, facts)
    found = _with_former_errors(_with_full_memory(found), position, facts)
    found = [fault for fault in _settled(found, waiting, facts) if not _is_elsewhere(fault, identities, facts)]
    begun_s, steps = _begun_s(facts), of(facts, Stepped)
    found = [fault for fault in found if not fault.follows and _is_job(fault) and not _too_old(fault, begun_s, steps)]
    found = [fault for fault in found if _can_be_first(fault, waiting, waited) and not _is_of_limit(fault, facts)]
    found = [fault for fault in found if not _ended_the_broken(fault, facts)]
    found = _without_unowned(_of_who_is_missing(found, position, waited), position, facts)
    if not found:
        return None
    first = _first(found)
    same = [fault for fault in found if fault.kind == first.kind]
    alike = same if _befell_all(same, facts) else [fault for fault in same if _alike(fault, first)]
    is_link = _is_seen_at_many_ends(first, same)
    ranks = () if is_link else tuple(sorted({rank for fault in alike for rank in owners_of(fault)}))
    everyone = len(ranks) > 1
    if first.kind == "host_memory" and not ranks:
        ranks = killed_for_memory(found, first, facts)
    if first.kind == "device" and not ranks and not timeouts and not is_link:
        ranks = _aborted(of(facts, Exit), first)
    if first.kind in {"device", "data"} and not ranks and first.host and not is_link:
        waited_on = {fact.rank for fact in timeouts}
        ranks = _of_host(first.host, waited_on, position, facts, is_one=first.kind == "device")
    if first.kind == "host" and not ranks and first.host:
        ranks = _held_on(first.host, same)
    told = first if everyone else _best_told(alike, first)
    on = f"ranks {shortened(ranks)}"
    joins = [i.where for i in identities if (i.rank,) == ranks and leads_to(first, i, facts)]
    ends = at_broken_end(found, facts) if first.kind == "network" else ()
    ports = [port.where for port in of(facts, PortDown)] if ends else []
    port = untold_port(found, facts) if first.kind == "network" and not ends else ""
    switches = ports_of_switches(found, facts) if first.kind == "network" and not ends else []
    own_ports = ports_at_end(ends, found, facts)
    at_end = [f for f in found if f.kind == "network" and ends and told_ranks_of(f.host, facts) == ends]
    faults = [*alike, *_same_rank(found, first, ranks)]
    kind: Kind = first.kind  # type: ignore[assignment]  # readers write a verdict's kinds
    what = f"{told.what}, on {on}" if everyone and on not in told.what else told.what
    return Cause(
        kind=kind,
        what="; ".join(dict.fromkeys([*(port.what for port in (own_ports or switches)[:1]), what])),
        ranks=ends if kind == "network" else () if everyone and are_all(ranks, facts) else ranks,
        lines=tuple(
            dict.fromkeys((*ports, *(fault.where for fault in (*own_ports, *at_end, *switches, *faults)), *joins))
        ),
        first=first,
        is_general=first.is_general or everyone or bool(switches),
        port=port,
        among=told_ranks_of(first.host, facts) if first.host and not ranks else (),
    )


def _best_told(alike: Sequence[Failure], first: Failure) -> Failure:
    """Return the fault that says most, none that an accelerator met after its first; with the device, if another knows.

    A runtime knows the address at which a kernel faulted, and the driver the device and the process.
    """
    at_first = [one for one in alike if one.kind != "device" or one is first or not first.where.before(one.where)]
    told = max(at_first, key=lambda fault: (says_how(fault.kind, fault.what), len(fault.what)))
    beside = next((one for one in alike if one.bus_id and not told.bus_id and _address(one) == _address(told)), None)
    return replace(told, what=f"{told.what}; {beside.what}") if beside and _address(told) else told


def _address(fault: Failure) -> int | None:
    """Return the address of a GPU's memory at which a kernel faulted."""
    found = _ADDRESS.search(fault.what) if fault.kind == "device" else None
    return int(found[1], 16) if found else None


def _is_seen_at_many_ends(first: Failure, found: Sequence[Failure]) -> bool:
    """Whether several GPUs met one fault of NVLink, and no line of a kernel tells which of them it began at.

    Every GPU that uses the link sees it break.
    """
    seen = [fault for fault in found if _NVLINK in fault.what]
    ends = {owners_of(fault) or fault.bus_id for fault in seen} - {(), ""}
    return first in seen and len(ends) > 1 and not _tells_its_end(first)


def _tells_its_end(fault: Failure) -> bool:
    """Whether a line of a kernel tells of a GPU's own fault, not of what follows from one."""
    return bool(fault.bus_id) and _AFTER not in fault.where.text


def _befell_all(faults: Sequence[Failure], facts: list[Fact]) -> bool:
    """Whether the GPUs of all ranks of the job ran out of memory, each with numbers of its own."""
    ranks = {rank for fault in faults for rank in owners_of(fault)}
    return faults[0].kind == "device_memory" and len(ranks) > 1 and are_all(ranks, facts)


def _of_host(
    host: str, waited: set[int | None], position: HangPosition | None, facts: list[Fact], *, is_one: bool
) -> tuple[int, ...]:
    """Return the ranks of a host that lost its data or, of one GPU (`is_one`) that failed, the one that did not wait.

    Not where that is all of the job. Where only some of them waited it is not told whose it was, unless it is known who
    keeps the others waiting.
    """
    whole = told_ranks_of(host, facts)
    if position is not None and position.certain and position.blamed:
        return position.blamed if set(position.blamed) <= set(whole) else ()
    left = tuple(rank for rank in whole if rank not in waited)
    if is_one or are_all(whole, facts):
        return left if len(left) == 1 else ()
    return left if len(left) in {1, len(whole)} else ()


def _held_on(host: str, found: Sequence[Failure]) -> tuple[int, ...]:
    """Return the ranks of a host whose processes are known to stand in its calls, as where a file server is silent."""
    here = [fault for fault in found if fault.host and short_host(fault.host) == short_host(host)]
    return tuple(sorted({rank for fault in here for rank in owners_of(fault)}))


def _is_elsewhere(fault: Failure, identities: Sequence[RankIdentity], facts: list[Fact]) -> bool:
    """Whether a fault befell another job, or a host without a rank of this one, where the host of each is known."""
    if fault.host and fault.what.startswith("SLURM: node "):  # its controller's log is that of all jobs
        return knows_all_hosts(facts) and not ranks_of_host(fault.host, facts)
    if fault.what.startswith("Kubernetes") and is_of_other_job(fault, facts):
        return True
    if fault.bus_id and not owners_of(fault) and is_of_no_rank(fault.bus_id, fault.host, identities, facts):
        return True
    if not fault.host or owners_of(fault) or fault.is_general or fault.kind == "network":
        return False
    if is_elsewhere(fault.host, facts):
        return True
    hosts = {identity.rank: identity.host for identity in identities if identity.host}
    world = world_of(facts) or max(ranks_seen(facts), default=0) + 1
    known = set(range(world)) <= hosts.keys()
    return known and not any(may_be_same_host(host, fault.host) for host in hosts.values())


def _settled(found: Sequence[Failure], waiting: set[int], facts: list[Fact]) -> list[Failure]:
    """Return the faults; the end of a worker that usually follows is one where it alone ended, and had not waited.

    Where Ray folds the lines of several workers into one, it prints the first of them: who waited is then not known
    where anybody did.
    """
    ended = {rank for fault in found if fault.unless_first for rank in owners_of(fault) or (None,)}
    waits: list[Timeout | PeerLost | StoreWait] = [*of(facts, Timeout), *of(facts, PeerLost), *of(facts, StoreWait)]
    waited = waiting | {wait.rank for wait in waits}
    spoken = [f for f in found if f.follows and not f.unless_first and (f.rank is not None or f.pid is not None)]
    is_hidden = of(facts, Shortened) and (waits or any(not f.what.startswith(_PASSED_ON) for f in spoken))
    if len(ended) != 1 or ended & (waited | {None}) or is_hidden:
        return list(found)
    return [replace(fault, follows=False) if fault.unless_first else fault for fault in found]


def _with_full_memory(found: Sequence[Failure]) -> list[Failure]:
    """Return the faults; that a process has grown to most of its host's memory is one where SIGKILL ended it, or one.

    A launcher that does not say which process it was, or says it of this one's rank.
    """
    killed = [fault for fault in found if fault.kind == "killed" and SIGNALS[KILL] in fault.what]
    return [
        replace(fault, follows=False)
        if fault.kind == "host_memory"
        and any(is_near(end, fault) and owners_of(end) in {(), owners_of(fault)} for end in killed)
        else fault
        for fault in found
    ]


def _aborted(exits: Sequence[Exit], fault: Failure) -> tuple[int, ...]:
    """Return the one rank that launchers name as first and as ended by SIGABRT: how a runtime ends on a device's fault.

    Not where the fault names another process; a pod's launcher numbers processes otherwise than its node. Where a
    watchdog spoke that signal may be its own. Where several ranks of a host ended so, each runtime may have seen the
    reset of GPUs that are linked to the faulty one, and which was seen first is chance.
    """
    ended = [end for end in exits if signal_of(end.code) == ABORT]
    first = [end for end in ended if end.first]
    ranked = {end.rank: end.pid for end in first if end.rank is not None}
    others = [end for end in first if end.rank is None and (end.pid is None or end.pid not in ranked.values())]
    if len(ranked) != 1 or others:
        return ()
    own = next(end for end in first if end.rank in ranked)
    is_alike = not fault.host or not own.host or short_host(fault.host) == short_host(own.host)
    if is_alike and None not in {fault.pid, own.pid} and fault.pid != own.pid:
        return ()
    beside = [end for end in ended if end.rank not in {None, own.rank} and _is_beside(end, own)]
    return () if beside else tuple(ranked)


def _is_beside(end: Exit, own: Exit) -> bool:
    """Whether a process may have ended with another, on its host: no clock says that it did so later."""
    if end.host and own.host and not may_be_same_host(end.host, own.host):
        return False
    return end.time_s is None or own.time_s is None or abs(end.time_s - own.time_s) <= CLOCKS_S


def least_evidence(facts: list[Fact]) -> Failure | None:
    """Return the first of what usually follows from a fault elsewhere, for where nothing else shows."""
    return next(iter(all_least_evidence(facts)), None)


def all_least_evidence(facts: list[Fact]) -> list[Failure]:
    """Return what usually follows from a fault elsewhere, notices that the whole job was ended before all others.

    What ended the job from outside (a time limit) says more than an error that a broken peer leaves behind. Not where
    an agent was told to end only after the process that held the store, on another host, was gone: that came first.
    """
    found = [f for f in of(facts, Failure) if f.kind in _LEAST_ORDER and f.follows and not f.is_over]
    ends = [end for end in of(facts, Exit) if end.first and signal_of(end.code) in CONSEQUENCES]
    gone = [f for f in found if f.kind == "killed" and not f.is_general]
    agents = {ended.where for ended in of(facts, AgentEnded)}
    found = [f for f in found if f.where not in agents or not any(one.where.before(f.where) for one in gone)]
    found += [replace(exit_fault(end), follows=True) for end in ends]
    no_user = f"{BY_REQUEST} of user"
    return sorted(
        found,
        key=lambda one: (not one.is_general, _LEAST_ORDER.index(one.kind), not one.what.startswith(no_user)),
    )


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
    if not any(set(owners_of(fault)) & set(position.blamed) for fault in devices):
        return list(found)
    waiting = set(position.waiting)
    others = [f for f in devices if owners_of(f) and set(owners_of(f)) <= waiting and not is_ordered(f, waited)]
    return [fault for fault in found if fault not in others]


def _without_unowned(found: Sequence[Failure], position: HangPosition | None, facts: list[Fact]) -> list[Failure]:
    """Return the faults without those of others' GPUs, no line says whose, where the one who is missing has its own."""
    blamed = position.blamed if position is not None and position.certain else ()
    if len(blamed) != 1 or not any(owners_of(fault) == blamed for fault in found):
        return list(found)
    return [f for f in found if f.kind != "device" or owners_of(f) or can_be_of(f, blamed[0], facts)]


def _with_former_errors(found: Sequence[Failure], position: HangPosition | None, facts: list[Fact]) -> list[Failure]:
    """Return the faults; GPUs' counts of errors at any time are some, unless the calls or the stacks blame another."""
    counts = [fault for fault in found if fault.kind == "device" and COUNTED in fault.what]
    if not counts:
        return list(found)
    told = position if position and position.certain else by_stacks(of(facts, StackTrace))
    is_told = told is not None and told.certain and bool(told.blamed or told.kind in _OF_PROGRAMS)
    blamed = set(told.blamed) if told is not None else set()
    ours = [fault for fault in counts if not is_told or set(owners_of(fault)) & blamed]
    return [replace(fault, follows=False) if fault in ours else fault for fault in found]


def _is_of_limit(fault: Failure, facts: list[Fact]) -> bool:
    """Whether an error came after the job was ended for its time: the signal leaves errors, and broken links."""
    if fault.kind not in _BY_LIMIT or fault.is_general:
        return False
    return any(end.where.before(fault.where) for end in of(facts, TimeUp))


def _ended_the_broken(fault: Failure, facts: list[Fact]) -> bool:
    """Whether a job was ended from outside long after ranks had lost their peers, by the clock."""
    if fault.kind != "killed" or not fault.is_general or fault.where.time_s is None:
        return False
    lost_s = [f.where.time_s for f in of(facts, PeerLost) if f.where.is_utc == fault.where.is_utc and f.where.time_s]
    return bool(lost_s) and fault.where.time_s - min(lost_s) > _LATE_S


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
    if set(owners_of(fault)) & waiting:
        return bool(orders) and all(order is True for order in orders) and fault.kind != "exception"
    return fault.is_summary or not after


def _first(found: Sequence[Failure]) -> Failure:
    """Return the fault before which none is known to be; of several that cannot be ordered, the one that tells most."""
    first = [
        fault
        for fault in found
        if not any(other.where.before(fault.where) and (owners_of(other) or other.is_general) for other in found)
    ] or list(found)
    known = [fault for fault in first if fault.kind != "network"] or first
    return min(known, key=lambda fault: (ORDER.index(fault.kind), not owners_of(fault)))


def _alike(fault: Failure, first: Failure) -> bool:
    """Whether two faults are one: the same text on several ranks, or two lines on one rank, process, pod or GPU."""
    if (address := _address(fault)) is not None and address == _address(first):
        return True
    if fault.bus_id and same_bus(fault.bus_id, first.bus_id) and fault.host == first.host:
        return True
    if fault.pod and fault.pod == first.pod:
        return True
    return _said(fault) == _said(first) or (bool(owners_of(fault)) and owners_of(fault) == owners_of(first))


def _said(fault: Failure) -> str:
    """Return how a fault begins; numbers of an exception, or of a process that is held, are the rank's own.

    So are what was free where memory ran out, and the GPU: what was wanted is alike.
    """
    if fault.kind == "device_memory":
        return fault.what.partition(" wanted")[0].partition(" on GPU")[0]
    numbered = fault.kind in {"exception", "host"} or (fault.is_summary and fault.rank is not None)
    return re.sub(r"\d+", "#", fault.what)[:40] if numbered else fault.what[:40]


def _same_rank(found: Iterable[Failure], first: Failure, ranks: tuple[int, ...]) -> list[Failure]:
    """Return the faults of the rank of the first one, or of the one rank to which another of them led."""
    own = owners_of(first) or (ranks if len(ranks) == 1 else ())
    return [fault for fault in found if own and owners_of(fault) == own]
