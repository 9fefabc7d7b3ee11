"""What FSDP2 does for a sharded layer on the host besides its collectives: hooks, copies of parameters, bookkeeping.

Layers that do little but displace what lies in the caches run forward and backward, once sharded, with collectives that
send nothing, and once plain; the difference is what sharding costs a layer. Bytes are priced elsewhere.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from .crowd import Crowd

LAYERS = 8
WIDTH = 64  # elements of each parameter
DISPLACED = 2**19  # elements that a layer writes forwards and backwards: more than the caches of a core hold
MIN_ROUNDS, MAX_ROUNDS = 5, 60


def time_sharding(tensors: int, zero: int, budget_s: float, crowd: Crowd) -> tuple[float, float]:
    """Return the processor time that sharding adds to forward and to backward of a layer with so many parameters.

    Under ZeRO 3 both gather the weights; under ZeRO 2 the weights are there. Backward scatters the gradients. All ranks
    of the default group call it, on CPU tensors.
    """
    chains = _chain(tensors), _chain(tensors)
    _shard(chains[0], zero)
    for chain in chains:
        _pass(chain, crowd)  # allocates, loads code
    dist.barrier()
    forward_s: list[float] = []
    backward_s: list[float] = []
    end = time.monotonic() + budget_s
    while len(forward_s) < MIN_ROUNDS or (len(forward_s) < MAX_ROUNDS and time.monotonic() < end):
        with crowd.counted():
            sharded, plain = (_pass(chain, crowd) for chain in chains)
        forward_s.append(sharded.forward_s - plain.forward_s)
        backward_s.append(sharded.backward_s - plain.backward_s)
    return max(0.0, statistics.median(forward_s)) / LAYERS, max(0.0, statistics.median(backward_s)) / LAYERS


class _Pass(NamedTuple):
    """Processor time of one pass."""

    forward_s: float
    backward_s: float


class _Displace(torch.autograd.Function):
    """Writes so much memory, forwards and backwards, that the caches hold nothing else."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, memory: Tensor) -> Tensor:
        ctx.memory = memory
        memory.fill_(1.0)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.memory.fill_(1.0)
        return gradients[0], None


class _Layer(nn.Module):
    def __init__(self, tensors: int, memory: Tensor) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(WIDTH) for _ in range(tensors))
        self._memory = memory

    def forward(self, x: Tensor) -> Tensor:
        x = x + torch.stack(list(self.weights)).sum(0)
        return cast(Tensor, _Displace.apply(x, self._memory))  # type: ignore[no-untyped-call]


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


def _pass(chain: nn.Sequential, crowd: Crowd) -> _Pass:
    x = torch.ones(WIDTH, requires_grad=True)
    start = crowd.clock()
    out = chain(x)
    middle = crowd.clock()
    out.sum().backward()
    end = crowd.clock()
    chain.zero_grad(set_to_none=True)
    return _Pass(middle - start, end - middle)
