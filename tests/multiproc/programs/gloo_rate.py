"""Bus bandwidth of Gloo's all-reduce, as nccl-tests define it; rank 0 prints bytes per second. Needs torch only."""

import sys
import time

import torch
import torch.distributed as dist

REPEATS = 3

torch.set_num_threads(1)
dist.init_process_group("gloo")
ranks, numbers = dist.get_world_size(), int(sys.argv[1]) // 4
data = torch.ones(numbers)
dist.all_reduce(data)
dist.barrier()
began = time.perf_counter()
for _ in range(REPEATS):
    dist.all_reduce(data)
elapsed = time.perf_counter() - began
if dist.get_rank() == 0:
    sys.stdout.write(f"{REPEATS * numbers * 4 / elapsed * 2 * (ranks - 1) / ranks:.0f}\n")
dist.barrier()
dist.destroy_process_group()
