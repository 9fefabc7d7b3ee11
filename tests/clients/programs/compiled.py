"""Compiles a function with functional collectives in it. Arguments: a backend, a compiler of torch.compile."""

import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from reporting import report

import meshwright  # noqa: F401  (a user who has it installed needs no import)


def work(x):
    group = dist.group.WORLD
    total = functional.all_reduce(x * 2, "sum", group)
    parts = functional.reduce_scatter_tensor(total + 1, "sum", 0, group)
    whole = functional.all_gather_tensor(parts.sin(), 0, group)
    changed = functional.all_to_all_single(whole, None, None, group)
    return functional.broadcast(changed.cos(), 1, group)


dist.init_process_group(sys.argv[1])
torch.manual_seed(dist.get_rank())
x = torch.randn(4 * dist.get_world_size(), 3)
compiled = torch.compile(work, backend=sys.argv[2], fullgraph=True)
report(compiled=[compiled(x), compiled(x + 1)], plain=[work(x), work(x + 1)])
dist.destroy_process_group()
