"""The sum of sparse tensors over all ranks: counts, indices and values are gathered and added up in rank order."""

import torch
from torch import Tensor

from ..faults.failures import ArgumentError
from ..local.engine import GroupEngine


def check_sparse(tensor: Tensor, operator: str) -> None:
    """Raise ArgumentError unless `tensor` can be summed over ranks."""
    if operator not in {"sum", "avg"}:
        raise ArgumentError(f"all_reduce of a sparse tensor: expected sum or avg, got {operator}")
    if tensor.device.type != "cpu":
        raise ArgumentError(f"all_reduce: expected tensors on the CPU, got one on {tensor.device}")


def all_reduce_sparse(engine: GroupEngine, tensor: Tensor, ranks: int, *, average: bool) -> None:
    """Replace `tensor` (COO) by the sum, or the average, over all ranks. Blocks; all ranks, the same shape."""
    local = tensor.detach().coalesce()
    entries = _gather(engine, torch.tensor([local._nnz()], dtype=torch.int64), [1] * ranks)
    counts = [int(count) for count in torch.cat(entries)]
    indices, values = local.indices().contiguous(), local.values().contiguous()
    rows = indices.size(0)
    per_entry = values.shape[1:].numel()
    all_indices = _gather(engine, indices, [rows * count for count in counts])
    all_values = _gather(engine, values, [per_entry * count for count in counts])
    merged = torch.sparse_coo_tensor(
        torch.cat([part.view(rows, -1) if len(part) else part.view(rows, 0) for part in all_indices], dim=1),
        torch.cat([part.view(count, *values.shape[1:]) for part, count in zip(all_values, counts, strict=True)]),
        tensor.shape,
        check_invariants=True,
    ).coalesce()
    with torch.no_grad():
        tensor.copy_(merged / ranks if average else merged)


def _gather(engine: GroupEngine, block: Tensor, counts: list[int]) -> list[Tensor]:
    parts = [torch.empty(count, dtype=block.dtype) for count in counts]
    item_bytes = block.element_size()
    engine.all_gather(block.data_ptr(), [part.data_ptr() for part in parts], [count * item_bytes for count in counts])
    return parts
