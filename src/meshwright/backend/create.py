"""Make a process group: find the ranks' hosts and choose what moves the bytes between them."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import distributed as dist
from torch._C._distributed_c10d import Store

from .engine import Engine, LocalEngine
from .hosts import Member, exchange, hosts_of, member_key, network_address
from .options import GroupOptions, resolved
from .process_group import MeshwrightGroup


def create_group(request: Any, options: object) -> MeshwrightGroup:
    """Return this rank's process group. Blocks until all its ranks have called it.

    `request` is torch's description of the group: a store that is theirs alone, rank, size and timeout; `options` are
    the user's `pg_options`, GroupOptions or None.
    """
    store, rank, size = request.store, request.group_rank, request.group_size
    fixed = resolved(options)
    timeout_s = request.timeout.total_seconds()
    store.set_timeout(request.timeout)
    members = exchange(store, rank, size)
    engine: Engine
    if len(hosts_of(members)) > 1:
        engine = _several_hosts(store, members, rank, timeout_s, fixed)
    else:
        engine = LocalEngine(store, members, members[rank], timeout_s)
    engine.barrier()
    store.delete_key(member_key(rank))  # the same store may serve a later group of the same name
    if torch.cuda.is_available() and dist.is_nccl_available():
        from .mixed import MixedGroup, nccl_group  # for GPUs only

        mixed = MixedGroup(store, rank, size, timeout_s, engine)
        mixed.hand_over("cuda", lambda: nccl_group(store, rank, size))
        group: MeshwrightGroup = mixed
    else:
        group = MeshwrightGroup(store, rank, size, timeout_s, engine)
    group.make = lambda *request: create_group(_Part(*request), fixed)
    return group


class _Part(NamedTuple):
    """A group that is made out of another, described as torch describes one."""

    store: Store
    group_rank: int
    group_size: int
    timeout: timedelta


def _several_hosts(
    store: Store, members: Sequence[Member], rank: int, timeout_s: float, options: GroupOptions
) -> Engine:
    from .hosts_engine import HostsEngine  # with the schedules, which ranks of one host do without

    return HostsEngine(store, members, members[rank], timeout_s, address=network_address(), options=options)
