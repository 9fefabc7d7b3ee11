"""Where the ranks of a crowded group run, told by the C helper alone: its peers are numbers in memory."""

import ctypes
import os
import threading

import pytest

from meshwright.backend.local.helper import GroupState, load_helper
from meshwright.backend.local.memory import CALLS, ENTRY, LINE
from meshwright.backend.local.ranks import PLACE

RANKS = 4
TRIES = 5
WAITS = 16  # as many as there are between two looks, SPREAD_WAITS of helper.c
needs_two = pytest.mark.skipif(
    load_helper() is None or len(os.sched_getaffinity(0)) < 2, reason="needs the C helper and two processors"
)


def waits_on(first, places, *, allowed, rank=RANKS - 1):
    """Return where a rank runs, and its mask, after a wait for peers at `places` that never came, from `first`."""
    after = []

    def wait():
        counters = (ctypes.c_uint64 * (RANKS * LINE))()
        for peer, place in places.items():
            counters[peer * LINE + PLACE] = place + 1
        data, slots = ctypes.c_float(1.0), (ctypes.c_char * (RANKS * 2 * 256))()
        calls = (ctypes.c_uint64 * (RANKS * CALLS * ENTRY))()
        state = GroupState(counters=ctypes.addressof(counters), slots=ctypes.addressof(slots), slot_bytes=256)
        state.calls, state.calls_words = ctypes.addressof(calls), CALLS * ENTRY
        state.whole_bytes = 64
        state.own_bytes, state.rank, state.size, state.place = 512, rank, RANKS, PLACE
        state.given[0], state.given[1] = ctypes.addressof(data), 1
        all_reduce = load_helper().mw_all_reduce
        os.sched_setaffinity(0, {first})
        for i in range(WAITS):
            if i == WAITS - 1:
                os.sched_setaffinity(0, allowed)
            assert not all_reduce(ctypes.addressof(state))
        assert counters[rank * LINE + PLACE] == first + 1
        all_reduce(ctypes.addressof(state))
        after.append((counters[rank * LINE + PLACE] - 1, os.sched_getaffinity(0)))

    thread = threading.Thread(target=wait)  # it alone is moved
    thread.start()
    thread.join()
    return after[0]


def ends(expected, first, places, **more):
    """Return whether a rank that waits ends like this, in one of some tries: a busy kernel moves threads by itself."""
    return any(waits_on(first, places, **more) == expected for _ in range(TRIES))


@needs_two
def test_the_last_of_three_ranks_on_one_processor_moves_to_the_other():
    one, other, *_ = allowed = sorted(os.sched_getaffinity(0))
    assert ends((other, {one, other}), one, {0: other, 1: one, 2: one}, allowed=allowed[:2])


@needs_two
def test_a_rank_keeps_to_the_processors_that_it_may_run_on():
    one, other, *_ = sorted(os.sched_getaffinity(0))
    assert ends((one, {one}), one, {0: other, 1: one, 2: one}, allowed=[one])


@needs_two
def test_nobody_moves_where_ranks_are_spread_as_evenly_as_can_be_or_another_is_to_move():
    one, other, *_ = allowed = sorted(os.sched_getaffinity(0))
    assert ends((one, {one, other}), one, {0: other, 1: other, 2: one}, allowed=allowed[:2])
    assert ends((one, {one, other}), one, {0: other, 2: one, 3: one}, allowed=allowed[:2], rank=1)
