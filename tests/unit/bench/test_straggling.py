"""How much longer the slowest rank takes than all are priced at."""

import pytest

from meshwright.bench.calibrate import WorkPace, fitted_straggling


def test_the_slowest_of_ranks_with_processors_of_their_own_is_late_by_the_spread_of_their_paces():
    paces = [[WorkPace(taken_s, taken_s)] * 3 for taken_s in (0.9, 1.0, 1.1, 1.4)]

    assert fitted_straggling(paces) == pytest.approx(1.4 / 1.1 - 1)


def test_ranks_that_share_a_processor_and_end_one_after_the_other_are_not_late():
    paces = [[WorkPace(taken_s, 4.0)] for taken_s in (1.0, 2.0, 3.0, 4.0)]  # each has a second of work

    assert fitted_straggling(paces) == 0.0


@pytest.mark.parametrize("noise", [0.96, 1.04])
def test_a_price_that_is_a_little_off_hides_no_straggler_and_makes_none(noise):
    paces = [[WorkPace(taken_s, noise * taken_s)] for taken_s in (0.99, 1.01)]

    assert fitted_straggling(paces) == pytest.approx(0.01)


def test_one_rank_alone_is_never_late():
    assert fitted_straggling([[]]) == 0.0
