"""Ranks on this host that may die, stall and fail: a process each, and what each sent back."""

import functools
import multiprocessing
import os
import time
from datetime import timedelta

import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from meshwright.backend.group.futures import load_futures
from meshwright.backend.group.native_calls import load_calls
from meshwright.backend.wire.stream import load_stream

START_S = 100.0  # for all ranks to start on a busy machine, before a limit of their own holds


def rank_main(function, rank, world_size, path, pipe, environment, arguments):
    os.environ.update(environment)
    dist.set_debug_level_from_env()  # torch read the environment when the server of these forks imported it
    limit_s = float(environment.get("TIMEOUT_S", "30"))
    start = time.monotonic()
    try:
        dist.init_process_group(
            "meshwright",
            store=dist.FileStore(path, world_size),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=max(limit_s, START_S)),
        )
        dist.barrier()
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=limit_s))
        start = time.monotonic()
        pipe.send(("fine", function(rank, world_size, *arguments), time.monotonic() - start))
    except Exception as error:
        pipe.send((type(error).__name__, str(error), time.monotonic() - start))


PATIENCE_S = 120.0  # with a rank on a busy machine


@functools.cache
def build():
    """Build what is built once a machine, so that no rank with a short time limit waits for a compiler."""
    load_futures()
    load_calls()
    load_stream()


def launch(function, world_size, tmp_path, *arguments, silent=(), per_host=None, **environment):
    """Run `function` on fresh ranks; return for each what it sent, or None if it died or is one of the `silent`."""
    build()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", "meshwright.bench.ranks.pool"])
    processes, pipes = [], []
    for rank in range(world_size):
        ours, theirs = context.Pipe(duplex=False)
        settings = environment | ({"MESHWRIGHT_HOST": f"host{rank // per_host}"} if per_host else {})
        target = (function, rank, world_size, str(tmp_path / "store"), theirs, settings, arguments)
        process = context.Process(target=rank_main, args=target, daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    answers = []
    for rank, pipe in enumerate(pipes):
        try:
            answers.append(pipe.recv() if rank not in silent and pipe.poll(PATIENCE_S) else None)
        except EOFError:
            answers.append(None)
    for process in processes:
        process.kill()
        process.join()
    return answers
