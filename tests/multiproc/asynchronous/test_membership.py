"""Workers that die, hang and come back."""

import threading
import time

import pytest
import torch

from tests.multiproc.asynchronous.harness import Run

MODES = [
    {"together": True},
    {"together": False, "staleness": 1},
    {"gradients": False, "shares_per_lease": 2, "rate": 1.0},
]


def sgd(module):
    return torch.optim.SGD(module.parameters(), lr=0.1)


class At:
    """Does something before a share, once."""

    def __init__(self, share, action):
        self.share, self.action = share, action

    def __call__(self, share):
        if share >= self.share and self.action is not None:
            action, self.action = self.action, None
            action()


@pytest.mark.parametrize("mode", MODES)
def test_the_others_go_on_without_a_worker_that_dies_and_the_data_are_all_used(mode):
    with Run(sgd, **mode) as run:
        run.start(0, before_share=At(20, lambda: run.kill(0)))
        for rank in (1, 2, 3):
            run.start(rank)
        run.finish()

    assert [row["step"] for row in run.rows] == list(range(20))
    assert run.rows[0]["ranks"] == [0, 1, 2, 3]
    assert run.rows[-1]["ranks"] == [1, 2, 3]
    assert [(c.rank, c.reason) for c in run.changes if not c.joined] == [(0, "its connection closed")]


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_comes_back_joins_in(mode):
    with Run(sgd, **mode, steps=40) as run:

        def die():
            run.kill(0)
            threading.Timer(0.08, run.start, args=(0,)).start()

        run.start(0, before_share=At(20, die))
        for rank in (1, 2, 3):
            run.start(rank, before_share=lambda share: time.sleep(0.01))
        run.finish()

    in_by_step = [0 in row["ranks"] for row in run.rows]
    assert in_by_step[0]
    assert not all(in_by_step)
    assert in_by_step[-5]
    assert len(run.rows) == 40


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_hangs_is_out_and_joins_again_when_it_wakes(mode):
    awake = threading.Event()

    def hang():
        beat, run.clients[0]._life.send = run.clients[0]._life.send, lambda message: None  # its process stands still
        assert awake.wait(10)
        run.clients[0]._life.send = beat

    with Run(sgd, **mode, steps=60, silence_s=0.3) as run:
        run.start(0, before_share=At(20, hang))
        for rank in (1, 2, 3):
            run.start(rank, before_share=lambda share: (time.sleep(0.01), share > 130 and awake.set()))
        run.finish()

    assert [c.reason for c in run.changes if not c.joined] == ["not heard for 0.3 s"]
    assert sum(c.joined for c in run.changes) == 5
    assert run.rows[-1]["ranks"] == [0, 1, 2, 3]
    assert len(run.rows) == 60


def test_a_run_that_is_stopped_saves_the_step_it_got_to():
    with Run(sgd, steps=1000) as run:
        for rank in range(4):
            run.start(rank, before_share=lambda share: share >= 40 and run.coordinator.stop())
        run.finish()

    assert run.coordinator.stopped
    assert run.saved[-1][0] == len(run.rows) < 1000
