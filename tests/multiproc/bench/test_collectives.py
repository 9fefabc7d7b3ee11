"""What a collective costs between computations, told by a clock that only it and a look at it move."""

import pytest
import torch
import torch.distributed as dist

from meshwright.bench import collectives

LOOK_S = 1e-4


class Clock:
    """A clock that goes on by `LOOK_S` with each look at it."""

    def __init__(self):
        self.now_s = 0.0

    def perf_counter(self):
        self.now_s += LOOK_S
        return self.now_s


def added(rank, world_size, store, cost_s):
    """Return what a call is told to add that costs `cost_s` on this rank, and how often its input was filled."""
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    clock, filled = Clock(), []

    def call():
        clock.now_s += cost_s

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(collectives, "time", clock)
            told_s = collectives.time_added(call, lambda: filled.append(1), torch.device("cpu"), 3)
        return told_s, len(filled)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("cost_s", [0.0, 0.25])
def test_a_call_is_told_to_add_what_it_costs(rank_pool, cost_s):
    (told_s, filled), other = rank_pool(2).run(added, cost_s)

    assert told_s == pytest.approx(cost_s, abs=LOOK_S)
    assert told_s > 0
    assert filled == collectives.STRETCH * (1 + 3 * 3)  # a warm-up, and with, without and in a row three times
    assert other == (told_s, filled)
