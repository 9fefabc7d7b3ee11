"""How evenly this machine computes: the same work of several kinds, again and again for minutes, on one core.

Predictions stand on a calibration of some seconds, and a run comes after it: `windows_percent` says how far two
measurements of ten seconds can lie apart. All is in processor time, in which a process that waits for its core does not
count; what is left is the core itself: its clock, its caches, and the programs on its other hardware thread.

The kinds of work are those of a training step, and the step of the default job. Small operators are timed behind a
product of matrices and behind a copy of as many bytes too: both leave cold caches, and the product alone lowers the
clock where wide vector instructions do.
"""

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.recording import trainer_of
from benchmarks.result import Result
from meshwright.bench.ranks.pool import RankPool
from meshwright.bench.ranks.process import prepare_process
from meshwright.machine_load import LoadCounters
from meshwright.train.job.config import JobConfig

WINDOW_S = 10.0


def run(arguments: list[str]) -> Result:
    """Do each kind of work in turn until the minutes are over."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks pace")
    parser.add_argument("--minutes", type=float, default=4.0)
    options = parser.parse_args(arguments)
    with RankPool(1) as pool:
        samples, faults, stolen = pool.run(_measure, options.minutes * 60, timeout_s=options.minutes * 60 + 120)[0]
    rows = [row_of(work, taken) for work, taken in samples.items()]
    return Result(
        f"the same work for {options.minutes:g} minutes",
        rows,
        [
            "processor time; p10 and p90 of samples of some milliseconds; windows_percent: slowest over fastest 10 s",
            f"other virtual machines had {stolen:.1%} of the processors, by /proc/stat",
            f"a step of the default job has {faults:.3g} page faults",
        ],
        keys=("work",),
    )


def row_of(work: str, taken: Sequence[tuple[float, float]]) -> dict[str, float | str]:
    """Return a row from pairs of the moment and the seconds of one unit of work."""
    seconds = sorted(each for _, each in taken)
    windows: dict[int, list[float]] = {}
    for moment, each in taken:
        windows.setdefault(int(moment / WINDOW_S), []).append(each)
    medians = [statistics.median(each) for each in windows.values()]
    p10, p90 = (seconds[int(share * (len(seconds) - 1))] for share in (0.1, 0.9))
    return {
        "work": work,
        "median_us": statistics.median(seconds) * 1e6,
        "p10_us": p10 * 1e6,
        "p90_us": p90 * 1e6,
        "p90_over_p10": p90 / p10,
        "windows_percent": (max(medians) / min(medians) - 1) * 100,
    }


def _measure(
    rank: int, world_size: int, store: dist.Store, seconds: float
) -> tuple[dict[str, list[tuple[float, float]]], float, float]:
    """Return the samples of each kind of work, the pages that a step touches first, and the share of stolen time."""
    prepare_process(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(JobConfig(), rank, world_size, torch.device("cpu"), Path(folder))
        step = iter(range(10**9))
        for _ in range(10):
            trainer.step(next(step))
        kinds = _kinds() | {"step of the default job": lambda: _seconds(lambda: trainer.step(next(step)))}
        samples: dict[str, list[tuple[float, float]]] = {work: [] for work in kinds}
        counters, begun, faults = LoadCounters(), time.monotonic(), 0
        while time.monotonic() - begun < seconds:
            for work, measure in kinds.items():
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                samples[work].append((time.monotonic() - begun, measure()))
                if work.startswith("step"):
                    faults += resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        load = counters.until_now()
    stolen = load.stolen_s / (load.wall_s * load.processors) if load else float("nan")
    return samples, faults / len(samples["step of the default job"]), stolen


def _kinds() -> dict[str, Callable[[], float]]:
    """Return functions that do a kind of work once and return the seconds of one unit of it."""
    square, result, small = torch.randn(512, 512), torch.empty(512, 512), torch.randn(64, 64)
    source, target = torch.randn(4 * 2**20), torch.empty(4 * 2**20)

    def behind(work: Callable[[], object]) -> float:
        taken = 0.0
        for _ in range(10):
            work()
            taken += _seconds(lambda: torch.add(small, small), 50)
        return taken / 10

    return {
        "product of 512 x 512": lambda: _seconds(lambda: torch.mm(square, square, out=result), 10),
        "copy of 16 MiB": lambda: _seconds(lambda: target.copy_(source), 3),
        "sum of 64 x 64": lambda: _seconds(lambda: torch.add(small, small), 1000),
        "the same behind a product": lambda: behind(lambda: torch.mm(square, square, out=result)),
        "the same behind a copy": lambda: behind(lambda: result.copy_(square)),
    }


def _seconds(work: Callable[[], object], times: int = 1) -> float:
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times
