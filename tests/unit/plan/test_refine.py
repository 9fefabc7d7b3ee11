from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, price_layouts
from meshwright.plan.search.explore import price_all, row_of, study_of
from meshwright.plan.search.refine import refined
from meshwright.plan.search.simulated import simulate_plan, step_program
from meshwright.timeline import length_s
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


@pytest.mark.parametrize("cluster", ["mi300x-8", "perlmutter-80g", "gb200-nvl72"])
@pytest.mark.parametrize("layout", [Layout(tp=4, dp=4, sp=1, zero=1), Layout(tp=8, dp=2, sp=1), Layout(dp=16, zero=3)])
def test_the_formulas_and_the_simulator_agree_on_links_that_join_pairs_and_on_racks(cluster, layout):
    case = setting("llama3-8b", cluster, gpus=16, global_batch=64)
    (priced,) = price_layouts(case, Grid.of([layout])).step_time_s

    assert max(span.end_s for span in simulate_plan(case, layout).spans) == pytest.approx(priced, rel=0.25)


def test_on_a_torus_the_answer_says_which_rings_are_not_simulated():
    case = setting("llama3-8b", "tpu-v5p", gpus=16, global_batch=64, stack="maxtext")
    priced = price_all(case)

    assert any("not simulated: rings" in text for text in refined(study_of(case, priced), case, priced, 1).warnings)
    assert not any("not simulated" in text for text in REFINED.warnings)


def test_a_model_sharded_in_each_node_sends_only_its_sums_between_nodes():
    def busy_s(spans, name):
        return length_s([(s.start_s, s.end_s) for s in spans if s.name == name])

    layers, micro_batches = CASE.architecture.num_hidden_layers, 32 // 16
    whole = simulate_plan(CASE, Layout(dp=16, zero=3)).spans

    spans = simulate_plan(CASE, Layout(dp=16, zero=3, replicas=2)).spans

    along = Counter((s.name, s.detail.split()[0]) for s in spans if s.lane == "comm")
    assert along == {  # what is outside of the layers stays whole from forward to backward
        ("all_gather", "shard"): (2 * layers + 1) * micro_batches,
        ("reduce_scatter", "shard"): (layers + 1) * micro_batches,
        ("all_reduce", "replica"): layers + 1,
        ("all_reduce", "world"): 1,  # the gradient's norm
    }
    assert busy_s(spans, "all_gather") < busy_s(whole, "all_gather")


def test_torchtitan_gathers_its_embedding_for_the_backward_too_and_its_output_once():
    program = step_program(replace(CASE, stack="torchtitan"), Layout(dp=16, zero=3))

    embedding, _, output = program.stages[0].units
    table = 2 * CASE.architecture.vocab_size * CASE.architecture.hidden_size
    assert [[comm.bytes for comm in one.ahead] for one in embedding.both] == [[table], [table]]
    assert [[comm.bytes for comm in one.ahead] for one in output.both] == [[table], []]


@pytest.mark.parametrize(
    "layout", ["dp=16,zero=3,replicas=2", "dp=4,tp=4,zero=3,replicas=2", "dp=8,pp=2,zero=3,replicas=2"]
)
def test_the_formulas_and_the_simulator_agree_on_copies_of_a_sharded_model(layout):
    layout = Layout.parse(layout)

    simulated_s = max(span.end_s for span in simulate_plan(CASE, layout).spans)

    assert simulated_s == pytest.approx(float(price_layouts(CASE, Grid.of([layout])).step_time_s[0]), rel=0.3)


def test_fewer_than_the_rows_are_simulated_if_so_asked():
    assert len(refined(STUDY, CASE, PRICED, 2).rows) == 2


@pytest.mark.parametrize("layout", ["dp=1,pp=4", "dp=4,zero=1", "tp=4,dp=1"])
def test_the_simulator_adds_up_the_gradients_of_each_micro_batch_as_the_formulas_do(layout):
    given = setting("llama3-8b", "dgx-h100", gpus=4, global_batch=32, seq_len=2048)  # our own engine: kernels apart
    priced = price_layouts(given, Grid.of([Layout.parse(layout)]))

    spans = simulate_plan(given, Layout.parse(layout)).spans

    # the formulas take every stage of a pipeline to hold as much as the fullest, an embedding included
    assert max(span.end_s for span in spans) == pytest.approx(priced.step_time_s[0], rel=0.04)
