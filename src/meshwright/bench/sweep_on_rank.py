"""The sweep on one rank: the calls, how busy its cores were, and its copy rate while all ranks copy."""

import statistics
import time
from collections.abc import Sequence

import msgspec
import torch
import torch.distributed as dist

from ..backend.hosts.placement import host_identity
from ..device import synchronize
from .sweep import Sample, SweepRequest, sweep_on_rank

COPY_BYTES = 64 * 2**20
COPIES = 5


class RankHost(msgspec.Struct, frozen=True, kw_only=True):
    """The host of one rank, and what the rank copies in its memory while all copy."""

    host: str  # equal on ranks that share a host
    copy_bytes_per_s: float


class RankSweep(msgspec.Struct, frozen=True):
    """The samples of each request on one rank, the share of the time that its cores worked, and where it is."""

    samples: list[list[Sample]]
    busy_share: float
    where: RankHost


def rank_host() -> RankHost:
    """Return where this rank is; all ranks call it together."""
    return RankHost(host=host_identity(), copy_bytes_per_s=copy_on_rank(None))


def timed_sweep_on_rank(requests: Sequence[SweepRequest]) -> RankSweep:
    """Run the sweeps on this rank; every rank calls it with the same requests."""
    here = rank_host()
    busy_s, begin = -time.process_time(), time.perf_counter()
    samples = [sweep_on_rank(request) for request in requests]
    busy_s += time.process_time()
    return RankSweep(samples, min(1.0, busy_s / (time.perf_counter() - begin)), here)


def copy_on_rank(device: torch.device | None) -> float:
    """Return the bytes per second that this rank copies (None: in host memory) while all copy; a byte counts once."""
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    times = []
    for _round in range(COPIES):
        dist.barrier()
        start = time.perf_counter()
        target.copy_(source)
        synchronize(source.device)
        times.append(time.perf_counter() - start)
    return COPY_BYTES / statistics.median(times)
