"""Reduction operators on tensors: which types each takes, in which type it accumulates, how it ends.

Sums, averages and products of bfloat16 and float16 accumulate in float32 and are rounded once, at the end. Integers
wrap as in torch; an average of integers rounds towards zero. For bool, sum and max mean "any", product and min "all".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import InputError, nearest

Combine = Callable[[Tensor, Tensor], None]  # target, incoming: reduces the second into the first

OPERATORS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
HALF = frozenset({torch.float16, torch.bfloat16})
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}  # torch has no sums of these


@dataclass(frozen=True, slots=True)
class WireReduction:
    """One operator for one element type; `enter` and `leave` convert to the type that it accumulates in and back."""

    op: str
    dtype: torch.dtype
    work_dtype: torch.dtype
    combine: Combine

    @property
    def in_place(self) -> bool:
        """Whether a tensor can be reduced where it lies, without being converted first."""
        return self.work_dtype == self.dtype

    def enter(self, tensor: Tensor) -> Tensor:
        """Return the flat elements of `tensor`, in the type that is accumulated in; a copy unless `in_place`."""
        if self.dtype in SIGNED:
            return _order_kept(flat_view(tensor).view(self.work_dtype).clone(), self.op)
        return flat_view(tensor).to(self.work_dtype)

    def leave(self, result: Tensor, target: Tensor, ranks: int) -> None:
        """Store the elements of `result` in `target`, divided by `ranks` for an average."""
        if self.dtype in SIGNED:
            result = _order_kept(result, self.op).view(self.dtype)
        if self.op == "avg":
            result = _divided(result, ranks, self.dtype)
        if result.data_ptr() != target.data_ptr() or result.dtype != target.dtype:
            target.copy_(result.view(target.shape))


def flat_view(tensor: Tensor) -> Tensor:
    """Return the elements of a tensor in one dimension, contiguous; the same memory where that is possible."""
    return tensor.contiguous().view(-1)


def wire_reduction(op: str, dtype: torch.dtype) -> WireReduction:
    """Return the reduction for an operator and an element type; InputError where the operator has no meaning."""
    if op not in OPERATORS:
        raise InputError(f"operator {op!r}: unknown ({nearest(op, OPERATORS)})")
    floating = dtype.is_floating_point or dtype.is_complex
    if floating and op in {"band", "bor", "bxor"}:
        raise InputError(f"operator {op}: expected integers or bool, got {dtype}")
    if dtype.is_complex and op in {"min", "max"}:
        raise InputError(f"operator {op}: complex numbers have no order")
    if dtype == torch.bool:
        if op == "avg":
            raise InputError("operator avg: expected numbers, got torch.bool")
        return WireReduction(op, dtype, dtype, _BOOL[op])
    work = torch.float32 if dtype in HALF and op in {"sum", "avg", "product"} else SIGNED.get(dtype, dtype)
    return WireReduction(op, dtype, work, _NUMBERS[op])


def _minimum(target: Tensor, incoming: Tensor) -> None:
    torch.minimum(target, incoming, out=target)


def _maximum(target: Tensor, incoming: Tensor) -> None:
    torch.maximum(target, incoming, out=target)


def add(target: Tensor, incoming: Tensor) -> None:
    """Add the second to the first."""
    target.add_(incoming)


def _multiply(target: Tensor, incoming: Tensor) -> None:
    target.mul_(incoming)


def _and(target: Tensor, incoming: Tensor) -> None:
    target.bitwise_and_(incoming)


def _or(target: Tensor, incoming: Tensor) -> None:
    target.bitwise_or_(incoming)


def _xor(target: Tensor, incoming: Tensor) -> None:
    target.bitwise_xor_(incoming)


_NUMBERS: dict[str, Combine] = {
    "sum": add,
    "avg": add,
    "product": _multiply,
    "min": _minimum,
    "max": _maximum,
    "band": _and,
    "bor": _or,
    "bxor": _xor,
}
_BOOL: dict[str, Combine] = {
    "sum": _or,
    "product": _and,
    "min": _and,
    "max": _or,
    "band": _and,
    "bor": _or,
    "bxor": _xor,
}


def _order_kept(signed: Tensor, op: str) -> Tensor:
    """Flip the sign bit, for min and max: it maps the order of unsigned numbers to that of signed ones, and back."""
    return signed.bitwise_xor_(torch.iinfo(signed.dtype).min) if op in {"min", "max"} else signed


def _divided(result: Tensor, ranks: int, dtype: torch.dtype) -> Tensor:
    if dtype in SIGNED:
        unsigned: np.ndarray[Any, Any] = result.cpu().numpy()
        return torch.from_numpy(unsigned // unsigned.dtype.type(ranks)).to(result.device)
    return (
        result.div_(ranks)
        if result.is_floating_point() or result.is_complex()
        else result.div_(ranks, rounding_mode="trunc")
    )
