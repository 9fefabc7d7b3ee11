"""All-reduces that leave the same bits everywhere, so that replicas of a model stay replicas."""

import pytest

from meshwright.backend.hosts.choice import same_bits
from meshwright.collectives.catalogue import build_schedule
from meshwright.collectives.proof.bitwise import leaves_equal_bits
from meshwright.collectives.schedules.schedule import Schedule


@pytest.mark.parametrize("ranks", range(2, 13))
@pytest.mark.parametrize("narrow", [False, True])
def test_only_algorithms_that_end_alike_everywhere_are_chosen(ranks, narrow):
    for name in same_bits(narrow=narrow):
        schedule = build_schedule("all_reduce", name, ranks)
        alike_as_it_is = leaves_equal_bits(schedule, rounded=narrow)
        assert alike_as_it_is or leaves_equal_bits(schedule, rounded=narrow, keeps_rounded=True), name


@pytest.mark.parametrize("name", ["naive", "staggered"])
def test_three_ranks_that_each_sum_in_an_order_of_their_own_do_not_end_alike(name):
    assert not leaves_equal_bits(build_schedule("all_reduce", name, 3))


def test_two_ranks_that_swap_rounded_vectors_end_alike_only_if_each_rounds_its_own():
    swap = Schedule.parse("all_reduce swap ranks=2 chunks=1\n0: c0:0>+1 c0:1>+0\n")

    assert leaves_equal_bits(swap)
    assert not leaves_equal_bits(swap, rounded=True)
    assert leaves_equal_bits(swap, rounded=True, keeps_rounded=True)


def test_a_result_that_is_forwarded_is_rounded_once():
    chain = Schedule.parse("all_reduce chain ranks=3 chunks=1\n0: c0:0>+1\n1: c0:1>+2\n2: c0:2>1\n3: c0:1>0\n")

    assert leaves_equal_bits(chain, rounded=True)
