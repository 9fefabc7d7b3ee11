"""Every way of splitting a model changes who computes, not what is computed: 10 steps in float64, losses to 1e-12."""

import pytest

from meshwright.layout import Layout
from tests.multiproc.parallel.layouts import FAST, SLOW
from tests.multiproc.parallel.parity import difference, loss_difference, run

pytestmark = pytest.mark.timeout(280)  # eight ranks on two processors may be slow beside other work

LOSS, PARAMETERS = 1e-12, 1e-10  # rounding of float64 sums in another order


@pytest.fixture(scope="session")
def alone(_pools):
    """Return a function from a model to what one process makes of it, trained once."""
    from meshwright.bench.ranks.pool import RankPool

    known = {}

    def get(model):
        key = tuple(sorted(model.items()))
        if key not in known:
            with RankPool(1) as pool:
                known[key] = pool.run(run, "dp=1,mbs=8", model, "gloo")
        return known[key]

    return get


def check(case, alone, rank_pool):
    expected = alone(case.model)

    found = rank_pool(Layout.parse(case.layout).world_size).run(
        run, case.layout, case.model, case.backend, timeout_s=240
    )

    assert loss_difference(expected, found) < LOSS
    assert difference(expected, found) < PARAMETERS
    assert difference(expected, found, "exp_avg_sq") < PARAMETERS
    assert all(result["norms"] == pytest.approx(expected[0]["norms"], rel=LOSS) for result in found)
    assert found[0]["validation"] == pytest.approx(expected[0]["validation"], rel=LOSS)


@pytest.mark.parametrize("case", FAST, ids=str)
def test_ten_steps_equal_those_of_one_process(case, alone, rank_pool):
    check(case, alone, rank_pool)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(one, marks=pytest.mark.soak) if index % 5 else one for index, one in enumerate(SLOW)], ids=str
)
def test_ten_steps_of_larger_layouts_equal_those_of_one_process(case, alone, rank_pool):
    check(case, alone, rank_pool)
