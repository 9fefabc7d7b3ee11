"""Bits that flip on purpose, to try out what guards against them: in weights, moments, gradients, and on their way."""

import os
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor

from ...errors import InputError
from ...parallel.engine import Shard

FLIP_VARIABLE = "MESHWRIGHT_FLIP"  # "RANK:STEP:WHAT:BIT,...", see `flips`; only before a first restart
Where = Literal["weight", "exp_avg", "exp_avg_sq", "gradient", "received"]
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class Flip(NamedTuple):
    """One bit of one value on one rank. `received`: of a sum as it came back; `on`: in every step from then on."""

    rank: int
    step: int
    where: Where
    bit: int
    on: bool = False

    def is_due(self, step: int) -> bool:
        """Return whether it happens in a step."""
        return step == self.step or (self.on and step > self.step)


class Flips:
    """The flips of one rank. State flips before a step; gradients where the engine shows them."""

    def __init__(self, mine: Sequence[Flip]) -> None:
        self._mine = mine
        self._due: list[Flip] = []

    def begin(self, step: int, shards: Sequence[Shard]) -> None:
        """Flip what is due in weights and moments, and note what is due in gradients of this step."""
        self._due = [flip for flip in self._mine if flip.is_due(step)]
        for flip in [flip for flip in self._due if flip.where in {"weight", "exp_avg", "exp_avg_sq"}]:
            states = [s.parameter if flip.where == "weight" else s.moments.get(flip.where) for s in shards]
            self._flip(flip, [state for state in states if state is not None])

    def sent(self, gradients: Iterable[tuple[str, Tensor]]) -> None:
        """Flip what is due in what this rank has computed."""
        self._gradient("gradient", gradients)

    def received(self, gradients: Iterable[tuple[str, Tensor]]) -> None:
        """Flip what is due in the sums that came back."""
        self._gradient("received", gradients)

    def end(self) -> None:
        """Let nothing more flip until the next step begins."""
        self._due = []

    def _gradient(self, where: Where, gradients: Iterable[tuple[str, Tensor]]) -> None:
        for flip in [flip for flip in self._due if flip.where == where]:
            self._flip(flip, [gradient for _, gradient in gradients])

    def _flip(self, flip: Flip, tensors: Sequence[Tensor]) -> None:
        """Flip the bit of the largest value of the largest tensor: one that the model uses."""
        self._due.remove(flip)
        tensor = max(tensors, key=lambda t: t.numel()).detach()
        at = int(tensor.reshape(-1).abs().argmax())
        place = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), tensor.shape))
        value = tensor[place].reshape(1).clone()
        words = value.view(_INTEGERS[value.element_size()])
        words ^= torch.tensor(1, dtype=words.dtype) << flip.bit
        tensor[place] = value[0]


def flips(rank: int) -> Flips | None:
    """Return the flips of a rank that the environment asks for, None where it asks for none.

    "1:100:weight:30" flips bit 30 of a weight of rank 1 before step 100, "1:100+:gradient:3" bit 3 of a gradient in
    every step from 100 on. InputError where it is not of that form.
    """
    text = os.environ.get(FLIP_VARIABLE, "")
    if not text or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")):
        return None
    return Flips([flip for flip in map(parse_flip, text.split(",")) if flip.rank == rank])


def parse_flip(text: str) -> Flip:
    """Return the flip of "RANK:STEP:WHAT:BIT"; InputError where it is not of that form."""
    try:
        rank, step, where, bit = text.split(":")
        number, on = int(step.removesuffix("+")), step.endswith("+")
        found: Flip | None = Flip(int(rank), number, cast(Where, where), int(bit), on)
    except ValueError:
        found = None
    if found is None or found.where not in get_args(Where) or found.bit not in range(32):
        form = f"RANK:STEP:{'|'.join(get_args(Where))}:BIT"
        raise InputError(f"{FLIP_VARIABLE}={text}: expected {form}, such as 1:100:weight:3")
    return found
