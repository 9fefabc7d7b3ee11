"""Trains with DeepSpeed on CPUs. Arguments: a backend, a stage of ZeRO."""

import sys

import deepspeed
import torch
import torch.distributed as dist
from reporting import report

import meshwright  # noqa: F401  (a user who has it installed needs no import)

backend, stage = sys.argv[1], int(sys.argv[2])
deepspeed.init_distributed(dist_backend=backend)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
    config={
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
    },
)
losses = []
for step in range(3):
    loss = engine(torch.full((2, 8), float(dist.get_rank() + step))).square().mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss)
report(losses=losses, world=dist.get_world_size())
dist.destroy_process_group()
