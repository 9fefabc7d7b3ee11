"""A group for tensors of CPUs and GPUs: "cpu:meshwright,cuda:nccl".

Torch uses a process group written in Python in place of the whole of such a pair, so that the part for GPUs is made
here: a call whose tensors are on a GPU goes to another process group over the same ranks, made at the first such call.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from .process_group import MeshwrightGroup

CALLS = (
    *("allreduce", "allreduce_coalesced", "reduce", "broadcast", "gather", "scatter", "send", "recv", "recv_anysource"),
    *("allgather", "allgather_coalesced", "all_gather_single", "all_gather_single_coalesced", "_allgather_base"),
    *("reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced", "_reduce_scatter_base"),
    *("alltoall", "all_to_all_single", "alltoall_base", "allgather_into_tensor_coalesced"),
    "reduce_scatter_tensor_coalesced",
)


class MixedGroup(MeshwrightGroup):
    """Hands the calls on tensors of one type of device to another process group.

    Give the device type and a maker of that group with `hand_over`; until then every call is the CPU's.
    """

    _device_type = ""
    _make: Callable[[], ProcessGroup]
    _other: ProcessGroup | None = None

    def hand_over(self, device_type: str, make: Callable[[], ProcessGroup]) -> None:
        """Let calls on tensors of `device_type` go to the group that `make` returns, on all ranks alike."""
        self._device_type, self._make = device_type, make

    def other(self) -> ProcessGroup:
        """Return the other group, made now if this is the first call. Blocks until all ranks have come."""
        if self._other is None:
            self._other = self._make()
        return self._other

    def _get_backend(self, device: torch.device) -> Any:
        """Return what moves the bytes of tensors on a device."""
        if torch.device(device).type == self._device_type:
            return self.other()._get_backend(device)
        return super()._get_backend(device)

    def shutdown(self) -> None:
        """Finish what was issued, and leave both groups."""
        if self._other is not None:
            self._other.shutdown()
        super().shutdown()

    def abort(self) -> None:
        """Leave both groups at once."""
        if self._other is not None:
            self._other.abort()
        super().abort()


def native_group(
    backend: str, device_type: str, store: dist.Store, rank: int, size: int, timeout_s: float
) -> ProcessGroup:
    """Return a process group over the backend that is made for a type of accelerator, alone."""
    own = dist.PrefixStore(backend, store)
    made = _native(backend, own, rank, size, timedelta(seconds=timeout_s))
    if isinstance(made, ProcessGroup):
        return made  # a backend in Python is a process group itself
    group = ProcessGroup(dist.PrefixStore(device_type, store), rank, size)
    kind = getattr(ProcessGroup.BackendType, backend.upper(), ProcessGroup.BackendType.CUSTOM)
    group._set_default_backend(kind)
    group._register_backend(torch.device(device_type), kind, made)
    return group


def _native(backend: str, store: dist.Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Return what moves the bytes: NCCL, XCCL, or what the package of another device has registered with torch."""
    if backend in ("nccl", "xccl"):
        kind: Any = dist.ProcessGroupNCCL if backend == "nccl" else dist.ProcessGroupXCCL
        options = kind.Options()
        options._timeout = timeout  # its own default is ten minutes, whatever the group's is
        return kind(store, rank, size, options)
    plugin = dist.Backend._plugins[backend.upper()]
    if not plugin.extended_api:
        return plugin.creator_fn(store, rank, size, timeout)
    request = dist.distributed_c10d._DistributedBackendOptions()
    request.store, request.group_rank, request.group_size, request.timeout = store, rank, size, timeout
    return plugin.creator_fn(request, None)


def _by_device(name: str) -> Callable[..., Any]:
    own = getattr(MeshwrightGroup, name)

    def call(self: MixedGroup, *arguments: Any, **named: Any) -> Any:
        if any(tensor.device.type == self._device_type for tensor in _tensors((*arguments, *named.values()))):
            return getattr(self.other(), name)(*arguments, **named)
        return own(self, *arguments, **named)

    call.__name__, call.__doc__ = name, own.__doc__
    return call


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


for _name in CALLS:
    if hasattr(ProcessGroup, _name) and hasattr(MeshwrightGroup, _name):
        setattr(MixedGroup, _name, _by_device(_name))
