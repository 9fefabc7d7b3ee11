"""The supervisor of an asynchronous run on this machine: one process a server, one a rank, and nobody is a group.

A worker that dies is started again and joins in; the others are not told. One that hangs has been let go by the
coordinator: it gets some seconds to wake up, then it is killed and started again. Ranks of an island live and die
together. A server that dies ends the run, which goes on from its last checkpoint.
"""

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import connection
from pathlib import Path
from types import FrameType

import msgspec

from ...bench.ranks.pool import start_fork_server
from ...errors import InputError, MeshwrightError
from ...temporary import process_folder
from ..checkpoint.folder import latest_checkpoint
from ..elastic.surroundings import handlers_kept, stop_signals
from ..run.events import Event, EventLog
from ..run.run_folder import RunFolder
from . import meeting
from .processes import Arrival, Ended, Notice, server_main, worker_main

WAKE_S = 5.0  # for a worker that was let go to be heard again, before it is killed
STOP_S = 30.0  # for the servers to save when the run is stopped
LOOK_S = 0.5


class Child:
    """One process that was started, with the pipe by which it tells."""

    def __init__(self, name: str, target: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("forkserver")
        self.pipe, theirs = context.Pipe(duplex=False)
        self.name = name
        self.process = context.Process(target=target, args=(*arguments, theirs, os.getpid()))
        self.process.start()
        theirs.close()
        self.ended = Ended()
        self._hearing: threading.Thread | None = None

    def notices(self) -> Iterator[Notice]:
        """Return what it has told since the last call."""
        with contextlib.suppress(EOFError, OSError):
            while self.pipe.poll():
                yield self._heard()

    def hear_beside(self) -> None:
        """Hear what it tells on a thread of its own, where nobody asks for its notices: a full pipe would stop it."""
        self._hearing = threading.Thread(target=self._hear_out, name="notices", daemon=True)
        self._hearing.start()

    def wait(self) -> Ended:
        """Wait until it has ended, heard beside; return what it told last."""
        self.process.join()
        if self._hearing is not None:
            self._hearing.join()
        return self.ended

    def _hear_out(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._heard()

    def _heard(self) -> Notice:
        notice: Notice = msgspec.json.decode(self.pipe.recv_bytes(), type=Notice)
        if isinstance(notice, Ended):
            self.ended = notice
        return notice

    def end(self, grace_s: float = 0.0) -> None:
        """End it: with SIGTERM, and with SIGKILL after `grace_s`."""
        if grace_s:
            self.process.terminate()
            self.process.join(grace_s)
        if self.process.is_alive():
            self.process.kill()
        self.wait()
        self.pipe.close()

    def why(self) -> str:
        """Return why it ended."""
        code = self.process.exitcode
        if self.ended.error:
            return self.ended.error
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


class RunSupervisor:
    """Starts and restarts the processes of one run."""

    def __init__(self, folder: RunFolder, stores: Path) -> None:
        self.folder, self._stores = folder, stores
        self.config, self.plan = folder.config(), folder.plan()
        self.events = EventLog(folder.events, None)
        self.events.keep_room()
        self.servers: list[Child] = []
        self.workers: dict[int, Child] = {}  # by rank
        self._restarts: dict[int, int] = {}  # by island
        self._starts = 0
        self._let_go_s: dict[int, float] = {}  # by pid: when a worker that is not heard was let go
        self._stopping = self._is_over = False
        self.first_error = Ended()

    def start(self) -> None:
        """Start servers and workers."""
        meeting.forget_servers(self.folder.servers)
        run_dir, settings = str(self.folder.path), self.config.data_parallel
        for i in range(settings.servers):
            self.servers.append(Child(f"server {i}", server_main, run_dir, i, "127.0.0.1"))
        for island in range(self.plan.layout.dp // settings.island):
            self._start_island(island)

    def run(self) -> str:
        """Watch until the first server has ended; return "" or what stopped the run. Raises what it failed with."""
        first = self.servers[0]
        while first.process.is_alive():
            connection.wait([child.process.sentinel for child in self._alive()] + [first.pipe], timeout=LOOK_S)
            for server in self.servers:
                self._heed(server)
            self._kill_silent()
            for rank in [rank for rank, child in self.workers.items() if not child.process.is_alive()]:
                self._ended(rank)
            dead = next((server for server in self.servers[1:] if not server.process.is_alive()), None)
            if dead is not None:
                list(dead.notices())
                raise MeshwrightError(f"{dead.name} has ended ({dead.why()}); {self._go_on()}")
            if not self.workers and not self._is_over:
                error = self.first_error
                raise (InputError if error.is_input else MeshwrightError)(error.error or "every worker has died")
        self._heed(first)
        if first.ended.error:
            raise (InputError if first.ended.is_input else MeshwrightError)(first.ended.error)
        if first.process.exitcode:
            raise MeshwrightError(f"{first.name} has ended ({first.why()}); {self._go_on()}")
        return first.ended.stopped

    def stop(self, _: int, __: FrameType | None) -> None:
        """End the run after what is under way, and save it; a second signal, or one before the start, at once."""
        if self._stopping or not self.servers:
            raise KeyboardInterrupt
        self._stopping = True
        self.servers[0].process.terminate()

    def close(self) -> None:
        """End whatever still runs."""
        for child in self.workers.values():
            child.process.join(2.0 if self.servers and not self.servers[0].process.is_alive() else 0)
            child.end()
        for server in reversed(self.servers):
            server.end(STOP_S if server.process.is_alive() else 0.0)

    def _start_island(self, island: int) -> None:
        size = self.config.data_parallel.island
        self._starts += 1
        store = str(self._stores / str(self._starts))  # a restarted island meets anew
        for rank in range(island * size, (island + 1) * size):
            self.workers[rank] = Child(f"rank {rank}", worker_main, str(self.folder.path), rank, store)

    def _alive(self) -> list[Child]:
        return [*self.servers, *self.workers.values()]

    def _heed(self, server: Child) -> None:
        for notice in server.notices():
            if isinstance(notice, Arrival):
                self._let_go_s.pop(notice.pid, None)
                if notice.silent:
                    self._let_go_s[notice.pid] = time.monotonic()

    def _kill_silent(self) -> None:
        now = time.monotonic()
        for child in self.workers.values():
            pid = child.process.pid
            if pid in self._let_go_s and now - self._let_go_s[pid] > WAKE_S:
                del self._let_go_s[pid]
                child.process.kill()

    def _ended(self, rank: int) -> None:
        """Start the island of a rank that has ended again, unless its work is done or it dies too often."""
        child = self.workers[rank]
        list(child.notices())
        if child.process.exitcode == 0:
            child.end()
            del self.workers[rank]
            self._is_over = True  # it was told that nothing is left to do
            return
        if child.ended.error and not self.first_error.error:
            self.first_error = child.ended
        island = rank // self.config.data_parallel.island
        self._restarts[island] = self._restarts.get(island, 0) + 1
        again = self._restarts[island] <= self.config.launch.max_restarts and not child.ended.is_input
        goes_on = again and not self._stopping and self.servers[0].process.is_alive()
        self.events.record(
            Event(
                kind="restart" if goes_on else "failure",
                message=f"rank {rank} has ended ({child.why()})" + ("; it is started again" if goes_on else ""),
                culprit=rank,
            )
        )
        size = self.config.data_parallel.island
        for other in range(island * size, (island + 1) * size):
            if other in self.workers:
                self.workers.pop(other).end()
        if goes_on:
            self._start_island(island)

    def _go_on(self) -> str:
        saved = latest_checkpoint(self.folder.checkpoints)
        return f"--resume {self.folder.path} goes on from {saved.name}" if saved else "nothing had been saved"


def supervise(run_dir: str) -> str:
    """Run the job of a run folder on this machine; return "" or what stopped it. Blocks until all processes have ended.

    Raises InputError or MeshwrightError with the one line of what went wrong.
    """
    start_fork_server("meshwright.train.asynchronous.processes")
    with tempfile.TemporaryDirectory(dir=process_folder()) as stores:
        supervisor = RunSupervisor(RunFolder(Path(run_dir)), Path(stores))
        try:
            with handlers_kept():
                for signum in stop_signals():
                    signal.signal(signum, supervisor.stop)
                supervisor.start()
                return supervisor.run()
        finally:
            supervisor.close()
