"""Time of a collective between the ranks of the default process group, and its alpha-beta fit."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
import torch.distributed as dist

from ..backend.group.torch_compat import reduce_scatter_single
from ..cluster.graph import CollectiveFit, blocking, on_link
from ..device import host_copy, is_accelerator, synchronize, synchronize_stream
from ..workload.program import FLOAT
from .cache_pollution import pollute_caches
from .sweep import DTYPES, exchange_messages, make_call

CROSSING = ("to_host", "to_device")  # copies between a device and the pinned memory of its host, all ranks at once
ROUNDS = 9
BLOCKING_ROUNDS = 5
WARM_UP = 2
CALLS_A_TURN = 6  # calls between two looks at the clock, where it is told what they add to computation
COMPUTE_S = 0.01  # of computation before each call, as between the collectives of a training step
ACTION_S = 0.02  # the same of a pipeline between two messages
LEAST_S = 1e-6  # work and link times below this count as none
ENDED = 0.05  # share of a collective's time that it takes to see that it is done
CLOSE = 0.1  # a line that is off by more at a measured size gives way to the sizes themselves
SMALL_BYTES = 2**16  # below, the start of a message costs more than its bytes: fitted apart


class OverlappedCost(NamedTuple):
    """The cost of one collective that runs beside computation."""

    time_s: float  # until it is done, with nothing beside it
    busy_share: float  # the share of that time in which this rank's cores work on it
    delay_s: float  # how much later it is done if its ranks compute meanwhile


def time_overlapped(
    collective: str,
    size_bytes: int,
    device: torch.device,
    *,
    dtype: str = FLOAT,
    rounds: int = ROUNDS,
    group: dist.ProcessGroup | None = None,
) -> OverlappedCost:
    """Return the median cost of a collective of gradients to this rank.

    It is an all-reduce or a reduce-scatter with `size_bytes` of input, called as in training: asynchronously, after
    some computation. All ranks of the default group call it; with `group`, each in its own, so that all
    groups of an axis work at once.
    """
    ranks, kind = dist.get_world_size(group), DTYPES[dtype]
    part = torch.ones(max(1, size_bytes // kind.itemsize // ranks), dtype=kind, device=device)
    whole = torch.ones(ranks * len(part), dtype=kind, device=device)

    def reduce() -> Any:
        future = dist.all_reduce(whole, group=group, async_op=True).get_future()
        return future.then(lambda done: done.value()[0])

    def scatter() -> Any:
        return reduce_scatter_single(part, whole, group=group, async_op=True)

    begin = {"all_reduce": reduce, "reduce_scatter": scatter}[collective]
    return overlapped_cost(begin, lambda: whole.fill_(1.0), device, rounds)


class Cost(NamedTuple):
    """The cost of one call for this rank, in seconds."""

    added_s: float  # what the call adds to the computation before and after it
    worked_s: float  # the part of that in which processors work, at their pace among these ranks; on a GPU all
    in_a_row_s: float  # without computation between calls
    in_a_row_worked_s: float
    computed_s: float  # of computation before each call

    @property
    def blocked_s(self) -> float:
        """Seconds that a rank waits if it has computed nothing before the call."""
        return max(self.added_s, self.in_a_row_s)

    @property
    def hides(self) -> float:
        """Share of the computation before it that hid the call, 1 at most.

        If other programs take the processors, a call may appear to save more than was computed before it.
        """
        return min(1.0, (self.blocked_s - self.added_s) / min(self.computed_s, self.blocked_s))

    @property
    def on_link_s(self) -> float:
        """Seconds in which messages in a row occupied their link; link and processors are taken to overlap fully."""
        return math.sqrt(max(LEAST_S**2, self.in_a_row_s**2 - self.in_a_row_worked_s**2))


def time_blocking(
    collective: str, size_bytes: int, device: torch.device, *, dtype: str = FLOAT, rounds: int = BLOCKING_ROUNDS
) -> Cost:
    """Return what a collective of a type costs this rank, which waits for it between computations.

    `size_bytes` are those of the larger of input and output. All ranks of the default group call it. Messages go round
    the ring of ranks. A copy to the host or from it crosses the link of each rank's device.
    """
    if collective == "send_recv":
        rank, ranks = dist.get_rank(), dist.get_world_size()
        return time_messages(size_bytes, (rank - 1) % ranks, (rank + 1) % ranks, device, rounds=rounds)
    if collective in CROSSING:
        inside = torch.ones(max(1, size_bytes // 4), device=device)
        outside = host_copy(inside)
        target, source = (outside, inside) if collective == "to_host" else (inside, outside)
        return time_added(lambda: target.copy_(source, non_blocking=True), lambda: inside.mul_(1.0), device, rounds)
    call = make_call(collective, size_bytes, DTYPES[dtype], device)
    return time_added(call.run, call.fill, device, rounds)


def time_messages(
    size_bytes: int, before: int | None, after: int | None, device: torch.device, *, rounds: int = BLOCKING_ROUNDS
) -> Cost:
    """Return what a message from rank `before` and one to `after` cost this rank; nothing where there is none.

    On a CPU the receive begins before some computation, as in a pipeline: what arrives meanwhile is handled by a core
    that computes; and between messages the code of operators runs and memory is passed through, as in its actions. A
    GPU's messages wait for no code of the host, and must begin together: one stream takes them in turn; what the
    smallest costs counts as work.
    """
    if is_accelerator(device):
        whole, start = (_time_exchange(size, before, after, device, rounds) for size in (size_bytes, 1))
        return whole._replace(worked_s=start.added_s, in_a_row_worked_s=start.in_a_row_s)
    inbox, outgoing = (torch.ones(max(1, size_bytes // 4), device=device) for _ in range(2))
    begun: list[dist.Work | None] = []

    def begin() -> None:
        if before is not None:
            begun.append(dist.irecv(inbox, before))

    def end() -> None:
        if after is not None:
            begun.append(dist.isend(outgoing, after))
        for work in filter(None, begun):
            work.wait()
        begun.clear()

    def fill() -> None:
        outgoing.fill_(1.0)

    return time_added(end, fill, device, rounds, begin=begin, pollute=pollute_caches, compute_s=ACTION_S)


def _time_exchange(size_bytes: int, before: int | None, after: int | None, device: torch.device, rounds: int) -> Cost:
    inbox, outgoing = (torch.ones(max(1, size_bytes // 4), device=device) for _ in range(2))

    def call() -> None:
        if before is not None and after is not None:
            exchange_messages(inbox, before, outgoing, after)

    return time_added(call, lambda: outgoing.fill_(1.0), device, rounds)


def overlapped_cost(
    begin: Callable[[], Any], fill: Callable[[], object], device: torch.device, rounds: int
) -> OverlappedCost:
    """Return the median cost of a collective, which `begin` begins; `wait` of what that returns waits for its end.

    Ranks that share a core each work for a part of the time in which the core does. `fill` writes the input before each
    call. Computation beside it lasts half as long as the collective alone.
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
        begin().wait()
        synchronize(device)
        times.append(time.perf_counter() - start)
        busy.append(time.process_time() - busy_start)
    time_s, sharing = statistics.median(times[WARM_UP:]), max(1.0, computing_s / computed_s)
    late_s = _late_s(begin, fill, factor, rounds, time_s)
    busy_share = min(1.0, statistics.median(busy[WARM_UP:]) / time_s * sharing)
    return OverlappedCost(time_s, busy_share, max(0.0, late_s - time_s))


def _late_s(
    begin: Callable[[], Any],
    fill: Callable[[], object],
    factor: torch.Tensor,
    rounds: int,
    time_s: float,
) -> float:
    """Return the median seconds of a collective beside computation of half its `time_s`; 0 where that ends last."""
    found, products = [], _products(factor, time_s / 2)
    for _ in range(rounds):
        fill()
        dist.barrier()
        start = time.perf_counter()
        work = begin()
        for _ in range(products):
            factor @ factor
        synchronize_stream(factor.device)
        computed = time.perf_counter()
        work.wait()
        synchronize(factor.device)
        end = time.perf_counter()
        found.append(end - start if end - computed > ENDED * time_s else 0.0)
    return statistics.median(found)


def time_added(
    call: Callable[[], object],
    fill: Callable[[], object],
    device: torch.device,
    rounds: int,
    *,
    begin: Callable[[], object] = lambda: None,
    pollute: Callable[[], object] = lambda: None,
    compute_s: float = COMPUTE_S,
) -> Cost:
    """Return the median cost of a collective between computations of this rank.

    Ranks that share cores enter at different times, so part of a collective's CPU work overlaps other ranks' compute.
    The result includes waiting for the slowest rank. `fill` writes the input before each call,
    `begin` begins what `call` ends after the computation, which lasts `compute_s` and ends with `pollute`.
    """
    factor = torch.ones(256, 256, device=device)
    products = _products(factor, compute_s)

    def timed_run(products: int, *, calls: bool) -> tuple[float, float]:
        """Return the seconds of a turn, by the clock and of this process's processors."""
        dist.barrier()
        start, busy_start = time.perf_counter(), time.process_time()
        for _ in range(CALLS_A_TURN):
            fill()
            if calls:
                begin()
            for _ in range(products):
                factor @ factor
            if products:
                pollute()
            if calls:
                call()
        synchronize(device)
        return (time.perf_counter() - start) / CALLS_A_TURN, (time.process_time() - busy_start) / CALLS_A_TURN

    timed_run(products, calls=True)
    with_calls, without = zip(
        *((timed_run(products, calls=True), timed_run(products, calls=False)) for _ in range(rounds)), strict=True
    )
    in_a_row_s, in_a_row_busy_s = _medians([timed_run(0, calls=True) for _ in range(rounds)])
    computed_s, computed_busy_s = _medians(without)
    added_s, added_busy_s = _medians([(a[0] - b[0], a[1] - b[1]) for a, b in zip(with_calls, without, strict=True)])
    if is_accelerator(device):
        return Cost(added_s, added_s, in_a_row_s, in_a_row_s, computed_s)
    sharing = max(1.0, computed_s / computed_busy_s)  # a second of work lasts so long
    return Cost(
        max(0.0, added_s),
        max(0.0, added_busy_s * sharing),
        in_a_row_s,
        min(in_a_row_s, in_a_row_busy_s * sharing),
        computed_s,
    )


def _medians(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    first, second = zip(*pairs, strict=True)
    return statistics.median(first), statistics.median(second)


def _products(factor: torch.Tensor, compute_s: float) -> int:
    """Return how many products all ranks compute in `compute_s` with all of them busy: the same number on each."""
    factor @ factor  # the first takes longest
    dist.barrier()
    count, end = 0, time.perf_counter() + compute_s
    while time.perf_counter() < end:
        factor @ factor
        count += 1
    total = torch.tensor([float(count)], device=factor.device)
    dist.all_reduce(total)
    return max(1, round(float(total) / dist.get_world_size()))


def fit_names(collective: str) -> tuple[str, ...]:
    """Return the names of the fits of a collective that ranks wait for: of messages, of their work and their link's."""
    return (blocking(collective), on_link(collective)) if collective == "send_recv" else (blocking(collective),)


def overlapped_fits(
    collective: str, backend: str, ranks: int, sizes_bytes: Sequence[int], costs: Sequence[OverlappedCost]
) -> list[CollectiveFit]:
    """Return the fits of a collective that goes on beside computation."""
    times_s, busy, delays_s = zip(*costs, strict=True)
    return fit_sizes(collective, backend, ranks, sizes_bytes, times_s, busy, delays_s=delays_s)


def blocking_fits(
    collective: str, backend: str, ranks: int, sizes_bytes: Sequence[int], costs: Sequence[Cost]
) -> list[CollectiveFit]:
    """Return the fits of the cost of a collective to ranks that wait for it, by the names of `fit_names`."""
    whole = [1.0] * len(costs)
    if collective != "send_recv":
        times_s, hides = [cost.blocked_s for cost in costs], [cost.hides for cost in costs]
        return fit_sizes(blocking(collective), backend, ranks, sizes_bytes, times_s, whole, hides=hides)
    found = []
    work_s, link_s = [max(LEAST_S, cost.worked_s) for cost in costs], [cost.on_link_s for cost in costs]
    for name, times_s in zip(fit_names(collective), (work_s, link_s), strict=True):
        points = tuple(zip(sizes_bytes, times_s, strict=True))
        fits = fit_sizes(name, backend, ranks, sizes_bytes, times_s, whole)
        found += [msgspec.structs.replace(each, points=points) for each in fits]
    return found


def fit_sizes(
    collective: str,
    backend: str,
    ranks: int,
    sizes_bytes: Sequence[int],
    times_s: Sequence[float],
    busy: Sequence[float],
    *,
    hides: Sequence[float] = (),
    delays_s: Sequence[float] = (),
) -> list[CollectiveFit]:
    """Return one fit of the small sizes and one of the large ones, those of `SMALL_BYTES` being in both."""
    fits, none = [], [0.0] * len(busy)
    for small in (True, False):
        rows = [
            row
            for row in zip(sizes_bytes, times_s, busy, hides or none, delays_s or none, strict=True)
            if (row[0] <= SMALL_BYTES if small else row[0] >= SMALL_BYTES)
        ]
        if rows:
            sizes, times, shares, hidden, late_s = zip(*rows, strict=True)
            found = fit_collective(collective, backend, ranks, sizes, times, statistics.median(shares))
            points = tuple(zip(sizes, times, strict=True)) if found.residual > CLOSE else ()
            more = {"hides": statistics.median(hidden), "delay_s": statistics.median(late_s), "points": points}
            fits.append(msgspec.structs.replace(found, **more))
    return fits


def fit_collective(
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
