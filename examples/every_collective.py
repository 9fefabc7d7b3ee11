"""Every collective and every reduction on live ranks, over the backend "meshwright".

    python examples/every_collective.py [RANKS]

You see what each rank holds before and after each of them; rank 0 prints for all.
"""

import sys
import tempfile
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import meshwright  # noqa: F401  (makes the backend known)

REDUCTIONS = {"sum": dist.ReduceOp.SUM, "average": dist.ReduceOp.AVG, "minimum": dist.ReduceOp.MIN,
              "maximum": dist.ReduceOp.MAX, "product": dist.ReduceOp.PRODUCT}  # fmt: skip


def main() -> None:
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as meeting:
        mp.start_processes(run, args=(ranks, f"{meeting}/store"), nprocs=ranks, start_method="fork")


def run(rank: int, ranks: int, store: str) -> None:
    dist.init_process_group("meshwright", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    one = torch.tensor([rank + 1.0])
    many = torch.arange(ranks) + 10.0 * (rank + 1)  # one element for each rank

    def show(name: str, before: torch.Tensor, call: Callable[[], torch.Tensor]) -> None:
        held = [None] * ranks
        dist.all_gather_object(held, (before.tolist(), call().tolist()))
        if rank == 0:
            print(f"{name:<20} " + "   ".join(f"{old} -> {new}" for old, new in held))

    def within(tensor: torch.Tensor, call: Callable[[torch.Tensor], object]) -> torch.Tensor:
        changed = tensor.clone()
        call(changed)
        return changed

    def into(size: int, call: Callable[[torch.Tensor], object]) -> torch.Tensor:
        return within(torch.zeros(size), call)

    for name, operator in REDUCTIONS.items():
        show(f"all-reduce, {name}", one, lambda op=operator: within(one, lambda t: dist.all_reduce(t, op)))
    show("reduce to rank 0", one, lambda: within(one, lambda t: dist.reduce(t, 0)))
    show("broadcast of rank 0", one, lambda: within(one, lambda t: dist.broadcast(t, 0)))
    show("all-gather", one, lambda: into(ranks, lambda t: dist.all_gather(list(t.split(1)), one)))
    show("reduce-scatter", many, lambda: into(1, lambda t: dist.reduce_scatter(t, list(many.split(1)))))
    show("all-to-all", many, lambda: into(ranks, lambda t: dist.all_to_all_single(t, many)))
    show("gather at rank 0", one, lambda: into(ranks, lambda t: gather(t, one, rank)))
    show("scatter of rank 0", many, lambda: into(1, lambda t: scatter(t, many, rank)))
    show("to the next rank", one, lambda: into(1, lambda t: shift(t, one, rank, ranks)))
    dist.barrier()
    if rank == 0:
        print("barrier: every rank has arrived")
    dist.destroy_process_group()


def gather(parts: torch.Tensor, mine: torch.Tensor, rank: int) -> None:
    dist.gather(mine, list(parts.split(1)) if rank == 0 else None, dst=0)


def scatter(part: torch.Tensor, all_parts: torch.Tensor, rank: int) -> None:
    dist.scatter(part, list(all_parts.split(1)) if rank == 0 else None, src=0)


def shift(received: torch.Tensor, sent: torch.Tensor, rank: int, ranks: int) -> None:
    ops = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, received, (rank - 1) % ranks)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


if __name__ == "__main__":
    main()
