"""The figures that `meshwright bench` measures and predicts, beside a plain script and beside fresh measurements.

Two tables in one: all-reduce times of `bench` against those of a twenty-line script, alternating in one run (aim:
within 10 %), and times predicted from a fit against sizes that were not fitted (aim: within 15 %).
"""

import argparse
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from msgspec.structs import replace

from benchmarks.result import Result
from meshwright.bench.fit import fit_sweep
from meshwright.bench.ranks.pool import RankPool
from meshwright.bench.sweep import SweepRequest, rows_from, sweep_on_rank

BACKENDS = ("gloo", "meshwright")
ROUNDS = 60  # of bench and script in turn
SWEEPS = 11  # each over all sizes with a process group of its own; what counts is the median of their medians


def run(arguments: list[str]) -> Result:
    """Measure both tables on 2 and 4 ranks."""
    argparse.ArgumentParser(prog="python -m benchmarks agreement").parse_args(arguments)
    rows: list[dict[str, Any]] = []
    for ranks in (2, 4):
        with RankPool(ranks) as pool:
            for backend in BACKENDS:
                if ranks == 2:
                    rows += [_beside_script(pool, backend, size) for size in (65536, 2**20, 2**22)]
                rows += _not_fitted(pool, backend)
    return Result("bench beside a plain script, and fits beside fresh sizes", rows)


def _beside_script(pool: RankPool, backend: str, size_bytes: int) -> dict[str, Any]:
    ours: list[float] = []
    theirs: list[float] = []
    for mine, other in pool.run(both_measurements, backend, size_bytes, timeout_s=120):
        ours += mine
        theirs += other
    return _row("script", backend, pool.world_size, size_bytes, statistics.median(ours), statistics.median(theirs))


def _not_fitted(pool: RankPool, backend: str) -> list[dict[str, Any]]:
    fitted, fresh = {2**k for k in range(12, 25)}, {3 * 2**k for k in range(12, 23, 2)}
    sizes = tuple(sorted(fitted | fresh))
    request = SweepRequest(collective="all_reduce", backend=backend, sizes_bytes=sizes, budget_s=0.2)
    sweeps = [rows_from(request, pool.run(one_sweep, request, timeout_s=300)) for _ in range(SWEEPS)]
    rows = [
        replace(again[0], time_s=statistics.median(row.time_s for row in again)) for again in zip(*sweeps, strict=True)
    ]
    fit = fit_sweep([row for row in rows if row.bytes in fitted])
    return [
        _row("fresh size", backend, pool.world_size, row.bytes, fit.time_s(row.bytes), row.time_s)
        for row in rows
        if row.bytes in fresh
    ]


def _row(against: str, backend: str, ranks: int, size_bytes: int, ours_s: float, theirs_s: float) -> dict[str, Any]:
    return {
        "against": against,
        "backend": backend,
        "ranks": ranks,
        "bytes": size_bytes,
        "ours_us": ours_s * 1e6,
        "theirs_us": theirs_s * 1e6,
        "error_percent": (ours_s / theirs_s - 1) * 100,
    }


def plain_times(size_bytes: int, calls: int) -> list[float]:
    """Return times measured independently: the lines that anybody would write."""
    tensor = torch.ones(size_bytes // 4)
    times = []
    for _ in range(calls):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - start)
    return times


def both_measurements(
    rank: int, world_size: int, store: Any, backend: str, size_bytes: int
) -> tuple[list[float], list[float]]:
    """Measure with bench and with the plain loop, alternating."""
    torch.set_num_threads(1)
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    request = SweepRequest(
        collective="all_reduce", backend=backend, sizes_bytes=(size_bytes,), budget_s=0.05, settle_s=0.05
    )
    ours: list[float] = []
    theirs: list[float] = []
    plain_times(size_bytes, 200)
    for _ in range(ROUNDS):
        sample = sweep_on_rank(request)[0]
        ours += sample.times_s
        plain_times(size_bytes, 2)
        theirs += plain_times(size_bytes, len(sample.times_s))
    return ours, theirs


def one_sweep(rank: int, world_size: int, store: Any, request: SweepRequest) -> list[Any]:
    """Run one sweep on a rank."""
    torch.set_num_threads(1)
    dist.init_process_group(request.backend, rank=rank, world_size=world_size, store=store)
    return sweep_on_rank(request)
