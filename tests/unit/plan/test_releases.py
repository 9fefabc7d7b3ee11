"""A plan takes what recipes of a stack's newest release switch on, as rows of a table of that release have it."""

import json

import pytest

from meshwright.cli import run_command
from meshwright.hardware import load_catalogue
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.layouts.releases import recipe_of
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models, predict
from tests.unit.plan.goldens.figures import PUBLISHED

ROW = "bridge-007"  # Qwen3 235B in MXFP8 on 256 GB300
PLAN = (
    "plan --model qwen3-235b-a22b --stack bridge --cluster gb300-nvl72 --gpus 256 --global-batch 8192 --seq-len 4096 "
    "--precision mxfp8 --layout tp=1,pp=4,vpp=12,ep=32,dp=64,mbs=2 --json"
)


def answered(capsys, words):
    assert run_command(words.split()) == 0
    return json.loads(capsys.readouterr().out)


def test_a_published_run_costs_as_much_where_it_is_asked_for_as_where_a_table_states_it(capsys):
    rows = [row for row in read_rows(PUBLISHED, load_catalogue(), book(), known_models()) if row.id == ROW]
    (of_table,) = predict(rows, load_catalogue(), book())
    found = answered(capsys, PLAN)

    assert found["predicted"]["step_time_s"] == pytest.approx(of_table.step_time_s, rel=1e-6)
    assert found["layout"]["zero"] == 1
    assert any("one CUDA graph" in text and "26.06" in text for text in found["model"]["assumed"])


def test_a_recipe_is_left_out_where_that_is_asked_for(capsys):
    newest, none = (answered(capsys, f"{PLAN} {more}") for more in ("", "--recipe none"))

    assert none["predicted"]["step_time_s"] > 1.2 * newest["predicted"]["step_time_s"]
    assert not any("CUDA graph" in text for text in none["model"]["assumed"])


@pytest.mark.parametrize(
    ("stack", "accelerator", "model", "precision"),
    [
        ("bridge", "gb300", "qwen3-235b-a22b", "bf16"),
        ("bridge", "h100", "qwen3-235b-a22b", "fp8"),
        ("bridge", "gb300", "llama3-405b", "mxfp8"),
        ("megatron", "gb300", "qwen3-235b-a22b", "mxfp8"),  # priced like Megatron-Bridge, whose recipes it has not
        ("meshwright", "h100", "llama3-8b", "bf16"),
    ],
)
def test_nothing_is_taken_from_a_recipe_that_does_not_have_it(stack, accelerator, model, precision):
    assert recipe_of(stack, accelerator, model, precision) == ((), ())
