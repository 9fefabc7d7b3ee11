"""Host time of FSDP2 for a sharded layer besides its collectives: hooks, copies of parameters, bookkeeping.

Told from chains of layers, once sharded, with collectives that send nothing, and once plain. Bytes are priced
elsewhere.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from ..chains import DISPLACED, LAYERS, WIDTH, displaced, time_chains
from ..cpu_clock import CpuClock


def time_sharding(tensors: int, zero: int, budget_s: float, clock: CpuClock) -> tuple[float, float]:
    """Return the processor time that sharding adds to forward and to backward of a layer of `tensors` parameters.

    Under ZeRO 3 both gather the weights; under ZeRO 2 the weights are there. Backward scatters the gradients. All ranks
    of the default group call it, on CPU tensors.
    """
    sharded = _chain(tensors)
    _shard(sharded, zero)
    added, _ = time_chains(sharded, _chain(tensors), budget_s, clock)
    return max(0.0, added.forward_s), max(0.0, added.backward_s)


class _Layer(nn.Module):
    def __init__(self, tensors: int, memory: Tensor) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(WIDTH) for _ in range(tensors))
        self._memory = memory

    def forward(self, x: Tensor) -> Tensor:
        return displaced(x + torch.stack(list(self.weights)).sum(0), self._memory)


class _SendsNothing:
    """Takes the place of a collective of FSDP2."""

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, *_: object, **__: object) -> None: ...


def _chain(tensors: int) -> nn.Sequential:
    memory = torch.empty(DISPLACED)
    return nn.Sequential(*(_Layer(tensors, memory) for _ in range(LAYERS)))


def _shard(chain: nn.Sequential, zero: int) -> None:
    assert dist.group.WORLD is not None
    mesh, nothing = DeviceMesh.from_group(dist.group.WORLD, "cpu"), cast(Any, _SendsNothing())
    for part in (*chain, chain):
        sharded = cast(FSDPModule, fully_shard(part, mesh=mesh, reshard_after_forward=zero == 3 and part is not chain))
        sharded.set_reshard_after_backward(zero == 3, recurse=False)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)
        sharded.set_custom_all_gather(nothing)
        sharded.set_custom_reduce_scatter(nothing)
