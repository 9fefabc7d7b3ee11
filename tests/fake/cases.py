"""What ranks do on the fake device; run in processes of their own, which know the device from then on."""

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from meshwright import device as devices
from meshwright.bench.calibrate import Request, measure_on_rank
from meshwright.cluster.graph import Timed
from meshwright.layout import Layout
from meshwright.train.environment import Place
from meshwright.train.recorder import Recorder
from meshwright.train.run_folder import RunFolder
from meshwright.train.worker import Member, work
from meshwright.workload.graph import Operator
from tests.fake import load
from tests.multiproc.parallel import parity


def joined(rank: int, world_size: int, store: dist.Store) -> torch.device:
    """Return this rank's device, over whose backend it has joined the others."""
    load()
    device = devices.of_rank(rank, "fakeccl")
    assert device == torch.device("fakegpu", rank)
    devices.set_current(device)
    if world_size > 1:
        dist.init_process_group("fakeccl", rank=rank, world_size=world_size, store=store)
    return device


def parts(rank: int, world_size: int, store: dist.Store, layout: str, changes: dict[str, Any]) -> Any:
    """Return what some steps in float64 make of a model under a layout, as `parity.run` does on the CPU."""
    device = joined(rank, world_size, store)
    return parity.train(Layout.parse(layout), parity.small_model(**changes), device, rank)


def mixed(rank: int, world_size: int, store: dist.Store) -> str:
    """Return how a call on tensors of the device and of the host ends."""
    load()
    try:
        torch.mm(torch.ones(2, 2, device="fakegpu"), torch.ones(2, 2))
    except RuntimeError as error:
        return str(error)
    return ""


def job(rank: int, world_size: int, store: dist.Store, path: str) -> str:
    """Run one rank of a run folder's job; return what stopped it."""
    device = joined(rank, world_size, store)
    return work(RunFolder(Path(path)), Member(Place(rank, world_size, rank, world_size), device))


def recorded(rank: int, world_size: int, store: dist.Store, kernel_s: float) -> dict[str, Any]:
    """Return the span of three products on a busy device, how long the host was at it, and how often it waited."""
    device, extension = joined(rank, world_size, store), load()
    recorder, x = Recorder(rank, keep_steps=1, device=device), torch.ones(4, 4, device=device)
    extension.set_kernel_s(kernel_s)
    extension.forget_waits()
    start = time.monotonic()
    with recorder.span("compute", "forward"):
        for _ in range(3):
            x @ x
    host_s, waits = time.monotonic() - start, extension.waits()
    recorder.end_step(0)
    extension.set_kernel_s(0.0)
    span = recorder.spans()[0]
    return {"span_s": span.end_s - span.start_s, "after_s": span.start_s - start, "host_s": host_s, "waits": waits}


def calibrated(rank: int, world_size: int, store: dist.Store, kernel_s: float) -> Any:
    """Return what calibration measures of a product and an all-reduce on a device that takes so long for a kernel."""
    extension = load()
    extension.set_kernel_s(kernel_s)
    try:
        request = Request(
            ranks=world_size,
            backend="fakeccl",
            operators=(Operator(kind="linear", shape=(8, 16, 16), autocast="bf16"),),
            autocast="bf16",
            collective_bytes=(1024,),
            blocking=(Timed("all_reduce"),),
        )
        return measure_on_rank(rank, world_size, store, request, 1)
    finally:
        extension.set_kernel_s(0.0)


def on_both(rank: int, world_size: int, store: dist.Store) -> list[float]:
    """Return sums over the ranks of a tensor of the host and of one of the device, in one group."""
    load()
    devices.set_current(torch.device("fakegpu", rank))
    backend = "cpu:meshwright,fakegpu:fakeccl"
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    found = []
    for device in (torch.device("cpu"), torch.device("fakegpu", rank)):
        value = torch.full((3,), rank + 1.0, device=device)
        dist.all_reduce(value)
        assert value.device.type == device.type
        found += value.tolist()
    return found


def unawaited(rank: int, world_size: int, store: dist.Store) -> list[list[float]]:
    """Return what an all-reduce has left before and after it was waited for."""
    device = joined(rank, world_size, store)
    value = torch.ones(1, device=device)
    pending = dist.all_reduce(value, async_op=True)
    before = value.tolist()
    pending.wait()
    return [before, value.tolist()]


def crossing(rank: int, world_size: int, store: dist.Store) -> float:
    """Return what comes from the other rank, where both ask for it before they send, in one group."""
    device = joined(rank, world_size, store)
    value = torch.empty(1, device=device)
    coming = dist.irecv(value, 1 - rank)
    dist.isend(torch.ones(1, device=device), 1 - rank)
    coming.wait()
    return value.item()
