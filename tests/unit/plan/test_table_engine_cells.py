"""Columns of other engines in a table of runs: read as what they say, or named where their rows are not priced."""

import pytest

from tests.unit.plan.test_table_forms import CELLS, rows, table, without

BATCH = without("global_batch_sequences")
ALONE = without("tp", "pp", "dp", "micro_batch", "zero_stage_fsdp", family="torchtitan")


def reason(tmp_path, cells):
    (row,) = rows(tmp_path, table({name: f'"{cell}"' for name, cell in cells.items()}))
    return row.reason


def run(tmp_path, cells):
    (row,) = rows(tmp_path, table({f'"{name}"': f'"{cell}"' for name, cell in cells.items()}))
    assert row.reason is None
    return row.run


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("TP/PP/DP", "4/4/4"),
        ("(PP, TP)", "(4, 4)"),
        ("tp x pp", "4 x 4"),
        ("dp_pp_tp", "4_4_4"),
        ("TP/PP", "TP4 PP4"),
    ],
)
def test_degrees_that_one_column_joins_are_each_read(tmp_path, name, cell):
    assert run(tmp_path, without("tp", "pp", "dp") | {name: cell}).layout == run(tmp_path, CELLS).layout


@pytest.mark.parametrize("cell", ["4-May-04", "05/04/2004", "2004-05-04", "4/4", "4.4.4"])
def test_joined_degrees_that_a_spreadsheet_made_a_date_of_are_not_priced(tmp_path, cell):
    said = reason(tmp_path, without("tp", "pp", "dp") | {"TP/PP/DP": cell})

    assert said.startswith(f"column TP/PP/DP: expected 3 whole numbers such as 4/8/2, got {cell!r}")


def test_joined_degrees_agree_with_their_own_columns(tmp_path):
    assert reason(tmp_path, CELLS | {"TP/PP": "8/2"}) == "TP/PP makes tp 8, but tp = 4"


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("FSDP/TP", "16/4"),
        ("numTP", "4"),
        ("MP", "4"),
        ("pipeline stages", "4"),
        ("stage", "3"),
        ("model chunks", "5"),
        ("ranks per replica", "16"),
        ("act ckpt", "True"),
        ("num_layers_per_virtual_pipeline_stage", "5"),
        ("ulysses_degree", "2"),
        ("BS per GPU", "4"),
    ],
)
def test_a_column_of_the_split_or_the_batch_that_nothing_reads_keeps_its_row_unpriced(tmp_path, name, cell):
    assert f"column {name}" in reason(tmp_path, without("tp", "dp", "micro_batch") | {name: cell})


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("TP comm (ms)", "31"),
        ("eval_batch_size", "4"),
        ("Activation CPUOffload", "False"),
        ("num_layers_per_virtual_pipeline_stage", "None"),
        ("State", "finished"),
        ("stage", "pretraining"),
        ("Model size (B)", "70.6"),
    ],
)
def test_a_column_that_says_nothing_of_the_split_keeps_no_row_from_its_price(tmp_path, name, cell):
    assert run(tmp_path, without("micro_batch") | {name: cell}).layout.tp == 4


@pytest.mark.parametrize(("cell", "zero"), [("true", 1), ("False", 0), ("1", 1)])
def test_megatrons_switch_of_its_sharding_optimizer_is_zero_1_or_none(tmp_path, cell, zero):
    cells = without("zero_stage_fsdp") | {"use_distributed_optimizer": cell}

    assert run(tmp_path, cells).layout.zero == zero


@pytest.mark.parametrize(
    ("cells", "precision"),
    [
        ({"bf16": "true"}, "bf16"),
        ({"bf16": "True", "fp8": "hybrid"}, "fp8"),
        ({"bf16": "False", "fp16": "True"}, "fp16"),
        ({"bf16": "true", "fp8": ""}, "bf16"),
        ({"bf16": "true", "precision": "fp8-row"}, "fp8-row"),
    ],
)
def test_switches_of_precisions_say_that_of_the_products(tmp_path, cells, precision):
    found = run(tmp_path, CELLS | cells)

    assert found.precision == precision
    assert not any(text.startswith("precision") for text in found.assumed)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"bf16": "false"}, "bf16: false, and precision is not stated"),
        ({"bf16": "true", "fp16": "true"}, "fp16 makes precision fp16, but precision = bf16"),
        ({"use_distributed_optimizer": "true", "zero_stage_fsdp": "0"}, "makes zero_stage_fsdp 1, but"),
        ({"recompute_activations": "perhaps"}, "recompute_activations: expected true or false, got 'perhaps'"),
    ],
)
def test_switches_that_contradict_or_leave_open_what_was_run_are_refused(tmp_path, cells, said):
    assert said in reason(tmp_path, CELLS | cells)


def test_shares_of_torchs_meshes_and_the_batch_of_a_rank_are_read(tmp_path):
    meshes = {"dp_replicate": "2", "dp_shard": "32", "Local batch size": "2"}
    found = run(tmp_path, ALONE | meshes)

    assert (found.layout.dp, found.shard, found.layout.zero, found.layout.mbs) == (64, 32, 3, 2)


def test_the_batch_of_a_rank_is_no_micro_batch_where_a_pipeline_cuts_it(tmp_path):
    cells = without("micro_batch") | {"local batch size": "4"}

    assert "a pipeline cuts it into micro-batches" in reason(tmp_path, cells)
    assert run(tmp_path, cells | {"micro_batch": "1"}).layout.mbs == 1


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("Global batch (tokens)", "8,388,608"),
        ("batch size in tokens", "8388608"),
        ("tokens/step", "8388608"),
        ("global_batch_sequences", "8388608 tokens"),
    ],
)
def test_a_batch_of_tokens_is_one_of_sequences_of_their_length(tmp_path, name, cell):
    assert run(tmp_path, BATCH | {name: cell}).global_batch == 1024


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (BATCH | {"global_batch_sequences": "8M tokens"}, "'8M tokens' are 976.562 sequences of 8192 tokens"),
        (CELLS | {"tokens per step": "4194304"}, "makes 512 sequences, but global_batch_sequences is 1024"),
    ],
)
def test_a_batch_of_tokens_that_is_not_whole_or_contradicts_is_refused(tmp_path, cells, said):
    assert said in reason(tmp_path, cells)


def test_accumulation_and_micro_batch_make_the_batch_of_all_copies_aloud(tmp_path):
    found = run(tmp_path, BATCH | {"gradient_accumulation_steps": "256"})

    assert found.global_batch == 1024
    assert "batch 1024: accumulation_steps 256 x micro-batch 1 x dp 4" in found.assumed


def test_accumulation_and_batch_make_the_micro_batch_aloud(tmp_path):
    found = run(tmp_path, without("micro_batch") | {"GA": "128"})

    assert found.layout.mbs == 2
    assert "micro-batch 2: the batch over dp 4 x accumulation_steps 128" in found.assumed


def test_accumulation_agrees_with_the_batch_but_may_count_what_a_pipeline_cuts(tmp_path):
    split = without("tp", "pp", "dp") | {"tp": "8", "pp": "1", "dp": "8", "grad_accum": "4"}
    assert reason(tmp_path, split) == (
        "accumulation_steps: 4 x micro-batch 1 x dp 8 = 32 sequences, but the batch is 1024"
    )

    assert any("counts batches that the pipeline cuts" in text for text in run(tmp_path, CELLS | {"GA": "4"}).assumed)


def test_accumulation_without_a_micro_batch_makes_no_batch(tmp_path):
    said = reason(tmp_path, {name: cell for name, cell in BATCH.items() if name != "micro_batch"} | {"GA": "256"})

    assert said == "global_batch_sequences: not stated, nor micro_batch, which accumulation_steps multiply"
