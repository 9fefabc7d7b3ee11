"""The host's cost of a wrapper around layers: chains of layers with it and without, in turn.

The layers do little but displace what lies in the caches, forwards and backwards.
"""

import statistics
import time
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .cpu_clock import CpuClock

LAYERS = 8
WIDTH = 64  # elements of what goes through the chain
DISPLACED = 2**19  # elements that a layer writes forwards and backwards: more than the caches of a core hold
MIN_ROUNDS, MAX_ROUNDS = 5, 60


class LayerTimes(NamedTuple):
    """Processor time of a layer forwards and backwards, in seconds."""

    forward_s: float
    backward_s: float


def time_chains(
    wrapped: nn.Sequential, plain: nn.Sequential, budget_s: float, clock: CpuClock
) -> tuple[LayerTimes, LayerTimes]:
    """Return what the wrapper adds to a layer in the median, and what the layer takes without it.

    Each chain has `LAYERS` layers. All ranks of the default group call it, on CPU tensors.
    """
    for chain in (wrapped, plain):
        _pass(chain, clock)  # allocates, loads code
    dist.barrier()
    found: list[tuple[LayerTimes, LayerTimes]] = []
    end = time.monotonic() + budget_s
    while len(found) < MIN_ROUNDS or (len(found) < MAX_ROUNDS and time.monotonic() < end):
        with clock.counted():
            found.append((_pass(wrapped, clock), _pass(plain, clock)))
    added = LayerTimes(*(statistics.median(with_it[i] - without[i] for with_it, without in found) for i in range(2)))
    alone = LayerTimes(*(statistics.median(without[i] for _, without in found) for i in range(2)))
    return added, alone


def displaced(x: Tensor, memory: Tensor) -> Tensor:
    """Return a copy of `x` whose forward and backward each write `memory`, of `DISPLACED` elements."""
    return cast(Tensor, _Displace.apply(x, memory))  # type: ignore[no-untyped-call]


class _Displace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, memory: Tensor) -> Tensor:
        ctx.memory = memory
        memory.fill_(1.0)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.memory.fill_(1.0)
        return gradients[0], None


def _pass(chain: nn.Sequential, clock: CpuClock) -> LayerTimes:
    x = torch.ones(WIDTH, requires_grad=True)
    start = clock.now_s()
    out = chain(x)
    middle = clock.now_s()
    out.sum().backward()
    end = clock.now_s()
    chain.zero_grad(set_to_none=True)
    return LayerTimes((middle - start) / LAYERS, (end - middle) / LAYERS)
