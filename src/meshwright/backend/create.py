"""Make a process group: find the ranks' hosts and choose what moves the bytes between them."""

from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from torch import distributed as dist

from ..errors import InputError
from ..native import warn_once
from .addresses import common_address, host_of_store, network_address
from .engine import Engine, LocalEngine
from .hosts import Roster, call_roster, hosts_of
from .meeting import raise_refusals
from .memory import SLOT_VARIABLE, asked_slot_bytes, default_slot_bytes
from .options import resolved
from .process_group import MeshwrightGroup
from .reach import Door
from .segment import share_memory


class _Word(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank brings to the making of a group, beside what it is."""

    slot_bytes: int
    asked_slot_bytes: int | None
    address: str  # on the way to the store; empty where there is none
    no_address: str  # what is wrong with the interface that was named, which matters to several hosts only


def create_group(request: Any, options: object) -> MeshwrightGroup:
    """Return this rank's process group. Blocks until all its ranks have called it.

    `request` is torch's description of the group: a store that is theirs alone, rank, size and timeout; `options` are
    the user's `pg_options`, GroupOptions or None. What is wrong on one rank is raised on all.
    """
    store, rank, size = request.store, request.group_rank, request.group_size
    timeout_s = request.timeout.total_seconds()
    store.set_timeout(request.timeout)
    with Door(rank, size) as door:
        roster = call_roster(store, rank, size, door, lambda: _word(store, options))
        engine = _engine(roster, door, options, timeout_s)
    engine.barrier()
    own_store = roster.meeting.store
    own_store.forget()
    if torch.cuda.is_available() and dist.is_nccl_available():
        from .mixed import MixedGroup, nccl_group  # for GPUs only

        mixed = MixedGroup(own_store, rank, size, timeout_s, engine)
        mixed.hand_over("cuda", lambda: nccl_group(own_store, rank, size))
        return mixed
    return MeshwrightGroup(own_store, rank, size, timeout_s, engine)


def _word(store: Any, options: object) -> str:
    """Return what this rank brings; InputError where its settings are bad."""
    resolved(options)
    address = no_address = ""
    try:
        address = network_address(host_of_store(store))
    except InputError as error:
        no_address = str(error)
    asked = asked_slot_bytes()
    word = _Word(
        slot_bytes=asked or default_slot_bytes(), asked_slot_bytes=asked, address=address, no_address=no_address
    )
    return msgspec.json.encode(word).decode()


def _engine(roster: Roster, door: Door, options: object, timeout_s: float) -> Engine:
    """Return what moves the bytes of this rank. Blocks; all ranks."""
    meeting, rank = roster.meeting, roster.meeting.rank
    words = [msgspec.json.decode(word, type=_Word) for word in roster.words]
    if roster.apart[rank]:
        warn_once(f"ranks of one machine share no memory and talk over TCP: {roster.apart[rank]}")
    slot_bytes = _common_slot_bytes(hosts_of(roster.members), words)
    members, segment = share_memory(meeting, door, roster.members, slot_bytes, timeout_s)
    if len(hosts_of(members)) == 1:
        return LocalEngine(segment, members, members[rank], timeout_s)
    from .hosts_engine import HostsEngine  # with the schedules, which ranks of one host do without

    return HostsEngine(
        meeting.store,
        segment,
        members,
        members[rank],
        timeout_s,
        address=_address(roster, words),
        options=resolved(options),
    )


def _common_slot_bytes(hosts: Sequence[Sequence[int]], words: Sequence[_Word]) -> list[int]:
    """Return the size of a slot for each rank, alike on a host; InputError where ranks of a host ask for others."""
    common = [0] * len(words)
    for host in hosts:
        asked = {words[rank].asked_slot_bytes for rank in host}
        sizes = {words[rank].slot_bytes for rank in host}
        if len(sizes) > 1 and asked != {None}:
            raise InputError(
                f"ranks of one host disagree on their shared memory: slots of {_listed(sizes)} bytes; "
                f"set {SLOT_VARIABLE} to the same value on all of them"
            )
        for rank in host:
            common[rank] = min(sizes)  # where nobody asks, caches may look different from a container
    return common


def _listed(sizes: set[int]) -> str:
    return " and ".join(map(str, sorted(sizes)))


def _address(roster: Roster, words: Sequence[_Word]) -> str:
    """Return the address on which this rank listens for other hosts. Blocks; all ranks."""
    raise_refusals([word.no_address for word in words])
    meeting, networks = roster.meeting, roster.networks
    mine, address, refusal = words[meeting.rank].address, "", ""
    if len(set(networks)) == 1:
        address = mine or "127.0.0.1"
    else:
        others = [
            word.address for word, network in zip(words, networks, strict=True) if network != networks[meeting.rank]
        ]
        try:
            address = common_address(mine, others)
        except InputError as error:
            refusal = str(error)
    raise_refusals(meeting.gather("address", refusal))
    return address
