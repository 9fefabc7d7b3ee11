"""Steps of torch's DDP, FSDP2 and 1F1B pipelines: on this backend, on Gloo, and with nothing communicated, in turns.

Eight blocks (hidden to four times hidden and back), AdamW. All three contestants are in the same processes and take
turns step by step. `nothing` is the same step over torch's fake backend, which answers at once and moves nothing (DDP:
with a hook that leaves the bucket as it is; pipelines: a stage that has its inputs and gradients at hand, and computes
as many micro-batches more as it stands idle in a 1F1B schedule of equal stages, where each rank has a processor of its
own): what a step takes more than that is exposed communication.
Options: --ranks 2 4, --hidden 256 768, --only ddp fsdp2 1f1b, --launches N, --rounds N.
"""

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import fake_pg  # noqa: F401  (registers the backend "fake")

import meshwright  # noqa: F401  (registers the backend)
from benchmarks.contestants import race_steps
from benchmarks.result import Result
from benchmarks.step_kinds import BLOCKS, KINDS, MICRO_BATCHES, ROWS
from meshwright.bench.ranks.pool import RankPool
from meshwright.bench.ranks.process import prepare_process

PATIENCE_S = 1200.0  # of one launch
WARM_STEPS = 3  # DDP rearranges its buckets after the first
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
    torch.manual_seed(0)
    steps: dict[str, Callable[[], object]] = {name: KINDS[kind](hidden, groups[name]) for name in CONTESTANTS}
    medians = race_steps(steps, rounds, ours, WARM_STEPS)
    dist.barrier(group=ours)
    dist.destroy_process_group()
    return medians
