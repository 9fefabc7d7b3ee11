"""The Work that a collective returns, and the thread that runs asynchronous ones in the order of their issue."""

import ctypes
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.distributed import Work

from ..faults.failures import WaitTimeout
from ..local.sched import request_short_time_slice
from .futures import WorkFuture, loaded_futures
from .torch_compat import without_callers_name

Tensors = Sequence[Any]  # the result of a Work: tensors, or lists of them


def flat_tensors(tensors: Tensors) -> list[Tensor]:
    """Return the tensors of a result in one list, as torch's own works hold them."""
    if all(isinstance(tensor, Tensor) for tensor in tensors):
        return list(tensors)
    return [tensor for each in tensors for tensor in ([each] if isinstance(each, Tensor) else each)]


def limit_seconds(limit: timedelta | float) -> float:
    """Return a time limit in seconds; a number is seconds, as torch's groups in C++ take it."""
    return limit.total_seconds() if isinstance(limit, timedelta) else float(limit)


class OwnedWork(Work):
    """A Work that lives on in Python for as long as C++ owns it.

    DDP's `join` hands the work of an all-reduce to the reducer in C++ and drops it. Once the object in Python is gone,
    C++ finds none of its methods, and waits for ever in those of torch's base class.
    """

    _result: list[Tensor]

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:  # names are gone at the end
        """Stay if C++ owns this work still, and let go of earlier ones that it owns no longer."""
        if is_finalizing():
            return
        extension = loaded_futures()
        if extension is None:  # who owns it is unknown: the last few stay, if they hold little memory
            if sum(tensor.nbytes for tensor in self._result) <= KEPT_BYTES:
                _RECENT.append(self)
            return
        for work in list(_OWNED):
            if extension.other_owners(work) == 0:
                _OWNED.discard(work)
        if extension.other_owners(self) > 0:
            _OWNED.add(self)


KEPT_BYTES = 1024
_RECENT: deque[OwnedWork] = deque(maxlen=16)
_OWNED: set[OwnedWork] = set()


class DoneWork(OwnedWork):
    """A collective that has already finished."""

    def __init__(self, result: Tensors = ()) -> None:
        super().__init__()
        self._result = flat_tensors(result)

    def wait(self, timeout: timedelta | float | None = None) -> bool:
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

    def result(self) -> list[Tensor]:
        """Return the tensors that hold the result."""
        return self._result

    def get_future(self) -> Any:
        """Return a future that holds the result."""
        future = WorkFuture()
        future.complete(self._result)
        return future.future


DONE = DoneWork()  # of every call that blocks


class PendingWork(OwnedWork):
    """A collective that another thread finishes by calling `run`.

    In this order: its mark for the profiler ends, waiting callers of `is_completed` see it, callbacks of its future
    run, and callers of `wait` go on. A woken caller may destroy what the steps before have used.
    """

    def __init__(self, call: Callable[[], object], result: Tensors) -> None:
        if profiler._is_profiler_enabled:  # torch would mark a named work until it is gone; ours ends when it is done
            without_callers_name(super().__init__)
        else:
            super().__init__()
        self._call: Callable[[], object] | None = call
        self._result = flat_tensors(result)
        self._gate = threading.Lock()  # held until the work is done
        self._gate.acquire()
        self._guard = threading.Lock()
        self._finisher: int | None = None  # the thread that runs the callbacks
        self._error: BaseException | None = None
        self._future: WorkFuture | None = None
        self.done = False
        self.end_mark: Callable[[], object] | None = None

    def run(self, before_callbacks: Callable[[], object] | None = None) -> None:
        """Do the work, keep its error for the waiters, and open the gate.

        `before_callbacks` is called if there may be any: one may wait for a later collective, which must not need this
        thread.
        """
        assert self._call is not None
        try:
            self._call()
        except BaseException as error:
            self.finish(error, before_callbacks)
        else:
            self.finish(None, before_callbacks)

    def finish(self, error: BaseException | None, before_callbacks: Callable[[], object] | None = None) -> None:
        """Mark the work as done, and run the callbacks of its future."""
        if self.end_mark is not None:
            self.end_mark()
        with self._guard:
            self._call = None  # lets go of the tensors
            self._error = error
            self.done = True
            future = self._future
        if future is None:
            self._gate.release()
        else:
            self._call_back(future, before_callbacks)

    def _call_back(self, future: WorkFuture, before_callbacks: Callable[[], object] | None) -> None:
        if before_callbacks is not None:
            before_callbacks()
        self._finisher = threading.get_ident()
        self._settle(future)
        self._gate.release()

    def patient(self, seconds: float) -> None:
        """Wait a little for the end; no error if it does not come."""
        if self._gate.acquire(timeout=seconds):
            self._gate.release()

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Return when the work is done; raise its error, or WaitTimeout after `timeout` (if positive)."""
        limit_s = limit_seconds(timeout) if timeout is not None else 0.0
        if self._finisher != threading.get_ident():  # else in a callback of its own future
            if not self._gate.acquire(timeout=limit_s if limit_s > 0 else -1):
                raise WaitTimeout(f"the collective is not done after {limit_s:g} s")
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

    def result(self) -> list[Tensor]:
        """Return the tensors that hold the result, once there is one."""
        self.wait()
        return self._result

    def get_future(self) -> Any:
        """Return the future of the result, always the same."""
        with self._guard:
            future, is_done = self._future, self.done
            if future is None:
                future = self._future = WorkFuture()
            else:
                is_done = False  # it is settled, or will be
        if is_done:
            self._settle(future)
        return future.future

    def _settle(self, future: WorkFuture) -> None:
        if self._error is None:
            future.complete(self._result)
        else:
            future.fail(self._error)


class CollectiveWorker:
    """Runs the asynchronous collectives of a group in order, one at a time; its thread starts with the first of them.

    Callbacks of a collective's future run on the thread that has done it, while another thread goes on with the queue:
    a callback may wait for a later collective.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: queue.SimpleQueue[PendingWork | None] = queue.SimpleQueue()
        self._turn = threading.Lock()  # held by the thread that takes from the queue
        self._holder = 0  # that thread
        self._lock = threading.RLock()  # of what is below; a signal's handler may close the worker in the middle of it
        self._threads: list[threading.Thread] = []
        self._spare = 0  # threads that wait for their turn, or are about to
        self._is_closed = False
        self._counts = (ctypes.c_int64 * 2)()  # issued and finished; calls.c looks at them too
        self.counts_address = ctypes.addressof(self._counts)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return self._counts[0] == self._counts[1]

    @property
    def is_current(self) -> bool:
        """Whether the caller is on a thread of this worker."""
        return threading.current_thread() in self._threads

    def submit(self, work: PendingWork) -> None:
        """Queue `work`; once the worker is closed, do it here and now: torch lets a group that was shut down go on."""
        with self._lock:
            if not self._is_closed:
                if not self._threads:
                    self._start_spare()
                self._counts[0] += 1
                self._queue.put(work)
                return
        work.run()

    def close(self, timeout_s: float) -> None:
        """Finish what is queued and end the threads; give up waiting for them after `timeout_s`."""
        with self._lock:  # no work comes behind the end of the queue
            threads, self._threads, self._is_closed = self._threads, [], True
            if threads:
                self._queue.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)

    def disown(self) -> None:
        """Run every later work where it is submitted, in a forked child: what is queued is for its parent's threads."""
        self._threads, self._is_closed, self._lock = [], True, threading.RLock()
        self._counts[1] = self._counts[0]

    def _start_spare(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.append(thread)
        self._spare += 1
        thread.start()

    def _hand_over(self) -> None:
        """Let another thread take from the queue."""
        with self._lock:
            if not self._spare:
                self._start_spare()
        self._holder = 0
        self._turn.release()

    def _run(self) -> None:
        torch.set_num_threads(1)
        request_short_time_slice()
        while True:
            self._turn.acquire()
            with self._lock:
                self._spare -= 1
            self._holder = threading.get_ident()
            work = self._queue.get()
            if work is None:
                self._queue.put(None)  # for the next thread
                self._turn.release()
                return
            work.run(self._hand_over)
            del work
            with self._lock:
                self._counts[1] += 1
                self._spare += 1
            if self._holder == threading.get_ident():
                self._turn.release()
