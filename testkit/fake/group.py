"""The backend "fakeccl": collectives and messages on tensors of the fake device, and on those alone, as NCCL's are.

The bytes move between the processes as those of the backend "meshwright" do. What is as strict as NCCL is this:

- A group does one thing after another, in the order in which its rank asked, messages included: NCCL does so for a
  group that was made with its device (`init_process_group(device_id=...)`). Two ranks that each wait for the other's
  message before they send their own wait forever.
- A result is there once it was waited for, or once a callback of its future runs; until then it is NaNs.
- A tensor of the host is refused.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from meshwright.backend.group.create import create_group
from meshwright.backend.group.device_types import CALLS, MixedGroup
from meshwright.backend.group.process_group import MeshwrightGroup
from meshwright.backend.group.work import CollectiveWorker, PendingWork, flat_tensors


class DeviceGroup(MixedGroup):
    """A group whose tensors all lie on the fake device."""

    queue: CollectiveWorker

    def _get_backend(self, device: torch.device) -> Any:
        return self

    def barrier(self, *arguments: Any, **named: Any) -> Any:
        work = PendingWork(lambda: MeshwrightGroup.barrier(self, *arguments, **named).wait(), [])
        self.queue.submit(work)
        return work

    def shutdown(self) -> None:
        self.queue.close(10.0)
        super().shutdown()


class DeviceWork(PendingWork):
    """Puts the result where it was asked for when somebody waits for it."""

    def __init__(self, call: Callable[[], object], outputs: list[Tensor], results: list[Tensor]) -> None:
        super().__init__(call, outputs)
        self._arrivals = list(zip(outputs, results, strict=True))

    def wait(self, timeout: Any = None) -> bool:
        super().wait(timeout)
        self._arrive()
        return True

    def _settle(self, future: Any) -> None:
        if self._error is None:
            self._arrive()
        super()._settle(future)

    def _arrive(self) -> None:
        arrivals, self._arrivals = self._arrivals, []
        for output, result in arrivals:
            output.copy_(result)


def create(request: Any, options: Any) -> MeshwrightGroup:
    """Return this rank's group, as torch.distributed asks a backend for it."""
    return _of_the_device(create_group(request, None))


def _of_the_device(group: MeshwrightGroup) -> MeshwrightGroup:
    make = group.make
    group.__class__ = DeviceGroup
    group.queue = CollectiveWorker("fakeccl")
    group.make = lambda *request: _of_the_device(make(*request))
    return group


def _on_the_device(name: str) -> Callable[..., Any]:
    own = getattr(MeshwrightGroup, name)

    def call(self: DeviceGroup, *arguments: Any, **named: Any) -> Any:
        from testkit.fake import load

        copies: dict[int, Tensor] = {}  # of the tensors given, by their ids
        given = [_copied(value, copies) for value in arguments]
        given_named = {key: _copied(value, copies) for key, value in named.items()}
        load().wait_for_current_stream()
        first = arguments[0] if arguments else next(iter(named.values()))
        outputs = [] if name == "send" else flat_tensors([first] if isinstance(first, Tensor) else first)
        results = [copies[id(output)] for output in outputs]
        work = DeviceWork(lambda: _host(own(self, *_host(given), **_host(given_named))), outputs, results)
        for output in outputs:
            output.fill_(float("nan") if output.is_floating_point() else 77)
        self.queue.submit(work)
        return work

    call.__name__ = name
    return call


def _copied(value: Any, copies: dict[int, Tensor]) -> Any:
    """Return an argument with a copy in place of each tensor, so that nobody sees what is under way."""
    if isinstance(value, Tensor):
        if value.device.type != "fakegpu":
            raise RuntimeError(f"No backend type associated with device type {value.device.type}")
        if id(value) not in copies:
            copies[id(value)] = value.detach().clone()
        return copies[id(value)]
    if isinstance(value, list | tuple):
        return type(value)(_copied(each, copies) for each in value)
    return value


def _host(value: Any) -> Any:
    """Return an argument with the memory of each tensor as the host sees it; the result of a call, waited for."""
    from testkit.fake import load

    if isinstance(value, Tensor):
        return load().over_host_memory(value)
    if isinstance(value, list | tuple):
        return type(value)(_host(each) for each in value)
    if isinstance(value, dict):
        return {key: _host(each) for key, each in value.items()}
    if isinstance(value, torch.distributed.Work):
        value.wait()
    return value


for _name in CALLS:
    if _name in vars(MixedGroup):
        setattr(DeviceGroup, _name, _on_the_device(_name))
