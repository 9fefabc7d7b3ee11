"""Trains a model in replicas of torchft, one rank each, whose groups are made anew after one of them reports an error.

Argument: a backend. torchft makes its groups itself; ours is one more of its wrappers.
"""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from reporting import report
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.process_group import ProcessGroupWrapper

STEPS, LIMIT = 6, timedelta(seconds=60)


class ProcessGroupMeshwright(ProcessGroupWrapper):
    """Groups of "meshwright" that torchft makes anew when replicas come and go."""

    def _create_pg(self, store, rank, world_size):
        from meshwright.backend.group.create import make_group

        return make_group(store, rank, world_size, self._timeout)

    def getBackendName(self):
        return "torchft-meshwright"


def lighthouse_address(rank, ranks):
    """Return the address of the one server that says which replicas there are, and the server on rank 0."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    server = None
    if rank == 0:
        server = LighthouseServer(bind="127.0.0.1:0", min_replicas=ranks, join_timeout_ms=1000)
        store.set("lighthouse", f"http://localhost:{server.address().rpartition(':')[2]}")
    return store.get("lighthouse").decode(), server, store


rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, server, meeting = lighthouse_address(rank, ranks)
own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # of this replica
torch.manual_seed(rank)  # the first step takes the state of one replica to all
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)).double()
sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def state():
    return {"model": model.state_dict(), "sgd": sgd.state_dict()}


def take(given):
    model.load_state_dict(given["model"])
    sgd.load_state_dict(given["sgd"])


manager = Manager(
    pg={"gloo": ProcessGroupGloo, "meshwright": ProcessGroupMeshwright}[sys.argv[1]](timeout=LIMIT),
    load_state_dict=take, state_dict=state, min_replica_size=ranks, use_async_quorum=False, timeout=LIMIT,
    rank=0, world_size=1, store_addr="127.0.0.1", store_port=own.port, lighthouse_addr=address,
    replica_id=f"replica{rank}", hostname="localhost",
)  # fmt: skip
module, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, sgd)
committed, has_failed = [], False
while manager.current_step() < STEPS:
    optimizer.zero_grad()
    step = manager.current_step()
    torch.manual_seed(1000 * step + rank)
    loss = module(torch.randn(5, 8, dtype=torch.float64)).square().mean()
    loss.backward()
    if step == STEPS // 2 and rank == ranks - 1 and not has_failed:
        manager.report_error(RuntimeError("so that nobody takes this step"))
        has_failed = True
    optimizer.step()
    committed.append(manager.current_step())
report(
    rank, committed=committed, replicas=manager.num_participants(),
    weights=[parameter.detach() for parameter in model.parameters()],
)  # fmt: skip
meeting.set(f"done/{rank}", "")
for peer in range(ranks):
    meeting.get(f"done/{peer}")  # the lighthouse lives until all are done
manager.shutdown()
