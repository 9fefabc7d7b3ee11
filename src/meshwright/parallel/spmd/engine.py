"""The engine of every split without a pipeline: tensor, sequence, context, expert and data parallel, ZeRO."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ...layout import Plan
from ..data_parallel import marked_last
from ..device_mesh import Mesh
from ..engine import Batch, Settings, Shard
from ..layers import dropout
from .channel import AxisChannel
from .context import held_part
from .part import SpmdPart


class SpmdEngine:
    """A model of which each rank holds a part, all ranks working on the same layer at once."""

    def __init__(self, module: nn.Module, mesh: Mesh, plan: Plan, settings: Settings) -> None:
        self._settings = settings
        self.part = SpmdPart(module, mesh, plan, settings)
        self.optimizer = self.part.optimizer
        self.data_rank, self.data_ranks = mesh.position.dp, plan.layout.dp
        self._context = AxisChannel(mesh, "cp", self.part.stopwatch)
        self._reports = mesh.position.tp == 0  # ranks of tp compute the same loss, those of cp each its positions'

    def step(self, batches: Iterable[Batch], tokens: int, *, number: int = 0) -> tuple[Tensor, float]:
        """Forward and backward over the micro-batches, then the update."""
        return self.accumulate(batches, tokens, number=number), self.update()

    def accumulate(self, batches: Iterable[Batch], tokens: int, *, number: int = 0) -> Tensor:
        """Forward and backward over the micro-batches, and the sums of their gradients."""
        stopwatch = self.part.stopwatch
        total = torch.zeros((), dtype=torch.float64, device=self._settings.device)  # to the host once a step
        moments = dropout.Moments(self._settings.seed, number, self.data_rank, self.data_ranks)
        for index, (batch, last) in enumerate(marked_last(batches)):
            self.part.begin(last=last)
            start = stopwatch.now()
            with self._settings.precision(), dropout.at(moments.of(index, len(batch[0]))):
                loss = self.part.module(*held_part(batch, self._context))
            middle = stopwatch.now()
            stopwatch.compute("forward", start, middle)
            (loss / tokens).backward()
            stopwatch.compute("backward", middle, stopwatch.now())
            total += loss.detach().double()
        self.part.reduce()
        return total.cpu() * self._reports

    def update(self) -> float:
        """Clip, update and clear."""
        stopwatch = self.part.stopwatch
        start = stopwatch.now()
        norm = self.part.update()
        stopwatch.compute("optimizer", start, stopwatch.now())
        return norm

    def discard(self) -> None:
        """Clear the gradients."""
        self.part.discard()

    def evaluate(self, batch: Batch) -> Tensor:
        """Return the summed loss of this rank's part of a micro-batch."""
        with torch.no_grad(), self._settings.precision(), dropout.evaluating(self.part.module):
            loss: Tensor = self.part.module(*held_part(batch, self._context))
        self.part.rest()
        return loss.double().cpu() * self._reports

    def shards(self) -> list[Shard]:
        """Return the pieces that this rank holds."""
        return self.part.shards()

    def tensors(self) -> Iterable[Tensor]:
        """Return what lives between steps."""
        return self.part.tensors()
