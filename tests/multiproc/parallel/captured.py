"""Modules that are not ours, made of what is hard to cut, and their training under a layout."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from meshwright.layout import Layout, Plan
from meshwright.parallel.api import Silent
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Batch, Settings
from meshwright.parallel.pipeline.capture import capture
from testkit.train_jobs import UNMEASURED

STEPS, GLOBAL_BATCH, LENGTH = 5, 8, 6


class Skips(nn.Module):
    """A tied embedding, a mask from integers, a residual over all blocks, an update in place, buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.output = nn.Linear(16, 32, bias=False)
        self.output.weight = self.embedding.weight
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 16))

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the summed loss."""
        kept = (inputs % 3 != 0).unsqueeze(-1)
        first = x = self.embedding(inputs)
        for block in self.blocks:
            y = torch.tanh(block(x)) * self.scale
            y += first
            x = torch.where(kept, y, x)
        return F.cross_entropy(self.output(x).flatten(0, 1), targets.flatten(), reduction="sum")


class LanguageLoss(nn.Module):
    """A causal model of transformers with its summed loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the summed loss."""
        logits = self.model(input_ids=inputs, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


class ImageLoss(nn.Module):
    """An image classifier of transformers with its summed loss; batch norm uses its running statistics."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.eval()

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the summed loss."""
        return F.cross_entropy(self.model(pixel_values=inputs).logits, targets, reduction="sum")


def skips() -> nn.Module:
    return Skips()


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LanguageLoss(LlamaForCausalLM(LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=16, bos_token_id=0, eos_token_id=1,
    )))  # fmt: skip


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return LanguageLoss(GPT2LMHeadModel(GPT2Config(
        vocab_size=32, n_embd=16, n_layer=3, n_head=4, n_positions=16, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=1,
    )))  # fmt: skip


def resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ImageLoss(ResNetForImageClassification(ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", num_labels=5
    )))  # fmt: skip


MODELS: dict[str, Callable[[], nn.Module]] = {"skips": skips, "llama": llama, "gpt2": gpt2, "resnet": resnet}


def batch(name: str, step: int) -> Batch:
    """Return the whole batch of a step."""
    numbers = torch.Generator().manual_seed(step)
    if name == "resnet":
        images = torch.randn(GLOBAL_BATCH, 3, 16, 16, generator=numbers, dtype=torch.float64)
        return images, torch.randint(0, 5, (GLOBAL_BATCH,), generator=numbers)
    tokens = torch.randint(0, 32, (GLOBAL_BATCH, LENGTH + 1), generator=numbers)
    return tokens[:, :-1], tokens[:, 1:]


def train(rank: int, world_size: int, store: dist.Store, name: str, text: str) -> tuple[list[float], dict[str, Any]]:
    """Return the losses of a few steps, and the weights that this rank owns."""
    if world_size > 1:
        dist.init_process_group("meshwright", rank=rank, world_size=world_size, store=store)
    layout = Layout.parse(text)
    torch.manual_seed(0)
    module = MODELS[name]().double()
    if world_size > 1:
        inputs, targets = batch(name, 0)
        module = capture(module, (inputs[: layout.mbs], targets[: layout.mbs]))
    plan = Plan(
        layout=layout, predicted=UNMEASURED, global_batch_sequences=GLOBAL_BATCH, seq_len=LENGTH, bucket_bytes=2**12
    )
    settings = Settings(
        torch.device("cpu"), lambda part: torch.optim.AdamW(part.parameters(), lr=1e-2), Silent(), max_grad_norm=1.0
    )
    engine = build_engine(module, plan, settings)
    losses = []
    for step in range(STEPS):
        inputs, targets = batch(name, step)
        micro = [
            (inputs[first : first + layout.mbs], targets[first : first + layout.mbs])
            for first in range(engine.data_rank * layout.mbs, GLOBAL_BATCH, engine.data_ranks * layout.mbs)
        ]
        loss, _ = engine.step(micro, GLOBAL_BATCH)
        if world_size > 1:
            dist.all_reduce(loss)
        losses.append(loss.item())
    return losses, {shard.name: shard.parameter.clone() for shard in engine.shards() if shard.owner}
