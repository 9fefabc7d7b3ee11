"""Tables that count otherwise than a row is priced: nodes for GPUs, batches of a rank, groups that share states."""

import pytest
from click.testing import CliRunner

from meshwright import cli
from meshwright.errors import InputError
from meshwright.plan.tables.reading import not_read
from meshwright.plan.validate import predict
from tests.unit.plan.test_table_engine_cells import reason, run
from tests.unit.plan.test_table_forms import CATALOGUE, CELLS, KNOWN, rows, table, without

FSDP = {
    **{"gpu": "A100-80GB", "num_gpus": "64", "model_name": "llama2-13b", "seq_len": "4096", "sharding": "FSDP"},
    "family": "torchtitan",
}
ZERO1 = {
    **{"gpu": "A100-80GB", "num_gpus": "32", "model_name": "llama2-7b", "seq_len": "2048", "tp": "1"},
    **{"micro_batch": "2", "GA": "4", "family": "since-2024"},
}


def but(cells, *names, **more):
    return {name: cell for name, cell in cells.items() if name not in names} | more


@pytest.mark.parametrize("name", ["Nodes", "NUM_NODES", "nnodes", "number of nodes"])
def test_nodes_make_the_gpus_that_the_catalogues_node_has_aloud(tmp_path, name):
    found = run(tmp_path, but(CELLS, "num_gpus", "tp", "pp", "dp", tp="8", pp="1") | {name: "8"})

    assert (found.gpus, found.layout.dp, found.gpus_per_node) == (64, 8, 8)
    assert "64 GPUs: nodes 8 x 8 of a node (gpus_per_node)" in found.assumed


def test_nodes_of_which_each_has_fewer_gpus_make_fewer(tmp_path):
    cells = but(CELLS, "num_gpus", "dp") | {"nodes": "16", "gpus_per_node": "4"}

    assert (run(tmp_path, cells).gpus, run(tmp_path, cells).gpus_per_node) == (64, 4)
    assert run(tmp_path, CELLS | {"nodes": "16"}).gpus_per_node == 4


def test_nodes_beside_all_degrees_have_what_these_leave_each(tmp_path):
    assert run(tmp_path, but(CELLS, "num_gpus") | {"nodes": "16"}).gpus_per_node == 4


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"nodes": "7"}, "nodes: 7, but there are 64 GPUs"),
        ({"nodes": "4", "num_gpus": "8", "tp": "8", "pp": "1", "dp": "1"}, "of each or in all?"),
    ],
)
def test_nodes_that_do_not_go_with_the_gpus_are_refused(tmp_path, cells, said):
    assert said in reason(tmp_path, CELLS | cells)


def test_all_degrees_make_the_gpus_where_a_table_counts_none(tmp_path):
    found = run(tmp_path, but(CELLS, "num_gpus"))

    assert found.gpus == 64
    assert "64 GPUs: tp x pp x cp x dp (num_gpus)" in found.assumed
    with pytest.raises(InputError, match="expected a table with the column num_gpus"):
        rows(tmp_path, table(but(CELLS, "num_gpus", "dp")))


@pytest.mark.parametrize("name", ["# GPU", "#GPU", "# HPU", "No. of GPUs", "GPU Num", "num_devices"])
def test_a_number_of_devices_is_no_device(tmp_path, name):
    assert run(tmp_path, but(CELLS, "num_gpus") | {name: "64"}).accelerator == "h100"


@pytest.mark.parametrize("name", ["device_type", "Platform", "System", "Accelerator type"])
def test_accelerators_go_by_other_names_where_no_column_is_theirs(tmp_path, name):
    assert run(tmp_path, but(CELLS, "gpu") | {name: "DGX-H100"}).accelerator == "h100"
    assert run(tmp_path, CELLS | {name: "Linux"}).accelerator == "h100"


@pytest.mark.parametrize(
    "name", ["batch size per gpu", "Batch/GPU", "BS per GPU", "per-device batch size", "Local batch size", "LBS"]
)
def test_the_batch_of_a_gpu_is_that_of_a_step_over_all_of_them(tmp_path, name):
    found = run(tmp_path, FSDP | {name: "2"})

    assert (found.global_batch, found.layout.mbs) == (128, 2)
    accumulated = run(tmp_path, FSDP | {name: "2", "grad_accum": "4"})
    assert (accumulated.global_batch, accumulated.layout.mbs) == (512, 2)


def test_the_batch_of_a_gpu_is_refused_where_several_share_sequences(tmp_path):
    assert "of which several share sequences" in reason(tmp_path, FSDP | {"tp": "8", "batch per GPU": "2"})


@pytest.mark.parametrize("name", ["Batch size/DP", "batch per DP rank", "DP batch size"])
def test_the_batch_of_a_data_parallel_rank_may_be_cut_by_a_pipeline(tmp_path, name):
    found = run(tmp_path, without("global_batch_sequences", "micro_batch") | {name: "32"})

    assert (found.global_batch, found.layout.mbs) == (128, 1)
    assert "micro-batch 1" in found.assumed
    assert "but global_batch_sequences = 1024" in reason(tmp_path, CELLS | {name: "32"})


def test_a_plain_batch_beside_a_micro_batch_is_that_of_a_step_aloud(tmp_path):
    cells = without("global_batch_sequences", "micro_batch") | {"MBS": "1", "BS": "1024"}

    assert run(tmp_path, cells).global_batch == 1024
    assert "read by what stands beside it: BS as global_batch_sequences" in not_read(tmp_path / "runs.csv")


@pytest.mark.parametrize(
    ("cells", "batch", "mbs"),
    [
        ({"num_gpus": "1", "Batch size": "2", "grad_accum": "32"}, 64, 2),
        ({"Batch size": "2"}, 128, 2),
        ({"Batch size": "3", "grad_accum": "8"}, 1536, 3),
    ],
)
def test_a_plain_batch_is_read_where_it_can_be_only_one(tmp_path, cells, batch, mbs):
    found = run(tmp_path, FSDP | cells)

    assert (found.global_batch, found.layout.mbs) == (batch, mbs)


@pytest.mark.parametrize("cells", [{"Batch size": "128"}, {"Batch size": "8", "grad_accum": "8"}])
def test_a_plain_batch_that_can_be_several_is_refused(tmp_path, cells):
    assert "says which batch it is" in reason(tmp_path, FSDP | cells)


@pytest.mark.parametrize(("said", "steps"), [("0.5M", "4"), ("8M", "64")])
def test_short_tokens_are_read_as_what_the_micro_batches_make(tmp_path, said, steps):
    cells = but(ZERO1, "GA") | {"GA": steps, "Global Bsz": said}

    assert run(tmp_path, cells).global_batch == 64 * int(steps)
    assert "global_batch_tokens says that it is tokens" in reason(tmp_path, cells | {"GA": "5"})


def test_short_tokens_that_nothing_bears_out_are_told_in_powers_of_1024(tmp_path):
    cells = without("global_batch_sequences") | {"batch_tokens": "8M"}

    assert reason(tmp_path, cells).endswith("and tokens in full (8388608 would be 1024)")


def test_zero_1_of_groups_shares_states_among_their_ranks_alone(tmp_path):
    groups, whole = run(tmp_path, ZERO1 | {"Zero1": "8"}), run(tmp_path, ZERO1 | {"zero": "1"})

    assert (groups.layout.zero, groups.shard, whole.shard) == (1, 8, 32)
    assert "groups of 8 ranks for ZeRO 1: what is sent is priced as among all 32" in groups.assumed
    assert run(tmp_path, ZERO1 | {"zero": "1", "replicas": "4"}).shard == 8
    (of_groups,) = predict(rows(tmp_path, table(ZERO1 | {"Zero1": "8"})), CATALOGUE, KNOWN)
    (of_all,) = predict(rows(tmp_path, table(ZERO1 | {"zero": "1"})), CATALOGUE, KNOWN)
    assert of_groups.peak_memory_bytes_per_gpu > of_all.peak_memory_bytes_per_gpu


@pytest.mark.parametrize(("cell", "zero"), [("True", 1), ("no", 0)])
def test_a_switch_of_zero_1_is_on_or_off(tmp_path, cell, zero):
    assert run(tmp_path, ZERO1 | {"ZeRO-1": cell}).layout.zero == zero


def test_one_under_zero_1_may_be_on_or_a_group_of_one(tmp_path):
    assert "column Zero1 is not read" in reason(tmp_path, ZERO1 | {"Zero1": "1"})


@pytest.mark.parametrize(
    ("cells", "precision"),
    [
        ({"model.converters": "float8"}, "fp8"),
        ({"model.converters": "quantize.linear.float8", "quantize.linear.float8.recipe_name": "rowwise"}, "fp8-row"),
        ({"model.converters": "", "training.compile": "true"}, "bf16"),
    ],
)
def test_converters_of_torchtitan_say_the_precision(tmp_path, cells, precision):
    assert run(tmp_path, but(FSDP, "gpu") | {"gpu": "H100", "LBS": "2"} | cells).precision == precision


def test_numbers_of_a_loss_are_no_kind_of_it(tmp_path):
    run(tmp_path, CELLS | {"loss": "6.765"})

    assert any(text.startswith("column loss (a number): not read") for text in not_read(tmp_path / "runs.csv"))
    assert run(tmp_path, CELLS | {"loss": "chunked"}).facts


@pytest.mark.parametrize(
    ("name", "cell", "gbps"),
    [
        ("network per node (Gbps)", "400", 400),
        ("inter-node per node Gb/s", "800", 800),
        ("NIC per node (GB/s)", "50", 0),
    ],
)
def test_the_network_of_a_node_is_read_in_bits_alone(tmp_path, name, cell, gbps):
    found = run(tmp_path, CELLS | {name: cell})

    assert found.node_bytes_per_s == pytest.approx((gbps or 3200) * 1e9 / 8)


@pytest.mark.parametrize("name", ["Memory(GiB)", "Mem (GiB)", "max mem (GiB)"])
def test_rows_print_their_memory_beside_what_was_measured(tmp_path, name):
    path = tmp_path / "runs.csv"
    path.write_text(table(CELLS | {name: "61.5"}))
    said = CliRunner().invoke(cli.group, ["validate", str(path)]).stdout

    assert ", measured 61.5 GiB of 79.6 GiB: " in " ".join(said.split())


@pytest.mark.parametrize("cell", ["OOM", "CUDA OOM", "out of memory"])
def test_a_run_that_had_not_memory_enough_is_named_and_has_no_error(tmp_path, cell):
    path = tmp_path / "runs.csv"
    path.write_text(table(but(CELLS, "tp", "pp", "dp", "step_time_s") | {"dp": "64", "tokens/s/GPU": cell}))
    result = CliRunner().invoke(cli.group, ["validate", str(path)])
    said = " ".join(result.stdout.split())

    assert "it ran out of memory; dp=64" in said
    assert "does not fit" in said
    assert "no number above 0" not in result.stderr


def test_a_memory_without_a_unit_is_not_taken_for_bytes(tmp_path):
    (found,) = rows(tmp_path, table(CELLS | {"mem": "61"}))

    assert found.measured_peak_memory_bytes is None
    assert "has no unit of memory, such as GiB" in found.unreadable[0]
    (share,) = rows(tmp_path, table(CELLS | {"memory": "47.5GiB(51.2%)"}))
    assert share.measured_peak_memory_bytes == 47.5 * 2**30


@pytest.mark.parametrize("size", ["80GB", "80 GiB"])
def test_the_memory_that_a_card_has_is_not_what_a_run_took(tmp_path, size):
    (found,) = rows(tmp_path, table(CELLS | {"Memory": size}))

    assert found.measured_peak_memory_bytes is None
    assert "is the memory that a GPU has" in found.unreadable[0]


def test_hosts_of_chips_with_cores_do_not_say_that_cores_are_counted(tmp_path):
    cells = {"gpu": "v5p", "num_gpus": "64", "nodes": "32", "model_name": "llama2-13b", "seq_len": "4096"}
    found = run(tmp_path, cells | {"global_batch_sequences": "128", "zero": "3", "family": "maxtext"})

    assert found.cores == 1


@pytest.mark.parametrize("more", ["max_seq_length", "model_id", "Memory used", "device_type"])
def test_a_further_name_of_a_column_that_is_there_refuses_no_table(tmp_path, more):
    cells = but(CELLS, "seq_len", "model_name", "gpu") | {"Sequence Length": "8192", "Model": "llama3-70b"}

    run(tmp_path, cells | {"Accelerator": "H100", "peak memory": "61 GiB", more: "x"})


def test_ranks_that_share_states_are_read_inside_an_object_too(tmp_path):
    found = run(tmp_path, but(FSDP, "sharding") | {"parallel.fsdp": "16", "config.batch_size_per_gpu": "2"})

    assert (found.shard, found.layout.zero, found.global_batch) == (16, 3, 128)


def test_groups_that_a_row_states_leave_no_doubt_of_its_sharding(tmp_path):
    cells = but(ZERO1, "micro_batch", "num_gpus") | {"recompute": "none", "Zero1": "8", "micro_batch": "8"}
    few, many = (rows(tmp_path, table(cells | {"num_gpus": gpus})) for gpus in ("8", "1024"))

    (fit,), (fits,) = predict(few, CATALOGUE, KNOWN), predict(many, CATALOGUE, KNOWN)
    assert fit.fits == fits.fits == "does not fit"
