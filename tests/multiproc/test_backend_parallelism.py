"""Unmodified DDP, FSDP2, tensor parallelism, pipelines, checkpoints and sub-groups: the same losses as on Gloo."""

import copy
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import meshwright  # noqa: F401  (registers the backend)

WIDTH, STEPS, BATCH = 16, 4, 8
ROUNDING = 1e-12  # of float64 sums in another order


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def model():
    torch.manual_seed(1)
    return nn.Sequential(*(Block() for _ in range(4))).double()


def batch(step, part, parts):
    numbers = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return numbers.chunk(parts)[part]


def start(rank, world_size, store, backend):
    warnings.simplefilter("ignore")  # of torch's own modules
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)


def train(network, parameters, part, parts, after=None, steps=STEPS):
    """Return the losses of a few steps on this part of the batch."""
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, foreach=False)
    losses = []
    for step in range(steps):
        loss = network(batch(step, part, parts)).square().mean()
        loss.backward()
        if after is not None:
            after()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def ddp(rank, world_size, store, backend):
    start(rank, world_size, store, backend)
    network = DistributedDataParallel(model(), bucket_cap_mb=0.01)
    return train(network, network.parameters(), rank, world_size)


def uneven(rank, world_size, store, backend):
    """Divide gradients by the number of ranks that have data still: each has a step more than the one before."""
    start(rank, world_size, store, backend)
    network = DistributedDataParallel(model(), bucket_cap_mb=0.01)
    with network.join(divide_by_initial_world_size=False):
        return train(network, network.parameters(), rank, world_size, steps=STEPS + 1 + rank - world_size)


def fsdp(rank, world_size, store, backend):
    start(rank, world_size, store, backend)
    network = model()
    for block in network:
        fully_shard(block)
    fully_shard(network)
    return train(
        network,
        network.parameters(),
        rank,
        world_size,
        after=lambda: nn.utils.clip_grad_norm_(network.parameters(), 0.5, foreach=False),
    )


def hybrid_and_tensor_parallel(rank, world_size, store, backend):
    """2 x 2: FSDP over one axis of the mesh, tensor parallel over the other."""
    start(rank, world_size, store, backend)
    mesh = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("dp", "tp"))
    network = model()
    for block in network:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    return train(network, network.parameters(), mesh["dp"].get_local_rank(), world_size // 2)


def pipeline(rank, world_size, store, backend, schedule):
    start(rank, world_size, store, backend)
    network = model()[rank * 4 // world_size : (rank + 1) * 4 // world_size]
    stage = PipelineStage(network, rank, world_size, torch.device("cpu"))
    kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[schedule]
    runner = kind(stage, n_microbatches=4, loss_fn=lambda y, target: y.square().mean())
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2, foreach=False)
    means = []
    for step in range(STEPS):
        losses = []
        x = batch(step, 0, 1)
        if rank == 0:
            runner.step(x)
        elif rank == world_size - 1:
            runner.step(target=x, losses=losses)
        else:
            runner.step()
        optimizer.step()
        optimizer.zero_grad()
        means.append(sum(loss.item() for loss in losses) / 4)
    return means


def checkpoint(rank, world_size, store, backend, folder):
    """Save sharded state, train on, load it again: the losses come out once more."""
    start(rank, world_size, store, backend)
    network = model()
    for block in network:
        fully_shard(block)
    train(network, network.parameters(), rank, world_size)
    dcp.save({"model": network.state_dict()}, checkpoint_id=f"{folder}/{backend}")
    first = train(network, network.parameters(), rank, world_size)
    state = {"model": copy.deepcopy(network.state_dict())}
    dcp.load(state, checkpoint_id=f"{folder}/{backend}")
    network.load_state_dict(state["model"])
    assert train(network, network.parameters(), rank, world_size) == first
    return first


def meshes(rank, world_size, store, backend):
    """Sub-groups of a mesh: every axis sums its own ranks, and slices of slices work."""
    start(rank, world_size, store, backend)
    mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("outer", "inner"))
    sums = []
    for name in ("outer", "inner"):
        tensor = torch.tensor([float(2**rank)])
        dist.all_reduce(tensor, group=mesh[name].get_group())
        sums.append(int(tensor.item()))
    return sums


def same_losses(pool, function, *arguments):
    ours = pool.run(function, "meshwright", *arguments)
    theirs = pool.run(function, "gloo", *arguments)
    assert len(ours[-1]) == STEPS
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other, rel=ROUNDING)


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("function", [ddp, uneven, fsdp])
def test_data_parallel_losses_equal_those_on_gloo(rank_pool, world_size, function):
    same_losses(rank_pool(world_size), function)


def test_tensor_parallel_inside_sharded_data_parallel_equals_gloo(rank_pool):
    same_losses(rank_pool(4), hybrid_and_tensor_parallel)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_pipeline_losses_equal_those_on_gloo(rank_pool, schedule):
    same_losses(rank_pool(4), pipeline, schedule)


def test_a_distributed_checkpoint_is_saved_and_loaded(rank_pool, tmp_path):
    same_losses(rank_pool(2), checkpoint, str(tmp_path))


def test_every_axis_of_a_mesh_is_a_group_of_its_own(rank_pool):
    assert rank_pool(4).run(meshes, "meshwright") == [[5, 3], [10, 3], [5, 12], [10, 12]]
