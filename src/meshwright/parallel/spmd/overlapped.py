"""Asynchronous tensor parallelism: what a cut layer sends travels while its product computes.

Under sequence parallelism the product of a column cut starts with the rank's own piece of the sequence while those of
the others arrive, and a row cut sends each piece of its sum when it is there (Wang et al. 2023, ASPLOS: "Overlap
communication with dependent computation via decomposition"). PyTorch has both as operators for GPUs that reach each
other's memory (`symm_mem.fused_all_gather_matmul`, `symm_mem.fused_matmul_reduce_scatter`), which its compiler puts in
the place of the pairs; here they are called as they are, with no compiler. They carry no promise: this file is their
only user.

Shapes: B sequences, T positions, C features in, F features out, S ranks of tp; a rank holds T / S positions outside of
the cut layers, and C or F of what it has cut.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed._symmetric_memory  # registers the operators
from torch import Tensor
from torch.nn import functional as F

from ...device import is_accelerator
from ...errors import InputError
from ...layout import Layout
from ...mesh import crossings
from .channel import AxisChannel, bytes_of
from .tensor import SEQUENCE_DIM, Seam

SETTING = "train.async_tensor_parallel"


def check_overlappable(layout: Layout, where: torch.device, hosts: Sequence[Sequence[int]] = ()) -> None:
    """Raise InputError where tensor parallelism cannot overlap; `hosts` are the ranks of each host, where known."""
    if not is_accelerator(where):
        raise InputError(
            f"{SETTING}: PyTorch overlaps products with what they send on GPUs alone, through memory that they share; "
            "leave it off on CPUs"
        )
    if layout.tp == 1 or not layout.sp:
        raise InputError(f"{SETTING}: expected a layout with tp of 2 or more and sp=1 (launch.layout), got {layout}")
    if layout.pp > 1 and layout.schedule == "zb":
        raise InputError(f"{SETTING}: schedule=zb goes through each product's backward twice, and would send twice")
    if hosts and crossings(layout, "tp", hosts):
        raise InputError(f"{SETTING}: GPUs share memory inside a host, and tp = {layout.tp} of {layout} crosses hosts")


class OverlappedSeam(Seam):
    """A seam of sequence parallelism whose collectives are part of the products beside them."""

    def __init__(self, channel: AxisChannel) -> None:
        super().__init__(channel, sequence=True)

    def column(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return [B, T, F] from x [B, T / S, C] and the weight [F, C]; a second use of x gathers nothing."""
        known = self.entered(x)
        if known is not None:
            return F.linear(known, weight)
        gathered, product = _applied(_GatheredProduct, x, weight, self.channel)
        self.keep(x, gathered)
        found: Tensor = product
        return found

    def row(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return [B, T / S, F] of the sum over ranks from x [B, T, C] and the weight [F, C]."""
        self.forget()
        found: Tensor = _applied(_ScatteredProduct, x, weight, self.channel)
        return found


def _applied(function: Any, x: Tensor, weight: Tensor, channel: AxisChannel) -> Any:
    """Apply a function to both as autocast would: what travels is then as narrow as what is multiplied."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        x, weight = x.to(dtype), weight.to(dtype)
    return function.apply(x, weight, channel)


def _gather_and_multiply(x: Tensor, matrix: Tensor, channel: AxisChannel) -> tuple[Tensor, Tensor]:
    """Return all ranks' x along the sequence, and its product with a matrix [inputs, outputs]."""
    assert channel.group is not None
    name = channel.group.group_name
    gathered, (product,) = channel.fused(
        "all_gather",
        channel.size * bytes_of(x),
        lambda: torch.ops.symm_mem.fused_all_gather_matmul(x, [matrix], SEQUENCE_DIM, name),
    )
    return gathered, product


def _multiply_and_scatter(x: Tensor, matrix: Tensor, channel: AxisChannel) -> Tensor:
    """Return this rank's part along the sequence of the sum of x times a matrix [inputs, outputs]."""
    assert channel.group is not None
    name = channel.group.group_name
    scattered: Tensor = channel.fused(
        "reduce_scatter",
        x.shape[:-1].numel() * matrix.shape[1] * x.element_size(),
        lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(x, matrix, "sum", SEQUENCE_DIM, name),
    )
    return scattered


def _weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of a weight [F, C] from those of its product [B, T, F] and its input [B, T, C]."""
    return gradient.flatten(0, -2).t() @ x.flatten(0, -2)


class _GatheredProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, channel: AxisChannel) -> tuple[Tensor, Tensor]:
        gathered, product = _gather_and_multiply(x, weight.t(), channel)
        ctx.channel = channel
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gathered, weight)
        return gathered, product

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, Tensor | None, None]:
        of_gathered, of_product = gradients
        gathered, weight = ctx.saved_tensors
        assert of_product is not None
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            if of_gathered is None:
                of_x = _multiply_and_scatter(of_product, weight, ctx.channel)
            else:  # other products used what was gathered
                of_x = ctx.channel.reduce_scatter(of_gathered + of_product @ weight, SEQUENCE_DIM)
        if ctx.needs_input_grad[1]:
            of_weight = _weight_gradient(of_product, gathered)
        return of_x, of_weight, None


class _ScatteredProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, channel: AxisChannel) -> Tensor:
        ctx.channel = channel
        ctx.save_for_backward(x, weight)
        return _multiply_and_scatter(x, weight.t(), channel)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        gathered, of_x = _gather_and_multiply(gradients[0], weight, ctx.channel)
        of_weight = _weight_gradient(gathered, x) if ctx.needs_input_grad[1] else None
        return of_x if ctx.needs_input_grad[0] else None, of_weight, None
