"""When a group measures its links again: where reductions have left their price for good, and only then."""

from meshwright.backend.hosts.links import ENOUGH, LOOK_EVERY, PriceWatch


def look(watch, ratio):
    """Go on for as many reductions as lie between two looks, each `ratio` times as long as priced."""
    for _ in range(LOOK_EVERY - 1):
        assert not watch.is_due()
        watch.note(ratio, 1.0)
    assert watch.is_due()
    return watch.has_left(watch.taken())


def test_two_looks_in_a_row_far_from_the_price_are_a_change_and_one_is_a_mood():
    watch = PriceWatch()

    assert [look(watch, ratio) for ratio in (1.1, 5.0, 0.9, 5.0, 5.0)] == [False, False, False, False, True]


def test_links_that_became_quicker_are_noticed_too():
    watch = PriceWatch()

    assert [look(watch, 0.3), look(watch, 0.3)] == [False, True]


def test_a_price_that_is_always_wrong_is_measured_once_and_then_only_another_change_counts():
    watch = PriceWatch()
    assert [look(watch, 4.0), look(watch, 4.0)] == [False, True]

    watch.measured_again(4.0, kept=True)

    assert [look(watch, ratio) for ratio in (4.0, 4.5, 3.5)] == [False] * 3
    assert [look(watch, 12.0), look(watch, 12.0)] == [False, True]


def test_links_that_have_changed_are_held_against_their_new_price():
    watch = PriceWatch()
    assert [look(watch, 4.0), look(watch, 4.0)] == [False, True]

    watch.measured_again(4.0, kept=False)

    assert [look(watch, ratio) for ratio in (1.0, 4.0, 4.0)] == [False, False, True]


def test_too_few_reductions_say_nothing():
    watch = PriceWatch()
    for _ in range(ENOUGH - 1):
        watch.note(9.0, 1.0)

    assert watch.taken() == 0.0
    assert not watch.has_left(0.0)
