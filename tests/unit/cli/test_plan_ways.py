"""Every option of `meshwright plan` is read by the way that is asked for, or refused: none is passed over."""

import json

import pytest

from meshwright.cli import run_command
from meshwright.cli.options import PlanOptions
from meshwright.cli.plan import command
from meshwright.cli.plan_ways import READ, SEARCH, asked_way, refusal_of_way

FLAGS = {param.name: param.opts[0] for param in command.params if param.name != "help_all"}
MODEL = ["plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "64"]
COUNT = ["plan", "--params", "8B", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "64", "--seq-len", "4096"]
LAYOUT = [*MODEL, "--layout", "dp=8,mbs=1,zero=3"]


def test_every_option_is_read_by_some_way_and_the_table_names_no_other():
    assert {*FLAGS} == {name for names in READ.values() for name in names}
    assert {*FLAGS} < {*PlanOptions.__struct_fields__}


@pytest.mark.parametrize("way", READ)
def test_what_a_way_does_not_read_is_refused_with_the_ways_that_do(way):
    assert way == SEARCH or way.startswith("--cluster") or asked_way({"": way}) == way
    for name, flag in FLAGS.items():
        if name not in READ[way]:
            told = refusal_of_way(way, name, flag)
            assert flag in told
            assert way in told or way == SEARCH
            assert way.startswith("--cluster") or any(other in told for other in READ if name in READ[other])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([*LAYOUT, "--recompute", "full"], "--recompute: not with --layout; it goes with --params or --mfu"),
        ([*LAYOUT, "--recompute", "none"], "--recompute: not with --layout"),  # the default, typed
        ([*LAYOUT, "--layers", "16"], "--layers: not with --layout"),
        ([*MODEL, "--layers", "16"], "--layers: needs --params or --mfu"),
        ([*MODEL, "--scaling", "fixed", "--engine", "megatron"], "--engine: not with --scaling; it goes with a search"),
        ([*MODEL, "--target-mfu", "0.3", "--emit", "nemo"], "--emit: not with --target-mfu"),
        ([*MODEL, "--target-mfu", "0.3", "--tokens", "1T"], "--tokens: not with --target-mfu"),
        ([*MODEL, "--compare", "dgx-a100-80g", "--engine", "nemo"], "--engine: not with --compare"),
        ([*MODEL, "--mfu", "0.4", "--layout", "dp=8"], "--layout: not with --mfu"),
        ([*COUNT, "--stack", "megatron"], "--stack: not with --params"),
        ([*COUNT, "--lora-rank", "8"], "--lora-rank: not with --params"),
        ([*COUNT, "--weights", "bf16"], "--weights: not with --params"),
        (["plan", "--job", "run.sh", "--cluster", "dgx-h100", "--placements", "tree"], "--placements: not with --job"),
    ],
    ids=lambda case: " ".join(case[-2:]) if isinstance(case, list) else None,
)
def test_an_option_of_another_way_is_one_line_and_exit_code_2(capsys, words, told):
    assert run_command(words) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


@pytest.mark.parametrize(
    ("words", "flags"),
    [
        (["plan", "--params", "8B"], ("--global-batch", "--seq-len", "--cluster")),
        (["plan", "--params", "8B", "--cluster", "dgx-h100"], ("--global-batch", "--seq-len")),
        (["plan", "--model", "llama3-8b"], ("--global-batch", "--cluster")),
    ],
    ids=str,
)
def test_all_that_a_question_lacks_is_named_at_once(capsys, words, flags):
    assert run_command(words) == 2

    (line,) = capsys.readouterr().err.splitlines()
    named = (flag for flag in ("--global-batch", "--seq-len", "--cluster") if f"{flag}: expected" in line)
    assert tuple(named) == flags


def test_the_cluster_of_a_comparison_is_the_first_of_its_sides(capsys):
    words = [*LAYOUT, "--compare", "dgx-a100-80g", "--json"]
    assert run_command(words) == 0

    sides = json.loads(capsys.readouterr().out)["sides"]
    assert [side["cluster"] for side in sides] == ["dgx-h100", "dgx-a100-80g"]


def test_a_budget_of_tokens_becomes_days_at_the_predicted_step(capsys):
    asked = [*LAYOUT, "--seq-len", "4096", "--tokens", "1T"]
    assert run_command([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert run_command(asked) == 0
    text = capsys.readouterr().out

    step_time_s, training = document["predicted"]["step_time_s"], document["training"]
    assert training["days"] == pytest.approx(1e12 / (64 * 4096) * step_time_s / 86400)
    assert training["error_band"] == document["predicted"]["error_band"]
    assert f"training: {training['days']:,.0f} days for 1,000,000,000,000 tokens, 262,144 a step of" in text


@pytest.mark.parametrize("way", ["search", "job"])
def test_the_days_of_a_search_and_of_a_job_are_those_of_its_answer(capsys, tmp_path, way):
    job = tmp_path / "run.sh"
    job.write_text("torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --global-batch-size 64\n")
    sized = ["--model", "llama3-8b", "--cluster", "dgx-h100", "--seq-len", "4096", "--gpus", "8", "--tokens", "2B"]
    words = ["plan", *sized, "--json", *(["--job", str(job)] if way == "job" else ["--global-batch", "64"])]
    assert run_command(words) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["training"]["step_time_s"] == document["predicted"]["step_time_s"]
    assert document["training"]["tokens_per_step"] == 64 * 4096


@pytest.mark.parametrize("tokens", ["0", "many"])
def test_a_budget_that_is_no_number_of_tokens_is_refused_before_anything_is_priced(capsys, tokens):
    assert run_command([*MODEL, "--tokens", tokens]) == 2
    assert "--tokens: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("engine", "stack", "told"),
    [
        ("megatron", "torchtitan", True),
        ("megatron", "bridge", False),  # whose constants price it
        ("fsdp", "accelerate", False),
        ("nemo", "since-2024", False),  # of no engine
    ],
)
def test_an_engine_and_a_stack_of_another_are_noted(capsys, engine, stack, told):
    assert run_command([*MODEL, "--layout", "dp=8,zero=0", "--engine", engine, "--stack", stack, "--json"]) == 0
    assert ("are two engines: what the first can run" in capsys.readouterr().err) == told


@pytest.mark.parametrize(("engine", "stack"), [("megatron", "megatron"), ("fsdp", "accelerate"), ("nemo", "nemo")])
def test_what_an_engine_runs_is_priced_as_its_own_stack_unless_another_is_named(capsys, engine, stack):
    words = [*MODEL, "--layout", "dp=8,zero=0", "--json"]
    found = {}
    for name, more in {"engine": ["--engine", engine], "stack": ["--stack", stack], "own": []}.items():
        assert run_command([*words, *more]) == 0
        found[name] = json.loads(capsys.readouterr().out)["predicted"]

    assert found["engine"] == found["stack"] != found["own"]


def test_a_search_for_a_configuration_is_priced_as_what_reads_it(tmp_path, capsys):
    words = [*MODEL, "--only", "tp=1", "--only", "pp=1", "--json", "--emit-to", str(tmp_path / "job"), "--emit", "fsdp"]

    assert run_command(words) == 0
    told = json.loads(capsys.readouterr().out)["predicted"]["calibration"]
    assert "stack accelerate: Accelerate and plain FSDP" in told


@pytest.mark.parametrize("target", [["--target-days", "30", "--tokens", "100B"], ["--target-mfu", "20%"]])
def test_a_target_beside_a_job_searches_the_layouts_of_its_model(capsys, tmp_path, target):
    job = tmp_path / "run.sh"
    job.write_text("torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --global-batch-size 64\n")
    sized = ["--model", "llama3.2-1b", "--cluster", "dgx-h100", "--seq-len", "2048", "--gpus", "8"]
    assert run_command(["plan", "--job", str(job), *sized, *target, "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert document["fewest"]["gpus"] >= 1
    assert document["model"]["seq_len"] == 2048


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--target-days", "30"], "--target-days: needs --tokens"),
        (["--target-mfu", "0.4", "--tokens", "1T"], "--tokens: not with --target-mfu"),
        (["--target-mfu", "0.4", "--target-step-time", "5s"], "--target-mfu and --target-step-time: expected one"),
        (["--target-mfu", "0.4", "--layout", "dp=8"], "--layout: not with --job and a target"),
    ],
)
def test_options_of_a_target_beside_a_job_are_held_to_each_other(capsys, words, told):
    assert run_command(["plan", "--job", "run.sh", "--cluster", "dgx-h100", *words]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "stack"),
    [
        (["--lora-rank", "16", "--weights", "nf4"], "priced as stack trl, since Meshwright itself does not run --lora"),
        (["--weights", "bf16"], "priced as stack since-2024, since Meshwright itself does not run --weights bf16"),
    ],
)
def test_what_our_own_engine_does_not_hold_is_priced_as_a_stack_that_does(capsys, words, stack):
    assert run_command([*MODEL, "--layout", "dp=8,mbs=1", "--seq-len", "2048", *words]) == 0
    assert stack in capsys.readouterr().err


def test_an_answer_on_adapters_says_how_many_parameters_are_trained(capsys):
    assert run_command([*MODEL, "--layout", "dp=8,mbs=1", "--seq-len", "2048", "--lora-rank", "16"]) == 0
    assert "41.94 M parameters are trained" in " ".join(capsys.readouterr().out.split())


ON_TPUS = ["plan", "--model", "llama3-8b", "--cluster", "tpu-v5e", "--gpus", "16", "--global-batch", "16"]


def test_tpus_are_priced_as_maxtext_unless_a_stack_is_named(capsys):
    words = [*ON_TPUS, "--seq-len", "2048", "--layout", "dp=16,zero=3,recompute=full"]
    assert run_command(words) == 0
    told = capsys.readouterr()
    assert "priced as stack maxtext, since Meshwright itself does not run on TPUs" in " ".join(told.err.split())
    assert "memory: it fits" in told.out
    assert "on other engines" not in told.out


@pytest.mark.parametrize(
    "words",
    [
        [*MODEL, "--weights", "bf16", "--layout", "tp=3"],
        [*MODEL, "--inter", "6400Gbps", "--only", "tp=7"],
        [*MODEL, "--weights", "bf16", "--target-mfu", "0.4", "--only", "tp=7"],
        [*ON_TPUS, "--layout", "dp=3"],
        ["simulate", *MODEL[1:], "--seq-len", "2048", "--precision", "fp8", "--layout", "dp=8,vpp=3"],
    ],
)
def test_a_question_that_is_refused_prints_its_refusal_alone(capsys, words):
    assert run_command(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("meshwright: ")


def test_a_misspelt_model_and_cluster_are_said_beside_what_is_missing(capsys):
    assert run_command(["plan", "--model", "lama3-8b", "--cluster", "aws-p55"]) == 2
    told = capsys.readouterr().err
    assert told.index("did you mean llama3-8b?") < told.index("did you mean aws-p5?") < told.index("--global-batch: ")


def test_no_two_terms_of_a_layout_have_one_name(capsys):
    assert run_command([*MODEL, "--layout", "dp=8,mbs=1", "--seq-len", "2048"]) == 0
    rows = [line.split("  ")[1] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    names = [name.strip() for name in rows if name.strip()]
    assert {"optimizer", "optimizer states", "memory on the card"} <= set(names)
    assert len(names) == len(set(names))


def test_a_model_that_puts_out_vectors_has_no_rows_of_logits_assumed(capsys, tmp_path):
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {"model_type": "mistral", "architectures": ["MistralModel"], "vocab_size": 1000, **sizes}
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 4, "hidden_act": "silu"}))
    words = ["--model", str(tmp_path / "config.json"), "--seq-len", "512", "--lora-rank", "4", "--layout", "dp=8"]
    assert run_command(["plan", "--cluster", "dgx-h100", "--global-batch", "64", *words]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "another mbs is another training" in told
    assert "rows of logits" not in told
