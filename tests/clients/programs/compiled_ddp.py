"""Compiles a whole DDP module, and a function with collectives that have no functional form. Argument: a backend."""

import sys

import torch
import torch.distributed as dist
from reporting import report

import meshwright  # noqa: F401  (a user who has it installed needs no import)


def exchanged(x):
    y = x * 2
    dist.broadcast(y, 1)
    parts = [torch.empty_like(y) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, y + dist.get_rank())
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    dist.barrier()
    return sum(parts) + y


dist.init_process_group(sys.argv[1])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
wrapped = torch.compile(torch.nn.parallel.DistributedDataParallel(model.double()), backend="aot_eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.arange(32.0, dtype=torch.float64).view(4, 8).sin()
losses = []
for step in range(3):
    optimizer.zero_grad()
    loss = wrapped(rows * (dist.get_rank() + step + 1)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss)
x = torch.arange(4.0) + dist.get_rank()
compiled = torch.compile(exchanged, backend="aot_eager")(x)
report(losses=losses, weights=list(model.parameters()), compiled=compiled, plain=exchanged(x))
dist.destroy_process_group()
