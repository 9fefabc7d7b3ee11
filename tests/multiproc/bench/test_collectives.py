"""The cost of a collective between computations, on a clock that only the collective and reading it advance."""

import functools

import pytest
import torch
import torch.distributed as dist

from meshwright.bench import collectives

LOOK_S = 1e-4


class Clock:
    """Two clocks that go on with each look: that of processors by `LOOK_S`, the other `sharing` times as fast."""

    def __init__(self, sharing=1.0):
        self.now_s = self.busy_s = 0.0
        self._sharing = sharing

    def perf_counter(self):
        self.now_s += LOOK_S * self._sharing
        return self.now_s

    def process_time(self):
        self.busy_s += LOOK_S
        return self.busy_s


def between_few_looks(patch, clock):
    """Let the clock measure, with as much computation between collectives as lasts ten looks at it."""
    patch.setattr(collectives, "time", clock)
    patch.setattr(collectives, "COMPUTE_S", 10 * LOOK_S)
    patch.setattr(collectives, "ACTION_S", 10 * LOOK_S)
    patch.setitem(collectives.time_added.__kwdefaults__, "compute_s", 10 * LOOK_S)


def cost(rank, world_size, store, cost_s, sharing):
    """Return what a call is told to cost that takes `cost_s`, half of it work, and how often its input was filled."""
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    clock, filled = Clock(sharing), []

    def call():
        clock.now_s += cost_s
        clock.busy_s += cost_s / 2 / sharing

    try:
        with pytest.MonkeyPatch.context() as patch:
            between_few_looks(patch, clock)
            told = collectives.time_added(call, lambda: filled.append(1), torch.device("cpu"), 3)
        return told, len(filled)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("cost_s", [0.0, 0.25])
@pytest.mark.parametrize("sharing", [1.0, 4.0])
def test_a_call_is_told_to_cost_what_it_does_and_to_work_as_long_as_that_lasts_among_ranks(rank_pool, cost_s, sharing):
    (told, filled), other = rank_pool(2).run(cost, cost_s, sharing)

    close = {"abs": LOOK_S * sharing}
    assert told.added_s == pytest.approx(cost_s, **close)
    assert told.in_a_row_s == pytest.approx(cost_s, **close)
    assert told.worked_s == pytest.approx(cost_s / 2, **close)
    assert told.in_a_row_worked_s == pytest.approx(cost_s / 2, **close)
    assert filled == collectives.CALLS_A_TURN * (1 + 3 * 3)  # a warm-up, and with, without and in a row three times
    assert other == (told, filled)


def beside(rank, world_size, store, cost_s, delay_s):
    """Return what is told of a collective that takes `cost_s`, and `delay_s` more in the rounds with computation."""
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    clock, rounds = Clock(), 3
    alone = iter(range(collectives.WARM_UP + rounds))

    class Begun:
        def wait(self):
            clock.now_s += cost_s + (delay_s if next(alone, None) is None else 0.0)

    try:
        with pytest.MonkeyPatch.context() as patch:
            between_few_looks(patch, clock)
            return collectives.overlapped_cost(Begun, lambda: None, torch.device("cpu"), rounds)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("delay_s", [0.0, 0.0125])
def test_a_collective_is_told_to_be_as_late_as_computation_makes_it(rank_pool, delay_s):
    for told in rank_pool(2).run(beside, 0.025, delay_s):
        assert told.time_s == pytest.approx(0.025, abs=2 * LOOK_S)
        assert told.delay_s == pytest.approx(delay_s, abs=2 * LOOK_S)


def inside(rank, world_size, store):
    """Return what is told of a collective that the caller's thread has done when it has begun it."""
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    clock = Clock()

    class Done:
        def __init__(self):
            clock.now_s += 0.025

        def wait(self):
            pass

    try:
        with pytest.MonkeyPatch.context() as patch:
            between_few_looks(patch, clock)
            return collectives.overlapped_cost(Done, lambda: None, torch.device("cpu"), 3)
    finally:
        dist.destroy_process_group()


def test_a_collective_that_is_done_before_the_computation_is_not_late(rank_pool):
    assert [told.delay_s for told in rank_pool(2).run(inside)] == [0.0, 0.0]


def order(rank, world_size, store):
    """Return what is called around the computation, in turn."""
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    seen = []
    note = {name: functools.partial(seen.append, name) for name in ("fill", "begin", "end")}
    try:
        collectives.time_added(note["end"], note["fill"], torch.device("cpu"), 1, begin=note["begin"])
        return seen
    finally:
        dist.destroy_process_group()


def test_what_a_call_ends_begins_before_the_computation(rank_pool):
    called, computing = ["fill", "begin", "end"] * collectives.CALLS_A_TURN, ["fill"] * collectives.CALLS_A_TURN

    assert rank_pool(2).run(order) == [called + called + computing + called] * 2  # a warm-up, with, without, in a row


def messages(rank, world_size, store, cost_s):
    """Return what messages round the ring are told to add where each send costs `cost_s`, and what came."""
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    clock, came = Clock(), []
    send, receive = dist.isend, dist.irecv

    def slow_send(tensor, peer):
        clock.now_s += cost_s
        return send(tensor.fill_(rank), peer)

    def noted_receive(tensor, peer):
        came.append((tensor, peer))
        return receive(tensor, peer)

    try:
        with pytest.MonkeyPatch.context() as patch:
            between_few_looks(patch, clock)
            patch.setattr(dist, "isend", slow_send)
            patch.setattr(dist, "irecv", noted_receive)
            told = collectives.time_blocking("send_recv", 4096, torch.device("cpu"), rounds=2)
        return told.added_s, {(peer, tensor.unique().item(), tensor.nbytes) for tensor, peer in came}
    finally:
        dist.destroy_process_group()


def test_messages_go_round_the_ring_and_are_told_to_add_what_they_cost(rank_pool):
    found = rank_pool(3).run(messages, 0.25)

    assert [told_s for told_s, _ in found] == [pytest.approx(0.25, abs=LOOK_S)] * 3
    assert [came for _, came in found] == [{(2, 2.0, 4096)}, {(0, 0.0, 4096)}, {(1, 1.0, 4096)}]
