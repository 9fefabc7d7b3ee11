"""Every collective of the backend "meshwright" on live ranks, against results computed plainly from all inputs."""

import contextlib
import hashlib
import os
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
import meshwright.backend.group.base as group_module
from meshwright.backend.group import native_calls as calls
from meshwright.backend.local import helper as helper_module
from meshwright.backend.local import ranks as local
from meshwright.backend.local import waiting

SLOT, HELPER, HOST = "MESHWRIGHT_SLOT_BYTES", "MESHWRIGHT_HELPER", "MESHWRIGHT_HOST"
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.bool),
]
EVERY_PAIR = (2, 6)  # of ranks on one host, which reduce long tensors of every type with every operator
SIZES = [1, 2, 7, 63, 1000, 2049, 5003, 20_011]  # slots of 4096 bytes: many slots, odd pieces, broadcasts in long ones


@contextlib.contextmanager
def group(rank, world_size, store, slot_bytes=None, helper="1", per_host=None):
    """Make the default group; `helper` "mixed" uses the C helper on odd ranks only, "ctypes" not the short way into it;
    `per_host` pretends hosts.
    """
    if per_host:
        os.environ[HOST] = f"host{rank // per_host}"
    if slot_bytes:
        os.environ[SLOT] = str(slot_bytes)
    os.environ[HELPER] = {"mixed": str(rank % 2), "ctypes": "1"}.get(helper, helper)
    load_calls = calls.load_calls
    if helper == "ctypes":
        calls.load_calls = lambda: None
    try:
        dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)
        yield
    finally:
        os.environ.pop(SLOT, None)
        os.environ.pop(HELPER, None)
        os.environ.pop(HOST, None)
        calls.load_calls = load_calls


def values(rank, count, dtype, seed=0):
    """Return small numbers that sum exactly in every element type."""
    numbers = (torch.arange(count) * 7 + 3 * rank + seed) % 5
    return (numbers % 2 == 0) if dtype == torch.bool else numbers.to(dtype)


def expected(tensors, op):
    """Reduce in double precision, or in 64-bit integers, one rank after the other."""
    dtype = tensors[0].dtype
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    stack = torch.stack([tensor.to(wide) for tensor in tensors])
    if op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        total = stack.sum(0)
        if dtype == torch.bool:
            total = total > 0
        elif op == dist.ReduceOp.AVG:
            total = total / len(tensors) if dtype.is_floating_point else total // len(tensors)
        return total.to(dtype)
    if op == dist.ReduceOp.PRODUCT:
        return stack.prod(0).to(dtype)
    if op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        return (stack.amin(0) if op == dist.ReduceOp.MIN else stack.amax(0)).to(dtype)
    total = tensors[0].clone()
    bitwise = {
        dist.ReduceOp.BAND: torch.bitwise_and,
        dist.ReduceOp.BOR: torch.bitwise_or,
        dist.ReduceOp.BXOR: torch.bitwise_xor,
    }[op]
    for tensor in tensors[1:]:
        total = bitwise(total.to(torch.int64), tensor.to(torch.int64)).to(dtype)
    return total


def equal(a, b):
    return a.dtype == b.dtype and torch.equal(a.to(torch.float64), b.to(torch.float64))


def reductions_of_every_type(rank, world_size, store, helper, per_host=None):
    ops = dist.ReduceOp
    plain = [ops.SUM, ops.PRODUCT, ops.MIN, ops.MAX, ops.AVG]
    wrong = []
    types = [t for t in DTYPES if not per_host or t != torch.float8_e5m2]  # schedules do not reduce float8
    with group(rank, world_size, store, slot_bytes=4096, helper=helper, per_host=per_host):
        for dtype in types:
            bits = [] if dtype.is_floating_point else [ops.BAND, ops.BOR, ops.BXOR]
            for op in [*(o for o in plain if not (o == ops.AVG and dtype == torch.bool)), *bits]:
                for count in counts(dtype, op, world_size, per_host):
                    inputs = [values(r, count, dtype) for r in range(world_size)]
                    want = expected(inputs, op)
                    tensor = inputs[rank].clone()
                    dist.all_reduce(tensor, op)
                    if not equal(tensor, want):
                        wrong.append(("all_reduce", dtype, op, count))
                    tensor = inputs[rank].clone()
                    dist.reduce(tensor, world_size - 1, op)
                    if not equal(tensor, want if rank == world_size - 1 else inputs[rank]):
                        wrong.append(("reduce", dtype, op, count))
                    blocks = [[values(r, count, dtype, seed=i) for i in range(world_size)] for r in range(world_size)]
                    out = torch.empty(count, dtype=dtype)
                    dist.reduce_scatter(out, blocks[rank], op)
                    if not equal(out, expected([blocks[r][rank] for r in range(world_size)], op)):
                        wrong.append(("reduce_scatter", dtype, op, count))
    return wrong


def counts(dtype, op, world_size, per_host):
    """Return how many elements to reduce: many of each type and with each operator, and of all pairs on few ranks."""
    every_pair = world_size in EVERY_PAIR and not per_host
    if not (every_pair or op == dist.ReduceOp.SUM or dtype == torch.float32):
        return (5,)
    return (5, 5003, 40_000) if per_host else (5, 5003)


def moves_of_every_size(rank, world_size, store, helper, per_host=None):
    wrong = []

    def check(name, count, got, want):
        if not torch.equal(got, want):
            wrong.append((name, count))

    with group(rank, world_size, store, slot_bytes=4096, helper=helper, per_host=per_host):
        for count in SIZES:
            mine = [values(r, count, torch.float32, seed=r * r) for r in range(world_size)]
            for root in range(world_size):
                tensor = mine[rank].clone()
                dist.broadcast(tensor, root)
                check("broadcast", count, tensor, mine[root])
                into = [torch.empty(count) for _ in range(world_size)] if rank == root else None
                dist.gather(mine[rank], into, dst=root)
                if into is not None:
                    check("gather", count, torch.cat(into), torch.cat(mine))
                tensor = torch.empty(count)
                dist.scatter(tensor, mine if rank == root else None, src=root)
                check("scatter", count, tensor, mine[rank])
            into = [torch.empty(count) for _ in range(world_size)]
            dist.all_gather(into, mine[rank])
            check("all_gather", count, torch.cat(into), torch.cat(mine))
            flat = torch.empty(count * world_size)
            dist.all_gather_into_tensor(flat, mine[rank])
            check("all_gather_into_tensor", count, flat, torch.cat(mine))
            sent = [
                [values(s, count, torch.float32, seed=10 * r) for r in range(world_size)] for s in range(world_size)
            ]
            dist.all_to_all_single(flat, torch.cat(sent[rank]))
            check("all_to_all_single", count, flat, torch.cat([sent[s][rank] for s in range(world_size)]))
            sizes = [[(3 * s + 5 * r) % 4 * count for r in range(world_size)] for s in range(world_size)]
            uneven = [[torch.full((sizes[s][r],), 10.0 * s + r) for r in range(world_size)] for s in range(world_size)]
            out = [torch.empty(sizes[s][rank]) for s in range(world_size)]
            dist.all_to_all(out, uneven[rank])
            check("all_to_all", count, torch.cat(out), torch.cat([uneven[s][rank] for s in range(world_size)]))
            out = torch.empty(sum(sizes[s][rank] for s in range(world_size)))
            received = [sizes[s][rank] for s in range(world_size)]
            dist.all_to_all_single(out, torch.cat(uneven[rank]), received, sizes[rank])
            check("uneven", count, out, torch.cat([uneven[s][rank] for s in range(world_size)]))
            dist.barrier()
    return wrong


def streamed_moves(rank, world_size, store):
    """Make the same moves with every result, small as it is, copied past the caches."""
    before, local.STREAM_BYTES = local.STREAM_BYTES, 0
    try:
        return moves_of_every_size(rank, world_size, store, "1")
    finally:
        local.STREAM_BYTES = before


def every_call_tries_both_fillings(rank, world_size, store, function):
    """Run a function with all sizes, small as they are, treated as those where it matters how slots are filled."""
    with patch.object(helper_module, "FILLING_BYTES", 1), patch.object(local, "claim_bytes", lambda *_: 64):
        return function(rank, world_size, store, "1")


def every_read_is_claimed_or_none(rank, world_size, store, function, claim_bytes):
    """Run a function with slots claimed up to a number of bytes, whatever the processor."""
    with patch.object(local, "claim_bytes", lambda *_: claim_bytes):
        return function(rank, world_size, store, "mixed")


def every_wait_is_interrupted(rank, world_size, store, function):
    """Run a function with the C helper coming back to Python from every wait in which the others are not there yet."""
    impatient = {"HELPER_SPINS": 0, "HELPER_YIELD_S": 0.0, "CROWDED_YIELD_S": 0.0}
    before = {name: getattr(waiting, name) for name in impatient}, local.CHECK_NS
    for name, value in impatient.items():
        setattr(waiting, name, value)
    local.CHECK_NS = 0
    try:
        return function(rank, world_size, store, "1")
    finally:
        local.CHECK_NS = before[1]
        for name, value in before[0].items():
            setattr(waiting, name, value)


def odd_tensors(rank, world_size, store):
    with group(rank, world_size, store, slot_bytes=4096):
        base = torch.arange(6000.0).view(60, 100)
        strided = (base + rank).t()
        dist.all_reduce(strided)
        assert torch.equal(strided, (base * world_size + sum(range(world_size))).t())
        columns = (base + rank).clone()
        dist.broadcast(columns[:, ::3], world_size - 1)
        assert torch.equal(columns[:, ::3], (base + world_size - 1)[:, ::3])
        assert torch.equal(columns[:, 1::3], (base + rank)[:, 1::3])
        for empty in (torch.empty(0), torch.empty(3, 0)):
            dist.all_reduce(empty)
            dist.broadcast(empty, 0)
            dist.all_gather([torch.empty_like(empty) for _ in range(world_size)], empty)
        scalar = torch.tensor(float(rank))
        dist.all_reduce(scalar)
        assert scalar.item() == sum(range(world_size))
        turning = torch.full((500,), complex(rank, 1), dtype=torch.complex64)
        dist.all_reduce(turning)
        assert torch.equal(turning, torch.full((500,), complex(sum(range(world_size)), world_size)))
        negative = torch.tensor([complex(0, 5)]).conj().imag  # of one element, so that it is contiguous
        dist.all_reduce(negative if rank == 0 else torch.tensor([2.0]))
        assert rank > 0 or negative.item() == 2 * (world_size - 1) - 5
        for dtype, factor in ((torch.float32, 0.5), (torch.uint8, 2.0), (torch.int64, -3.0), (torch.float8_e5m2, 2.0)):
            scaled = torch.full((9,), rank + 1.0).to(dtype)
            dist.all_reduce(scaled, dist._make_nccl_premul_sum(factor))
            assert torch.equal(scaled.float(), torch.full((9,), factor * world_size * (world_size + 1) / 2))
        leaf = torch.ones(4, requires_grad=True)
        dist.all_reduce(leaf, dist._make_nccl_premul_sum(torch.tensor([4.0])))
        assert leaf.tolist() == [4.0 * world_size] * 4
        sparse = torch.sparse_coo_tensor([[rank, 5, 5]], [1.0, 2.0, float(rank)], (8,), check_invariants=True)
        dist.all_reduce(sparse)
        want = torch.zeros(8)
        want[:world_size] += 1
        want[5] += sum(2 + r for r in range(world_size))
        assert torch.equal(sparse.to_dense(), want)
        objects = [None] * world_size
        dist.all_gather_object(objects, {"rank": rank, "text": "x" * 5000})
        assert [o["rank"] for o in objects] == list(range(world_size))


def asynchronous_in_order(rank, world_size, store):
    with group(rank, world_size, store, slot_bytes=4096):
        tensors = [torch.full((n,), float(rank + n)) for n in (1, 5000, 3, 20000, 10)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        direct = torch.ones(3)
        dist.all_reduce(direct)
        futures = [work.get_future() for work in works]
        for n, work, future, tensor in zip((1, 5000, 3, 20000, 10), works, futures, tensors, strict=True):
            assert work.wait()
            assert work.is_completed()
            want = torch.full((n,), float(sum(r + n for r in range(world_size))))
            assert torch.equal(tensor, want)
            assert torch.equal(future.wait()[0], want)
        assert torch.equal(direct, torch.full((3,), float(world_size)))


def independent_groups_in_opposite_order(rank, world_size, store):
    with group(rank, world_size, store):
        one, two = dist.new_group(list(range(world_size))), dist.new_group(list(range(world_size)))
        order = [one, two] if rank % 2 else [two, one]
        tensors = {id(g): torch.full((100,), float(rank)) for g in order}
        works = [dist.all_reduce(tensors[id(g)], group=g, async_op=True) for g in order]
        for work in works:
            work.wait()
        assert all(tensor[0] == sum(range(world_size)) for tensor in tensors.values())
        pair = dist.new_group([0, world_size - 1])
        if rank in (0, world_size - 1):
            alone = torch.tensor([float(rank)])
            dist.all_reduce(alone, group=pair)
            assert alone.item() == world_size - 1


def on_one_core(rank, world_size, store, patience_s, late_rank):
    """Let every rank but one issue an all-reduce, and that one after the others' calls have returned.

    Return whether it ran on the caller's thread. With no late rank all may wait for each other.
    """
    cores, before = os.sched_getaffinity(0), group_module.PATIENCE_S
    os.sched_setaffinity(0, {min(cores)})  # so that ranks have to share it, as they do where they are more than cores
    group_module.PATIENCE_S = patience_s
    try:
        with group(rank, world_size, store):
            dist.barrier()
            if rank == late_rank:
                store.wait([f"back {other}" for other in range(world_size) if other != late_rank])
            tensor = torch.full((1000,), float(rank + 1))
            work = dist.all_reduce(tensor, async_op=True)
            done = work.is_completed()
            store.set(f"back {rank}", "")
            work.wait()
            assert torch.equal(tensor, torch.full((1000,), world_size * (world_size + 1) / 2))
            assert torch.equal(work.get_future().wait()[0], tensor)
            return done and not group_of_all()._worker._threads
    finally:
        os.sched_setaffinity(0, cores)
        group_module.PATIENCE_S = before


def group_of_all():
    return dist.distributed_c10d._get_default_group()


@pytest.mark.parametrize("helper", ["0", "1", "ctypes", "mixed"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, pytest.param(6, marks=pytest.mark.slow)])
def test_reductions_equal_a_plain_one_for_every_type_and_operator(rank_pool, world_size, helper):
    assert rank_pool(world_size).run(reductions_of_every_type, helper) == [[]] * world_size


@pytest.mark.parametrize("helper", ["0", "1", "ctypes", "mixed"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_moves_put_every_byte_in_its_place(rank_pool, world_size, helper):
    assert rank_pool(world_size).run(moves_of_every_size, helper) == [[]] * world_size


@pytest.mark.parametrize("world_size", [2, 3])
def test_moves_past_the_caches_put_every_byte_in_its_place(rank_pool, world_size):
    assert rank_pool(world_size).run(streamed_moves) == [[]] * world_size


@pytest.mark.parametrize("function", [reductions_of_every_type, moves_of_every_size])
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_slots_filled_past_the_caches_and_through_them_hold_the_same(rank_pool, world_size, function):
    assert rank_pool(world_size).run(every_call_tries_both_fillings, function) == [[]] * world_size


@pytest.mark.parametrize("claim_bytes", [0, 2**20])
@pytest.mark.parametrize("function", [reductions_of_every_type, moves_of_every_size])
@pytest.mark.parametrize("world_size", [2, 3])
def test_slots_whose_readers_write_to_them_hold_the_same(rank_pool, world_size, function, claim_bytes):
    assert rank_pool(world_size).run(every_read_is_claimed_or_none, function, claim_bytes) == [[]] * world_size


@pytest.mark.parametrize("function", [reductions_of_every_type, moves_of_every_size])
@pytest.mark.parametrize("world_size", [2, 3])
def test_a_collective_that_is_interrupted_at_every_wait_goes_on_where_it_was(rank_pool, world_size, function):
    assert rank_pool(world_size).run(every_wait_is_interrupted, function) == [[]] * world_size


def sums_of_random_numbers(rank, world_size, store, helper):
    """Return the bits of sums of numbers that do not sum exactly, at sizes around every change of algorithm."""
    results = []
    with group(rank, world_size, store, slot_bytes=4096, helper=helper):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            for count in (1, 700, 1024, 5003, 40_000):
                all_ranks = [torch.randn(count, generator=torch.Generator().manual_seed(r)) for r in range(world_size)]
                tensor = all_ranks[rank].to(dtype, copy=True)
                dist.all_reduce(tensor)
                results.append(hashlib.sha256(tensor.view(torch.uint8).numpy().tobytes()).hexdigest())
                total = all_ranks[0].to(dtype)
                if dtype != torch.bfloat16:
                    for other in all_ranks[1:]:
                        total = total + other.to(dtype)
                    assert torch.equal(tensor, total)
    return results


@pytest.mark.parametrize("world_size", [2, 3, 4, 5])
def test_sums_have_the_same_bits_on_every_rank_and_with_and_without_the_helper(rank_pool, world_size):
    with_helper = rank_pool(world_size).run(sums_of_random_numbers, "1")
    without = rank_pool(world_size).run(sums_of_random_numbers, "0")

    assert all(bits == with_helper[0] for bits in with_helper + without)


@pytest.mark.parametrize("world_size", [2, 3])
def test_strided_empty_complex_sparse_and_object_tensors(rank_pool, world_size):
    rank_pool(world_size).run(odd_tensors)


@pytest.mark.parametrize("world_size", [2, 4])
def test_asynchronous_collectives_finish_in_order_and_fill_their_futures(rank_pool, world_size):
    rank_pool(world_size).run(asynchronous_in_order)


@pytest.mark.parametrize("world_size", [2, 3])
def test_where_cores_are_shared_an_asynchronous_call_runs_at_once_if_all_ranks_are_there(rank_pool, world_size):
    assert rank_pool(world_size).run(on_one_core, 30.0, None) == [True] * world_size


@pytest.mark.parametrize("world_size", [2, 3])
def test_where_cores_are_shared_an_asynchronous_call_does_not_wait_for_a_late_rank(rank_pool, world_size):
    assert rank_pool(world_size).run(on_one_core, 0.05, 1) == [rank == 1 for rank in range(world_size)]


@pytest.mark.parametrize("world_size", [2, 3])
def test_groups_used_in_opposite_order_do_not_deadlock(rank_pool, world_size):
    rank_pool(world_size).run(independent_groups_in_opposite_order)
