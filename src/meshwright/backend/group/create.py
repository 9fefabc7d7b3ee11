"""Make a process group: find the ranks' hosts and choose what moves the bytes between them."""

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from torch._C._distributed_c10d import PrefixStore, Store

from ...device import accelerator_type, native_backend
from ...errors import InputError
from ...native import warn_once
from ..faults.failures import ArgumentError
from ..hosts.addresses import common_address, host_of_store, network_address
from ..hosts.placement import Roster, call_roster, hosts_of
from ..local.engine import GroupEngine, LocalEngine
from ..local.helper import load_helper
from ..local.memory import SLOT_VARIABLE, asked_slot_bytes, default_slot_bytes
from ..local.reach import RankSocket
from ..local.segment import share_memory
from .futures import load_futures
from .meeting import Meeting
from .native_calls import load_calls
from .options import resolved
from .process_group import MeshwrightGroup


class _Word(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's contribution to the making of a group, beside its identity."""

    slot_bytes: int
    is_asked: bool  # whether the user asks for slots of this size


def create_group(request: Any, options: object) -> MeshwrightGroup:
    """Return this rank's process group. Blocks until all its ranks have called it.

    `request` is torch's description of the group: a store that is theirs alone, rank, size and timeout; `options` are
    the user's `pg_options`, GroupOptions or None. What is wrong on one rank is raised on all, but for a rank that is
    none of the group's, for which nobody waits: ArgumentError at once.
    """
    store, rank, size = store_of_members(request), request.group_rank, request.group_size
    if not 0 <= rank < size:
        raise ArgumentError(f"rank {rank} of {size}: expected 0 to {size - 1} (RANK and WORLD_SIZE, or the call)")
    timeout_s = request.timeout.total_seconds()
    store.set_timeout(request.timeout)
    for load in (
        load_helper,
        load_calls,
        load_futures,
    ):  # built on a first start: no part of a later wait of the others
        load()
    with RankSocket(rank, size) as door:
        roster = call_roster(store, rank, size, door, lambda: _word(options))
        engine = _engine(roster, door, store, options, timeout_s)
    engine.barrier()
    own_store = roster.meeting.store
    own_store.forget()
    native, kind = native_backend(), accelerator_type()
    if native and kind:
        from .device_types import MixedGroup, native_group  # for accelerators only

        mixed = MixedGroup(own_store, rank, size, timeout_s, engine)
        mixed.hand_over(kind, lambda: native_group(native, kind, own_store, rank, size, timeout_s))
        group: MeshwrightGroup = mixed
    else:
        group = MeshwrightGroup(own_store, rank, size, timeout_s, engine)
    group.make = lambda store, rank, size, timeout: make_group(store, rank, size, timeout, options)
    return group


def store_of_members(request: Any) -> Store:
    """Return the store of a group, with keys that no group of other members has.

    torch numbers groups as each rank makes them: where the halves of a job each divide themselves (`new_subgroups` of a
    group), groups of other members have one name at a time, and would read and delete what the others say.
    """
    store: Store = request.store
    members = getattr(request, "global_ranks_in_group", None)
    if not members:  # all ranks, or a group made past torch.distributed
        return store
    return PrefixStore(hashlib.sha256(str([*members]).encode()).hexdigest()[:16], store)


def make_group(store: Store, rank: int, size: int, timeout: timedelta, options: object = None) -> MeshwrightGroup:
    """Return this rank's process group, made past `torch.distributed`, which knows nothing of it.

    For libraries that keep their own groups and make them again, such as torchft. Only this group uses `store`;
    `options` are GroupOptions or None. Blocks until all `size` ranks have called it; its end is `shutdown`, or `abort`.
    """
    return create_group(_Request(store, rank, size, timeout), options)


class _Request(NamedTuple):
    """A group to be made, described as torch describes one."""

    store: Store
    group_rank: int
    group_size: int
    timeout: timedelta


def _word(options: object) -> str:
    """Return what this rank brings; InputError where its settings are bad."""
    resolved(options)
    asked = asked_slot_bytes()
    word = _Word(slot_bytes=asked or default_slot_bytes(), is_asked=asked is not None)
    return msgspec.json.encode(word).decode()


def _engine(roster: Roster, door: RankSocket, store: Any, options: object, timeout_s: float) -> GroupEngine:
    """Return what moves the bytes of this rank. Blocks; all ranks."""
    meeting, rank = roster.meeting, roster.meeting.rank
    words = [msgspec.json.decode(word, type=_Word) for word in roster.words]
    if roster.apart[rank]:
        warn_once(f"ranks of one machine share no memory and talk over TCP: {roster.apart[rank]}")
    slot_bytes = _common_slot_bytes(meeting, hosts_of(roster.members), words)
    members, segment = share_memory(meeting, door, roster.members, slot_bytes, timeout_s)
    if len(hosts_of(members)) == 1:
        return LocalEngine(segment, members, members[rank], timeout_s)
    from ..hosts.engine import HostsEngine  # with the schedules, which ranks of one host do without

    try:
        address = _address(meeting, roster.networks, store)
    except BaseException:
        segment.close()
        raise
    fixed = resolved(options)
    return HostsEngine(meeting.store, segment, members, members[rank], timeout_s, address=address, options=fixed)


def _common_slot_bytes(meeting: Meeting, hosts: Sequence[Sequence[int]], words: Sequence[_Word]) -> list[int]:
    """Return the size of a slot for each rank, alike on a host; InputError where ranks of a host ask for others."""
    common, refusals = [0] * len(words), [""] * len(words)
    for host in hosts:
        sizes = {words[rank].slot_bytes for rank in host}
        if len(sizes) > 1 and any(words[rank].is_asked for rank in host):
            refusals[host[0]] = (
                f"ranks of its host disagree on their shared memory: slots of {_listed(sizes)} bytes; "
                f"set {SLOT_VARIABLE} to the same value on all of them"
            )
        for rank in host:
            common[rank] = min(sizes)  # where nobody asks, caches may look different from a container
    meeting.refuse(refusals)
    return common


def _listed(sizes: set[int]) -> str:
    return " and ".join(map(str, sorted(sizes)))


def _address(meeting: Meeting, networks: Sequence[int], store: Any) -> str:
    """Return the address on which this rank listens for other hosts. Blocks; all ranks."""
    rank, address, refusal = meeting.rank, "", ""
    try:
        address = network_address(host_of_store(store))
    except InputError as error:
        refusal = str(error)
    meeting.refuse(meeting.gather("no interface", refusal))
    found = meeting.gather("found", address)
    if len(set(networks)) == 1:
        return address or "127.0.0.1"
    elsewhere = [found[peer] for peer, network in enumerate(networks) if network != networks[rank]]
    try:
        address = common_address(address, elsewhere)
    except InputError as error:
        refusal = str(error)
    meeting.refuse(meeting.gather("no address", refusal))
    return address
