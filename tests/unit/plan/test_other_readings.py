"""`meshwright validate`: measured figures that cannot be, and what a user is told of rows without an error."""

import json

import pytest
from click.testing import CliRunner

from meshwright import cli
from tests.unit.plan.test_validate import RUN, outcomes, table

ROW = RUN | {"recompute": "none", "global_batch_sequences": "128", "step_time_s": ""}  # 16 micro-batches of 8 copies


def told(tmp_path, *rows):
    path = tmp_path / "runs.csv"
    path.write_text(table(*rows))
    result = CliRunner().invoke(cli.group, ["validate", str(path)])
    assert result.exit_code == 0
    return " ".join(result.output.split())


def of_rate(tokens_per_s):
    return ROW | {"tokens_per_s_per_gpu": f"{tokens_per_s:.1f}"}


def test_a_rate_of_all_gpus_under_that_of_one_is_named_as_what_it_may_be(tmp_path):
    (priced,) = outcomes(tmp_path, ROW)
    (found,) = outcomes(tmp_path, of_rate(128 * 8192 / priced.step_time_s))

    assert found.error is None
    assert found.not_counted
    assert found.perhaps.startswith("of all 16 GPUs together it would be a step of ")


def test_the_time_of_a_micro_batch_under_that_of_a_step_is_named_as_what_it_may_be(tmp_path):
    (priced,) = outcomes(tmp_path, ROW)
    (found,) = outcomes(tmp_path, ROW | {"step_time_s": str(priced.step_time_s / 16)})

    assert found.not_counted
    assert found.perhaps.startswith("of one of its 16 micro-batches it would be a step of ")


def test_milliseconds_under_seconds_are_named_as_what_they_may_be(tmp_path):
    (priced,) = outcomes(tmp_path, ROW)
    row = ROW | {"step_time_s": str(1000 * priced.step_time_s)}
    (found,) = outcomes(tmp_path, row)

    assert found.is_far_outside
    assert found.perhaps.startswith("in milliseconds it would be a step of ")
    assert found.perhaps in told(tmp_path, row)


@pytest.mark.parametrize("share", [1.0, 1.1])
def test_a_figure_near_what_is_predicted_is_what_it_says(tmp_path, share):
    (priced,) = outcomes(tmp_path, ROW)
    (found,) = outcomes(tmp_path, ROW | {"step_time_s": str(share * priced.step_time_s)})

    assert found.perhaps == ""


SPARSE = {
    **{"id": "a", "family": "automodel", "gpu": "H100", "num_gpus": "64", "model_name": "gpt-oss-120b", "dp": "64"},
    **{"zero_stage_fsdp": "fsdp", "seq_len": "4096", "global_batch_sequences": "256", "micro_batch": "1"},
    **{"recompute": "none", "precision": "bf16", "step_time_s": ""},
}


def test_a_row_that_leaves_out_how_experts_are_split_is_told_what_a_split_takes(tmp_path):
    (split,) = outcomes(tmp_path, SPARSE | {"ep": "64"})
    row = SPARSE | {"step_time_s": str(1.1 * split.step_time_s)}
    (found,) = outcomes(tmp_path, row)

    assert found.is_far_outside
    assert "with experts over 64 ranks (ep=64), in place of ep=1" in found.perhaps
    assert "with experts over 64 ranks" in told(tmp_path, row)


@pytest.mark.parametrize("more", [{"model_name": "llama3-70b"}, {"zero_stage_fsdp": "1"}])
def test_rows_without_experts_or_whose_weights_are_whole_have_no_such_split(tmp_path, more):
    (priced,) = outcomes(tmp_path, SPARSE | more)
    (found,) = outcomes(tmp_path, SPARSE | more | {"step_time_s": str(0.3 * priced.step_time_s)})

    assert "experts" not in found.perhaps


def test_a_figure_that_fits_no_reading_is_left_as_it_is(tmp_path):
    (priced,) = outcomes(tmp_path, ROW)
    (found,) = outcomes(tmp_path, ROW | {"step_time_s": str(30 * priced.step_time_s)})

    assert found.is_far_outside
    assert found.perhaps == ""


def test_a_row_that_nobody_measured_prints_what_is_predicted_and_its_band(tmp_path):
    (priced,) = outcomes(tmp_path, ROW)
    text = told(tmp_path, ROW)

    least, most = (priced.step_time_s / (1.0 + sign * priced.error_band) for sign in (1, -1))
    band = f"its band of {100 * priced.error_band:.1f} % holds steps of {least:.4g} s to {most:.4g} s"
    assert f"mine-1: predicted {priced.step_time_s:.4g} s; {band}; nothing was measured" in text


def test_of_many_rows_that_nobody_measured_the_first_are_shown_and_the_rest_counted(tmp_path):
    text = told(tmp_path, *(ROW | {"id": f"r{number}"} for number in range(23)))

    assert text.count("nothing was measured") == 20
    assert "3 rows more without an error; --json prints all" in text


def test_a_run_that_is_held_not_to_fit_though_it_ran_is_said_to_be_odd(tmp_path):
    row = ROW | {"tp": "1", "dp": "16", "zero_stage_fsdp": "0", "layers": "160"}

    assert "held not to fit in the memory of a GPU" in told(tmp_path, row)
    assert "but it ran" not in told(tmp_path, row)
    assert "but it ran" in told(tmp_path, row | {"step_time_s": "60"})


def test_what_reading_a_config_assumes_is_said_of_its_row(tmp_path):
    sizes = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_decoder_layers": 6, "num_heads": 8}
    config = {"model_type": "t5", "is_encoder_decoder": True, "vocab_size": 32128, **sizes}
    (tmp_path / "both.json").write_text(json.dumps(config))
    row = {"id": "a", "gpu": "H100", "num_gpus": "8", "config": "both.json", "seq_len": "512", "family": "accelerate"}

    text = told(tmp_path, row | {"global_batch_sequences": "64", "dp": "8"})
    assert "assumed: a sequence is as long in the encoder as in the decoder" in text


@pytest.mark.parametrize(
    ("cells", "hint"),
    [
        ({"gpu": "trn1", "num_gpus": "32", "tp": "8", "dp": "8"}, "has 2 cores: where each counts as a GPU"),
        ({"gpu": "TPU v5p", "num_gpus": "32", "tp": "2", "dp": "16", "global_batch_sequences": "24"}, "v5p-128 is 2"),
    ],
)
def test_numbers_that_do_not_agree_where_cores_may_have_been_counted_say_so(tmp_path, cells, hint):
    (found,) = outcomes(tmp_path, ROW | cells)

    assert hint in found.reason
