"""Host time of torch's checkpointing around a layer whose forward runs again in backward.

Told from chains of layers, once checkpointed and once plain, forward's own second run left out.
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ..chains import DISPLACED, LAYERS, WIDTH, displaced, time_chains
from ..cpu_clock import CpuClock


def time_recomputing(operators: int, *, selective: bool, budget_s: float, clock: CpuClock) -> tuple[float, float]:
    """Return the processor time that checkpointing adds to forward and to backward of a layer of `operators`.

    All ranks of the default group call it, on CPU tensors.
    """
    memory = torch.empty(DISPLACED)
    plain, again = ([_Layer(operators, memory) for _ in range(LAYERS)] for _ in range(2))
    chain = nn.Sequential(*(_Checkpointed(layer, selective=selective) for layer in again))
    added, alone = time_chains(chain, nn.Sequential(*plain), budget_s, clock)
    return max(0.0, added.forward_s), max(0.0, added.backward_s - alone.forward_s)


class _Layer(nn.Module):
    """An operator is five calls of torch that keep three tensors for backward: the mean of a decoder's layer."""

    def __init__(self, operators: int, memory: Tensor) -> None:
        super().__init__()
        self._operators, self._memory = operators, memory
        self._factor = torch.ones(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = displaced(x, self._memory)
        for _ in range(self._operators):
            x = ((x * self._factor)[None] * self._factor * self._factor)[0]
        return x


class _Checkpointed(nn.Module):
    def __init__(self, layer: nn.Module, *, selective: bool) -> None:
        super().__init__()
        self._layer = layer
        contexts = functools.partial(create_selective_checkpoint_contexts, [])  # keep what none of the calls returns
        self._options: dict[str, Any] = {"context_fn": contexts} if selective else {}

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(self._layer, x, use_reentrant=False, preserve_rng_state=False, **self._options)
        return found
