"""The collectives of one step of the engine, from its spans: axis, kind, bytes and count."""

import re
from typing import Any

import torch
import torch.distributed as dist

from meshwright.layout import Layout, Plan
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
from meshwright.timeline import Span
from meshwright.train.job.config import OptimizerConfig
from meshwright.train.measure.recorder import Recorder
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import make_optimizer
from testkit.train_jobs import UNMEASURED
from tests.multiproc.parallel.parity import GLOBAL_BATCH, SEQ_LEN, batches, small_model

BUCKET_BYTES = 2**14
MEMBERS = re.compile(r"(\d+) ranks of (\w+)")

TIED = "tied"  # detail of the sum of a matrix that two stages use, over their ranks in the pipeline


def recorded(
    rank: int,
    world_size: int,
    store: dist.Store,
    text: str,
    changes: dict[str, Any],
    backend: str,
    autocast: torch.dtype | None = None,
) -> list[tuple[str, str, int]]:
    """Return what this rank sent in the third step of a layout, in order: (axis, collective, bytes)."""
    if world_size > 1:
        dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    layout, recorder = Layout.parse(text), Recorder(rank, keep_steps=1)
    torch.manual_seed(0)
    settings = Settings(
        torch.device("cpu"), lambda part: make_optimizer(part, OptimizerConfig()), recorder, 1.0, autocast
    )
    settings = settings._replace(host_store=torch.clone)  # where a layout offloads: to a second store
    plan = Plan(
        layout=layout, predicted=UNMEASURED, global_batch_sequences=GLOBAL_BATCH, seq_len=SEQ_LEN,
        bucket_bytes=BUCKET_BYTES,
    )  # fmt: skip
    engine = build_engine(Decoder(small_model(**changes), recompute=layout.recompute), plan, settings)
    for step in range(3):
        drawn = batches(step, layout, engine.data_rank, engine.data_ranks)
        engine.step(drawn, GLOBAL_BATCH * SEQ_LEN, number=step)
        recorder.end_step(step)
    return [call for call in map(_call, recorder.spans()) if call is not None]


def _call(span: Span) -> tuple[str, str, int] | None:
    """Return what a span sent; None where it sent nothing, or received what another rank's span says."""
    if span.lane != "comm" or span.name == "drain" or span.name.startswith("recv"):
        return None
    members = MEMBERS.match(span.detail)
    if span.name.startswith("send"):
        return "pp", span.name, span.bytes
    axis = members.group(2) if members else "pp" if span.detail == TIED else span.detail or "data"
    return axis, span.name, span.bytes
