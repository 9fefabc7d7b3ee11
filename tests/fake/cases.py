"""What ranks do on the fake device; the same on the CPU, for comparison. Run in processes of their own."""

import time
from typing import Any

import torch
import torch.distributed as dist

from meshwright import device as devices
from meshwright.layout import Layout, Plan
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
from meshwright.timeline import Span
from meshwright.train.config import OptimizerConfig
from meshwright.train.decoder import Decoder
from meshwright.train.optimizer import make_optimizer
from meshwright.train.recorder import Recorder
from tests.fake import load
from tests.multiproc.parallel.parity import GLOBAL_BATCH, SEQ_LEN, batches, small_model
from tests.multiproc.train.jobs import UNMEASURED

STEPS = 3


def engine_on(device: torch.device, text: str, notes: Any, autocast: torch.dtype | None = None) -> Any:
    """Return the engine of a small decoder under a layout, on a device."""
    layout = Layout.parse(text)
    torch.manual_seed(0)
    module = Decoder(small_model(), recompute=layout.recompute).to(device)
    settings = Settings(device, lambda part: make_optimizer(part, OptimizerConfig()), notes, 1.0, autocast)
    plan = Plan(
        layout=layout, predicted=UNMEASURED, global_batch_sequences=GLOBAL_BATCH, seq_len=SEQ_LEN, bucket_bytes=2**14
    )
    return build_engine(module, plan, settings)


def train(
    rank: int, world_size: int, store: dist.Store, text: str, fake: bool, autocast: torch.dtype | None = None
) -> list[float]:
    """Return the losses of a few steps of a layout, and the norms."""
    if fake:
        load()
    backend = "fakeccl" if fake else "gloo"
    device = devices.of_rank(rank, backend)
    assert device.type == ("fakegpu" if fake else "cpu")
    devices.set_current(device)
    if world_size > 1:
        dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    layout, recorder = Layout.parse(text), Recorder(rank, keep_steps=1, device=device)
    engine = engine_on(device, text, recorder, autocast)
    found = []
    for step in range(STEPS):
        drawn = [(x.to(device), y.to(device)) for x, y in batches(step, layout, engine.data_rank, engine.data_ranks)]
        loss, norm = engine.step(drawn, GLOBAL_BATCH * SEQ_LEN, number=step)
        recorder.end_step(step)
        if world_size > 1:
            total = loss.to(device)
            dist.all_reduce(total)
            loss = total.cpu()
        found += [loss.item(), norm]
    return found


def recorded(
    rank: int, world_size: int, store: dist.Store, kernel_s: float
) -> tuple[list[Span], float, dict[str, int]]:
    """Return the spans of a step on a device that takes `kernel_s` for each call, the step's seconds, and its waits."""
    extension = load()
    device = devices.of_rank(rank, "fakeccl")
    recorder = Recorder(rank, keep_steps=1, device=device)
    engine = engine_on(device, "dp=1", recorder)
    drawn = [(x.to(device), y.to(device)) for x, y in batches(0, Layout.parse("dp=1"), 0, 1)]
    engine.step(drawn, GLOBAL_BATCH * SEQ_LEN)
    recorder.end_step(0)
    extension.set_kernel_s(kernel_s)
    extension.forget_waits()
    start = time.monotonic()
    engine.step(drawn, GLOBAL_BATCH * SEQ_LEN)
    recorder.end_step(1)
    step_s = time.monotonic() - start
    extension.set_kernel_s(0.0)
    return recorder.spans(), step_s, dict(extension.waits())


def mixed(rank: int, world_size: int, store: dist.Store) -> str:
    """Return how a call on tensors of the device and of the host ends."""
    load()
    try:
        torch.mm(torch.ones(2, 2, device="fakegpu"), torch.ones(2, 2))
    except RuntimeError as error:
        return str(error)
    return ""


def two_streams(rank: int, world_size: int, store: dist.Store) -> tuple[str, str]:
    """Return how the use of what another stream wrote ends, without and with an event between them."""
    load()
    device = torch.device("fakegpu", 0)
    other = torch.Stream(device)

    def used(ordered: bool) -> str:
        written = torch.ones(4, device=device) * 2
        mark = devices.event(device)
        if ordered:
            other.wait_event(mark)
        before = torch.accelerator.current_stream()
        torch.accelerator.set_stream(other)
        try:
            written * 2
        except RuntimeError as error:
            return str(error)
        finally:
            torch.accelerator.set_stream(before)
        return ""

    return used(False), used(True)


def timed(rank: int, world_size: int, store: dist.Store, kernel_s: float) -> tuple[float, float]:
    """Return the seconds of asking for a call, and of the call as `devices.timed_s` has it."""
    extension = load()
    device = torch.device("fakegpu", 0)
    x = torch.ones(4, device=device)
    x.mul_(1.0)
    extension.set_kernel_s(kernel_s)
    start = time.perf_counter()
    x.mul_(1.0)
    asked_s = time.perf_counter() - start
    timed_s = devices.timed_s(lambda: x.mul_(1.0), 10, device)
    extension.set_kernel_s(0.0)
    return asked_s, timed_s
