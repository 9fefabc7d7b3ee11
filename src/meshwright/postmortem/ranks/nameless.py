"""Errors without a rank in files that bear none: whose they are, by RANK in them, a process in their name, an exit."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePath

from msgspec.structs import replace

from ..nouns.facts import Exit, Fact, Failure, PeerLost, SharedMemoryFull, StoreWait, Timeout, of
from ..nouns.identities import RankIdentity, Spoke, Torchrun
from ..nouns.names import BY_ITSELF, NO_LONGER_HEARD
from ..nouns.world import A_HOST, identities_of, ranks_seen, short_host, world_of
from .exits import exit_fault, signal_of
from .hosts import ranks_of_host
from .owners import was_later, with_rank

_PROCESS = re.compile(r"(?<!\d)\d{3,8}(?!\d)")
_NUMBER = re.compile(r"(?P<head>(?:.*\D)?)(?P<number>\d{1,6})(?P<tail>\D*)")  # the last of a name
_KINDS = {"exception", "host_memory", "device_memory", "data", "host"}
_WAITS = (Timeout, PeerLost, StoreWait)
_TASK = re.compile(r"(?:^|[._-])(?:task|process|worker|host)[._-]?(?P<number>\d{1,4})(?=[._-])", re.IGNORECASE)
_ATTEMPT = re.compile(r"attempt_\d+/\d{1,3}")
_FEW = 2  # hosts, or logs of launchers
_LOADER = "a data loader's worker ended"
_SIGNALS = {"segm": 11, "bus ": 7, "ille": 4, "floa": 8, "corr": 6}  # of a crash, by how its words begin
_BUS_ERROR = re.compile(r"SIGBUS|bus error", re.IGNORECASE)


def with_owners(facts: list[Fact], by_file: Mapping[str, int]) -> list[Fact]:
    """Return the facts, errors that bear no rank with the one of which the rest tells; `by_file` are owners of files.

    An error is of the owner of its file, or the one rank that speaks there where each has a file; of the process in the
    file's name; of the one rank that a launcher saw give up first with a code, where the files have one such error and
    that rank does not say that it waited.
    """
    identities = identities_of(facts)
    owners = {**_by_process(facts, identities), **_alone(facts), **by_file}
    facts = _with_ends(facts)
    facts = [
        replace(fact, rank=owners[fact.where.file], where=fact.where.by(owners[fact.where.file]))
        if _is_nameless(fact) and fact.where.file in owners
        else fact
        for fact in facts
    ]
    for kinds in ({"device_memory"}, {"exception"}):
        own = [f for f in facts if _is_nameless(f) and isinstance(f, Failure) and not f.follows and f.kind in kinds]
        rank = _who_gave_up(facts, identities, own) if _is_one(own, facts) else None
        if rank is not None:
            facts = [replace(fact, rank=rank, where=fact.where.by(rank)) if fact in own else fact for fact in facts]
    return facts


def with_full_shared_memory(facts: list[Fact]) -> list[Fact]:
    """Return the facts, workers and processes that ended by a bus error as short of memory, where /dev/shm is full."""
    if not of(facts, SharedMemoryFull):
        return facts
    return [
        replace(fact, kind="host_memory", what=f"{fact.what}; /dev/shm is full")
        if isinstance(fact, Failure)
        and (fact.what.startswith(_LOADER) or (fact.kind == "killed" and _BUS_ERROR.search(fact.what)))
        else fact
        for fact in facts
    ]


def _with_ends(facts: list[Fact]) -> list[Fact]:
    """Return the facts, the one crash that a log without a rank tells of as that of the process that ended so there.

    A launcher tells in the same log which process a signal ended; not where several ended by the same.
    """
    crashes = [f for f in of(facts, Failure) if f.what.startswith(BY_ITSELF) and (f.rank, f.pid) == (None, None)]
    ends: dict[tuple[str, int], dict[int | None, Exit]] = {}
    for end in of(facts, Exit):
        ends.setdefault((end.where.file, signal_of(end.code)), {}).setdefault(end.pid, end)
    owned: dict[Failure, Failure] = {}
    for crash in crashes:
        own = ends.get((crash.where.file, _SIGNALS.get(crash.what.removeprefix(BY_ITSELF)[:4], 0)), {})
        alone = sum(other.where.file == crash.where.file for other in crashes) == len(own) == 1
        for end in own.values() if alone else ():
            number = end.local_rank if end.rank is None else None
            known = replace(crash, rank=end.rank, pid=end.pid, device=number, is_summary=True)
            owned[crash] = replace(known, where=crash.where.by(end.rank))
    return [owned.get(fact, fact) if isinstance(fact, Failure) else fact for fact in facts]


def _is_nameless(fact: Fact) -> bool:
    """Whether a fact is an error of which neither rank nor process, host or launcher is known."""
    if not isinstance(fact, Failure) or fact.kind not in _KINDS:
        return False
    return (fact.rank, fact.pid, fact.ranks, fact.host, fact.pod) == (None, None, (), "", "") and not (
        fact.is_over or fact.is_general or fact.is_summary
    )


def _is_one(errors: list[Failure], facts: list[Fact]) -> bool:
    """Whether errors are those of one process: in one file, none said twice, and nobody without a rank waits there."""
    said = Counter(error.what for error in errors)
    files = {error.where.file for error in errors}
    others = {fact.where.file for fact in facts if _is_left_waiting(fact) and getattr(fact, "rank", None) is None}
    gpus = {error.device for error in errors}
    return len(files) == len(gpus) == 1 and max(said.values()) == 1 and not files & others


def _is_left_waiting(fact: Fact) -> bool:
    """Whether a fact is of a process that waited for others; what a launcher raises at its end is of none."""
    return isinstance(fact, _WAITS) or (isinstance(fact, Failure) and fact.follows and not fact.is_over)


def by_numbers(facts: list[Fact]) -> dict[str, int]:
    """Return the ranks of files without a speaker, named like others but for a number: each other speaks for its own.

    Not where somebody else's file has lines of that rank.
    """
    speakers: dict[str, set[int]] = {fact.where.file: set() for fact in facts}
    for heard in of(facts, Spoke):
        speakers[heard.where.file].add(heard.rank)
    alike: dict[tuple[str, str], dict[str, int]] = {}
    for file in speakers:
        if name := _NUMBER.fullmatch(file):
            alike.setdefault((name["head"], name["tail"]), {})[file] = int(name["number"])
    spoken, world = set().union(*speakers.values()), world_of(facts)
    found: dict[str, int] = {}
    for numbers in alike.values():
        heard_of = [file for file in numbers if speakers[file]]
        if len(heard_of) > 1 and all(speakers[file] == {numbers[file]} for file in heard_of):
            silent = {file: number for file, number in numbers.items() if not speakers[file]}
            free = len(set(numbers.values())) == len(numbers)
            found |= {f: n for f, n in silent.items() if free and n not in spoken and (world is None or n < world)}
    return found


def by_folders(facts: list[Fact]) -> dict[str, int]:
    """Return the ranks of the logs that torchrun writes for each rank of a host, `attempt_1/3/stderr.log` below it.

    The last number counts on the host, whose agent lists its ranks anew for each attempt.
    """
    paths = [PurePath(file) for file in {fact.where.file for fact in facts if _is_nameless(fact)}]
    paths = [path for path in paths if _ATTEMPT.fullmatch("/".join(path.parts[-3:-1]))]
    hosts = {part: ranks_of_host(part, facts) for part in {part for path in paths for part in path.parts[:-3]}}
    found: dict[str, int] = {}
    for path in paths:
        own = {hosts[part] for part in path.parts[:-3]} - {()}
        ranks, local = own.pop() if len(own) == 1 else (), int(path.parent.name)
        if local < len(ranks):
            found[str(path)] = ranks[local]
    return found


def by_tasks(facts: list[Fact]) -> dict[str, int]:
    """Return the ranks of files that are named after tasks, where JAX's coordinator counts tasks of the job so.

    It names one of them by its number; each file has a number of its own.
    """
    named = {rank for fault in of(facts, Failure) if fault.what.startswith(NO_LONGER_HEARD) for rank in fault.ranks}
    named |= {f.rank for f in of(facts, Failure) if f.what.startswith(NO_LONGER_HEARD) and f.rank is not None}
    files = {fact.where.file for fact in facts}
    numbers = {file: int(task["number"]) for file in files if (task := _TASK.search(PurePath(file).name))}
    is_one = len(numbers) > 1 and len(set(numbers.values())) == len(numbers)
    return numbers if named and named <= set(numbers.values()) and is_one else {}


def _alone(facts: list[Fact]) -> dict[str, int]:
    """Return the ranks of the files in each of which one rank alone speaks, where they are all ranks of the job."""
    speakers: dict[str, set[int]] = {}
    for heard in of(facts, Spoke):
        speakers.setdefault(heard.where.file, set()).add(heard.rank)
    alone = {file: min(ranks) for file, ranks in speakers.items() if len(ranks) == 1}
    everyone = set(range(world_of(facts) or max(ranks_seen(facts), default=0) + 1))
    each = len(set(alone.values())) == len(alone) == len(speakers) > 1
    return alone if each and set(alone.values()) == everyone else {}


def _by_process(facts: list[Fact], identities: list[RankIdentity]) -> dict[str, int]:
    """Return the ranks of the files whose names have the number of one process of the job."""
    ranks: dict[int, set[int]] = {}
    for identity in identities:
        if identity.pid is not None:
            ranks.setdefault(identity.pid, set()).add(identity.rank)
    found: dict[str, int] = {}
    for file in {fact.where.file for fact in facts if _is_nameless(fact)}:
        named = [ranks[int(number)] for number in _PROCESS.findall(PurePath(file).name) if int(number) in ranks]
        if len(named) == 1 and len(named[0]) == 1:
            found[file] = min(named[0])
    return found


def _who_gave_up(facts: list[Fact], identities: list[RankIdentity], errors: list[Failure]) -> int | None:
    """Return the one rank that launchers name as the first to end, with a code and without having waited.

    A launcher in the file of the errors tells of the host where they were printed. Of several ranks that ended there
    with a code the errors may be any one's. The number of a GPU, where it is not 0, is that of the rank on its host.
    """
    every = [end for end in of(facts, Exit) if end.code > 0 and not signal_of(end.code)]
    ends = [end for end in every if end.first]
    here = [end for end in ends if end.where.file == errors[0].where.file]
    of_memory = errors[0].kind == "device_memory"
    if (of_memory and not here) or was_later(errors[0], facts):
        return None
    told_by = [end for end in every if end.where.file == errors[0].where.file] if of_memory else here or ends
    waited = {f.rank for f in facts if isinstance(f, _WAITS) or (isinstance(f, Failure) and f.follows)}
    are_agents = bool(of(facts, Torchrun))  # what SLURM counts as tasks
    hosts = {short_host(host) for fact in facts if (host := getattr(fact, "host", ""))}
    alone = len(hosts) < _FEW and max(ranks_seen(facts), default=0) < A_HOST
    alone = alone and len({end.where.file for end in ends}) < _FEW
    ranks, numbers = set(), set()
    for end in told_by:
        fault = with_rank(exit_fault(end), identities, facts)
        told = (fault.rank, None if are_agents else end.task, end.local_rank if alone else None)
        ranks.add(next((rank for rank in told if rank is not None), None))
        numbers.add(end.local_rank)
    rank = ranks.pop() if len(ranks) == 1 else None
    if of_memory and errors[0].device and numbers != {errors[0].device}:
        return None
    return None if rank in waited else rank
