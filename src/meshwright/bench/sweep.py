"""Times of a collective over sizes, with the result checked element by element: runs on every rank at once."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import torch
import torch.distributed as dist

from ..backend.group.torch_compat import all_gather_single, reduce_scatter_single
from ..device import synchronize
from ..errors import InputError
from . import table
from .ranks.setup import device_of
from .table import Row

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "reduce", "gather", "scatter"),
    "send_recv",  # each to the next one in a ring
)
DTYPES = {name: getattr(torch, torch_name) for name, torch_name in table.DTYPES.items()}
WARM_UP = 2
ROUNDS = 4
MIN_ITERATIONS, MAX_ITERATIONS = 3, 100  # a round
KEEP_BYTES = 4 * 2**20  # buffers up to this size stay for all rounds
PATTERN = 97  # elements after which inputs repeat at the latest: small whole numbers, exact in every type


class SweepRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The order to measure: each size for `budget_s` seconds or so."""

    collective: str
    backend: str
    sizes_bytes: tuple[int, ...]
    dtype: str = "float"
    budget_s: float = 0.25
    settle_s: float = 1.0  # of calls before the first measured one, while the scheduler spreads ranks over cores


class Sample(msgspec.Struct, frozen=True):
    """The measurement of one rank at one size."""

    bytes: int
    times_s: list[float]
    wrong: int


@dataclass(frozen=True, slots=True)
class SweepCall:
    """One collective at one size: fill the inputs, run it, compare the outputs with what they must be."""

    bytes: int
    fill: Callable[[], object]
    run: Callable[[], object]
    wrong: Callable[[], int]


def sizes_between(smallest: int, largest: int, factor: int = 2) -> tuple[int, ...]:
    """Return sizes from smallest to largest, each `factor` times the one before."""
    if not 4 <= smallest <= largest or factor < 2:
        raise InputError(f"sizes from {smallest} to {largest}: expected 4 <= min <= max and a factor of 2 or more")
    sizes = [smallest]
    while sizes[-1] * factor <= largest:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def sweep_on_rank(request: SweepRequest) -> list[Sample]:
    """Measure every size on this rank; all ranks call it with the same request. Blocks.

    Several rounds go over all sizes, so that a machine or network that is slow for a while is slow for every size.
    """
    device = device_of(request.backend)
    _settle(request, device)
    kept: dict[int, SweepCall] = {}
    iterations: dict[int, int] = {}
    times: dict[int, list[float]] = {size: [] for size in request.sizes_bytes}
    wrong = dict.fromkeys(request.sizes_bytes, 0)
    actual: dict[int, int] = {}
    for _ in range(ROUNDS):
        for size in request.sizes_bytes:
            call = kept.get(size) or make_call(request.collective, size, DTYPES[request.dtype], device)
            if size <= KEEP_BYTES:
                kept[size] = call
            call.fill()
            for _ in range(WARM_UP):
                once_s = _timed(call, device)
            if size not in iterations:
                iterations[size] = _agreed_iterations(once_s, request.budget_s / ROUNDS, device)
            times[size] += [_timed(call, device) for _ in range(iterations[size])]
            wrong[size] += _checked(call)
            actual[size] = call.bytes
    return [Sample(actual[size], times[size], wrong[size]) for size in request.sizes_bytes]


def rows_from(request: SweepRequest, by_rank: Sequence[Sequence[Sample]]) -> list[Row]:
    """Return the table: each call's time is the mean over ranks, as nccl-tests take it; of the calls the median."""
    rows = []
    for samples in zip(*by_rank, strict=True):
        calls = sorted(statistics.mean(times) for times in zip(*(s.times_s for s in samples), strict=True))
        rows.append(
            Row(
                collective=request.collective,
                backend=request.backend,
                ranks=len(by_rank),
                bytes=samples[0].bytes,
                time_s=statistics.median(calls),
                low_s=calls[len(calls) // 10],
                high_s=calls[-1 - len(calls) // 10],
                dtype=request.dtype,
                element_bytes=DTYPES[request.dtype].itemsize,
                redop="sum" if request.collective in {"all_reduce", "reduce_scatter", "reduce"} else "none",
                wrong=sum(s.wrong for s in samples),
            )
        )
    return rows


def _settle(request: SweepRequest, device: torch.device) -> None:
    """Call the collective for a while, until ranks and caches are where they stay."""
    call = make_call(request.collective, request.sizes_bytes[0], DTYPES[request.dtype], device)
    call.fill()
    going = torch.ones(1, device=device)
    end = time.monotonic() + request.settle_s
    while going.item():
        for _ in range(20):
            _timed(call, device)
        going.fill_(float(time.monotonic() < end))
        dist.broadcast(going, src=0)


def _timed(call: SweepCall, device: torch.device) -> float:
    """Return the seconds of one call; all ranks start together. The inputs stay as the last call left them.

    As in nccl-tests: filling them again would put other data into the caches. A sum grows until it is infinite, at
    the same speed.
    """
    dist.barrier()
    start = time.perf_counter()
    call.run()
    synchronize(device)
    return time.perf_counter() - start


def _checked(call: SweepCall) -> int:
    """Return how many elements of a call with fresh inputs are wrong."""
    call.fill()
    dist.barrier()
    call.run()
    return call.wrong()


def _agreed_iterations(time_s: float, budget_s: float, device: torch.device) -> int:
    """Return how many calls fill the budget; rank 0 decides for all."""
    wanted = torch.tensor([budget_s / max(time_s, 1e-7)], dtype=torch.float32, device=device)
    dist.broadcast(wanted, src=0)
    return max(MIN_ITERATIONS, min(MAX_ITERATIONS, int(wanted.item())))


def make_call(collective: str, size_bytes: int, dtype: torch.dtype, device: torch.device) -> SweepCall:
    """Return the collective at a size as nccl-tests count it: the larger of input and output of one rank."""
    if collective not in COLLECTIVES:
        raise InputError(f"{collective}: expected one of {', '.join(COLLECTIVES)}")
    rank, world = dist.get_rank(), dist.get_world_size()
    split = collective in {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
    part = max(1, size_bytes // dtype.itemsize // (world if split else 1))
    whole = part * world if split else part
    pattern = (torch.arange(whole, device=device) % PATTERN).to(dtype)
    small = torch.arange(whole, device=device) % _summand_period(dtype, world)
    summand, summed = (small + rank % 2).to(dtype), (small * world + world // 2).to(dtype)
    mine, offset = pattern[:part] + rank, slice(rank * part, (rank + 1) * part)
    parts = torch.cat([pattern[:part] + r for r in range(world)]) if split else pattern
    build = {
        "all_reduce": lambda: _in_place(whole, summand, summed, lambda x: dist.all_reduce(x)),
        "reduce": lambda: _in_place(whole, summand, summed if rank == 0 else None, lambda x: dist.reduce(x, dst=0)),
        "broadcast": lambda: _in_place(
            whole, pattern + 1 if rank == 0 else pattern, pattern + 1, lambda x: dist.broadcast(x, src=0)
        ),
        "all_gather": lambda: _out_of_place(whole, mine, parts, lambda o, i: all_gather_single(o, i)),
        "reduce_scatter": lambda: _out_of_place(
            whole, summand, summed[offset], lambda o, i: reduce_scatter_single(o, i)
        ),
        "all_to_all": lambda: _out_of_place(
            whole, _to_each(pattern, part, world, rank), _from_each(pattern, part, world, rank), _all_to_all
        ),
        "gather": lambda: _out_of_place(
            whole, mine, parts if rank == 0 else mine[:0], lambda o, i: _gather(o, i, part, rank)
        ),
        "scatter": lambda: _out_of_place(whole, parts, pattern[:part] + rank, lambda o, i: _scatter(o, i, part, rank)),
        "send_recv": lambda: _out_of_place(
            whole, pattern + rank, pattern + (rank - 1) % world, lambda o, i: _send_recv(o, i)
        ),
    }
    return build[collective]()


def _summand_period(dtype: torch.dtype, world: int) -> int:
    """Return after how many elements the inputs of a sum repeat: their sums over any ranks are exact in the type.

    Rank r adds i % period + r % 2 at element i. A type of few bits holds whole numbers up to 2 / eps: 256 in bfloat16.
    """
    if not dtype.is_floating_point:
        return PATTERN
    largest = int(2 / torch.finfo(dtype).eps)
    return max(1, min(PATTERN, (largest - world // 2) // world + 1))


def exchange_messages(inbox: torch.Tensor, before: int, outgoing: torch.Tensor, after: int) -> None:
    """Receive from one rank while sending to one; `before` and `after` are their numbers."""
    # the receive first: Gloo announces it behind the data that it sends, and the peer's data would wait for these
    work = [dist.P2POp(dist.irecv, inbox, before), dist.P2POp(dist.isend, outgoing, after)]
    for item in dist.batch_isend_irecv(work):
        item.wait()


def _send_recv(output: torch.Tensor, source: torch.Tensor) -> None:
    """Send to the next rank and receive from the one before."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == 1:
        output.copy_(source)
    else:
        exchange_messages(output, (rank - 1) % world, source, (rank + 1) % world)


def _in_place(
    whole: int, source: torch.Tensor, expected: torch.Tensor | None, run: Callable[[torch.Tensor], object]
) -> SweepCall:
    buffer = torch.empty_like(source)
    return SweepCall(
        bytes=whole * source.element_size(),
        fill=lambda: buffer.copy_(source),
        run=lambda: run(buffer),
        wrong=lambda: 0 if expected is None else int((buffer != expected).sum().item()),
    )


def _out_of_place(
    whole: int,
    source: torch.Tensor,
    expected: torch.Tensor,
    run: Callable[[torch.Tensor, torch.Tensor], object],
) -> SweepCall:
    output = torch.empty_like(expected)
    return SweepCall(
        bytes=whole * source.element_size(),
        fill=lambda: output.zero_(),
        run=lambda: run(output, source),
        wrong=lambda: int((output != expected).sum().item()),
    )


def _all_to_all(output: torch.Tensor, source: torch.Tensor) -> None:
    dist.all_to_all_single(output, source)


def _to_each(pattern: torch.Tensor, part: int, world: int, rank: int) -> torch.Tensor:
    """Return what this rank sends: part r carries the sender's and the receiver's number."""
    return torch.cat([pattern[:part] + (rank + 2 * receiver) for receiver in range(world)])


def _from_each(pattern: torch.Tensor, part: int, world: int, rank: int) -> torch.Tensor:
    return torch.cat([pattern[:part] + (sender + 2 * rank) for sender in range(world)])


def _gather(output: torch.Tensor, source: torch.Tensor, part: int, rank: int) -> None:
    dist.gather(source, list(torch.split(output, part)) if rank == 0 else None, dst=0)


def _scatter(output: torch.Tensor, source: torch.Tensor, part: int, rank: int) -> None:
    dist.scatter(output, list(torch.split(source, part)) if rank == 0 else None, src=0)
