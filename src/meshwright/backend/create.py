"""Make a process group: find the ranks' hosts and choose what moves the bytes between them."""

from datetime import timedelta

from torch._C._distributed_c10d import Store

from .engine import LocalEngine
from .hosts import exchange, hosts_of, member_key
from .process_group import MeshwrightGroup


def create_group(store: Store, rank: int, size: int, timeout: timedelta) -> MeshwrightGroup:
    """Return this rank's process group. Blocks until all `size` ranks have called it; `store` is theirs alone."""
    timeout_s = timeout.total_seconds()
    store.set_timeout(timeout)
    members = exchange(store, rank, size)
    if len(hosts_of(members)) > 1:
        raise NotImplementedError("several hosts")
    engine = LocalEngine(store, members, members[rank], timeout_s)
    engine.barrier()
    store.delete_key(member_key(rank))  # the same store may serve a later group of the same name
    return MeshwrightGroup(store, rank, size, timeout_s, engine)
