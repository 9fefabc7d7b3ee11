"""Sums and averages of sparse tensors over ranks."""

import pytest
import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from meshwright.backend.faults.failures import CollectiveMismatch


def entries(rank, dtype=torch.float32, values=(3, 2, 4)):
    """Return a tensor of 5 with one entry at the rank, and two at index 3."""
    numbers = torch.tensor(values).to(dtype)
    return torch.sparse_coo_tensor([[rank, 3, 3]], numbers, (5,), check_invariants=True)


def start(rank, world_size, store):
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)


def reduced(tensor, operator=dist.ReduceOp.SUM, asynchronous=False):
    """Return what a tensor holds after its reduction."""
    work = dist.all_reduce(tensor, operator, async_op=asynchronous)
    if asynchronous:
        work.wait()
    return tensor.to_dense().tolist()


def sums_by_type(rank, world_size, store, asynchronous):
    start(rank, world_size, store)
    types = ("float32", "float16", "bfloat16", "int8", "int64", "complex64")
    return {name: reduced(entries(rank, getattr(torch, name)), asynchronous=asynchronous) for name in types}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_sparse_tensors_of_every_type_are_summed_complex_ones_too(rank_pool, asynchronous):
    right = [3, 3, 0, 12, 0]
    for found in rank_pool(2).run(sums_by_type, asynchronous):
        assert found == dict.fromkeys(found, right)


def averages(rank, world_size, store):
    start(rank, world_size, store)
    average, large = dist.ReduceOp.AVG, 2**53 + 2 * rank
    return [
        reduced(entries(rank), average),
        reduced(entries(rank, torch.complex128), average),
        reduced(entries(rank, torch.int32, (-3, 2, 4)), average),
        reduced(entries(rank, torch.int64, (large, 0, large)), average)[3],
    ]


def test_averages_of_sparse_integers_are_exact_and_cut_towards_zero(rank_pool):
    right = [[1.5, 1.5, 0, 6, 0], [1.5, 1.5, 0, 6, 0], [-1, -1, 0, 6, 0], 2**53 + 1]
    assert rank_pool(2).run(averages) == [right, right]


def odd_ones(rank, world_size, store):
    """Return sums of sparse tensors that are rare: by how they were made."""
    start(rank, world_size, store)
    with torch.inference_mode():
        inferred = entries(rank)
    nothing = torch.zeros(1, 0, dtype=torch.int64)
    rows = (nothing, torch.ones(0, 2)) if rank == 0 else ([[1]], torch.ones(1, 2))
    scalar = torch.sparse_coo_tensor(torch.zeros(0, 1, dtype=torch.int64), [2.0], (), check_invariants=True)
    return {
        "made in inference mode": reduced(inferred),
        "a leaf with a gradient": reduced(entries(rank).requires_grad_()),
        "rows, none on one rank": reduced(torch.sparse_coo_tensor(*rows, (3, 2), check_invariants=True)),
        "without a dimension": reduced(scalar),
        "of no elements": reduced(torch.sparse_coo_tensor(nothing, [], (0,), check_invariants=True)),
    }


def test_sparse_tensors_of_rare_kinds_are_summed(rank_pool):
    right = {
        "made in inference mode": [3, 3, 0, 12, 0],
        "a leaf with a gradient": [3, 3, 0, 12, 0],
        "rows, none on one rank": [[0, 0], [1, 1], [0, 0]],
        "without a dimension": 4.0,
        "of no elements": [],
    }
    assert rank_pool(2).run(odd_ones) == [right, right]


def shapes_differ(rank, world_size, store, kind):
    start(rank, world_size, store)
    index, values = [[1], [1]], torch.ones(1)
    shape = (4, 5)
    if rank == 1 and kind == "turned":
        shape = (5, 4)
    elif rank == 1:  # the same elements, but the second axis is dense
        index, values = [[1]], torch.ones(1, 5)
    try:
        reduced(torch.sparse_coo_tensor(index, values, shape, check_invariants=True))
    except CollectiveMismatch as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", ["turned", "dense in one axis"])
def test_sparse_tensors_of_as_many_elements_but_other_axes_are_a_disagreement(rank_pool, kind):
    for heard in rank_pool(2).run(shapes_differ, kind):
        assert heard.count("all_reduce of a sparse tensor of 80 B shaped #") == 2
