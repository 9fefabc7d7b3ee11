"""Calibration: single operators and collectives, timed on this machine and kept under its fingerprint.

Never a layer, a step or a model: what a step costs is for the planner to predict from these.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch.distributed import Store

from ..cluster.graph import CollectiveFit, Host, Measurements, OperatorTime
from ..cluster.local import fingerprint, threads_per_rank
from ..errors import InputError
from ..files import read_struct, write_struct
from ..workload.graph import Operator
from .collectives import fit, time_all_reduce
from .operators import time_operators
from .pool import RankPool
from .process import prepare_process

OPERATOR_BUDGET_S = 4.0  # for each rank count
PEAK = Operator(kind="linear", shape=(1024, 1024, 1024), forward_flops=2 * 1024**3)  # a product that fills the caches
COPY_BYTES = 64 * 2**20


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a planner wants to know about running with `ranks` ranks on this host."""

    ranks: int
    backend: str
    operators: tuple[Operator, ...]
    collective_bytes: tuple[int, ...] = ()  # sizes of all-reduce


def cache_folder() -> Path:
    """Return the folder of everything that can be made again: measurements and tokens."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "meshwright"


def calibrate(
    host: Host, requests: Iterable[Request], *, again: bool = False, say: Callable[[str], None] = lambda _: None
) -> Measurements:
    """Return what is known of this machine after measuring what `requests` lack (everything, if `again`)."""
    name = fingerprint(host)
    path = cache_folder() / "calibration" / f"{name}.json"
    known = Measurements(fingerprint=name) if again else _load(path, name)
    for request in requests:
        missing = _missing(known, request)
        if missing is None:
            continue
        say(f"measuring {len(missing.operators)} operators and {len(missing.collective_bytes)} all-reduce sizes")
        start = time.monotonic()
        known = _merge(known, _measure(missing))
        say(f"measured with {request.ranks} ranks in {time.monotonic() - start:.1f} s")
        _store(path, known)
    return known


def _missing(known: Measurements, request: Request) -> Request | None:
    """Return the part of the request that is not known yet."""
    have = {time.operator for time in known.operators if time.ranks == request.ranks}
    operators = tuple(op for op in (PEAK, *request.operators) if op.key not in have)
    unique = tuple({op.key: op for op in operators}.values())
    sizes = request.collective_bytes
    if any(
        f.ranks == request.ranks
        and f.backend == request.backend
        and f.min_bytes <= min(sizes)
        and max(sizes) <= f.max_bytes
        for f in known.collectives
        if sizes
    ):
        sizes = ()
    if not unique and not sizes:
        return None
    return Request(ranks=request.ranks, backend=request.backend, operators=unique, collective_bytes=sizes)


def _measure(request: Request) -> Measurements:
    """Run the request on as many live ranks, all busy at once; the figure of a rank count is the mean over ranks."""
    threads = threads_per_rank(request.ranks)
    with RankPool(request.ranks) as pool:
        answers = pool.run(measure_on_rank, request, threads, timeout_s=300.0)
    operators = tuple(
        OperatorTime(
            operator=times[0].operator,
            ranks=request.ranks,
            threads=threads,
            forward_s=statistics.mean(time.forward_s for time in times),
            backward_s=statistics.mean(time.backward_s for time in times),
        )
        for times in zip(*(answer[0] for answer in answers), strict=True)
    )
    collectives: tuple[CollectiveFit, ...] = ()
    if request.collective_bytes and request.ranks > 1:
        times_s = [statistics.mean(times) for times in zip(*(answer[1] for answer in answers), strict=True)]
        busy_share = statistics.mean(answer[2] for answer in answers)
        collectives = (
            fit("all_reduce", request.backend, request.ranks, request.collective_bytes, times_s, busy_share),
        )
    return Measurements(
        fingerprint="",
        operators=operators,
        collectives=collectives,
        memory_bandwidth_bytes_per_s=sum(answer[3] for answer in answers),
    )


def measure_on_rank(
    rank: int, world_size: int, store: Store, request: Request, threads: int
) -> tuple[list[OperatorTime], list[float], float, float]:
    """Measure a request on one rank; return operator times, all-reduce times, their busy share, copy bandwidth."""
    prepare_process(threads)
    device = torch.device("cuda", rank) if request.backend == "nccl" else torch.device("cpu")
    dist.init_process_group(request.backend, rank=rank, world_size=world_size, store=store)
    operators = time_operators(
        request.operators, ranks=world_size, threads=threads, budget_s=OPERATOR_BUDGET_S, device=device
    )
    times_s, shares = [], []
    if world_size > 1:
        for size_bytes in request.collective_bytes:
            time_s, share = time_all_reduce(size_bytes, device)
            times_s.append(time_s)
            shares.append(share)
    return operators, times_s, statistics.median(shares) if shares else 0.0, _copy_bandwidth(device)


def _copy_bandwidth(device: torch.device) -> float:
    """Return the bytes per second that this rank reads and writes while all ranks copy."""
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    samples = []
    for _ in range(5):
        dist.barrier()
        start = time.perf_counter()
        target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        samples.append(time.perf_counter() - start)
    return 2 * COPY_BYTES / statistics.median(samples)


def _merge(known: Measurements, new: Measurements) -> Measurements:
    def key(item: OperatorTime | CollectiveFit) -> tuple[object, ...]:
        if isinstance(item, OperatorTime):
            return (item.operator, item.ranks)
        return (item.collective, item.backend, item.ranks)

    def joined(old: Sequence[msgspec.Struct], fresh: Sequence[msgspec.Struct]) -> tuple[msgspec.Struct, ...]:
        return tuple({key(item): item for item in (*old, *fresh)}.values())  # type: ignore[arg-type]

    return msgspec.structs.replace(
        known,
        operators=joined(known.operators, new.operators),
        collectives=joined(known.collectives, new.collectives),
        memory_bandwidth_bytes_per_s=new.memory_bandwidth_bytes_per_s,
    )


def _load(path: Path, name: str) -> Measurements:
    if not path.exists():
        return Measurements(fingerprint=name)
    try:
        return read_struct(path, Measurements)
    except InputError as error:
        raise InputError(f"{error}; --recalibrate measures anew") from None


def _store(path: Path, known: Measurements) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_struct(path, known)
    except OSError as error:
        raise InputError(f"{path}: cannot keep the measurements: {error.strerror or error}") from None
