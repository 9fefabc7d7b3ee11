"""The pace of a machine, and when it has changed."""

import random

import pytest

from meshwright.bench.pace import centre, drifted, pace
from meshwright.cluster.graph import Pace

BEFORE = Pace(product_s=0.020, product_error=0.01, copy_s=0.010, copy_error=0.01)


def now(product=1.0, copy=1.0, error=0.01):
    return Pace(product_s=0.020 * product, product_error=error, copy_s=0.010 * copy, copy_error=error)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (now(), None),
        (now(product=1.05), None),
        (now(product=1.06), None),  # may be chance
        (now(product=1.15), ("a product of matrices", 1.15)),
        (now(product=1 / 4.5), ("a product of matrices", 1 / 4.5)),
        (now(copy=2.0), ("a copy in memory", 2.0)),
        (now(product=1.5, copy=3.0), ("a copy in memory", 3.0)),
        (now(product=1.15, error=0.2), None),
    ],
)
def test_a_pace_has_changed_where_it_differs_by_more_than_five_percent_and_chance(after, said):
    found = drifted(BEFORE, after)

    assert (found and (found[0], pytest.approx(found[1]))) == said


def test_the_error_of_a_median_is_about_that_of_many_medians():
    rng = random.Random(1)
    medians = [centre([rng.gauss(1.0, 0.1) for _ in range(25)]) for _ in range(400)]
    mean = sum(middle for middle, _ in medians) / 400
    spread = (sum((middle - mean) ** 2 for middle, _ in medians) / 400) ** 0.5

    assert sum(error for _, error in medians) / 400 == pytest.approx(spread, rel=0.15)


def test_a_machine_has_a_pace():
    found = pace()

    assert found.product_s > 0
    assert found.copy_s > 0
