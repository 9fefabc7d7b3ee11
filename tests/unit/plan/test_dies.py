"""Cards of two dies that drivers list as two devices: a rank has one die, its memory and its rate."""

import csv

import pytest

from meshwright.cluster.builders import node_group
from meshwright.hardware import load_catalogue
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.request import PlanRequest, priced_layout, setting_of
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models
from meshwright.workload.models import load_model

CATALOGUE = load_catalogue()
TOLD = "a GPU is one die of a card (MI250X), as drivers list them; links between all pairs alike"


def test_a_node_of_eight_cards_has_sixteen_gpus_of_half_a_card():
    card, group = CATALOGUE.accelerators["mi250x"], node_group(CATALOGUE, "mi250x-8")

    assert (group.gpus, group.gpu.model) == (16, "mi250x-gcd")
    assert group.gpu.memory_bytes == pytest.approx(card.memory_bytes / 2, rel=0.08)  # 63.98 GiB shown of 64 GB
    assert 2 * group.gpu.peak_flops_per_s["bf16"] == card.peak_flops_per_s["bf16"]


def test_what_needs_more_than_a_die_does_not_fit_and_the_answer_says_what_a_gpu_is():
    request = PlanRequest(
        model=load_model("llama3-8b"), cluster="mi250x-8", gpus=None, global_batch=64, seq_len=4096, stack="torchtitan"
    )
    setting = setting_of(request, CATALOGUE)

    assert TOLD in setting.assumed
    found = priced_layout(setting, "dp=16,mbs=4,zero=3")
    assert 70e9 < found.terms["allocated_bytes"] < 128e9  # a card would hold it
    assert found.fits == "does not fit"


def test_a_row_of_such_cards_counts_their_dies(tmp_path):
    cells = {
        **{"id": "a", "gpu": "AMD Instinct MI250X", "num_gpus": "16", "model_name": "llama3-8b", "seq_len": "4096"},
        "global_batch_sequences": "64",
    }
    path = tmp_path / "runs.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, cells)
        table.writeheader()
        table.writerow(cells)

    run = read_rows(path, CATALOGUE, book(), known_models())[0].run
    assert (run.accelerator, run.gpus, run.gpus_per_node) == ("mi250x-gcd", 16, 16)
    assert TOLD in run.assumed


def test_a_card_of_one_device_is_what_it_was():
    assert CATALOGUE.listed_node("mi300x-8") == CATALOGUE.node("mi300x-8")
    assert CATALOGUE.dies("mi300x") == 1
