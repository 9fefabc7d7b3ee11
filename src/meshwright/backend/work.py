"""What a collective returns, and the thread on which asynchronous ones run in the order in which they were issued."""

import ctypes
import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work
from torch.futures import Future

from .turns import ask_for_short_turns

Tensors = Sequence[Any]  # the result of a Work: tensors, or lists of them


class DoneWork(Work):
    """A collective that has already finished."""

    def __init__(self, result: Tensors = ()) -> None:
        super().__init__()
        self._result = list(result)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return at once."""
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True

    def is_success(self) -> bool:
        """Return True."""
        return True

    def synchronize(self) -> None:
        """Return at once."""

    def exception(self) -> None:
        """Return None."""

    def result(self) -> Any:
        """Return the tensors that hold the result."""
        return self._result

    def get_future(self) -> Future[Any]:
        """Return a future that holds the result."""
        future: Future[Any] = Future()
        future.set_result(self._result)
        return future


DONE = DoneWork()  # of every call that blocks


class PendingWork(Work):
    """A collective that another thread finishes by calling `run`."""

    def __init__(self, call: Callable[[], object], result: Tensors) -> None:
        super().__init__()
        self._call: Callable[[], object] | None = call
        self._result = list(result)
        self._gate = threading.Lock()  # held until the work is done
        self._gate.acquire()
        self._guard = threading.Lock()
        self.done = False
        self._error: BaseException | None = None
        self._future: Future[Any] | None = None

    def run(self) -> None:
        """Do the work, keep its error for whoever waits, and open the gate."""
        assert self._call is not None
        try:
            self._call()
        except BaseException as error:
            self.finish(error)
        else:
            self.finish(None)

    def finish(self, error: BaseException | None) -> None:
        """Mark the work as done."""
        with self._guard:
            self._call = None  # lets go of the tensors
            self._error = error
            self.done = True
            future = self._future
        if future is not None:
            self._settle(future)
        self._gate.release()

    def patient(self, seconds: float) -> None:
        """Wait a little for the end; no error if it does not come."""
        if self._gate.acquire(timeout=seconds):
            self._gate.release()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the work is done; raise its error, or TimeoutError after `timeout` (if positive)."""
        limit_s = timeout.total_seconds() if timeout is not None else 0.0
        if not self._gate.acquire(timeout=limit_s if limit_s > 0 else -1):
            raise TimeoutError(f"the collective is not done after {limit_s:g} s")
        self._gate.release()
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Return whether the work is done, with or without an error."""
        return self.done

    def is_success(self) -> bool:
        """Return whether the work is done without an error."""
        return self.done and self._error is None

    def synchronize(self) -> None:
        """Wait for the end."""
        self.wait()

    def exception(self) -> BaseException | None:
        """Return the error, if there is one."""
        return self._error

    def result(self) -> Any:
        """Return the tensors that hold the result, once there is one."""
        self.wait()
        return self._result

    def get_future(self) -> Future[Any]:
        """Return the future of the result, always the same."""
        with self._guard:
            if self._future is None:
                self._future = Future()
                if self.done:
                    self._settle(self._future)
            return self._future

    def _settle(self, future: Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._result)
        elif isinstance(self._error, Exception):
            future.set_exception(self._error)
        else:
            future.set_exception(RuntimeError(str(self._error)))


class Worker:
    """One thread that runs the asynchronous collectives of a group in order; started with the first of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[PendingWork | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._counts = (ctypes.c_int64 * 2)()  # issued and finished; calls.c looks at them too
        self.counts_address = ctypes.addressof(self._counts)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return self._counts[0] == self._counts[1]

    @property
    def is_current(self) -> bool:
        """Whether the caller is on this thread."""
        return threading.current_thread() is self._thread

    def submit(self, work: PendingWork) -> None:
        """Queue `work`. Called by one thread at a time."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._counts[0] += 1
        self._queue.put(work)

    def close(self, timeout_s: float) -> None:
        """Finish what is queued and end the thread; give up waiting for it after `timeout_s`."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout_s)
            self._thread = None

    def _run(self) -> None:
        torch.set_num_threads(1)
        ask_for_short_turns()
        while True:
            work = self._queue.get()
            if work is None:
                return
            work.run()
            del work
            self._counts[1] += 1
