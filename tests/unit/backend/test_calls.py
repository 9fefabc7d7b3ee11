"""Ranks of a host compare what they call: a difference is named; a rank that gives up meanwhile makes none."""

from types import SimpleNamespace

import pytest

from meshwright.backend.group.signature import Signature
from meshwright.backend.hosts.placement import GroupMember
from meshwright.backend.local.calls import LocalCalls
from meshwright.backend.local.memory import CALLS, ENTRY, LINE

RANKS, WORDS = 3, CALLS * ENTRY
MEMBERS = [GroupMember(rank, rank, "host", "host", 100 + rank, (0,)) for rank in range(RANKS)]
ALL_REDUCE, BROADCAST = Signature(1, 40, 0), Signature(2, 40, 0)


class Watched(list):
    """Numbers in shared memory, of which something happens right after look number `at`."""

    looks, at, happens = 0, -1, staticmethod(lambda: None)

    def __getitem__(self, index):
        value = super().__getitem__(index)
        self.looks += 1
        if self.looks == self.at:
            self.happens()
        return value


def ranks_of_a_host():
    """Return the calls of three ranks over the same numbers, with the counters and rings."""
    counters, rings = Watched([0] * RANKS * LINE), Watched([0] * RANKS * WORDS)
    states = [SimpleNamespace(first=0, chain=0, asked=[0, 0, 0]) for _ in range(RANKS)]
    return [LocalCalls(counters, rings, WORDS, states[r], r, MEMBERS) for r in range(RANKS)], counters, rings


def begin(calls, counters, rank, call, step=1):
    calls[rank].ask(call)
    calls[rank].begin(step)
    counters[rank * LINE] = step


@pytest.mark.parametrize("numbers", ["counters", "rings"])
@pytest.mark.parametrize("look", range(1, 12))
def test_a_rank_that_takes_its_call_back_between_two_looks_disagrees_with_nobody(numbers, look):
    calls, counters, rings = ranks_of_a_host()
    for rank in (0, 2):  # rank 1 has ended before
        begin(calls, counters, rank, ALL_REDUCE)
    watched = {"counters": counters, "rings": rings}[numbers]
    watched.looks, watched.at, watched.happens = 0, look, calls[0].withdraw

    assert calls[2].disagreement() is None


def test_a_rank_in_another_collective_is_named_with_both_calls():
    calls, counters, _ = ranks_of_a_host()
    for rank, call in enumerate((ALL_REDUCE, BROADCAST, ALL_REDUCE)):
        begin(calls, counters, rank, call)

    odd, told = calls[2].disagreement()

    assert odd == 1
    assert "rank 1 (host host, pid 101) in " in told


def test_a_rank_that_called_something_else_long_ago_is_told_as_that():
    calls, counters, _ = ranks_of_a_host()
    begin(calls, counters, 0, BROADCAST)
    for step in range(1, CALLS + 3):
        for rank in range(RANKS) if step > 1 else (1, 2):
            begin(calls, counters, rank, ALL_REDUCE, step)

    assert calls[2].disagreement() == (0, "the ranks disagree: rank 0 (host host, pid 100) in something else before")
