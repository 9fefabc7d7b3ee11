"""Whole measurements: start the ranks, measure on all of them, and put the results together with a verdict."""

import statistics
from collections.abc import Sequence

import msgspec
import torch

from ..cluster.discovery.binding import Binding, binding, binding_of_gpu
from ..cluster.discovery.local import threads_per_rank
from ..cluster.graph import Cluster
from ..device import DTYPE_NAMES, bus_id, count, device, has_bf16, is_accelerator, uses_accelerators
from ..errors import InputError
from ..hardware import Accelerator, Catalogue
from ..machine_load import LoadCounters, words_since
from ..units import format_bytes, format_rate, format_time
from .judgement.spec import gpu_spec, memory_spec, network_spec
from .judgement.verdict import Spec, compute_verdict, verdict
from .machine import FP8, copy_rates, matrix_rates, settle
from .pairs import FusionRequest, PairsRequest, fusion_on_rank, pairs_on_rank, print_matrix
from .ranks.process import prepare_process
from .ranks.setup import check_backend, on_ranks
from .sweep import SweepRequest, rows_from
from .sweep_on_rank import RankHost, RankSweep, timed_sweep_on_rank
from .table import Row


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement that is no sweep: a text for people, objects for JSON, the verdict, and what disturbed it."""

    text: str
    objects: list[object]
    verdict: str
    beside: str = ""  # how other programs kept the processors busy


class Sweeps(msgspec.Struct, frozen=True, kw_only=True):
    """Tables by collective, what they are held against, how busy the ranks' cores were, and what disturbed them."""

    tables: dict[str, list[Row]]
    spec: Spec | None
    busy_share: float
    beside: str = ""  # how other programs kept the processors busy


def measure_sweeps(
    collectives: Sequence[str],
    backend: str,
    ranks: int,
    sizes_bytes: tuple[int, ...],
    dtype: str,
    budget_s: float,
    catalogue: Catalogue,
    cluster: Cluster,
) -> Sweeps | None:
    """Return the tables of some collectives; None on the ranks of a torchrun job but the first."""
    check_backend(backend, ranks)
    requests = [
        SweepRequest(collective=name, backend=backend, sizes_bytes=sizes_bytes, dtype=dtype, budget_s=budget_s)
        for name in collectives
    ]
    places = _places(cluster, backend, ranks)
    found = on_ranks(timed_sweep_on_rank, requests, backend=backend, ranks=ranks, places=places)
    if found is None:
        return None
    busy: list[RankSweep] = found.results
    tables = {
        request.collective: rows_from(request, [rank.samples[i] for rank in busy]) for i, request in enumerate(requests)
    }
    spec = _spec(catalogue, cluster, backend, [rank.where for rank in busy])
    busy_share = statistics.mean(rank.busy_share for rank in busy)
    return Sweeps(tables=tables, spec=spec, busy_share=busy_share, beside=found.beside)


def _places(cluster: Cluster, backend: str, ranks: int) -> list[Binding | None]:
    """Return where each rank belongs: beside the accelerator that it computes on, if it does."""
    shown = count() if uses_accelerators(backend) else 0
    buses = [bus_id(rank) if rank < shown else None for rank in range(ranks)]
    return [binding_of_gpu(bus, cluster) if bus else binding(cluster, rank, ranks) for rank, bus in enumerate(buses)]


def _spec(catalogue: Catalogue, cluster: Cluster, backend: str, places: Sequence[RankHost]) -> Spec | None:
    """Return what ranks at these places are held against, None where the rate of what joins them is not known."""
    if len({place.host for place in places}) > 1:
        return network_spec(cluster)
    if uses_accelerators(backend):
        return gpu_spec(catalogue, cluster)
    return memory_spec(statistics.mean(place.copy_bytes_per_s for place in places), backend)


def measure_pairs(
    catalogue: Catalogue, cluster: Cluster, backend: str, ranks: int, size_bytes: int
) -> Measurement | None:
    """Return the matrices of bandwidth and latency between all ranks; None on a job's other ranks."""
    check_backend(backend, ranks)
    if ranks < 2:
        raise InputError("p2p: needs 2 ranks or more")
    places = _places(cluster, backend, ranks)
    request = PairsRequest(backend=backend, size_bytes=size_bytes)
    on_all = on_ranks(pairs_on_rank, request, backend=backend, ranks=ranks, places=places)
    if on_all is None:
        return None
    results = on_all.results
    pairs = sorted((pair for found in results for pair in found.pairs), key=lambda p: (p.a, p.b))
    spec = _spec(catalogue, cluster, backend, [found.where for found in results])
    slowest = min(pairs, key=lambda p: p.one_way_bytes_per_s)
    text = print_matrix(pairs, len(results))
    text += f"\n\n# {format_bytes(size_bytes)} a message; slowest: rank {slowest.a} to {slowest.b}"
    best = max(pair.one_way_bytes_per_s for pair in pairs)
    bound = any(place is not None for place in places) or len(cluster.of_kind("cpu")) < 2
    judged = str(verdict(best, spec, bound=bound)) if spec else "none: the rate of what joins the ranks is not known"
    return Measurement(text=text, objects=list(pairs), verdict=judged, beside=on_all.beside)


def measure_fusion(cluster: Cluster, backend: str, ranks: int) -> Measurement | None:
    """Return what many small payloads cost over one large one; None on a job's other ranks."""
    check_backend(backend, ranks)
    if ranks < 2:
        raise InputError("latency: needs 2 ranks or more")
    places = _places(cluster, backend, ranks)
    request = FusionRequest(backend=backend)
    on_all = on_ranks(fusion_on_rank, request, backend=backend, ranks=ranks, places=places)
    if on_all is None:
        return None
    one_s = statistics.mean(one for one, _ in on_all.results)
    many_s = statistics.mean(many for _, many in on_all.results)
    piece = format_bytes(request.total_bytes / request.pieces)
    whole = f"one all-reduce of {format_bytes(request.total_bytes)}: {format_time(one_s)}"
    parts = f"{request.pieces} of {piece}: {format_time(many_s)}"
    each = (many_s - one_s) / request.pieces
    advice = (
        f"fuse small payloads into buckets: each call adds {format_time(each)}, {many_s / one_s:.1f} times in all"
        if many_s > 1.2 * one_s
        else "small payloads cost no more than one large one here"
    )
    item = {"total_bytes": request.total_bytes, "pieces": request.pieces, "one_s": one_s, "many_s": many_s}
    return Measurement(text=f"{whole}\n{parts}", objects=[item], verdict=advice, beside=on_all.beside)


def measure_compute(catalogue: Catalogue, cluster: Cluster) -> Measurement:
    """Return matrix-product rates of this machine's first accelerator, or of its CPU with all usable cores.

    An accelerator multiplies in bf16 (fp16 where it has no bf16), and in fp8 where it can.
    """
    where = device()
    prepare_process(threads_per_rank(1))
    dtype = torch.float32 if not is_accelerator(where) else torch.bfloat16 if has_bf16(where) else torch.float16
    begun, clocks = LoadCounters(), settle(where, dtype)
    rates, notes = matrix_rates(where, dtype), []
    if is_accelerator(where):
        try:
            rates += matrix_rates(where, FP8)
        except RuntimeError as error:
            notes.append(f"# fp8: not timed, since torch cannot multiply it here: {str(error).splitlines()[0]}")
    beside = words_since(begun)
    dtypes = dict.fromkeys(r.dtype for r in rates)
    best = {d: max((r for r in rates if r.dtype == d), key=lambda r: r.flops_per_s) for d in dtypes}
    lines = [f"#{'m':>7}{'k':>8}{'n':>8}{'type':>15}{'time (us)':>12}{'TFLOP/s':>10}{'of best':>9}"]
    lines += [
        f"{r.m:>8}{r.k:>8}{r.n:>8}{r.dtype:>15}{r.time_s * 1e6:>12.1f}{r.flops_per_s / 1e12:>10.3f}"
        f"{r.flops_per_s / best[r.dtype].flops_per_s:>8.0%}"
        for r in rates
    ]
    lines += [
        f"# attainable peak of {name}: {r.flops_per_s / 1e12:.3f} TFLOP/s at {r.m} x {r.k} x {r.n}"
        for name, r in best.items()
    ]
    if clocks is not None:
        lines.append(
            f"# warm: a large product takes {format_time(clocks.warm_s)}, {clocks.warm_s / clocks.cold_s:.2f} times as "
            "long as the first one"
        )
    model = next((d.model for d in cluster.of_kind("gpu")), "") if is_accelerator(where) else ""
    accelerator = catalogue.accelerators.get(model)
    if accelerator is None:
        text = "no dense peak is known for this processor: the attainable peak is the yardstick"
    else:
        text = "; ".join(compute_against(accelerator, name, r.flops_per_s) for name, r in best.items())
    return Measurement(text="\n".join([*lines, *notes]), objects=list(rates), verdict=text, beside=beside)


def compute_against(accelerator: Accelerator, dtype: str, flops_per_s: float) -> str:
    """Return the verdict on a rate of products of a type, as torch names it, against the catalogue's dense peak."""
    precision = DTYPE_NAMES[getattr(torch, dtype)]
    peak = accelerator.peak_flops_per_s.get(precision)
    if peak is None:
        return f"the catalogue has no dense {precision} peak of {accelerator.title}"
    return str(compute_verdict(flops_per_s, peak, f"{accelerator.title}'s dense {precision} peak"))


def measure_memory(cluster: Cluster) -> Measurement:
    """Return copy rates over sizes; the verdict compares the caches with memory, and memory with the spec if known."""
    where = device()
    gpu = is_accelerator(where)
    prepare_process(threads_per_rank(1))
    begun = LoadCounters()
    rates = copy_rates(where)
    beside = words_since(begun)
    lines = [f"#{'size':>11}{'time (us)':>12}{'copied':>12}"]
    lines += [f"{format_bytes(r.bytes):>12}{r.time_s * 1e6:>12.1f}{format_rate(r.copy_bytes_per_s):>12}" for r in rates]
    largest = rates[-1].copy_bytes_per_s
    peak = next((d.memory_bandwidth_bytes_per_s for d in cluster.of_kind("gpu")), None) if gpu else None
    if peak:
        # a copy reads and writes, so that each byte counts twice against the memory's rate
        text = str(verdict(2 * largest, Spec(name="the memory", bytes_per_s=peak)))
    else:
        fastest = max(r.copy_bytes_per_s for r in rates)
        text = f"{format_rate(largest)} from memory, {fastest / largest:.1f} times that from cache; no spec is known"
    return Measurement(text="\n".join(lines), objects=list(rates), verdict=text, beside=beside)
