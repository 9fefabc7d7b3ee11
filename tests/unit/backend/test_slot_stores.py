"""Slots are filled in the way that costs less, and every rank tries the other at the same calls."""

from meshwright.backend.local.slot_stores import EVERY, EVERY_BYTES, KEPT, SlotStores, SlotStoresByCall, Way

THROUGH, PAST, READ = Way
FIRST = 2 * KEPT  # calls that only try, where there are two ways


def calls(filling, count, cost):
    """Make calls that cost what `cost` says of their way; return the ways."""
    ways = []
    for _ in range(count):
        ways.append(filling.next())
        filling.note(cost(ways[-1]))
    return ways


def test_the_cheaper_way_is_taken_and_the_other_tried_now_and_then():
    for better in (THROUGH, PAST):
        filling = SlotStores()
        ways = calls(filling, 10 * EVERY, lambda way, better=better: 1.0 if way == better else 1.5)

        assert ways[:FIRST] == [THROUGH, PAST] * (FIRST // 2)
        assert filling.best == better
        assert ways[FIRST:].count(not better) == 9  # one in every row of calls
        assert ways[EVERY : EVERY + 3] == [THROUGH, PAST, better]


def test_a_third_way_is_tried_and_taken_where_there_is_one():
    fillings = SlotStoresByCall()
    first = calls(fillings.of("all_gather", 2**20, 2), 1, lambda way: 3.0)  # before it is known that there is

    filling = fillings.of("all_gather", 2**20, 3)
    ways = calls(filling, EVERY, lambda way: 2.0 if way == READ else 3.0)

    assert first + ways[: 3 * KEPT - 1] == [THROUGH, PAST, READ] * KEPT
    assert set(ways[3 * KEPT :]) == {READ}


def test_another_way_is_taken_when_costs_change():
    filling = SlotStores()
    calls(filling, 5 * EVERY, lambda way: 1.0 + way)

    ways = calls(filling, 5 * EVERY, lambda way: 2.0 - way)

    assert ways[4 * EVERY + 2 :] == [PAST] * (EVERY - 2)


def test_a_disturbed_trial_changes_nothing():
    filling = SlotStores()
    calls(filling, EVERY, lambda way: 1.0 + way)

    disturbed = calls(filling, 3, lambda way: 100.0)

    assert disturbed == [THROUGH, PAST, THROUGH]


def test_ranks_that_measured_otherwise_try_at_the_same_calls():
    one, other = SlotStores(), SlotStores()
    first = calls(one, 3 * EVERY, lambda way: 1.0 + way)
    second = calls(other, 3 * EVERY, lambda way: 2.0 - way)

    for start in range(0, 3 * EVERY, EVERY):
        assert first[start : start + 2] == second[start : start + 2] == [THROUGH, PAST]


def test_calls_between_trials_need_not_be_noted():
    heard, unheard = SlotStores(), SlotStores()
    every = calls(heard, 4 * EVERY, lambda way: 2.0 - way)

    ways = []
    while len(ways) < 4 * EVERY:
        ways += [unheard.best] * unheard.settle()
        ways += calls(unheard, 1, lambda way: 2.0 - way)
    assert ways[: 4 * EVERY] == every


def test_small_calls_are_tried_after_as_many_bytes_as_large_ones():
    filling = SlotStoresByCall().of("all_reduce", 2**20)
    every = EVERY_BYTES // 2**21  # of the sizes up to twice as large

    ways = calls(filling, 3 * every, lambda way: 1.0 + way)

    assert [call for call, way in enumerate(ways) if way == PAST] == [1, 3, 5, every + 1, 2 * every + 1]


def test_sizes_within_a_power_of_two_share_what_is_known():
    fillings = SlotStoresByCall()

    assert fillings.of("all_reduce", 2**20) is fillings.of("all_reduce", 2**21 - 1)
    assert fillings.of("all_reduce", 2**20) is not fillings.of("all_reduce", 2**21)
    assert fillings.of("all_reduce", 2**20) is not fillings.of("all_gather", 2**20)


def test_a_new_size_begins_with_what_the_nearest_one_found():
    fillings = SlotStoresByCall()
    calls(fillings.of("all_reduce", 2**20), FIRST, lambda way: 2.0 - way)
    calls(fillings.of("all_reduce", 2**30), 2 * EVERY, lambda way: 1.0 + way)

    assert calls(fillings.of("all_reduce", 2**21), 3, lambda way: 1.0) == [PAST] * 3
    assert calls(fillings.of("all_reduce", 2**29), 3, lambda way: 1.0) == [THROUGH] * 3
    assert calls(fillings.of("all_gather", 2**20), 3, lambda way: 1.0) == [THROUGH, PAST, THROUGH]
