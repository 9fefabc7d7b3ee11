"""A chain of layers that sleep instead of computing, so that a pipeline of any length runs on two cores."""

import time
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from meshwright.pipelines import ChainUnit

WIDTH = 4


class _Sleep(torch.autograd.Function):
    """The identity; it sleeps in forward and in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_s: float, backward_s: float) -> Tensor:
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        time.sleep(ctx.backward_s)
        return gradients[0], None, None


class SleepingLayer(nn.Module):
    """Sleeps for `forward_s`, and twice as long in backward: once for its input's gradient, once for its weight's."""

    def __init__(self, forward_s: float) -> None:
        super().__init__()
        self.forward_s = forward_s
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return x times the weight."""
        slept: Tensor = _Sleep.apply(x, self.forward_s, self.forward_s)
        weight: Tensor = _Sleep.apply(self.weight, 0.0, self.forward_s)
        return slept * weight


class SleepingChain(nn.Module):
    """Layers of given seconds, behind each other; the loss is the sum of the last output."""

    def __init__(self, seconds: Collection[float]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SleepingLayer(s) for s in seconds)
        self.kept: tuple[int, ...] = tuple(range(len(seconds)))

    @property
    def units(self) -> tuple[str, ...]:
        """The layers."""
        return tuple(f"layers.{i}" for i in range(len(self.layers)))

    def unit_costs(self, micro_batch: int, seq_len: int) -> list[ChainUnit]:
        """Return what each layer sleeps."""
        seconds = [layer.forward_s for layer in self.layers if isinstance(layer, SleepingLayer)]
        return [
            ChainUnit(n, s, 2 * s, weight_s=s, output_bytes=4 * WIDTH) for n, s in zip(self.units, seconds, strict=True)
        ]

    def part(self, kept: Collection[int]) -> "SleepingChain":
        """Return some of the layers."""
        part = SleepingChain(())
        part.layers = nn.ModuleList(layer if i in kept else nn.Identity() for i, layer in enumerate(self.layers))
        part.kept = tuple(sorted(kept))
        return part

    def forward(self, inputs: Tensor, targets: Tensor, x: Tensor | None = None) -> Tensor:
        """Return the output of these layers, of the last ones its sum."""
        # the first layer sleeps in backward as all others do, so its input has a gradient too
        x = inputs.detach().requires_grad_(torch.is_grad_enabled()) if x is None else x
        for index in self.kept:
            x = self.layers[index](x)
        return x.sum() if self.kept[-1] + 1 == len(self.layers) else x
