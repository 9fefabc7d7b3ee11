"""The extra time of a rank after a wait, when others have put their own code and data into the caches."""

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from ..cache_pollution import multiply_for
from ..cpu_clock import CpuClock

ROUNDS = 30
COMPUTE_S = 4e-3  # of a rank before it waits, as in an action of a pipeline
IN_A_ROW = 3


def time_resuming(work: Callable[[], object], clock: CpuClock) -> float:
    """Return the processor time by which `work` after a wait exceeds `work` that follows itself; on CPU.

    `work` is short and runs little of much code. All ranks of the default group call it.
    """
    factor = torch.ones(256, 256)
    samples = []
    work()
    for _ in range(ROUNDS):
        with clock.counted():
            multiply_for(COMPUTE_S, factor)
        dist.barrier()
        first_s = _taken_s(work)
        samples.append(first_s - statistics.median(_taken_s(work) for _ in range(IN_A_ROW)))
    return max(0.0, statistics.median(samples))


def _taken_s(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start
