"""Rates of all GPUs and of which is not said, and what rows say of precision, model and layout in other places."""

import pytest
from click.testing import CliRunner

from meshwright import cli
from meshwright.errors import InputError
from meshwright.plan.tables.lines import read_lines
from meshwright.plan.tables.names import is_column
from meshwright.plan.validate import predict
from tests.unit.plan.test_table_counted import FSDP, but
from tests.unit.plan.test_table_engine_cells import reason, run
from tests.unit.plan.test_table_forms import CATALOGUE, CELLS, KNOWN, barred, rows, table, without

UNTIMED = without("step_time_s")  # 1024 sequences of 8,192 tokens on 64 GPUs


def row(tmp_path, cells):
    (found,) = rows(tmp_path, table({f'"{name}"': f'"{cell}"' for name, cell in cells.items()}))
    return found


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("Total tokens/s", "72192"),
        ("throughput (tokens/s, all GPUs)", "72,192"),
        ("global tokens per second", "72.192k"),
        ("tokens_per_s", "72192 tok/s"),
    ],
)
def test_tokens_a_second_of_all_gpus_make_the_step(tmp_path, name, cell):
    assert row(tmp_path, UNTIMED | {name: cell}).measured_step_time_s == pytest.approx(1024 * 8192 / 72192)


@pytest.mark.parametrize("name", ["Throughput (tokens/sec)", "tok/s", "TPS"])
def test_tokens_a_second_of_no_named_scope_are_told_as_both(tmp_path, name):
    found = row(tmp_path, UNTIMED | {name: "720"})

    assert found.measured_step_time_s is None
    assert "720 tokens/s may be of one GPU, a step of 182 s, or of all, 11651 s" in found.contradiction
    both = row(tmp_path, UNTIMED | {name: "720", "tokens/s/GPU": "720"})
    assert both.contradiction == ""


def test_tokens_a_second_that_one_gpu_cannot_do_are_told_as_those_of_all(tmp_path):
    cells = UNTIMED | {"tok/s": "72192"}
    path = tmp_path / "runs.csv"
    path.write_text(table(cells))
    result = CliRunner().invoke(cli.group, ["validate", str(path)])

    assert "72192 tokens/s can only be of all GPUs, a step of 116 s" in " ".join(result.stderr.split())
    assert "what was measured is not counted" in " ".join(result.stdout.split())


def test_tokens_of_a_training_are_no_rate(tmp_path):
    assert row(tmp_path, UNTIMED | {"Training tokens": "15000"}).contradiction == ""


def test_the_only_gpu_is_all_of_them(tmp_path):
    cells = but(FSDP, "num_gpus", "sharding") | {"num_gpus": "1", "LBS": "1", "tok/s": "2048"}

    assert row(tmp_path, cells).measured_step_time_s == 2


@pytest.mark.parametrize(("text", "precision"), [("FSDP + Float8", "fp8"), ("te, mxfp8", "mxfp8"), ("no fp8", "bf16")])
def test_a_precision_that_another_column_names_is_taken_aloud(tmp_path, text, precision):
    found = run(tmp_path, but(CELLS, "gpu") | {"gpu": "B200", "Techniques": text})

    assert found.precision == precision
    assert any(
        said.startswith(f"precision {text.split()[-1].lower()}: column Techniques") for said in found.assumed
    ) == (precision != "bf16")


def test_a_size_is_no_model_and_is_told_how_to_say_it(tmp_path):
    said = reason(tmp_path, CELLS | {"model_name": "7b"})

    assert said.endswith("no model '7b' is known (a size is no model; config, or layers, hidden, heads, ffn_hidden and "
                         "vocab, say which)")  # fmt: skip


@pytest.mark.parametrize(
    ("cell", "zero"), [("FSDP", 3), ("DDP", 0), ("DeepSpeed ZeRO-2", 2), ("zero3", 3), ("fsdp=8", 3)]
)
def test_a_strategy_may_be_no_more_than_how_states_are_shared(tmp_path, cell, zero):
    found = run(tmp_path, but(FSDP, "sharding", "num_gpus") | {"num_gpus": "8", "LBS": "1", "Strategy": cell})

    assert found.layout.zero == zero


def test_names_of_hugging_faces_trainer_are_read(tmp_path):
    cells = {
        **{"model_name_or_path": "meta-llama/Llama-2-13b-hf", "gpu": "H100", "world_size": "16"},
        **{"max_seq_length": "4096", "per_device_train_batch_size": "4", "gradient_accumulation_steps": "2"},
        **{"deepspeed_stage": "3", "bf16": "True", "gradient_checkpointing": "True"},
    }
    found = run(tmp_path, cells)

    assert (found.global_batch, str(found.layout)) == (128, "dp=16,mbs=4,zero=3,recompute=full")


def test_recomputation_that_is_not_stated_is_not_assumed_so_that_a_run_fits_that_did_not(tmp_path):
    cells = but(FSDP, "family", "num_gpus") | {"num_gpus": "8", "LBS": "8", "tokens/s/GPU": "OOM", "family": "others"}
    (failed,) = predict([row(tmp_path, cells)], CATALOGUE, KNOWN)
    (ran,) = predict([row(tmp_path, cells | {"tokens/s/GPU": "1000"})], CATALOGUE, KNOWN)

    assert failed.ran_out
    assert failed.peak_memory_bytes_per_gpu > failed.memory_bytes_per_gpu
    assert ran.peak_memory_bytes_per_gpu < failed.peak_memory_bytes_per_gpu


def test_a_table_of_bars_without_known_columns_is_refused_by_its_title(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("Runs on 8 nodes, seq 4096, bf16.\n\n" + barred({"GPUs": "8", "Best": "FSDP=8", "MFU": "44%"}))

    assert read_lines(path, is_column).header == ["GPUs", "Best", "MFU"]
    with pytest.raises(InputError, match="expected a table with the column gpu in line 3; it has num_gpus, Best, MFU"):
        rows(tmp_path, path.read_text(), "again.md")
