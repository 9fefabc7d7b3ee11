"""Ranks of what failed: by process, GPU, task, pod or number on a host, as other lines tell them."""

import re
from collections.abc import Sequence
from pathlib import PurePath

from msgspec.structs import replace

from ..nouns.facts import Exit, Fact, Failure, PeerLost, SlowRank, Timeout, of
from ..nouns.identities import ChildProcess, Environment, RankIdentity, Spoke, Torchrun
from ..nouns.names import LOADER_WORKER, bus_number, same_bus
from ..nouns.world import identities_of, may_be_same_host, world_of
from .devices import NamedDevice, counted_place, names_of_device, near, number_in_path, rank_of_device, ranks_of_address
from .hosts import ranks_by_number, ranks_of_host

_WORKERS = re.compile(r"\b(\d+) Workers \(tasks")  # of Ray's summary
_OF_A_CGROUP = ("Memory cgroup out of memory", "constraint=CONSTRAINT_MEMCG")
_LOADER_WORKER = re.compile(LOADER_WORKER)


def with_rank(failure: Failure, identities: Sequence[RankIdentity], facts: list[Fact]) -> Failure:
    """Return the failure with its rank, where process, GPU, task or a log that bears its pod's name lead to one."""
    if failure.rank is not None:
        return failure
    fitting = near(failure.host, identities)
    ranks: set[int] = set()
    if failure.pid is not None:
        known = _of_process(failure.pid, fitting, facts)
        here = {i.rank for i in known if i.where.file == failure.where.file}
        ranks = here if len(here) == 1 else {i.rank for i in known}  # hosts may number their processes alike
    if not ranks and failure.bus_id:
        ranks = ranks_of_address(_device_of(failure), facts)
    if not ranks and failure.bus_id and failure.device is None:
        failure = replace(failure, device=counted_place(_device_of(failure), facts)[0])
    if not ranks and failure.kind == "device" and (failure.device, failure.pid, failure.bus_id) == (None, None, ""):
        failure = replace(failure, device=number_in_path(failure.where.file))
    if failure.ranks and not failure.pod and "NCCL" not in failure.where.text and of(facts, Torchrun):
        failure = replace(failure, ranks=())  # a task of SLURM is then a host's agent
    if not ranks and failure.ranks:
        ranks = set(failure.ranks)
    if not ranks and failure.pod:
        ranks = _of_pod(failure.pod, facts)
    if not ranks and (failure.device is not None or failure.kind == "device") and _counts_on_host(failure, facts):
        own = rank_of_device(_device_of(failure), facts)
        ranks = set() if own is None else {own}
    if len(ranks) == 1:
        rank = ranks.pop()
        return replace(failure, rank=rank, where=failure.where.by(rank))
    return failure


def _of_process(pid: int, fitting: Sequence[RankIdentity], facts: list[Fact]) -> list[RankIdentity]:
    """Return the identities of a process; of one that has none, a loader's worker, those of the one that started it."""
    seen = {pid}
    while not (known := [i for i in fitting if i.pid == pid]):
        parents = {child.parent for child in of(facts, ChildProcess) if child.pid == pid} - seen
        if len(parents) != 1:
            return []
        pid = parents.pop()
        seen.add(pid)
    return known


def with_said_again(found: Sequence[Failure]) -> list[Failure]:
    """Return the faults, the end of one process for memory with the rank that the same word names in another line.

    Ray's agent counts whom it killed on a host; the error that its driver prints names the process. The kernel names a
    loader's worker by its number, and so does the error of the rank whose worker it was.
    """
    ranks: dict[str, set[int | None]] = {}
    for fault in found:
        if fault.kind == "host_memory" and fault.pid is not None:
            ranks.setdefault(fault.what, set()).add(fault.rank)
    told = {what: next(iter(own)) for what, own in ranks.items() if len(own) == 1}
    workers = _ranks_of_workers(found)
    return [
        replace(fault, rank=rank)
        if fault.kind == "host_memory"
        and fault.rank is None
        and (rank := told.get(fault.what) if _is_of_one(fault) else workers.get(fault.pid)) is not None
        else fault
        for fault in found
    ]


def _ranks_of_workers(found: Sequence[Failure]) -> dict[int | None, int]:
    """Return the rank of each loader's worker that its error names by number: hosts may number two alike."""
    ranks: dict[int | None, set[int]] = {}
    for fault in found:
        if fault.rank is not None and (ended := _LOADER_WORKER.search(fault.where.text)):
            for number in re.findall(r"\d+", ended["pid"]):
                ranks.setdefault(int(number), set()).add(fault.rank)
    return {pid: min(own) for pid, own in ranks.items() if len(own) == 1}


def _is_of_one(fault: Failure) -> bool:
    """Whether a line tells of the end of one process, and names none."""
    counted = _WORKERS.search(fault.where.text)
    return (fault.rank, fault.pid, fault.ranks) == (None, None, ()) and (counted is None or int(counted[1]) == 1)


def _counts_on_host(failure: Failure, facts: list[Fact]) -> bool:
    """Whether the number of a fault is that of a rank on its host: a launcher's of who was killed, or a GPU's.

    Where every process calls its own GPU number 0, none has another number. Where a launcher in the same file saw only
    others give up, the numbers of GPUs are not those of the ranks.
    """
    if failure.is_summary:
        return failure.kind == "killed"
    if failure.kind == "device":
        return True
    ends = [end for end in of(facts, Exit) if end.where.file == failure.where.file and end.code > 0]
    numbers = {end.local_rank for end in ends} - {None}
    is_other = (bool(numbers) and failure.device not in numbers) or was_later(failure, facts)
    return failure.kind == "device_memory" and not is_other and any(fault.device for fault in of(facts, Failure))


def _made_steps_after(fault: Failure, rank: int, facts: list[Fact]) -> bool:
    """Whether a rank made several steps after an error, by their place in the log and by their clocks.

    What a process wrote before its end may stand behind its error, with the clocks of that time.
    """
    error_s = fault.where.above_s if fault.where.time_s is None else fault.where.time_s
    own = [spoke.late for spoke in of(facts, Spoke) if spoke.rank == rank and spoke.late is not None]
    return error_s is not None and any(
        late.file == fault.where.file and late.line > fault.where.line and (late.time_s or 0.0) > error_s
        for late in own
    )


def was_later(failure: Failure, facts: list[Fact]) -> bool:
    """Return whether another host's launcher saw a rank give up before the one in whose file a failure stands."""
    ends = [end for end in of(facts, Exit) if end.first and end.code > 0 and end.time_s is not None]
    own_s = [end.time_s or 0.0 for end in ends if end.where.file == failure.where.file]
    others_s = [end.time_s or 0.0 for end in ends if end.where.file != failure.where.file]
    return bool(own_s and others_s) and min(others_s) < min(own_s)


def _device_of(failure: Failure) -> NamedDevice:
    """Return the device that a fault befell; programs that run out of its memory count the ones they are given."""
    return NamedDevice(
        host=failure.host,
        bus_id=failure.bus_id,
        number=failure.device,
        is_given=failure.kind != "device",
        where=failure.where,
    )


def rank_of_gpu(gpu: SlowRank, facts: list[Fact]) -> int | None:
    """Return the rank that uses a slow GPU: by its address, or by its number where its host has one for each rank."""
    bus = bus_number(gpu.bus_id) if gpu.bus_id else ""
    number = None if gpu.rank is not None else gpu.device
    device = NamedDevice(host=gpu.host, bus_id=bus, number=number, of=gpu.devices or None, where=gpu.where)
    rank = rank_of_device(device, facts)
    return gpu.rank if rank is None else rank


def _of_pod(pod: str, facts: list[Fact]) -> set[int]:
    """Return the ranks that speak in the log of a pod; where there is none, the one that its siblings' logs lead to."""
    if whole := ranks_of_host(pod, facts):
        return set(whole)  # which one of several it was is another question
    if (own := _by_environment(pod, facts)) is not None:
        return {own}
    spoke: dict[str, set[int]] = {}
    for fact in of(facts, Spoke):
        spoke.setdefault(PurePath(fact.where.file).stem, set()).add(fact.rank)
    if pod in spoke:
        return spoke[pod]
    return set(ranks_by_number(pod, {name: frozenset(ranks) for name, ranks in spoke.items()}))


def _by_environment(pod: str, facts: list[Fact]) -> int | None:
    """Return the number that a pod's own line gives it as RANK; None where it may not be a rank.

    A description says so by itself where it shows one process, or as many as the job has ranks. Else it is where each
    pod has a number of its own, and the ranks that speak in pods are these numbers. Where torchrun
    starts several in each, RANK counts the pods: then ranks speak that have another number.
    """
    told = {host: one for one in of(facts, Environment) if (host := one.pod or one.where.host)}
    if (own := told.get(pod)) and own.pod and (own.has_local or _counts_processes(own, facts)):
        return own.number
    numbers = {host: one.number for host, one in told.items()}
    said = {(fact.where.host, fact.where.rank) for fact in facts if fact.where.host in numbers}
    spoken = {(host, rank) for host, rank in said if rank is not None}
    alike = all(numbers[host] == rank for host, rank in spoken) and any(rank for _, rank in spoken)
    return numbers.get(pod) if alike and len(set(numbers.values())) == len(numbers) else None


def _counts_processes(told: Environment, facts: list[Fact]) -> bool:
    """Whether by other files the ranks of the job are as many as a pod's WORLD_SIZE says: these are no pods then."""
    others = [fact for fact in facts if fact.where.file != told.where.file]
    return not of(facts, Torchrun) and world_of(others) == told.world


def leads_to(failure: Failure, identity: RankIdentity, facts: list[Fact]) -> bool:
    """Whether a line says that the process or the GPU of a failure is that of a rank."""
    if failure.pid is not None and failure.pid == identity.pid:
        return True
    return any(same_bus(identity.bus_id, bus) for bus in names_of_device(failure.bus_id, failure.host, facts))


def owners_of(fault: Failure) -> tuple[int, ...]:
    """Return the ranks that a fault befell, () where it is not known."""
    return (fault.rank,) if fault.rank is not None else fault.ranks


def is_of_cgroup(fault: Failure) -> bool:
    """Return whether a kernel killed a process for the memory of its group, as it does in containers."""
    return any(form in fault.where.text for form in _OF_A_CGROUP)


def can_be_of(fault: Failure, rank: int, facts: list[Fact]) -> bool:
    """Return whether nothing that is known of a rank speaks against its being the one that a fault befell."""
    known = [identity for identity in identities_of(facts) if identity.rank == rank]
    if fault.host and any(i.host and not may_be_same_host(i.host, fault.host) for i in known):
        return False
    if (whole := ranks_of_host(fault.host, facts) if fault.host else ()) and rank not in whole:
        return False
    pod = set(ranks_of_host(fault.pod, facts)) if fault.pod else set()
    waits: list[Timeout | PeerLost] = [*of(facts, Timeout), *of(facts, PeerLost)]
    if pod and (rank not in pod or pod & {wait.rank for wait in waits}):
        return False  # a pod of which one rank lived to complain did not end before
    # the kernel's number of a process in a container is not its own there
    by_pid = fault.pid is not None and not fault.bus_id and not is_of_cgroup(fault)
    if by_pid and any(i.pid is not None and i.pid != fault.pid for i in known):
        return False
    if fault.kind == "exception" and _made_steps_after(fault, rank, facts):
        return False
    local = fault.device
    if local is not None and any(i.device is not None and i.device != local for i in known):
        return False
    own = names_of_device(fault.bus_id, fault.host, facts)
    return not any(own and i.bus_id and not any(same_bus(i.bus_id, bus) for bus in own) for i in known)
