"""One rank of the benchmark `against`: it needs nothing but the backend, so that older commits serve too."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import meshwright

RANKS, FLOATS_OF_1_KIB = 2, 256
BLOCKS, CALLS = 30, 1000  # of calls; the median of the blocks counts
WARM_STEPS, STEPS = 10, 100


def main() -> None:
    """Join the group, time the calls and the step, and write the seconds of each."""
    rank, folder, source = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    if source not in Path(meshwright.__file__).parents:
        raise SystemExit(f"{meshwright.__file__}: expected the package in {source}")
    torch.set_num_threads(1)
    dist.init_process_group("meshwright", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    seconds = {name: _seconds_of(call) for name, call in _calls().items()}
    seconds["DDP step of 8 Linear(512, 512)"] = _seconds_of_step()
    (folder / f"{rank}.json").write_text(json.dumps(seconds))
    dist.barrier()
    dist.destroy_process_group()


def _calls() -> dict[str, Callable[[], object]]:
    """Return the calls, of 1 KiB and of 4 KiB in all."""
    small, whole = torch.zeros(FLOATS_OF_1_KIB), torch.ones(4 * FLOATS_OF_1_KIB)
    part, target = whole[: len(whole) // RANKS], torch.empty_like(whole)
    return {
        "all-reduce of 1 KiB": lambda: dist.all_reduce(small),
        "all-gather of 4 KiB": lambda: dist.all_gather_into_tensor(target, part),
        "all-to-all of 4 KiB": lambda: dist.all_to_all_single(target, whole),
        "broadcast of 4 KiB": lambda: dist.broadcast(whole, 0),
    }


def _seconds_of(call: Callable[[], object]) -> float:
    blocks = []
    for _ in range(1 + BLOCKS):
        dist.barrier()
        start_s = time.perf_counter()
        for _ in range(CALLS):
            call()
        blocks.append((time.perf_counter() - start_s) / CALLS)
    return statistics.median(blocks[1:])


def _seconds_of_step() -> float:
    torch.manual_seed(0)
    module = DistributedDataParallel(nn.Sequential(*(nn.Linear(512, 512) for _ in range(8))))
    optimizer, x = torch.optim.SGD(module.parameters(), lr=0.01), torch.randn(16, 512)
    taken = []
    for _ in range(WARM_STEPS + STEPS):
        start_s = time.perf_counter()
        module(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        taken.append(time.perf_counter() - start_s)
    return statistics.median(taken[WARM_STEPS:])


if __name__ == "__main__":
    main()
