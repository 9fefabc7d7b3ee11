"""LLaMA-Factory's second form of YAML: a model, its batch, and configurations of plugins by their names."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

FORM = "model: Qwen/Qwen3-8B\nmodel_class: llm\ntrain_dataset: ours.yaml\nmicro_batch_size: 2\nglobal_batch_size: 64\n"
FSDP = "dist_config:\n  name: fsdp2\n"
DEEPSPEED = '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'


def test_its_own_settings_are_read_and_no_other_engines(tmp_path):
    found = job(tmp_path, {"full.yaml": f"{FORM}cutoff_len: 4096\n{FSDP}"}, gpus=8)

    assert (found.engine, found.global_batch, found.seq_len, found.precision) == ("accelerate", 64, 4096, "bf16")
    assert (found.layout.mbs, found.layout.zero, found.layout.recompute) == (2, 3, "full")
    assert not found.ignored


@pytest.mark.parametrize(
    ("more", "zero", "again"),
    [
        ("dist_config: {name: fsdp2, reshard_after_forward: false}\n", 2, "full"),
        ("dist_config: {name: deepspeed, config_file: two.json}\n", 2, "full"),
        ("enable_activation_checkpointing: false\n", 0, "none"),
    ],
)
def test_the_backend_says_what_ranks_share(tmp_path, more, zero, again):
    (tmp_path / "two.json").write_text(DEEPSPEED)

    found = job(tmp_path, {"full.yaml": f"{FORM}{more}"}, gpus=8)

    assert (found.layout.zero, found.layout.recompute, found.global_batch) == (zero, again, 64)


@pytest.mark.parametrize("place", ["cp_size: 2\nmp_replicate_size: 2\nmp_shard_size: 2\n", ""])
def test_degrees_stand_beside_the_backend_or_in_it(tmp_path, place):
    inside = "" if place else "  cp_size: 2\n  mp_replicate_size: 2\n  mp_shard_size: 2\n"

    found = job(tmp_path, {"full.yaml": f"{FORM}{place}{FSDP}{inside}"}, gpus=8)

    assert (found.layout.cp, found.layout.dp, found.layout.replicas) == (2, 4, 2)


def test_adapters_have_the_rank_of_their_configuration_or_its_default(tmp_path):
    said = job(tmp_path, {"a.yaml": f"{FORM}{FSDP}peft_config: {{name: lora, r: 32}}\n"}, gpus=8)
    left = job(tmp_path, {"b.yaml": f"{FORM}{FSDP}peft_config: {{name: lora}}\n"}, gpus=8)

    assert (said.lora_rank, left.lora_rank) == (32, 8)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("peft_config: {name: freeze}\n", "peft_config freeze: trains some layers alone"),
        ("dist_config: {name: turbo}\n", "dist_config turbo: expected fsdp2, deepspeed or ddp"),
        ("mp_replicate_size: 2\ndist_config: {name: fsdp2}\n", "mp_replicate_size 2: say mp_shard_size too"),
    ],
)
def test_what_is_not_read_of_it_is_refused(tmp_path, more, told):
    with pytest.raises(InputError, match=told):
        job(tmp_path, {"full.yaml": f"{FORM}{more}"}, gpus=8)


def test_its_command_names_the_file(tmp_path):
    found = job(tmp_path, {"go.sh": "NPROC_PER_NODE=4 llamafactory-cli sft full.yaml\n", "full.yaml": FORM + FSDP})

    assert (found.world, found.layout.zero, found.layout.mbs) == (4, 3, 2)


def test_it_starts_a_rank_on_each_visible_device_of_all_its_nodes(tmp_path):
    start = "CUDA_VISIBLE_DEVICES=0,1,2,3 FORCE_TORCHRUN=1 {nodes} llamafactory-cli train full.yaml\n"
    files = {"full.yaml": FORM + FSDP}

    assert job(tmp_path, {**files, "go.sh": start.format(nodes="NNODES=2")}).world == 8
    assert job(tmp_path, {**files, "go.sh": start.format(nodes="")}).world == 4
    assert job(tmp_path, {**files, "go.sh": start.format(nodes="NNODES=$OF_THE_SITE")}).world is None


LORA = """model_name_or_path: Qwen/Qwen3-8B
stage: sft
template: qwen3
cutoff_len: 2048
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
use_unsloth: true
"""


def test_unsloth_under_llama_factory_is_unsloths_kernels_losses_and_checkpoints(tmp_path):
    found = job(tmp_path, {"lora.yaml": LORA}, gpus=1)
    drops = job(tmp_path, {"drop.yaml": LORA + "lora_dropout: 0.1\n"}, gpus=1)
    whole = job(tmp_path, {"full.yaml": LORA + "finetuning_type: full\n"}, gpus=1)

    assert (found.stack, found.loss, found.away, found.layout.recompute) == ("unsloth", "fused", ("input",), "full")
    assert (drops.stack, drops.loss, drops.away) == ("", "fused", ("input",))
    assert not any("use_unsloth" in line for line in (*found.ignored, *drops.ignored))
    assert any("use_unsloth" in line for line in whole.ignored)


@pytest.mark.parametrize(
    "start", ["torchrun --nproc_per_node 4 src/train.py", "NPROC_PER_NODE=4 llamafactory-cli train"]
)
def test_words_behind_the_yaml_count_before_it_however_it_is_started(tmp_path, start):
    words = "lora.yaml per_device_train_batch_size=3 gradient_accumulation_steps=2 cutoff_len=1024"
    found = job(tmp_path, {"go.sh": f"{start} {words}\n", "lora.yaml": LORA})

    assert (found.layout.mbs, found.global_batch, found.seq_len) == (3, 24, 1024)
