"""The gate: what a collective is given is checked here, before anything moves, whatever then moves it.

Errors are ArgumentError, raised before the call is counted, so that the group can be used afterwards.
"""

import operator
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..faults.failures import ArgumentError

TAG_MOST = 2**63 - 1


def only_tensor(tensors: Any, what: str) -> Tensor:
    """Return the only element of the lists of one in which torch hands over tensors."""
    if isinstance(tensors, Tensor):
        return tensors
    listed = tensor_list(tensors, what)
    if len(listed) != 1:
        raise ArgumentError(f"{what}: expected one tensor a rank, got {len(listed)}")
    return listed[0]


def tensor_list(tensors: Any, what: str) -> list[Tensor]:
    """Return a list of tensors as such; ArgumentError for anything else."""
    if not isinstance(tensors, list | tuple):
        raise ArgumentError(f"{what}: expected a list of tensors, got {type(tensors).__name__}")
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"{what}: expected tensors, got {type(tensor).__name__}")
    return list(tensors)


def inner_list(tensors: Any, what: str) -> list[Tensor]:
    """Return the list of tensors that torch hands over in a list of one, or by itself."""
    if isinstance(tensors, list | tuple) and len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        return tensor_list(tensors[0], what)
    return tensor_list(tensors, what)


def check_tensors(tensors: Sequence[Any], what: str) -> None:
    """Raise ArgumentError unless all are dense tensors on the CPU, with memory, and of one element type."""
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"{what}: expected a tensor, got {type(tensor).__name__}")
        if tensor.layout != torch.strided or tensor.is_nested:
            raise ArgumentError(
                f"{what}: expected dense tensors, got {'nested' if tensor.is_nested else tensor.layout}"
            )
        if tensor.device.type != "cpu":
            raise ArgumentError(f"{what}: expected tensors on the CPU, got one on {tensor.device}")
        if tensor.is_quantized:
            raise ArgumentError(f"{what}: expected plain numbers, got {tensor.dtype}; send its int_repr()")
        if tensor.dtype != tensors[0].dtype:
            raise ArgumentError(f"{what}: element types differ: {tensors[0].dtype} and {tensor.dtype}")
        start, end = extent(tensor)
        if end > start and (not start or end > _storage_end(tensor)):
            raise ArgumentError(f"{what}: a tensor of {list(tensor.shape)} has no memory, or less than its shape says")


def check_targets(tensors: Iterable[Tensor], what: str) -> None:
    """Raise ArgumentError for a target with several elements in one place of memory (`expand` makes such)."""
    for tensor in tensors:
        if _overlaps_itself(tensor):
            shape = list(tensor.shape)
            raise ArgumentError(f"{what}: a tensor of {shape} has several elements in one place of memory; clone it")


def root_of(options: Any, ranks: int, what: str) -> int:
    """Return the root of a call, a rank of the group."""
    root = index_number(options.rootRank)
    if root is None or not 0 <= root < ranks:
        raise ArgumentError(f"{what}: root {options.rootRank!r}: expected a rank of the group, 0 to {ranks - 1}")
    return root


def peer_of(rank: Any, me: int, ranks: int, what: str) -> int:
    """Return the rank that a message goes to or comes from."""
    peer = index_number(rank)
    if peer is None or not 0 <= peer < ranks or peer == me:
        raise ArgumentError(f"{what}: rank {rank!r}: expected another rank of the group, 0 to {ranks - 1} but {me}")
    return peer


def tag_of(tag: Any, what: str) -> int:
    """Return the tag of a message."""
    number = index_number(tag)
    if number is None or not 0 <= number <= TAG_MOST:
        raise ArgumentError(f"{what}: tag {tag!r}: expected 0 to 2^63 - 1")
    return number


def index_number(value: Any) -> int | None:
    """Return what Python takes as an index (NumPy's integers, tensors of one integer) as an int, None for all else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def splits_of(tensor: Tensor, splits: Any, parts: int, what: str) -> list[int]:
    """Return the bytes of each rank's block of `tensor` along its first axis; equal blocks if `splits` is empty.

    `splits` are a row of whole numbers: a list, an array or a tensor.
    """
    rows = tensor.size(0) if tensor.dim() else tensor.numel()
    try:
        given = list(splits)
    except TypeError:
        raise ArgumentError(f"{what}: splits {splits!r}: expected a number of rows for each rank") from None
    if not given:
        if rows % parts:
            raise ArgumentError(f"{what}: {rows} rows do not divide by {parts} ranks")
        given = [rows // parts] * parts
    sizes = []
    for entry in given:
        size = index_number(entry)
        if size is None or size < 0:
            raise ArgumentError(f"{what}: split size {entry!r}: expected a number of rows, 0 or more")
        sizes.append(size)
    if len(sizes) != parts:
        raise ArgumentError(f"{what}: expected {parts} split sizes, one for each rank, got {len(sizes)}: {sizes}")
    if sum(sizes) != rows:
        raise ArgumentError(f"{what}: split sizes {sizes} do not add up to {rows} rows")
    row_bytes = tensor.numel() * tensor.element_size() // rows if rows else 0
    return [rows_of_rank * row_bytes for rows_of_rank in sizes]


def extent(tensor: Tensor) -> tuple[int, int]:
    """Return the address of the first byte of a dense tensor, and of the first behind its last."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


def may_overlap(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors may have memory in common."""
    (first, first_end), (second, second_end) = extent(one), extent(other)
    return first < second_end and second < first_end


def are_apart(tensors: Sequence[Tensor]) -> bool:
    """Return whether no two tensors have memory in common."""
    extents = sorted(extent(tensor) for tensor in tensors if tensor.numel())
    return all(end <= start for (_, end), (start, _) in pairwise(extents))


def _storage_end(tensor: Tensor) -> int:
    storage = tensor.untyped_storage()
    return int(storage.data_ptr() + storage.nbytes())


def _overlaps_itself(tensor: Tensor) -> bool:
    """Return whether elements share memory: exactly for what views make, by trial for the rest."""
    if tensor.is_contiguous():
        return False
    reach = 0
    for step, size in sorted(
        (step, size) for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1
    ):
        if step <= reach:
            break
        reach += step * (size - 1)
    else:
        return False
    places = torch.zeros(1, dtype=torch.int64)
    for size, step in zip(tensor.shape, tensor.stride(), strict=True):
        places = (places.unsqueeze(-1) + torch.arange(size) * step).flatten()
    return len(set(places.tolist())) < places.numel()
