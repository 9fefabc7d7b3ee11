"""Which ranks of a group share a host, found from the machines themselves; and which hosts are near each other."""

import json
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil
import torch.distributed as dist

from ..cluster.proximity import nearest_hosts
from ..errors import InputError

INTERFACE_VARIABLE = "MESHWRIGHT_INTERFACE"
HOST_VARIABLE = "MESHWRIGHT_HOST"  # pretends another host identity: tests of several hosts on one machine
SWITCHES_VARIABLE = "MESHWRIGHT_SWITCHES"  # those above this host, the highest first: "spine0.leaf3"


class KeyValueStore(Protocol):
    """The part of `torch.distributed.Store` that the rendezvous needs."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""

    def get(self, key: str) -> bytes:
        """Return a value, waiting for it as long as the store's timeout says."""


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of a group: where it runs, and how many processors it may use."""

    rank: int  # in the group
    world_rank: int  # in the job: the one that people know
    host: str  # a name for people
    identity: str  # equal on two ranks if and only if they can share memory
    pid: int
    cores: tuple[int, ...]
    switches: tuple[str, ...] = ()  # above its host, the highest first; empty where nobody says

    def __str__(self) -> str:
        return f"rank {self.world_rank} (host {self.host}, pid {self.pid})"


def this_member(rank: int) -> Member:
    """Describe the calling process as `rank` of a group."""
    pretended = os.environ.get(HOST_VARIABLE)
    return Member(
        rank=rank,
        world_rank=dist.get_rank() if dist.is_initialized() else rank,  # the first group to be made is the job's
        host=pretended or socket.gethostname(),
        identity=f"{pretended or ''}|{host_identity()}",
        pid=os.getpid(),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        switches=switches_above(os.environ),
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
    """Return what two processes have in common when they can share memory: kernel boot, network and process namespace.

    The name alone would not do: containers of one machine may share it, and so may machines of a cluster.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return "|".join((socket.gethostname(), boot, os.readlink("/proc/self/ns/net"), os.readlink("/proc/self/ns/pid")))


def exchange(store: KeyValueStore, rank: int, size: int) -> tuple[Member, ...]:
    """Tell the other ranks where this one runs and return all members in the order of the ranks. Blocks; all ranks."""
    me = this_member(rank)
    store.set(member_key(rank), json.dumps([me.world_rank, me.host, me.identity, me.pid, me.cores, me.switches]))
    return tuple(me if peer == rank else _member(peer, store.get(member_key(peer))) for peer in range(size))


def member_key(rank: int) -> str:
    """Return the store's key under which a rank describes itself."""
    return f"member/{rank}"


def hosts_of(members: Iterable[Member]) -> list[tuple[int, ...]]:
    """Return the ranks of each host. Hosts under one switch are neighbours, at each level; else by their lowest rank.

    A ring over the hosts in this order crosses each switch's uplink once each way.
    """
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(member.identity, []).append(member)
    return nearest_hosts(([member.rank for member in host], host[0].switches) for host in groups.values())


def _member(rank: int, text: bytes) -> Member:
    world_rank, host, identity, pid, cores, switches = json.loads(text)
    return Member(
        rank=rank,
        world_rank=world_rank,
        host=host,
        identity=identity,
        pid=pid,
        cores=tuple(cores),
        switches=tuple(switches),
    )


def network_address() -> str:
    """Return the address on which this rank listens for ranks of other hosts: one interface, never all.

    `MESHWRIGHT_INTERFACE` (or `GLOO_SOCKET_IFNAME`) names the interface; otherwise it is the one that leads to the
    launcher's `MASTER_ADDR`, and the loopback one if there is none.
    """
    name = os.environ.get(INTERFACE_VARIABLE) or os.environ.get("GLOO_SOCKET_IFNAME")
    if name:
        found = [a.address for a in psutil.net_if_addrs().get(name, []) if a.family == socket.AF_INET]
        if not found:
            raise InputError(f"{INTERFACE_VARIABLE}={name}: no such interface with an IPv4 address")
        return str(found[0])
    master = os.environ.get("MASTER_ADDR")
    if not master:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent: the kernel picks the route
        try:
            probe.connect((master, 9))
        except OSError as error:
            raise InputError(f"MASTER_ADDR={master}: no way there ({error.strerror})") from None
        return str(probe.getsockname()[0])
