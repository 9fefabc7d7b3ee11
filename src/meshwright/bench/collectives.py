"""Time of a collective between the ranks of the default process group, and its alpha-beta fit."""

import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist

from ..cluster.graph import CollectiveFit

ROUNDS = 7
WARM_UP = 2


def time_all_reduce(size_bytes: int, device: torch.device, *, rounds: int = ROUNDS) -> tuple[float, float]:
    """Return the median seconds of an all-reduce of float32 on this rank, and the share in which its cores worked."""
    tensor = torch.ones(max(1, size_bytes // 4), device=device)
    times = []
    for _ in range(WARM_UP):
        dist.all_reduce(tensor)
    busy_s = -time.process_time()
    begin = time.perf_counter()
    for _ in range(rounds):
        tensor.fill_(1.0)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    busy_s += time.process_time()
    return statistics.median(times), min(1.0, busy_s / (time.perf_counter() - begin))


def fit(
    collective: str, backend: str, ranks: int, sizes_bytes: Sequence[int], times_s: Sequence[float], busy_share: float
) -> CollectiveFit:
    """Fit alpha + beta x bytes to measured times, least squares of the relative error, both at least 0."""
    sizes, times = np.asarray(sizes_bytes, dtype=float), np.asarray(times_s, dtype=float)
    weighted = np.stack([1 / times, sizes / times], axis=1)
    alpha, beta = np.linalg.lstsq(weighted, np.ones_like(times), rcond=None)[0]
    if alpha < 0:  # a line through the origin is the best that is physical
        alpha, beta = 0.0, float((sizes / times).sum() / ((sizes / times) ** 2).sum())
    if beta < 0:
        alpha, beta = float((1 / times).sum() / (1 / times**2).sum()), 0.0
    return CollectiveFit(
        collective=collective,
        backend=backend,
        ranks=ranks,
        alpha_s=float(alpha),
        beta_s_per_byte=float(beta),
        min_bytes=int(sizes.min()),
        max_bytes=int(sizes.max()),
        busy_share=busy_share,
        residual=float(np.abs((alpha + beta * sizes) / times - 1).max()),
    )
