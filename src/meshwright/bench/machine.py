"""Rates of one machine: matrix products over shapes, and copies over sizes."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import torch

from ..device import cache_bytes, is_accelerator, product_side, timed_s

SQUARES = tuple((n, n, n) for n in (128, 256, 512, 1024, 2048))
SHAPES = (*SQUARES, (4096, 1024, 1024), (1024, 4096, 1024), (64, 4096, 1024))
LEAST_COPY_BYTES, MOST_COPY_BYTES = 2**14, 2**28
FAR_CACHES = 8  # the largest copy of an accelerator has at least this multiple of its cache, where that is known
BUDGET_S = 0.4
WINDOW_S, STEADY, SETTLE_S = 0.2, 0.01, 5.0  # of products, until those of two windows differ by less; at most
LONG_S = 1.0  # of one product
FP8 = torch.float8_e4m3fn


class MatrixRate(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of C = A B with A of m x k and B of k x n."""

    m: int
    k: int
    n: int
    dtype: str
    time_s: float
    flops_per_s: float


class CopyRate(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of a copy: each byte is read once and written once, and counted once."""

    bytes: int
    time_s: float
    copy_bytes_per_s: float


def gpu_shapes(side: int) -> list[tuple[int, int, int]]:
    """Return shapes up to one that keeps an accelerator busy from end to end, and that of a layer's feed-forward."""
    return [(n, n, n) for n in (side // 8, side // 4, side // 2, side)] + [(side, side * 7 // 2, side)]


def copy_sizes(cache: int | None) -> list[int]:
    """Return bytes to copy, from a few to far more than the last cache, where its size is known."""
    sizes, largest = [LEAST_COPY_BYTES], FAR_CACHES * cache if cache else MOST_COPY_BYTES
    while sizes[-1] < largest:
        sizes.append(4 * sizes[-1])
    return sizes


class Clocks(NamedTuple):
    """Seconds of one product on an accelerator that had nothing to do, and after it has worked for a while."""

    cold_s: float
    warm_s: float


def settle(device: torch.device, dtype: torch.dtype = torch.float32) -> Clocks | None:
    """Let an accelerator multiply until its clock holds still, so that what is timed next runs as in a long job.

    A clock rises under work and falls with heat: it is steady when a product takes as long as in the window before,
    or after `SETTLE_S`. None on a CPU, where nothing is done.
    """
    if not is_accelerator(device):
        return None
    side = product_side(device)
    a, b = torch.randn(side, side, device=device).to(dtype), torch.randn(side, side, device=device).to(dtype)
    torch.mm(a, b)  # loads code
    cold_s = last_s = timed_s(lambda: torch.mm(a, b), 1, device)
    end = time.monotonic() + SETTLE_S
    while time.monotonic() < end:
        before_s, last_s = last_s, timed_s(lambda: torch.mm(a, b), max(1, round(WINDOW_S / max(last_s, 1e-6))), device)
        if abs(last_s - before_s) < STEADY * before_s:
            break
    return Clocks(cold_s, last_s)


def matrix_rates(device: torch.device, dtype: torch.dtype) -> list[MatrixRate]:
    """Return the rate of every shape on one device with all the threads that torch has.

    A product that would take longer than `LONG_S` at the best rate so far is left out. Products of eight bits have one
    scale a tensor and a result in bf16. Raises RuntimeError where the device cannot multiply this type.
    """
    rates: list[MatrixRate] = []
    for m, k, n in gpu_shapes(product_side(device)) if is_accelerator(device) else SHAPES:
        if rates and 2 * m * k * n > LONG_S * max(rate.flops_per_s for rate in rates):
            continue
        time_s = _median_s(_product(m, k, n, device, dtype), device)
        name = str(dtype).removeprefix("torch.")
        rates.append(MatrixRate(m=m, k=k, n=n, dtype=name, time_s=time_s, flops_per_s=2 * m * k * n / time_s))
    return rates


def _product(m: int, k: int, n: int, device: torch.device, dtype: torch.dtype) -> Callable[[], object]:
    """Return what multiplies two random matrices of these sizes."""
    if dtype.itemsize == 1:
        a, b = torch.randn(m, k, device=device).to(dtype), torch.randn(n, k, device=device).to(dtype).t()
        one = torch.ones((), device=device)
        return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    a, b = torch.randn(m, k, device=device).to(dtype), torch.randn(k, n, device=device).to(dtype)
    out = torch.empty(m, n, device=device, dtype=dtype)
    return lambda: torch.mm(a, b, out=out)


def copy_rates(device: torch.device) -> list[CopyRate]:
    """Return the rate of copying between two buffers of the device, from cache sizes to far beyond them."""
    rates = []
    for size in copy_sizes(cache_bytes(device)):
        source, target = torch.ones(size // 4, device=device), torch.empty(size // 4, device=device)
        time_s = _median_s(lambda s=source, t=target: t.copy_(s), device)  # type: ignore[misc]
        rates.append(CopyRate(bytes=size, time_s=time_s, copy_bytes_per_s=size / time_s))
    return rates


def _median_s(work: Callable[[], object], device: torch.device) -> float:
    """Return the median seconds of repeated calls within the budget, 5 at least; short calls are timed in batches."""
    work()
    once = max(timed_s(work, 1, device), 1e-7)
    batch = max(1, int(1e-4 / once))
    samples = max(5, min(100, int(BUDGET_S / (once * batch))))
    return statistics.median(timed_s(work, batch, device) for _ in range(samples))
