"""Sums over ranks of several hosts while a link is slowed down; prints what the group took the links for.

Waits for the file of the first argument before the second half, and makes a second group at the end that knows nothing
of the first. Rank 0 prints one JSON object.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from meshwright.backend.hosts.choice import choose_all_reduce

SIZES = [2**power for power in range(8, 27)]
marker, elements, calls = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


def seen(group):
    links = group._engine.network.links
    names = [choose_all_reduce(links, dist.get_world_size(), size) for size in SIZES]
    return {"alpha_s": links.alpha_s, "beta_s_per_byte": links.beta_s_per_byte, "choices": names}


def sums(count):
    for _ in range(count):
        dist.all_reduce(torch.ones(elements))


torch.set_num_threads(1)
os.environ["XDG_CACHE_HOME"] = f"{marker}-first"
dist.init_process_group("meshwright")
rank = dist.get_rank()
sums(calls)
before = seen(dist.group.WORLD)
if rank == 0:
    Path(f"{marker}-ready").touch()
while not marker.exists():
    time.sleep(0.01)
sums(calls)
after = seen(dist.group.WORLD)
os.environ["XDG_CACHE_HOME"] = f"{marker}-second"
fresh = seen(dist.new_group())
if rank == 0:
    sys.stdout.write(json.dumps({"before": before, "after": after, "fresh": fresh}) + "\n")
dist.barrier()
dist.destroy_process_group()
