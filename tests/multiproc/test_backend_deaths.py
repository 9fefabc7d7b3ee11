"""Parallel training with a rank that dies, stalls or raises: every survivor raises within the time limit."""

import copy
import os
import signal
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
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


def fsdp1():
    return stepping(FullyShardedDataParallel(network(), device_id=torch.device("cpu")))


def fsdp2():
    module = network()
    for layer in module:
        fully_shard(layer)
    return stepping(fully_shard(module))


def pipeline():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(copy.deepcopy(network()[rank]), rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda y, target: (y - target).square().mean())
    x = torch.randn(8, WIDTH)

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
    "fsdp1": fsdp1,
    "fsdp2": fsdp2,
    "pipeline": pipeline,
    "dtensor": dtensor,
    "functional": functional_sum,
}
IN_THE_FAST_SET = ("ddp", "built-in fp16 hook")
IN_THE_SLOW_SET = ("ddp of a static graph", "PowerSGD hook", "fsdp1", "fsdp2", "pipeline")
HOOKS_IN_PYTHON = ("fp16 hook", "all-reduce hook", "PowerSGD hook")  # torch quotes the errors of their futures


def train(rank, world_size, program, fault):
    warnings.simplefilter("ignore")  # of torch's own modules
    step = PROGRAMS[program]()
    for number in range(STEPS):
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
    answers = launch(train, 3, tmp_path, program, fault, silent={1}, TIMEOUT_S=str(LIMIT_S))

    for kind, message, took_s in (answers[0], answers[2]):
        assert kind == "RankFailure" or (program in HOOKS_IN_PYTHON and "RankFailure: " in message), answers
        assert "rank 1 (host " in message
        assert took_s < LIMIT_S * 2 + 10


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
