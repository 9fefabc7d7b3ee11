"""Cells of a table of runs: each is understood, or its column is named."""

import csv
import io
import json

import pytest
from click.testing import CliRunner

from meshwright import cli
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from meshwright.plan.analytic.coefficients import book
from meshwright.plan.tables.columns import INPUTS, MEASURED, unread, without_fsdp, zero_stage
from meshwright.plan.tables.row_machine import accelerator_of
from meshwright.plan.tables.runs import read_rows
from meshwright.plan.validate import known_models, predict
from meshwright.workload.engines import ENGINES

DENSE = {
    **{"gpu": "H100", "num_gpus": "64", "model_name": "llama3-70b", "seq_len": "8192", "micro_batch": "1"},
    **{"global_batch_sequences": "512", "tp": "8", "dp": "8", "recompute": "full", "precision": "bf16"},
}
EXPERTS = {
    **{"gpu": "H100-80GB-SXM", "num_gpus": "8", "layers": "24", "hidden": "2880", "heads": "64", "kv_heads": "8"},
    **{"ffn_hidden": "2880", "vocab": "201088", "seq_len": "4096", "gated_mlp": "1", "micro_batch": "2"},
    **{"global_batch_sequences": "256", "dp": "8", "ep": "8", "experts": "32", "top_k": "4", "expert_ffn": "2880"},
    **{"recompute": "none"},
}


def read(tmp_path, *rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)))
    writer.writeheader()
    writer.writerows(rows)
    path = tmp_path / "runs.csv"
    path.write_text(text.getvalue())
    return read_rows(path, load_catalogue(), book(), known_models())


def run(tmp_path, row):
    (found,) = read(tmp_path, row)
    assert found.run is not None, found.reason
    return found.run


def reason(tmp_path, row):
    (found,) = read(tmp_path, row)
    assert found.run is None
    return found.reason


@pytest.mark.parametrize(
    ("text", "stage", "shard"),
    [
        *(("0", 0, 16), ("none", 0, 16), ("DDP", 0, 16), ("none (dp)", 0, 16), ("NO_SHARD", 0, 16)),
        *(("1", 1, 16), ("zero1 assumed", 1, 16), ("ZeRO-1", 1, 16), ("distributed optimizer", 1, 16)),
        *(("ddp + distributed optimizer assumed", 1, 16), ("2", 2, 16), ("fsdp:SHARD_GRAD_OP", 2, 16)),
        *(
            ("stage 2", 2, 16),
            ("3", 3, 16),
            ("3.0", 3, 16),
            ("zero3", 3, 16),
            ("fsdp2 (zero3)", 3, 16),
            ("FSDP", 3, 16),
        ),
        *(("fsdp:FULL_SHARD", 3, 16), ("hsdp", 3, 8), ("HYBRID_SHARD", 3, 8), ("fsdp shard 4 (+DP replicas)", 3, 4)),
    ],
)
def test_a_stage_of_zero_is_read_however_it_is_written(text, stage, shard):
    assert zero_stage(text, 16, 8) == (stage, shard)


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        *(("no distributed optimizer", 0), ("ZeRO-1 off", 0), ("sharding: none", 0), ("fsdp:NO_SHARD", 0)),
        *(("DDP, no FSDP", 0), ("1 (without fsdp)", 1), ("no zero; ddp", 0)),
    ],
)
def test_what_a_cell_says_is_not_used_is_no_stage(text, stage):
    assert zero_stage(text, 16, 8) == (stage, 16)


@pytest.mark.parametrize("text", ["no fsdp", "non-FSDP", "fsdp: off", "FSDP disabled"])
def test_a_cell_that_only_rules_fsdp_out_leaves_the_rest_to_the_stack(text):
    assert zero_stage(text, 16, 8) is None
    assert without_fsdp(text)


@pytest.mark.parametrize(("text", "shard"), [("fsdp=4", 4), ("FSDP8", 8), ("fsdp 2", 16), ("fsdp shard 16", 16)])
def test_a_number_behind_fsdp_is_of_ranks_or_its_version(text, shard):
    assert zero_stage(text, 16, 8) == (3, shard)


@pytest.mark.parametrize(
    "text",
    [
        *("4", "3.5", "zero", "sharded somehow", "zero-infinity", "fsdpp", "full_shardd", "no_shards"),
        *("zero3 -> zero2", "fsdp shard 0", "fsdp shard 6", "fsdp shard 32"),
    ],
)
def test_a_stage_that_is_not_known_is_refused(text):
    with pytest.raises(InputError, match="zero_stage_fsdp"):
        zero_stage(text, 16, 8)


def test_stage_3_prices_the_gather_of_weights_whatever_its_spelling(tmp_path):
    rows = [DENSE | {"zero_stage_fsdp": text} for text in ("0", "1", "3", "zero3", "fsdp2 (zero3)")]
    found = predict(read(tmp_path, *rows), load_catalogue(), book())
    times = [outcome.step_time_s for outcome in found]
    sizes = [outcome.peak_memory_bytes_per_gpu for outcome in found]

    assert times[2] == times[3] == times[4] > 1.2 * times[0]
    assert sizes[0] > sizes[1] > sizes[2]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"zero_stage_fsdp": "maybe"}, "zero_stage_fsdp: 'maybe'"),
        ({"recompute": "sometimes"}, "recompute: 'sometimes'"),
        ({"recompute": "not full"}, "recompute: 'not full'"),
        ({"recompute": "full/selective"}, "recompute: 'full/selective'"),
        ({"schedule": "2f2b"}, "schedule: '2f2b'"),
        ({"optimizer": "adamv"}, "did you mean adam"),
        ({"overlap": "everything"}, "overlap: 'everything'"),
        ({"seq_parallel": "2"}, "seq_parallel: expected 0 or 1"),
        ({"lora_rank": "-1"}, "lora_rank: expected a number of 0 or more"),
        ({"config": "absent.json"}, "absent.json"),
        ({"config": "llama3-8b"}, "config: llama3-8b"),
        ({"tp": "16", "dp": "4"}, "tp: 16 does not divide num_key_value_heads = 8"),
        ({"tp": "1", "pp": "64", "dp": "1", "layers": "32"}, "64 stages are more than the 32 layers"),
        ({"tp": "1", "pp": "4", "dp": "16", "vpp": "7"}, "pp = 4 divides them with vpp = 2 or 4 or 5"),
        ({"ep": "8"}, "ep: 8, but the model has no experts"),
        ({"precision": "mxfp8"}, "h100 has no mxfp8"),
        ({"precision": "nvfp4", "gpu": "MI355X"}, "mi355x has no nvfp4"),
        ({"replicas": "3", "zero_stage_fsdp": "3"}, "replicas: 3 copies"),
    ],
)
def test_a_cell_that_is_not_understood_or_not_legal_is_named(tmp_path, change, told):
    assert told in reason(tmp_path, DENSE | change)


def test_a_precision_and_a_size_of_nodes_that_a_row_leaves_out_are_assumed_aloud(tmp_path):
    said = DENSE | {"gpus_per_node": "8"}

    assert {"precision bf16", "8 GPUs a node (gpus_per_node)"} <= set(run(tmp_path, DENSE | {"precision": ""}).assumed)
    assert not any("precision" in text or "GPUs a node" in text for text in run(tmp_path, said).assumed)


def test_sequence_parallelism_that_a_row_leaves_out_is_assumed_aloud_beside_tensor_parallelism(tmp_path):
    left_out = DENSE | {"seq_parallel": ""}
    alone = left_out | {"tp": "1", "dp": "64", "pp": "1"}

    assert any(text.startswith("seq_parallel") for text in run(tmp_path, left_out).assumed)
    for said in (DENSE | {"seq_parallel": "1"}, alone):
        assert not any(text.startswith("seq_parallel") for text in run(tmp_path, said).assumed)


def test_a_line_with_more_cells_than_columns_is_refused(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("gpu,num_gpus,notes\nH100,8,one,two\n")
    (row,) = read_rows(path, load_catalogue(), book(), known_models())

    assert row.reason.startswith("line 2 has 4 cells, 1 cell more than the table has columns")


def test_experts_are_priced_where_the_columns_say_them_and_need_top_k(tmp_path):
    assert run(tmp_path, EXPERTS).architecture.experts == 32
    assert reason(tmp_path, EXPERTS | {"top_k": ""}) == "top_k: not stated, of a model with experts"
    assert run(tmp_path, EXPERTS | {"dense_layers": "4"}).architecture.moe_layers == 20


def test_layers_without_experts_of_a_shortened_model_are_said_or_assumed_aloud(tmp_path):
    short = {"gpu": "B200", "num_gpus": "8", "model_name": "mixtral-8x7b", "layers": "4", "seq_len": "4096"}
    short |= {"global_batch_sequences": "32", "dp": "8", "ep": "8"}

    assert any("0 of the 4 layers" in text for text in run(tmp_path, short).assumed)
    assert run(tmp_path, short | {"dense_layers": "1"}).architecture.moe_layers == 3
    assert "dense_layers" in reason(tmp_path, short | {"dense_layers": "9"})


def test_a_config_beside_the_table_says_the_model_and_cells_must_agree(tmp_path):
    (tmp_path / "models").mkdir()
    config = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4}
    config |= {"num_attention_heads": 8, "vocab_size": 1000}
    (tmp_path / "models" / "tiny.json").write_text(json.dumps(config))
    row = DENSE | {"config": "models/tiny.json", "model_name": "whatever"}
    absolute = DENSE | {"config": str(tmp_path / "models" / "tiny.json")}

    assert run(tmp_path, row).architecture.num_hidden_layers == 4
    assert run(tmp_path, absolute).architecture == run(tmp_path, row).architecture
    assert reason(tmp_path, row | {"hidden": "4096"}) == "hidden: 4096, but models/tiny.json has 512"


def test_optimisers_and_overlaps_of_a_row_change_its_price(tmp_path):
    rows = [DENSE | {"zero_stage_fsdp": "0", "optimizer": name} for name in ("adamw", "adam8bit", "sgd")]
    rows += [DENSE | {"zero_stage_fsdp": "1", "overlap": text} for text in ("tp+dp", "dp", "none")]
    found = predict(read(tmp_path, *rows), load_catalogue(), book())
    sizes = [outcome.peak_memory_bytes_per_gpu for outcome in found[:3]]
    times = [outcome.step_time_s for outcome in found[3:]]

    assert sizes[0] > sizes[1] > sizes[2]
    assert times[0] < times[1] < times[2]


def test_a_row_with_adapters_is_priced_with_its_base_frozen_and_says_what_is_adapted(tmp_path):
    rows = [DENSE | {"zero_stage_fsdp": "0", "lora_rank": rank} for rank in ("", "16")]
    whole, adapted = predict(read(tmp_path, *rows), load_catalogue(), book())

    assert adapted.peak_memory_bytes_per_gpu < 0.6 * whole.peak_memory_bytes_per_gpu
    assert adapted.step_time_s < whole.step_time_s  # a third of the products is saved, adapters pass through memory
    assert any("adapters on all matrices" in text for text in adapted.assumed)


def test_families_are_stacks_by_any_of_their_names_and_others_are_generic_and_say_so(tmp_path):
    named = {family: run(tmp_path, DENSE | {"family": family}) for family in ("Megatron-LM", "torchtitan", "fsdp")}
    strange, empty = run(tmp_path, DENSE | {"family": "brigde"}), run(tmp_path, DENSE)

    assert [one.stack for one in named.values()] == ["megatron", "torchtitan", "accelerate"]
    assert strange.stack == "since-2024"
    assert any("did you mean bridge?" in text for text in strange.assumed)
    assert empty.stack == "meshwright"
    assert any("stack meshwright" in text for text in empty.assumed)


def test_a_row_without_family_takes_the_price_of_plan_without_stack(tmp_path):
    table = DENSE | {
        "precision": "fp8",
        "zero_stage_fsdp": "1",
        "seq_parallel": "1",
        "inter_node_Gbps_per_node": "3200",
    }
    (priced,) = predict(read(tmp_path, table), load_catalogue(), book())
    words = "plan --model llama3-70b --cluster dgx-h100 --gpus 64 --global-batch 512 --precision fp8 --json --layout"
    result = CliRunner().invoke(cli.group, [*words.split(), "tp=8,dp=8,mbs=1,zero=1,sp=1,recompute=full"])

    assert json.loads(result.stdout)["predicted"]["step_time_s"] == pytest.approx(priced.step_time_s, rel=0.02)
    assert "priced as stack since-2024" in result.stderr


RULES = [
    ("megatron", {"zero_stage_fsdp": "3", "pp": "2", "dp": "4"}, "its ZeRO stages in a pipeline are 0, 1"),
    ("torchtitan", {"zero_stage_fsdp": "1"}, "its ZeRO stages are 0, 2, 3"),
    ("accelerate", {"tp": "1", "dp": "8", "pp": "8"}, f"{ENGINES['accelerate'].reached} has no pp"),
    ("deepspeed", {"pp": "2", "dp": "4", "zero_stage_fsdp": "2"}, "its ZeRO stages in a pipeline are 0, 1"),
    ("nemo", {"schedule": "zb", "pp": "2", "dp": "4", "zero_stage_fsdp": "1"}, "its schedules are 1f1b, interleaved"),
]


@pytest.mark.parametrize(("family", "change", "rule"), RULES)
def test_a_row_that_its_family_cannot_run_says_the_rule_as_plan_says_it_of_that_stack(tmp_path, family, change, rule):
    row = DENSE | change
    (priced,) = predict(read(tmp_path, row | {"family": family}), load_catalogue(), book())
    (generic,) = predict(read(tmp_path, row | {"family": "since-2024"}), load_catalogue(), book())
    layout = run(tmp_path, row | {"family": family}).layout
    words = (
        f"plan --model llama3-70b --cluster dgx-h100 --gpus 64 --global-batch 512 --stack {family} --layout {layout}"
    )
    planned = CliRunner().invoke(cli.group, words.split())
    told = CliRunner().invoke(cli.group, ["validate", str(tmp_path / "runs.csv")])

    assert any(text.startswith(rule) for text in priced.breaks)
    assert generic.breaks == ()  # a stack whose rules nobody knows is kept from nothing
    for text in priced.breaks:
        assert f"stack {family} cannot run it: {text}" in planned.stderr
        assert f"1 row: stack {family} cannot run the layout: {text}" in told.stderr


def test_a_row_of_our_own_engine_that_it_cannot_run_is_an_error_and_one_without_family_goes_to_another_stack(tmp_path):
    halves = DENSE | {"pp": "2", "dp": "4", "schedule": "zb", "zero_stage_fsdp": "3", "recompute": "full"}

    assert "schedule=zb goes through a layer's backward twice" in reason(tmp_path, halves | {"family": "meshwright"})
    assert run(tmp_path, halves).stack == "since-2024"


def test_columns_that_nothing_reads_are_named_with_the_one_that_may_be_meant(tmp_path):
    assert unread(["gpu", "zero_stage", "colour", "mfu"]) == {
        "zero_stage": "did you mean zero_stage_fsdp?",
        "colour": "",
    }
    path = tmp_path / "runs.csv"
    path.write_text("gpu,num_gpus,micro_batches\nH100,8,4\n")
    result = CliRunner().invoke(cli.group, ["validate", str(path)])

    assert "column micro_batches: not read (did you mean micro_batch?)" in result.stderr


def test_a_superchip_is_not_taken_for_the_chip_whose_name_it_contains():
    assert accelerator_of(load_catalogue(), "GH200-96GB") == "gh200"


def test_every_column_is_listed():
    listed = CliRunner().invoke(cli.group, ["validate", "--columns"]).stdout

    assert all(f"{name} " in listed for name in (*INPUTS, *MEASURED))


@pytest.mark.parametrize("name", ["TPU-v5", "XH100", "QH200-96GB"])
def test_a_gpu_that_the_catalogue_has_not_is_not_taken_for_another(name):
    with pytest.raises(InputError, match=name):
        accelerator_of(load_catalogue(), name)


@pytest.mark.parametrize(
    ("name", "key"), [("trn1.32xlarge", "trainium1"), ("a2-ultragpu-8g", "a100-80g"), ("g5.48xlarge", "a10g")]
)
def test_a_node_by_its_clouds_name_is_its_accelerator_whatever_letters_it_has(name, key):
    assert accelerator_of(load_catalogue(), name) == key


@pytest.mark.parametrize(
    ("gpu", "gigabit"), [("p4d.24xlarge", 400), ("p5.48xlarge", 3200), ("DGX-A100-80G", 1600), ("A100-80GB", 1600)]
)
def test_a_row_that_names_its_node_has_the_network_of_that_node(tmp_path, gpu, gigabit):
    row = DENSE | {"gpu": gpu, "inter_node_Gbps_per_node": "", "gpus_per_node": "", "step_time_s": ""}
    (found,) = read(tmp_path, row)

    assert found.run.node_bytes_per_s == gigabit * 1e9 / 8
    assert f"inter-node rate {gigabit} Gb/s a node" in found.run.assumed


@pytest.mark.parametrize(("family", "refused"), [("", False), ("torchtitan", True), ("megatron", False)])
def test_a_run_of_an_unknown_stack_may_have_had_more_ranks_than_key_value_heads(tmp_path, family, refused):
    row = DENSE | {"id": "wide", "family": family, "year": "2025", "tp": "16", "dp": "4", "step_time_s": ""}
    (found,) = read(tmp_path, row)

    assert (found.run is None) == refused
    if refused:
        assert "num_key_value_heads" in found.reason


@pytest.mark.parametrize(
    ("gpu", "said", "told"),
    [
        ("H100", "", ""),
        ("H100", "NVLink4", ""),
        ("H100", "NVSwitch", ""),
        ("A100-80GB-SXM", "NVLink3/NVSwitch", ""),
        ("GB200-NVL72", "NVLink5 (NVL72)", ""),
        ("MI300X", "Infinity Fabric", ""),
        ("H100", "NVLink 3", "NVLink 4, the accelerator's (intra_node says 'NVLink 3', is not read)"),
        ("H100", "PCIe5", "NVLink 4, the accelerator's (intra_node says 'PCIe5', is not read)"),
        ("H100", "fast", "NVLink 4, the accelerator's (intra_node says 'fast', is not read)"),
    ],
)
def test_links_inside_a_node_are_said_where_others_are_priced(tmp_path, gpu, said, told):
    (found,) = read(tmp_path, DENSE | {"id": "a", "gpu": gpu, "intra_node": said})
    lines = [line for line in found.run.assumed if line.startswith("links inside a node")]

    assert lines == ([f"links inside a node: {told}"] if told else [])


def test_a_table_of_which_no_row_can_be_priced_says_so_by_its_exit_code(tmp_path):
    path = tmp_path / "runs.csv"
    lines = ["id,gpu,num_gpus,model_name,seq_len,global_batch_sequences,dp", "a,abacus,8,llama3-8b,4096,64,8"]
    path.write_text("\n".join(lines) + "\n")
    assert cli.run_command(["validate", str(path)]) == 1

    path.write_text("\n".join([*lines, "b,H100,8,llama3-8b,4096,64,8"]) + "\n")
    assert cli.run_command(["validate", str(path)]) == 0


def test_a_node_of_one_accelerator_is_assumed_in_the_singular(tmp_path):
    (found,) = read(tmp_path, DENSE | {"gpu": "TPU v6e", "id": "a", "tp": "1", "dp": "64"})

    assert "1 GPU a node (gpus_per_node)" in found.run.assumed
