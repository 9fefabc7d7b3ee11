"""Ranks of processes that bear none: by their number or their GPU on a host, and by being the one that does not wait.

What is found here becomes an identity of the process, so that stacks, killed processes and held ones share it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from ..nouns.facts import Exit, Fact, Failure, StackTrace, of
from ..nouns.identities import (
    ChildProcess,
    FreeProcesses,
    HeldProcess,
    LocalProcess,
    RankIdentity,
    SameProcess,
)
from ..nouns.position import HangPosition
from ..nouns.world import identities_of, is_one_host, ranks_seen, short_host, world_of
from ..positions.stands import WAITS, stand_of
from .devices import NamedDevice, counted_place
from .exits import KILL, signal_of
from .hosts import host_of_file, rank_on_host, ranks_of_host

_GPU_IN_NAME = re.compile(
    r"(?:^|[._-])(?:local(?:[_-]?rank)?|lr|gpu|cuda|device|dev)[_-]?(?P<number>\d{1,2})(?=[._-])", re.IGNORECASE
)
_CALLERS = 2  # of a function that are alike
_FEW = 2  # stacks, of which one would not tell apart from the other
_ELSEWHERE = {"data", "host"}


def identities_by_numbers(facts: list[Fact]) -> list[RankIdentity]:
    """Return the ranks of the processes of which tables tell the number or the GPU on their host.

    So does a launcher of a process that was killed, of whose host's ranks other lines tell.
    """
    known = {identity.pid for identity in identities_of(facts)}
    killed = [end for end in of(facts, Exit) if signal_of(end.code) == KILL and end.rank is None]
    ended = [
        LocalProcess(pid=end.pid, number=end.local_rank, host=end.host, of_several=True, where=end.where)
        for end in killed
        if end.pid is not None and end.local_rank is not None
    ]
    tables = (of(facts, LocalProcess), ended)
    told = [one for table in tables for one in _ranked([one for one in table if one.pid not in known], facts)]
    ranks = {one.pid: (rank, one) for one, rank in told}
    return [RankIdentity(rank=rank, host=one.host, pid=pid, where=one.where) for pid, (rank, one) in ranks.items()]


def identities_on_machines(facts: list[Fact]) -> list[RankIdentity]:
    """Return the ranks of processes by their numbers on the machine, where those in their containers are known."""
    inner = {(same.inner, same.where.file): same for same in of(facts, SameProcess)}
    told = [(one, same) for one in identities_of(facts) for same in inner.values() if one.pid == same.inner]
    several = {one.pid for one, _ in told if len({i.rank for i, _ in told if i.pid == one.pid}) > 1}
    return [RankIdentity(rank=one.rank, pid=same.pid, where=same.where) for one, same in told if one.pid not in several]


def with_numbers_of_stacks(facts: list[Fact]) -> list[Fact]:
    """Return the facts, stacks that say only a number or a GPU on a host with the rank, where that is told."""
    told = [one for stack in of(facts, StackTrace) if (one := _numbered(stack))]
    ranks = {_key(one): rank for one, rank in _ranked(told, facts)}
    return [
        replace(fact, rank=ranks.get(_key(one))) if isinstance(fact, StackTrace) and (one := _numbered(fact)) else fact
        for fact in facts
    ]


def _numbered(stack: StackTrace) -> LocalProcess | None:
    """Return the process of a stack that bears a number on its host and no rank."""
    number = stack.device if stack.local_rank is None else stack.local_rank
    if stack.rank is not None or number is None:
        return None
    is_gpu = stack.local_rank is None
    return LocalProcess(pid=stack.pid, number=number, host=stack.host, is_gpu=is_gpu, where=stack.where)


def _key(one: LocalProcess) -> tuple[str, int, int | None, bool]:
    return one.host, one.number, one.pid, one.is_gpu


def _ranked(told: Sequence[LocalProcess], facts: list[Fact]) -> list[tuple[LocalProcess, int]]:
    """Return processes with their ranks, where these are told: by their GPUs, then by their numbers on a host."""
    return [one for is_gpu in (True, False) for one in _of_kind(told, facts, is_gpu=is_gpu)]


def _of_kind(told: Sequence[LocalProcess], facts: list[Fact], *, is_gpu: bool) -> list[tuple[LocalProcess, int]]:
    """Return processes with their ranks, by their numbers on a host or by those of their GPUs (`is_gpu`).

    A number is the rank where nothing shows more than one host; the number of a GPU only where every rank has a GPU
    here, from 0 on, for a job need not have all GPUs of a host.
    """
    numbered = list({_key(one): one for one in told if one.is_gpu == is_gpu}.values())
    given = [(one, number) for one in numbered if (number := _number_of(one, facts)) is not None]
    numbers = sorted(number for _, number in given)
    alone = len(set(numbers)) == len(numbers) and is_one_host(facts) and not any(one.of_several for one in numbered)
    if is_gpu:
        ranks = world_of(facts) or max(ranks_seen(facts), default=0) + 1
        alone = alone and numbers == list(range(len(numbers))) and ranks in {1, len(numbers)} and len(numbers) > 1
    found = []
    for one, number in given:
        host = one.host or host_of_file(one.where.file, facts)
        rank = number if alone else rank_on_host(number, host, one.where, facts)
        if rank is not None:
            found.append((one, rank))
    return found


def _number_of(one: LocalProcess, facts: list[Fact]) -> int | None:
    """Return the number of a process, or of its GPU among the ones that the job is given; None where it is not told.

    Tables of a host count all of its GPUs, and a job may be given some of them, or in another order. Where it is not
    said how a number is counted, it is known only if both ways lead to the same.
    """
    if not one.is_gpu or one.counts == "given":
        return one.number
    number, _ = counted_place(NamedDevice(host=one.host, number=one.number, where=one.where), facts)
    return number if one.counts == "all" or number == one.number else None


def with_held_ranks(facts: list[Fact]) -> list[Fact]:
    """Return the facts, and that the few ranks that stand in a call of the kernel do, where others of tables do not.

    Tables show the helpers of ranks too, which read data: only a process that is known to be a rank counts.
    """
    ranks: dict[int | None, list[RankIdentity]] = defaultdict(list)
    for identity in identities_of(facts):
        ranks[identity.pid].append(identity)
    held = {one: rank for one in of(facts, HeldProcess) if (rank := _rank_in(one, one.pid, ranks)) is not None}
    free = {_rank_in(one, pid, ranks) for one in of(facts, FreeProcesses) for pid in one.pids} - {None}
    free -= set(held.values())
    if not free or len(set(held.values())) > max(1, len(free) - 1):
        return facts
    return [
        *facts,
        *(
            Failure(kind="host", what=one.what, pid=one.pid, rank=rank, host=one.host, where=one.where.by(rank))
            for one, rank in held.items()
        ),
    ]


def _rank_in(
    seen: HeldProcess | FreeProcesses, pid: int, ranks: Mapping[int | None, Sequence[RankIdentity]]
) -> int | None:
    return _rank_of(pid, seen.host, ranks) if seen.rank is None else seen.rank


def _rank_of(pid: int, host: str, ranks: Mapping[int | None, Sequence[RankIdentity]]) -> int | None:
    """Return the one rank of a process, on its host where that is known; None where it is not told."""
    known = ranks.get(pid, ())
    own = [one for one in known if host and one.host and short_host(one.host) == short_host(host)] or known
    found = {one.rank for one in own}
    return found.pop() if len(found) == 1 else None


def with_missing_rank(facts: list[Fact], position: HangPosition | None) -> list[Fact]:
    """Return the facts, the one process that does not wait with the one rank that the others wait for.

    Only where each rank of the job has a stack, or the job has one host and several stacks there wait, or a stack that
    waits has come further in the very function in which that process stands; and where no stack or table says another
    process of that rank.
    """
    if position is None or position.kind != "absent" or not position.certain or len(position.blamed) != 1:
        return facts
    missing = position.blamed[0]
    every = [(stack, stand_of(stack)) for stack in of(facts, StackTrace)]
    stands = list({stand.name: (stack, stand) for stack, stand in every}.values())
    elsewhere = [(stack, stand) for stack, stand in stands if stand.kind not in WAITS]
    ranks = world_of(facts) or max({*ranks_seen(facts), missing}) + 1
    is_seen_among = len(stands) == ranks or (len(stands) > _FEW and is_one_host(facts))
    if len(elsewhere) != 1:
        return facts
    own, stand = elsewhere[0]
    if not is_seen_among and not any(_is_behind(own, other) for other, at in stands if at.kind in WAITS):
        return facts
    if own.rank is not None or stand.kind not in _ELSEWHERE or not _may_be(own, missing, facts):
        return facts
    named = {id(stack): replace(stack, rank=missing) for stack, other in every if other.name == stand.name}
    return [named.get(id(fact), fact) for fact in facts]


def without_hosts_number(fact: Fact, facts: list[Fact]) -> Fact:
    """Return a fact, a stack in a file named after a host without a rank that is none of that host's: its number."""
    if not isinstance(fact, StackTrace) or fact.rank is None:
        return fact
    host = PurePath(fact.where.file).stem
    ranks = ranks_of_host(host, facts) if short_host(host) == short_host(host_of_file(fact.where.file, facts)) else ()
    return replace(fact, rank=None, where=replace(fact.where, rank=None)) if ranks and fact.rank not in ranks else fact


def _is_behind(own: StackTrace, other: StackTrace) -> bool:
    """Whether another process of the program waits further below in a function in which this one stands.

    Its callers stand at the same lines in both.
    """
    mine, theirs = ({(f.file, f.function): f.line or 0 for f in one.frames} for one in (own, other))
    shared = mine.keys() & theirs.keys()
    ahead = [function for function in shared if mine[function] != theirs[function]]
    return len(shared) - len(ahead) >= _CALLERS and bool(ahead) and all(mine[f] < theirs[f] for f in ahead)


def without_helpers(facts: list[Fact]) -> list[Fact]:
    """Return the facts without stacks of helpers: children of ranks, and all others where each rank has one."""
    ranks, world = {stack.rank for stack in of(facts, StackTrace)} - {None}, world_of(facts)
    own = {identity.pid for identity in identities_of(facts)}
    children = {child.pid for child in of(facts, ChildProcess) if child.parent in own}
    is_whole = world is not None and len(ranks) >= world
    return [
        fact
        for fact in facts
        if not (isinstance(fact, StackTrace) and fact.rank is None and (is_whole or fact.pid in children))
    ]


def _may_be(stack: StackTrace, rank: int, facts: list[Fact]) -> bool:
    """Whether nothing says that a process is not a rank's: the rank of another stack, another process or host."""
    if any(other.rank == rank for other in of(facts, StackTrace)):
        return False
    known = [identity for identity in identities_of(facts) if identity.rank == rank]
    if any(None not in {identity.pid, stack.pid} and identity.pid != stack.pid for identity in known):
        return False
    host = stack.host or host_of_file(stack.where.file, facts)
    on_host = ranks_of_host(host, facts) if host else ()
    return not on_host or rank in on_host


def with_files_of_gpus(facts: list[Fact]) -> list[Fact]:
    """Return the facts, each stack that is alone in a file named after a GPU (`gpu3_pid812.txt`) with its number."""
    alone = Counter(stack.where.file for stack in of(facts, StackTrace))
    found: list[Fact] = []
    for fact in facts:
        if isinstance(fact, StackTrace) and fact.rank is None and fact.device is None and alone[fact.where.file] == 1:
            fact = replace(fact, device=gpu_of_file(fact.where.file))
        found.append(fact)
    return found


def gpu_of_file(file: str) -> int | None:
    """Return the number of the GPU after which a file is named (`gpu3_pid812.txt`), None for none."""
    named = _GPU_IN_NAME.search(PurePath(file).name)
    return int(named["number"]) if named else None
