"""The collectives of torch.distributed and of MPI as calls without arguments, and races of such calls, in turns.

Warm, a call meets the same buffers each time. Cold, it goes round buffers that together are four times the last cache,
as the steps of a training do, which come back to a buffer after everything else was touched.
"""

import itertools
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KI, MI = 2**10, 2**20
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all")
BLOCK_S = 0.01  # short collectives are timed in blocks of about this length
LEAST_CALLS = 3  # of a block, so that it weighs less how far apart the ranks begin
COLD_FROM = 64 * KI  # bytes; below it the buffers alone would be tens of thousands
TIMES_CACHE = 4


def join(folder: str) -> tuple[int, int, Any]:
    """Make the default group, over Gloo; return this rank, the number of ranks, and MPI's communicator or None."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    comm = None
    if "RANK" not in os.environ:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    rank = comm.Get_rank() if comm is not None else int(os.environ["RANK"])
    size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", size), rank=rank, world_size=size)
    return rank, size, comm


def sets_of(size_bytes: int, ranks: int, cold: bool) -> int:
    """Return how many sets of buffers a call goes round; all ranks share the last cache."""
    if not cold or size_bytes < COLD_FROM:
        return 1
    return max(2, -(-TIMES_CACHE * last_cache_bytes() // (2 * size_bytes * ranks)))


def last_cache_bytes() -> int:
    """Return the size of the last cache of processor 0 as the kernel tells it."""
    caches = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    size = (caches[-1] / "size").read_text().strip()
    return int(size.removesuffix("K")) * KI


def torch_call(name: str, size_bytes: int, ranks: int, group: Any, sets: int = 1) -> Callable[[], object]:
    """Return the collective on tensors of its own; `size_bytes` is the payload of all-reduce and broadcast, and the
    larger of input and output of the others.
    """
    import torch
    import torch.distributed as dist

    calls: dict[str, Callable[..., object]] = {
        "all_reduce": lambda whole, _part, _other: dist.all_reduce(whole, group=group),
        "broadcast": lambda whole, _part, _other: dist.broadcast(whole, 0, group=group),
        "all_gather": lambda whole, part, _other: dist.all_gather_single(whole, part, group=group),
        "reduce_scatter": lambda whole, part, _other: dist.reduce_scatter_single(part, whole, group=group),
        "all_to_all": lambda whole, _part, other: dist.all_to_all_single(other, whole, group=group),
    }
    return _round(calls[name], name, size_bytes // 4, ranks, sets, torch.zeros)


def mpi_call(name: str, size_bytes: int, ranks: int, comm: Any, sets: int = 1) -> Callable[[], object]:
    """Return the same collective of MPI, on memory of the same kind: numpy asks for huge pages, torch does not."""
    import torch
    from mpi4py import MPI

    calls: dict[str, Callable[..., object]] = {
        "all_reduce": lambda whole, _part, _other: comm.Allreduce(MPI.IN_PLACE, whole),
        "broadcast": lambda whole, _part, _other: comm.Bcast(whole, 0),
        "all_gather": lambda whole, part, _other: comm.Allgather(part, whole),
        "reduce_scatter": lambda whole, part, _other: comm.Reduce_scatter_block(whole, part),
        "all_to_all": lambda whole, _part, other: comm.Alltoall(whole, other),
    }
    return _round(calls[name], name, size_bytes // 4, ranks, sets, lambda count: torch.zeros(count).numpy())


def _round(
    call: Callable[..., object], name: str, count: int, ranks: int, sets: int, zeros: Callable[[int], Any]
) -> Callable[[], object]:
    """Return a call that takes the next set of buffers each time; all are written once, so that they have pages."""
    needs_part, needs_other = name in ("all_gather", "reduce_scatter"), name == "all_to_all"
    buffers = []
    for _ in range(sets):
        whole = zeros(count)
        part = zeros(count // ranks) if needs_part else None
        other = zeros(count) if needs_other else None
        for buffer in (whole, part, other):
            if buffer is not None:
                buffer[:] = 0
        buffers.append((whole, part, other))
    if sets == 1:
        whole, part, other = buffers[0]
        return lambda: call(whole, part, other)
    turn = itertools.cycle(buffers)
    return lambda: call(*next(turn))


def _repeats(call: Callable[[], object], group: Any) -> int:
    """Return how many calls make a block; the first few are slower, and tell too little."""
    import torch
    import torch.distributed as dist

    calls, slowest_s = 1, 0.0
    while calls < 1000 and slowest_s < BLOCK_S / 2:
        calls *= 4
        dist.barrier(group=group)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        took = torch.tensor([time.perf_counter() - start])
        dist.all_reduce(took, dist.ReduceOp.MAX, group=group)
        slowest_s = took.item()
    return int(max(LEAST_CALLS, min(1000, calls * BLOCK_S / slowest_s)))


def race(contestants: dict[str, Callable[[], object]], rounds: int, group: Any) -> dict[str, float]:
    """Return the median seconds of one call for each contestant, of the slowest rank, over rounds in turns."""
    import torch.distributed as dist

    repeats = {kind: _repeats(call, group) for kind, call in contestants.items()}
    samples: dict[str, list[float]] = {kind: [] for kind in contestants}
    for _ in range(rounds):
        for kind, call in contestants.items():
            dist.barrier(group=group)
            call()
            start = time.perf_counter()
            for _ in range(repeats[kind]):
                call()
            samples[kind].append((time.perf_counter() - start) / repeats[kind])
    return _medians_of_slowest(samples, group)


def race_steps(steps: dict[str, Callable[[], object]], rounds: int, group: Any, warm: int) -> dict[str, float]:
    """Return the same of single steps, after some that do not count."""
    import torch.distributed as dist

    samples: dict[str, list[float]] = {kind: [] for kind in steps}
    for turn in range(warm + rounds):
        for kind, step in steps.items():
            dist.barrier(group=group)
            start = time.perf_counter()
            step()
            if turn >= warm:
                samples[kind].append(time.perf_counter() - start)
    return _medians_of_slowest(samples, group)


def _medians_of_slowest(samples: dict[str, list[float]], group: Any) -> dict[str, float]:
    import torch
    import torch.distributed as dist

    table = torch.tensor(list(samples.values()), dtype=torch.float64)
    dist.all_reduce(table, dist.ReduceOp.MAX, group=group)
    return {kind: statistics.median(values) for kind, values in zip(samples, table.tolist(), strict=True)}


def finish(rank: int, output: str, rows: list[dict[str, Any]]) -> None:
    """Write what rank 0 measured and end the group."""
    import torch.distributed as dist

    if rank == 0:
        Path(output).write_text(json.dumps(rows))
    dist.barrier()
    dist.destroy_process_group()
