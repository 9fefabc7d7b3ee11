"""Jobs that train adapters alone, as each trainer says it."""

import json

import pytest

from meshwright.cli import main
from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.workload.adapters import without_adapters

TRL = "accelerate launch --num_processes 8 sft.py --model_name_or_path meta-llama/Llama-3.1-8B --bf16 true "
TRL += "--per_device_train_batch_size 4 --max_length 2048 "
FACTORY = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\ntemplate: qwen\ncutoff_len: 2048\nbf16: true\n"
FACTORY += "per_device_train_batch_size: 1\n"
AXOLOTL = "base_model: Qwen/Qwen3-8B\nsequence_len: 2048\nmicro_batch_size: 1\ndatasets: [{path: a}]\n"
NEMO = "_target_: nemo_automodel.components._peft.lora.PeftConfig"
AUTOMODEL = (
    "model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
    "  pretrained_model_name_or_path: Qwen/Qwen3-8B\n"
    "step_scheduler:\n  global_batch_size: 8\n  local_batch_size: 1\n"
    "distributed:\n  _target_: nemo_automodel.components.distributed.fsdp2.FSDP2Manager\n  tp_size: 1\n"
    f"packed_sequence:\n  packed_sequence_size: 2048\npeft:\n  {NEMO}\n"
)


def read(folder, name, text):
    (folder / name).write_text(text)
    return read_job([str(folder / name)], JobOptions(gpus=8))


@pytest.mark.parametrize(
    ("name", "text", "rank"),
    [
        ("trl.sh", TRL + "--use_peft --lora_r 32", 32),
        ("trl.sh", TRL + "--use_peft", 16),  # TRL's default
        ("trl.sh", TRL, 0),
        ("factory.yaml", FACTORY + "finetuning_type: lora\nlora_rank: 64\nlora_target: all\n", 64),
        ("factory.yaml", FACTORY, 8),  # LLaMA-Factory's defaults
        ("factory.yaml", FACTORY + "finetuning_type: full\n", 0),
        ("axolotl.yaml", AXOLOTL + "adapter: lora\nlora_r: 24\n", 24),
        ("automodel.yaml", AUTOMODEL + "  dim: 12\n  match_all_linear: true\n", 12),
    ],
)
def test_the_rank_of_adapters_is_read(tmp_path, name, text, rank):
    job = read(tmp_path, name, text)

    assert job.lora_rank == rank
    assert any(f"of rank {rank}" in said for said in job.assumed) == (rank > 0)
    assert not [said for said in job.ignored if "all weights" in said]


def test_adapters_of_no_rank_are_priced_as_all_weights_and_that_is_said(tmp_path):
    job = read(tmp_path, "axolotl.yaml", AXOLOTL + "adapter: lora\n")

    assert job.lora_rank == 0
    assert any("adapters alone are trained, of no rank that is said" in said for said in job.ignored)


@pytest.mark.parametrize(("names", "kinds"), [("q_proj v_proj", ("q", "v")), ("k_proj", ("k",)), ("all-linear", ())])
def test_adapters_on_some_matrices_are_counted_on_those(tmp_path, names, kinds):
    job = read(tmp_path, "trl.sh", TRL + f"--use_peft --lora_target_modules {names}")

    assert job.lora_targets == kinds
    assert not any(said.startswith("use_peft on") for said in job.ignored)


def test_matrices_that_are_not_told_apart_are_named_and_priced_as_all(tmp_path):
    job = read(tmp_path, "trl.sh", TRL + "--use_peft --lora_target_modules Wqkv")

    assert job.lora_targets == ()
    assert any(said.startswith("use_peft on") and "Wqkv" in said for said in job.ignored)


def test_the_magnitudes_of_dora_are_said_not_to_be_priced(tmp_path):
    job = read(tmp_path, "factory.yaml", FACTORY + "finetuning_type: lora\nlora_rank: 8\nuse_dora: true\n")

    assert any("use_dora" in said and "magnitudes" in said for said in job.ignored)


@pytest.mark.parametrize(
    ("targets", "left"),
    [
        ("q_proj v_proj", "the keys, outputs of attention and the networks"),
        ("q_proj v_proj o_proj gate_proj up_proj down_proj", "the keys of attention"),
        ("q_proj k_proj v_proj o_proj up_proj down_proj", "the gate projections of networks"),
        ("gate_proj up_proj down_proj", "the queries, keys, values, outputs of attention"),
        ("q_proj k_proj v_proj o_proj gate_proj up_proj down_proj", ""),
        ("linear_qkv linear_proj linear_fc1 linear_fc2", ""),
        ("['q_proj', 'k_proj', 'v_proj', 'output_proj'] and mlp", ""),
        ("query and key and value and projection and mlp", ""),
        ("all-linear", ""),
        ("", ""),
    ],
)
def test_matrices_without_adapters_are_named_though_networks_have_some(targets, left):
    assert without_adapters(targets) == left


def test_a_model_with_layers_that_the_planner_adapts_in_no_way_says_so(tmp_path):
    job = read(tmp_path, "trl.sh", TRL.replace("meta-llama/Llama-3.1-8B", "mamba2-2.7b") + "--use_peft")

    assert job.lora_rank == 0
    assert any("priced as training of all weights" in said for said in job.ignored)
    assert not any("on all matrices" in said for said in job.assumed)


def priced(folder, capsys, *more):
    words = ["plan", "--job", str(folder / "trl.sh"), "--gpus", "8", "--cluster", "dgx-h100", *more]
    with pytest.raises(SystemExit) as leave:
        main(words)
    return leave.value.code, capsys.readouterr()


def test_a_job_with_adapters_is_priced_with_frozen_weights(tmp_path, capsys):
    found = []
    for words in ("--use_peft", ""):
        (tmp_path / "trl.sh").write_text(TRL + words)
        code, said = priced(tmp_path, capsys, "--json")
        assert code == 0
        found.append(json.loads(said.out)["predicted"])
    adapted, whole = found

    assert adapted["step_time_s"] < 0.8 * whole["step_time_s"]  # frozen weights have no gradients
    assert adapted["peak_memory_bytes_per_gpu"] < whole["peak_memory_bytes_per_gpu"]


def test_options_say_how_a_job_holds_weights_and_logits(tmp_path, capsys):
    (tmp_path / "trl.sh").write_text(TRL + "--use_peft")
    found = []
    for words in ((), ("--weights", "nf4"), ("--weights", "nf4", "--loss", "fused")):
        code, said = priced(tmp_path, capsys, "--json", *words)
        assert code == 0
        found.append(json.loads(said.out)["predicted"]["peak_memory_bytes_per_gpu"])

    assert found[0] - found[1] > 9e9  # 7 billion weights of layers at 1.44 bytes less
    assert found[1] - found[2] > 9e9  # logits of 4 x 2,048 tokens at 14 bytes


def test_no_plan_of_all_weights_is_written_for_a_job_with_adapters(tmp_path, capsys):
    (tmp_path / "trl.sh").write_text(TRL + "--use_peft")

    code, said = priced(tmp_path, capsys, "--emit", "accelerate")

    assert code == InputError.exit_code
    assert "the job trains adapters alone" in said.err


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("factory.yaml", FACTORY + "finetuning_type: freeze\n", "finetuning_type freeze (factory.yaml): some weights"),
        (
            "factory.yaml",
            FACTORY + "finetuning_type: freeze\nfreeze_trainable_layers: 4\n",
            "freeze_trainable_layers 4 (factory.yaml): some weights alone are trained; priced as if none were frozen",
        ),
        ("factory.yaml", FACTORY + "finetuning_type: galore\n", "finetuning_type galore (factory.yaml): not known"),
        (
            "axolotl.yaml",
            AXOLOTL + "unfrozen_parameters: [lm_head]\n",
            "(axolotl.yaml): some weights alone are trained",
        ),
        ("own.sh", TRL + "--freeze_backbone true", "freeze_backbone True (own.sh): some weights alone are trained"),
        (
            "automodel.yaml",
            AUTOMODEL.partition("peft:")[0]
            + "freeze_config: {freeze_embeddings: true, freeze_language_model: false}\n",
            "freeze_config, embeddings: priced as if none were frozen",
        ),
    ],
)
def test_layers_that_are_frozen_are_priced_as_trained_and_that_is_said(tmp_path, name, text, told):
    job = read(tmp_path, name, text)

    assert job.lora_rank == 0
    assert (found := [said for said in job.ignored if told in said])
    assert ("upper bounds" in found[0]) == ("not known" not in found[0])


@pytest.mark.parametrize(
    "text", [FACTORY + "finetuning_type: full\nfreeze_vision_tower: true\n", AXOLOTL + "unfrozen_parameters: []\n"]
)
def test_no_layers_of_a_text_model_are_frozen_by_empty_lists_or_towers(tmp_path, text):
    job = read(tmp_path, "a.yaml", text)

    assert not [said for said in job.ignored if "alone are trained" in said]


def test_a_programs_own_kind_of_fine_tuning_may_be_adapters(tmp_path):
    assert read(tmp_path, "own.sh", TRL + "--finetuning_type qlora --rank 24").lora_rank == 24
