"""Where the local piece of a parameter lies in the unsplit tensor.

Tensor and expert parallelism cut a tensor along a dim, into one run of rows or into one run of each section (a fused
query-key-value projection is three sections, each cut by heads). ZeRO cuts what is left once more: along the first
dim, or anywhere in the flattened tensor. `boxes` puts both together.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class IndexRun(NamedTuple):
    """Consecutive indices of one dim: where they start in the local tensor and in the whole one."""

    local: int
    whole: int
    length: int


class ShardPlacement(NamedTuple):
    """The place of a local tensor in the whole one: of each dim that is cut, the runs held here."""

    shape: tuple[int, ...]  # of the whole tensor
    cuts: dict[int, list[IndexRun]] = {}  # noqa: RUF012  (never changed)
    partial: bool = False  # gradients are summed over tp: each rank of tp saw a part of the sequence
    expert: bool = False  # gradients are summed over edp, not over data
    owner: bool = True  # of the ranks that hold this very piece before ZeRO, this one writes it

    def and_cut(self, dim: int, runs: list[IndexRun]) -> "ShardPlacement":
        """Return the placement after one more dim was cut."""
        return self._replace(cuts=self.cuts | {dim: runs})


def runs(sections: Sequence[int], index: int, parts: int) -> list[IndexRun]:
    """Return the runs of part `index` where each section is cut into `parts` equal parts."""
    found, local, whole = [], 0, 0
    for length in sections:
        share = length // parts
        found.append(IndexRun(local, whole + index * share, share))
        local += share
        whole += length
    return found


def shard_of(tensor: Tensor, dim: int, held: Sequence[IndexRun]) -> Tensor:
    """Return a copy of what the runs say of `tensor` along `dim`."""
    return torch.cat([tensor.narrow(dim, run.whole, run.length) for run in held], dim)


class ShardBox(NamedTuple):
    """A piece without gaps: where it starts in the whole tensor, where in the local one, and its extent, by dim."""

    whole: tuple[int, ...]
    local: tuple[int, ...]
    extent: tuple[int, ...]

    def of(self, tensor: Tensor, origin: Sequence[int]) -> Tensor:
        """Return the piece as a view of a tensor that starts at `origin` of the local one."""
        for dim, (start, length) in enumerate(zip(self.local, self.extent, strict=True)):
            tensor = tensor.narrow(dim, start - origin[dim], length)
        return tensor


def boxes(placement: ShardPlacement, local: Sequence[int], extent: Sequence[int]) -> Iterator[ShardBox]:
    """Yield the pieces without gaps of the block that starts at `local` of the local tensor."""
    by_dim = []
    for dim, (start, length) in enumerate(zip(local, extent, strict=True)):
        held = placement.cuts.get(dim, [IndexRun(0, 0, placement.shape[dim])])
        inside = []
        for run in held:
            first, last = max(start, run.local), min(start + length, run.local + run.length)
            if first < last:
                inside.append(IndexRun(first, run.whole + first - run.local, last - first))
        by_dim.append(inside)
    for combination in itertools.product(*by_dim):
        yield ShardBox(
            tuple(run.whole for run in combination),
            tuple(run.local for run in combination),
            tuple(run.length for run in combination),
        )


Block = tuple[tuple[int, ...], tuple[int, ...], int]  # offset, extent, where it starts in the flattened tensor


def shard_blocks(shape: Sequence[int], start: int, stop: int) -> Iterator[Block]:
    """Cut the range `start` to `stop` of a flattened tensor into blocks.

    >>> list(blocks((3, 4), 2, 12))
    [((0, 2), (1, 2), 2), ((1, 0), (2, 4), 4)]
    """
    if start >= stop:
        return
    if not shape:
        yield (), (), start
        return
    row = math.prod(shape[1:])
    first, last = -(-start // row), stop // row  # whole rows
    if first > last:  # within one row
        yield from _in_row(shape, start // row, start, stop)
        return
    yield from _in_row(shape, start // row, start, first * row)
    if first < last:
        yield (first, *(0,) * (len(shape) - 1)), (last - first, *shape[1:]), first * row
    yield from _in_row(shape, last, last * row, stop)


def _in_row(
    shape: Sequence[int], row: int, start: int, stop: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    size = math.prod(shape[1:])
    for offset, extent, at in shard_blocks(shape[1:], start - row * size, stop - row * size):
        yield (row, *offset), (1, *extent), at + row * size
