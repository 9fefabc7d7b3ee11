"""A peer of the campaign: replicas of torchft, one rank each, over Gloo, with DCP checkpoints.

Run once on each node, with the arguments of `faults_peer.py`, the ranks of a node, and how often one is started again.
It starts a program for each rank of its node, again when one fails, as torchrun does for a replica; node 0 has the
lighthouse too, which says which replicas there are. Replicas that lose one go on without it, and take it in again with
the state of another.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

PORT = 29510
JOIN_S = 1.0  # for replicas to come to a quorum


def node(ranks_per_node: int, restarts: int) -> int:
    """Keep the ranks of this node running until all have ended well, or one has failed too often."""
    from torchft.coordination import LighthouseServer  # of the extra "clients"

    number = int(os.environ["NODE_RANK"])
    where = f"http://{os.environ['MASTER_ADDR']}:{PORT}"
    lighthouse = None
    if number == 0:
        lighthouse = LighthouseServer(bind=f"0.0.0.0:{PORT}", min_replicas=1, join_timeout_ms=int(JOIN_S * 1000))
    codes: dict[int, int] = {}

    def keep(rank: int) -> None:
        for _ in range(restarts + 1):
            known = {**os.environ, "RANK": str(rank), "TORCHFT_LIGHTHOUSE": where, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, __file__, "rank", *sys.argv[1:]]
            with subprocess.Popen(command, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                for line in process.stdout or ():  # whole: two ranks that write to one place cut each other's lines
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()
            codes[rank] = process.returncode
            if codes[rank] == 0:
                return

    ranks = range(number * ranks_per_node, (number + 1) * ranks_per_node)
    keepers = [threading.Thread(target=keep, args=(rank,)) for rank in ranks]
    for keeper in keepers:
        keeper.start()
    for keeper in keepers:
        keeper.join()
    if lighthouse is not None:
        lighthouse.shutdown()
    return max(abs(code) for code in codes.values())


def train(folder: Path, steps: int, every: int, timeout: timedelta, width: int) -> None:
    """Train a replica, from the newest checkpoint or from the state that another replica has."""
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    module = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8)))
    adamw = torch.optim.AdamW(module.parameters())

    def state() -> dict[str, Any]:
        return dict(zip(("model", "optimizer"), get_state_dict(module, adamw), strict=True))

    def take(given: dict[str, Any]) -> None:
        set_state_dict(module, adamw, model_state_dict=given["model"], optim_state_dict=given["optimizer"])

    address = own_address()
    own = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)  # of this replica
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout),
        load_state_dict=take,
        state_dict=state,
        min_replica_size=1,
        timeout=timeout,
        quorum_timeout=timeout,
        connect_timeout=timeout,
        rank=0,
        world_size=1,
        store_addr=address,
        store_port=own.port,
        hostname=address,
        replica_id=f"replica{rank}_",
    )
    model, optimizer = DistributedDataParallel(manager, module), Optimizer(manager, adamw)
    (folder / f"pid-{rank}.json").write_text(json.dumps(os.getpid()))
    saved = sorted(folder.glob("step-*/.metadata"))
    if saved:
        given = {**state(), "torchft": manager.state_dict()}
        dcp.load(given, checkpoint_id=saved[-1].parent, no_dist=True)
        take(given)
        manager.load_state_dict(given["torchft"])
    while manager.current_step() < steps:
        start, step = time.perf_counter(), manager.current_step()
        optimizer.zero_grad()
        place = manager.participating_rank() or 0
        generator = torch.Generator().manual_seed(manager.current_step() * 1000 + place)
        loss = model(torch.randn(32, width, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        if manager.participating_rank() != 0 or manager.current_step() == step:
            continue  # the step was not taken, or another replica writes it down
        with (folder / "steps").open("a") as file:
            file.write(f"{step} {time.perf_counter() - start} {loss.item()!r}\n")
        if manager.current_step() % every == 0:
            given = {**state(), "torchft": manager.state_dict()}
            dcp.save(given, checkpoint_id=folder / f"step-{manager.current_step():08d}", no_dist=True)
    manager.shutdown()


def own_address() -> str:
    """Return the address of this node by which the lighthouse's node is reached."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], PORT))
        return str(probe.getsockname()[0])


if __name__ == "__main__":
    if sys.argv[1] == "rank":
        folder, steps, every, timeout_s, width = sys.argv[2:7]
        train(Path(folder), int(steps), int(every), timedelta(seconds=float(timeout_s)), int(width))
    else:
        sys.exit(node(*map(int, sys.argv[6:8])))
