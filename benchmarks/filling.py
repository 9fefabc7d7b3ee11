"""All-reduces on one host with slots filled through the caches and past them, in turns.

The ways alternate call by call. The rows give the median of each in blocks of calls, so that it shows whether
the answer changes in the course of a run, as it does where processors move between caches.
Options: --ranks N (default 2), --size BYTES (default 28MiB), --blocks N (default 12).
"""

import argparse
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from benchmarks.result import Result
from meshwright.backend.local import slot_stores as filling
from meshwright.bench.ranks.pool import RankPool
from meshwright.bench.ranks.process import prepare_process
from meshwright.units import parse_bytes

CALLS = 80  # of both ways, in a block


def run(arguments: list[str]) -> Result:
    """Return a row for each block of calls."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks filling", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", type=parse_bytes, default="28MiB")
    parser.add_argument("--blocks", type=int, default=12)
    options = parser.parse_args(arguments)
    with RankPool(options.ranks) as pool:
        blocks = pool.run(_blocks, options.size, options.blocks, timeout_s=600.0)[0]
    rows = [
        {
            "begun_s": round(begun_s, 1),
            "through_ms": round(statistics.median(times[::2]) * 1e3, 2),
            "past_ms": round(statistics.median(times[1::2]) * 1e3, 2),
        }
        for begun_s, times in blocks
    ]
    return Result(f"all-reduce of {options.size} bytes over {options.ranks} ranks, by how slots are filled", rows, [])


def _blocks(rank: int, world_size: int, store: Any, size_bytes: int, blocks: int) -> list[tuple[float, list[float]]]:
    """Return of each block when it began and what its calls took, the ways in turns."""
    prepare_process(1)
    filling.EVERY, filling.EVERY_BYTES = 2, 0  # every call is a trial
    dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)
    tensor = torch.zeros(size_bytes // 4)
    begun, found = time.perf_counter(), []
    for _ in range(blocks):
        begun_s, times = time.perf_counter() - begun, []
        for _ in range(CALLS):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            times.append(time.perf_counter() - start)
        found.append((begun_s, times))
    return found
