"""DDP on 12 x Linear(1024), batch 16: a step on this backend, on Gloo, and with nothing communicated, in turns.

All three are in the same processes and take turns step by step, so that a change of the machine's mood meets all of
them. `empty hook` is DDP with a communication hook that returns the bucket as it is: what DDP costs by itself.
The processes are started anew some times, since where their pages lie decides too, and over a few minutes, since a
hypervisor moves processors between caches: `least_over_gloo` and `most_over_gloo` are those of single launches.
Options: --ranks N (default 2), --launches N (default 16), --rounds N (default 25).
"""

import argparse
import os
import statistics
import tempfile
import time
from typing import Any

from benchmarks.result import Result

LAYERS, WIDTH, BATCH = 12, 1024, 16


def run(arguments: list[str]) -> Result:
    """Start the ranks and return one row a contestant."""
    import torch.multiprocessing as multiprocessing

    parser = argparse.ArgumentParser(prog="benchmarks ddp")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--launches", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args(arguments)
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    launches: list[dict[str, list[float]]] = []
    for _ in range(options.launches):
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(_rank, (options.ranks, options.rounds, folder, queue), nprocs=options.ranks)
        launches.append(queue.get())
    samples = {name: [time_s for launch in launches for time_s in launch[name]] for name in launches[0]}
    medians = {name: statistics.median(values) for name, values in samples.items()}
    rows = []
    for name, median in medians.items():
        over_gloo = [statistics.median(launch[name]) / statistics.median(launch["gloo"]) for launch in launches]
        rows.append(
            {
                "contestant": name,
                "step_ms": round(median * 1e3, 2),
                "p10_ms": round(sorted(samples[name])[len(samples[name]) // 10] * 1e3, 2),
                "over_gloo": round(median / medians["gloo"], 3),
                "least_over_gloo": round(min(over_gloo), 3),
                "most_over_gloo": round(max(over_gloo), 3),
                "over_empty_hook": round(median / medians["empty hook"], 3),
            }
        )
    notes = [
        f"{options.ranks} ranks, {LAYERS} x Linear({WIDTH}), batch {BATCH}, SGD, one thread a rank, freed memory kept",
        f"medians of {options.launches} launches of {options.rounds} rounds in turns",
    ]
    return Result("DDP step", rows, notes)


def _rank(rank: int, ranks: int, rounds: int, folder: str, queue: Any) -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import meshwright  # noqa: F401  (registers the backend)
    from meshwright.bench.ranks.process import prepare_process

    os.environ["OMP_NUM_THREADS"] = "1"
    prepare_process(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks)
    ours = dist.new_group(backend="meshwright")

    def network(group: Any, hook: Any = None) -> Any:
        torch.manual_seed(0)
        layers = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
        model = DistributedDataParallel(layers, process_group=group)
        if hook is not None:
            model.register_comm_hook(None, hook)
        return model, torch.optim.SGD(model.parameters(), lr=1e-3)

    def nothing(state, bucket):
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    contestants = {"meshwright": network(ours), "gloo": network(None), "empty hook": network(ours, nothing)}
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    data = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(rank))
    for turn in range(rounds + 3):
        for name, (model, optimizer) in contestants.items():
            dist.barrier(group=ours)
            start = time.perf_counter()
            model(data).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if turn >= 3:  # DDP rearranges its buckets after the first
                samples[name].append(time.perf_counter() - start)
    if rank == 0:
        queue.put(samples)
    dist.barrier(group=ours)
    dist.destroy_process_group()
