"""The processes of a run: what a server and a worker do from start to end, and what they tell their parent.

Notices go through a pipe to the parent, as JSON: nothing is pickled. A process does not outlive its parent.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import torch
import torch._dynamo  # the first optimiser imports it, for seconds: not while others listen for heartbeats
import torch.distributed as dist

from ...bench.ranks.pool import let_fork_server_end
from ...bench.ranks.process import prepare_process
from ...cluster.discovery.local import threads_per_rank
from ...cluster.doctor.stacks import listen
from ...cluster.emulation.linux import go_on_without_parent
from ...errors import InputError, MeshwrightError
from ...parallel.asynchronous.client import Client
from ...parallel.asynchronous.members import MemberChange
from ...parallel.asynchronous.worker import GradientWorker, Island, LocalWorker
from ..data.corpus import check_same_text, load_corpus
from ..elastic.surroundings import ignoring_stderr_errors
from ..run.run_folder import RunFolder
from .meeting import find_servers
from .serve import serve_run
from .task import JobTask
from .terms import worker_terms


class Arrival(msgspec.Struct, frozen=True, tag=True):
    """The coordinator reports that a worker came or went."""

    rank: int
    pid: int
    joined: bool
    silent: bool  # it left because it was not heard


class Ended(msgspec.Struct, frozen=True, tag=True):
    """A process is about to end: because of what stopped the run, or with an error."""

    stopped: str = ""
    error: str = ""
    is_input: bool = False  # the error is of the user's input


Notice = Arrival | Ended


def server_main(run_dir: str, server: int, host: str, pipe: Connection, parent: int) -> None:
    """Be a server; SIGTERM and SIGINT stop the run, which is saved."""
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Ctrl-C the parent hears too
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    _end_with(parent, stop.set)

    def notify(change: MemberChange) -> None:
        silent = not change.joined and change.reason.startswith("not heard")
        _tell(pipe, Arrival(change.rank, change.pid, change.joined, silent))

    with _reported(pipe):
        _tell(pipe, Ended(stopped=serve_run(run_dir, server, host, "", notify, stop)))


def worker_main(run_dir: str, rank: int, store: str, pipe: Connection, parent: int) -> None:
    """Be a worker, or a rank of an island whose ranks meet in the file `store`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with(parent, lambda: os._exit(1))
    with _reported(pipe):
        work_for_run(RunFolder(Path(run_dir)), rank, store)


def work_for_run(folder: RunFolder, rank: int, store: str) -> None:
    """Work for the run of a folder until it is over."""
    config, plan = folder.config(), folder.plan()
    settings = config.data_parallel
    prepare_process(threads_per_rank(plan.layout.dp))
    island_rank = rank % settings.island
    if settings.island > 1:
        backend = "gloo" if config.launch.backend == "gloo" else "meshwright"
        dist.init_process_group(
            backend, store=dist.FileStore(store, settings.island), rank=island_rank, world_size=settings.island
        )
    corpus = load_corpus(config.data)
    task = JobTask(config, plan, corpus, rank=rank, island_rank=island_rank, device=torch.device("cpu"))
    listen(folder.path, rank)
    folder.write_rank(rank)
    client = None
    try:
        found = find_servers(folder.servers, settings.servers, config.launch.timeout_s)
        check_same_text(corpus.content, found[0].corpus, who=f"rank {rank}", other="server 0")
        if island_rank == 0:
            client = Client([item.address for item in found], found[0].word, settings.silence_s)
        kind = LocalWorker if settings.is_local else GradientWorker
        kind(task, client, worker_terms(config, plan), rank=rank, island=Island()).run()
    finally:
        if client is not None:
            client.close()
        if dist.is_initialized():
            dist.destroy_process_group()


@contextlib.contextmanager
def _reported(pipe: Connection) -> Iterator[None]:
    """Tell the parent of an error that the body of a `with` raises, and end with its code."""
    try:
        with ignoring_stderr_errors():
            yield
    except Exception as error:
        text = str(error) if isinstance(error, MeshwrightError) else f"{type(error).__name__}: {error}"
        is_input = isinstance(error, InputError)
        _tell(pipe, Ended(error=" ".join(text.split()), is_input=is_input))
        sys.exit(2 if is_input else 1)


def _tell(pipe: Connection, notice: Notice) -> None:
    with contextlib.suppress(OSError):  # the parent has gone
        pipe.send_bytes(msgspec.json.encode(notice))


def _end_with(parent: int, end: Callable[[], None]) -> None:
    """Call `end` when the process `parent` has ended, also where somebody has stopped this one."""
    let_fork_server_end()
    go_on_without_parent()

    def watch() -> None:
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(parent)], [], [])
        end()

    threading.Thread(target=watch, daemon=True).start()
