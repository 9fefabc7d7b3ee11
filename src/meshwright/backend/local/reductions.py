"""Element-wise reductions over blocks of memory: every element type and operator of torch.distributed.

A `Reduction` reads inputs in the order given, so that ranks that reduce the same blocks get the same bits.
numpy does the work where it knows the type (a quarter of torch's cost a call); torch does bfloat16, float16 and float8,
which add up in float32 when there are more than two inputs and are rounded once. Blocks are views of shared memory.
"""

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..faults.failures import ArgumentError

OPERATORS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
Block = Any  # numpy.ndarray or torch.Tensor, whichever the element type asks for
_NUMPY_TYPES: dict[torch.dtype, Any] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
    torch.int8: np.int8,
    torch.int16: np.int16,
    torch.int32: np.int32,
    torch.int64: np.int64,
    torch.uint8: np.uint8,
    torch.uint16: np.uint16,
    torch.uint32: np.uint32,
    torch.uint64: np.uint64,
    torch.bool: np.bool_,
    torch.complex64: np.complex64,
    torch.complex128: np.complex128,
}
_NATIVE = {torch.float32: 0, torch.float64: 1, torch.int32: 2, torch.int64: 3, torch.bfloat16: 4}  # of helper.c


def _minimum(a: Block, b: Block, out: Block) -> None:
    np.minimum(a, b, out=out)  # NumPy warns of a third argument by place


def _maximum(a: Block, b: Block, out: Block) -> None:
    np.maximum(a, b, out=out)


_UFUNCS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "avg": np.add,
    "product": np.multiply,
    "min": _minimum,
    "max": _maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
_TORCH: dict[str, Callable[..., Any]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
}


@dataclass(frozen=True, slots=True, eq=False)  # compared and hashed as an object: it is a key on the fast path
class Reduction:
    """How to reduce blocks of one element type with one operator.

    `combine(a, b, out)` is the bare operator; `reduce(inputs, out)` all of it (out may be one of the inputs).
    """

    operator: str
    dtype: torch.dtype
    item_bytes: int
    combine: Callable[[Block, Block, Block], object]
    view: Callable[[Any, int, int], Block]  # of a buffer, from a byte offset, a count of elements
    at: Callable[[int, int], Block]  # the elements at an address: (address, count)
    finish: Callable[[Block, int], object] | None  # the division of an average, by the number of ranks
    wide: Callable[[Sequence[Block], Block, int], object] | None  # narrow types: more than two inputs, and averages
    native: int | None = None  # the number of the type in the C helper, for sums that it can do

    def reduce(self, inputs: Sequence[Block], out: Block, ranks: int) -> None:
        """Reduce `inputs` in their order into `out`; `ranks` divides an average."""
        if self.wide is not None and (len(inputs) > 2 or self.operator == "avg"):
            self.wide(inputs, out, ranks)
            return
        combine = self.combine
        if len(inputs) == 1:
            out[:] = inputs[0]
        else:
            combine(inputs[0], inputs[1], out)
        for block in inputs[2:]:
            combine(out, block, out)
        if self.finish is not None:
            self.finish(out, ranks)

    def divide(self, block: Block, ranks: int) -> None:
        """Turn a sum into the average over `ranks`, in place."""
        if self.wide is not None:
            self.wide([block], block, ranks)
        elif self.finish is not None:
            self.finish(block, ranks)


@functools.cache
def reduction(dtype: torch.dtype, operator: str) -> Reduction:
    """Return the reduction of one element type and operator; ArgumentError for a pair that has no meaning."""
    if operator not in OPERATORS:
        raise ArgumentError(f"reduction {operator}: expected one of {', '.join(OPERATORS)}")
    if operator in {"band", "bor", "bxor"} and (dtype.is_floating_point or dtype.is_complex):
        raise ArgumentError(f"reduction {operator} of {dtype}: bitwise operators need integers")
    if operator in {"min", "max"} and dtype.is_complex:
        raise ArgumentError(f"reduction {operator} of {dtype}: complex numbers have no order")
    if operator == "avg" and dtype == torch.bool:
        raise ArgumentError("reduction avg of torch.bool: has no meaning")
    if dtype in _NUMPY_TYPES:
        return _with_numpy(dtype, operator)
    if dtype.is_floating_point:
        return _with_torch(dtype, operator)
    raise ArgumentError(f"reduction {operator} of {dtype}: this element type cannot be reduced")


def _with_numpy(dtype: torch.dtype, operator: str) -> Reduction:
    kind = np.dtype(_NUMPY_TYPES[dtype])
    item_bytes = kind.itemsize

    def view(buffer: Any, offset_bytes: int, count: int) -> Block:
        return np.frombuffer(buffer, kind, count, offset_bytes)

    def at(address: int, count: int) -> Block:
        return np.frombuffer((ctypes.c_char * (count * item_bytes)).from_address(address), kind, count)

    native = _NATIVE.get(dtype) if operator == "sum" else None
    finish: Callable[[Block, int], object] | None = None
    if operator == "avg":
        finish = _divide_integers if kind.kind in "iu" else _divide
    return Reduction(
        operator,
        dtype,
        item_bytes,
        _UFUNCS[operator],
        view,
        at,
        finish,
        None,
        native,
    )


def _divide(block: Block, ranks: int) -> None:
    np.divide(block, ranks, out=block)


def _divide_integers(block: Block, ranks: int) -> None:
    """Divide towards zero, as NCCL does. In a type that holds the number of ranks, and the negative of every sum."""
    wide = block if block.itemsize == 8 else block.astype(np.int64)
    quotient = wide // ranks
    quotient += (wide < 0) & (quotient * ranks != wide)
    block[:] = quotient


def _with_torch(dtype: torch.dtype, operator: str) -> Reduction:
    item_bytes = dtype.itemsize
    function = _TORCH[operator]
    plain = dtype in {torch.bfloat16, torch.float16}
    native = _NATIVE.get(dtype) if operator == "sum" else None

    def view(buffer: Any, offset_bytes: int, count: int) -> Block:
        return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset_bytes)

    def at(address: int, count: int) -> Block:
        return torch.frombuffer((ctypes.c_char * (count * item_bytes)).from_address(address), dtype=dtype, count=count)

    def wide(inputs: Sequence[Block], out: Block, ranks: int) -> None:
        total = inputs[0].float()
        for block in inputs[1:]:
            function(total, block if plain else block.float(), out=total)
        if operator == "avg":
            total /= ranks
        out.copy_(total)

    def combine(a: Block, b: Block, out: Block) -> None:
        if plain:
            function(a, b, out=out)
        else:
            out.copy_(function(a.float(), b.float()))

    return Reduction(operator, dtype, item_bytes, combine, view, at, None, wide, native)
