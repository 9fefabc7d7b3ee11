"""Ranks of a host or a pod, by everything in the files that tells them.

Torchrun's agents list them; NCCL's Init lines, launchers and labels in front of lines show where each rank speaks;
numbers in names go on as those of their siblings do.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TypeGuard

from msgspec.structs import replace

from ..nouns.facts import Exit, Fact, Failure, PortDown, SlowRank, of
from ..nouns.identities import (
    AgentRanks,
    GpuPlace,
    HostList,
    NumberedHosts,
    Placed,
    PortErrors,
    PortName,
    RankIdentity,
    Spoke,
)
from ..nouns.names import same_bus
from ..nouns.where import Where
from ..nouns.world import identities_of, is_address, ranks_of_job, ranks_seen, short_host, world_of

SWITCH_PORT = "port of a switch: "  # how a fault of one begins
_NUMBERED = re.compile(r"(?P<job>.*?)(?P<number>\d+)")
# Kubernetes draws them from an alphabet without vowels
_SUFFIXED = re.compile(r"(?P<pod>.*\d)-(?=\d*[a-z])[bcdfghjklmnpqrstvwxz2456789]{5}")
_OF_SET = re.compile(r"(?P<set>.+)-(?P<job>\d{1,5})-(?P<pod>\d{1,5})")  # of a JobSet
_ROLED = re.compile(r"(?P<job>.+)-(?P<role>master|worker)-(?P<number>\d{1,5})")
_HOST_WORD = re.compile(r"(?<![A-Za-z0-9])(?:node|host|machine)[_-]?\d{1,5}(?![A-Za-z0-9])")  # in a file's name
_OF_HOSTS = {"device", "network", "host"}
_MOST_OF_POD = 128  # ranks
MOST_ON_HOST = 16  # ranks
_ENOUGH = 2  # hosts that show how their numbers go with ranks
_GENERAL = {"logs", "log", "stderr", "stdout", "out", "err", "output", "console", "consoles", "nccl", "train", "debug"}


def places_of(where: Where) -> tuple[str, ...]:
    """Return what a line's host may be called: by the label in front of it, else by its file, the folder or a word."""
    if where.host:
        return (short_host(where.host),)
    path = PurePath(where.file)
    stem = path.name.split(".")[0]
    words = {word[0] for word in _HOST_WORD.finditer(stem)}
    names = [stem, *(part for part in path.parts[-2:-1]), *(words - {stem} if len(words) == 1 else ())]
    return tuple(name for name in names if name.lower() not in _GENERAL and not name.isdecimal())


def without_suffix(name: str) -> str:
    """Return the name of a numbered pod without the letters that a Job of Kubernetes puts behind its number."""
    found = _SUFFIXED.fullmatch(name)
    return found["pod"] if found else name


def is_same_place(one: str, other: str) -> bool:
    """Return whether two names may be of one host or pod: one may lack the name of its job in front."""
    one, other = without_suffix(short_host(one)), without_suffix(short_host(other))
    return one == other or one.endswith(f"-{other}") or other.endswith(f"-{one}")


def ranks_of_host(name: str, facts: list[Fact], siblings: Iterable[str] = ()) -> tuple[int, ...]:
    """Return the ranks of a host, a pod or the one pod of a node, in order; () where the files do not tell them all.

    `siblings` are all other pods of the job, where they are known: what their ranks leave are its own.
    """
    known = _known(facts)
    own = {ranks for place, ranks in known.items() if is_same_place(place, name)}
    if not own:
        pods = {placed.pod for placed in of(facts, Placed) if short_host(placed.node) == short_host(name)}
        if len(pods) == 1:
            own = {ranks for place, ranks in known.items() if is_same_place(place, next(iter(pods)))}
    if not own:
        pods = {*siblings, *(placed.pod for placed in of(facts, Placed))} - {name}
        world = world_of(facts)
        own = {ranks_by_number(name, known) or _left(name, set(siblings), known, world)}
        own = own if own != {frozenset()} else {_by_role(name, pods, known, facts) or _of_last(name, facts, world)}
        own = own if own != {frozenset()} else {_by_place(name, pods, known, facts)}
        own = {frozenset()} if world and any(rank >= world for ranks in own for rank in ranks) else own
    return tuple(sorted(next(iter(own)))) if len(own) == 1 else ()


def told_ranks_of(host: str, facts: list[Fact]) -> tuple[int, ...]:
    """Return the ranks of a host, in order, where the files tell of all of them: numbers alone go on for ever."""
    ranks = ranks_of_host(host, facts)
    return ranks if set(ranks) <= all_told(facts) else ()


def is_elsewhere(host: str, facts: list[Fact]) -> bool:
    """Return whether a host is none of the hosts in lists of agents or scripts that have all ranks of the job.

    Only of a name that goes on with theirs: a pod and the node that it is on are called differently.
    """
    listed = {short_host(fact.where.host): fact.ranks for fact in of(facts, AgentRanks) if fact.where.host}
    own = _NUMBERED.fullmatch(short_host(host))
    if own is None or not {rank for ranks in listed.values() for rank in ranks} >= all_told(facts):
        return False
    alike = {other["job"] for place in listed if (other := _NUMBERED.fullmatch(place))}
    return own["job"] in alike and not any(is_same_place(host, place) for place in listed)


def knows_all_hosts(facts: list[Fact]) -> bool:
    """Return whether lists of agents or scripts have the hosts of all ranks of the job."""
    listed = {rank for fact in of(facts, AgentRanks) if fact.where.host for rank in fact.ranks}
    return bool(listed) and listed >= all_told(facts)


def all_told(facts: list[Fact]) -> set[int]:
    """Return every rank that the files show to exist, by their number, who speaks and lists of hosts.

    Ranks count from 0: a host that has some has all below them before it.
    """
    last = max((rank for fact in of(facts, AgentRanks) for rank in fact.ranks), default=-1)
    return set(range(max(world_of(facts) or 0, last + 1))) | ranks_seen(facts)


def are_all(ranks: Iterable[int], facts: list[Fact]) -> bool:
    """Return whether these are all ranks of the job: what befell them all is no one's fault."""
    return set(ranks) >= all_told(facts)


def rank_on_host(number: int, host: str, where: Where, facts: list[Fact], *, size: int | None = None) -> int | None:
    """Return the rank that is counted as `number` on a host, or on that of a line; None where it is not told.

    `size` is how many the host counts, where that is known: it then has as many ranks.
    """
    for place in filter(None, (host,) if host else (*places_of(where), host_of_file(where.file, facts))):
        ranks = ranks_of_host(place, facts)
        if len(ranks) > 1 and number < len(ranks) and size in {None, len(ranks)}:
            return ranks[number]
    if size is not None:
        return None
    return number if _is_of_only_host(number, facts) else _by_launcher(number, host, where, facts)


def _is_of_only_host(number: int, facts: list[Fact]) -> bool:
    """Whether the job is too small for a second host as large as the one that counts a rank as `number`.

    Every rank of the job must speak, so that a group is not taken for it, and no two hosts be named.
    """
    world = world_of(facts)
    if world is None or not number < world < 2 * (number + 1) or not ranks_seen(facts) >= set(range(world)):
        return False
    return len({short_host(host) for fact in facts if (host := getattr(fact, "host", ""))}) < _ENOUGH


def _by_launcher(number: int, host: str, where: Where, facts: list[Fact]) -> int | None:
    """Return the rank of a number on the host of which a launcher says both of another rank, or of this one.

    Torchrun's agents give the ranks of a host numbers in a row. The host is the one that is named, or the one of whose
    launcher the file of a line is.
    """
    firsts: dict[str, set[int]] = defaultdict(set)
    for end in of(facts, Exit):
        if end.host and end.rank is not None and end.local_rank is not None:
            firsts[short_host(end.host)].add(end.rank - end.local_rank)
    here = {short_host(end.host) for end in of(facts, Exit) if end.host and end.where.file == where.file}
    place = short_host(host) if host else here.pop() if len(here) == 1 else ""
    own, others = firsts.get(place, set()), set[int]().union(*(f for name, f in firsts.items() if name != place))
    rank = min(own) + number if len(own) == 1 and number < MOST_ON_HOST else None
    world = world_of(facts)
    if rank is None or (world is not None and rank >= world) or any(min(own) < first <= rank for first in others):
        return None
    return rank


def _known(facts: list[Fact]) -> dict[str, frozenset[int]]:
    """Return the ranks of each host that are told as a whole, by the host's name.

    By agents' lists; else by who speaks where, if that shares all ranks of the job out to hosts of one size.
    """
    listed: dict[str, set[frozenset[int]]] = defaultdict(set)
    for fact in of(facts, AgentRanks):
        for place in places_of(fact.where)[:1] if fact.where.host else places_of(fact.where):
            listed[place].add(frozenset(fact.ranks))
    known = {place: next(iter(ranks)) for place, ranks in listed.items() if len(ranks) == 1}
    world = ranks_of_job(facts)
    known = {**_by_first_gpus(facts), **known}
    for shared in _shared_out(facts):
        if _is_whole(shared, world):
            known = {**{place: frozenset(ranks) for place, ranks in shared.items()}, **known}
        else:
            known = {**_in_blocks_of_pods(shared, facts), **known}
    return known


def _by_first_gpus(facts: list[Fact]) -> dict[str, frozenset[int]]:
    """Return the ranks of hosts of which some show their GPU's number: a host's first rank is that of its GPU 0.

    Only where these first ranks share all ranks of the job out to hosts of one size, in a row.
    """
    world, firsts = world_of(facts), dict[str, set[int]]()
    for one in identities_of(facts):
        if one.host and one.device is not None:
            firsts.setdefault(short_host(one.host), set()).add(one.rank - one.device)
    count = len(firsts)
    if count < _ENOUGH or not world or world % count or any(len(first) > 1 for first in firsts.values()):
        return {}
    size = world // count
    if sorted(min(first) for first in firsts.values()) != list(range(0, world, size)):
        return {}
    return {host: frozenset(range(min(first), min(first) + size)) for host, first in firsts.items()}


def _shared_out(facts: list[Fact]) -> Iterable[dict[str, set[int]]]:
    """Yield ways in which ranks are shared out to hosts: by identities, by labels, by files, by folders."""
    by_identity: dict[str, set[int]] = defaultdict(set)
    by_address: dict[str, set[int]] = defaultdict(set)
    for identity in identities_of(facts):
        if identity.host:
            (by_address if is_address(identity.host) else by_identity)[short_host(identity.host)].add(identity.rank)
    both = {**by_identity, **by_address} if by_identity and by_address else {}
    labels: dict[str, set[int]] = defaultdict(set)
    files: dict[str, set[int]] = defaultdict(set)
    folders: dict[str, set[int]] = defaultdict(set)
    for heard in of(facts, Spoke):
        if heard.where.host:
            labels[short_host(heard.where.host)].add(heard.rank)
            continue
        path = PurePath(heard.where.file)
        files[path.name.split(".")[0]].add(heard.rank)
        folders[path.parent.name].add(heard.rank)
    yield from (own for own in (both, by_identity, by_address, labels, files, folders) if own)


def _is_whole(shared: Mapping[str, set[int]], world: int) -> bool:
    """Whether every rank of the job is on one host alone, of several hosts that have ranks in a row, all as many.

    One rank more or less on a host, or one on two hosts, and it is not known who else is where.
    """
    sizes = {len(ranks) for ranks in shared.values()}
    everyone = sorted(rank for ranks in shared.values() for rank in ranks)
    rows = all(max(ranks) - min(ranks) == len(ranks) - 1 for ranks in shared.values())
    return len(shared) > 1 and len(sizes) == 1 and everyone == list(range(world)) and rows


def _in_blocks_of_pods(shared: Mapping[str, set[int]], facts: list[Fact]) -> dict[str, frozenset[int]]:
    """Return the ranks of pods of which only some speak, each in the block of the job's ranks that its number leads to.

    Kubernetes numbers the pods of a job, as nobody does hosts. Only where one size of blocks fits them all: a log may
    hold the first rank of each pod alone. Not the workers of a job with a master, which comes before them (`_by_role`).
    """
    pods = {placed.pod for placed in of(facts, Placed)} | {fault.pod for fault in of(facts, Failure) if fault.pod}
    jobs = {name["job"] for pod in pods if (name := _NUMBERED.fullmatch(without_suffix(pod)))}
    numbered: dict[str, dict[int, str]] = defaultdict(dict)
    led = {role["job"] for pod in {*pods, *shared} if (role := _ROLED.fullmatch(pod)) and role["role"] == "master"}
    for place in shared:
        name = _NUMBERED.fullmatch(without_suffix(place))
        if (role := _ROLED.fullmatch(without_suffix(place))) and role["job"] in led:
            continue
        if name and any(job == name["job"] or job.endswith(f"-{name['job']}") for job in jobs):
            numbered[name["job"]][int(name["number"])] = place
    found: dict[str, frozenset[int]] = {}
    world = world_of(facts) if numbered else None
    for places in numbered.values():
        spoken = [(number, rank) for number, place in places.items() for rank in shared[place]]
        most = min((world or 0) // (max(places) + 1), _MOST_OF_POD)
        sizes = [size for size in _fitting(spoken, most=most) if world and world % size == 0]
        if len(places) >= _ENOUGH and len(sizes) == 1 and sizes[0] >= _ENOUGH:
            size = sizes[0]
            found |= {place: frozenset(range(n * size, (n + 1) * size)) for n, place in places.items()}
    return found


def _fitting(spoken: Sequence[tuple[int, int]], *, most: int = _MOST_OF_POD) -> list[int]:
    """Return how many ranks each pod may have, where pods of these numbers speak as these ranks."""
    return [size for size in range(1, most + 1) if all(rank // size == number for number, rank in spoken)]


def ranks_by_number(name: str, known: Mapping[str, frozenset[int]]) -> frozenset[int]:
    """Return the ranks that the number in a host's or pod's name leads to, where at least two siblings show how.

    `known` are the ranks of the others by their names.
    """
    own = _NUMBERED.fullmatch(without_suffix(short_host(name)))
    if own is None:
        return frozenset()
    found: dict[int, frozenset[int]] = {}
    for place, ranks in known.items():
        other = _NUMBERED.fullmatch(without_suffix(place))
        if other and (other["job"] == own["job"] or own["job"].endswith(f"-{other['job']}")):
            found[int(other["number"])] = ranks
    sizes = {len(ranks) for ranks in found.values()}
    if len(found) < _ENOUGH or len(sizes) != 1:
        return frozenset()
    size = sizes.pop()
    steps = {min(ranks) - number * size for number, ranks in found.items()}
    if len(steps) != 1 or any(max(ranks) - min(ranks) != size - 1 for ranks in found.values()):
        return frozenset()
    start = int(own["number"]) * size + steps.pop()
    ranks = frozenset(range(start, start + size))
    return ranks if start >= 0 and not ranks & frozenset().union(*known.values()) else frozenset()


def _of_last(name: str, facts: list[Fact], world: int | None) -> frozenset[int]:
    """Return the ranks left to the one host of which no rank is known, called like the others but for a number.

    Each of the others has all its ranks known, as many as are left, and nothing else in the files is called so.
    """
    own = _NUMBERED.fullmatch(short_host(name))
    heard: dict[str, set[int]] = defaultdict(set)
    for identity in identities_of(facts):
        if identity.host:
            heard[short_host(identity.host)].add(identity.rank)
    for listed in of(facts, AgentRanks):
        if listed.where.host:
            heard[short_host(listed.where.host)].update(listed.ranks)
    if own is None or not heard or not world or short_host(name) in heard:
        return frozenset()
    left = frozenset(range(world)) - frozenset().union(*heard.values())
    rows = [frozenset(ranks) for ranks in (*heard.values(), left)]
    named = {short_host(host) for fact in facts for host in (getattr(fact, "host", ""), fact.where.host) if host}
    alike = {host for host in named if (other := _NUMBERED.fullmatch(host)) and other["job"] == own["job"]}
    is_only = heard.keys() <= alike and alike <= {*heard, short_host(name)}
    is_even = len({len(row) for row in rows}) == 1 and sum(map(len, rows)) == world
    return left if is_only and is_even and all(max(row) - min(row) == len(row) - 1 for row in rows) else frozenset()


def _by_place(name: str, pods: set[str], known: Mapping[str, frozenset[int]], facts: list[Fact]) -> frozenset[int]:
    """Return the ranks of a host by its place in SLURM's list, or of a pod by its index, where a command counts so.

    Not where that would give another host ranks that are known not to be its own, or all of them more than there are.
    """
    world = world_of(facts)
    jobs = {one.per_job for one in of(facts, NumberedHosts) if one.are_pods}
    for are_pods in (False, True):
        told = {one.per_host for one in of(facts, NumberedHosts) if one.are_pods == are_pods}
        places = {} if are_pods else _listed(facts)
        if are_pods and len(jobs) == 1:
            places = _indices(name, pods, next(iter(jobs)))
        if not told or not places:
            continue
        count = max(places.values()) + 1
        told = told - {None} or ({world // count} if world and world % count == 0 else set())
        size = told.pop() if len(told) == 1 else None
        own = next((number for place, number in places.items() if is_same_place(place, name)), None)
        if not size or own is None or (world and (count * size > world if are_pods else count * size != world)):
            continue
        shares = {place: frozenset(range(n * size, (n + 1) * size)) for place, n in places.items()}
        shown = [
            (ranks, known[other]) for place, ranks in shares.items() for other in known if is_same_place(place, other)
        ]
        if all(ranks == others for ranks, others in shown):
            return frozenset(range(own * size, (own + 1) * size))
    return frozenset()


def _listed(facts: list[Fact]) -> dict[str, int]:
    """Return the places of hosts in the one list of the job's."""
    lists = {tuple(short_host(host) for host in one.hosts) for one in of(facts, HostList)}
    return {host: place for place, host in enumerate(lists.pop())} if len(lists) == 1 else {}


def _indices(name: str, pods: set[str], per_job: int | None) -> dict[str, int]:
    """Return the indices of the pods of a pod's Job, by their names without suffixes; {} where it is one of several.

    Of a JobSet those of all its jobs, which have `per_job` pods each and are numbered in front of these.
    """
    if per_job is not None:
        every = [found for one in {name, *pods} if (found := _OF_SET.fullmatch(without_suffix(one)))]
        is_one = len({found["set"] for found in every}) == 1 and all(int(found["pod"]) < per_job for found in every)
        return {found[0]: int(found["job"]) * per_job + int(found["pod"]) for found in every} if is_one else {}
    numbered = {pod: found for one in {name, *pods} if (found := _NUMBERED.fullmatch(pod := without_suffix(one)))}
    own = numbered.get(without_suffix(name))
    jobs = {re.sub(r"\d+", "#", found["job"]): set[str]() for found in numbered.values()}
    for found in numbered.values():
        jobs[re.sub(r"\d+", "#", found["job"])].add(found["job"])
    if own is None or len(jobs[re.sub(r"\d+", "#", own["job"])]) > 1:
        return {}
    return {pod: int(found["number"]) for pod, found in numbered.items() if found["job"] == own["job"]}


def _by_role(name: str, pods: set[str], known: Mapping[str, frozenset[int]], facts: list[Fact]) -> frozenset[int]:
    """Return the ranks of a pod of a job with a master: that is the first, and the workers follow by their numbers.

    Kubeflow's PyTorchJob does so. Two pods of which the ranks are known must show how many each has, or the number of
    all ranks where all pods are known, or ranks that speak where one number alone fits them.
    """
    own = _ROLED.fullmatch(without_suffix(name))
    if own is None:
        return frozenset()
    shared = [(place, ranks) for one in _shared_out(facts) for place, ranks in one.items()]
    nodes = {
        pod: 0 if role["role"] == "master" else int(role["number"]) + 1
        for pod in {name, *pods, *known, *(place for place, _ in shared)}
        if (role := _ROLED.fullmatch(without_suffix(pod))) and role["job"] == own["job"]
    }
    shown = {nodes[place]: ranks for place, ranks in known.items() if place in nodes}
    count, world = len(set(nodes.values())), world_of(facts)
    sizes = {len(ranks) for ranks in shown.values()}
    spoken = [(nodes[place], rank) for place, ranks in shared if place in nodes for rank in ranks]
    if not sizes and world and world % count == 0 and set(nodes.values()) == set(range(count)) and count > 1:
        sizes = {world // count}
    elif len(shown) < _ENOUGH:
        sizes = set(_fitting(spoken)) if any(node for node, _ in spoken) else set()
    if len(sizes) != 1 or 0 not in nodes.values():
        return frozenset()
    size = sizes.pop()
    if any(ranks != frozenset(range(node * size, (node + 1) * size)) for node, ranks in shown.items()):
        return frozenset()
    return frozenset(range(nodes[name] * size, (nodes[name] + 1) * size))


def host_of_file(file: str, facts: list[Fact]) -> str:
    """Return the one host of those whose ranks are known that the path of a file names, "" for none."""
    return host_in_path(file, _known(facts))


def with_pods_of_nodes(facts: list[Fact]) -> list[Fact]:
    """Return the facts, what befell a node as of the one pod there whose ranks are known by its name.

    What befell a machine in a file whose path names one of the hosts befell that one; so with its GPUs and ports. A
    port of a switch is that of the host that its line names.
    """
    hosts = {identity.host for identity in of(facts, RankIdentity) if identity.host}
    pods: dict[str, set[str]] = defaultdict(set)
    for placed in of(facts, Placed):
        if placed.node:
            pods[short_host(placed.node)] |= {host for host in hosts if is_same_place(host, placed.pod)}
    with_bus = [identity for identity in of(facts, RankIdentity) if identity.bus_id]
    names = {short_host(host) for host in hosts}
    places = names | {short_host(fact.where.host) for fact in of(facts, AgentRanks) if fact.where.host}
    of_one = {fact.where.host for fact in of(facts, AgentRanks) if fact.where.host and len(fact.ranks) == 1}
    of_pods = _of_pods_machines(facts, places, pods)
    found = []
    for fact in facts:
        if isinstance(fact, Failure) and fact.what.startswith(SWITCH_PORT):
            if not (faced := host_in_path(fact.where.text, places)):
                continue  # it faces another job
            fact = replace(fact, host=faced)
        elif _is_of_some_host(fact):
            fact = replace(fact, host=host_in_path(fact.where.file, places))
        elif isinstance(fact, Failure) and _befell_machine(fact) and (host := of_pods.get(fact.where.file)):
            fact = replace(fact, host=host, pid=None)  # the machine's number of a process is not the pod's
        if isinstance(fact, Failure) and _took_a_process(fact) and fact.where.text.split(" ", 1)[0] in of_one:
            fact = replace(fact, pod=fact.where.text.split(" ", 1)[0], is_general=False)
        if isinstance(fact, Failure | SlowRank) and short_host(fact.host) not in names:
            there = pods.get(short_host(fact.host), set())
            there = {one.host for one in with_bus if one.host in there and same_bus(one.bus_id, fact.bus_id)} or there
            fact = replace(fact, host=min(there)) if len(there) == 1 else fact
        found.append(fact)
    return found


def _of_pods_machines(facts: list[Fact], places: set[str], pods: Mapping[str, set[str]]) -> dict[str, str]:
    """Return the host or pod that the path of a machine's log names, by file, where its own lines call it otherwise.

    Only where these lines are of one machine, which is neither a host of the job nor known to have other pods.
    """
    machines: dict[str, set[str]] = defaultdict(set)
    for fact in of(facts, Failure):
        if fact.host and _befell_machine(fact):
            machines[fact.where.file].add(short_host(fact.host))
    found: dict[str, str] = {}
    for file, own in machines.items():
        is_strange = not any(is_same_place(name, place) for name in own for place in places)
        if len(own) == 1 and is_strange and not own & pods.keys() and (named := host_in_path(file, places)):
            found[file] = named
    return found


def _took_a_process(fault: Failure) -> bool:
    """Whether a fault ended a process, and says neither its rank nor its host: a label in front of its line may."""
    return fault.kind == "killed" and (fault.rank, fault.pid, fault.host, fault.pod) == (None, None, "", "")


def _is_of_some_host(fact: Fact) -> TypeGuard[Failure | GpuPlace | SlowRank | PortDown | PortErrors | PortName]:
    """Whether a fact is of a machine and does not say of which."""
    if isinstance(fact, Failure):
        return not fact.host and fact.rank is None and fact.kind in _OF_HOSTS
    return isinstance(fact, GpuPlace | SlowRank | PortDown | PortErrors | PortName) and not fact.host


def _befell_machine(fault: Failure) -> bool:
    return fault.kind in _OF_HOSTS and fault.rank is None and not fault.ranks and not fault.pod


def host_in_path(file: str, places: Iterable[str]) -> str:
    """Return the one of several hosts that the path of a file names, "" for none."""
    told = [place for place in places if re.search(rf"(?<![A-Za-z0-9]){re.escape(place)}(?![A-Za-z0-9])", file)]
    return told[0] if len(told) == 1 else ""


def _left(name: str, siblings: set[str], known: Mapping[str, frozenset[int]], world: int | None) -> frozenset[int]:
    """Return the ranks that all other pods of the job leave to one, where each of those has as many."""
    listed = {pod: ranks for pod in siblings - {name} for place, ranks in known.items() if is_same_place(place, pod)}
    if not listed or listed.keys() != siblings - {name} or not world:
        return frozenset()
    left = frozenset(range(world)) - frozenset().union(*listed.values())
    return left if {len(ranks) for ranks in listed.values()} == {len(left)} else frozenset()
