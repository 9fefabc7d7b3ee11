"""The parity harness: a few steps in float64 under a layout, beside the same steps in one process."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright.device import CPU, moved
from meshwright.layout import Layout, Plan
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Batch, Settings
from meshwright.train.job.config import OptimizerConfig
from meshwright.train.measure.recorder import Recorder
from meshwright.train.model.decoder import Decoder
from meshwright.train.model.optimizer import make_optimizer
from meshwright.workload.transformer import ModelConfig
from testkit.train_jobs import UNMEASURED

STEPS, GLOBAL_BATCH, SEQ_LEN = 10, 8, 16


def small_model(**changes: Any) -> ModelConfig:
    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": SEQ_LEN,
    }
    return ModelConfig(**(sizes | changes))


def small_plan(layout: Layout) -> Plan:
    return Plan(
        layout=layout, predicted=UNMEASURED, global_batch_sequences=GLOBAL_BATCH, seq_len=SEQ_LEN, bucket_bytes=2**14
    )


def batches(step: int, layout: Layout, data_rank: int, data_ranks: int, device: torch.device = CPU) -> Iterator[Batch]:
    """Yield this rank's micro-batches of a step, drawn from the whole batch as the training loop does."""
    numbers = torch.Generator().manual_seed(1000 + step)
    whole = torch.randint(0, 64, (GLOBAL_BATCH, SEQ_LEN + 1), generator=numbers)
    for index in range(GLOBAL_BATCH // (data_ranks * layout.mbs)):
        first = (index * data_ranks + data_rank) * layout.mbs
        drawn = whole[first : first + layout.mbs]
        yield drawn[:, :-1].to(device), drawn[:, 1:].to(device)


def train(layout: Layout, model: ModelConfig, device: torch.device = CPU, rank: int = 0) -> dict[str, Any]:
    """Return losses, norms, a validation loss and the pieces of the weights after some steps of this rank.

    On a CPU what a layout offloads goes to a second store, which stands for the host.
    """
    torch.manual_seed(0)
    module = moved(Decoder(model, recompute=layout.recompute).double(), device)
    recorder = Recorder(rank, keep_steps=1, device=device)
    config = OptimizerConfig(max_grad_norm=0.5)
    settings = Settings(
        device=device,
        optimizer=lambda part: make_optimizer(part, config),
        notes=recorder,
        max_grad_norm=config.max_grad_norm,
        host_store=torch.clone if device == CPU else None,
    )
    engine = build_engine(module, small_plan(layout), settings)
    losses, norms = [], []
    for step in range(STEPS):
        for group in engine.optimizer.param_groups:
            group["lr"] = 1e-3 * (step + 1)
        drawn = batches(step, layout, engine.data_rank, engine.data_ranks, device)
        loss, norm = engine.step(drawn, GLOBAL_BATCH * SEQ_LEN, number=step)
        recorder.end_step(step)
        losses.append(summed(loss, device) / (GLOBAL_BATCH * SEQ_LEN))
        norms.append(norm)
    validation = sum(
        (engine.evaluate(batch) for batch in batches(99, layout, engine.data_rank, engine.data_ranks, device)),
        start=torch.zeros((), dtype=torch.float64),
    )
    pieces = [
        (s.name, s.shape, s.offset, s.parameter.cpu().clone(), {k: v.cpu().clone() for k, v in s.moments.items()})
        for s in engine.shards()
        if s.owner
    ]
    found = {"losses": losses, "norms": norms, "validation": summed(validation, device), "pieces": pieces}
    return found | {"spans": recorder.spans()}


def run(rank: int, world_size: int, store: dist.Store, layout: str, changes: dict[str, Any], backend: str) -> Any:
    """Run the steps on one rank of a pool."""
    if world_size > 1:
        dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    return train(Layout.parse(layout), small_model(**changes))


def joined(results: list[dict[str, Any]], key: str = "") -> dict[str, Tensor]:
    """Put the pieces of all ranks together; AssertionError unless they cover every element of a tensor just once."""
    whole: dict[str, Tensor] = {}
    covered: dict[str, Tensor] = {}
    for result in results:
        for name, shape, offset, piece, moments in result["pieces"]:
            tensor = whole.setdefault(name, torch.zeros(shape, dtype=torch.float64))
            count = covered.setdefault(name, torch.zeros(shape, dtype=torch.int64))
            place = tuple(slice(o, o + n) for o, n in zip(offset, piece.shape, strict=True))
            tensor[place] = moments[key] if key else piece
            count[place] += 1
    assert all(bool((count == 1).all()) for count in covered.values()), "a piece is missing or doubled"
    return whole


def difference(alone: list[dict[str, Any]], split: list[dict[str, Any]], key: str = "") -> float:
    """Return the largest difference of any element of any parameter (or moment), relative to its tensor's largest."""
    expected, found = joined(alone, key), joined(split, key)
    assert expected.keys() == found.keys()
    return max(
        float((found[n] - expected[n]).abs().max() / expected[n].abs().max().clamp_min(1e-300)) for n in expected
    )


def loss_difference(alone: list[dict[str, Any]], split: list[dict[str, Any]]) -> float:
    """Return the largest relative difference of a step's loss on any rank."""
    return max(
        abs(mine - theirs) / theirs
        for result in split
        for mine, theirs in zip(result["losses"], alone[0]["losses"], strict=True)
    )


def summed(loss: Tensor, device: torch.device) -> float:
    total = loss.to(device, copy=True)
    if dist.is_initialized():
        dist.all_reduce(total)
    return total.item()
