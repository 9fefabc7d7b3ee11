"""The interface of a model to a pipeline: units in a chain, and pieces of it that compute a run of units.

`Decoder` offers this itself; `capture` makes it of any module that torch.export captures.
"""

from collections.abc import Collection, Iterator
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from ...errors import InputError
from ...pipelines import ChainUnit


@runtime_checkable
class Cuttable(Protocol):
    """A module that can be cut into stages."""

    @property
    def units(self) -> tuple[str, ...]:
        """The names of what may be cut between, in the order of the forward pass."""

    def unit_costs(self, micro_batch: int, seq_len: int) -> list[ChainUnit]:
        """Return what each unit costs for a micro-batch, counted, in seconds on a device of any one speed."""

    def part(self, kept: Collection[int]) -> nn.Module:
        """Return a module that holds the units with these numbers: their parameters, not copies, by the same names.

        It is itself a `Cuttable` with the same units, and can give the units that it holds. If they are neighbours
        it is called as `part(inputs, targets, *activations)` with the whole micro-batch and what the part before
        returned: a tensor or a tuple of them; the last one returns the summed loss.
        """


def cuttable(module: nn.Module) -> Cuttable:
    """Return the module, or raise InputError where it cannot be cut."""
    if not isinstance(module, Cuttable):
        raise InputError(
            f"{type(module).__name__} cannot be cut into pipeline stages as it is: "
            "pass what meshwright.parallel.pipeline.capture.capture(module, batch) returns"
        )
    return module


def as_tuple(outputs: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return what a piece returned as a tuple."""
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


def trainable(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that get gradients."""
    return (parameter for parameter in module.parameters() if parameter.requires_grad)


def with_own_hooks(piece: nn.Module) -> nn.Module:
    """Return a piece of a model with hooks of its own: a shallow copy of a module shares the tables of hooks with it.

    FSDP2 gathers a piece's weights in a hook; a hook shared with another piece would gather them when that one runs.
    """
    for name, value in vars(piece).items():
        if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called")) and isinstance(value, dict):
            setattr(piece, name, value.copy())
    return piece
