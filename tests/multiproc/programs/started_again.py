"""A rank that is killed in the first try, before, within or after the making of its group, and not later."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from meshwright.backend.group import create

when, victim = sys.argv[1:]
dies = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == victim


def die():
    os.kill(os.getpid(), signal.SIGKILL)


if dies and when == "before":
    time.sleep(0.5)  # the other waits for this one
    die()
if dies and when == "within":
    create.share_memory = lambda *arguments: die()  # they have met
dist.init_process_group("meshwright")
if dies:
    die()
tensor = torch.ones(10)
dist.all_reduce(tensor)
dist.destroy_process_group()
sys.stdout.write("right\n" if tensor[0] == 2 else "wrong\n")
