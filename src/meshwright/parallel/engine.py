"""The engine seam: all that a training loop sees of a model that is split over ranks.

An engine is made by `parallel.build.build_engine` from a module, a plan and `Settings`. The loop draws this rank's
share of the global batch, calls `step`, and sums over all ranks what it returns:

    for step in range(steps):
        loss, norm = engine.step(batches_of(engine.data_rank, engine.data_ranks), tokens_of_the_global_batch)

What every engine holds to:

- Ranks of one tensor, context or pipeline group have the same `data_rank` and draw the same batches. One of them
  reports their loss, the others 0, so that the sum over all ranks is the loss of the global batch.
- Gradients are those of the mean over the tokens of the *global* batch: losses are divided by `tokens`, gradients are
  summed over ranks. The norm that is returned and clipped is that of the whole unsplit model, each parameter once.
- `step` and `evaluate` contain collectives: all ranks call them equally often, with micro-batches of the same shape.
- A module returns the *sum* of the loss over its targets, `module(inputs, targets)`, so that pieces add up.
- A step is `accumulate` and then `update`. What was accumulated may be dropped by `discard` and computed again.
- A gradient whose norm is not finite is dropped: weights and moments stay as they are.
"""

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from ..timeline import Lane
from .compression import Compression

Batch = tuple[Tensor, Tensor]  # inputs and targets of one micro-batch; a target of -100 is not counted
OptimizerFactory = Callable[[nn.Module], torch.optim.Optimizer]  # called with what this rank holds of the model


class Shard(NamedTuple):
    """One piece of one tensor of the unsplit model, on this rank: what checkpoints read and write.

    `parameter` and `moments` share memory with what the engine trains: writing them loads a checkpoint.
    """

    name: str  # the parameter's name in the unsplit model
    shape: tuple[int, ...]  # of the whole tensor
    offset: tuple[int, ...]  # where this piece starts, per dim
    parameter: Tensor  # the piece, a plain detached tensor
    moments: dict[str, Tensor]  # the optimiser's state of the piece by its key: of the piece's shape, or 0-dim (step)
    owner: bool  # this rank writes the piece; ranks that hold a replica of it do not


class Notes(Protocol):
    """Where an engine says what it did when (`train.measure.recorder.Recorder`)."""

    def span(self, lane: Lane, name: str, detail: str = "") -> AbstractContextManager[None]:
        """Record the body of a `with` as one span."""

    def now(self) -> float:
        """Return this moment on `time.monotonic`; on an accelerator, a mark at the end of its current stream.

        Marks compare in the order in which they were made. Only `note` knows when an accelerator reached one.
        """

    def note(self, lane: Lane, name: str, start_s: float, end_s: float, size_bytes: int = 0, detail: str = "") -> None:
        """Record a span whose ends `now` told, from any thread."""


class Probe(Protocol):
    """Sees the gradients of a step on their way; may change them, to try faults out."""

    def sent(self, gradients: Iterable[tuple[str, Tensor]]) -> None:
        """Look at what this rank has computed, by the name of the parameter, before it is summed; from any thread."""

    def received(self, gradients: Iterable[tuple[str, Tensor]]) -> None:
        """Look at the sums over all ranks that the optimiser will see."""


class Settings(NamedTuple):
    """The inputs of an engine besides the plan."""

    device: torch.device
    optimizer: OptimizerFactory
    notes: Notes
    max_grad_norm: float = 0.0  # gradients are scaled down to this global norm; 0: never
    autocast: torch.dtype | None = None  # forward runs in this type, weights stay as they are
    seed: int = 0  # of random numbers inside the model, equal on all ranks
    compiled: bool = False  # torch.compile each layer
    async_tensor_parallel: bool = False  # on GPUs: what tp sends travels during products
    float8: str = ""  # of `conventions.EMULATES`: the type in which linear layers of lists of layers multiply
    compression: Compression = "none"  # plain data parallelism: of gradients on their way
    powersgd_rank: int = 4
    probe: Probe | None = None
    host_store: Callable[[Tensor], Tensor] | None = None  # offload: copies a tensor to where it goes; None: the host

    def precision(self) -> AbstractContextManager[Any]:
        """Return the context that forward passes run in."""
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)


class Engine(Protocol):
    """A model split over ranks, with its optimiser."""

    data_rank: int  # which share of the global batch this rank draws
    data_ranks: int  # the number of shares
    optimizer: torch.optim.Optimizer

    def step(self, batches: Iterable[Batch], tokens: int, *, number: int = 0) -> tuple[Tensor, float]:
        """Run one optimiser step over this rank's micro-batches.

        `batches` yields as many on every rank; `tokens` are those of the global batch, `number` tells the step from
        others: masks of dropout follow from it. Returns the summed loss (a
        float64 CPU scalar; 0 where another rank reports it) and the gradient's global norm before clipping.
        """

    def accumulate(self, batches: Iterable[Batch], tokens: int, *, number: int = 0) -> Tensor:
        """Compute and sum the gradients of a step, and return its summed loss, as `step` does; weights stay."""

    def update(self) -> float:
        """Clip and update with the gradients that were accumulated, clear them, and return their norm."""

    def discard(self) -> None:
        """Drop the gradients that were accumulated, so that they may be accumulated again."""

    def evaluate(self, batch: Batch) -> Tensor:
        """Return the summed loss of one micro-batch without training on it: a float64 CPU scalar, as `step` does."""

    def shards(self) -> list[Shard]:
        """Return every piece of the model that this rank holds, with its optimiser state (made if not there yet)."""

    def tensors(self) -> Iterable[Tensor]:
        """Return the tensors that outlive a step on this rank: what a count of live memory starts from."""


def unsplit_shard(name: str, parameter: Tensor, optimizer: torch.optim.Optimizer, *, owner: bool) -> Shard:
    """Return the shard of a parameter that this rank holds unsplit."""
    shape = tuple(parameter.shape)
    return Shard(name, shape, (0,) * len(shape), parameter.detach(), state_of(optimizer, parameter), owner)


def state_of(optimizer: torch.optim.Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """Return the optimiser's tensors of a parameter."""
    return {key: value for key, value in optimizer.state[parameter].items() if isinstance(value, Tensor)}


def make_state(optimizer: torch.optim.Optimizer) -> None:
    """Make the state that an optimiser makes in its first step, where it has none: zeros, with no step taken.

    One step with zero gradients at learning rate 0 changes no parameter; its counter is then set back.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if not parameters or any(optimizer.state.get(p) for p in parameters):
        return
    gradients, rates = [p.grad for p in parameters], [group["lr"] for group in optimizer.param_groups]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
        for value in state_of(optimizer, parameter).values():
            value.zero_()


def live_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return parameters, gradients and buffers of a module and the state of its optimiser."""
    found = [*module.parameters(), *module.buffers()]
    found += [p.grad for p in module.parameters() if p.grad is not None]
    found += [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
    return found
