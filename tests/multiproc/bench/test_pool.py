"""The pool of live ranks itself."""

import multiprocessing
import os
import signal
import sys
import time
from multiprocessing import forkserver

import pytest
import torch
import torch.distributed as dist

from meshwright.bench.ranks.pool import RankFailedError, RankPool, _serve
from meshwright.errors import InputError


def sum_of_ranks(rank, world_size, store, backend):
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor)
    return tensor.item()


def fail_on_rank_one(rank, world_size, store):
    if rank == 1:
        raise ValueError("rank one says no")


def test_ranks_meet_and_return_in_order(rank_pool):
    assert rank_pool(2).run(sum_of_ranks, "gloo") == [1.0, 1.0]


def test_a_pool_is_used_again_after_a_failure(rank_pool):
    with pytest.raises(RankFailedError, match="rank one says no"):
        rank_pool(2).run(fail_on_rank_one)
    assert rank_pool(2).run(sum_of_ranks, "gloo") == [1.0, 1.0]


def refuse(rank, world_size, store, ranks):
    if rank in ranks:
        raise InputError("slots: expected a multiple of 4,096 bytes")
    raise ValueError("rank one says no")


def test_bad_input_that_ends_the_ranks_is_told_as_such_and_a_failure_beside_it_is_not_hidden(rank_pool):
    with pytest.raises(InputError, match="^slots: expected a multiple of 4,096 bytes$"):
        rank_pool(2).run(refuse, (0, 1))
    with pytest.raises(RankFailedError, match="rank 1: ValueError: rank one says no"):
        rank_pool(2).run(refuse, (0,))


def test_an_interrupt_waits_until_the_rank_that_starts_knows_what_to_run(monkeypatch):
    connect = forkserver.connect_to_new_process

    def interrupted(descriptors):
        pipes = connect(descriptors)
        os.kill(os.getpid(), signal.SIGINT)  # the process is there and has been told nothing
        return pipes

    monkeypatch.setattr(forkserver, "connect_to_new_process", interrupted)
    before = set(multiprocessing.active_children())
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

    try:
        with pytest.raises(KeyboardInterrupt):
            RankPool(1)
    finally:
        signal.signal(signal.SIGINT, inherited)

    (started,) = set(multiprocessing.active_children()) - before  # only what has been told counts as one
    started.join(10)  # the pipe of its orders has no other end any more
    assert started.exitcode == 0


def sleep_a_second(rank, world_size, store):
    time.sleep(1.0)
    return rank


def test_ranks_that_get_on_are_waited_for_and_others_are_not():
    with RankPool(1) as pool:
        assert pool.run(sleep_a_second, timeout_s=0.5, gets_on=lambda: True) == [0]
    with RankPool(1) as pool, pytest.raises(RankFailedError, match="rank 0 did not answer within 0.5 s"):
        pool.run(sleep_a_second, timeout_s=0.5, gets_on=lambda: False)


def hold_up_all_lower_ranks(rank, world_size, store, how):
    if rank < world_size - 1:
        time.sleep(600)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("the last rank says no")


@pytest.mark.parametrize(
    ("how", "why"),
    [("raise", "ValueError: the last rank says no"), ("kill", "its process has ended (exit code -9)")],
)
def test_a_failure_ends_the_wait_for_ranks_that_wait_for_it_and_comes_first(how, why, monkeypatch):
    monkeypatch.setattr("meshwright.bench.ranks.pool.AFTER_FAILURE_S", 0.5)

    with RankPool(2) as pool, pytest.raises(RankFailedError) as told:
        pool.run(hold_up_all_lower_ranks, how, timeout_s=20.0)

    first, *_, last = str(told.value).splitlines()
    assert (first, last) == (f"rank 1: {why}", "rank 0 did not answer within 0.5 s after that")


def fail(rank, world_size, store):
    raise ValueError("nobody hears this")


def test_a_rank_whose_owner_has_ended_says_nothing(capfd):
    ours, theirs = multiprocessing.Pipe()
    job = (__name__, "fail", os.devnull, ())
    rank = multiprocessing.get_context("spawn").Process(target=_serve, args=(0, 1, theirs, list(sys.path)))
    rank.start()
    theirs.close()
    ours.send(job)
    ours.close()
    rank.join(120)

    assert rank.exitcode == 0
    assert capfd.readouterr().err == ""
