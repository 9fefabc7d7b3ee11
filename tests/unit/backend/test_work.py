"""Works and the thread that does them: order, futures, callbacks that wait for later works."""

import threading
import time
import weakref
from datetime import timedelta

import pytest
import torch
from torch.distributed import Work

from meshwright.backend.faults.failures import WaitTimeout
from meshwright.backend.group.futures import load_futures
from meshwright.backend.group.work import CollectiveWorker, DoneWork, OwnedWork, PendingWork, flat_tensors


@pytest.fixture
def worker():
    worker = CollectiveWorker("test")
    yield worker
    worker.close(timeout_s=5.0)


def test_works_are_done_in_order_by_one_thread_after_the_other(worker):
    done = []
    works = [PendingWork(lambda i=i: done.append(i), ()) for i in range(50)]
    for work in works:
        work.get_future().then(lambda _: time.sleep(1e-4))
        worker.submit(work)
    works[-1].wait()

    assert done == list(range(50))
    while not worker.idle:
        time.sleep(1e-4)


@pytest.mark.parametrize("limit", [0.01, timedelta(seconds=0.01), 1])
def test_a_wait_takes_a_limit_in_seconds_or_as_a_timedelta(worker, limit):
    goes_on = threading.Event()
    work = PendingWork(goes_on.wait, ())
    worker.submit(work)

    with pytest.raises(WaitTimeout, match="not done after (0.01|1) s"):
        work.wait(limit)
    goes_on.set()
    assert work.wait(5)


def test_callbacks_may_wait_for_later_works_one_inside_the_other(worker):
    def after(depth):
        work = PendingWork(lambda: None, [torch.tensor(float(depth))])
        worker.submit(work)
        if depth:
            return work.get_future().then(lambda _: after(depth - 1)).wait()
        return work.get_future().wait()[0]

    first = PendingWork(lambda: None, ())
    worker.submit(first)

    assert first.get_future().then(lambda _: after(5)).wait().item() == 0


@pytest.mark.parametrize("used", [True, False])
def test_a_closed_worker_does_what_it_is_still_given(worker, used):
    done = []
    if used:
        worker.submit(PendingWork(lambda: done.append("before"), ()))
    worker.close(timeout_s=5.0)
    late = [PendingWork(lambda i=i: done.append(i), ()) for i in range(2)]
    for work in late:
        worker.submit(work)

    assert all(work.is_completed() for work in late)
    assert done == ["before"] * used + [0, 1]
    worker.close(timeout_s=5.0)


def test_a_future_holds_the_error_of_its_work():
    def fail():
        raise KeyError("rank 3")

    work = PendingWork(fail, ())
    future = work.get_future()
    work.run()

    for wait in (work.wait, future.wait, future.wait, work.get_future().value):
        with pytest.raises(Exception, match="rank 3"):
            wait()


def test_a_mark_ends_before_anybody_is_woken():
    events = []
    work = PendingWork(lambda: events.append("done"), ())
    work.end_mark = lambda: events.append("mark")
    work.get_future().then(lambda _: events.append("callback"))
    waiter = threading.Thread(target=lambda: (work.wait(), events.append("woken")))
    waiter.start()
    work.run()
    waiter.join()

    assert events == ["done", "mark", "callback", "woken"]


def test_results_are_flat_lists_of_tensors():
    a, b = torch.ones(1), torch.ones(2)

    assert [t is u for t, u in zip(flat_tensors([[a, b], a]), [a, b, a], strict=True)] == [True] * 3
    assert DoneWork([[a, b]]).get_future().value()[1] is not None


@pytest.mark.parametrize("kind", [DoneWork, lambda result: PendingWork(lambda: None, result)])
def test_a_work_stays_in_python_as_long_as_c_plus_plus_owns_it(kind):
    if load_futures() is None:
        pytest.skip("without C++ nobody knows who owns a work")
    work = kind([torch.ones(2)])
    result, in_c = weakref.ref(work._result[0]), work.boxed()
    del work
    assert isinstance(Work.unbox(in_c), OwnedWork)  # torch's base class waits for ever
    assert result() is not None

    del in_c
    DoneWork()
    assert result() is None


def test_until_futures_are_built_the_last_small_works_stay(monkeypatch):
    monkeypatch.setattr("meshwright.backend.group.work.loaded_futures", lambda: None)
    results = [torch.ones(1), torch.ones(1 << 20)]
    small, large = (weakref.ref(each) for each in results)
    while results:
        DoneWork([results.pop()])

    assert small() is not None
    assert large() is None


def test_a_work_that_is_submitted_while_the_worker_closes_is_done(worker, monkeypatch):
    start, begun = worker._start_spare, threading.Event()

    def closing():
        start()
        threading.Thread(target=lambda: (begun.set(), worker.close(timeout_s=5.0))).start()
        begun.wait()
        time.sleep(0.2)  # for it to close, if it can

    monkeypatch.setattr(worker, "_start_spare", closing)
    work = PendingWork(lambda: None, ())
    worker.submit(work)

    assert work.wait(5.0)
