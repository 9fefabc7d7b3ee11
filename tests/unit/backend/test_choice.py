"""The all-reduce between hosts, and when another measurement of the links is a reason to choose anew."""

import pytest

from meshwright.backend.hosts.choice import (
    SIZES_BYTES,
    WORTH_CHOOSING,
    MessageCost,
    choose_all_reduce,
    price_s,
    regret,
    still_serves,
)

LINKS = MessageCost(alpha_s=4e-4, beta_s_per_byte=4e-8)


def test_small_vectors_go_to_everyone_at_once_and_large_ones_in_parts():
    assert [choose_all_reduce(LINKS, 4, size) for size in (4, 2**24)] == ["one_shot", "partitioned"]
    assert choose_all_reduce(LINKS, 2, 2**24) == choose_all_reduce(LINKS, 2, 2**24, narrow=True) == "one_shot"


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_a_link_at_a_quarter_is_a_reason_to_choose_anew_and_a_busy_machine_is_none(ranks):
    slowed = MessageCost(LINKS.alpha_s, 4 * LINKS.beta_s_per_byte)
    busy = MessageCost(1.6 * LINKS.alpha_s, LINKS.beta_s_per_byte)

    assert not still_serves(LINKS, slowed, ranks)
    assert not still_serves(slowed, LINKS, ranks)
    assert still_serves(LINKS, busy, ranks)


def test_a_link_at_a_quarter_is_another_link_though_the_old_choices_take_hardly_longer():
    """On a busy machine messages are found slower too: then the ways keep their order, and only prices change."""
    known, slowed = MessageCost(1.8e-4, 4.1e-8), MessageCost(5e-4, 1.55e-7)

    assert regret(known, slowed, 4) < WORTH_CHOOSING
    assert not still_serves(known, slowed, 4)


def test_a_choice_that_takes_long_is_made_anew_though_the_rate_is_the_old_one():
    late = MessageCost(4 * LINKS.alpha_s, LINKS.beta_s_per_byte)

    assert not still_serves(LINKS, late, 8)


def test_regret_is_the_worst_of_all_sizes():
    other = MessageCost(1e-2, 1e-9)

    worst = regret(LINKS, other, 4)

    def took_over_best(size):
        took, best = (price_s(choose_all_reduce(by, 4, size), other, 4, size) for by in (LINKS, other))
        return took / best

    assert worst == max(map(took_over_best, SIZES_BYTES))
    assert regret(other, other, 4) == 1
