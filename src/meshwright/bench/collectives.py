"""Time of a collective between the ranks of the default process group, and its alpha-beta fit."""

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.distributed as dist

from ..cluster.graph import CollectiveFit
from .sweep import exchange, make_call

ROUNDS = 9
BLOCKING_ROUNDS = 5
WARM_UP = 2
STRETCH = 6  # calls between two looks at the clock, where it is told what they add to computation
COMPUTE_S = 0.01  # of computation before each call, as between the collectives of a training step
SMALL_BYTES = 2**16  # below, the start of a message costs more than its bytes: fitted apart


def time_all_reduce(
    size_bytes: int, device: torch.device, *, rounds: int = ROUNDS, group: dist.ProcessGroup | None = None
) -> tuple[float, float]:
    """Return the median seconds of an all-reduce of float32 on this rank, and the share in which its cores worked.

    It is called as training does: after some computation, asynchronously, its end seen through the future. All ranks
    of the default group call it; with `group`, each in its own, so that all groups of an axis work at once.
    """
    tensor = torch.ones(max(1, size_bytes // 4), device=device)

    def call() -> None:
        future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
        future.then(lambda done: done.value()[0]).wait()

    return timed(call, lambda: tensor.fill_(1.0), device, rounds)


def time_blocking(collective: str, size_bytes: int, device: torch.device, *, rounds: int = BLOCKING_ROUNDS) -> float:
    """Return the seconds for which a collective of float32 blocks this rank between computations.

    `size_bytes` are those of the larger of input and output. All ranks of the default group call it. Messages go round
    the ring of ranks.
    """
    if collective == "send_recv":
        rank, ranks = dist.get_rank(), dist.get_world_size()
        return time_messages(size_bytes, (rank - 1) % ranks, (rank + 1) % ranks, device, rounds=rounds)
    call = make_call(collective, size_bytes, torch.float32, device)
    return time_added(call.run, call.fill, device, rounds)


def time_messages(
    size_bytes: int, before: int, after: int, device: torch.device, *, rounds: int = BLOCKING_ROUNDS
) -> float:
    """Return the seconds that a message from rank `before` and one to `after` add to computation of this rank.

    On a CPU the receive begins before some computation, as in a pipeline: what arrives meanwhile is handled by a core
    that computes. A GPU's messages wait for no code of the host, and must begin together: one stream takes them in
    turn. Ranks that neither send nor receive call `time_added` with nothing to do.
    """
    inbox, outgoing = (torch.ones(max(1, size_bytes // 4), device=device) for _ in range(2))
    begun: list[dist.Work | None] = []

    def begin() -> None:
        begun.append(dist.irecv(inbox, before))

    def end() -> None:
        begun.append(dist.isend(outgoing, after))
        for work in filter(None, begun):
            work.wait()
        begun.clear()

    def fill() -> None:
        outgoing.fill_(1.0)

    if device.type == "cpu":
        return time_added(end, fill, device, rounds, begin=begin)
    return time_added(lambda: exchange(inbox, before, outgoing, after), fill, device, rounds)


def timed(
    call: Callable[[], object], fill: Callable[[], object], device: torch.device, rounds: int
) -> tuple[float, float]:
    """Return the median seconds of a collective, and the share in which this rank's cores worked on it.

    Ranks that share a core each work for a part of the time in which the core does. `fill` writes the input before each
    call.
    """
    factor = torch.ones(256, 256, device=device)
    times, busy = [], []
    computing_s = computed_s = 0.0
    for _ in range(WARM_UP + rounds):
        fill()
        start, busy_start = time.perf_counter(), time.process_time()
        while time.perf_counter() < start + COMPUTE_S:
            factor @ factor
        computing_s += time.perf_counter() - start
        computed_s += time.process_time() - busy_start
        dist.barrier()
        start, busy_start = time.perf_counter(), time.process_time()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
        busy.append(time.process_time() - busy_start)
    time_s, sharing = statistics.median(times[WARM_UP:]), max(1.0, computing_s / computed_s)
    return time_s, min(1.0, statistics.median(busy[WARM_UP:]) / time_s * sharing)


def time_added(
    call: Callable[[], object],
    fill: Callable[[], object],
    device: torch.device,
    rounds: int,
    *,
    begin: Callable[[], object] = lambda: None,
) -> float:
    """Return the median seconds that a collective adds to the computation of this rank on either side of it.

    Ranks that share cores come to it one after the other, and what each has to do is done while others compute: less
    than where all come at once; waiting for the slowest is part of it. Never less than what calls in a row take.
    `fill` writes the input before each call, and `begin` begins what `call` ends after the computation.
    """
    factor = torch.ones(256, 256, device=device)
    products = _products(factor)

    def stretch(products: int, *, calls: bool) -> float:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(STRETCH):
            fill()
            if calls:
                begin()
            for _ in range(products):
                factor @ factor
            if calls:
                call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - start) / STRETCH

    stretch(products, calls=True)
    taken = [(stretch(products, calls=True), stretch(products, calls=False)) for _ in range(rounds)]
    in_a_row = [stretch(0, calls=True) for _ in range(rounds)]
    added_s = statistics.median(both - compute for both, compute in taken)
    return max(added_s, statistics.median(in_a_row))


def _products(factor: torch.Tensor) -> int:
    """Return how many products all ranks compute in `COMPUTE_S` with all of them busy: the same number on each."""
    dist.barrier()
    count, end = 0, time.perf_counter() + COMPUTE_S
    while time.perf_counter() < end:
        factor @ factor
        count += 1
    total = torch.tensor([float(count)], device=factor.device)
    dist.all_reduce(total)
    return max(1, round(float(total) / dist.get_world_size()))


def fit_sizes(
    collective: str,
    backend: str,
    ranks: int,
    sizes_bytes: Sequence[int],
    times_s: Sequence[float],
    busy: Sequence[float],
) -> list[CollectiveFit]:
    """Return one fit of the small sizes and one of the large ones, those of `SMALL_BYTES` being in both."""
    fits = []
    for small in (True, False):
        rows = [
            row
            for row in zip(sizes_bytes, times_s, busy, strict=True)
            if (row[0] <= SMALL_BYTES if small else row[0] >= SMALL_BYTES)
        ]
        if rows:
            sizes, times, shares = zip(*rows, strict=True)
            fits.append(fit(collective, backend, ranks, sizes, times, statistics.median(shares)))
    return fits


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
