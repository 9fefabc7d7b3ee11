"""The rank that uses a GPU, an NPU, a core or a port: all that speaks of a device asks here.

A device has an address, a number that its host counts, or a port near it. NCCL's Init lines and tables of scripts join
address and rank; tables of the host join address and number; who is where joins a number on a host and a rank.
"""

import re
from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from ..nouns.facts import Fact, of
from ..nouns.identities import Adapters, DeviceFile, GpuPlace, NearPort, PortUse, RankIdentity, VisibleGpus
from ..nouns.names import same_bus
from ..nouns.where import Where
from ..nouns.world import identities_of, may_be_same_host, ranks_seen, short_host, world_of
from .hosts import host_of_file, rank_on_host

_FOLDER = re.compile(r"(?:device|davinci|accel)-?(?P<number>\d{1,2})")  # of what was collected from one device


class NamedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device as a line names it: by its address or its `number`, `of` how many its host counts in a table.

    A program counts the ones it is given (`is_given`), tables of a host all of them.
    """

    where: Where
    host: str = ""
    bus_id: str = ""
    number: int | None = None
    of: int | None = None
    is_given: bool = False


def rank_of_device(device: NamedDevice, facts: list[Fact]) -> int | None:
    """Return the one rank that uses a device: by its address, else by its number; None where it is not told."""
    identities = identities_of(facts)
    ranks = ranks_of_address(device, facts)
    if len(ranks) == 1:
        return ranks.pop()
    number, size = counted_place(device, facts)
    rank = None if ranks or number is None else _rank_of_number(device, number, size, facts)
    return _of_only_gpu(device.host, identities, facts) if rank is None and not device.is_given else rank


def _rank_of_number(device: NamedDevice, number: int, size: int | None, facts: list[Fact]) -> int | None:
    """Return the rank that has a number, of `size` on its host: by a script's table, else by who is where."""
    told = set() if device.is_given else _told_of_number(number, device.host, identities_of(facts))
    if told:
        return min(told)
    if size and size == _everyone(facts):
        return number  # its host has all ranks of the job
    return rank_on_host(number, device.host, device.where, facts, size=size)


def rank_of_port(port: str, host: str, where: Where, facts: list[Fact]) -> int | None:
    """Return the one rank that uses a port of a host: over which NCCL sends, else the one whose GPU is nearest to it.

    None where several share it, or it is not told.
    """
    ranks = ranks_of_port(port, host, facts)
    near_ = {(one.gpu, one.gpus) for one in of(facts, NearPort) if one.device == port}
    if ranks or len(near_) != 1:
        return ranks.pop() if len(ranks) == 1 else None
    gpu, gpus = near_.pop()  # where its host has one rank for each GPU
    return rank_of_device(NamedDevice(host=host, number=gpu, of=gpus, where=where), facts)


def ranks_of_port(port: str, host: str, facts: list[Fact]) -> set[int]:
    """Return the ranks whose processes send or receive over a port of a host, by NCCL's channels and list of ports."""
    lists = {one.ports for one in of(facts, Adapters) if short_host(one.host) == short_host(host)}
    if len(lists) != 1 or port not in (ports := lists.pop()):
        return set()
    place = ports.index(port)
    uses = [one for one in of(facts, PortUse) if short_host(one.host) == short_host(host) and one.place == place]
    users = {one.pid for one in uses}
    return {i.rank for i in identities_of(facts) if i.pid in users and short_host(i.host) == short_host(host)}


def ranks_of_address(device: NamedDevice, facts: list[Fact]) -> set[int]:
    """Return the ranks that lines give an address, or the name of its device file, on a host that may be the device's.

    Two of them where the address and the name lead to different ranks.
    """
    own = names_of_device(device.bus_id, device.host, facts)
    fitting = near(device.host, identities_of(facts)) if own else ()
    return {i.rank for i in fitting if i.bus_id and any(same_bus(i.bus_id, bus) for bus in own)}


def names_of_device(bus_id: str, host: str, facts: list[Fact]) -> set[str]:
    """Return an address with the name of the device file that lines of its host put beside it, or the other way."""
    files = [one for one in of(facts, DeviceFile) if not host or not one.host or may_be_same_host(one.host, host)]
    pairs = [{one.name, one.bus_id} for one in files]
    return {bus_id}.union(*(pair for pair in pairs if bus_id in pair)) if bus_id else set()


def is_of_no_rank(bus_id: str, host: str, identities: Sequence[RankIdentity], facts: list[Fact]) -> bool:
    """Return whether the GPU of every rank of the job is known by its address, and this address is none of theirs."""
    own = [one for one in identities if one.bus_id]
    world = world_of(facts) or max(ranks_seen(facts), default=0) + 1
    if not set(range(world)) <= {one.rank for one in own}:
        return False
    names = names_of_device(bus_id, host, facts)
    return not any(same_bus(one.bus_id, name) for one in near(host, own) for name in names)


def near(host: str, identities: Sequence[RankIdentity]) -> list[RankIdentity]:
    """Return the processes and GPUs of ranks that may be on a host, all of them where it is not told.

    Not of ranks that are known by the name of another host, where their addresses alone would not tell. Where others of
    the host are named with it, one that is named without a host is on another one.
    """
    if not host:
        return list(identities)
    named = [i for i in identities if i.host]
    here = {i.rank for i in named if short_host(i.host) == short_host(host)}
    away = {i.rank for i in named if not may_be_same_host(i.host, host)} - here
    fitting = [i for i in identities if (not i.host or may_be_same_host(i.host, host)) and i.rank not in away]
    return [i for i in fitting if i.host] if any(i.host == host for i in named) else fitting


def counted_place(device: NamedDevice, facts: list[Fact]) -> tuple[int | None, int | None]:
    """Return the number of a device as the job's programs count, and of how many; None where that is not told.

    By what its line says, else by a table of its host with the addresses of its GPUs. One that the job is not given has
    none.
    """
    number = device.number if device.number is not None else _number_in_table(device, facts)
    every = of(facts, VisibleGpus)
    host = device.host or host_of_file(device.where.file, facts)
    own = [one for one in every if host and short_host(_host_of(one, facts)) == short_host(host)]
    given = {one.devices for one in own or every}
    if number is None or not given or device.is_given:
        return number, device.of
    devices = given.pop()
    return (None, None) if given or number not in devices else (devices.index(number), device.of and len(devices))


def _host_of(given: VisibleGpus, facts: list[Fact]) -> str:
    """Return the host that has the GPUs of a list: the one that its line names, else its file; "" for none."""
    return given.host or host_of_file(given.where.file, facts)


def number_in_path(file: str) -> int | None:
    """Return the number of the one device whose folder a file lies in (`device-6/kernel.txt`), None for none."""
    folders = {int(found["number"]) for part in PurePath(file).parts[:-1] if (found := _FOLDER.fullmatch(part))}
    return folders.pop() if len(folders) == 1 else None


def _number_in_table(device: NamedDevice, facts: list[Fact]) -> int | None:
    """Return the number of a device by a table with its address: of its host, else of a host that may be it."""
    tables = [one for one in of(facts, GpuPlace) if device.bus_id and same_bus(one.bus_id, device.bus_id)]
    own = {one.device for one in tables if one.host and short_host(one.host) == short_host(device.host)}
    found = own or {one.device for one in tables if not one.host or not device.host}
    return found.pop() if len(found) == 1 else None


def _everyone(facts: list[Fact]) -> int | None:
    """Return the number of ranks of the job, where a line says it or none is missing among the seen ones.

    Ranks are seen by launchers' numbers on a host, too: that there are no others shows where none is missing.
    """
    seen = ranks_seen(facts)
    return world_of(facts) or (len(seen) if seen == set(range(len(seen))) else None)


def _told_of_number(number: int, host: str, identities: Sequence[RankIdentity]) -> set[int]:
    """Return the rank that a script's own table gives a device of a host, by its number; NCCL's counts otherwise."""
    own = [i for i in identities if i.host and host and short_host(i.host) == short_host(host) and i.ranks is None]
    ranks = {i.rank for i in own if i.device == number}
    return ranks if len(ranks) == 1 else set()


def _of_only_gpu(host: str, identities: Sequence[RankIdentity], facts: list[Fact]) -> int | None:
    """Return the rank of a host or pod whose tables list one GPU, where one rank is known to be there."""
    gpus = {gpu.bus_id for gpu in of(facts, GpuPlace) if host and short_host(gpu.host) == short_host(host)}
    ranks = {one.rank for one in identities if host and one.host and short_host(one.host) == short_host(host)}
    return ranks.pop() if len(gpus) == len(ranks) == 1 else None
