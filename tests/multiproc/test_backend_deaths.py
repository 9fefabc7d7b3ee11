"""Parallel training with a rank that dies, stalls or raises: every survivor raises within the time limit."""

import copy
import os
import signal
import warnings
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from tests.multiproc.fresh_ranks import launch

WIDTH, FAULT_STEP, STEPS = 32, 2, 40
LIMIT_S = 4.0


class Raised(Exception):
    """What the faulty rank raises itself."""


def network():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))


def stepping(module, *, before=lambda: None):
    """Return a step of training on a module."""

    def step():
        before()
        module(torch.randn(4, WIDTH)).square().mean().backward()

    return step


def ddp(**options):
    return stepping(DistributedDataParallel(network(), bucket_cap_mb=0.005, **options))


def ddp_with(hook, state=None):
    module = DistributedDataParallel(network(), bucket_cap_mb=0.005)
    module.register_comm_hook(state, hook)
    return stepping(module)


def ddp_built_in(kind):
    module = DistributedDataParallel(network(), bucket_cap_mb=0.005)
    module._register_builtin_comm_hook(kind)
    return stepping(module)


def ddp_power_sgd():
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1
    )
    return ddp_with(powerSGD_hook.powerSGD_hook, state)


def ddp_accumulating():
    """Two backward passes a step, of which only the second sums."""
    module = DistributedDataParallel(network(), bucket_cap_mb=0.005)
    step = stepping(module)

    def steps():
        with module.no_sync():
            step()
        step()

    return steps


def ddp_joined():
    """A step in a context of its own, in which ranks may have unequally many inputs."""
    module = DistributedDataParallel(network(), bucket_cap_mb=0.005)
    step = stepping(module)

    def joined():
        with Join([module]):
            step()

    return joined


def ddp_zero():
    from torch.distributed.optim import ZeroRedundancyOptimizer  # warns of torch.jit at its import

    module = DistributedDataParallel(network(), bucket_cap_mb=0.005)
    optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.SGD, lr=0.1)
    step = stepping(module)

    def trained():
        step()
        optimizer.step()

    return trained


def fsdp1(strategy=ShardingStrategy.FULL_SHARD):
    return stepping(FullyShardedDataParallel(network(), sharding_strategy=strategy, device_id=torch.device("cpu")))


def fsdp2(**options):
    module = network()
    for layer in module:
        fully_shard(layer, **options)
    return stepping(fully_shard(module, **options))


def tensor_parallel():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    module = nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, WIDTH))
    return stepping(parallelize_module(module, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}))


def mean_square(y, target):
    return (y - target).square().mean()


def pipeline(schedule_class=Schedule1F1B):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(copy.deepcopy(network()[rank]), rank, ranks, torch.device("cpu"))
    schedule = schedule_class(stage, n_microbatches=4, loss_fn=mean_square)
    return pipeline_step(schedule)


def interleaved_pipeline():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    stages = [PipelineStage(network()[0], i, 2 * ranks, torch.device("cpu")) for i in (rank, rank + ranks)]
    return pipeline_step(ScheduleInterleaved1F1B(stages, n_microbatches=2 * ranks, loss_fn=mean_square))


def pipeline_step(schedule):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x = torch.randn(12, WIDTH)

    def step():
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x) if rank == ranks - 1 else schedule.step()

    return step


def dtensor():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))

    def step():
        sharded = distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])
        (sharded @ sharded).redistribute(mesh, [Replicate()]).to_local().sum().item()

    return step


def functional_sum():
    group = dist.group.WORLD

    def step():
        functional.all_reduce(torch.ones(10), "sum", group).sum().item()

    return step


def functional_others():
    group, ranks = dist.group.WORLD, dist.get_world_size()

    def step():
        x = torch.ones(4 * ranks)
        functional.all_gather_tensor(x, 0, group).sum().item()
        functional.reduce_scatter_tensor(x, "sum", 0, group).sum().item()
        functional.all_to_all_single(x, None, None, group).sum().item()
        functional.broadcast(x, 0, group).sum().item()

    return step


def objects():
    def step():
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, {"step": "x" * 1000})

    return step


PROGRAMS = {
    "ddp": ddp,
    "ddp of a static graph": lambda: ddp(static_graph=True),
    "ddp with unused parameters": lambda: ddp(find_unused_parameters=True),
    "ddp with views of buckets": lambda: ddp(gradient_as_bucket_view=True),
    "all-reduce hook": lambda: ddp_with(default_hooks.allreduce_hook),
    "fp16 hook": lambda: ddp_with(default_hooks.fp16_compress_hook),
    "built-in all-reduce hook": lambda: ddp_built_in(dist.BuiltinCommHookType.ALLREDUCE),
    "built-in fp16 hook": lambda: ddp_built_in(dist.BuiltinCommHookType.FP16_COMPRESS),
    "PowerSGD hook": ddp_power_sgd,
    "ddp that accumulates": ddp_accumulating,
    "ddp with Join": ddp_joined,
    "ddp with a sharded optimizer": ddp_zero,
    "fp16 wrapper": lambda: ddp_with(default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
    "post-local SGD hook": lambda: ddp_with(
        post_localSGD_hook.post_localSGD_hook, post_localSGD_hook.PostLocalSGDState(None, dist.group.WORLD, 0)
    ),
    "fsdp1": fsdp1,
    "fsdp1 of gradients": lambda: fsdp1(ShardingStrategy.SHARD_GRAD_OP),
    "fsdp1 unsharded": lambda: fsdp1(ShardingStrategy.NO_SHARD),
    "fsdp2": fsdp2,
    "fsdp2 in bf16": lambda: fsdp2(mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)),
    "fsdp2 hybrid": lambda: fsdp2(
        mesh=init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("copies", "shards"))
    ),
    "pipeline": pipeline,
    "pipeline by GPipe": lambda: pipeline(ScheduleGPipe),
    "interleaved pipeline": interleaved_pipeline,
    "dtensor": dtensor,
    "tensor parallel": tensor_parallel,
    "functional": functional_sum,
    "other functional collectives": functional_others,
    "objects": objects,
}
IN_THE_FAST_SET = ("ddp", "built-in fp16 hook")
IN_THE_SLOW_SET = ("ddp of a static graph", "PowerSGD hook", "fsdp1", "fsdp2", "pipeline")
# torch quotes the errors of their futures; its other hooks do not run on CPUs: that in bf16 asks for NCCL by its name,
# and with torch 2.13 batched PowerSGD and the quantizing ones raise over Gloo too
HOOKS_IN_PYTHON = ("fp16 hook", "all-reduce hook", "PowerSGD hook", "fp16 wrapper", "post-local SGD hook")


def limit_every_group():
    """Shorten the time limits of all groups: not before, for a busy machine takes its time to start ranks."""
    for group in dist.distributed_c10d._world.pg_map:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=LIMIT_S), group)


def train(rank, world_size, program, fault):
    warnings.simplefilter("ignore")  # of torch's own modules
    step = PROGRAMS[program]()
    for number in range(STEPS):
        if number == FAULT_STEP:
            limit_every_group()
        if rank == 1 and number == FAULT_STEP:
            if fault == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault == "stalls":
                signal.pause()
            raise Raised
        step()
    return "never heard of it"


def marks_of(program):
    if program in IN_THE_FAST_SET:
        return []
    return [pytest.mark.slow] if program in IN_THE_SLOW_SET else [pytest.mark.slow, pytest.mark.soak]


@pytest.mark.parametrize("fault", ["dies", "stalls", "raises"])
@pytest.mark.parametrize("program", [pytest.param(name, marks=marks_of(name)) for name in PROGRAMS])
def test_survivors_raise_and_name_the_rank(tmp_path, program, fault):
    answers = launch(train, 3, tmp_path, program, fault, silent={1})

    for kind, message, took_s in (answers[0], answers[2]):
        assert kind == "RankFailure" or (program in HOOKS_IN_PYTHON and "RankFailure: " in message), answers
        assert "rank 1 (host " in message
        assert took_s < LIMIT_S * 2 + 10


def receive_along_a_chain(rank, world_size):
    """Have rank 0 wait for rank 2, which begins a little later to wait for rank 1, which never sends."""
    limit_every_group()
    if rank == 1:
        signal.pause()
    if rank == 2:
        signal.sigtimedwait([signal.SIGUSR1], LIMIT_S / 4)
    dist.recv(torch.ones(1), 2 if rank == 0 else 1)


def test_who_waits_for_a_rank_that_waits_for_a_third_blames_the_third(tmp_path):
    answers = launch(receive_along_a_chain, 3, tmp_path, silent={1})

    for kind, message, _ in (answers[0], answers[2]):
        assert kind == "RankFailure"
        assert message.startswith("rank 1 (host "), message


def chained(rank, world_size):
    """A collective that is waited for in a callback of another one's future, and callbacks of callbacks."""
    if rank == 1:
        dist.barrier()
        signal.sigtimedwait([signal.SIGUSR1], 0.3)  # a rank that comes late
    else:
        dist.barrier()

    def sum_again(_):
        return dist.all_reduce(torch.ones(4), async_op=True).get_future().wait()[0]

    found = []
    for _ in range(3):
        future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(sum_again)
        found.append(future.then(sum_again).wait().tolist())
    return found


def test_a_callback_may_wait_for_a_later_collective(tmp_path):
    answers = launch(chained, 2, tmp_path, TIMEOUT_S="15")

    assert [answer[:2] for answer in answers] == [("fine", [[2.0] * 4] * 3)] * 2, answers


def wait_in_its_own_callback(rank, world_size):
    work = dist.all_reduce(torch.ones(4), async_op=True)
    return work.get_future().then(lambda _: work.wait()).wait()


def test_a_callback_may_wait_for_its_own_collective(tmp_path):
    answers = launch(wait_in_its_own_callback, 2, tmp_path)

    assert [answer[:2] for answer in answers] == [("fine", True)] * 2
