"""One rank of a pipeline: goes through its row of the grid, action by action.

PyTorch's own runtime keeps a receive buffer for every micro-batch and everything it sent until the end of the step, so
that 1F1B holds as much as GPipe. Here a message is received into a new buffer and freed with its micro-batch, and what
was sent is freed as soon as the grid says that it was read, so that memory is what the schedule promises.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...pipelines import Action, PipelineGrid
from ..engine import Batch, Settings
from ..layers.dropout import Moments, at
from ..spmd.part import SpmdPart
from .split_backward import backward_input, backward_weight
from .stages import as_tuple
from .wire import Routes, Wire


class HeldActivations(NamedTuple):
    """Tensors of a micro-batch that a stage keeps from forward to backward."""

    inputs: tuple[Tensor, ...]  # leaves: activations of the stage before
    outputs: tuple[Tensor, ...]  # outputs that require gradients


class Runtime:
    """The pieces of `part`, the model on this rank, by stage, and the row of actions that it runs in each step.

    `rank` is this rank's position in the pipeline, `ranks` the global rank at each position, `routes` the groups over
    which they talk. `last(stage)` is called before the last action that adds to the gradients of a stage.
    """

    def __init__(
        self,
        grid: PipelineGrid,
        rank: int,
        pieces: Mapping[int, nn.Module],
        routes: Routes,
        ranks: Sequence[int],
        settings: Settings,
        part: SpmdPart,
        last: Callable[[int], None],
    ) -> None:
        self.grid, self.pieces, self._settings, self._part, self._last = grid, pieces, settings, part, last
        self._row = grid.rows[rank]
        self._wire = Wire(grid, rank, routes, ranks, settings.device, settings.notes)
        self._once = Wire(_single(grid), rank, routes, ranks, settings.device, settings.notes)
        self._held: dict[tuple[int, int], HeldActivations] = {}
        self._local: dict[Action, list[Tensor]] = {}  # what an action of this rank gives to another of this rank
        self._rest: dict[tuple[int, int], Any] = {}  # what is left of a split backward

    def step(self, batches: Sequence[Batch], tokens: int, moments: Moments) -> Tensor:
        """Run forward and backward of all micro-batches; return the summed loss, 0 without the last stage."""
        total = torch.zeros((), dtype=torch.float64, device=self._settings.device)  # to the host once a step
        self._wire.begin((_form(batches[0]), True))
        last_of = {action.stage: index for index, action in enumerate(self._row)}
        for index, action in enumerate(self._row):
            received = self._take(action)
            self._expect_next(index)
            if last_of[action.stage] == index:
                self._last(action.stage)
            if action.kind == "F":
                batch = batches[action.micro_batch]
                with at(moments.of(action.micro_batch, len(batch[0]))):
                    total += self._forward(action, batch, received, tokens)
            elif action.kind == "W":
                self._backward_weight(action)
            else:
                self._backward(action, received)
        self._wire.end()
        return total

    def evaluate(self, batch: Batch) -> Tensor:
        """Return the summed loss of one micro-batch, 0 without the last stage."""
        total = torch.zeros((), dtype=torch.float64)
        self._once.begin((_form(batch), False))
        before: tuple[Tensor, ...] = ()
        for stage in sorted(self.pieces):
            if stage and stage - 1 not in self.pieces:
                before = tuple(self._once.receive(Action(stage - 1, "F", 0)))
            with torch.no_grad(), self._settings.precision():
                before = as_tuple(self.pieces[stage](*batch, *before))
            if stage + 1 == self.grid.stages:
                total += before[0].double().cpu()
            elif stage + 1 not in self.pieces:
                self._once.send(Action(stage, "F", 0), before)
        self._once.end()
        return total

    def _forward(self, action: Action, batch: Batch, inputs: tuple[Tensor, ...], tokens: int) -> Tensor:
        """Compute a stage and pass on its output; return the loss of the last stage, else 0."""
        last = action.stage + 1 == self.grid.stages
        with self._computing("forward", action), self._settings.precision():
            outputs = as_tuple(self.pieces[action.stage](*batch, *inputs))
            roots = (outputs[0] / tokens,) if last else tuple(output for output in outputs if output.requires_grad)
        self._held[action.stage, action.micro_batch] = HeldActivations(
            tuple(x for x in inputs if x.requires_grad), roots
        )
        if last:
            return outputs[0].detach().double()
        self._give(action, outputs)
        return torch.zeros((), dtype=torch.float64)

    def _backward(self, action: Action, received: tuple[Tensor, ...]) -> None:
        """Compute the gradients of a stage's inputs (of B: and of its weights) and pass the former on."""
        inputs, outputs = self._held.pop((action.stage, action.micro_batch))
        gradients = None if action.stage + 1 == self.grid.stages else received
        with self._computing("backward", action):
            if action.kind == "B":
                torch.autograd.backward(outputs, gradients)
            else:
                rest = backward_input(self._part, self.pieces[action.stage], inputs, outputs, gradients)
                self._rest[action.stage, action.micro_batch] = rest
        if action.stage:
            self._give(action, [torch.zeros_like(x) if x.grad is None else x.grad for x in inputs])

    def _backward_weight(self, action: Action) -> None:
        with self._computing("backward", action):
            rest = self._rest.pop((action.stage, action.micro_batch))
            backward_weight(self._part, self.pieces[action.stage], rest)

    @contextmanager
    def _computing(self, name: str, action: Action) -> Iterator[None]:
        start = self._part.stopwatch.now()
        yield
        self._part.stopwatch.compute(name, start, self._part.stopwatch.now(), str(action))

    def _take(self, action: Action) -> tuple[Tensor, ...]:
        """Return what a neighbouring stage gives to `action`."""
        source = self._source(action)
        if source is None:
            return ()
        if source.stage not in self.pieces:
            return tuple(self._wire.receive(source))
        given = self._local.pop(source)
        if action.kind != "F":
            return tuple(given)
        return tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in given)

    def _give(self, action: Action, tensors: Sequence[Tensor]) -> None:
        consumer = self.grid.consumer(action)
        assert consumer is not None
        if consumer.stage in self.pieces:
            self._local[action] = list(tensors)
        else:
            self._wire.send(action, tensors)

    def _expect_next(self, index: int) -> None:
        """Post the receive of the next action of the row that needs one, so that it can come during this one."""
        for action in self._row[index + 1 : index + 2]:
            source = self._source(action)
            if source is not None and source.stage not in self.pieces:
                self._wire.expect(source)

    def _source(self, action: Action) -> Action | None:
        """Return the action of another stage whose result `action` takes."""
        return next((need for need in self.grid.needs(action) if need.stage != action.stage), None)


def _single(grid: PipelineGrid) -> PipelineGrid:
    """Return a grid of the same stages for one micro-batch, of which `evaluate` runs the forward half."""
    rows = []
    for rank in range(grid.ranks):
        stages = grid.stages_of(rank)
        rows.append((*(Action(s, "F", 0) for s in stages), *(Action(s, "B", 0) for s in reversed(stages))))
    return PipelineGrid(tuple(rows))


def _form(batch: Batch) -> tuple[torch.Size, ...]:
    return tuple(tensor.shape for tensor in batch)
