"""Tables as strangers write them: further names of columns, numbers inside of other cells, and words for numbers."""

import pytest

from meshwright.hardware import load_catalogue
from meshwright.plan.tables.gpu_cells import counted_cell
from meshwright.plan.tables.reading import not_read
from tests.unit.plan.test_table_forms import CELLS, rows, table, without

ALONE = {"model_name": "llama2-7b", "gpu": "A100-80GB", "num_gpus": "8", "seq_len": "4096", "sharding": "FSDP"}
SIZES = {"layers": "24", "num_heads": "32", "vocab": "50304"}


def but(cells, *names, **more):
    return {name: cell for name, cell in cells.items() if name not in names} | more


def row(tmp_path, cells):
    (found,) = rows(tmp_path, table({f'"{name}"': f'"{cell}"' for name, cell in cells.items()}))
    return found


def run(tmp_path, cells):
    found = row(tmp_path, cells)
    assert found.reason is None
    return found.run


@pytest.mark.parametrize("name", ["per-gpu micro batch", "micro batch size per device", "MBS/GPU"])
def test_a_micro_batch_of_a_gpu_is_a_micro_batch(tmp_path, name):
    assert run(tmp_path, ALONE | {"gbs": "64", name: "4"}).layout.mbs == 4


@pytest.mark.parametrize("name", ["block size", "SL", "context window", "n_ctx"])
def test_the_length_of_sequences_goes_by_the_names_of_small_trainers(tmp_path, name):
    assert run(tmp_path, but(ALONE, "seq_len") | {"gbs": "64", name: "2048"}).seq_len == 2048


@pytest.mark.parametrize(("stream", "inner"), [("model_dims", "hidden_dims"), ("dim", "hidden_dim")])
def test_a_hidden_dimension_beside_that_of_the_model_is_the_networks(tmp_path, stream, inner):
    found = run(tmp_path, but(ALONE, "model_name") | SIZES | {"gbs": "64", stream: "4096", inner: "16384"})

    assert (found.architecture.hidden_size, found.architecture.intermediate_size) == (4096, 16384)
    alone = run(tmp_path, but(ALONE, "model_name") | SIZES | {"gbs": "64", inner: "4096"})
    assert alone.architecture.hidden_size == 4096


@pytest.mark.parametrize(
    ("name", "cell", "gated"), [("SwiGLU", "yes", 1), ("Gated", "0", 0), ("activation", "GeGLU", 1)]
)
def test_a_gate_goes_by_its_own_name_or_that_of_the_activation(tmp_path, name, cell, gated):
    cells = but(ALONE, "model_name") | SIZES | {"gbs": "64", "hidden": "2048", "ffn": "8192", name: cell}

    assert run(tmp_path, cells).architecture.gated == gated


@pytest.mark.parametrize(
    ("cell", "gpus", "each"),
    [
        ("2*RTX4090", 2, 2),
        ("8x A100 80GB", 8, 8),
        ("A100-80GB x 16", 16, 8),
        ("2x8 H100", 16, 8),
        ("4x DGX-H100", 32, 8),
    ],
)
def test_an_accelerator_with_its_number_counts_the_gpus(tmp_path, cell, gpus, each):
    found = run(tmp_path, but(ALONE, "num_gpus", "gpu") | {"gpu": cell, "LBS": "1"})

    assert (found.gpus, found.gpus_per_node) == (gpus, each)


def test_an_accelerator_with_its_number_may_be_one_node_of_several_and_nothing_else(tmp_path):
    cells = but(ALONE, "num_gpus", "gpu") | {"gpu": "4x A100 80GB", "LBS": "1"}

    assert run(tmp_path, cells | {"GPUs": "16"}).gpus_per_node == 4
    assert run(tmp_path, cells | {"nodes": "3"}).gpus == 12
    assert "'4x A100 80GB' makes num_gpus 4, but num_gpus = 6" in row(tmp_path, cells | {"GPUs": "6"}).reason


@pytest.mark.parametrize(
    "name", ["RTX 4090", "3090", "A100 PCIe x16", "MI300X", "p5.48xlarge", "GB200-NVL72", "8 wide"]
)
def test_a_name_with_digits_counts_nothing(name):
    assert counted_cell(name, load_catalogue()) is None


def test_slices_of_chips_are_counted_with_their_names(tmp_path):
    cells = but(ALONE, "num_gpus", "gpu") | {"gpu": "2x v5e-256", "LBS": "1"}
    found = run(tmp_path, cells)

    assert (found.accelerator, found.gpus) == ("tpu-v5e", 512)
    assert any(text.startswith("2 slices: priced as one") for text in found.assumed)
    assert "makes num_gpus 512, but num_gpus = 256" in row(tmp_path, cells | {"chips": "256"}).reason


@pytest.mark.parametrize(("name", "cell"), [("DDP", "1"), ("use_ddp", "true"), ("Distribution Type", "DDP")])
def test_ddp_may_say_whether_and_not_how_many_ranks(tmp_path, name, cell):
    found = run(tmp_path, but(ALONE, "sharding") | {"LBS": "2", name: cell})

    assert (found.layout.dp, found.layout.zero) == (8, 0)
    assert run(tmp_path, but(ALONE, "sharding") | {"LBS": "2", "DDP": "8"}).layout.dp == 8


@pytest.mark.parametrize(("cell", "zero"), [("FULL_SHARD", 3), ("DeepSpeed Zero-2", 2), ("fully sharded", 3)])
def test_a_kind_of_distribution_says_how_states_are_shared(tmp_path, cell, zero):
    assert run(tmp_path, but(ALONE, "sharding") | {"LBS": "2", "dp strategy": cell}).layout.zero == zero


def test_model_parallelism_is_tensor_parallelism_where_it_makes_the_gpus_with_what_else_is_stated(tmp_path):
    both = without("tp") | {"mp": "4"}
    whole = without("tp", "pp") | {"model parallel": "16"}

    assert run(tmp_path, both).layout == run(tmp_path, CELLS).layout
    assert any(text.startswith("mp 4: tp 4, pp 4, which make the GPUs") for text in run(tmp_path, both).assumed)
    assert run(tmp_path, both | {"mp": "16"}).layout.tp == 4  # of which the pipeline is a part
    assert run(tmp_path, whole).layout.tp == 16
    assert "column mp is not read" in row(tmp_path, without("tp", "dp") | {"mp": "4"}).reason


def test_a_plain_batch_of_more_tokens_than_any_step_has_is_not_that_of_each_rank(tmp_path):
    found = run(tmp_path, ALONE | {"batch (sequences)": "8192"})

    assert (found.global_batch, found.layout.mbs) == (8192, 1024)
    assert "batch (sequences) 8192, of a step: 8192 sequences a step, micro-batch 1024" in found.assumed


def test_a_plain_batch_that_is_fewer_than_the_gpus_is_that_of_each_though_no_split_is_stated(tmp_path):
    found = run(tmp_path, but(ALONE, "sharding") | {"Batch": "4"})

    assert found.global_batch == 32
    assert "Batch 4, of each rank: 32 sequences a step, micro-batch 4" in found.assumed


def test_tokens_of_a_micro_batch_are_sequences_where_their_length_is_known(tmp_path):
    found = run(tmp_path, ALONE | {"gbs": "64", "token_mb": "16384"})

    assert found.layout.mbs == 4
    assert (
        "column token_mb, '5000' tokens, is not read" in row(tmp_path, ALONE | {"gbs": "64", "token_mb": "5000"}).reason
    )


@pytest.mark.parametrize("name", ["Throughput (sentences/sec)", "examples/s", "samples/s/GPU"])
def test_sentences_a_second_are_sequences(tmp_path, name):
    cell = "1" if "GPU" in name else "8"

    assert row(tmp_path, ALONE | {"gbs": "64", name: cell}).measured_step_time_s == 8.0


@pytest.mark.parametrize(
    ("name", "cell"), [("tokens/s/GPU", "~2.048k"), ("Approx tokens/sec/device", "2,048"), ("step_time_s", "about 16")]
)
def test_a_figure_that_is_about_a_number_is_that_number(tmp_path, name, cell):
    assert row(tmp_path, ALONE | {"gbs": "64", name: cell}).measured_step_time_s == pytest.approx(16.0)


def test_the_memory_of_another_card_of_the_chip_is_not_what_a_run_took(tmp_path):
    bare = but(ALONE, "gpu") | {"LBS": "2", "GPU Memory": "40GB", "gpu": "A100"}
    found, sized = row(tmp_path, bare), row(tmp_path, bare | {"gpu": "A100 80GB"})

    assert found.measured_peak_memory_bytes is None
    assert "a100-40g, where it is that one: gpu says it" in found.unreadable[0]
    assert sized.measured_peak_memory_bytes == 40e9


def test_a_row_says_all_that_is_missing_of_it_or_that_nobody_knows(tmp_path):
    cells = but(ALONE, "seq_len") | {"gpu": "TPU v2-8", "model_name": "Wizard 9B", "precision": "half_bf16"}
    said = row(tmp_path, cells).reason

    assert "seq_len, global_batch_sequences: not stated" in said
    assert "no accelerator 'TPU v2-8' in the catalogue (of that kind it has tpu-v4," in said
    assert "no model 'Wizard 9B' is known (config" in said  # and none of another size is offered
    assert "half_bf16: no such precision" in said


def test_a_table_whose_degrees_count_the_gpus_needs_no_length_to_be_one(tmp_path):
    said = row(tmp_path, {"gpu": "B300", "dp": "4", "ep": "2", "step_time_s": "3.4"}).reason

    assert said == "seq_len, global_batch_sequences, model_name: not stated"


def test_degrees_that_a_row_leaves_empty_are_taken_for_one_aloud(tmp_path):
    found = run(tmp_path, but(ALONE, "sharding") | {"gbs": "64", "zero": "1", "tp": "", "pp": ""})

    assert "tp 1, pp 1: the row leaves it empty" in found.assumed


def test_a_switch_of_kernels_or_compilers_may_be_a_word(tmp_path):
    run(tmp_path, ALONE | {"LBS": "2", "flash attention": "v2", "compile": "max-autotune"})

    assert not_read(tmp_path / "runs.csv") == []
