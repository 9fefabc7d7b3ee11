"""Bandwidth and latency between every two ranks, and one large payload against many small ones."""

import statistics
import time
from collections.abc import Callable, Sequence

import msgspec
import torch
import torch.distributed as dist

from ..device import synchronize
from .ranks.setup import device_of
from .sweep import exchange_messages
from .sweep_on_rank import RankHost, rank_host

LATENCY_BYTES = 8


class PairsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How large the payload is, and how often each pair exchanges it."""

    backend: str
    size_bytes: int = 4 * 2**20
    rounds: int = 9


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of two ranks: one way (from a to b), both ways at once (each direction), time of a small message."""

    a: int
    b: int
    one_way_bytes_per_s: float
    both_ways_bytes_per_s: float
    latency_s: float


class PairsOfRank(msgspec.Struct, frozen=True, kw_only=True):
    """The pairs that one rank reports, and where it is."""

    pairs: list[Pair]
    where: RankHost


class FusionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One all-reduce of `total_bytes` against `pieces` of them."""

    backend: str
    total_bytes: int = 16 * 2**20
    pieces: int = 1000
    rounds: int = 3


def pairs_on_rank(request: PairsRequest) -> PairsOfRank:
    """Measure all ordered pairs, one at a time while the others wait; every rank calls it. Rank a reports."""
    rank, world = dist.get_rank(), dist.get_world_size()
    device = device_of(request.backend)
    here = rank_host()
    found = []
    for a in range(world):
        for b in range(world):
            if a == b:
                continue
            dist.barrier()
            if rank in {a, b}:
                pair = _measure(request, a, b, rank == a, device)
                if rank == a:
                    found.append(pair)
    dist.barrier()
    return PairsOfRank(pairs=found, where=here)


def _measure(request: PairsRequest, a: int, b: int, first: bool, device: torch.device) -> Pair:
    count = max(1, request.size_bytes // 4)
    payload, inbox = torch.ones(count, device=device), torch.empty(count, device=device)
    small = torch.ones(LATENCY_BYTES // 4, device=device)
    peer = b if first else a

    def ping() -> None:
        (dist.send if first else dist.recv)(small, peer)
        (dist.recv if first else dist.send)(small, peer)

    def one_way() -> None:
        if first:
            dist.send(payload, peer)
            dist.recv(small, peer)
        else:
            dist.recv(inbox, peer)
            dist.send(small, peer)

    def both_ways() -> None:
        exchange_messages(inbox, peer, payload, peer)

    latency_s = _median_s(ping, 4 * request.rounds, device) / 2
    one_s = _median_s(one_way, request.rounds, device)
    both_s = _median_s(both_ways, request.rounds, device)
    return Pair(
        a=a,
        b=b,
        one_way_bytes_per_s=4 * count / max(one_s - latency_s, one_s / 2),
        both_ways_bytes_per_s=4 * count / both_s,
        latency_s=latency_s,
    )


def _median_s(exchange: Callable[[], None], rounds: int, device: torch.device) -> float:
    times = []
    for i in range(rounds + 2):
        synchronize(device)
        start = time.perf_counter()
        exchange()
        synchronize(device)
        if i >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def fusion_on_rank(request: FusionRequest) -> tuple[float, float]:
    """Return the seconds of one large all-reduce and of the same bytes in many; every rank calls it."""
    device = device_of(request.backend)
    large = torch.ones(request.total_bytes // 4, device=device)
    small = torch.ones(max(1, request.total_bytes // 4 // request.pieces), device=device)
    one: list[float] = []
    many: list[float] = []
    for _ in range(request.rounds + 1):
        for times, tensor, calls in ((one, large, 1), (many, small, request.pieces)):
            tensor.fill_(1.0)
            dist.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
            synchronize(device)
            times.append(time.perf_counter() - start)
    return statistics.median(one[1:]), statistics.median(many[1:])


def print_matrix(pairs: Sequence[Pair], ranks: int) -> str:
    """Return three matrices: GB/s one way, GB/s each direction both ways at once, latency in microseconds."""
    by_pair = {(pair.a, pair.b): pair for pair in pairs}
    blocks = []
    columns: tuple[tuple[str, Callable[[Pair], float]], ...] = (
        ("one way, GB/s from row to column", lambda p: p.one_way_bytes_per_s / 1e9),
        ("both ways at once, GB/s per direction", lambda p: p.both_ways_bytes_per_s / 1e9),
        ("latency, us", lambda p: p.latency_s * 1e6),
    )
    for title, value in columns:
        lines = [f"# {title}", f"{'':>8}" + "".join(f"{f'rank {b}':>10}" for b in range(ranks))]
        for a in range(ranks):
            cells = [f"{'-' if a == b else format(value(by_pair[a, b]), '.2f'):>10}" for b in range(ranks)]
            lines.append(f"{f'rank {a}':>8}" + "".join(cells))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)
