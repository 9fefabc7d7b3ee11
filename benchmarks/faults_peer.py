"""The peer of the benchmark of faults: DDP over Gloo with DCP checkpoints, as PyTorch's documentation shows them.

Run by torchrun. Arguments: the folder, steps, steps between checkpoints, the group's timeout in seconds, and the width
of the model. Writes one line a step (its number, how long it took, its loss), and what an exception said when a
collective failed.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train a small model, resuming from the last checkpoint that DCP calls complete."""
    folder, steps, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[4])))
    rank = dist.get_rank()
    torch.manual_seed(0)
    width = int(sys.argv[5]) if len(sys.argv) > 5 else 64
    module = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8)))
    optimizer = torch.optim.AdamW(module.parameters())
    model = DistributedDataParallel(module)
    (folder / f"pid-{rank}.json").write_text(json.dumps(os.getpid()))
    first = 0
    saved = sorted(folder.glob("step-*/.metadata"))
    if saved:
        state = dict(zip(("model", "optimizer"), get_state_dict(module, optimizer), strict=True))
        dcp.load(state, checkpoint_id=saved[-1].parent)
        set_state_dict(module, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        first = int(saved[-1].parent.name[5:])
    try:
        for step in range(first, steps):
            start = time.perf_counter()
            generator = torch.Generator().manual_seed(step * 1000 + rank)
            loss = model(torch.randn(32, width, generator=generator)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                with (folder / "steps").open("a") as file:
                    file.write(f"{step} {time.perf_counter() - start} {loss.item()!r}\n")
            if (step + 1) % every == 0:
                state = dict(zip(("model", "optimizer"), get_state_dict(module, optimizer), strict=True))
                dcp.save(state, checkpoint_id=folder / f"step-{step + 1:08d}")
    except RuntimeError as error:
        event = {"time_s": time.time(), "message": str(error)}
        (folder / f"said-{rank}.json").write_text(json.dumps(event))
        raise
    dist.barrier()  # Gloo's threads let go of the last tensors: one that still does when its group ends waits for ever
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
