"""Loses a rank to SIGKILL in its first two tries, and ends well in the third. Argument: a backend."""

import os
import signal
import sys

import torch
import torch.distributed as dist
from reporting import report

import meshwright  # noqa: F401  (a user who has it installed needs no import)

dist.init_process_group(sys.argv[1])
tried = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
if tried < 2 and dist.get_rank() == tried:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
report(tried=tried, total=total)
dist.destroy_process_group()
