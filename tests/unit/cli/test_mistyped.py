"""Options as people type them: other names of the same thing are taken, slips are answered with what was meant."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from meshwright import cli
from meshwright.cli.meant import KEYS
from meshwright.errors import InputError
from meshwright.plan.analytic.price import precision_named
from meshwright.train.job.config import JobConfig

PLAN = "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096"
MISTRAL = {
    "model_type": "mistral3",
    "text_config": {
        **{"model_type": "mistral", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4},
        **{"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 1000},
    },
    "vision_config": {
        **{"model_type": "pixtral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
        **{"num_attention_heads": 2, "head_dim": 32, "image_size": 56, "patch_size": 14, "num_channels": 3},
    },
}


@pytest.mark.parametrize(
    ("text", "name"), [("bfloat16", "bf16"), ("FP8", "fp8"), ("torch.float16", "fp16"), ("float32", "fp32")]
)
def test_a_precision_goes_by_pytorchs_name_too_and_in_capitals(text, name):
    assert precision_named(text) == name


def test_a_precision_that_nobody_knows_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"^--precision fp9: no such precision \(did you mean fp8\?\)$"):
        precision_named("fp9")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seq-len", "128K"], "'128K' is no whole number, such as 131072 or 128000"),
        (["--global-batch", "4M"], "such as 4194304 or 4000000 (sequences of one optimiser step)"),
        (["--global-batch", "2M"], "; of tokens, give their number over --seq-len"),
        (["--precision", "fp9"], "did you mean fp8?"),
        (["--cluster", "H100x12"], "of that accelerator: dgx-h100, aws-p5"),
        (["--cluster", "8xA100"], "of that accelerator: dgx-a100"),
        (["--cluster", "8xV100"], "dgx-1-v100, aws-p3, oci-gpu3-8 (v100-16g); dgx-2"),
        (["--cluster", "4xV100"], "told in full, 4xv100-16g or 4xv100-32g"),
        (["--cluster", "rtx3090", "--gpus", "16"], "4xrtx-3090 is a machine of four"),
        (
            ["--cluster", "h100-96g", "--gpus", "16"],
            "no node type of the catalogue has the accelerator h100-96g; --hardware FILE",
        ),
        (["--cluster", "dgx-h100,dgx-a100-80g"], "expected one node type; `plan --compare` sets several side by side"),
        (["--cluster", "gb200-nvl36"], "did you mean gb200-nvl72?"),
        (["--latency", "10"], "--latency: '10': expected a latency with its unit, such as 5us or 300ns"),
        (["--target-mfu", "45"], "expected more than 0 and at most 1, got 45; did you mean 0.45?"),
        (["--inter", "400"], "--inter: '400': expected a rate with its unit, such as 400Gbps or 50GB/s"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(words, told):
    result = CliRunner().invoke(cli.group, [*PLAN.split(), *words])
    said = f"{result.stderr}{result.exception or ''}"

    assert result.exit_code != 0
    assert told in said


def test_the_command_line_says_so_too(capsys):
    assert cli.run_command([*PLAN.split(), "--seq-len", "128K"]) == 2
    assert "'128K' is no whole number, such as 131072 or 128000" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--accelerator h100", "--cluster says the machines: a node type"),
        ("--tp 8", "--layout says how a step is split"),
        ("--tensor-model-parallel-size 2", 'such as "tp=8,dp=4,mbs=1,zero=1,recompute=full": here tp'),
        ("--dp_shard 8", "--layout says how a step is split"),
        ("--global-batch-size 128", "--global-batch says the sequences of a step"),
        ("--seq-length 4096", "--seq-len says the tokens of a sequence"),
        ("--bf16", "--precision says what products run in"),
    ],
)
def test_an_option_that_other_tools_have_is_answered_with_ours(capsys, words, told):
    assert cli.run_command([*PLAN.split(), *words.split()]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("plan --num-nodes 4", "--gpus says how many GPUs there are in all: nodes times the GPUs of one"),
        ("plan --bandwidth 400Gbps", "--inter says the rate of all NICs of a node"),
        ("plan -o plan.json", "--output says the file to write"),
        ("plan --output-format json", "--json prints JSON"),
        ("simulate --nproc 8", "--gpus says how many there are in all"),
        ("validate --step-time-s 2", "--measured says the seconds of a step that was measured"),
        ("bench --num-gpus 2", "--ranks says how many ranks there are"),
        ("emulate --bandwidth 1Gbps", "--nic says the rate of each NIC"),
        ("collectives draw ring --out ring.svg", "--svg says the file of the drawing"),
        ("train --lr 0.01", "--set optimizer.learning_rate=VALUE"),
        ("train --weight-decay 0.1", "--set optimizer.weight_decay=VALUE"),
        ("train --dataset words", "--set data.paths=VALUE"),
        ("train --nnodes 2", "--set launch.nodes=VALUE"),
        ("train --world-size 2", "--ranks says how many ranks there are"),
        ("train --out-dir there", "--run-dir says the folder of the run"),
        ("train --config-file job.toml", "The configuration goes without an option, such as: train job.toml"),
        ("train --model-name gpt2", "--set model.KEY=VALUE says one"),
        ("help plan", "meshwright COMMAND --help the options of one"),
        ("version", "meshwright --version shows it"),
    ],
)
def test_every_command_answers_what_other_tools_call_otherwise(capsys, words, told):
    assert cli.run_command(words.split()) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert told in said
    assert "Did you mean" not in said


def test_a_key_of_a_job_that_others_call_otherwise_is_one():
    known = msgspec.to_builtins(JobConfig())
    assert all(key.partition(".")[2] in known[key.partition(".")[0]] for key, _ in KEYS)


@pytest.mark.parametrize(("given", "said"), [({}, True), ({"tie_word_embeddings": False}, False)])
def test_an_output_that_shares_the_embedding_though_no_key_says_so_is_assumed_aloud(tmp_path, capsys, given, said):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MISTRAL | given))
    words = f"plan --model {path} --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 512 --layout dp=8"

    assert cli.run_command(words.split()) == 0
    assert ("the output has the embedding's weights" in capsys.readouterr().out) == said


@pytest.mark.parametrize(
    "words",
    [
        "collectives price ring --ranks 8 --bytes 64M --rate 50GB/s --alpha 5",
        "collectives price ring --ranks 8 --ranks-per-node 4 --bytes 1M --rate 5GB/s --alpha 5us --inter 1GB/s "
        "--inter-alpha 9",
        "simulate --collective all_reduce --algorithm ring --ranks 8 --bytes 1M --cluster dgx-h100 --alpha 5",
    ],
)
def test_no_command_takes_a_bare_number_of_a_latency_for_seconds(words, capsys):
    assert cli.run_command(words.split()) == 2
    assert "expected a latency with its unit, such as 5us or 300ns" in capsys.readouterr().err


def test_a_share_may_be_said_in_percent(capsys):
    said = []
    for share in ("0.45", "45%"):
        assert cli.run_command([*PLAN.split(), "--target-mfu", share]) == 0
        said.append(capsys.readouterr().out)

    assert said[0] == said[1]


def test_an_argument_that_is_missing_is_asked_for_with_an_example(capsys):
    assert cli.run_command(["report"]) == 2
    assert "Missing argument 'WHAT...'. Example: meshwright report " in capsys.readouterr().err


def test_a_run_that_is_not_there_cannot_go_on(tmp_path, capsys):
    assert cli.run_command(["train", "--resume", str(tmp_path / "none")]) == 2
    assert "none: no such folder; expected the folder of a run" in capsys.readouterr().err


def test_a_table_that_is_given_to_bench_as_something_to_measure_is_told_its_option(capsys, tmp_path):
    table = tmp_path / "table.txt"
    table.write_text("# nccl-tests\n")

    assert cli.run_command(["bench", str(table)]) == 2
    assert capsys.readouterr().err.endswith(f"is a file; expected --from {table} to read a table that was saved\n")


def test_a_word_that_no_entry_of_the_catalogue_has_is_told_the_kinds_of_entries(capsys):
    assert cli.run_command(["topo", "--catalogue", "links"]) == 2
    assert "(kinds of entries: accelerators, interconnects, switches, networks, nodes" in capsys.readouterr().err


def test_bench_takes_a_collective_as_other_programs_spell_it(capsys):
    assert cli.run_command(["bench", "AllReduce", "all_gather_perf", "p2p"]) == 2
    assert "p2p is measured alone, not together with 2 others" in capsys.readouterr().err
