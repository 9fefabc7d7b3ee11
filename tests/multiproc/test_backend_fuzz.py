"""A seeded sample of random calls: each comes out as the model says, none crashes a rank or hangs."""

import pytest

from tests.multiproc.call_fuzz import RANKS, run_cases


def faults(found):
    return {key: count for key, count in found.items() if key[1] != "right"}


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("hosts", "seeds"), [(1, range(0, 200)), (2, range(1000, 1040))])
def test_random_calls_come_out_as_they_must(rank_pool, hosts, seeds):
    assert faults(run_cases(lambda: rank_pool(RANKS), seeds, hosts=hosts)) == {}


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_thousand_random_calls_come_out_as_they_must(rank_pool):
    assert faults(run_cases(lambda: rank_pool(RANKS), range(10_000, 12_000))) == {}
