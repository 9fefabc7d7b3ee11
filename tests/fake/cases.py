"""What ranks do on the fake device; the same on the CPU, for comparison. Run in processes of their own."""

from typing import Any

import torch
import torch.distributed as dist

from meshwright import device as devices
from meshwright.layout import Layout, Plan
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
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


def mixed(rank: int, world_size: int, store: dist.Store) -> str:
    """Return how a call on tensors of the device and of the host ends."""
    load()
    try:
        torch.mm(torch.ones(2, 2, device="fakegpu"), torch.ones(2, 2))
    except RuntimeError as error:
        return str(error)
    return ""
