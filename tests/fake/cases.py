"""What ranks do on the fake device; run in processes of their own, which know the device from then on."""

from typing import Any

import torch
import torch.distributed as dist

from meshwright import device as devices
from meshwright.layout import Layout
from tests.fake import load
from tests.multiproc.parallel import parity


def joined(rank: int, world_size: int, store: dist.Store) -> torch.device:
    """Return this rank's device, over whose backend it has joined the others."""
    load()
    device = devices.of_rank(rank, "fakeccl")
    assert device == torch.device("fakegpu", rank)
    devices.set_current(device)
    if world_size > 1:
        dist.init_process_group("fakeccl", rank=rank, world_size=world_size, store=store)
    return device


def parts(rank: int, world_size: int, store: dist.Store, layout: str, changes: dict[str, Any]) -> Any:
    """Return what some steps in float64 make of a model under a layout, as `parity.run` does on the CPU."""
    device = joined(rank, world_size, store)
    return parity.train(Layout.parse(layout), parity.small_model(**changes), device, rank)


def mixed(rank: int, world_size: int, store: dist.Store) -> str:
    """Return how a call on tensors of the device and of the host ends."""
    load()
    try:
        torch.mm(torch.ones(2, 2, device="fakegpu"), torch.ones(2, 2))
    except RuntimeError as error:
        return str(error)
    return ""
