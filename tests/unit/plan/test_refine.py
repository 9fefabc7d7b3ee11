import numpy as np
import pytest

from meshwright.plan.explore import price_all, row_of, study_of
from meshwright.plan.refine import refined
from meshwright.plan.simulated import simulate_plan
from tests.unit.plan.test_explore import setting

CASE = setting("llama3-8b", "dgx-a100-80g", gpus=16, global_batch=32)
PRICED = price_all(CASE)
STUDY = study_of(CASE, PRICED)
REFINED = refined(STUDY, CASE, PRICED, 20)


def _prices():
    return [row_of(CASE, PRICED.grid, PRICED.prices, index) for index in np.argsort(PRICED.prices.step_time_s)[:100]]


def test_rows_are_ranked_by_the_simulator_and_keep_their_prediction():
    times = [row.simulated_s for row in REFINED.rows]
    best = REFINED.best

    assert times == sorted(times)
    assert best.simulated_s == max(span.end_s for span in simulate_plan(CASE, best.layout).spans)
    assert best.predicted == next(row for row in _prices() if row.layout == best.layout).predicted
    assert "fastest in the event simulator" in REFINED.reason


def test_the_formulas_and_the_simulator_agree_where_nothing_is_shared():
    for row in REFINED.rows:
        assert row.simulated_s == pytest.approx(row.predicted.step_time_s, rel=0.3)


def test_fewer_than_the_rows_are_simulated_if_so_asked():
    assert len(refined(STUDY, CASE, PRICED, 2).rows) == 2
