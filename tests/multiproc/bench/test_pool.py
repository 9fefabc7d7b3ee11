"""The pool of live ranks itself."""

import pytest
import torch
import torch.distributed as dist

from meshwright.bench.pool import RankFailedError


def sum_of_ranks(rank, world_size, store, backend):
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor)
    return tensor.item()


def fail_on_rank_one(rank, world_size, store):
    if rank == 1:
        raise ValueError("rank one says no")


def test_ranks_meet_and_return_in_order(rank_pool):
    assert rank_pool(2).run(sum_of_ranks, "gloo") == [1.0, 1.0]


def test_a_pool_is_used_again_after_a_failure(rank_pool):
    with pytest.raises(RankFailedError, match="rank one says no"):
        rank_pool(2).run(fail_on_rank_one)
    assert rank_pool(2).run(sum_of_ranks, "gloo") == [1.0, 1.0]
