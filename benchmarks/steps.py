"""Steps of torch's DDP, FSDP2 and 1F1B pipelines: on this backend, on Gloo, and with nothing communicated, in turns.

Eight blocks (hidden to four times hidden and back), AdamW. All three contestants are in the same processes and take
turns step by step. `nothing` is the same step over torch's fake backend, which answers at once and moves nothing (DDP:
with a hook that leaves the bucket as it is; pipelines: a stage that has its inputs and gradients at hand, and computes
as many micro-batches more as it stands idle in a 1F1B schedule of equal stages, where each rank has a processor of its
own): what a step takes more than that is exposed communication.
Options: --ranks 2 4, --hidden 256 768, --only ddp fsdp2 1f1b, --launches N, --rounds N.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed import fake_pg  # noqa: F401  (registers the backend "fake")

import meshwright  # noqa: F401  (registers the backend)
from benchmarks.contestants import race_steps
from benchmarks.result import Result
from meshwright.bench.ranks.pool import RankPool
from meshwright.bench.ranks.process import prepare_process

BLOCKS, ROWS, MICRO_BATCHES = 8, 128, 8
PATIENCE_S = 1200.0  # of one launch
WARM_STEPS = 3  # DDP rearranges its buckets after the first
KINDS = ("ddp", "fsdp2", "1f1b")
CONTESTANTS = ("meshwright", "gloo", "nothing")


def run(arguments: list[str]) -> Result:
    """Return one row for each kind of step, number of ranks and width."""
    parser = argparse.ArgumentParser(prog="benchmarks steps")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--hidden", type=int, nargs="+", default=[256, 768])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    rows = []
    for kind in options.only:
        for ranks in options.ranks:
            for hidden in options.hidden:
                launches = [_launch(kind, ranks, hidden, options.rounds) for _ in range(options.launches)]
                rows.append({"step": kind, "ranks": ranks, "hidden": hidden, **_figures(launches)})
    notes = [
        f"{BLOCKS} blocks, {ROWS} rows a rank (pipelines: in all, in {MICRO_BATCHES} micro-batches), one thread a rank",
        f"medians of {options.launches} launches of {options.rounds} rounds in turns; the slowest rank counts",
        "exposed/gloo's: what a step takes more than `nothing`, over the same of Gloo; worst: of a single launch",
    ]
    return Result("steps of training", rows, notes, keys=("step", "ranks", "hidden"))


def _figures(launches: list[dict[str, float]]) -> dict[str, Any]:
    """Return the medians over launches, and ratios within launches with their worst."""
    row: dict[str, Any] = {
        f"{name}_ms": round(statistics.median(one[name] for one in launches) * 1e3, 2) for name in CONTESTANTS
    }
    over = [one["meshwright"] / one["gloo"] for one in launches]
    exposed = [(one["meshwright"] - one["nothing"]) / (one["gloo"] - one["nothing"]) for one in launches]
    row["over_gloo"], row["worst_over_gloo"] = round(statistics.median(over), 3), round(max(over), 3)
    row["exposed/gloo's"], row["worst_exposed"] = round(statistics.median(exposed), 3), round(max(exposed), 3)
    return row


def _launch(kind: str, ranks: int, hidden: int, rounds: int) -> dict[str, float]:
    """Start the ranks and return the median seconds of a step of each contestant."""
    with RankPool(ranks) as pool:
        return pool.run(rank_steps, kind, hidden, rounds, timeout_s=PATIENCE_S)[0]


def rank_steps(rank: int, world_size: int, store: dist.Store, kind: str, hidden: int, rounds: int) -> dict[str, float]:
    """Run the steps of all contestants on one rank; return the medians, the same on all."""
    prepare_process(1)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    ours = dist.new_group(backend="meshwright")
    groups = {"meshwright": ours, "gloo": dist.group.WORLD, "nothing": dist.new_group(backend="fake")}
    make = {"ddp": _ddp, "fsdp2": _fsdp2, "1f1b": _pipeline}[kind]
    torch.manual_seed(0)
    steps = {name: make(hidden, groups[name]) for name in CONTESTANTS}
    medians = race_steps(steps, rounds, ours, WARM_STEPS)
    dist.barrier(group=ours)
    dist.destroy_process_group()
    return medians


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


def _ddp(hidden: int, group: Any) -> Callable[[], None]:
    def leave(_, bucket):  # without annotations, which DDP would check
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model = DistributedDataParallel(_blocks(hidden, BLOCKS), process_group=group)
    if dist.get_backend(group) == "fake":  # whose futures hold nothing, which DDP's reducer does not take
        model.register_comm_hook(None, leave)
    return _step(model, hidden)


def _fsdp2(hidden: int, group: Any) -> Callable[[], None]:
    mesh = DeviceMesh.from_group(group, "cpu")
    model = _blocks(hidden, BLOCKS)
    for block in model:
        fully_shard(block, mesh=mesh)
    return _step(fully_shard(model, mesh=mesh), hidden)


def _pipeline(hidden: int, group: Any) -> Callable[[], None]:
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
