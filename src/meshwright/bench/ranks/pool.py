"""Pools of live ranks: processes that are started once and run many functions, for calibration and for tests.

`pool.run(function, *arguments)` calls `function(rank, world_size, store, *arguments)` on every rank at once and
returns the results in the order of the ranks. `store` is a fresh `torch.distributed` FileStore of that call. The
function must be importable (top level of a module). The ranks are forked from a server that has torch loaded, so
that eight of them start in half a second. Functions and results are pickled on a private pipe between processes of
ours; nothing from a file or a socket is.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.forkserver import _forkserver, ensure_running
from pathlib import Path
from typing import Any, cast

from ...errors import InputError, MeshwrightError
from ...temporary import process_folder
from .job_signals import JOB_SIGNALS, signals_deferred

LOOK_S = 0.25  # between two looks whether ranks that have not answered get on
AFTER_FAILURE_S = 5.0  # for the other ranks to answer, once one has failed
PRELOAD = ("meshwright.bench.ranks.forkserver_preload", "torch", "torch.distributed", "meshwright.bench.ranks.pool")


def start_fork_server(*modules: str) -> None:
    """Start the server that ranks are forked from, with torch and `modules` loaded, if there is none yet.

    It ignores the signals that a terminal or a scheduler sends to all processes (`forkserver_preload`), and so do the
    processes that it forks unless they set handlers of their own: their owner ends them, without a traceback from each.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload([*PRELOAD, *modules])
    process_folder()  # for the server's socket
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, JOB_SIGNALS
    )  # inherited; what comes meanwhile is heard afterwards
    try:
        ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def let_fork_server_end() -> None:
    """Let the server that has forked this process end with the process that started it.

    Every process that it forks holds a pipe by which the server lives on: one that somebody has stopped (SIGSTOP) would
    keep the server for good, and with it the parent at whose end the kernel lets it go on. Python has no public way.
    """
    alive, _forkserver._forkserver_alive_fd = _forkserver._forkserver_alive_fd, None  # type: ignore[attr-defined]
    if alive is not None:
        os.close(alive)


class RankFailedError(MeshwrightError):
    """A rank of a pool raised or did not answer; the message carries its traceback."""


class RanksSilentError(RankFailedError):
    """Ranks did not answer in time, and none failed."""


class RankPool:
    """`world_size` processes that wait for functions to run; a context manager that ends them."""

    def __init__(self, world_size: int) -> None:
        context = multiprocessing.get_context("forkserver")
        start_fork_server()
        self.world_size = world_size
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for rank in range(world_size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, world_size, theirs, list(sys.path)), daemon=True)
            with signals_deferred():  # a rank that is forked and not told what to run would say so in a traceback
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> "RankPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether every rank is there to run the next function."""
        return all(process.is_alive() for process in self._processes)

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        timeout_s: float = 200.0,
        gets_on: Callable[[], bool] = lambda: False,
    ) -> list[Any]:
        """Run `function` on every rank; raise RankFailedError with the tracebacks of the ranks that failed.

        InputError where nothing but bad input ended them. A failure ends the wait for the others, which may wait for
        that rank, within `AFTER_FAILURE_S`.

        `gets_on` is asked a few times a second; each time that it says yes, the ranks have `timeout_s` again.
        """
        with tempfile.TemporaryDirectory(dir=process_folder()) as folder:
            job = (function.__module__, function.__qualname__, str(Path(folder) / "store"), arguments)
            for pipe in self._pipes:
                with contextlib.suppress(BrokenPipeError):  # of a rank that has died: its answer is its end
                    pipe.send(job)
            answers = self._answers(timeout_s, gets_on)
        failures = {rank: value for rank, (ok, value) in sorted(answers.items()) if not ok}
        refusals = [refusal for refusal, _ in failures.values() if refusal is not None]
        silent = [rank for rank in range(self.world_size) if rank not in answers]
        if silent or not all(process.is_alive() for process in self._processes):
            self.close()
        if failures and len(refusals) == len(failures):
            raise refusals[0]
        told = [f"rank {rank}: {text}" for rank, (_, text) in failures.items()]
        limit = f"{AFTER_FAILURE_S:g} s after that" if failures else f"{timeout_s:g} s"
        told += [f"rank {rank} did not answer within {limit}" for rank in silent]
        if told:
            raise (RankFailedError if failures else RanksSilentError)("\n".join(told))
        return [answers[rank][1] for rank in range(self.world_size)]

    def _answers(self, timeout_s: float, gets_on: Callable[[], bool]) -> dict[int, tuple[bool, Any]]:
        """Return, by rank, whether the function returned there, and what it returned or how it failed.

        Ranks that do not answer in time are left out.
        """
        waiting = {pipe: rank for rank, pipe in enumerate(self._pipes)}
        answers: dict[int, tuple[bool, Any]] = {}
        has_failed = False
        end_s = time.monotonic() + timeout_s
        while waiting and (left_s := end_s - time.monotonic()) > 0:
            for pipe in connection.wait(list(waiting), min(LOOK_S, left_s)):
                rank = waiting.pop(cast(Connection, pipe))
                answers[rank] = self._answer_of(rank)
                if not answers[rank][0] and not has_failed:
                    has_failed, end_s = True, time.monotonic() + AFTER_FAILURE_S
            if not has_failed and gets_on():
                end_s = time.monotonic() + timeout_s
        return answers

    def _answer_of(self, rank: int) -> tuple[bool, Any]:
        """Return the answer of a rank that has answered, or has died."""
        try:
            ok, value = self._pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            process = self._processes[rank]
            process.join()
            return False, (None, f"its process has ended (exit code {process.exitcode})")
        return ok, value

    def close(self) -> None:
        """End the ranks; a later `rank_pool` fixture starts new ones."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=1)
            if process.is_alive():
                process.kill()
                process.join()


def _told(error: BaseException) -> tuple[InputError | None, str]:
    """Return an error for the owner of the pool: the InputError if it is one, and its message with its traceback."""
    said = "".join(traceback.format_exception_only(error)).strip()
    refusal = InputError(str(error)) if isinstance(error, InputError) else None
    return refusal, f"{said}\n{''.join(traceback.format_exception(error))}"


def _serve(rank: int, world_size: int, pipe: Connection, path: list[str]) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed import FileStore

    sys.path[:] = path
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):  # the owner has ended, in whatever moment
        while True:
            module, name, store_path, arguments = pipe.recv()
            try:
                function: Any = importlib.import_module(module)
                for part in name.split("."):
                    function = getattr(function, part)
                store = FileStore(store_path, world_size)
                pipe.send((True, function(rank, world_size, store, *arguments)))
            except BaseException as error:
                pipe.send((False, _told(error)))
            finally:
                if dist.is_initialized():
                    with contextlib.suppress(Exception):
                        dist.destroy_process_group()
    os._exit(0)
