"""Arguments of a collective are checked before anything moves, and the group goes on after a refusal."""

import contextlib
import os
import re
from datetime import timedelta

import numpy as np
import pytest
import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from meshwright.backend.faults.failures import ArgumentError
from meshwright.backend.group.torch_compat import all_gather_single, reduce_scatter_single

LONG = 1000


def shrunk(first=0):
    """Return a tensor from element `first` on whose memory was let go, as FSDP lets go of it."""
    tensor = torch.ones(LONG)[first:]
    tensor.untyped_storage().resize_(0)
    return tensor


def sparse(indices, dtype=torch.float32):
    """Return a sparse tensor of 5 with ones at indices that nobody checks."""
    return torch.sparse_coo_tensor([indices], torch.ones(len(indices), dtype=dtype), (5,), check_invariants=False)


def bad_calls(rank):
    """Return calls that no group can make, by what is wrong; 2 ranks."""
    group = dist.group.WORLD
    ones, canary, zeros = torch.ones(LONG), torch.zeros(LONG), torch._efficientzerotensor(4)
    halves = [torch.ones(3), torch.ones(3)]
    own = [55, 5] if rank == 0 else [5, 55]
    quantized = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)
    root = dist.BroadcastOptions()
    root.rootRank = -1
    return canary, {
        "own block longer than its place": lambda: dist.all_to_all_single(canary[:10], ones[:60], [5, 5], own),
        "own block shorter than its place": lambda: dist.all_to_all_single(canary[:60], ones[:10], own, [5, 5]),
        "own tensor longer than its place": lambda: dist.all_to_all([torch.empty(0)] * 2, halves),
        "a negative split": lambda: dist.all_to_all_single(ones, ones.clone(), [500, 500], [-(2**40), 2**40 + LONG]),
        "a split that is no number": lambda: group.all_to_all_single(ones, ones.clone(), [500, 500], [2.5, 997.5]),
        "splits in an array that do not add up": lambda: group.all_to_all_single(ones, ones.clone(), np.array([9, 9])),
        "one number for splits": lambda: group.all_to_all_single(ones, ones.clone(), 500, 500),
        "splits that do not add up": lambda: dist.all_to_all_single(ones, ones.clone(), [500, 500], [500, 400]),
        "rows that do not divide": lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3)),
        "three tensors for two ranks": lambda: dist.all_to_all([torch.ones(3)] * 3, [torch.ones(3)] * 3),
        "a root outside: broadcast": lambda: dist.broadcast(ones, group_src=2),
        "a root below 0: broadcast": lambda: group.broadcast([ones], root),
        "a root outside: reduce": lambda: dist.reduce(ones, group_dst=2),
        "a root outside: gather": lambda: group.gather([halves], [torch.ones(3)], root=7),
        "a root outside: scatter": lambda: group.scatter([torch.ones(3)], [halves], root=-3),
        "a root that is no number": lambda: group.broadcast(ones, root="0"),
        "an operator that is none": lambda: group.allreduce(ones, op="sum"),
        "bits of floats": lambda: dist.all_reduce(ones, dist.ReduceOp.BAND),
        "a factor with a fraction for integers": lambda: dist.all_reduce(ones.int(), dist._make_nccl_premul_sum(0.5)),
        "a factor that a byte cannot hold": lambda: dist.reduce(ones.byte(), 0, dist._make_nccl_premul_sum(300.0)),
        "a factor without end for integers": lambda: reduce_scatter_single(
            torch.ones(2).long(), torch.ones(4).long(), dist._make_nccl_premul_sum(float("inf"))
        ),
        "a factor of truths": lambda: dist.all_reduce(ones.bool(), dist._make_nccl_premul_sum(1.0)),
        "an imaginary factor of real numbers": lambda: dist.all_reduce(
            ones, dist._make_nccl_premul_sum(torch.tensor(2j))
        ),
        "element types that differ": lambda: all_gather_single(torch.ones(6), torch.ones(3).double()),
        "an input longer than its place": lambda: dist.all_gather([torch.ones(3), torch.ones(3)], torch.ones(4)),
        "one output for two ranks": lambda: dist.all_gather([torch.ones(3)], torch.ones(3)),
        "an output of a wrong size": lambda: reduce_scatter_single(torch.ones(4), torch.ones(6)),
        "an expanded target: all-reduce": lambda: dist.all_reduce(torch.ones(1).expand(4)),
        "an expanded target: broadcast": lambda: dist.broadcast(torch.ones(2, 1).expand(2, 3), 0),
        "an expanded target: recv": lambda: dist.recv(torch.ones(1).expand(4), 1 - rank),
        "a window of a tensor": lambda: dist.all_reduce(torch.ones(10).unfold(0, 4, 2)),
        "a tensor without memory: all-reduce": lambda: dist.all_reduce(shrunk()),
        "a tensor without memory: broadcast": lambda: dist.broadcast(shrunk(), 0),
        "a view of a tensor without memory": lambda: dist.broadcast(shrunk(500), 0),
        "zeros that take no memory: all-reduce": lambda: dist.all_reduce(zeros),
        "zeros that take no memory: broadcast": lambda: dist.broadcast(zeros, 0),
        "zeros that take no memory: all-gather": lambda: all_gather_single(
            torch.ones(8), torch._efficientzerotensor(4)
        ),
        "a sparse tensor": lambda: dist.broadcast(torch.ones(4).to_sparse(), 0),
        "a sparse tensor of a type that torch does not add up": lambda: dist.all_reduce(sparse([2], torch.uint16)),
        "a sparse tensor with an index outside": lambda: dist.all_reduce(sparse([9])),
        "an average of sparse truths": lambda: dist.all_reduce(sparse([2], torch.bool), dist.ReduceOp.AVG),
        "a nested tensor": lambda: dist.all_to_all([torch.nested.nested_tensor([torch.ones(2)])] * 2, halves),
        "a nested tensor: broadcast": lambda: dist.broadcast(torch.nested.nested_tensor([torch.ones(2)]), 0),
        "a quantized tensor: all-reduce": lambda: dist.all_reduce(quantized),
        "a quantized tensor: broadcast": lambda: dist.broadcast(quantized, 0),
        "a quantized tensor: all-gather": lambda: dist.all_gather([quantized.clone(), quantized.clone()], quantized),
        "a quantized tensor: all-to-all": lambda: dist.all_to_all_single(quantized.clone(), quantized),
        "a tensor that holds nothing": lambda: dist.all_reduce(torch.ones(4, device="meta")),
        "no tensor": lambda: group.allreduce([None]),
        "a list in a list": lambda: group.allreduce([[ones]]),
        "two tensors": lambda: group.allreduce([ones, ones]),
        "no tensors": lambda: group.allreduce_coalesced([]),
        "a message to a rank outside": lambda: group.send([ones], 2, 0),
        "a message to oneself": lambda: group.send([ones], rank, 0),
        "a message from a rank outside": lambda: group.recv([ones], -1, 0),
        "a negative tag": lambda: group.send([ones], 1 - rank, -1),
        "a tag that is no number": lambda: group.recv([ones], 1 - rank, "tag"),
        "a time limit that is none": lambda: group.allreduce(ones, timeout=3.0),
    }


def refuse_all(rank, world_size, store, helper, hosts):
    os.environ["MESHWRIGHT_HELPER"] = helper
    if hosts > 1:
        os.environ["MESHWRIGHT_HOST"] = f"host{rank}"
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store, timeout=timedelta(seconds=20))
    os.environ.pop("MESHWRIGHT_HOST", None)
    canary, calls = bad_calls(rank)
    wrong = {}
    for name, call in calls.items():
        try:
            call()
            wrong[name] = "nothing was raised"
        except ArgumentError:
            pass
        except Exception as error:
            wrong[name] = f"{type(error).__name__}: {error}"
        total = torch.full((5,), rank + 1.0)
        dist.all_reduce(total)
        if total.tolist() != [3.0] * 5 or canary.any():
            wrong[name] = f"afterwards {total.tolist()}, {int(canary.count_nonzero())} foreign numbers"
    return wrong


@pytest.mark.parametrize(("helper", "hosts"), [("1", 1), ("0", 1), ("1", 2)])
@pytest.mark.filterwarnings("ignore")
def test_every_bad_call_is_refused_before_anything_moves_and_the_group_goes_on(rank_pool, helper, hosts):
    assert rank_pool(2).run(refuse_all, helper, hosts) == [{}, {}]


def splits_by_kind(rank, world_size, store):
    """Return what an all-to-all with splits of each kind brings, and a message whose rank and tag are NumPy's."""
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store, timeout=timedelta(seconds=20))
    splits = [1, 3] if rank == 0 else [3, 1]
    kinds = (list, tuple, np.array, torch.tensor, torch.Size)
    kinds += (lambda sizes: [np.int64(size) for size in sizes], lambda sizes: [torch.tensor(size) for size in sizes])
    found = []
    for kind in kinds:
        got = torch.zeros(4)
        dist.all_to_all_single(got, torch.arange(4.0) + 10 * rank, kind(splits), kind(splits))
        found.append(got.tolist())
    message = torch.full((2,), 7.0 * (rank == 0))
    if rank == 0:
        dist.send(message, np.int64(1), tag=np.int32(3))
    else:
        dist.recv(message, np.int64(0), tag=np.int32(3))
    dist.broadcast(message, np.int64(1))
    return found, message.tolist()


def test_numbers_of_numpy_and_tensors_of_one_number_are_whole_numbers(rank_pool):
    first, second = rank_pool(2).run(splits_by_kind)

    assert first == ([[0.0, 10.0, 11.0, 12.0]] * 7, [7.0, 7.0])
    assert second == ([[1.0, 2.0, 3.0, 13.0]] * 7, [7.0, 7.0])


def overlap(rank, world_size, store, asynchronous):
    """Return results where inputs and outputs share memory, and where they do not."""
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)
    found = []

    def wait(work):
        if asynchronous:
            work.wait()

    same = [torch.full((3,), 9.0)] * world_size
    wait(dist.all_gather(same, torch.ones(3) * rank, async_op=asynchronous))
    found.append((same[0].tolist(), [world_size - 1.0] * 3))
    whole = torch.arange(4.0 * world_size)
    shifted = whole[1:5]
    expected = torch.cat([torch.arange(1.0, 5.0)] * world_size).tolist()
    wait(all_gather_single(whole, shifted, async_op=asynchronous))
    found.append((whole.tolist(), expected))
    in_place = torch.arange(4.0 * world_size)
    wait(all_gather_single(in_place, in_place[4 * rank : 4 * rank + 4], async_op=asynchronous))
    found.append((in_place.tolist(), list(range(4 * world_size))))
    total = torch.arange(4.0 * world_size)
    wait(reduce_scatter_single(total[1:5], total, async_op=asynchronous))
    found.append((total[1:5].tolist(), [world_size * (4.0 * rank + i) for i in range(4)]))
    mixed = torch.arange(4.0 * world_size)
    wait(dist.all_to_all_single(mixed, mixed, async_op=asynchronous))
    found.append((mixed.tolist(), [4.0 * rank + i for _ in range(world_size) for i in range(4)]))
    turned = torch.arange(2.0 * world_size).view(2, world_size).t()  # row i is [i, world_size + i]
    wait(dist.all_to_all_single(turned, turned, async_op=asynchronous))
    found.append((turned.tolist(), [[float(rank), float(world_size + rank)]] * world_size))
    lists = torch.arange(4.0 * world_size).view(2, 2 * world_size).t().chunk(world_size)
    first = [part.tolist() for part in lists]
    wait(dist.all_to_all(list(lists), list(lists), async_op=asynchronous))
    found.append(([part.tolist() for part in lists], [first[rank]] * world_size))
    return [(got, right) for got, right in found if got != right]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_inputs_and_outputs_that_share_memory_come_out_as_if_they_did_not(rank_pool, asynchronous):
    assert rank_pool(3).run(overlap, asynchronous) == [[], [], []]


ONLY_SENDS = "a gather by a rank that refused what was scattered"


def refusals(rank):
    """Return calls by name: one that rank 0 refuses, and the next of both ranks, which must not be paired with it."""
    ones, pair = torch.ones(4), [torch.zeros(4), torch.zeros(4)]
    expanded = torch.ones(1).expand(4)
    return {
        "the same again": (
            lambda: dist.all_reduce(expanded if rank == 0 else ones),
            lambda: dist.all_reduce(torch.full((4,), 5.0)),
        ),
        "the same again, not waited for": (
            lambda: dist.all_gather(pair[: 1 + rank], ones),
            lambda: dist.all_gather(pair, ones, async_op=True).wait(),
        ),
        "a broadcast to a rank that refused it": (
            lambda: dist.broadcast(ones if rank else expanded, 1),
            lambda: [dist.broadcast(ones, 1), dist.barrier()],
        ),
        "a broadcast from a rank that another refused": (
            lambda: dist.gather(ones, [ones[:1], ones[:1]] if rank == 0 else None, 0),
            lambda: dist.broadcast(ones, 1),
        ),
        ONLY_SENDS: (
            lambda: dist.scatter(ones if rank else expanded, [ones, ones] if rank else None, 1),
            lambda: dist.gather(ones, pair if rank else None, 1),
        ),
    }


def one_rank_refuses(rank, world_size, store, name, hosts):
    """Return what a rank heard of its two calls: the names of errors, "" where there was none."""
    if hosts > 1:
        os.environ["MESHWRIGHT_HOST"] = f"host{rank}"
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store, timeout=timedelta(seconds=9))
    os.environ.pop("MESHWRIGHT_HOST", None)
    heard = []
    for call in (*refusals(rank)[name], lambda: dist.all_reduce(torch.ones(3))):
        try:
            call()
            heard.append("")
        except Exception as error:
            heard.append(type(error).__name__)
    return heard


@pytest.mark.parametrize("name", refusals(0))
@pytest.mark.parametrize("hosts", [1, 2])
def test_what_follows_a_call_that_one_rank_refused_is_an_error_on_both_and_never_paired_with_it(rank_pool, name, hosts):
    first, second = rank_pool(2).run(one_rank_refuses, name, hosts)
    assert first[0] == "ArgumentError"
    assert "CollectiveMismatch" in {*first, *second}
    assert all(first[2:] + second[2:])
    if hosts == 1 or name != ONLY_SENDS:  # over TCP a rank that only sends has gone on
        assert first[1]
    if hosts == 1:
        assert any(second[:2])


def all_refuse_and_one_twice(rank, world_size, store):
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store, timeout=timedelta(seconds=9))
    for _ in range(1 + rank):
        with contextlib.suppress(ArgumentError):
            dist.all_reduce(torch.ones(1).expand(4))
    try:
        dist.all_reduce(torch.ones(4))
    except Exception as error:
        return str(error)
    return ""


def test_the_message_says_how_many_calls_a_rank_has_refused(rank_pool):
    first, second = rank_pool(2).run(all_refuse_and_one_twice)
    assert first == second
    assert re.fullmatch(
        r"the ranks disagree: rank 0 \(.*\) in all_reduce of 16 B \(float32, sum\) after a call that it refused; "
        r"rank 1 \(.*\) in all_reduce of 16 B \(float32, sum\) after 2 calls that it refused",
        first,
    )
