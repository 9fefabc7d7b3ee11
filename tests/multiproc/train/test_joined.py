"""The ranks of a job that have met: whom they name when one of them dies, however late they hear of it."""

import multiprocessing
import os
import socket
import time

import msgspec
import pytest
import torch
import torch.distributed as dist

from meshwright.backend.faults.failures import RankFailure
from meshwright.errors import InputError
from meshwright.layout import Layout
from meshwright.train.worker import _check_same_text, joined_ranks, train_rank
from testkit.train_jobs import small_job, write_corpus, write_run

RANKS, DEAD, LATE_S = 3, 2, 1.5


def meet_and_fail(rank, port, config, folder, pipe):
    """Be a rank on a host of its own: the last one dies, rank 0 waits for that one, rank 1 later for rank 0."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "MESHWRIGHT_HOST": f"host{rank}"}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    try:
        with joined_ranks(config, folder):
            dist.barrier()
            if rank == DEAD:
                os._exit(1)
            time.sleep(LATE_S * rank)
            dist.recv(torch.ones(10), DEAD if rank == 0 else 0)
    except RankFailure as error:
        pipe.send(error.rank)


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_a_rank_that_hears_late_of_a_death_does_not_blame_the_rank_that_hosted_the_store(tmp_path, port):
    job = small_job(write_corpus(tmp_path))
    folder = write_run(tmp_path / "run", job, Layout(dp=RANKS))
    context = multiprocessing.get_context("forkserver")
    ours, theirs = zip(*(context.Pipe(duplex=False) for _ in range(RANKS)), strict=True)
    ranks = [
        context.Process(target=meet_and_fail, args=(rank, port, job, folder, theirs[rank]), daemon=True)
        for rank in range(RANKS)
    ]
    for process in ranks:
        process.start()

    named = [pipe.recv() if pipe.poll(40) else None for pipe in ours[:DEAD]]

    assert named == [DEAD, DEAD]
    for process in ranks:
        process.join()


def come_late_and_train(rank, port, config, folder, pipe):
    """Be one of two ranks, of which the second is busy for longer than the timeout before it trains."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    try:
        with joined_ranks(config, folder) as member:
            time.sleep(4 * LATE_S * rank)
            train_rank(folder, member)
            group = dist.distributed_c10d._get_default_group()
            pipe.send(group._engine.group.timeout_s)
    except RankFailure as error:
        pipe.send(str(error))


@pytest.mark.timeout(400)
def test_a_rank_that_is_busy_for_long_before_its_first_step_is_not_late(tmp_path, port):
    job = small_job(write_corpus(tmp_path), steps=3)
    job = msgspec.structs.replace(job, launch=msgspec.structs.replace(job.launch, timeout_s=2.5))
    folder = write_run(tmp_path / "run", job, Layout(dp=2))
    context = multiprocessing.get_context("forkserver")
    ours, theirs = zip(*(context.Pipe(duplex=False) for _ in range(2)), strict=True)
    ranks = [
        context.Process(target=come_late_and_train, args=(rank, port, job, folder, theirs[rank]), daemon=True)
        for rank in range(2)
    ]
    for process in ranks:
        process.start()

    assert [pipe.recv() if pipe.poll(250) else None for pipe in ours] == [2.5, 2.5]
    for process in ranks:
        process.join()


def hold_against_rank_0(rank, world_size, store, checksums):
    """Say what a rank is told that has read the text with its checksum."""
    dist.init_process_group("meshwright", store=store, rank=rank, world_size=world_size)
    try:
        _check_same_text(checksums[rank], rank)
    except InputError as error:
        return str(error)
    return ""


def test_a_rank_that_has_read_other_text_than_rank_0_is_named_before_the_first_step(rank_pool):
    assert rank_pool(2).run(hold_against_rank_0, ["aa", "aa"]) == ["", ""]

    agreed, told = rank_pool(2).run(hold_against_rank_0, ["aa", "bb"])

    assert agreed == ""
    assert told.startswith("data.paths: rank 1 has read other text than rank 0: its files were written while the job")
