"""Dispatch modes see the calls of a group as over Gloo: counted by CommDebugMode, nothing moved on fake tensors.

Tensors that hold others are unwrapped on the same way.
"""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

from meshwright.backend.group import overloads
from meshwright.backend.group.c10d_operators import OPERATOR_OF_METHOD
from tests.multiproc.test_backend_collectives import group

METHODS = [each for each in vars(overloads).values() if isinstance(each, overloads.Method)]


class Named(TorchDispatchMode):
    """Writes the names of c10d's operators into a list, behind its own."""

    def __init__(self, own, seen):
        super().__init__()
        self.own, self.seen = own, seen

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        if call.namespace == "c10d":
            self.seen.append((self.own, call._overloadpacket.__name__))
        return call(*args, **(kwargs or {}))


class Tenfold(TorchDispatchMode):
    """Lets ten times the input of an all-gather go its way."""

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        if call is torch.ops.c10d._allgather_base_.default:
            args = (args[0], args[1] * 10, *args[2:])
        return call(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_has_an_operator_that_takes_its_tensors(method):
    ours = {"process_group", "reduce_op", "sparse_indices", "root_rank", "root_tensor", "async_op", "timeout"}
    operator = getattr(torch.ops.c10d, OPERATOR_OF_METHOD[method.name]).default
    taken = {argument.name for argument in operator._schema.arguments} - ours

    expected = {"tensor", "device_ids"} if method.name == "barrier" else taken
    assert taken == expected
    if method.name != "barrier":
        assert len(taken) == len(method._tensors)


def counted(rank, world_size, store, backend):
    """Return what CommDebugMode counts in a step of DDP, one of FSDP2, and in single calls; and the calls' results."""
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    torch.manual_seed(1)
    replicated = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    sharded = nn.Linear(4, 4)
    fully_shard(sharded)
    counts = []
    for module in (replicated, replicated, sharded):
        with CommDebugMode() as mode:
            module(torch.ones(2, 4) * (rank + 1)).sum().backward()
        counts.append({str(name): count for name, count in mode.get_comm_counts().items()})
    a, b, blocks = torch.ones(2) * (rank + 1), torch.zeros(4), [torch.zeros(2), torch.zeros(2)]
    with CommDebugMode() as mode:
        dist.all_reduce(a)
        work = dist.all_gather_into_tensor(b, a + rank, async_op=True)
        work.wait()
        dist.all_reduce(a, op=dist.ReduceOp.MIN)
        dist.reduce_scatter_tensor(a, b)
        dist.all_to_all_single(b, b.clone(), [2, 2], [2, 2])
        dist.all_gather(blocks, a)
        dist.scatter(a, blocks if rank == 0 else None, 0)
        dist.gather(a, blocks if rank == 1 else None, 1)
        dist.broadcast(a, 1)
        dist.barrier()
        dist.all_reduce_coalesced([a, b])
        dist.send(a, 1) if rank == 0 else dist.recv(a, 0)
    counts.append({str(name): count for name, count in mode.get_comm_counts().items()})
    gradient = replicated.module[0].weight.grad.tolist()
    dist.destroy_process_group()
    return counts, a.tolist(), b.tolist(), [block.tolist() for block in blocks], gradient


@pytest.mark.timeout(200)
def test_the_calls_that_modes_see_and_their_results_are_those_of_gloo(rank_pool):
    ours = rank_pool(2).run(counted, "meshwright")

    assert ours == rank_pool(2).run(counted, "gloo")
    assert ours[0][0][0] == {"c10d.broadcast_": 2, "c10d.allreduce_": 1}


def on_fake_tensors(rank, world_size, store):
    with group(rank, world_size, store):
        with FakeTensorMode():
            fake = torch.ones(4)
            dist.all_reduce(fake)
            dist.broadcast(fake, 0, async_op=True).wait()
            dist.all_gather_into_tensor(torch.empty(4 * world_size), fake)
            dist.barrier()
            if rank == 0:
                dist.all_reduce(fake)  # nobody waits for the others
        real = torch.ones(4)
        dist.all_reduce(real)
        return fake.tolist() if type(fake) is torch.Tensor else list(fake.shape), real.tolist()


def test_nothing_is_moved_on_fake_tensors_and_calls_on_real_ones_go_on(rank_pool):
    assert rank_pool(2).run(on_fake_tensors) == [([4], [2.0] * 4)] * 2


def under_two_modes(rank, world_size, store):
    seen, gathered, total = [], torch.zeros(world_size), torch.ones(1)
    with group(rank, world_size, store):
        with Named("outer", seen), Tenfold(), Named("inner", seen):
            dist.all_gather_into_tensor(gathered, torch.tensor([rank + 1.0]))
            dist.all_reduce(total)
            with pytest.raises(ValueError, match="root"):
                dist.group.WORLD.broadcast(total, 7)
            still = torch._C._len_torch_dispatch_stack()
        dist.barrier()
    return seen, gathered.tolist(), total.item(), still


@pytest.mark.parametrize("ranks", [1, 2])
def test_modes_see_a_call_once_each_from_inside_out_and_may_change_its_tensors(rank_pool, ranks):
    (seen, gathered, total, still), *_ = rank_pool(ranks).run(under_two_modes)

    names = ["_allgather_base_", "allreduce_", "broadcast_"]
    assert seen == [(mode, name) for name in names for mode in ("inner", "outer")]
    assert (gathered, total, still) == ([10.0, 20.0][:ranks], ranks, 3)


def of_tensors_that_hold_others(rank, world_size, store, per_host):
    """Return what collectives leave in a subclass of two tensors, in an AsyncCollectiveTensor, and under `grad`."""
    both = TwoTensor(torch.ones(2) * (rank + 1), torch.ones(2) * (rank + 3))
    late, received = TwoTensor(torch.ones(2), torch.ones(2) * 2), TwoTensor(torch.zeros(2), torch.zeros(2))
    blocks = [TwoTensor(torch.zeros(2), torch.zeros(2)) for _ in range(world_size)]

    def loss(x):
        y = x * 2
        dist.all_reduce(y)
        return (y * y).sum()

    with group(rank, world_size, store, per_host=per_host):
        dist.all_reduce(both)
        dist.all_reduce(late, async_op=True).wait()
        dist.all_gather(blocks, both + rank)
        dist.send(both, 1) if rank == 0 else dist.recv(received, 0)
        unfinished = functional.all_reduce(torch.ones(2) * (rank + 1), "sum", dist.group.WORLD)
        dist.all_reduce(unfinished)
        gradient = torch.func.grad(loss)(torch.ones(2) * (rank + 1))
        with pytest.raises(NotImplementedError, match="sharding strategy"):
            dist.all_reduce(distribute_tensor(torch.ones(4), init_device_mesh("cpu", (world_size,)), [Shard(0)]))
        plain = torch.ones(2)
        dist.all_reduce(plain)
    held = [[each.a[0].item(), each.b[0].item()] for each in (both, late, *blocks, received)]
    return held, unfinished.tolist(), gradient.tolist(), plain.tolist()


@pytest.mark.parametrize("per_host", [2, 1])
def test_a_tensor_that_holds_others_is_reduced_and_moved_in_what_it_holds(rank_pool, per_host):
    (held, unfinished, gradient, plain), (held_of_1, *_) = rank_pool(2).run(of_tensors_that_hold_others, per_host)

    assert held == [[3, 7], [2, 4], [3, 7], [4, 8], [0, 0]]
    assert held_of_1[-1] == [3, 7]
    assert (unfinished, gradient, plain) == ([6.0] * 2, [24.0] * 2, [2.0] * 2)
