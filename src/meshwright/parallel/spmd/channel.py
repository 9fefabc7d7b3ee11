"""Communication inside forward and backward: blocking collectives along one axis, each with its gradient.

The pairs are those of Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053; Korthikanti et al. 2022, arXiv 2205.05198):
what is an identity forwards is a sum backwards, what gathers forwards scatters sums backwards.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...backend.group.torch_compat import all_gather_single, reduce_scatter_single
from ...mesh import Axis
from ..device_mesh import Mesh
from ..engine import Notes


def bytes_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def when_done(work: Any, note: Callable[[], None]) -> bool:
    """Call `note`, from any thread, once a collective is over; False where its backend cannot tell."""
    try:
        work.get_future().add_done_callback(lambda _: note())
    except RuntimeError:  # Gloo has no future for a reduce-scatter
        return False
    return True


class Stopwatch:
    """Tells computing from waiting: collectives note what they blocked, the rest of a span is compute."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._blocked: list[tuple[float, float]] = []

    def now(self) -> float:
        """Return this moment, as `Notes` tell it."""
        return self._notes.now()

    def block(self, name: str, start_s: float, end_s: float, size_bytes: int, detail: str) -> None:
        """Note a collective that the rank waited for."""
        self.note(name, start_s, end_s, size_bytes, detail)
        self.wait(start_s, end_s)

    def note(self, name: str, start_s: float, end_s: float, size_bytes: int, detail: str) -> None:
        """Note a collective that travelled, from any thread."""
        self._notes.note("comm", name, start_s, end_s, size_bytes, detail)

    def wait(self, start_s: float, end_s: float) -> None:
        """Note that the rank computed nothing."""
        self._blocked.append((start_s, end_s))

    def compute(self, name: str, start_s: float, end_s: float, detail: str = "") -> None:
        """Note a span of compute, without what collectives blocked inside it."""
        now = start_s
        for start, end in self._blocked:
            if start > now:
                self._notes.note("compute", name, now, start, 0, detail)
            now = max(now, end)
        if end_s > now:
            self._notes.note("compute", name, now, end_s, 0, detail)
        self._blocked.clear()


class AxisChannel:
    """The collectives of this rank's group along one axis; a group of one needs none."""

    def __init__(self, mesh: Mesh, axis: Axis, stopwatch: Stopwatch) -> None:
        self.size, self.index = mesh.size(axis), mesh.index(axis)
        self.group = mesh.group(axis) if self.size > 1 else None
        self.members = f"{self.size} ranks of {axis}"  # the detail of its spans
        self._stopwatch = stopwatch

    def all_reduce(self, tensor: Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
        """Return the sum over the group, in new memory."""
        result = tensor.clone(memory_format=torch.contiguous_format)
        self.run("all_reduce", result, lambda: dist.all_reduce(result, op=op, group=self.group))
        return result

    def all_gather(self, tensor: Tensor, dim: int) -> Tensor:
        """Return the tensors of all ranks, one behind the other along `dim`."""
        piece = tensor.contiguous()
        parts = piece.new_empty((self.size, *piece.shape))
        flat, mine = parts.view(-1), piece.view(-1)
        self.run("all_gather", parts, lambda: all_gather_single(flat, mine, group=self.group))
        dim %= tensor.dim()
        return parts.movedim(0, dim).flatten(dim, dim + 1)

    def reduce_scatter(self, tensor: Tensor, dim: int) -> Tensor:
        """Return this rank's part along `dim` of the sum over the group."""
        dim %= tensor.dim()
        parts = torch.unflatten(tensor, dim, (self.size, -1)).movedim(dim, 0).contiguous()
        result = torch.empty_like(parts[0])
        flat, mine = parts.view(-1), result.view(-1)
        self.run("reduce_scatter", parts, lambda: reduce_scatter_single(mine, flat, group=self.group))
        return result

    def all_to_all(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Send `sent[r]` rows to each rank r, in order, and return the rows that came, `received[r]` from r."""
        result = rows.new_empty((sum(received), *rows.shape[1:]))
        source = rows.contiguous()
        self.run(
            "all_to_all",
            source,
            lambda: dist.all_to_all_single(result, source, received, sent, group=self.group),
        )
        return result

    def run(self, name: str, payload: Tensor, collective: Callable[[], Any]) -> None:
        """Run a collective that blocks the rank, and note it."""
        start = self._stopwatch.now()
        collective()
        self._stopwatch.block(name, start, self._stopwatch.now(), bytes_of(payload), self.members)

    def fused(self, name: str, payload_bytes: int, call: Callable[[], Any]) -> Any:
        """Return what an operator returns that computes while it communicates: its collective counts as hidden."""
        start = self._stopwatch.now()
        result = call()
        self._stopwatch.note(name, start, self._stopwatch.now(), payload_bytes, self.members)
        return result


def copied(x: Tensor, channel: AxisChannel) -> Tensor:
    """Return `x`, which all ranks hold and each uses for its part; the gradient is summed."""
    return _call(_Copied, x, channel)


def summed(x: Tensor, channel: AxisChannel) -> Tensor:
    """Return the sum of what each rank computed; all get the gradient."""
    return _call(_Summed, x, channel)


def gathered(x: Tensor, channel: AxisChannel, dim: int) -> Tensor:
    """Return all ranks' parts, each used for other things on each rank; the gradient is summed and scattered."""
    return _call(_Gathered, x, channel, dim)


def scattered(x: Tensor, channel: AxisChannel, dim: int) -> Tensor:
    """Return this rank's part of the sum of what each rank computed; the gradient is gathered."""
    return _call(_Scattered, x, channel, dim)


def exchanged(rows: Tensor, channel: AxisChannel, sent: list[int], received: list[int]) -> Tensor:
    """Return the rows that the ranks sent here; the gradient travels back."""
    return _call(_Exchanged, rows, channel, sent, received)


def _call(function: Any, x: Tensor, channel: AxisChannel, *rest: int | list[int]) -> Tensor:
    result: Tensor = function.apply(x, channel, *rest) if channel.size > 1 else x
    return result


class _Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, channel: AxisChannel) -> Tensor:
        ctx.channel = channel
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.channel.all_reduce(gradients[0]), None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, channel: AxisChannel) -> Tensor:
        return channel.all_reduce(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, channel: AxisChannel, dim: int) -> Tensor:
        ctx.channel, ctx.dim = channel, dim
        return channel.all_gather(x, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.channel.reduce_scatter(gradients[0], ctx.dim), None, None


class _Scattered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, channel: AxisChannel, dim: int) -> Tensor:
        ctx.channel, ctx.dim = channel, dim
        return channel.reduce_scatter(x, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.channel.all_gather(gradients[0], ctx.dim), None, None


class _Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, channel: AxisChannel, sent: list[int], received: list[int]) -> Tensor:
        ctx.channel, ctx.sent, ctx.received = channel, sent, received
        return channel.all_to_all(rows, sent, received)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.channel.all_to_all(gradients[0], ctx.received, ctx.sent), None, None, None
