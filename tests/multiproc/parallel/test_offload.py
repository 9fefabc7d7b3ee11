"""Optimiser states in a second store, which stands for the memory of a host: what is trained, and what moves when."""

from collections import Counter

import pytest

from meshwright.bench.ranks.pool import RankPool
from meshwright.layout import Layout
from tests.multiproc.parallel.layouts import OFFLOADED, Case
from tests.multiproc.parallel.parity import difference, loss_difference, run
from tests.multiproc.parallel.recorded import recorded
from tests.multiproc.parallel.test_program import programmed

pytestmark = pytest.mark.timeout(280)
TEXTS = [case.layout for case in OFFLOADED]
LAYOUTS = [*TEXTS[:2], *(pytest.param(text, marks=pytest.mark.slow) for text in TEXTS[2:])]


@pytest.fixture(scope="module")
def alone():
    with RankPool(1) as pool:
        return pool.run(run, "dp=1,mbs=8", {}, "gloo", timeout_s=240)


@pytest.mark.parametrize("text", LAYOUTS)
def test_a_model_whose_states_live_elsewhere_trains_as_one_that_holds_them(text, alone, rank_pool):
    found = rank_pool(Layout.parse(text).world_size).run(run, text, {}, "meshwright", timeout_s=240)

    assert loss_difference(alone, found) < 1e-12
    assert difference(alone, found) < 1e-10
    assert difference(alone, found, "exp_avg_sq") < 1e-10
    assert found[0]["validation"] == pytest.approx(alone[0]["validation"], rel=1e-12)


@pytest.mark.parametrize("text", LAYOUTS)
def test_gradients_leave_before_the_update_and_weights_come_back_after_it_as_the_program_says(text, rank_pool):
    case = Case(text)
    ranks = rank_pool(Layout.parse(text).world_size)
    for calls, said in zip(ranks.run(recorded, text, {}, "meshwright", timeout_s=240), programmed(case), strict=True):
        crossing = [name for axis, name, _ in calls if axis == "host"]

        assert crossing == ["to_host", "to_device"]
        expected = Counter({call: count for call, count in said.items() if call[0] == "host"})
        assert Counter(call for call in calls if call[0] == "host") == expected
        names = [name for _, name, _ in calls]
        if "zero=1" in text:  # the shares have come back before they are gathered
            assert "all_gather" in names[names.index("to_device") :]
