"""LitGPT's YAML and commands: what shards, what is computed again, and what LitGPT itself refuses."""

import pytest

from meshwright.cli.job import JobQuestion, setting_of_job
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from tests.unit.jobs.test_strangers import job

SCRATCH = """model_name: tiny-llama-1.1b
out_dir: out/pretrain
precision: bf16-mixed
data: TinyLlama
train:
  save_interval: 1000
  global_batch_size: 256
  micro_batch_size: 4
  max_tokens: 300000000000
  max_seq_length: 2048
  max_norm: 1.0
optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 4e-4, betas: [0.9, 0.95]}}
devices: auto
num_nodes: 2
seed: 42
"""
WHOLE = """checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3-8B
precision: bf16-true
devices: 4
data: {class_path: litgpt.data.Alpaca2k, init_args: {prompt_style: alpaca}}
train: {global_batch_size: 64, micro_batch_size: 2, epochs: 1, max_seq_length: 512}
"""
FEW_BITS = """checkpoint_dir: checkpoints/mistralai/Mistral-7B-v0.1
precision: bf16-true
quantize: bnb.nf4-dq
devices: 1
lora_r: 32
lora_alpha: 16
train: {global_batch_size: 8, micro_batch_size: 2, max_seq_length: 512}
"""
OWN = """model_config: {name: own, n_layer: 24, n_embd: 2048, n_head: 16, n_query_groups: 4, bias: false,
  block_size: 1024,
  norm_class_name: RMSNorm, mlp_class_name: LLaMAMLP, intermediate_size: 5632, vocab_size: 50254}
train: {global_batch_size: 64, micro_batch_size: 8}
devices: 4
precision: bf16-true
"""


def test_pretraining_shards_inside_a_node_and_keeps_its_activations(tmp_path):
    found = job(tmp_path, {"scratch.yaml": SCRATCH}, gpus=16)

    layout = found.layout
    assert (found.world, layout.dp, layout.replicas, layout.zero, layout.recompute) == (16, 16, 2, 3, "none")
    assert (layout.mbs, found.global_batch, found.seq_len, found.precision) == (4, 256, 2048, "bf16")
    assert not found.ignored


def test_gpus_that_no_file_counts_are_asked_for(tmp_path):
    assert "--gpus" in job(tmp_path, {"scratch.yaml": SCRATCH}).asked


def test_tuning_all_weights_on_several_ranks_repeats_each_block_and_on_one_none(tmp_path):
    several = job(tmp_path, {"full.yaml": WHOLE})
    one = job(tmp_path, {"one.yaml": WHOLE.replace("devices: 4\n", "")})

    assert (several.world, several.layout.zero, several.layout.recompute, several.layout.replicas) == (
        4,
        3,
        "full",
        None,
    )
    assert (one.world, one.layout.zero, one.layout.recompute) == (1, 0, "none")
    assert several.stack == "litgpt"
    assert setting_of_job(several, JobQuestion(cluster="dgx-h100"), load_catalogue()).stack == "litgpt"


def test_flags_of_a_command_count_before_its_yaml(tmp_path):
    words = "litgpt download x\nlitgpt finetune_full --config full.yaml --devices 8 --train.micro_batch_size=1\n"

    found = job(tmp_path, {"full.yaml": WHOLE, "go.sh": words}, str(tmp_path / "go.sh"))

    assert (found.world, found.layout.mbs, found.global_batch) == (8, 1, 64)


def test_a_command_without_a_file_names_its_checkpoint_and_has_litgpts_defaults(tmp_path):
    words = "litgpt finetune_lora meta-llama/Llama-2-7b-hf --devices 2 --lora_mlp true --train.max_seq_length 1024\n"

    found = job(tmp_path, {"go.sh": words})

    assert found.architecture is not None
    assert (found.architecture.name, found.lora_rank, found.layout.mbs) == ("llama2-7b", 8, 1)
    assert (found.global_batch, found.seq_len, found.layout.recompute) == (16, 1024, "full")
    assert any("precision bf16-mixed" in text for text in found.assumed)


@pytest.mark.parametrize(
    "words",
    [
        "python litgpt/finetune/lora.py --config few.yaml",
        "litgpt finetune lora --config few.yaml",
        "litgpt finetune --config few.yaml",
        "python -m litgpt finetune_lora -c few.yaml",
    ],
)
def test_older_ways_to_start_the_same_training_are_known(tmp_path, words):
    found = job(tmp_path, {"few.yaml": FEW_BITS, "go.sh": f"{words}\n"}, str(tmp_path / "go.sh"))

    assert (found.world, found.lora_rank, found.weights, found.layout.zero) == (1, 32, "nf4-nested", 0)


def test_ranks_of_fabric_run_are_the_jobs(tmp_path):
    words = "fabric run --accelerator=cuda --devices=8 --num-nodes=2 litgpt/pretrain.py --config scratch.yaml\n"

    found = job(tmp_path, {"scratch.yaml": SCRATCH, "go.sh": words}, str(tmp_path / "go.sh"))

    assert (found.world, found.layout.replicas) == (16, 2)


def test_nodes_of_slurm_give_the_ranks_and_contradict_others(tmp_path):
    script = (
        "#!/bin/bash\n#SBATCH --nodes=%d\n#SBATCH --ntasks-per-node=8\nsrun litgpt pretrain --config scratch.yaml\n"
    )
    files = {"scratch.yaml": SCRATCH}

    found = job(tmp_path, {**files, "go.sh": script % 2}, str(tmp_path / "go.sh"))

    assert (found.world, found.layout.replicas) == (16, 2)
    with pytest.raises(InputError, match=r"num_nodes 2 .* contradicts"):
        job(tmp_path, {**files, "other.sh": script % 3}, str(tmp_path / "other.sh"))


def test_a_model_of_ones_own_has_litgpts_defaults_where_it_says_nothing(tmp_path):
    found = job(tmp_path, {"own.yaml": OWN})

    model = found.architecture
    assert model is not None
    assert (model.vocab_size, model.num_key_value_heads, model.bias, model.tied) == (50688, 4, False, False)
    assert (model.gated, model.norm, model.positions, found.seq_len) == (True, "rms", "rotary", 1024)


def test_a_batch_is_rounded_as_litgpt_rounds_it(tmp_path):
    found = job(tmp_path, {"full.yaml": WHOLE.replace("global_batch_size: 64", "global_batch_size: 70")})

    assert found.global_batch == 64
    assert any("70" in note and "64" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FEW_BITS.replace("devices: 1", "devices: 2"), "quantizes on one device alone"),
        (FEW_BITS.replace("bf16-true", "bf16-mixed"), "contradicts precision bf16-mixed"),
        (WHOLE.replace("global_batch_size: 64", "global_batch_size: 2"), "leaves no whole pass"),
        (OWN.replace("intermediate_size: 5632, ", ""), "intermediate_size: missing"),
        (WHOLE.replace("bf16-true", "fp4"), "expected one of bf16-true"),
    ],
)
def test_what_litgpt_refuses_is_refused(tmp_path, text, why):
    with pytest.raises(InputError, match=why):
        job(tmp_path, {"a.yaml": text})


def test_methods_that_are_not_read_are_refused_by_their_name(tmp_path):
    with pytest.raises(InputError, match="LitGPT's finetune_adapter_v2 is not read"):
        job(tmp_path, {"go.sh": "litgpt finetune_adapter_v2 meta-llama/Llama-2-7b-hf --devices 2\n"})


def test_what_only_the_running_job_knows_is_no_default(tmp_path):
    words = "litgpt finetune_full --config full.yaml %s\n"
    files = {"full.yaml": WHOLE}

    devices = job(tmp_path, {**files, "a.sh": words % "--devices $GPUS"}, str(tmp_path / "a.sh"))
    assert "--gpus" in devices.asked
    batch = job(tmp_path, {**files, "b.sh": words % "--train.global_batch_size $(./size)"}, str(tmp_path / "b.sh"))
    assert batch.asked == ("--global-batch",)
    for flag in ("--num_nodes", "--train.micro_batch_size", "--precision"):
        with pytest.raises(InputError, match="is not set in the files"):
            job(tmp_path, {**files, "c.sh": words % f"{flag} $X"}, str(tmp_path / "c.sh"))


OPEN = SCRATCH.replace("max_seq_length: 2048", "max_seq_length:")


@pytest.mark.parametrize(("model", "tokens"), [("tiny-llama-1.1b", 2048), ("Llama-2-7b-hf", 4096), ("Gemma-7b", 4096)])
def test_samples_of_no_length_are_cut_to_the_block_size_that_litgpt_has_for_the_model(tmp_path, model, tokens):
    found = job(tmp_path, {"scratch.yaml": OPEN.replace("tiny-llama-1.1b", model)}, gpus=16)

    assert found.seq_len == tokens
    assert [text for text in found.assumed if text.startswith(f"samples of {tokens} tokens")]


def test_the_length_of_a_model_whose_block_size_is_not_known_is_asked_for(tmp_path):
    found = job(tmp_path, {"scratch.yaml": OPEN.replace("tiny-llama-1.1b", "Qwen3-8B")}, gpus=16)

    assert found.seq_len is None


def test_sizes_of_a_model_config_that_contradict_its_name_are_said_and_count(tmp_path):
    found = job(tmp_path, {"own.yaml": OWN.replace("name: own", "name: tiny-llama-1.1b").replace("2048", "1024")})

    assert found.architecture.num_hidden_layers == 24
    for told in ("num_hidden_layers is 24; the published tinyllama-1.1b has 22", "hidden_size is 1024; the published"):
        assert any(told in note for note in found.notes)
    assert found.seq_len == 1024
    assert not any("LitGPT's block_size" in text for text in found.assumed)
