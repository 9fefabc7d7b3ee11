"""A rank's record of how others ended: whose fault it was, and nothing of the ranks that ended because of it."""

import signal
import time

import pytest
import torch
import torch.distributed as dist

from meshwright.backend.faults.failures import FaultyRank, RankFailure
from meshwright.train.elastic.watch import Watch
from meshwright.train.run.events import EventLog, read_events
from tests.multiproc.fresh_ranks import launch

STALLED, QUICK = 1, 2  # the rank that is to blame; one that notices first, and ends


def train(rank, world_size, folder, busy_s, lingers_s):
    """Fail because of a stalled rank; rank 0 meets it when another has ended because of it, or is slow to end."""
    first = rank == 0
    with Watch(EventLog(folder, rank), lambda: 7, rank=rank, ranks=world_size) as watch:
        if rank == STALLED:
            signal.pause()
        time.sleep(busy_s * first)
        try:
            dist.recv(torch.ones(10), STALLED)
        except RankFailure as error:
            watch.failed(error)
            time.sleep(lingers_s * first)


@pytest.mark.parametrize(("busy_s", "lingers_s"), [(2.5, 0), (0, 2.5)], ids=["meets it late", "is slow to end"])
def test_a_rank_that_ends_because_of_another_is_not_blamed(tmp_path, busy_s, lingers_s):
    launch(train, 3, tmp_path, tmp_path / "events", busy_s, lingers_s, silent={STALLED}, TIMEOUT_S="1")

    named = [(event.rank, event.culprit) for event in read_events(tmp_path / "events")]
    assert sorted(named) == [(0, STALLED), (QUICK, STALLED)]


def leaves_it_to_the_others(rank, world_size, folder):
    """Hear that this rank is to blame, as one does that goes on after it was stopped for longer than the timeout."""
    with Watch(EventLog(folder, rank), lambda: 7, rank=rank, ranks=world_size) as watch:
        culprit = FaultyRank(rank=rank, host="node0", pid=7, what_happened="did not arrive within 15 s")
        watch.failed(RankFailure(culprit, operation="all_reduce", sequence=3, size_bytes=96))


def test_a_rank_that_is_to_blame_leaves_it_to_the_others_to_say_so(tmp_path):
    launch(leaves_it_to_the_others, 1, tmp_path, tmp_path / "events")

    assert read_events(tmp_path / "events") == []
