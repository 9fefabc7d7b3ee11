"""A training program as anybody writes it: torch only, started by torchrun or by anything that sets its variables.

Prints one JSON object a rank. With DIE_ONCE=RANK:FILE that rank kills itself at step 2, unless the file is there.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

began = time.time()
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
first = torch.ones(1)
dist.all_reduce(first)
joined = time.time()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(4):
    victim, _, marker = os.environ.get("DIE_ONCE", "").partition(":")
    if step == 2 and victim == str(rank) and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    loss = model(torch.randn(8, 16)).pow(2).mean()
    loss.backward()
    optimizer.step()
weights = sum(p.sum().item() for p in model.parameters())
found = {"rank": rank, "host": socket.gethostname(), "sum": first.item(), "weights": weights, "attempt": attempt}
sys.stdout.write(json.dumps({**found, "joined": joined}) + "\n")
sys.stdout.flush()
dist.destroy_process_group()
# A thread of Gloo may still hold Python objects of the last sum (torch 2.13 does not join it where DDP keeps the group)
# and aborts the process where it lets go of them while the interpreter ends: so end without that.
os._exit(0)
