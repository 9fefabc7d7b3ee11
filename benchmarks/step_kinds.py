"""Steps of eight blocks (hidden to four times hidden and back, AdamW) under torch's DDP, FSDP2 and 1F1B pipelines.

Nothing here needs the package, so that older commits of it are timed by the same code.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

BLOCKS, ROWS, MICRO_BATCHES = 8, 128, 8


def _blocks(hidden: int, count: int) -> Any:
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden)) for _ in range(count))
    )


def _step(model: Any, hidden: int) -> Callable[[], None]:
    """Return a step of a model that communicates by itself."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(ROWS, hidden)

    def step() -> None:
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def ddp(hidden: int, group: Any) -> Callable[[], None]:
    """Return a data-parallel step."""

    def leave(_, bucket):  # without annotations, which DDP would check
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model = DistributedDataParallel(_blocks(hidden, BLOCKS), process_group=group)
    if dist.get_backend(group) == "fake":  # whose futures hold nothing, which DDP's reducer does not take
        model.register_comm_hook(None, leave)
    return _step(model, hidden)


def fsdp2(hidden: int, group: Any) -> Callable[[], None]:
    """Return a step in which each block's weights are gathered where they are used."""
    mesh = DeviceMesh.from_group(group, "cpu")
    model = _blocks(hidden, BLOCKS)
    for block in model:
        fully_shard(block, mesh=mesh)
    return _step(fully_shard(model, mesh=mesh), hidden)


def pipeline(hidden: int, group: Any) -> Callable[[], None]:
    """Return a step of as many stages as there are ranks."""
    stages, index = group.size(), group.rank()
    part = _blocks(hidden, BLOCKS // stages)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)
    data = torch.randn(ROWS, hidden)
    if dist.get_backend(group) == "fake":
        idle = stages - 1 if stages <= len(os.sched_getaffinity(0)) else 0
        return _part_alone(part, optimizer, data, first=index == 0, idle=idle)
    stage = PipelineStage(part, index, stages, torch.device("cpu"), group=group)
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=lambda output, target: (output - target).square().mean())

    def step() -> None:
        inputs = (data,) if index == 0 else ()
        schedule.step(*inputs, target=data if index == stages - 1 else None)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _part_alone(part: Any, optimizer: Any, data: Any, first: bool, idle: int) -> Callable[[], None]:
    """Return the step of one stage that has its inputs and gradients at hand, and computes while others would wait."""
    micro_batches = data.chunk(MICRO_BATCHES)

    def step() -> None:
        for rows in (*micro_batches, *micro_batches[:idle]):
            part(rows.detach().requires_grad_(not first)).backward(rows)
        optimizer.step()
        optimizer.zero_grad()

    return step


KINDS = {"ddp": ddp, "fsdp2": fsdp2, "1f1b": pipeline}
