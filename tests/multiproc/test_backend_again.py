"""Groups that are made again, in one process and by new ones in an old store, and what many groups hold."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from meshwright.backend.group.base import GroupBase
from meshwright.backend.local.ranks import LocalGroup
from tests.multiproc.fresh_ranks import launch

AGAIN = Path(__file__).parent / "programs" / "started_again.py"


def make_again(rank, world_size, path):
    store, sums = dist.FileStore(path, world_size), []
    for _ in range(5):
        dist.destroy_process_group()
        dist.init_process_group("meshwright", store=store, rank=rank, world_size=world_size)
        tensor = torch.full((100,), float(rank + 1))
        dist.all_reduce(tensor)
        sums.append(tensor[0].item())
    return sums, store.num_keys()


@pytest.mark.parametrize("per_host", [None, 1])
def test_a_group_is_made_again_and_again_in_one_process(tmp_path, per_host):
    answers = launch(make_again, 2, tmp_path, str(tmp_path / "again"), per_host=per_host)

    assert [kind for kind, *_ in answers] == ["fine"] * 2, answers
    assert [found[0] for _, found, _ in answers] == [[3.0] * 5] * 2


def left_without_collector(rank, world_size):
    """Return how many groups are there after some were made, used and destroyed with the cycle collector off."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            made = dist.new_group()
            dist.all_reduce(torch.ones(3), group=made)
            dist.all_reduce(torch.ones(3), group=made, async_op=True).wait()
            message = torch.ones(3)
            if rank == 0:
                dist.send(message, 1, group=made)
            else:
                dist.recv(message, 0, group=made)
            dist.barrier(group=made)
            dist.destroy_process_group(made)
            del made
        return sum(isinstance(each, LocalGroup | GroupBase) for each in gc.get_objects())
    finally:
        gc.enable()


@pytest.mark.parametrize("per_host", [None, 1])
def test_a_destroyed_group_goes_at_once_where_a_trainer_has_switched_off_the_cycle_collector(tmp_path, per_host):
    answers = launch(left_without_collector, 2, tmp_path, per_host=per_host)

    assert [found for _, found, _ in answers] == [2, 2], answers  # the default group, and its memory


def held_by_many(rank, world_size, groups, elements):
    """Return the bytes of shared memory that each of several groups holds, once it has summed."""
    made = [dist.new_group() for _ in range(groups)]
    for group in made:
        dist.all_reduce(torch.ones(elements), group=group)
    dist.barrier()
    held = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            if "memfd:meshwright" in os.readlink(f"/proc/self/fd/{number}"):
                held += os.stat(f"/proc/self/fd/{number}").st_blocks * 512
        except OSError:
            pass  # that of the listing itself
    return held / groups


@pytest.mark.parametrize(("elements", "most_bytes"), [(256, 64 * 1024), (2**19, 6 * 2**20)])
def test_a_group_holds_the_memory_that_it_has_used(tmp_path, elements, most_bytes):
    for kind, held_bytes, _ in launch(held_by_many, 2, tmp_path, 10, elements):
        assert kind == "fine", held_bytes
        assert 0 < held_bytes < most_bytes


SOAK = pytest.mark.soak
TRIES = [
    *[pytest.param(when, victim, marks=SOAK) for when in ("before", "after") for victim in "01"],
    *[("within", "0"), pytest.param("within", "1", marks=SOAK)],
]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("when", "victim"), TRIES)
def test_torchrun_starts_ranks_again_in_the_store_of_the_first_try(when, victim):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    with subprocess.Popen(
        [*command, str(AGAIN), when, victim], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        try:
            out, _ = job.communicate(timeout=180)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)

    assert job.returncode == 0
    assert out.count("right") == 2
