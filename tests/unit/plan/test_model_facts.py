"""Assumptions about precision and experts are said in the answer, and change it."""

import dataclasses

import pytest
from msgspec.structs import replace

from meshwright.cli import run_command
from meshwright.hardware import load_catalogue
from meshwright.layout import Layout
from meshwright.plan.analytic import Grid, Setting, price_layouts
from meshwright.plan.analytic.layer import _network, layer_s
from meshwright.plan.analytic.price import coefficients_of, machine_of
from meshwright.plan.analytic.quantities import ModelQuantities
from meshwright.plan.clusters.machines import cluster_by_name
from meshwright.plan.model_facts import facts_about, model_facts, sentence
from meshwright.plan.request import PlanRequest, setting_of
from meshwright.workload.configs import architecture_of
from meshwright.workload.models import load_model

MIXTRAL = Setting(
    architecture=load_model("mixtral-8x7b").architecture,
    cluster=cluster_by_name(load_catalogue(), "dgx-h100", 64), gpus=64,
    global_batch=256, seq_len=4096, stack="megatron",
)  # fmt: skip
LAYOUT = Grid.of([Layout(dp=64, ep=8, zero=1)])


def test_experts_are_balanced_unless_something_else_is_said():
    even, uneven = price_layouts(MIXTRAL, LAYOUT), price_layouts(replace(MIXTRAL, imbalance=1.5), LAYOUT)

    assert any("evenly over the experts (--imbalance" in text for text in model_facts(MIXTRAL).assumed)
    assert any("1.5 times the rows" in text for text in model_facts(replace(MIXTRAL, imbalance=1.5)).assumed)
    assert 1.1 < uneven.step_time_s[0] / even.step_time_s[0] < 1.5
    assert uneven.activations_bytes[0] > even.activations_bytes[0]
    assert uneven.parameters_bytes[0] == even.parameters_bytes[0]


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("mixtral-8x7b", "9", "expected 1 to 8"),
        ("mixtral-8x7b", "0.5", "expected 1 to 8"),
        ("llama3-8b", "2", "no exp"),
    ],
)
def test_an_imbalance_that_cannot_be_is_refused(model, given, expected, capsys):
    words = ["plan", "--model", model, "--cluster", "dgx-h100", "--global-batch", "64", "--imbalance", given]

    assert run_command(words) == 2
    assert expected in capsys.readouterr().err


def test_a_sequence_beyond_a_table_of_positions_is_said():
    cluster = load_catalogue()

    def assumed(model, seq_len):
        request = PlanRequest(
            model=load_model(model), cluster="dgx-h100", gpus=8, global_batch=8, seq_len=seq_len
        )  # fmt: skip
        return [text for text in setting_of(request, cluster).assumed if "positions" in text]

    assert assumed("gpt2", 4096) == [
        "a table of more positions: it has 1,024 rows, which sequences of 4,096 tokens go beyond"
    ]
    assert assumed("gpt2", 1024) == assumed("llama3-8b", 262_144) == []
    assert "512 rows" in assumed("bert-base", 2048)[0]


def test_the_answer_for_one_gpu_lists_no_layout_twice(capsys):
    words = ["plan", "--model", "gpt2", "--cluster", "dgx-a100-40g", "--gpus", "1", "--global-batch", "32"]
    assert run_command(words) == 0

    table = capsys.readouterr().out.partition("the fastest of each way")[2].partition("takes")[0]
    rows = [line.split("  ")[1].strip() for line in table.splitlines() if line.startswith("  dp=1")]
    assert rows
    assert len(rows) == len(set(rows))


def test_low_precision_says_what_stays_higher_and_which_peak_mfu_is_of():
    told = model_facts(replace(MIXTRAL, precision="fp8")).assumed[-1]

    assert "the output projection run in bf16" in told
    assert "1,979 TFLOP/s" in told
    assert not any("MFU" in text for text in model_facts(MIXTRAL).assumed)


def test_an_uneven_load_slows_neither_the_launches_nor_what_every_token_visits():
    uneven = replace(MIXTRAL, imbalance=2.0)
    model, machine = ModelQuantities.of(MIXTRAL.architecture), machine_of(MIXTRAL)
    wide = dataclasses.replace(model, shared_ffn=model.ffn)

    def added_s(of: ModelQuantities) -> float:
        c = [coefficients_of(one) for one in (MIXTRAL, uneven)]
        even, more = (_network(machine, one, of, LAYOUT, 4096.0)[0][0] for one in c)
        return float(more - even)

    def forward_s(given: Setting) -> float:
        c = replace(coefficients_of(given), launch_moe_s=1.0)
        return float(layer_s(machine, c, model, LAYOUT, 4096.0).forward.total_s[0])

    assert added_s(model) == pytest.approx(added_s(wide), rel=1e-9)
    assert forward_s(uneven) == pytest.approx(forward_s(MIXTRAL), rel=0.01)


@pytest.mark.parametrize("stack", ["torchtitan", "meshwright"])
def test_recomputation_keeps_the_products_of_the_rows_of_the_fullest_rank(stack):
    layout = Grid.of([Layout(dp=64, ep=8, zero=1, recompute="selective")])
    given = replace(MIXTRAL, stack=stack)
    even, uneven = price_layouts(given, layout), price_layouts(replace(given, imbalance=1.5), layout)

    assert uneven.activations_bytes[0] > 1.1 * even.activations_bytes[0]


def test_flops_of_a_decoder_are_said_to_leave_out_what_a_causal_mask_hides():
    model = load_model("llama3-8b").architecture
    facts = facts_about(model, 8192)

    assert facts.causal
    assert "51.47 GFLOP a token (causal) at 8,192 tokens" in sentence(facts)
    every = model.model_flops_per_token(8192, causal=False)
    assert facts.flops_per_token == pytest.approx(every - 6 * 32 * 8192 * 4096)


def test_flops_of_an_encoder_that_masks_nothing_are_not():
    facts = facts_about(load_model("bert-large").architecture, 512)

    assert not facts.causal
    assert "GFLOP a token at 512 tokens" in sentence(facts)


def test_of_experts_without_weights_it_is_said_how_many_of_a_token_compute():
    found = architecture_of({"model_type": "longcat_flash"})

    assert any("picks 12 of 768 experts, 8 of them with weights on average" in told for told in found.assumed)
    assert architecture_of({"model_type": "longcat_flash", "zero_expert_num": 0}).architecture.parameters == (
        found.architecture.parameters - 28 * 256 * found.architecture.hidden_size  # columns of routers
    )


def test_experts_that_no_token_of_text_visits_are_counted_and_said():
    model = architecture_of({"model_type": "ernie4_5_vl_moe_text"}).architecture

    assert any("multiplied with no token of text; without them" in told for told in facts_about(model, 4096).assumed)


def test_weights_that_transformers_allocates_for_nothing_are_said_and_not_counted():
    model = architecture_of({"model_type": "longcat_flash"}).architecture

    assert model.parameters == pytest.approx(560.7e9, rel=1e-3)  # published: 560 B
    assert any("(741.1 B in all): not counted" in told for told in facts_about(model, 4096).assumed)
    assert not any("allocates" in told for told in facts_about(MIXTRAL.architecture, 4096).assumed)


@pytest.mark.parametrize(("sequences", "seq_len"), [(2**21, 4096), (524_288, 1024)])
def test_a_batch_in_tokens_in_place_of_sequences_is_said_with_the_sequences_that_it_would_be(sequences, seq_len):
    said = model_facts(replace(MIXTRAL, global_batch=sequences, seq_len=seq_len)).assumed

    assert any(text.endswith(f"{sequences:,} tokens would be --global-batch {sequences // seq_len}") for text in said)


@pytest.mark.parametrize(("sequences", "seq_len"), [(15_360, 4096), (16_384, 8192), (128, 1_048_576)])
def test_of_the_largest_batches_that_were_published_nothing_is_said(sequences, seq_len):
    told = model_facts(replace(MIXTRAL, global_batch=sequences, seq_len=seq_len)).assumed

    assert not any("counts sequences" in text for text in told)
