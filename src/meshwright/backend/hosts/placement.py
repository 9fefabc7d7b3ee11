"""The ranks of a group by host, as they find when they meet; and which hosts are near each other."""

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch.distributed as dist

from ..group.meeting import Meeting, meet_ranks
from ..local.reach import ProcessPlace, RankSocket, Reached
from .machine_names import HOST_VARIABLE, boot, namespace

SWITCHES_VARIABLE = "MESHWRIGHT_SWITCHES"  # those above this host, the highest first: "spine0.leaf3"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One rank of a group: where it runs, and how many processors it may use."""

    rank: int  # in the group
    world_rank: int  # in the job: the one that people know
    host: str  # a name for people
    identity: str  # of its host: equal for the ranks that share memory
    pid: int
    cores: tuple[int, ...]
    switches: tuple[str, ...] = ()  # above its host, the highest first; empty where nobody says
    processes: str = ""  # the namespace in which `pid` counts; empty where that is unknown

    def shares_pids_with(self, other: "GroupMember") -> bool:
        """Return whether both are on one host and in one process namespace, so that each finds the other by its pid."""
        return self.identity == other.identity and self.processes == other.processes != ""

    def __str__(self) -> str:
        return f"rank {self.world_rank} (host {self.host}, pid {self.pid})"


def this_member(rank: int) -> GroupMember:
    """Describe the calling process as `rank` of a group."""
    pretended = os.environ.get(HOST_VARIABLE)
    return GroupMember(
        rank=rank,
        world_rank=dist.get_rank() if dist.is_initialized() else rank,  # the first group to be made is the job's
        host=pretended or socket.gethostname(),
        identity=f"{pretended or ''}|{host_identity()}",  # until it is tried with whom it shares memory
        pid=os.getpid(),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        switches=switches_above(os.environ),
        processes=namespace("pid"),
    )


def switches_above(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the switches above this host, the highest first: as told, or as SLURM's topology plugin tells its tasks.

    SLURM says "core.leaf3.node7", and in a pattern beside it, "switch.switch.node", that the last part is the node.
    """
    told = environment.get(SWITCHES_VARIABLE)
    if told is None:
        levels = environment.get("SLURM_TOPOLOGY_ADDR_PATTERN", "").count(".")
        told = ".".join(environment.get("SLURM_TOPOLOGY_ADDR", "").split(".")[:levels])
    return tuple(part for part in told.split(".") if part)


def host_identity() -> str:
    """Return a name of this machine and network, as far as they can be told apart without asking anybody.

    Containers of one machine may share the host name, and so may machines of a cluster; clones of one virtual machine
    may share everything.
    """
    return "|".join((socket.gethostname(), boot(), namespace("net")))


def _machine() -> str:
    """Return what ranks that can share memory have in common, "" where that cannot be read."""
    parts = (boot(), namespace("net"))
    return "|".join(parts) if all(parts) else ""


class _Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's contribution to a meeting."""

    member: GroupMember
    place: ProcessPlace
    word: str  # of the rank that called the meeting


@dataclass(frozen=True, slots=True)
class Roster:
    """The ranks of one try to make a group, in their order, and what each has said and found."""

    meeting: Meeting
    members: tuple[GroupMember, ...]  # of one identity if they reach each other and are of one user: a host
    networks: tuple[int, ...]  # the lowest rank that each reaches over the network of its machine
    apart: tuple[str, ...]  # why a rank that leads a host does not share the memory of a lower one
    words: tuple[str, ...]


def call_roster(store: Any, rank: int, size: int, door: RankSocket, word: Callable[[], str]) -> Roster:
    """Return the roster, once each rank has tried which others it reaches. Blocks; all ranks; `word` is ours.

    InputError on all ranks where `word` raises it on one.
    """
    me = this_member(rank)
    place = ProcessPlace(door=door.name, pretended=os.environ.get(HOST_VARIABLE, ""), machine=_machine())

    def say() -> str:
        return msgspec.json.encode(_Arrival(member=me, place=place, word=word())).decode()

    def look(said: list[str]) -> str:
        found = door.look([msgspec.json.decode(text, type=_Arrival).place for text in said])
        return msgspec.json.encode(found).decode()

    meeting = meet_ranks(store, rank, size, say, look)
    arrivals = [msgspec.json.decode(said, type=_Arrival) for said in meeting.said]
    reached = [msgspec.json.decode(answer, type=Reached) for answer in meeting.answers]
    leads = [answer.leader == peer for peer, answer in enumerate(reached)]
    leaders = [answer.leader if leads[answer.leader] else peer for peer, answer in enumerate(reached)]
    members = tuple(
        replace(arrival.member, identity=f"{arrivals[leader].member.identity}|{leader}")
        for arrival, leader in zip(arrivals, leaders, strict=True)
    )
    apart = tuple(answer.why if leads[peer] else "" for peer, answer in enumerate(reached))
    networks = tuple(answer.network for answer in reached)
    return Roster(meeting, members, networks, apart, tuple(arrival.word for arrival in arrivals))


def exchange_placements(store: Any, rank: int, size: int) -> tuple[GroupMember, ...]:
    """Tell the other ranks where this one runs and return all members in the order of the ranks. Blocks; all ranks."""
    with RankSocket(rank, size) as door:
        roster = call_roster(store, rank, size, door, str)
    roster.meeting.gather("met", "")
    return roster.members


def hosts_of(members: Iterable[GroupMember]) -> list[tuple[int, ...]]:
    """Return the ranks of each host. Hosts under one switch are neighbours, at each level; else by their lowest rank.

    A ring over the hosts in this order crosses each switch's uplink once each way.
    """
    groups: dict[str, list[GroupMember]] = {}
    for member in members:
        groups.setdefault(member.identity, []).append(member)
    if len(groups) == 1:
        return [tuple(member.rank for member in host) for host in groups.values()]
    from ...cluster.proximity import nearest_hosts  # for groups of several hosts

    return nearest_hosts(([member.rank for member in host], host[0].switches) for host in groups.values())
