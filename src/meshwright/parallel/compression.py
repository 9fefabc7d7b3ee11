"""Gradients in fewer bits on their way: bfloat16, int8 with error feedback, and PowerSGD.

A compressor sums a bucket of gradients over a group, in place, and counts the bytes that this rank sends. What a
message lost is added to the next (error feedback), so that over many steps nothing is lost. Collectives block: the
reducer calls them on a thread beside backward.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from ..plan.search.asynchronous import INT8_BLOCK
from .encoding import Feedback, decode

Compression = Literal["none", "bf16", "int8", "powersgd"]
SEED = 20190531  # of PowerSGD's first guess: the same on all ranks


class Compressor(Protocol):
    """Sums buckets over a group."""

    @property
    def sent_bytes(self) -> float:
        """Bytes that this rank has sent so far."""

    def sum(self, index: int, gradients: Sequence[Tensor], bucket: Tensor) -> None:
        """Replace a bucket, whose views the gradients are, by its sum over the ranks.

        Blocks; called on all ranks in the same order.
        """


class _Group:
    """Collectives of a group, whose bytes are counted as ring or direct algorithms send them."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.ranks = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        self.sent_bytes = 0.0

    def all_reduce(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor, group=self.group)
        self.sent_bytes += 2 * (self.ranks - 1) / self.ranks * tensor.numel() * tensor.element_size()

    def all_to_all(self, parts: list[Tensor]) -> list[Tensor]:
        """Send part r, as long as all others, to rank r and return what all have for this rank."""
        sent = torch.cat(parts)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)
        self.sent_bytes += (self.ranks - 1) / self.ranks * sent.numel() * sent.element_size()
        return list(received.chunk(self.ranks))

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return what all ranks have, of the same size everywhere."""
        gathered = [torch.empty_like(tensor) for _ in range(self.ranks)]
        dist.all_gather(gathered, tensor, group=self.group)
        self.sent_bytes += (self.ranks - 1) * tensor.numel() * tensor.element_size()
        return gathered


class _Counted:
    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = _Group(group)

    @property
    def sent_bytes(self) -> float:
        """Bytes that this rank has sent so far."""
        return self._group.sent_bytes


class BFloat16(_Counted):
    """Halves the bytes; each rank's gradient is rounded once."""

    def sum(self, index: int, gradients: Sequence[Tensor], bucket: Tensor) -> None:
        """Sum in bfloat16."""
        half = bucket.to(torch.bfloat16)
        self._group.all_reduce(half)
        bucket.copy_(half)


class Int8(_Counted):
    """A quarter of the bytes: blocks of int8 with a scale each, summed in full precision by one rank a part."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        super().__init__(group)
        self._first: dict[tuple[int, int], list[Feedback]] = {}  # by bucket: of this rank's gradient, part by part
        self._second: dict[tuple[int, int], Feedback] = {}  # of the sum of this rank's part

    def sum(self, index: int, gradients: Sequence[Tensor], bucket: Tensor) -> None:
        """Send every rank its part, sum this rank's own, send the sum to all."""
        ranks, count = self._group.ranks, bucket.numel()
        size = -(-count // (ranks * INT8_BLOCK)) * INT8_BLOCK  # of a part: whole blocks, so that all parts are alike
        parts = torch.split(torch.nn.functional.pad(bucket, (0, size * ranks - count)), size)
        key = (index, count)
        feedback = self._first.setdefault(key, [Feedback("int8") for _ in parts])
        mine = self._group.all_to_all([f.encode(part) for f, part in zip(feedback, parts, strict=True)])
        total = torch.stack([decode(data, size, bucket.dtype, "int8") for data in mine]).sum(0)
        encoded = self._second.setdefault(key, Feedback("int8")).encode(total)
        sums = [decode(data, size, bucket.dtype, "int8") for data in self._group.all_gather(encoded)]
        bucket.copy_(torch.cat(sums)[:count])


class PowerSGD(_Counted):
    """Matrices as products of two thin ones (Vogels et al. 2019, arXiv 1905.13727); all else in full.

    Of M, rows x columns: P = M Q is summed and made orthonormal, Q = M' P is summed, and P Q' stands for the sum of M.
    Q is the next step's first guess. A matrix that would not get smaller is sent as it is.
    """

    def __init__(self, group: dist.ProcessGroup | None, rank: int) -> None:
        super().__init__(group)
        self._columns = rank
        self._guess: dict[tuple[int, int, torch.Size], Tensor] = {}
        self._lost: dict[tuple[int, int, torch.Size], Tensor] = {}

    def sum(self, index: int, gradients: Sequence[Tensor], bucket: Tensor) -> None:
        """Sum the thin matrices of all matrices at once, and the rest in full."""
        thin = [(number, g) for number, g in enumerate(gradients) if self._gets_smaller(g)]
        rest = [g for g in gradients if not self._gets_smaller(g)]
        keys = [(index, number, g.shape) for number, g in thin]
        matrices = [
            g.flatten(1) + self._lost[key] if key in self._lost else g.flatten(1).clone()
            for key, (_, g) in zip(keys, thin, strict=True)
        ]
        left = [m @ self._first_guess(key, m) for key, m in zip(keys, matrices, strict=True)]
        self._sum_together([*left, *rest])
        left = [torch.linalg.qr(p).Q for p in left]
        right = [m.T @ p for m, p in zip(matrices, left, strict=True)]
        for key, m, p, q in zip(keys, matrices, left, right, strict=True):
            self._lost[key] = m - p @ q.T
        self._sum_together(right)
        for key, (_, g), p, q in zip(keys, thin, left, right, strict=True):
            self._guess[key] = q
            g.copy_((p @ q.T).view_as(g))

    def _gets_smaller(self, gradient: Tensor) -> bool:
        if gradient.dim() < 2:
            return False
        rows, columns = gradient.flatten(1).shape
        return (rows + columns) * min(self._columns, rows, columns) < gradient.numel()

    def _first_guess(self, key: tuple[int, int, torch.Size], matrix: Tensor) -> Tensor:
        if key not in self._guess:
            generator = torch.Generator().manual_seed(SEED + key[0] * 1009 + key[1])
            columns = min(self._columns, *matrix.shape)
            guess = torch.randn(matrix.shape[1], columns, generator=generator)
            self._guess[key] = guess.to(matrix)
        return self._guess[key]

    def _sum_together(self, tensors: Sequence[Tensor]) -> None:
        if not tensors:
            return
        flat = torch.cat([t.reshape(-1) for t in tensors])
        self._group.all_reduce(flat)
        for t, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            t.copy_(part.view_as(t))


def make_compressor(kind: Compression, group: dist.ProcessGroup | None, *, powersgd_rank: int) -> Compressor | None:
    """Return the compressor of a group, None for "none"; called on all its ranks."""
    if kind == "none":
        return None
    if kind == "powersgd":
        return PowerSGD(group, powersgd_rank)
    return BFloat16(group) if kind == "bf16" else Int8(group)
