"""Rows that do not say whose software they ran, or state FLOPs in place of a time, or more memory than is predicted."""

import pytest
from click.testing import CliRunner

from meshwright import cli
from meshwright.plan.tables.settled import settled_rows
from meshwright.plan.validate import predict
from meshwright.units import format_time
from tests.unit.plan.test_table_forms import CATALOGUE, CELLS, KNOWN, rows, table, without

ALONE = {"model_name": "llama2-7b", "gpu": "A100-80GB", "num_gpus": "8", "seq_len": "4096", "LBS": "2", "zero": "3"}
SMALL = {
    **{"family": "torchtitan", "gpu": "H100", "num_gpus": "4", "layers": "12", "hidden": "768", "heads": "12"},
    **{"vocab": "128256", "tied": "0", "seq_len": "8192", "local batch size": "4", "fsdp": "4"},
}


def row(tmp_path, cells):
    (found,) = rows(tmp_path, table({f'"{name}"': f'"{cell}"' for name, cell in cells.items()}))
    assert found.reason is None
    return found


@pytest.mark.parametrize(
    ("cells", "stack", "why"),
    [
        ({"ici_fsdp_parallelism": "8", "gpu": "v5p"}, "maxtext", "column ici_fsdp_parallelism is its own"),
        ({"tensor_model_parallel_size": "1"}, "megatron", "column tensor_model_parallel_size is its own"),
        ({"id": "ours on PaxML"}, "pax", "'PaxML' stands beside it"),
        ({"id": "torchtitan, main"}, "torchtitan", "'torchtitan' stands beside it"),
        ({"gpu": "v6e"}, "maxtext", "family is empty"),
    ],
)
def test_a_row_without_a_family_ran_the_engine_that_its_columns_or_words_name(tmp_path, cells, stack, why):
    found = row(
        tmp_path, {k: v for k, v in ALONE.items() if not (k == "zero" and "ici_fsdp_parallelism" in cells)} | cells
    )

    assert found.run.stack == stack
    assert f"stack {stack}, since {why}" in found.run.assumed
    named = row(tmp_path, ALONE | {k: v for k, v in cells.items() if k == "id"} | {"family": "trl"})
    assert named.run.stack == "trl"


@pytest.mark.parametrize(
    ("text", "stack"),
    [("torch 2.0 nightly", "in-2023"), ("PyTorch 1.13", "before-2023"), ("torch 2.6", "meshwright")],
)
def test_a_release_of_pytorch_beside_a_row_is_of_a_year(tmp_path, text, stack):
    assert row(tmp_path, ALONE | {"notes": text}).run.stack == stack


def test_half_precision_without_a_family_is_of_the_time_that_it_tells(tmp_path):
    assert row(tmp_path, ALONE | {"precision": "fp16"}).run.stack == "before-2023"


def test_a_run_that_ran_and_does_not_fit_as_ours_was_anothers(tmp_path):
    cells = {"model_name": "tinyllama-1.1b", "gpu": "A100-40GB", "num_gpus": "16", "seq_len": "2048", "zero": "fsdp"}
    cells |= {"gbs": "1024", "micro_batch": "8", "recompute": "none"}
    timed, bare = row(tmp_path, cells | {"step_time_s": "5.4"}), row(tmp_path, cells)
    (was,), (ours,) = (settled_rows([one], CATALOGUE, KNOWN) for one in (timed, bare))

    assert was.run.stack == "sharded-since-2024"
    assert any("what meshwright keeps is more than a GPU holds" in text for text in was.run.assumed)
    assert ours.run.stack == "meshwright"  # nothing says that it ran


def test_the_rules_of_a_stack_that_a_row_does_not_name_refuse_no_shared_heads(tmp_path):
    cells = without("tp", "pp", "dp", "model_name", "gpu", "family") | {"tp": "8", "dp": "8", "kv_heads": "1"}
    sizes = {"layers": "8", "hidden": "4096", "heads": "32", "gpu": "v4", "zero_stage_fsdp": "3"}

    assert row(tmp_path, cells | sizes).run.layout.tp == 8


def test_sequence_parallelism_is_not_assumed_where_ranks_cannot_share_the_tokens(tmp_path):
    sizes = {"layers": "8", "hidden": "6144", "heads": "48", "num_gpus": "24", "global_batch_sequences": "16"}
    cells = without("model_name", "pp", "dp", "tp", "family") | sizes | {"tp": "12", "dp": "2", "family": "megatron"}
    found = row(tmp_path, cells).run

    assert found.layout.sp == 0
    assert "seq_parallel 0, since tp 12 does not divide 8192 tokens" in found.assumed


@pytest.mark.parametrize(
    ("name", "cell", "more"),
    [
        ("TFLOPS/GPU", "150", {"recompute": "full"}),
        ("throughput per GPU (TFLOP/s/GPU)", "150", {"recompute": "full"}),
        ("pflops_per_gpu", "0.15", {"recompute": "full"}),
        ("MFU", "48.1%", {}),
        ("mfu_pct", "48.1", {}),
    ],
)
def test_a_rate_in_flops_is_told_as_a_step_and_never_counted(tmp_path, name, cell, more):
    (found,) = predict([row(tmp_path, ALONE | more | {name: cell})], CATALOGUE, KNOWN)

    assert (found.error, found.measured_step_time_s) == (None, None)
    step_s = found.model.flops_per_token * 2 * 4096 / 150e12
    assert f"is no time: {'a step of' if more else 'of the dense peak it makes a step of'}" in found.not_counted
    assert not more or f"a step of {format_time(step_s)} if" in found.not_counted
    assert ("if those of recomputation count too" in found.not_counted) == bool(more)
    timed = row(tmp_path, ALONE | more | {name: cell, "step_time_s": "2.5"})
    assert (timed.measured_step_time_s, timed.contradiction) == (2.5, "")


def test_a_rate_in_flops_beyond_the_dense_peak_is_named_so(tmp_path):
    assert (
        "more than the dense peak of a100-80g, 312 TFLOP/s"
        in row(tmp_path, ALONE | {"TFLOPS/GPU": "620"}).contradiction
    )


@pytest.mark.parametrize("name", ["wps", "TPS"])
def test_torchtitans_tokens_a_second_are_of_one_gpu(tmp_path, name):
    assert row(tmp_path, SMALL | {name: "111,000"}).measured_step_time_s == pytest.approx(4 * 8192 / 111000)
    assert row(tmp_path, SMALL | {"family": "nemo", name: "111000"}).measured_step_time_s is None


def test_a_memory_far_from_what_is_predicted_is_told_with_what_the_row_does_not_say(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(table(SMALL | {"memory (GiB)": "62"}))
    said = " ".join(CliRunner().invoke(cli.group, ["validate", str(path)]).stdout.split())

    assert "measured 62 GiB (with the logits whole (loss), which its row does not state, " in said
    (near,) = predict(rows(tmp_path, table(SMALL | {"memory (GiB)": "16"})), CATALOGUE, KNOWN)
    (odd,) = predict(rows(tmp_path, table(CELLS | {"memory (GiB)": "3"})), CATALOGUE, KNOWN)
    assert near.memory_perhaps == ""
    assert odd.memory_perhaps
