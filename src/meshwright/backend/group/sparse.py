"""The sum of sparse tensors over all ranks: counts, indices and values are gathered and added up in rank order."""

import functools

import torch
from torch import Tensor

from ..faults.failures import ArgumentError
from ..local.engine import GroupEngine
from ..local.reductions import reduction
from .signature import Signature, mix, signature

NAME = "all_reduce of a sparse tensor"


def complex_of(tensor: Tensor) -> Tensor:
    """Return the sparse tensor to reduce: the complex one where torch hands over its real view.

    Such a view has the values in common, but a copy of the indices, so that a sum with more entries cannot reach the
    caller's tensor through it.
    """
    base = tensor._base
    return tensor if base is None or not (base.is_sparse and base.is_complex()) else base


def sparse_entries(tensor: Tensor, operator: str) -> Tensor:
    """Return what a rank gives, each index once; ArgumentError for what cannot be summed over ranks."""
    if operator not in {"sum", "avg"}:
        raise ArgumentError(f"{NAME}: expected sum or avg, got {operator}")
    if tensor.device.type != "cpu":
        raise ArgumentError(f"all_reduce: expected tensors on the CPU, got one on {tensor.device}")
    reduction(tensor.dtype, operator)  # which refuses averages of bool
    try:
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            _try_to_add(tensor.dtype)
            whole = tensor.coalesce()
            torch.sparse_coo_tensor(whole.indices(), whole.values(), whole.shape, check_invariants=True)
    except RuntimeError as error:  # of a type that torch does not sum (NotImplementedError), or with a bad index
        raise ArgumentError(f"{NAME}: {error}") from error
    return whole


@functools.cache
def _try_to_add(dtype: torch.dtype) -> None:
    """Raise torch's error for a type that it does not add up, which it says only where there is something to add."""
    torch.sparse_coo_tensor(
        torch.zeros(1, 2, dtype=torch.int64), torch.ones(2).to(dtype), (1,), check_invariants=True
    ).coalesce()


def sparse_signature(tensor: Tensor, operator: str) -> Signature:
    """Return what all ranks must call alike, the shape among it: an index has no meaning in another."""
    asked = signature(NAME, tensor.dtype, tensor.numel() * tensor.element_size(), operator=operator)
    number = tensor.sparse_dim() + 1
    for size in tensor.shape:
        number = mix(number, size)
    return asked._replace(sizes=number or 1)


def all_reduce_sparse(engine: GroupEngine, tensor: Tensor, own: Tensor, ranks: int, *, average: bool) -> None:
    """Replace `tensor` (COO) by the sum, or the average, of the entries of all ranks. Blocks; all ranks, one shape."""
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        counts = [int(part) for part in _gather(engine, torch.tensor([own._nnz()]), [1] * ranks)]
        indices, values = own.indices().contiguous(), own.values().contiguous()
        rows, per_entry = indices.size(0), values.shape[1:].numel()
        all_indices = _gather(engine, indices, [rows * count for count in counts])
        all_values = _gather(engine, values, [per_entry * count for count in counts])
        summed = torch.cat(all_values).view(-1, *values.shape[1:]) if per_entry else values.new_empty(0)
        merged = torch.sparse_coo_tensor(
            torch.cat([part.view(rows, count) for part, count in zip(all_indices, counts, strict=True)], dim=1),
            summed.float() if tensor.dtype in {torch.bfloat16, torch.float16} else summed,
            tensor.shape,
            check_invariants=False,
        ).coalesce()
        if average:
            whole = not (tensor.is_floating_point() or tensor.is_complex())
            merged.values().div_(ranks, rounding_mode="trunc" if whole else None)
        tensor.copy_(merged)


def _gather(engine: GroupEngine, block: Tensor, counts: list[int]) -> list[Tensor]:
    parts = [torch.empty(count, dtype=block.dtype) for count in counts]
    item_bytes = block.element_size()
    engine.all_gather(block.data_ptr(), [part.data_ptr() for part in parts], [count * item_bytes for count in counts])
    return parts
