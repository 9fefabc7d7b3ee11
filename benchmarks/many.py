"""Many ranks on one host, more than processors: start of the group, its memory, a barrier and an all-reduce of 1 KiB.

A launch has one contestant. Ranks of torch are processes of their own that wait for each other once they have imported
it, and then make their group: `start_s` is from there until the last rank has left the first barrier. `memory_mb` is
what all ranks together hold more after some calls than before the group was made (shared pages count once). The MPIs
start processes of their own, so that only their calls are compared. `group_barrier_us` and `group_all_reduce_us`
are the same calls made of the process group itself, past torch.distributed's Python functions.
The package is compiled first, as pip does when it installs it: under PYTHONDONTWRITEBYTECODE each rank of a checkout
would compile it anew.
Options: --ranks 64 128, --launches N, --calls N, --mpi mpich openmpi intel.
"""

import argparse
import compileall
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import meshwright
from benchmarks.contestants import KI
from benchmarks.mpis import PACKAGES, launch, prepare
from benchmarks.result import Result

BLOCKS = 5  # of calls; the median counts
PATIENCE_S = 600.0  # with a rank
TORCH = ("meshwright", "gloo")


def run(arguments: list[str]) -> Result:
    """Return one row for each number of ranks and contestant."""
    options = _options(arguments)
    for kind in options.mpi:
        prepare(kind)
    compileall.compile_dir(Path(meshwright.__file__).parent, quiet=1)
    rows = []
    for ranks in options.ranks:
        told: dict[str, list[dict[str, float]]] = {name: [] for name in (*TORCH, *options.mpi)}
        for _ in range(options.launches):
            for name, launches in told.items():
                if name in TORCH:
                    launches.append(_spawned(name, ranks, options.calls))
                else:
                    launches.extend(launch("many", ranks, ["--calls", str(options.calls)], name))
        for name, launches in told.items():
            figures = {key: round(statistics.median(one[key] for one in launches), 2) for key in launches[0]}
            rows.append({"ranks": ranks, "contestant": name, **figures})
    notes = [f"medians of {options.launches} launches in turns, each of {BLOCKS} blocks of {options.calls} calls"]
    return Result("many ranks on one host", rows, notes, keys=("ranks", "contestant"))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks many")
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--mpi", nargs="*", choices=list(PACKAGES), default=[])
    parser.add_argument("--output", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _spawned(backend: str, ranks: int, calls: int) -> dict[str, float]:
    """Start the ranks; return the figures of the slowest and the memory of all."""
    import torch.distributed as dist

    context = multiprocessing.get_context("spawn")
    all_here, told = context.Barrier(ranks), context.Queue()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    children = [
        context.Process(target=_rank, args=(backend, rank, ranks, calls, store.port, all_here, told), daemon=True)
        for rank in range(ranks)
    ]
    for child in children:
        child.start()
    figures = [told.get(timeout=PATIENCE_S) for _ in children]
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        raise SystemExit(f"a rank of {backend} failed")
    start_s = max(one["end_s"] for one in figures) - max(one["begin_s"] for one in figures)
    slowest = {key: max(one[key] for one in figures) for key in figures[0] if key.endswith("_us")}
    return {"start_s": start_s, "memory_mb": sum(one["bytes"] for one in figures) / 1e6, **slowest}


def _rank(backend: str, rank: int, ranks: int, calls: int, port: int, all_here: Any, told: Any) -> None:
    import torch
    import torch.distributed as dist

    import meshwright  # noqa: F401  (registers the backend)

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
    before = _held_bytes()
    all_here.wait()
    begin_s = time.monotonic()
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    dist.barrier()
    end_s = time.monotonic()
    tensor = torch.zeros(KI // 4)
    contestants: dict[str, Callable[[], object]] = {
        "barrier_us": dist.barrier,
        "all_reduce_us": lambda: dist.all_reduce(tensor),
        **_of_the_group(tensor),
    }
    figures = _timed(contestants, calls)
    held = _held_bytes() - before
    all_here.wait()
    told.put({"begin_s": begin_s, "end_s": end_s, "bytes": held, **figures})
    dist.destroy_process_group()


def _of_the_group(tensor: Any) -> dict[str, Callable[[], object]]:
    """Return the same calls of the process group, which torch.distributed's functions come to in the end."""
    import torch.distributed as dist

    assert dist.group.WORLD is not None
    group, barrier, reduction = dist.group.WORLD, dist.BarrierOptions(), dist.AllreduceOptions()
    barrier.asyncOp = reduction.asyncOp = False
    return {
        "group_barrier_us": lambda: group.barrier(barrier).wait(),
        "group_all_reduce_us": lambda: group.allreduce([tensor], reduction).wait(),
    }


def _timed(contestants: dict[str, Callable[[], object]], calls: int) -> dict[str, float]:
    """Return the median microseconds of each call, over blocks of `calls` calls."""
    figures = {}
    for name, call in contestants.items():
        blocks = []
        for _ in range(1 + BLOCKS):
            start = time.perf_counter()
            for _ in range(calls):
                call()
            blocks.append((time.perf_counter() - start) / calls * 1e6)
        figures[name] = statistics.median(blocks[1:])
    return figures


def _held_bytes() -> int:
    """Return the memory of this process; pages that it shares with others count in parts."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * KI
    raise OSError("/proc/self/smaps_rollup has no Pss")


def _mpi_main() -> None:
    import json

    import numpy as np
    from mpi4py import MPI

    options = _options(sys.argv[1:])
    comm, tensor = MPI.COMM_WORLD, np.zeros(KI // 4, "f")
    contestants = {"barrier_us": comm.Barrier, "all_reduce_us": lambda: comm.Allreduce(MPI.IN_PLACE, tensor)}
    slowest = {key: comm.allreduce(value, MPI.MAX) for key, value in _timed(contestants, options.calls).items()}
    if comm.Get_rank() == 0:
        Path(options.output).write_text(json.dumps([slowest]))


if __name__ == "__main__":
    _mpi_main()
