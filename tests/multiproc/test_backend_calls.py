"""The short way of the usual calls: which take it, that it leaves behind what the long one does, who runs ahead."""

import contextlib
import os
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import meshwright  # noqa: F401  (registers the backend)
from meshwright.backend.group.native_calls import load_calls
from meshwright.backend.local.memory import SHORT_BYTES, SHORT_SLOTS
from tests.multiproc.test_backend_collectives import group, group_of_all

needs_calls = pytest.mark.skipif(load_calls() is None, reason="needs a C compiler, Python's headers and DLPack's C API")
SUMMED = (torch.float32, torch.float64, torch.int32, torch.int64, torch.bfloat16)


class Recording:
    """Hands every call on to the short way, and keeps what it answered."""

    def __init__(self, short):
        self.short, self.answers = short, []

    def __getattr__(self, name):
        def call(*arguments):
            answer = getattr(self.short, name)(*arguments)
            self.answers.append(answer)
            return answer

        return call


class Subclass(torch.Tensor):
    """A tensor that may mean anything."""


def usual_calls(ranks):
    """Return calls by what they are: dense tensors on the CPU, all ranks at once, sums that the helper knows."""
    part, whole, other = torch.ones(3), torch.ones(3 * ranks), torch.zeros(3 * ranks)
    return {
        **{f"sum of {dtype}": lambda d=dtype: dist.all_reduce(torch.ones(7, dtype=d)) for dtype in SUMMED},
        "sum of one element": lambda: dist.all_reduce(torch.tensor(1.0)),
        "sum of a parameter": lambda: dist.all_reduce(torch.nn.Parameter(torch.ones(5))),
        "sum where slots are filled in two ways": lambda: dist.all_reduce(torch.ones(100_000)),
        "broadcast": lambda: dist.broadcast(torch.ones(5), ranks - 1),
        "broadcast of booleans": lambda: dist.broadcast(torch.ones(5, dtype=torch.bool), 0),
        "all-gather": lambda: dist.all_gather([torch.zeros(3) for _ in range(ranks)], part),
        "all-gather into one": lambda: dist.all_gather_into_tensor(other, part),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all-to-all": lambda: dist.all_to_all_single(other, whole),
        "a dimension of one, with any stride": lambda: dist.broadcast(torch.ones(4, 2)[:, :1].t()[:, ::4], 0),
        "barrier": dist.barrier,
    }


def later(collective, *arguments):
    return collective(*arguments, async_op=True)


def asynchronous_calls(ranks):
    """Return asynchronous calls by what they are; all but the last fill slots in one way."""
    part, whole, other = torch.arange(3.0), torch.arange(3.0 * ranks), torch.zeros(3 * ranks)
    return {
        "sum": lambda: later(dist.all_reduce, whole),
        "broadcast": lambda: later(dist.broadcast, part, ranks - 1),
        "all-gather": lambda: later(dist.all_gather, [torch.zeros(3) for _ in range(ranks)], part),
        "all-gather into one": lambda: later(dist.all_gather_into_tensor, other, part),
        "reduce-scatter": lambda: later(dist.reduce_scatter_tensor, part, whole),
        "all-to-all": lambda: dist.all_to_all_single(other, whole, async_op=True),
        "sum where slots are filled in two ways": lambda: later(dist.all_reduce, torch.ones(100_000)),
    }


def unusual_calls(ranks):
    """Return calls by what keeps them from the short way."""
    part, whole = torch.ones(3), torch.ones(3 * ranks)
    rows = torch.ones(2 * ranks, 3)
    return {
        "asynchronous with another operator": lambda: later(dist.all_reduce, torch.ones(3), dist.ReduceOp.MAX).wait(),
        "asynchronous of nothing": lambda: later(dist.barrier).wait(),
        "no options": lambda: group_of_all().broadcast([torch.ones(3)]).wait(),
        "an operator in place of options": lambda: group_of_all().allreduce([torch.ones(3)], dist.ReduceOp.SUM).wait(),
        "another operator": lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX),
        "an average": lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.AVG),
        "another type": lambda: dist.all_reduce(torch.ones(3, dtype=torch.int8)),
        "strides": lambda: dist.all_reduce(torch.ones(3, 4).t()),
        "nothing": lambda: dist.all_reduce(torch.ones(0)),
        "complex": lambda: group_of_all().broadcast([torch.ones(3, dtype=torch.complex64).conj()], blocking()).wait(),
        "a negative view": lambda: dist.broadcast(torch.tensor([1 + 2j]).conj().imag, 0),
        "a subclass": lambda: dist.broadcast(torch.ones(3).as_subclass(Subclass), 0),
        "split sizes": lambda: dist.all_to_all_single(rows, rows.clone(), [2] * ranks, [2] * ranks),
        "reduce-scatter with another operator": lambda: dist.reduce_scatter_tensor(part, whole, dist.ReduceOp.MIN),
        "a profiler": profiled,
    }


def blocking():
    options = dist.BroadcastOptions()
    options.asyncOp = False
    return options


def profiled():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        dist.all_reduce(torch.ones(3))


def answers(rank, world_size, store, calls, helper):
    """Return the calls that went the short way the second time, and the calls that did not."""
    with group(rank, world_size, store, helper=helper):
        recording = group_of_all()._usual = Recording(group_of_all()._usual)
        taken, left = [], []
        for name, call in calls(world_size).items():
            call()
            recording.answers.clear()
            call()
            (taken if any(recording.answers) else left).append(name)
        return taken, left


@pytest.mark.parametrize("helper", ["0", "1", "ctypes"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_the_usual_calls_take_the_short_way(rank_pool, world_size, helper):
    every = list(usual_calls(world_size))
    assert rank_pool(world_size).run(answers, usual_calls, helper) == [(every, [])] * world_size


@needs_calls
@pytest.mark.parametrize("world_size", [2, 3])
def test_what_the_short_way_in_c_does_not_know_is_left_to_python(rank_pool, world_size):
    every = list(unusual_calls(world_size))
    assert rank_pool(world_size).run(answers, unusual_calls, "1") == [([], every)] * world_size


@contextlib.contextmanager
def processors(count):
    """Let this process use a number of processors."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def asynchronous_answers(rank, world_size, store, helper):
    """Return what asynchronous calls have for an answer, and which of them went the short way at one of 50 times."""
    found, taken = {}, set()
    with processors(1), group(rank, world_size, store, helper=helper):
        recording = group_of_all()._usual = Recording(group_of_all()._usual)
        for name, call in asynchronous_calls(world_size).items():
            for _ in range(50):
                recording.answers.clear()
                work = call()
                if recording.answers != [None]:
                    taken.add(name)
                work.wait()
            assert work.is_completed()
            assert work.is_success()
            found[name] = str(work.result()), str(work.get_future().wait())
    return found, sorted(taken)


@needs_calls
@pytest.mark.parametrize("world_size", [2, 3])
def test_asynchronous_calls_take_the_short_way_where_ranks_fill_the_processors(rank_pool, world_size):
    in_c = rank_pool(world_size).run(asynchronous_answers, "1")
    in_python = rank_pool(world_size).run(asynchronous_answers, "0")
    assert [found for found, _ in in_c] == [found for found, _ in in_python]
    assert [taken for _, taken in in_c] == [sorted(asynchronous_calls(world_size))] * world_size
    assert [taken for _, taken in in_python] == [[]] * world_size


def error_of_an_asynchronous_call(rank, world_size, store, helper):
    """Let the others come to rank 0's sum and do no more; return where its error came up."""
    with processors(1), group(rank, world_size, store, helper=helper):
        group_of_all().set_timeout(timedelta(seconds=0.5))
        if rank > 0:
            group_of_all()._engine.announce_and_poll(0.0)
            store.wait(["failed"])
            return "", ""
        time.sleep(0.2)
        work = dist.all_reduce(torch.ones(300_000), async_op=True)
        with pytest.raises(RuntimeError) as error:
            work.wait()
        store.set("failed", "")
        assert not work.is_success()
        return str(error.value), str(work.exception())


@pytest.mark.parametrize("helper", ["0", "1", "ctypes"])
def test_the_error_of_an_asynchronous_call_is_that_of_its_work(rank_pool, helper):
    (raised, kept), _ = rank_pool(2).run(error_of_an_asynchronous_call, helper)
    assert "did not arrive within 0.5 s, in all_reduce #1 of 1.14 MiB" in raised
    assert kept == raised


def record(rank, world_size, store, helper):
    with group(rank, world_size, store, helper=helper):
        flight = group_of_all()._engine.flight
        for call in usual_calls(world_size).values():
            call()
        found = flight.flights()
        assert [call.started_s for call in found] == sorted(call.started_s for call in found)
        return [(call.sequence, call.operation, call.size_bytes, call.ended) for call in found], flight.current()


@needs_calls
def test_both_ways_leave_the_same_flight_record(rank_pool):
    assert rank_pool(2).run(record, "1") == rank_pool(2).run(record, "0")


def two_threads(rank, world_size, store, helper):
    sums = []

    def work():
        for _ in range(300):
            tensor = torch.full((40,), float(rank + 1))
            dist.all_reduce(tensor)
            sums.append(tensor)

    with group(rank, world_size, store, helper=helper):
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return len(sums), all(torch.equal(tensor, torch.full((40,), world_size * (world_size + 1) / 2)) for tensor in sums)


@pytest.mark.parametrize("helper", ["0", "1", "ctypes"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_two_threads_of_a_rank_may_call_at_once(rank_pool, world_size, helper):
    assert rank_pool(world_size).run(two_threads, helper) == [(600, True)] * world_size


def broadcasts_ahead(rank, world_size, store, helper, size_bytes):
    """Let the root broadcast before the others come; return what they got."""
    with group(rank, world_size, store, helper=helper):
        dist.barrier()
        tensors = [torch.full((size_bytes // 4,), float(i) if rank == 0 else -1.0) for i in range(3 * SHORT_SLOTS)]
        if rank > 0:
            store.wait(["ahead"])
        for i, tensor in enumerate(tensors):
            dist.broadcast(tensor, 0)
            if i == SHORT_SLOTS - 1 and rank == 0:
                store.set("ahead", "")
        return [tensor.unique().tolist() for tensor in tensors]


@pytest.mark.parametrize("helper", ["0", "1", "ctypes", "mixed"])
@pytest.mark.parametrize("world_size", [2, 3])
def test_the_root_of_small_broadcasts_runs_ahead(rank_pool, world_size, helper):
    want = [[float(i)] for i in range(3 * SHORT_SLOTS)]
    assert rank_pool(world_size).run(broadcasts_ahead, helper, SHORT_BYTES) == [want] * world_size
