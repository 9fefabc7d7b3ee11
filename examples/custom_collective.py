"""Verify, draw, race and train with the all-reduce of two_way_ring.py.

    python examples/custom_collective.py [RANKS]

You see the proof, the drawing, the price beside that of our algorithms, times on live ranks of this machine, and the
losses of a model under DistributedDataParallel whose gradients it sums: they are those of plain DDP.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from meshwright.backend.wire.executor import Executor
from meshwright.backend.wire.transport_shm import SharedMemoryTransport
from meshwright.collectives.catalogue import build_schedule
from meshwright.collectives.pricing.network import uniform
from meshwright.collectives.pricing.price import price_schedule
from meshwright.collectives.proof.verify import verify
from meshwright.collectives.schedules.draw import draw_text
from meshwright.collectives.schedules.schedule import Schedule

sys.path.insert(0, str(Path(__file__).parent))
from two_way_ring import two_way_ring

MIB = 2**20


def main() -> None:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    schedules = [
        two_way_ring(ranks),
        build_schedule("all_reduce", "ring", ranks),
        build_schedule("all_reduce", "tree", ranks),
    ]
    print(f"proved: {verify(schedules[0])}\n\n{draw_text(schedules[0])}")
    net = uniform(ranks, latency_s=5e-6, bandwidth_bytes_per_s=10e9)
    for schedule in schedules:
        time_us = price_schedule(schedule, net, 4 * MIB).time_s * 1e6
        print(f"price of {schedule.name:<13} 4 MiB over 10 GB/s links: {time_us:.0f} us")
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(rank_main, args=(ranks, f"{folder}/store", schedules), nprocs=ranks, start_method="fork")


def rank_main(rank: int, ranks: int, path: str, schedules: list[Schedule]) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(path, ranks)
    dist.init_process_group("gloo", store=dist.PrefixStore("gloo", store), rank=rank, world_size=ranks)
    executor = Executor(SharedMemoryTransport(store, rank, ranks, timeout_s=60))
    for schedule in schedules:
        time_s = race(executor, schedule)
        if rank == 0:
            print(f"time of {schedule.name:<14} 4 MiB on {ranks} ranks, shared memory: {time_s * 1e3:.2f} ms")
    plain, ours = train(rank, None, schedules[0]), train(rank, executor, schedules[0])
    if rank == 0:
        print(f"losses under plain DDP:        {' '.join(f'{loss:.6f}' for loss in plain)}")
        print(f"losses under DDP with our own: {' '.join(f'{loss:.6f}' for loss in ours)}")
        assert torch.allclose(torch.tensor(plain), torch.tensor(ours), rtol=1e-5)
    executor.transport.close()
    dist.destroy_process_group()


def race(executor: Executor, schedule: Schedule) -> float:
    data, times = torch.rand(MIB), []
    for _ in range(10):
        dist.barrier()
        start = time.perf_counter()
        executor.all_reduce(data, schedule, "avg")
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def train(rank: int, executor: Executor | None, schedule: Schedule) -> list[float]:
    """Train a small model for five steps; with an executor, it averages the gradients instead of the process group."""
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    )
    if executor is not None:

        def average(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            executor.all_reduce(bucket.buffer(), schedule, "avg")
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        model.register_comm_hook(None, average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank + 1)
    losses = []
    for _ in range(5):
        x = torch.randn(16, 32)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / dist.get_world_size())
    return losses


if __name__ == "__main__":
    main()
