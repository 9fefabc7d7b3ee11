"""Tables that trackers, other engines and papers write: their names of columns are read as what they mean there."""

import pytest

from meshwright.plan.tables.reading import not_read
from meshwright.plan.validate import predict
from tests.unit.plan.test_table_forms import CATALOGUE, CELLS, KNOWN, rows, table, without

RUNS = {"model_name": "llama3-8b", "gpu": "H100", "num_gpus": "64", "seq_len": "8192"}


def row(tmp_path, cells):
    (found,) = rows(tmp_path, table({f'"{name}"': f'"{cell}"' for name, cell in cells.items()}))
    return found


def test_single_letters_of_papers_are_the_degrees_where_tensor_and_pipeline_stand_together(tmp_path):
    said = without("tp", "pp", "dp") | {"t": "4", "p": "4", "d": "4"}

    assert row(tmp_path, said).run.layout == row(tmp_path, CELLS).run.layout
    assert not_read(tmp_path / "runs.csv") == []
    row(tmp_path, said)
    assert "columns of one letter are read: t as tp, p as pp, d as dp" in not_read(tmp_path / "runs.csv")


def test_batch_and_length_of_training_loops_go_by_one_letter_each(tmp_path):
    found = row(tmp_path, without("micro_batch", "seq_len") | {"B": "2", "T": "8192"}).run

    assert (found.layout.mbs, found.seq_len) == (2, 8192)


@pytest.mark.parametrize("letter", ["t", "p", "d"])
def test_a_row_is_not_priced_as_data_parallel_where_a_single_letter_may_be_a_degree(tmp_path, letter):
    said = without("tp", "pp", "dp", "zero_stage_fsdp") | {letter: "4"}

    assert row(tmp_path, said).reason == f"column {letter}, '4', is not read: did you mean {letter}p?"


def test_columns_that_a_tracker_exports_of_torchtitan_are_read_by_their_full_names(tmp_path):
    exported = {
        **{"model.name": "llama3", "model.flavor": "8B", "gpu": "H100", "world_size": "64", "_wandb.gpu_count": "8"},
        **{"training.batch_size": "2", "training.seq_len": "8192", "training.data_parallel_shard_degree": "-1"},
        **{"training.tensor_parallel_degree": "1", "experimental.pipeline_parallel_degree": "1"},
        **{"activation_checkpoint.mode": "selective", "training.compile": "false"},
        **{"float8.enable_float8_linear": "false", "throughput(tps)": "5000", "family": "torchtitan"},
    }
    eager, joined = row(tmp_path, exported), row(tmp_path, exported | {"training.compile": "true"})
    low = row(tmp_path, exported | {"float8.enable_float8_linear": "true"})

    assert (eager.run.gpus, eager.run.global_batch, str(eager.run.layout)) == (
        *(64, 128),
        "dp=64,mbs=2,zero=3,recompute=selective",
    )
    assert eager.measured_step_time_s == pytest.approx(2 * 8192 / 5000)
    assert "eager" in eager.run.traits
    assert "eager" not in joined.run.traits
    assert (joined.run.precision, low.run.precision) == ("bf16", "fp8")


def test_axes_of_a_mesh_inside_slices_and_between_them_make_the_degrees(tmp_path):
    said = {
        **{"model": "llama3-8b", "accelerator": "v6e", "chips": "256", "max_target_length": "8192"},
        **{"per_device_batch_size": "4", "ici_fsdp_parallelism": "128", "dtype": "bf16", "remat_policy": "full"},
        **{"Tokens/s/device": "7000", "family": "maxtext"},
    }
    whole, cut = row(tmp_path, said).run, row(tmp_path, said | {"ici_tensor_parallelism": "2"}).run

    assert (whole.global_batch, whole.layout.mbs, whole.layout.dp) == (1024, 4, 256)
    assert (whole.layout.zero, whole.shard) == (3, 128)  # kept twice
    assert (cut.layout.tp, cut.layout.dp, cut.layout.mbs, cut.shard) == (2, 128, 8, 128)
    assert row(tmp_path, said | {"ici_fsdp_parallelism": "96"}).reason == (
        "axes of the mesh: their product is 96, but num_gpus = 256"
    )


def test_a_policy_of_further_keys_is_taken_for_full_recomputation_aloud(tmp_path):
    found = row(tmp_path, without() | {"remat_policy": "custom"}).run

    assert found.layout.recompute == "full"
    assert "recompute full: the table says 'custom', not what" in found.assumed


def test_samples_a_second_make_the_step_where_nothing_finer_is_said(tmp_path):
    bare = without("step_time_s") | {"Throughput (samples/s)": "8"}
    finer = {"Throughput (T/s/GPU)": "1024"}

    assert row(tmp_path, bare).measured_step_time_s == 128.0
    assert row(tmp_path, bare | finer).measured_step_time_s == 1024 * 8192 / (1024 * 64)
    assert row(tmp_path, bare | {"step_time_s": "116.25"}).measured_step_time_s == 116.25


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("Training step time (seconds per step)", "116.25"),
        ("Step (ms)", "116250"),
        ("elapsed_time_per_iteration_ms", "116250"),
        ("measured step time [s/it]", "116.25"),
    ],
)
def test_words_before_a_time_and_units_of_a_step_behind_it_do_not_hide_it(tmp_path, name, cell):
    assert row(tmp_path, without("step_time_s") | {name: cell}).measured_step_time_s == 116.25


def test_a_number_of_steps_is_no_time(tmp_path):
    assert row(tmp_path, without("step_time_s") | {"step(s)": "5000"}).measured_step_time_s is None


def test_commas_that_part_thousands_twice_in_a_table_part_them_once_as_well(tmp_path):
    said = without("step_time_s", "global_batch_sequences") | {"Step (ms)": "116,250"}

    assert row(tmp_path, said | {"Total batch (tokens)": "8,388,608"}).measured_step_time_s == 116.25
    assert row(tmp_path, said | {"Total batch (tokens)": "8388608"}).measured_step_time_s is None


@pytest.mark.parametrize("cell", ["yes", "True", "1"])
def test_checkpointing_of_activations_goes_by_its_short_name_where_it_is_on_or_off(tmp_path, cell):
    assert row(tmp_path, CELLS | {"Ckpt": cell}).run.layout.recompute == "full"
    assert row(tmp_path, CELLS | {"Ckpt": "/runs/7"}).run.layout.recompute == "none"


def test_adapters_that_are_named_beside_a_row_need_their_rank(tmp_path):
    said = CELLS | {"Task": "LoRA"}

    assert row(tmp_path, said).reason == "column Task is not read, and says 'LoRA': lora_rank says the rank of adapters"
    assert row(tmp_path, said | {"lora_rank": "16"}).run is not None


def test_a_batch_that_is_no_multiple_is_told_with_what_would_be(tmp_path):
    assert row(tmp_path, CELLS | {"global_batch_sequences": "1026"}).reason.endswith("= 4 x 1; 1024 would be")
    swapped = row(tmp_path, CELLS | {"global_batch_sequences": "1", "micro_batch": "64"}).reason
    assert swapped.endswith("= 4 x 64; the two exchanged, a batch of 64 and micro-batches of 1, would be")


def test_a_network_of_another_width_than_four_times_the_stream_has_three_matrices(tmp_path):
    sizes = {"layers": "24", "hidden": "2048", "heads": "32"}
    said = without("model_name", "tp", "pp", "dp") | sizes
    wide, usual = row(tmp_path, said | {"ffn": "5632"}).run, row(tmp_path, said | {"ffn": "8192"}).run

    assert (wide.architecture.gated, usual.architecture.gated) == (True, False)
    assert "three matrices in the network, since it is not 4 x hidden wide (gated_mlp 0: two)" in wide.assumed


def test_a_run_sharded_by_nemo_breaks_no_rule_of_it_and_its_layout_is_in_the_answer(tmp_path):
    said = RUNS | {"global_batch_sequences": "128", "micro_batch": "1", "zero_stage_fsdp": "fsdp", "family": "nemo"}
    (found,) = predict([row(tmp_path, said)], CATALOGUE, KNOWN)

    assert found.breaks == ()
    assert found.layout == "dp=64,mbs=1,zero=3"


def test_programs_that_published_stacks_ran_are_names_of_them(tmp_path):
    assert row(tmp_path, CELLS | {"family": "llm-foundry", "tp": "1", "pp": "1", "dp": "64"}).run.stack == "mpt"


def test_an_accelerator_goes_by_the_name_under_which_its_runs_are_told(tmp_path):
    assert row(tmp_path, CELLS | {"gpu": "h100-500w"}).run.accelerator == "h100-96g"


@pytest.mark.parametrize(
    ("name", "cell"),
    [("Hardware", "DGX SuperPOD"), ("seq", "1"), ("chips", "2"), ("max_reserved", "61.8"), ("elapsed step time", "9")],
)
def test_a_name_that_is_read_for_want_of_a_better_one_gives_way_to_it(tmp_path, name, cell):
    assert row(tmp_path, CELLS | {name: cell}).run == row(tmp_path, CELLS).run
