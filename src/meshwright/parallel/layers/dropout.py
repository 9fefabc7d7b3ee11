"""Dropout whose masks follow from the run's seed, the step, the sample and the place in the model, not from the layout.

PyTorch draws masks from one stream of random numbers for each rank, so that another split of the same model drops other
elements. Here each sample's mask is drawn from a seed of its own; a rank that holds a part of a sequence takes its part
of that mask. Engines say by `at` which samples a forward pass is about.
"""

import contextlib
import hashlib
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...errors import InputError
from ...workload.functional import seeded_dropout


class MaskMoment(NamedTuple):
    """The inputs of the masks of a forward pass, besides the place in the model."""

    seed: int
    step: int
    first: int  # number in the global batch of the micro-batch's first sample
    samples: int  # of the micro-batch


_now: MaskMoment | None = None


@contextlib.contextmanager
def at(moment: MaskMoment | None) -> Iterator[None]:
    """Draw masks for `moment` inside the `with`; None: as torch does."""
    global _now
    before, _now = _now, moment
    try:
        yield
    finally:
        _now = before


def now() -> MaskMoment | None:
    """Return the moment that masks are drawn for."""
    return _now


class Moments(NamedTuple):
    """The moments of one step of a rank of data parallelism, micro-batch by micro-batch."""

    seed: int
    step: int
    data_rank: int
    data_ranks: int

    def of(self, micro_batch: int, samples: int) -> MaskMoment:
        """Return the moment of a micro-batch: they are dealt to the data-parallel ranks in turns."""
        return MaskMoment(self.seed, self.step, (micro_batch * self.data_ranks + self.data_rank) * samples, samples)


class Dropout(nn.Module):
    """Zero elements with probability `p` and scale the others by 1 / (1 - p), in training only.

    The input's first dim counts samples, or equally many rows of each; `place` tells this dropout from others.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.place = 0
        self.positions: Tensor | None = None  # of the sequence that this rank holds, None: all
        self.length = 0  # of the whole sequence, where it is cut

    def forward(self, x: Tensor) -> Tensor:
        """Return what is left of `x`."""
        if not self.training or not self.p:
            return x
        if _now is None:
            return F.dropout(x, self.p)
        return _masked(self, x, _now)


def prepare_dropout(module: nn.Module, positions: Tensor | None = None, length: int = 0) -> None:
    """Put this dropout in the place of torch's, and tell each by its name in the model.

    `positions` are this rank's of a sequence of `length`, where sequences are cut.
    """
    for name, part in list(module.named_modules()):
        if type(part) is nn.Dropout:
            holder, _, key = name.rpartition(".")
            ours = Dropout(part.p)
            ours.train(part.training)
            setattr(module.get_submodule(holder), key, ours)
            part = ours
        if isinstance(part, Dropout):
            part.place, part.positions, part.length = zlib.crc32(name.encode()), positions, length


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode inside the `with`, where nothing is dropped."""
    was = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was)


def _drawn(part: Dropout, x: Tensor, moment: MaskMoment) -> Tensor:
    rows, rest = divmod(x.shape[0], moment.samples)
    if rest:
        raise InputError(f"dropout: {moment.samples} samples do not divide an input of {x.shape[0]} rows")
    seeds = [_seed(moment, sample, part.place) for sample in range(moment.samples)]
    parts = x if rows == 1 else x.view(moment.samples, rows, *x.shape[1:])
    return seeded_dropout(parts, part.p, seeds, part.positions, part.length).view_as(x)


# compiled layers leave it to Python, for the seeds are no constants
_masked: Callable[[Dropout, Tensor, MaskMoment], Tensor] = torch.compiler.disable(_drawn)  # type: ignore[no-untyped-call]


def _seed(moment: MaskMoment, sample: int, place: int) -> int:
    words = struct.pack("<4q", moment.seed, moment.step, moment.first + sample, place)
    return int.from_bytes(hashlib.blake2b(words, digest_size=7).digest(), "little")
