"""The end of the ranks of one machine: what they wait for once they have returned, and how long a launcher waits.

torch lets the ranks that have returned wait on a `multiprocessing.Event`. Its `set` blocks until every waiting process
has woken, so a launcher hangs for ever once one of them has been killed; `join` blocks for ever on a rank that does
not leave. Here the ranks wait for the end of a pipe, which reaches every live rank; and one that keeps the others from
ending is ended, `timeout_s` after the first has returned or `LEAVE_S` after the last.

Underscored names of torch's multiprocessing are used here and nowhere else.
"""

import contextlib
import functools
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch.distributed.elastic.multiprocessing as elastic
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext, RunProcsResult

from ...bench.ranks.job_signals import signals_deferred
from ...temporary import process_folder

LEAVE_S = 60.0  # for a rank that has returned, and has been told that all have
AGAIN_S = 1.0  # between two signals to leave: a rank ignores what comes before it has set a handler


class Finished:
    """A mark that ranks wait for and their launcher sets; survives the death of either."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)
        self._then = then

    def __reduce__(self) -> tuple[Any, ...]:
        return _Waits, (self._reader,)  # a rank gets its own copy of this end, and nothing of the other

    def set(self) -> None:
        """Let the waiters go; once."""
        if not self._writer.closed:
            self._writer.close()
            self._then()


class _Waits:
    """The side of a rank."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def wait(self) -> None:
        """Block until it is set, or its setter has gone."""
        with contextlib.suppress(OSError):
            self._reader.poll(None)


class RanksHere(MultiprocessContext):
    """The ranks of one machine, of which none keeps the others from ending."""

    timeout_s: float = 600.0  # between the first and the last to return
    said: Callable[[str], None] = staticmethod(lambda text: None)  # told why a rank is ended

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._worker_finished_event: Any = Finished(self._all_have_returned)
        self._first_s: float | None = None  # when the first rank had returned
        self._timer: threading.Timer | None = None
        self._handles: dict[int, int] = {}  # by local rank
        self._lock = threading.Lock()  # of the handles, which the timer uses as well

    def _start(self) -> None:
        with signals_deferred():  # torch tells the ranks to leave only once it has started them all
            super()._start()  # type: ignore[no-untyped-call]
            for local_rank, pid in self.pids().items():
                with contextlib.suppress(ProcessLookupError):
                    self._handles[local_rank] = os.pidfd_open(pid)

    def _poll(self) -> RunProcsResult | None:
        if self._pc is not None and any(process.exitcode for process in self._pc.processes):
            self._wake()  # torch ends the others within the call
            self._worker_finished_event.set()  # ranks that have returned leave at once, whatever they do with SIGTERM
        result = super()._poll()
        if result is None and self._return_values:
            self._first_s = self._first_s or time.monotonic()
            if time.monotonic() - self._first_s > self.timeout_s:
                self._first_s = time.monotonic()
                late = [rank for rank in self._handles if rank not in self._return_values]
                self._kill(late, f"has not ended {self.timeout_s:g} s after the first that did")
        return result

    def _all_have_returned(self) -> None:
        why = f"has not left {LEAVE_S:g} s after all had ended"
        self._timer = threading.Timer(LEAVE_S, functools.partial(self._kill, list(self._handles), why))
        self._timer.daemon = True
        self._timer.start()

    def _kill(self, local_ranks: list[int], why: str) -> None:
        ended = []
        with self._lock:
            for local_rank in [rank for rank in local_ranks if rank in self._handles]:
                with contextlib.suppress(ProcessLookupError):  # it has left
                    signal.pidfd_send_signal(self._handles[local_rank], signal.SIGKILL)
                    ended.append(local_rank)
        for local_rank in ended:
            self.said(f"rank {self.envs[local_rank]['RANK']} {why}; it is ended")

    def _tell_again(self, death_sig: signal.Signals, ended: threading.Event) -> None:
        """Send the ranks this signal until they have ended."""
        while not ended.wait(AGAIN_S):
            with self._lock:
                for handle in self._handles.values():
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(handle, death_sig)

    def _wake(self) -> None:
        """Let ranks go on that somebody has stopped (SIGSTOP): a stopped one is told nothing, and is waited for."""
        with self._lock:
            for handle in self._handles.values():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGCONT)

    def _close(self, death_sig: signal.Signals, timeout: int = 30) -> None:
        self._worker_finished_event.set()  # ranks that have returned leave at once, whatever they do with the signal
        if self._timer is not None:
            self._timer.cancel()
        self._wake()
        ended = threading.Event()
        teller = threading.Thread(target=self._tell_again, args=(death_sig, ended), daemon=True)
        teller.start()
        try:
            super()._close(death_sig, timeout)
        finally:
            ended.set()
            teller.join()
        for path in self._pc.error_files if self._pc is not None else ():  # what ranks raised, which has been read
            if path is not None:
                Path(path).unlink(missing_ok=True)
        with self._lock:
            while self._handles:
                os.close(self._handles.popitem()[1])


@contextlib.contextmanager
def ranks_that_end() -> Iterator[None]:
    """Let torch's agent start its ranks as `RanksHere`, within a `with`; they leave what they raise in our folder."""
    theirs, place = elastic.MultiprocessContext, tempfile.tempdir
    elastic.MultiprocessContext = RanksHere  # type: ignore[misc]
    tempfile.tempdir = str(process_folder())
    try:
        yield
    finally:
        elastic.MultiprocessContext, tempfile.tempdir = theirs, place  # type: ignore[misc]
