"""Make a process group: find the ranks' hosts and choose what moves the bytes between them."""

from collections.abc import Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Store

from .engine import Engine, LocalEngine
from .hosts import Member, exchange, hosts_of, member_key, network_address
from .process_group import MeshwrightGroup


def create_group(store: Store, rank: int, size: int, timeout: timedelta) -> MeshwrightGroup:
    """Return this rank's process group. Blocks until all `size` ranks have called it; `store` is theirs alone."""
    timeout_s = timeout.total_seconds()
    store.set_timeout(timeout)
    members = exchange(store, rank, size)
    engine: Engine
    if len(hosts_of(members)) > 1:
        engine = _several_hosts(store, members, rank, timeout_s)
    else:
        engine = LocalEngine(store, members, members[rank], timeout_s)
    engine.barrier()
    store.delete_key(member_key(rank))  # the same store may serve a later group of the same name
    return MeshwrightGroup(store, rank, size, timeout_s, engine)


def _several_hosts(store: Store, members: Sequence[Member], rank: int, timeout_s: float) -> Engine:
    from .hosts_engine import HostsEngine  # with the schedules, which ranks of one host do without

    return HostsEngine(store, members, members[rank], timeout_s, network_address())
