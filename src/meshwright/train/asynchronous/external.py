"""An asynchronous run under torchrun, srun or `meshwright emulate`: each rank is a worker, and some start servers.

Server i runs on node i: rank 0 of that node starts it. The launcher's process group is only used to meet; a rank that
dies later leaves the others training, unless the launcher stops them, as torchrun does.
"""

import signal
from datetime import timedelta

import torch.distributed as dist

from ...backend.hosts.addresses import network_address
from ...bench.ranks.pool import start_fork_server
from ...errors import InputError, MeshwrightError
from ..job.environment import Place
from ..run.run_folder import RunFolder
from . import meeting
from .processes import server_main, work_for_run
from .supervisor import Child

CLEARED = "meshwright/asynchronous"  # in the store, once nothing of an earlier start is left


def take_part(folder: RunFolder, place: Place) -> str:
    """Train as one rank of a launched run; return "" or what stopped it. All ranks, in their process group."""
    config = folder.config()
    settings = config.data_parallel
    if place.world_size > 1:
        store = dist.distributed_c10d._get_default_store()
        if place.rank == 0:
            meeting.forget_servers(folder.servers)
            store.set(CLEARED, "")
        else:
            store.wait([CLEARED], timedelta(seconds=config.launch.timeout_s))
        dist.destroy_process_group()  # `store` lives on until this rank leaves
    else:
        meeting.forget_servers(folder.servers)
    nodes = place.world_size // place.local_world_size
    if settings.servers > nodes:
        raise InputError(f"data_parallel.servers: {settings.servers}, but there are {nodes} nodes to run one each")
    node = place.rank // place.local_world_size
    server = None
    if place.local_rank == 0 and node < settings.servers:
        start_fork_server("meshwright.train.asynchronous.processes")
        server = Child(f"server {node}", server_main, str(folder.path), node, network_address() or "127.0.0.1")
        server.hear_beside()
        if node == 0:
            signal.signal(signal.SIGTERM, lambda *_: server.process.terminate())
    try:
        work_for_run(folder, place.rank, str(folder.servers / f"island-{place.rank // settings.island}"))
        return "" if server is None else _wait(server, is_first=node == 0)
    finally:
        if server is not None:
            server.end()


def _wait(server: Child, *, is_first: bool) -> str:
    """Wait for the first server to end the run, or end another one; return "" or what stopped the run."""
    if not is_first:
        server.process.terminate()
    ended = server.wait()
    if ended.error:
        raise (InputError if ended.is_input else MeshwrightError)(ended.error)
    return ended.stopped
