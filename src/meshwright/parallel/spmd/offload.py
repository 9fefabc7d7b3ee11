"""Optimiser states, with the update, in the memory of a device's host: ZeRO-Offload (Ren et al. 2021, 2101.06840).

The optimiser holds a copy in pinned memory of what this rank updates. A step of it:

    1. gradients, summed and clipped on the device, are copied to the host
    2. the host's processors update the copies
    3. the copies are copied back over the device's weights

Nothing of it runs beside computation: the norm, and with it the scale of every gradient, is known after the last one.
Under offload=parameters FSDP2 keeps the shares of the weights on the host (`parallel.fsdp`), and there is nothing to
copy: a layer's weights come to the device as it gathers them, its gradients leave as it has scattered them.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from ...device import host_copy, is_accelerator, synchronize_stream
from ...errors import InputError
from ...layout import Layout
from .channel import Stopwatch, bytes_of

MEMBERS = "1 ranks of host"  # the detail of its spans, as of collectives
Store = Callable[[Tensor], Tensor]  # returns a copy in the host's memory


def check_offloadable(layout: Layout, where: torch.device, store: Store | None = None) -> None:
    """Raise InputError where a layout offloads what lives in the host's memory anyway, unless to another `store`."""
    if layout.offload != "none" and not is_accelerator(where) and store is None:
        raise InputError(
            f"--layout {layout}: offload={layout.offload} moves what a GPU holds into its host's memory, and on CPUs "
            "it is there already; leave it out"
        )


class HostCopies:
    """The tensors that a rank updates, in its host's memory: a copy of each that is not there, with its gradient."""

    def __init__(self, tensors: Sequence[nn.Parameter], stopwatch: Stopwatch, store: Store | None = None) -> None:
        self._stopwatch = stopwatch
        self._pairs: list[tuple[nn.Parameter, nn.Parameter, Tensor]] = []  # on the device, on the host, its gradient
        self._of = {tensor: tensor for tensor in tensors}
        for tensor in tensors:
            if store is not None or is_accelerator(tensor.device):
                copy = (store or host_copy)(tensor.detach())
                self._of[tensor] = nn.Parameter(copy)
                gradient = torch.empty_like(copy, pin_memory=copy.is_pinned())
                self._pairs.append((tensor, self._of[tensor], gradient))

    def of(self, tensor: nn.Parameter) -> nn.Parameter:
        """Return the copy that the optimiser updates; the tensor itself where it is on the host."""
        return self._of[tensor]

    def leave(self) -> None:
        """Copy the gradients to the host, and wait until they are there."""
        moved = []
        for tensor, copy, gradient in self._pairs:
            copy.grad = None if tensor.grad is None else gradient
            if tensor.grad is not None:
                moved.append((gradient, tensor.grad))
        self._copy("to_host", moved)

    def back(self) -> None:
        """Copy the updated weights over those of the device."""
        self._copy("to_device", [(tensor.detach(), copy.detach()) for tensor, copy, _ in self._pairs])

    def _copy(self, name: str, moved: Iterable[tuple[Tensor, Tensor]]) -> None:
        start, size_bytes, devices = self._stopwatch.now(), 0, set()
        for target, source in moved:
            target.copy_(source, non_blocking=True)
            size_bytes += bytes_of(source)
            devices |= {target.device, source.device}
        for where in filter(is_accelerator, devices):
            synchronize_stream(where)  # the host reads what has come, and may write what has gone
        if size_bytes:
            self._stopwatch.block(name, start, self._stopwatch.now(), size_bytes, MEMBERS)
