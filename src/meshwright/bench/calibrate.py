"""Calibration: single operators and collectives, timed on this machine and kept under its fingerprint.

Never a layer, a step or a model: what a step costs is for the planner to predict from these.
"""

import re
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import torch
import torch.distributed as dist
import xxhash
from torch.distributed import Store

from ..cluster.discovery.local import fingerprint, threads_per_rank
from ..cluster.graph import CollectiveFit, Conditions, Host, Measurements, OperatorTime, Straggling, Timed, blocking
from ..cluster.graph import Pace as MachinePace
from ..device import device as device_at
from ..device import is_accelerator, of_rank, product_side, set_current, uses_accelerators
from ..device import name as device_name
from ..errors import InputError
from ..files import read_struct, write_struct
from ..machine_load import Load, LoadCounters, busy_words, crowd_words, others_share
from ..native import kept_folder
from ..temporary import process_folder
from ..units import counted
from ..workload.float8 import lacking
from ..workload.graph import Operator
from .collectives import (
    CROSSING,
    SMALL_BYTES,
    Cost,
    OverlappedCost,
    blocking_fits,
    fit_names,
    overlapped_fits,
    time_blocking,
    time_overlapped,
)
from .cpu_clock import CpuClock
from .machine import settle
from .operators import AUTOCAST, time_operators
from .pace import drifted, pace
from .ranks.pool import RankPool, RanksSilentError
from .ranks.process import prepare_process
from .ranks.progress import Progress, ProgressTeller
from .sweep_on_rank import copy_on_rank

OPERATOR_BUDGET_S = 2.0  # for each rank count
PACE_ROUNDS, PACE_PRODUCTS = 31, 8
STALLED_S = 300.0  # after which ranks that measure nothing more are given up
PRICE_NOISE = 0.05  # of what ranks with processors of their own are priced at, against the time that they take
CROWD_S = 0.3  # in which all ranks compute, to know how long processor time lasts


T = TypeVar("T")


def peak_product(autocast: str = "", backend: str = "") -> Operator:
    """Return a product that fills the caches of a processor, or all of an accelerator, in one precision."""
    side = product_side(device_at()) if uses_accelerators(backend) else 1024
    return Operator(kind="linear", shape=(side, side, side), forward_flops=2 * side**3, autocast=autocast)


def products_in_float8(request: "Request") -> tuple[tuple[Operator, ...], str]:
    """Return the large product in fp8, timed on any accelerator that multiplies fp8, and "" or why there is none."""
    if not uses_accelerators(request.backend):
        return (), "a processor multiplies no fp8"
    reason = lacking("fp8", device_at())
    return ((), reason) if reason else ((peak_product("fp8", request.backend),), "")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A planner's request about running with `ranks` ranks on this host."""

    ranks: int
    backend: str
    operators: tuple[Operator, ...]
    autocast: str = ""  # the precision of the run, in which a large product is timed too
    collective_bytes: tuple[int, ...] = ()  # the payloads at which each collective below is timed
    overlapped: tuple[Timed, ...] = (Timed("all_reduce"),)  # collectives that run beside computation
    blocking: tuple[Timed, ...] = ()  # collectives that a rank waits for at once
    host_bytes: tuple[int, ...] = ()  # sizes of copies between a device and its host, all ranks at once


def calibrate(
    host: Host,
    requests: Iterable[Request],
    *,
    again: bool = False,
    sure: Collection[int] = (),
    say: Callable[[str], None] = lambda _: None,
) -> Measurements:
    """Return what is known of this machine after measuring what `requests` lack (everything, if `again`).

    Known measurements are first compared with the pace of the machine now, except for the rank counts in `sure`, which
    have just been compared.
    """
    requests = list(requests)
    name = fingerprint(host) + _of_accelerators(requests)
    path = kept_folder("calibration") / f"{name}.json"
    known = Measurements(fingerprint=name) if again else _load(path, name, say)
    known = _still_right(known, [request for request in requests if request.ranks not in sure], say)
    for request in requests:
        missing = _missing(known, request)
        if missing is None:
            continue
        say(f"measuring {_in_words(missing)} with {counted(missing.ranks, 'rank')}; kept for later runs")
        start = time.monotonic()
        new, busy = _measure(missing, say)
        known = _merge(known, new)
        say(f"measured with {counted(request.ranks, 'rank')} in {time.monotonic() - start:.1f} s")
        if uses_accelerators(request.backend) and (reason := new.conditions[0].no_fp8):
            say(f"no fp8 is timed: {reason}")
        if busy:
            say(f"warning: meanwhile {busy}; what is predicted is for a machine as busy as that")
        _store(path, known)
    return known


def _still_right(known: Measurements, requests: Sequence[Request], say: Callable[[str], None]) -> Measurements:
    """Return the known measurements without those of rank counts measured when this machine had another pace."""
    now: MachinePace | None = None
    for ranks in sorted({request.ranks for request in requests if not uses_accelerators(request.backend)}):
        if not any(time.ranks == ranks for time in known.operators):
            continue
        then = next((one for one in known.conditions if one.ranks == ranks), None)
        if then is None or then.pace is None:
            say(f"warning: what was measured with {counted(ranks, 'rank')} does not say when; it is measured anew")
            known = _without(known, ranks)
            continue
        now = now or pace()
        if other := drifted(then.pace, now):
            what, ratio = other
            took = f"{what} takes {ratio:.2f} times as long now as when this machine was calibrated"
            say(f"warning: {took} ({then}); it is measured anew")
            known = _without(known, ranks)
    return known


def _without(known: Measurements, ranks: int) -> Measurements:
    return msgspec.structs.replace(
        known,
        operators=tuple(one for one in known.operators if one.ranks != ranks),
        collectives=tuple(one for one in known.collectives if one.ranks != ranks),
        straggling=tuple(one for one in known.straggling if one.ranks != ranks),
        conditions=tuple(one for one in known.conditions if one.ranks != ranks),
    )


def _of_accelerators(requests: Sequence[Request]) -> str:
    """Return what tells the measurements on a machine's accelerators from those on its processors."""
    if not any(uses_accelerators(request.backend) for request in requests):
        return ""
    return "-" + re.sub(r"[^a-z0-9]+", "-", device_name().lower()).strip("-")


def _missing(known: Measurements, request: Request) -> Request | None:
    """Return the part of the request that is not known yet."""
    have = {time.operator for time in known.operators if time.ranks == request.ranks}
    peak = peak_product(request.autocast, request.backend)
    narrow, _ = products_in_float8(request)
    operators = tuple(op for op in (peak, *narrow, *request.operators) if op.key not in have)
    unique = tuple({op.key: op for op in operators}.values())
    fits = [f for f in known.collectives if (f.ranks, f.backend) == (request.ranks, request.backend)]
    waited = [Timed(name, each.dtype) for each in request.blocking for name in fit_names(each.collective)]
    covered = all(
        any((f.collective, f.dtype) == each and f.min_bytes <= size <= f.max_bytes for f in fits)
        for each in (*request.overlapped, *waited)
        for size in request.collective_bytes
    )
    crossed = all(
        any(f.collective == blocking(name) and f.min_bytes <= size <= f.max_bytes for f in fits)
        for name in CROSSING
        for size in request.host_bytes
    )
    if not unique and covered and crossed:
        return None
    found = msgspec.structs.replace(request, operators=unique, host_bytes=() if crossed else request.host_bytes)
    return msgspec.structs.replace(found, collective_bytes=(), overlapped=(), blocking=()) if covered else found


def _measure(request: Request, say: Callable[[str], None]) -> tuple[Measurements, str]:
    """Run the request on as many live ranks, all busy at once; the figure of a rank count is the mean over ranks.

    Also return, in words, which other programs kept the machine busy meanwhile, "" if none did. A busy machine may take
    any time: only ranks that have finished no timing for `STALLED_S` are given up.
    """
    threads = threads_per_rank(request.ranks)
    with RankPool(request.ranks) as pool, tempfile.TemporaryDirectory(dir=process_folder()) as folder:
        progress = Progress(Path(folder) / "done", _timings(request))
        gets_on = ProgressTeller(progress, say)
        try:
            answers = pool.run(
                measure_on_rank, request, threads, OPERATOR_BUDGET_S, progress, timeout_s=STALLED_S, gets_on=gets_on
            )
        except RanksSilentError as error:
            raise RanksSilentError(f"calibration: {error}{crowd_words()}") from None
    operators = tuple(
        OperatorTime(
            operator=times[0].operator,
            ranks=request.ranks,
            threads=threads,
            forward_s=statistics.mean(time.forward_s for time in times),
            backward_s=statistics.mean(time.backward_s for time in times),
            slowdown=statistics.mean(time.slowdown for time in times),
        )
        for times in zip(*(answer.operators for answer in answers), strict=True)
    )
    loads = [answer.load for answer in answers if answer.load is not None]
    conditions = Conditions(
        ranks=request.ranks,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        others_share=others_share(loads),
        pace=None if uses_accelerators(request.backend) else pace(),
        no_fp8=products_in_float8(request)[1],
    )
    measured = Measurements(
        fingerprint="",
        operators=operators,
        collectives=tuple(_fits(request, answers)),
        straggling=(Straggling(ranks=request.ranks, share=fitted_straggling([answer.paces for answer in answers])),),
        memory_bandwidth_bytes_per_s=sum(answer.memory_bandwidth_bytes_per_s for answer in answers),
        conditions=(conditions,),
    )
    return measured, busy_words(loads)


def _in_words(request: Request) -> str:
    """Return what a request measures, in words."""
    parts = [counted(len(request.operators), "operator")] if request.operators else []
    if request.collective_bytes:
        collectives = counted(len(request.overlapped + request.blocking), "collective")
        parts.append(f"{collectives} at {counted(len(request.collective_bytes), 'size')}")
    if request.host_bytes:
        parts.append(f"copies to and from the host at {counted(len(request.host_bytes), 'size')}")
    return " and ".join(parts)


def _timings(request: Request) -> int:
    """Return how many timings a rank takes for a request."""
    sizes = len(request.collective_bytes) if request.ranks > 1 else 0
    collectives = sizes * len(request.overlapped + request.blocking)
    return len(request.operators) + collectives + len(CROSSING) * len(request.host_bytes)


def _fits(request: Request, answers: Sequence["Answer"]) -> list[CollectiveFit]:
    """Return the fits of the collectives that all ranks have measured."""
    found: list[CollectiveFit] = []
    for name in CROSSING if request.host_bytes else ():
        crossed = _means(answer.host[name] for answer in answers)
        found += blocking_fits(name, request.backend, request.ranks, request.host_bytes, crossed)
    if not request.collective_bytes or request.ranks == 1:
        return found
    for timed in request.overlapped:
        costs = _means(answer.overlapped[timed] for answer in answers)
        fits = overlapped_fits(timed.collective, request.backend, request.ranks, request.collective_bytes, costs)
        found += [msgspec.structs.replace(fit, dtype=timed.dtype) for fit in fits]
    for timed in request.blocking:
        waited = _means(answer.blocking[timed] for answer in answers)
        fits = blocking_fits(timed.collective, request.backend, request.ranks, request.collective_bytes, waited)
        found += [msgspec.structs.replace(fit, dtype=timed.dtype) for fit in fits]
    return found


def _means(of_ranks: Iterable[Sequence[T]]) -> list[T]:
    """Return the mean over ranks of what each of them measured, size by size."""
    return [type(each[0])(*map(statistics.mean, zip(*each, strict=True))) for each in zip(*of_ranks, strict=True)]


class WorkPace(NamedTuple):
    """The time of some work, and its price: its processor time at the pace of ranks that all compute."""

    taken_s: float
    priced_s: float


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one rank."""

    operators: list[OperatorTime]
    overlapped: dict[Timed, list[OverlappedCost]]  # by collective and size of the request
    blocking: dict[Timed, list[Cost]]  # the same
    host: dict[str, list[Cost]]  # the same of copies between the device and its host
    paces: list[WorkPace]  # the same work, again and again, begun at once on all ranks
    memory_bandwidth_bytes_per_s: float
    load: Load | None  # of this rank's machine meanwhile


def measure_on_rank(
    rank: int,
    world_size: int,
    store: Store,
    request: Request,
    threads: int,
    budget_s: float = OPERATOR_BUDGET_S,
    progress: Progress | None = None,
) -> Answer:
    """Measure a request on one rank, in lockstep with the others, the operators in `budget_s` or little more.

    The first rank counts in `progress`.
    """
    prepare_process(threads)
    before = LoadCounters()
    device = of_rank(rank, request.backend)
    set_current(device)
    dist.init_process_group(
        request.backend,
        rank=rank,
        world_size=world_size,
        store=store,
        device_id=device if is_accelerator(device) else None,
    )
    settle(device, AUTOCAST[request.autocast] or torch.float32)
    count = progress.count if progress is not None and rank == 0 else lambda: None
    operators = time_operators(
        request.operators, ranks=world_size, threads=threads, budget_s=budget_s, device=device, count=count
    )
    sizes = request.collective_bytes if world_size > 1 else ()

    def at_all(sizes: Sequence[int], time_one: Callable[..., T], timed: Timed) -> list[T]:
        found = []
        for size in sizes:
            found.append(time_one(timed.collective, size, device, dtype=timed.dtype))
            count()
        return found

    return Answer(
        operators=operators,
        overlapped={each: at_all(sizes, time_overlapped, each) for each in request.overlapped},
        blocking={each: at_all(sizes, time_blocking, each) for each in request.blocking},
        host={
            name: at_all(request.host_bytes, time_blocking, Timed(name))
            for name in (CROSSING if request.host_bytes else ())
        },
        paces=time_paces(device) if world_size > 1 else [],
        memory_bandwidth_bytes_per_s=2 * copy_on_rank(device),  # read and written
        load=before.until_now(),
    )


def time_paces(device: torch.device) -> list[WorkPace]:
    """Return the pace at a fixed amount of work that starts on all ranks at once, again and again."""
    clock, factor = CpuClock(device), torch.ones(512, 512, device=device)

    def work() -> WorkPace:
        start, busy_start = time.perf_counter(), clock.now_s()
        for _ in range(PACE_PRODUCTS):
            factor @ factor
        busy_s = clock.now_s() - busy_start
        return WorkPace(time.perf_counter() - start, busy_s)

    work()
    dist.barrier()
    end = time.monotonic() + CROWD_S
    with clock.counted():
        while time.monotonic() < end:
            work()
    found = []
    for _ in range(PACE_ROUNDS):
        dist.barrier()
        found.append(work())
    return [pace._replace(priced_s=pace.priced_s * clock.slowdown) for pace in found]


def fitted_straggling(paces: Sequence[Sequence[WorkPace]]) -> float:
    """Return how much longer the slowest rank typically takes for the same work than it is priced at for all of them.

    Ranks with processors of their own are priced at the mean of their times: what the clock says of processor time is
    some percent off, as much as they differ. Where ranks share processors, one that ends early frees its core for the
    others: the last one ends when all would at an even pace.
    """
    late = []
    for each in zip(*paces, strict=True):
        taken_s, priced_s = (statistics.mean(times) for times in zip(*each, strict=True))
        shared = priced_s > (1 + PRICE_NOISE) * taken_s
        late.append(max(pace.taken_s for pace in each) / (priced_s if shared else taken_s) - 1)
    return max(0.0, statistics.median(late)) if late else 0.0


def _merge(known: Measurements, new: Measurements) -> Measurements:
    def key(item: OperatorTime | CollectiveFit | Straggling | Conditions) -> tuple[object, ...]:
        if isinstance(item, OperatorTime):
            return (item.operator, item.ranks)
        if isinstance(item, Straggling | Conditions):
            return (item.ranks,)
        return (item.collective, item.dtype, item.backend, item.ranks, item.max_bytes <= SMALL_BYTES)

    def joined(old: Sequence[msgspec.Struct], fresh: Sequence[msgspec.Struct]) -> tuple[msgspec.Struct, ...]:
        return tuple({key(item): item for item in (*old, *fresh)}.values())  # type: ignore[arg-type]

    return msgspec.structs.replace(
        known,
        operators=joined(known.operators, new.operators),
        collectives=joined(known.collectives, new.collectives),
        straggling=joined(known.straggling, new.straggling),
        memory_bandwidth_bytes_per_s=new.memory_bandwidth_bytes_per_s,
        conditions=joined(new.conditions, known.conditions),
    )


class CachedMeasurements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measurements in the cache, with their checksum: damaged ones are never used for a price."""

    xxh3_128: str
    measurements: Measurements


def _load(path: Path, name: str, say: Callable[[str], None]) -> Measurements:
    """Return what is kept of a machine; nothing, with a warning, where that is damaged or another machine's."""
    if not path.exists():
        return Measurements(fingerprint=name)
    try:
        kept = read_struct(path, CachedMeasurements)
        if kept.xxh3_128 != _checksum(kept.measurements):
            raise InputError(f"{path}: differs from its checksum")
        if kept.measurements.fingerprint != name:
            raise InputError(f"{path}: is of the machine {kept.measurements.fingerprint}")
    except InputError as error:
        say(f"warning: {error}; this machine is measured anew")
        return Measurements(fingerprint=name)
    return kept.measurements


def _checksum(measurements: Measurements) -> str:
    return xxhash.xxh3_128_hexdigest(msgspec.json.encode(measurements))


def _store(path: Path, known: Measurements) -> None:
    try:
        write_struct(path, CachedMeasurements(_checksum(known), known))
    except OSError as error:
        raise InputError(f"{path}: cannot keep the measurements: {error.strerror or error}") from None
