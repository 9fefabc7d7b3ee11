"""DistributedDataParallel on the backend "meshwright": only the name of the backend changes.

    python examples/ddp_on_backend.py [RANKS]

You see the losses of a small model on Gloo and on meshwright, which agree, and the median time of a step on each.
"""

import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import meshwright  # noqa: F401  makes the backend known to torch

STEPS = 20


def main() -> None:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(rank_main, args=(ranks, folder), nprocs=ranks, start_method="fork")


def rank_main(rank: int, ranks: int, folder: str) -> None:
    torch.set_num_threads(1)
    found = {backend: train(backend, rank, ranks, folder) for backend in ("gloo", "meshwright")}
    if rank == 0:
        for backend, (losses, step_s) in found.items():
            shown = " ".join(f"{loss:.6f}" for loss in losses[::5])
            print(f"{backend:<11} losses {shown}   {step_s * 1e3:.1f} ms a step")
        assert torch.allclose(*(torch.tensor(losses) for losses, _ in found.values()), rtol=1e-5)


def train(backend: str, rank: int, ranks: int, folder: str) -> tuple[list[float], float]:
    store = dist.FileStore(f"{folder}/{backend}", ranks)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank + 1)
    losses, times = [], []
    for _ in range(STEPS):
        begun = time.perf_counter()
        x = torch.randn(32, 256)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - begun)
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / ranks)
    dist.destroy_process_group()
    return losses, statistics.median(times)


if __name__ == "__main__":
    main()
