"""How rows reach their experts, where nothing says it: a doubt as large as what it may cost."""

import pytest
from msgspec.structs import replace

from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Setting, performance, price_layouts
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.analytic.dispatch import WAITS, doubt_of
from meshwright.plan.analytic.quantities import Grid
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.fitting.calibrate import inputs_digest
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models, predict
from meshwright.workload.models import load_model

LAYOUT = Layout(dp=8, ep=8, mbs=1, zero=1)
SAID = "dispatcher of experts: not said"
HEAD = "gpu,family,model_name,num_gpus,precision,seq_len,global_batch_sequences,micro_batch,ep,dp,zero_stage_fsdp"
ROW = "h100,bridge,qwen3-30b-a3b,8,bf16,4096,256,1,8,8,1"


def predicted(**changed):
    given = {
        "architecture": load_model("qwen3-30b-a3b").architecture,
        "cluster": cluster_by_name(load_catalogue(), "dgx-h100", 8),
        "gpus": 8, "global_batch": 256, "seq_len": 4096, "precision": "bf16", "stack": "bridge",
    }  # fmt: skip
    setting = Setting(**(given | changed))
    return performance(setting, price_layouts(setting, Grid.of([LAYOUT])), 0, LAYOUT)


def doubts(found):
    return [text for text in found.not_modelled if text.startswith(SAID)]


def test_the_band_holds_the_step_of_a_dispatcher_for_which_the_host_waits():
    open_one, waiting, flexible = predicted(), predicted(traits=(WAITS,)), predicted(routed_once=True)

    assert f"{waiting.step_time_s:.3g} s a step" in doubts(open_one)[0]
    assert doubts(waiting) == doubts(flexible) == []
    missed = 1 - open_one.step_time_s / waiting.step_time_s
    assert open_one.error_band == pytest.approx(flexible.error_band + missed)
    assert missed > 0.1


def test_engines_that_choose_no_dispatcher_and_models_without_experts_have_no_such_doubt():
    dense = load_model("llama3-8b").architecture

    assert doubts(predicted(stack="torchtitan")) == doubts(predicted(architecture=dense, stack="megatron")) == []


def test_what_costs_next_to_nothing_is_no_doubt():
    assert doubt_of(1.0, 1.01) == ((), 0.0)


def test_a_row_of_a_table_has_the_doubt_unless_it_says_where_it_is_from(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(f"{HEAD},source\n{ROW},\n{ROW},a page of release 26.06\n")

    rows = read_rows(path, load_catalogue(), book(), known_models())
    mine, published = predict(rows, load_catalogue(), book())

    assert any(text.startswith(SAID) for text in mine.doubts)
    assert not any(text.startswith(SAID) for text in published.doubts)
    assert mine.error_band > published.error_band + 0.1
    assert mine.step_time_s == published.step_time_s


def test_the_source_of_a_row_is_no_part_of_what_was_run(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(f"{HEAD}\n{ROW}\n")
    (row,) = read_rows(path, load_catalogue(), book(), known_models())

    assert inputs_digest(row.run) == inputs_digest(replace(row.run, sourced=True))
