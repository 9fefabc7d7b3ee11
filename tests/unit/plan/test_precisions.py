"""Precisions that an accelerator multiplies: each by its own peak, and none stands in silence for another."""

import csv

import pytest
from msgspec.structs import replace

from meshwright.cluster.builders import node_group
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.analytic.price import peak_flops_per_s
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.model_facts import model_facts
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.targets.envelope import Question, envelope
from meshwright.workload.models import load_model

CATALOGUE = load_catalogue()
MODELS = {"qwen3-1.7b": load_model("qwen3-1.7b").architecture}
ROW = {
    **{"id": "a", "gpu": "V100-SXM2-32GB", "num_gpus": "8", "model_name": "qwen3-1.7b", "seq_len": "2048"},
    **{"global_batch_sequences": "64", "family": "before-2023"},
}


def setting(node, **changed):
    found = Setting(
        architecture=MODELS["qwen3-1.7b"],
        cluster=cluster_by_name(CATALOGUE, node, 8),
        gpus=8,
        global_batch=64,
        seq_len=2048,
        stack="since-2024",
    )
    return replace(found, **changed)


def row(tmp_path, **changed):
    path, cells = tmp_path / "runs.csv", ROW | changed
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, cells)
        table.writeheader()
        table.writerow(cells)
    return read_rows(path, CATALOGUE, book(), MODELS)[0]


@pytest.mark.parametrize("node", ["dgx-1-p100", "dgx-1-v100", "dgx-2", "aws-g4dn-metal"])
def test_a_gpu_without_bf16_is_not_priced_in_it_but_told_what_it_multiplies(node):
    with pytest.raises(InputError, match=r"has no bf16 .*; fp16 is what it multiplies"):
        price_layouts(setting(node), Grid.of([Layout(dp=8)]))

    assert price_layouts(setting(node, precision="fp16"), Grid.of([Layout(dp=8)])).step_time_s[0] > 0


def test_a_peak_that_a_cluster_s_own_figures_lack_is_not_said_to_be_missing_in_the_accelerator():
    with pytest.raises(InputError, match="gives no peak of h100 in fp8, the catalogue 1,979 TFLOP/s"):
        peak_flops_per_s({"bf16": 989e12}, "fp8", where="h100")
    with pytest.raises(InputError, match="a100-80g has no fp8"):
        peak_flops_per_s({"bf16": 312e12}, "fp8", where="a100-80g")


def test_a_peak_that_nobody_published_is_unknown_where_others_of_the_architecture_have_the_precision():
    with pytest.raises(InputError, match="the peak of a100-64g in bf16 is not known: --hardware FILE adds one"):
        peak_flops_per_s({"fp32": 22.4e12}, "bf16", where="a100-64g")
    with pytest.raises(InputError, match="a100-64g has no fp8"):
        peak_flops_per_s({"fp32": 22.4e12}, "fp8", where="a100-64g")


@pytest.mark.parametrize("peaks", [{"fp16": 1e14, "bf16": 5e13}, {"bf16": 5e13}], ids=["both", "bf16-alone"])
def test_fp16_has_its_own_peak_and_that_of_bf16_where_a_source_says_bf16_alone(peaks):
    assert peak_flops_per_s(peaks, "fp16", where="x") == peaks.get("fp16", 5e13)


def test_a_row_that_says_no_precision_runs_in_what_its_gpu_multiplies(tmp_path):
    found = row(tmp_path)

    assert found.run.precision == "fp16"
    assert "precision fp16: bf16 is none of this accelerator's" in found.run.assumed
    assert row(tmp_path, gpu="A100-SXM4-80GB").run.precision == "bf16"


def test_a_row_that_says_bf16_of_a_gpu_without_it_is_not_priced(tmp_path):
    found = row(tmp_path, precision="bf16")

    assert found.run is None
    assert "fp16 is what it multiplies" in found.reason


@pytest.mark.parametrize("precision", ["fp8", "fp8-block", "nvfp4"])
def test_the_arithmetic_of_a_count_alone_has_no_peak_of_another_precision(precision):
    question = Question(parameters=7e9, seq_len=2048, global_batch=16, gpus=8, precision=precision)

    with pytest.raises(InputError, match=f"a100-80g has no {precision}"):
        envelope(question, node_group(CATALOGUE, "dgx-a100-80g"))


def test_single_precision_says_that_nothing_is_multiplied_in_tf32_and_attention_neither():
    facts = model_facts(setting("dgx-a100-80g", precision="fp32"))
    assert facts.assumed[-1].endswith("none in TF32; MFU is against the dense peak in fp32, 19.5 TFLOP/s")

    half, single = (
        price_layouts(setting("dgx-a100-80g", seq_len=65536, precision=name), Grid.of([Layout(dp=8)])).forward_s[0]
        for name in ("bf16", "fp32")
    )
    assert single > 0.7 * half * 312 / 19.5  # most of a forward of this length is attention
