"""The rule that keeps ranks apart in the slots that they share: any row of collectives, with any rank late."""

import random
import time

import pytest
import torch
import torch.distributed as dist

from tests.multiproc.test_backend_collectives import expected, group, values

STEPS = 300
LATE_S = 0.0005
MOST = 6000  # elements: several slots of 4096 bytes


def reduce_all(rank, ranks, inputs, op):
    tensor = inputs[rank].clone()
    dist.all_reduce(tensor, op)
    return tensor, expected(inputs, op)


def reduce_to(root):
    def call(rank, ranks, inputs, op):
        tensor = inputs[rank].clone()
        dist.reduce(tensor, root % ranks, op)
        return tensor, expected(inputs, op) if rank == root % ranks else inputs[rank]

    return call


def broadcast(rank, ranks, inputs, op):
    root = len(inputs[0]) % ranks
    tensor = inputs[rank].clone()
    dist.broadcast(tensor, root)
    return tensor, inputs[root]


def gather_all(rank, ranks, inputs, op):
    into = [torch.empty_like(one) for one in inputs]
    dist.all_gather(into, inputs[rank])
    return torch.cat(into), torch.cat(inputs)


def scatter(rank, ranks, inputs, op):
    root = len(inputs[0]) % ranks
    tensor = torch.empty_like(inputs[rank])
    dist.scatter(tensor, inputs if rank == root else None, src=root)
    return tensor, inputs[rank]


def reduce_scatter(rank, ranks, inputs, op):
    blocks = [[one + i for i in range(ranks)] for one in inputs]
    out = torch.empty_like(inputs[rank])
    dist.reduce_scatter(out, blocks[rank], op)
    return out, expected([theirs[rank] for theirs in blocks], op)


def exchange_all(rank, ranks, inputs, op):
    sizes = [[len(inputs[0]) * ((s + 2 * r) % 3) for r in range(ranks)] for s in range(ranks)]
    sent = [[torch.full((sizes[s][r],), 10 * s + r) for r in range(ranks)] for s in range(ranks)]
    out = [torch.empty(sizes[s][rank], dtype=torch.int64) for s in range(ranks)]
    dist.all_to_all(out, sent[rank])
    return torch.cat(out), torch.cat([sent[s][rank] for s in range(ranks)])


CALLS = [
    *(reduce_all, reduce_all, reduce_to(0), reduce_to(1), broadcast),
    *(gather_all, scatter, reduce_scatter, exchange_all),
]


def a_row_of_collectives(rank, world_size, store, helper, seed):
    """Return which collectives of a random row left something wrong on this rank."""
    row, own, wrong = random.Random(seed), random.Random(100 * seed + rank), []
    with group(rank, world_size, store, slot_bytes=4096, helper=helper):
        for step in range(STEPS):
            call = row.choice(CALLS)
            count = int(MOST ** row.random())
            op = row.choice([dist.ReduceOp.SUM, dist.ReduceOp.MAX])  # the helper does not know the latter
            dtype = row.choice([torch.float32, torch.int64])
            inputs = [values(r, count, dtype, seed=step) for r in range(world_size)]
            if own.random() < 0.3:
                time.sleep(own.random() * LATE_S)
            got, want = call(rank, world_size, inputs, op)
            if not torch.equal(got, want):
                wrong.append((step, call.__name__, count, dtype))
    return wrong


@pytest.mark.parametrize("helper", ["0", "1", "mixed"])
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_any_row_of_collectives_finds_its_slots_as_it_left_them(rank_pool, world_size, helper):
    assert rank_pool(world_size).run(a_row_of_collectives, helper, world_size) == [[]] * world_size
