"""Work of ranks on the fake device, in processes of their own: a process that has the device keeps it."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from meshwright import device as devices
from meshwright.bench.calibrate import Request, measure_on_rank
from meshwright.cluster.graph import Timed
from meshwright.layout import Layout, Plan
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
from meshwright.train.job.config import OptimizerConfig
from meshwright.train.job.environment import Place
from meshwright.train.measure.recorder import Recorder
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import make_optimizer
from meshwright.train.run.run_folder import RunFolder
from meshwright.train.worker import Member, train_rank
from meshwright.workload.graph import Operator
from testkit.fake import load
from testkit.train_jobs import UNMEASURED
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


class Crossings(TorchDispatchMode):
    """Counts the elements of floating tensors, single numbers left out, that cross between the device and its host."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = call(*args, **(kwargs or {}))
        if call in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default):
            source = args[1] if call is torch.ops.aten.copy_.default else args[0]
            if source.device.type != result.device.type and source.is_floating_point() and source.numel() > 1:
                self.elements["to_host" if result.device.type == "cpu" else "to_device"] += source.numel()
        return result


def crossed(rank: int, world_size: int, store: dist.Store, text: str) -> Counter[str]:
    """Return how many elements have crossed between device and host in the third step of a layout, each way."""
    found = Crossings()
    _third_step(joined(rank, world_size, store), rank, Layout.parse(text), found)
    return found.elements


def waited(rank: int, world_size: int, store: dist.Store, text: str) -> dict[str, int]:
    """Return how often the host has waited for the device in the third step of a layout, by what made it wait."""
    device, extension = joined(rank, world_size, store), load()

    @contextlib.contextmanager
    def counted() -> Iterator[None]:
        extension.forget_waits()
        yield

    _third_step(device, rank, Layout.parse(text), counted())
    return extension.waits()


def _third_step(device: torch.device, rank: int, layout: Layout, watched: contextlib.AbstractContextManager) -> None:
    """Take three steps of a small decoder, the third one in the context `watched`."""
    torch.manual_seed(0)
    module = devices.moved(Decoder(parity.small_model(), recompute=layout.recompute), device)
    recorder = Recorder(rank, keep_steps=1, device=device)
    settings = Settings(device, lambda part: make_optimizer(part, OptimizerConfig()), recorder, 1.0)
    plan = Plan(
        layout=layout, predicted=UNMEASURED, global_batch_sequences=parity.GLOBAL_BATCH, seq_len=parity.SEQ_LEN,
        bucket_bytes=2**14,
    )  # fmt: skip
    engine = build_engine(module, plan, settings)
    for step in range(3):
        drawn = list(parity.batches(step, layout, engine.data_rank, engine.data_ranks, device))
        with watched if step == 2 else contextlib.nullcontext():
            engine.step(drawn, parity.GLOBAL_BATCH * parity.SEQ_LEN, number=step)
            if step == 2:
                return
        recorder.end_step(step)


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
    return train_rank(RunFolder(Path(path)), Member(Place(rank, world_size, rank, world_size), device))


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
