"""The ranks that the files speak of, and how many there are."""

import re
from collections import defaultdict
from collections.abc import Iterable

from msgspec import structs
from msgspec.structs import replace

from .facts import Absentees, Fact, Fingerprint, GroupJoin, StackTrace, of
from .identities import AgentRanks, HostAddress, RankIdentity, Spoke, WorldSize
from .where import Where

MOST_RANKS = 2**17  # a larger number in a line is no rank
MOST_NUMBER = 2**63  # of a call, of bytes or elements
_RANKS = ("rank", "remote", "group_rank", "local_rank", "task", "place")
_LISTS = ("ranks", "never", "missing", "ready", "expected")  # of ranks; of some facts `ranks` is their number
_OF_CALLS = ("unfinished", "not_joined", "started")  # of reports: each a call, and at its end the ranks
_SAME = object()
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]*")
_HOST_IN_NAME = re.compile(r"(?:node|host|machine)[_-]?(?P<number>\d{1,5})(?!\d)", re.IGNORECASE)
A_HOST = 8  # ranks that usually share a host: as many silent ones in a row are a log that was not collected


def of_real_ranks(fact: Fact) -> Fact | None:
    """Return a fact without ranks that no job has, numbers of damaged lines; None where it tells of nobody else."""
    changed = {name: real for name in fact.__struct_fields__ if (real := _real(name, getattr(fact, name))) is not _SAME}
    if not changed:
        return fact
    if isinstance(fact, Absentees) and changed.get("ranks") == ():
        return None
    needed = {field.name for field in structs.fields(fact) if field.default is not None}
    if isinstance(fact, Spoke | GroupJoin | RankIdentity | Fingerprint) and "rank" in changed:
        return None
    lost = {name for name, value in changed.items() if value is None and name not in _RANKS}
    return None if lost & needed else replace(fact, **changed)


def _real(name: str, value: object) -> object:
    """Return what is real of a field of a fact: None of one number that is not; `_SAME` where all is."""
    found: object = value
    if isinstance(value, int):
        found = value if abs(value) < MOST_NUMBER and (name not in _RANKS or 0 <= value < MOST_RANKS) else None
    elif isinstance(value, Where) and value.rank is not None and not 0 <= value.rank < MOST_RANKS:
        found = replace(value, rank=None)
    elif isinstance(value, tuple) and name in _LISTS:
        found = _ranks(value)
    elif isinstance(value, tuple) and name in _OF_CALLS:
        found = tuple((*one[:-1], _ranks(one[-1])) for one in value if one[0] < MOST_NUMBER)
    return _SAME if found == value else found


def _ranks(ranks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(rank for rank in ranks if 0 <= rank < MOST_RANKS)


def is_address(host: str) -> bool:
    """Return whether a host is called by its address."""
    return _ADDRESS.fullmatch(host) is not None


def short_host(host: str) -> str:
    """Return the name of a host without its domain; an address as it is."""
    return host if is_address(host) else host.split(".")[0]


def names_of_addresses(facts: list[Fact]) -> dict[str, str]:
    """Return the names of hosts by their addresses, of addresses that lines give to one host alone."""
    names: dict[str, set[str]] = defaultdict(set)
    for one in of(facts, HostAddress):
        names[one.address].add(short_host(one.host))
    return {address: min(own) for address, own in names.items() if len(own) == 1}


def with_names_of_addresses(facts: list[Fact]) -> list[Fact]:
    """Return the facts, hosts that are called by their addresses by the names that lines give these."""
    names = names_of_addresses(facts)
    if not names:
        return facts
    return [replace(fact, host=name) if (name := names.get(getattr(fact, "host", ""))) else fact for fact in facts]


def may_be_same_host(one: str, other: str) -> bool:
    """Return whether two names may be of one host: of a name and an address or a container that is not known."""
    return _is_number(one) != _is_number(other) or short_host(one) == short_host(other)


def _is_number(host: str) -> bool:
    """Whether a host is called by its address, or a container by its own number."""
    return is_address(host) or re.fullmatch(r"[0-9a-f]{12}", host) is not None


def are_of_several_hosts(files: Iterable[str]) -> bool:
    """Return whether the names of files number several hosts: `node0.log`, `dmesg-node1.txt`."""
    return len({int(named["number"]) for file in files if (named := _HOST_IN_NAME.search(file))}) > 1


def ranks_seen(facts: Iterable[Fact]) -> set[int]:
    """Return every rank that some line names."""
    return {rank for fact in facts if isinstance(rank := getattr(fact, "rank", None), int) and 0 <= rank < MOST_RANKS}


def world_of(facts: list[Fact]) -> int | None:
    """Return the number of ranks where a line says it and no larger rank was told; None where it is not known."""
    sizes = [fact.ranks for fact in of(facts, WorldSize)]
    sizes += [fact.ranks for fact in of(facts, RankIdentity) if fact.ranks]
    largest = max((size for size in sizes if size <= MOST_RANKS), default=0)
    listed = (max(agent.ranks, default=0) for agent in of(facts, AgentRanks))
    return largest if largest > max((*ranks_seen(facts), *listed), default=0) else None


def ranks_of_job(facts: list[Fact]) -> int:
    """Return the number of ranks where a line says it, else as many as the largest one that some line names."""
    return world_of(facts) or max(ranks_seen(facts), default=-1) + 1


def is_one_host(facts: list[Fact]) -> bool:
    """Return whether nothing shows that the job has more than one host: names, ranks, or ranges of ranks.

    A launcher may say that one host has more ranks than is usual.
    """
    if are_of_several_hosts({fact.where.file for fact in facts}):
        return False
    hosts = {short_host(host) for fact in facts if (host := getattr(fact, "host", ""))}
    ranks = ranks_of_job(facts)
    is_small = ranks <= A_HOST or any(size.is_of_host and size.ranks == ranks for size in of(facts, WorldSize))
    shares = {fact.ranks for fact in of(facts, AgentRanks)}
    return len(hosts) < 2 and is_small and len(shares) < 2 and all(min(share, default=0) == 0 for share in shares)


def identities_of(facts: list[Fact]) -> list[RankIdentity]:
    """Return the processes and GPUs of the job's ranks.

    NCCL counts inside a communicator: only where that has all ranks is its number the job's. Where one number of the
    largest communicators is that of several GPUs, these are several groups of one size, and none is the job's. A dump
    of a stack that bears both a rank and a process joins them, too. What is told without a host is on the rank's only
    one.
    """
    told, world = of(facts, RankIdentity), world_of(facts)
    places: dict[int, set[tuple[str, str, int | None]]] = defaultdict(set)
    for one in told:
        if one.ranks == world and one.ranks is not None:
            places[one.rank].add((short_host(one.host), one.bus_id, one.device))
    several = any(len(found) > 1 for found in places.values())
    known = [one for one in told if one.ranks is None or (one.ranks == world and not several)]
    stacks = [one for one in of(facts, StackTrace) if one.rank is not None and one.pid is not None]
    known += [RankIdentity(rank=s.rank or 0, host=s.host, pid=s.pid, where=s.where) for s in stacks]
    hosts: dict[int, set[str]] = defaultdict(set)
    for one in known:
        if one.host:
            hosts[one.rank].add(one.host)
    return [
        replace(one, host=min(hosts[one.rank])) if not one.host and len(hosts.get(one.rank, ())) == 1 else one
        for one in known
    ]


def with_own_files(facts: list[Fact]) -> set[int] | None:
    """Return the ranks that have a file each, empty or not; None where ranks share files.

    Of a rank whose file is not among them nothing is known: that it is not heard is no silence.
    """
    speakers: dict[str, set[int]] = {}
    for fact in of(facts, Spoke):
        if fact.where.rank in {None, fact.rank}:
            speakers.setdefault(fact.where.file, set()).add(fact.rank)
    if len(speakers) < 2 or any(len(ranks) > 1 for ranks in speakers.values()):
        return None
    return {rank for ranks in speakers.values() for rank in ranks}
