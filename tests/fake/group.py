"""The backend "fakeccl": collectives on tensors of the fake device, and on those alone, as NCCL's are on GPUs'.

The bytes move between the processes as those of the backend "meshwright" do, over the same memory; a call waits for
the stream that it was made on, reads and writes on it, and refuses a tensor of the host.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from meshwright.backend.create import create_group
from meshwright.backend.mixed import CALLS, MixedGroup
from meshwright.backend.process_group import MeshwrightGroup
from meshwright.backend.work import DoneWork


class DeviceGroup(MixedGroup):
    """A group whose tensors all lie on the fake device."""

    def _get_backend(self, device: torch.device) -> Any:
        return self


def create(request: Any, options: Any) -> MeshwrightGroup:
    """Return this rank's group, as torch.distributed asks a backend for it."""
    return _of_the_device(create_group(request, None))


def _of_the_device(group: MeshwrightGroup) -> MeshwrightGroup:
    make = group.make
    group.__class__ = DeviceGroup
    group.make = lambda *request: _of_the_device(make(*request))
    return group


def _on_the_device(name: str) -> Callable[..., Any]:
    own = getattr(MeshwrightGroup, name)

    def call(self: DeviceGroup, *arguments: Any, **named: Any) -> Any:
        from tests.fake import load

        load().wait_for_current_stream()
        given = [_over_host_memory(value) for value in arguments]
        work = own(self, *given, **{key: _over_host_memory(value) for key, value in named.items()})
        work.wait()
        outputs = arguments[0] if arguments else next(iter(named.values()))
        return DoneWork([outputs] if isinstance(outputs, Tensor) else outputs)

    call.__name__ = name
    return call


def _over_host_memory(value: Any) -> Any:
    if isinstance(value, Tensor):
        from tests.fake import load

        if value.device.type != "fakegpu":
            raise RuntimeError(f"No backend type associated with device type {value.device.type}")
        return load().over_host_memory(value.detach())
    if isinstance(value, list | tuple):
        return type(value)(_over_host_memory(each) for each in value)
    return value


for _name in CALLS:
    if _name in vars(MixedGroup):
        setattr(DeviceGroup, _name, _on_the_device(_name))
