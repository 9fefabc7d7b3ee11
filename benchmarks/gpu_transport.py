"""Four ranks on one GPU over CUDA IPC: every algorithm held against a reference, and its share of the memory's rate.

Without a GPU the ranks share memory of the host, by the same protocol, so that this program is known to work.
"""

import json
import statistics
import sys
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.result import Result
from meshwright import device as devices
from meshwright.backend.wire.executor import Executor
from meshwright.backend.wire.transport_device import CudaMemory, DeviceTransport
from meshwright.bench.machine import copy_rates
from meshwright.bench.ranks.pool import RankPool
from meshwright.collectives.catalogue import algorithm_names, build_schedule
from testkit.executor_cases import check_everything
from testkit.host_memory import HostMemoryTransport

RANKS = 4
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
ROUNDS = 10


def run(arguments: list[str]) -> Result:
    """Return a row for the algorithms and one for the time of a large all-reduce."""
    found = measured()
    rows = [
        {"quantity": "algorithms that give the exact result", "value": found["right"], "unit": ""},
        {"quantity": "all_reduce by ring", "value": found["time_s"] * 1e3, "unit": f"ms for {found['bytes']} bytes"},
        {"quantity": "share of the rate of a copy", "value": found["share"], "unit": ""},
    ]
    where = devices.name() if devices.accelerator_type() == "cuda" else "memory of the host: nothing was measured"
    return Result("Four ranks on one GPU", rows, [where])


def measured() -> dict[str, Any]:
    """Check and time on live ranks."""
    on_gpu = devices.accelerator_type() == "cuda"
    size_bytes = 2**28 if on_gpu else 2**16
    device = devices.device() if on_gpu else devices.CPU
    with RankPool(RANKS) as pool:
        pool.run(check, on_gpu)
        time_s = max(pool.run(timed, on_gpu, size_bytes))
    moved_bytes = 2 * (RANKS - 1) * size_bytes  # by all ranks together: each byte is read and written as in a copy
    copied = copy_rates(device)[-1].copy_bytes_per_s
    right = sum(len(algorithm_names(collective)) for collective in COLLECTIVES)
    return {"right": right, "bytes": size_bytes, "time_s": time_s, "share": moved_bytes / time_s / copied}


def check(rank: int, ranks: int, store: dist.Store, on_gpu: bool) -> None:
    """Compare every algorithm with the plain reference."""
    device = devices.device() if on_gpu else devices.CPU
    check_everything(rank, ranks, _transport(rank, ranks, store, on_gpu), device, (1, 13, 1_000_003 if on_gpu else 257))


def timed(rank: int, ranks: int, store: dist.Store, on_gpu: bool, size_bytes: int) -> float:
    """Return the median seconds of a large all-reduce."""
    device = devices.device() if on_gpu else devices.CPU
    executor = Executor(_transport(rank, ranks, store, on_gpu))
    values, schedule, times = (
        torch.zeros(size_bytes // 4, device=device),
        build_schedule("all_reduce", "ring", ranks),
        [],
    )
    try:
        for _ in range(ROUNDS):
            start = devices.synchronised_clock(device)
            executor.all_reduce(values, schedule)
            times.append(devices.synchronised_clock(device) - start)
    finally:
        executor.transport.close()
    return statistics.median(times[ROUNDS // 4 :])


def _transport(rank: int, ranks: int, store: dist.Store, on_gpu: bool) -> DeviceTransport:
    if on_gpu:
        return DeviceTransport(CudaMemory(devices.device()), store, rank, ranks, timeout_s=60.0)
    return HostMemoryTransport(store, rank, ranks, timeout_s=60.0)


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(measured()) + "\n")
