"""One rank of the benchmark `against`: it needs nothing but the backend, so that older commits serve too.

Arguments: rank, number of ranks, folder to meet in, source of the package; for a kind of step its name and width too.
"""

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
from benchmarks.step_kinds import KINDS

FLOATS_OF_1_KIB = 256
BLOCKS, CALLS = 30, 1000  # of calls; the median of the blocks counts
WARM_STEPS, STEPS = 10, 100
WARM_STEPS_OF_KINDS, STEPS_OF_KINDS = 3, 15


def main() -> None:
    """Join the group, time the calls and the step, and write the seconds of each."""
    rank, ranks, folder, source = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    if source not in Path(meshwright.__file__).parents:
        raise SystemExit(f"{meshwright.__file__}: expected the package in {source}")
    torch.set_num_threads(1)
    dist.init_process_group("meshwright", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    if sys.argv[5:]:
        seconds = {"step": _seconds_of_kind(sys.argv[5], int(sys.argv[6]))}
    else:
        seconds = {name: _seconds_of(call) for name, call in _calls(ranks).items()}
        seconds["DDP step of 8 Linear(512, 512)"] = _seconds_of_step()
    (folder / f"{rank}.json").write_text(json.dumps(seconds))
    dist.barrier()
    dist.destroy_process_group()


def _calls(ranks: int) -> dict[str, Callable[[], object]]:
    """Return the calls, of 1 KiB and of 4 KiB in all."""
    small, whole = torch.zeros(FLOATS_OF_1_KIB), torch.ones(4 * FLOATS_OF_1_KIB)
    part, target = whole[: len(whole) // ranks], torch.empty_like(whole)
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

    def step() -> None:
        module(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return _median_of(step, WARM_STEPS, STEPS)


def _seconds_of_kind(kind: str, hidden: int) -> float:
    torch.manual_seed(0)
    return _median_of(KINDS[kind](hidden, dist.group.WORLD), WARM_STEPS_OF_KINDS, STEPS_OF_KINDS)


def _median_of(step: Callable[[], None], warm: int, steps: int) -> float:
    taken = []
    for _ in range(warm + steps):
        dist.barrier()
        start_s = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start_s)
    return statistics.median(taken[warm:])


if __name__ == "__main__":
    main()
