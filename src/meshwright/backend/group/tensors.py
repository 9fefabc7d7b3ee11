"""From tensors to memory and back: contiguous copies of strided tensors, blocks of one flat tensor."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from ..faults.failures import ArgumentError
from .arguments import are_apart

_OPERATORS = {
    int(cast(Any, code)): name
    for code, name in (
        (ReduceOp.SUM, "sum"),
        (ReduceOp.AVG, "avg"),
        (ReduceOp.PRODUCT, "product"),
        (ReduceOp.MIN, "min"),
        (ReduceOp.MAX, "max"),
        (ReduceOp.BAND, "band"),
        (ReduceOp.BOR, "bor"),
        (ReduceOp.BXOR, "bxor"),
        (ReduceOp.PREMUL_SUM, "premul_sum"),
    )
}  # the hash of a ReduceOp is its number, and the cheapest thing to ask of it


def operator_of(code: Any) -> str:
    """Return our name of a ReduceOp."""
    name = _OPERATORS.get(hash(code)) if isinstance(code, ReduceOp | ReduceOp.RedOpType) else None
    if name is None:
        raise ArgumentError(f"reduction {code!r}: expected an operator of torch.distributed.ReduceOp")
    return name


def dense(tensor: Tensor) -> Tensor:
    """Return `tensor`, or a contiguous copy if its elements do not lie one after the other."""
    if tensor.is_contiguous() and not (tensor.is_complex() and tensor.is_conj()) and not tensor.is_neg():
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


class Outputs:
    """Contiguous memory for results: the tensors themselves where possible, else copies that `land` writes back.

    Results whose memory overlaps are made apart and written back in their order, so that the last counts on all ranks.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.memory = [dense(tensor) for tensor in tensors]
        if len(tensors) > 1 and not are_apart(tensors):
            self.memory = [m.clone() if m is t else m for t, m in zip(tensors, self.memory, strict=True)]
        self._away = [(t, m) for t, m in zip(tensors, self.memory, strict=True) if m is not t]
        self.addresses = [memory.data_ptr() for memory in self.memory]

    def land(self) -> None:
        """Copy the results that were made elsewhere into the caller's tensors."""
        for tensor, memory in self._away:
            tensor.detach().copy_(memory)


def size_bytes(tensor: Tensor) -> int:
    """Return the bytes of the elements."""
    return int(tensor.numel() * tensor.element_size())


def block_count(tensor: Tensor, parts: int, what: str) -> int:
    """Return the elements of each of `parts` equal blocks of a flat tensor."""
    if tensor.numel() % parts:
        raise ArgumentError(f"{what}: {tensor.numel()} elements do not divide by {parts} ranks")
    return tensor.numel() // parts


def addresses_of(tensor: Tensor, sizes_bytes: Sequence[int]) -> list[int]:
    """Return the addresses of consecutive blocks of a contiguous tensor."""
    address, result = tensor.data_ptr(), []
    for size in sizes_bytes:
        result.append(address)
        address += size
    return result


def factor_of(code: Any, dtype: torch.dtype) -> complex | None:
    """Return what a PREMUL_SUM multiplies by, as a number of an element type; None for every other operator.

    NCCL multiplies numbers with a fraction alone; integers have a product too where the factor is one of them.
    """
    if operator_of(code) != "premul_sum":
        return None
    _, given = code.__getstate__()  # which torch 2.11 has too, unlike `factor`
    factor: Any = given.item() if isinstance(given, Tensor) else given
    if dtype.is_complex:
        return complex(factor)
    is_real = not isinstance(factor, complex)
    if dtype.is_floating_point and is_real:
        return float(factor)
    if dtype != torch.bool and is_real and math.isfinite(factor) and factor == int(factor):
        limits = torch.iinfo(dtype)
        if limits.min <= factor <= limits.max:
            return int(factor)
    raise ArgumentError(f"premul_sum of {dtype} by {factor}: expected a factor that {dtype} can hold")


def scale_(tensor: Tensor, factor: complex) -> None:
    """Multiply `tensor` by a factor of its element type."""
    values = tensor.detach()  # it may be a leaf that requires gradients, or made in inference mode
    if values.dtype.is_floating_point and values.dtype.itemsize == 1:
        values.copy_(values.float().mul_(factor))  # float8 has no product
    else:
        values.mul_(factor)
