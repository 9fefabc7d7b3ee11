"""Trains with the communication hooks that DDP has in C++, which read a collective's future. Argument: a backend."""

import sys

import torch
import torch.distributed as dist
from reporting import report
from torch.nn.parallel import DistributedDataParallel

import meshwright  # noqa: F401  (a user who has it installed needs no import)

dist.init_process_group(sys.argv[1])
found = {}
for hook in (dist.BuiltinCommHookType.FP16_COMPRESS, dist.BuiltinCommHookType.ALLREDUCE):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    model._register_builtin_comm_hook(hook)
    for step in range(3):
        model(torch.full((2, 4), dist.get_rank() + step / 3)).square().sum().backward()
    found[hook.name] = [parameter.grad for parameter in model.parameters()]
report(**found)
dist.destroy_process_group()
