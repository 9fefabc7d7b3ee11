"""What a collective costs between computations, told by a clock that only it and a look at it move."""

import functools

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
    called, computing = ["fill", "begin", "end"] * collectives.STRETCH, ["fill"] * collectives.STRETCH

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
            patch.setattr(collectives, "time", clock)
            patch.setattr(dist, "isend", slow_send)
            patch.setattr(dist, "irecv", noted_receive)
            told_s = collectives.time_blocking("send_recv", 4096, torch.device("cpu"), rounds=2)
        return told_s, {(peer, tensor.unique().item(), tensor.nbytes) for tensor, peer in came}
    finally:
        dist.destroy_process_group()


def test_messages_go_round_the_ring_and_are_told_to_add_what_they_cost(rank_pool):
    found = rank_pool(3).run(messages, 0.25)

    assert [told_s for told_s, _ in found] == [pytest.approx(0.25, abs=LOOK_S)] * 3
    assert [came for _, came in found] == [{(2, 2.0, 4096)}, {(0, 0.0, 4096)}, {(1, 1.0, 4096)}]
