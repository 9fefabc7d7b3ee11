"""Train a model that is not ours, split in any way, with three calls: plan, parallelize, step.

    python examples/parallelize.py [LAYOUT ...]

You see GPT-2 from Hugging Face's transformers (a small one, built from a config) trained for a few steps on one rank,
and on two ranks under each layout; the losses agree.
"""

import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn

import meshwright

STEPS, SAMPLES, LENGTH, VOCABULARY = 5, 8, 16, 64
LAYOUTS = ("dp=2,mbs=2", "dp=2,zero=1", "dp=2,zero=3", "dp=1,tp=2", "dp=1,tp=2,zero=1,mbs=4", "dp=1,pp=2,mbs=2")


def main() -> None:
    losses = run(1, "")
    print(f"{'one rank':<26}", *(f"{loss:.6f}" for loss in losses))
    for layout in sys.argv[1:] or LAYOUTS:
        found = run(2, layout)
        print(f"{layout:<26}", *(f"{loss:.6f}" for loss in found))
        assert torch.allclose(torch.tensor(found), torch.tensor(losses), rtol=1e-5)


def run(ranks: int, layout: str) -> list[float]:
    """Train on a number of ranks and return the losses."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(train, args=(ranks, layout, folder), nprocs=ranks, start_method="fork")
        losses: list[float] = torch.load(f"{folder}/losses", weights_only=True)
    return losses


def train(rank: int, ranks: int, layout: str, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("meshwright", rank=rank, world_size=ranks, store=dist.FileStore(f"{folder}/store", ranks))
    model = gpt2()
    example = batch(0)
    plan = meshwright.plan(model, *example, loss, layout=layout)
    trained = meshwright.parallelize(model, plan, loss, optimizer=optimizer, example=example, max_grad_norm=1.0)
    losses = [meshwright.step(trained, *batch(number))[0] for number in range(STEPS)]
    if rank == 0:
        torch.save(losses, f"{folder}/losses")
    dist.destroy_process_group()


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": LENGTH}
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return GPT2LMHeadModel(GPT2Config(**sizes, **dropout, use_cache=False, bos_token_id=0, eos_token_id=0))


def loss(outputs: Any, targets: Tensor) -> Tensor:
    """Return the sum over the targets, not their mean."""
    return F.cross_entropy(outputs.logits.flatten(0, 1), targets.flatten(), reduction="sum")


def optimizer(part: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(part.parameters(), lr=1e-2)


def batch(number: int) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(VOCABULARY, (SAMPLES, LENGTH + 1), generator=torch.Generator().manual_seed(number))
    return tokens[:, :-1], tokens[:, 1:]


if __name__ == "__main__":
    main()
