"""The report of a client's program: one file for each rank, read by `tests.clients.launch`."""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def ours_is_used():
    """Say whether a group of ours was made in this process: nothing else imports its maker."""
    return "meshwright.backend.group.create" in sys.modules


def report(rank=None, **values):
    """Leave this rank, whose groups it used and the values: numbers, tensors, texts, and lists of them.

    A client that has ended its group gives the rank.
    """
    rank = dist.get_rank() if rank is None else rank
    line = {"rank": rank, "ours": ours_is_used(), "values": plain(values)}
    (Path(os.environ["REPORT_FOLDER"]) / str(rank)).write_text(json.dumps(line))


def plain(value):
    """Return a value as JSON has it; floats keep every digit."""
    if isinstance(value, torch.Tensor):
        return value.detach().double().flatten().tolist()
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
