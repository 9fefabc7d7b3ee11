"""From tensors to memory and back: contiguous stand-ins for those that are not, blocks of one flat tensor."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from ..errors import InputError

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
    return _OPERATORS[hash(code)]


def dense(tensor: Tensor) -> Tensor:
    """Return `tensor`, or a contiguous copy if its elements do not lie one after the other."""
    if tensor.is_contiguous() and not (tensor.is_complex() and tensor.is_conj()) and not tensor.is_neg():
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


class Outputs:
    """Contiguous memory for results: the tensors themselves where possible, else copies that `land` writes back."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.memory = [dense(tensor) for tensor in tensors]
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
        raise InputError(f"{what}: {tensor.numel()} elements do not divide by {parts} ranks")
    return tensor.numel() // parts


def addresses_of(tensor: Tensor, sizes_bytes: Sequence[int]) -> list[int]:
    """Return the addresses of consecutive blocks of a contiguous tensor."""
    address, result = tensor.data_ptr(), []
    for size in sizes_bytes:
        result.append(address)
        address += size
    return result


def splits_bytes(tensor: Tensor, splits: Sequence[int], parts: int, what: str) -> list[int]:
    """Return the bytes of each rank's block of `tensor` along its first axis; equal blocks if `splits` is empty."""
    rows = tensor.size(0) if tensor.dim() else tensor.numel()
    if not splits:
        if rows % parts:
            raise InputError(f"{what}: {rows} rows do not divide by {parts} ranks")
        splits = [rows // parts] * parts
    if len(splits) != parts or sum(splits) != rows:
        raise InputError(f"{what}: split sizes {list(splits)} do not add up to {rows} rows over {parts} ranks")
    row_bytes = size_bytes(tensor) // rows if rows else 0
    return [rows_of_rank * row_bytes for rows_of_rank in splits]


def scale_(tensor: Tensor, code: Any) -> None:
    """Multiply `tensor` by the factor of a PREMUL_SUM."""
    _, factor = code.__getstate__()  # which torch 2.11 has too, unlike `factor`
    tensor.mul_(factor)


def check_tensors(tensors: Sequence[Tensor], what: str) -> None:
    """Raise InputError unless all tensors are dense, on the CPU and of one element type."""
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise InputError(f"{what}: expected dense tensors, got {tensor.layout}")
        if tensor.device.type != "cpu":
            raise InputError(f"{what}: expected tensors on the CPU, got one on {tensor.device}")
        if tensor.dtype != tensors[0].dtype:
            raise InputError(f"{what}: element types differ: {tensors[0].dtype} and {tensor.dtype}")
