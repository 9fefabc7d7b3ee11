"""Methods that torch expects of a process group beside its collectives; unsupported ones raise by name.

The C++ group under a Python subclass has no store and no backends, so that methods of its own that need them may end
the process. Each is either here or refused; a test walks the list.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Store
from torch.distributed import PrefixStore, ProcessGroup

from ..faults.failures import ArgumentError

NAME = "meshwright"
REFUSED = (
    *("merge_remote_group", "_start_coalescing", "_end_coalescing", "_register_on_completion_hook"),
    *("_enable_collectives_timing", "_register_backend", "_set_default_backend", "_backend_id"),
    *("boxed", "_start_time_estimate", "_end_time_estimate", "allocate_tensor", "eager_connect_single_device"),
    *("memory_stats", "resume", "suspend", "shrink", "setUsePgForSymmMemRendezvous"),
)  # boxed: what torch.ops.c10d takes, which calls the C++ backends that this group has not

_ProcessGroup: Any = ProcessGroup  # its declared overloads name the C++ forms, of which Python needs the first only


class TorchGroup(_ProcessGroup):  # type: ignore[misc]
    """A group of ranks by name, with its store."""

    bound_device_id: torch.device | None = None
    use_pg_for_symm_mem_rendezvous = False
    supports_splitting = False  # without the store; split_group takes it
    supports_coalescing = False
    supports_shrinking = False
    supports_time_estimate = False
    make: Callable[..., Any]  # a group like this one, from a store, rank, size and timeout

    def __init__(self, store: Store, rank: int, size: int) -> None:
        super().__init__(rank, size)  # the constructor for Python subclasses
        self._store = store
        self._rank = rank
        self._size = size
        self._timeout_s = 0.0
        self._name = ""
        self._description = ""
        self._splits = 0

    def getBackendName(self) -> str:
        """Return the name under which the backend is registered."""
        return NAME

    def name(self) -> str:
        """Return the name under which the backend is registered."""
        return NAME

    _get_backend_name = name

    def setGroupName(self, name: str) -> None:
        """Set the name that torch gives the group."""
        self._name = name

    def getGroupName(self) -> str:
        """Return the name that torch gave the group."""
        return self._name

    def setGroupDesc(self, description: str) -> None:
        """Set the description of the group."""
        self._description = description

    def getGroupDesc(self) -> str:
        """Return the description of the group."""
        return self._description

    def get_group_store(self) -> Store:
        """Return the store of this group alone."""
        return self._store

    def _set_group_name(self, name: str) -> None:
        self.setGroupName(name)

    def _set_group_desc(self, description: str) -> None:
        self.setGroupDesc(description)

    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]

    def _has_hooks(self) -> bool:
        return False

    def _get_backend(self, device: torch.device) -> Any:
        """Return what moves the bytes of tensors on a device: this group itself."""
        if torch.device(device).type not in {each.type for each in self._device_types}:
            raise RuntimeError(f"{NAME}: this group has no backend for {device}")
        return self

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Return False: memory for a collective comes from torch's allocator."""
        return False

    @property
    def options(self) -> Any:
        """The options of the group as torch's own backends show them."""
        options = _Options()
        options._timeout = timedelta(seconds=self._timeout_s)
        return options

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: object = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: object = None,
    ) -> Any:
        """Return a group of some ranks of this one, None on the others. Blocks; called by all ranks of this group."""
        members = list(ranks)
        if not members or len(set(members)) < len(members) or not set(members) <= set(range(self._size)):
            raise ArgumentError(f"split_group: ranks {members}: expected different ranks of this group of {self._size}")
        self._splits += 1
        if self._rank not in members:
            return None
        store = PrefixStore(f"split/{self._splits}/{members[0]}", self._store)
        limit = timeout if timeout is not None else timedelta(seconds=self._timeout_s)
        group = self.make(store, members.index(self._rank), len(members), limit)
        group.setGroupName(group_name or f"{self._name}:split:{self._splits}:{members[0]}")
        group.setGroupDesc(group_desc or f"{self._description}:split")
        return group


class _Options:
    """Options of a backend that a caller may read."""

    backend = NAME
    _timeout = timedelta(0)


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: TorchGroup, *_: object, **__: object) -> Any:
        raise NotImplementedError(f"{NAME}: a process group in Python has no {name}")

    refuse.__name__, refuse.__doc__ = name, "Raise NotImplementedError."
    return refuse


for _name in REFUSED:
    setattr(TorchGroup, _name, _refusal(_name))
