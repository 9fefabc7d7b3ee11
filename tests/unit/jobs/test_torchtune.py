"""torchtune's YAML and `tune run`: what shards, what is kept in half precision, and which model its builders make."""

import pytest

from meshwright.cli.job import JobQuestion, setting_of_job
from meshwright.errors import InputError
from meshwright.hardware import load_catalogue
from tests.unit.jobs.test_strangers import job

YAML = """output_dir: /tmp/out
tokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, path: t.model, max_seq_len: 4096}
dataset: {_component_: torchtune.datasets.alpaca_dataset, packed: true}
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
loss: {_component_: torchtune.modules.loss.LinearCrossEntropyLoss}
optimizer: {_component_: torch.optim.AdamW, lr: 2e-5, fused: true}
batch_size: 2
gradient_accumulation_steps: 8
enable_activation_checkpointing: true
enable_activation_offloading: false
dtype: bf16
device: cuda
"""
LORA = YAML.replace(
    "llama3_1.llama3_1_8b",
    "llama3_1.lora_llama3_1_8b, lora_rank: 16, lora_attn_modules: [q_proj, v_proj], apply_lora_to_mlp: true",
)


def test_a_yaml_of_torchtune_is_fsdp_with_everything_in_half_precision(tmp_path):
    found = job(tmp_path, {"full.yaml": YAML}, gpus=8)

    layout = found.layout
    assert (found.world, layout.dp, layout.zero, layout.tp, layout.recompute) == (8, 8, 3, 1, "full")
    assert (layout.mbs, found.global_batch, found.seq_len, found.precision) == (2, 128, 4096, "bf16")
    assert (found.stack, found.loss) == ("torchtune", "chunked")
    assert found.architecture is not None
    assert found.architecture.name == "llama3-8b"
    assert not found.ignored
    assert setting_of_job(found, JobQuestion(cluster="dgx-h100"), load_catalogue()).stack == "torchtune"


def test_words_of_tune_run_are_torchruns_options_and_keys_of_the_yaml(tmp_path):
    words = "tune run --nnodes 2 --nproc_per_node 8 full_finetune_distributed --config full.yaml batch_size=4"
    words += " tensor_parallel_dim=2 enable_activation_checkpointing=false fsdp_reshard_after_forward=False\n"

    found = job(tmp_path, {"full.yaml": YAML, "go.sh": words}, str(tmp_path / "go.sh"))

    layout = found.layout
    assert (found.world, layout.tp, layout.dp, layout.sp, layout.zero) == (16, 2, 8, 1, 2)
    assert (layout.mbs, found.global_batch, layout.recompute) == (4, 256, "none")


def test_a_recipe_of_one_device_has_one_rank(tmp_path):
    words = "tune run full_finetune_single_device --config full.yaml\n"

    found = job(tmp_path, {"full.yaml": YAML, "go.sh": words}, str(tmp_path / "go.sh"))

    assert (found.world, found.layout.zero, found.global_batch) == (1, 0, 16)


def test_copies_of_shards_are_torchtunes_replicate_dimension(tmp_path):
    copies = "data_parallel_replicate_dim: 2\ndata_parallel_shard_dim: 4\nfsdp_cpu_offload: true\n"

    layout = job(tmp_path, {"full.yaml": YAML + copies}).layout

    assert (layout.dp, layout.replicas, layout.zero, layout.offload) == (8, 2, 3, "parameters")


def test_builders_of_adapters_train_adapters_alone_in_four_bits_too(tmp_path):
    lora = job(tmp_path, {"lora.yaml": LORA}, gpus=2)
    four = job(tmp_path, {"qlora.yaml": LORA.replace("lora_llama", "qlora_llama")}, gpus=2)

    assert (lora.lora_rank, lora.weights, four.lora_rank, four.weights) == (16, "", 16, "nf4-nested")
    assert lora.architecture is not None
    assert lora.architecture == four.architecture


@pytest.mark.parametrize(
    ("old", "new", "key", "value"),
    [
        ("torchtune.modules.loss.LinearCrossEntropyLoss", "torch.nn.CrossEntropyLoss", "loss", "whole"),
        ("torch.optim.AdamW", "bitsandbytes.optim.PagedAdamW8bit", "optimizer", "paged-adam8bit"),
        ("offloading: false", "offloading: true", "away", ("input",)),
        ("dtype: bf16", "dtype: fp32", "stack", ""),
    ],
)
def test_what_the_file_has_otherwise_is_read(tmp_path, old, new, key, value):
    assert getattr(job(tmp_path, {"full.yaml": YAML.replace(old, new)}, gpus=8), key) == value


def test_recipes_that_compare_answers_and_configurations_by_name_alone_are_refused(tmp_path):
    words = "tune run --nproc_per_node 8 %s --config %s\n"
    with pytest.raises(InputError, match="torchtune's lora_dpo_distributed is not read"):
        job(tmp_path, {"full.yaml": YAML, "a.sh": words % ("lora_dpo_distributed", "full.yaml")})
    with pytest.raises(
        InputError, match="takes batch_size, .* from torchtune.s own llama3_1/8B_full, which is not here"
    ):
        job(tmp_path, {"b.sh": words % ("full_finetune_distributed", "llama3_1/8B_full")})


@pytest.mark.parametrize(
    ("optimizer", "priced"),
    [
        ("bitsandbytes.optim.PagedAdamW8bit", "paged-adam8bit-in-backward"),
        ("torch.optim.AdamW", "adamw-in-backward"),
        ("bitsandbytes.optim.AdamW32bit", "adamw-fp32-in-backward"),
    ],
)
def test_an_optimizer_that_runs_in_backward_uses_gradients_up_as_they_come(tmp_path, optimizer, priced):
    yaml = YAML.replace("torch.optim.AdamW", optimizer).replace("steps: 8", "steps: 1") + "optimizer_in_bwd: true\n"

    found = job(tmp_path, {"full.yaml": yaml}, gpus=1)

    assert found.optimizer == priced
    assert not any("optimizer_in_bwd" in text for text in found.ignored)


WORDS = "batch_size=2 gradient_accumulation_steps=4 tokenizer.max_seq_len=8192 enable_activation_checkpointing=True"


@pytest.mark.parametrize(
    ("named", "model", "rank"), [("llama3_1/8B_full", "llama3-8b", 0), ("qwen2_5/7B_lora", "qwen2.5-7b", 16)]
)
def test_a_published_file_is_known_by_its_name_where_the_command_says_what_is_priced(tmp_path, named, model, rank):
    adapters = " model.lora_rank=16 model.apply_lora_to_mlp=True" if rank else ""
    recipe = "lora" if rank else "full"
    words = f"tune run --nproc_per_node 8 {recipe}_finetune_distributed --config {named} {WORDS}{adapters}\n"

    found = job(tmp_path, {"go.sh": words})

    assert found.architecture is not None
    assert (found.architecture.name, found.lora_rank) == (model, rank)
    assert (found.world, found.global_batch, found.seq_len, found.layout.recompute) == (8, 64, 8192, "full")
    assert any(f"{named} of torchtune is not here" in text for text in found.assumed)


def test_what_a_command_leaves_to_a_published_file_is_asked_for_by_its_whole_name(tmp_path):
    words = (
        f"tune run --nproc_per_node 8 full_finetune_distributed --config llama3/70B_full {WORDS.partition(' ')[2]}\n"
    )

    with pytest.raises(InputError, match=r"takes batch_size from .* llama3/70B_full, .*`tune cp llama3/70B_full"):
        job(tmp_path, {"go.sh": words})


def test_a_length_that_stands_with_the_dataset_is_that_of_the_rows(tmp_path):
    old = YAML.replace(", max_seq_len: 4096", "").replace("packed: true", "max_seq_len: 1536, packed: PACKED")

    packed = job(tmp_path, {"a.yaml": old.replace("PACKED", "true")}, gpus=8)
    loose = job(tmp_path, {"b.yaml": old.replace("PACKED", "false")}, gpus=8)

    assert (packed.seq_len, loose.seq_len) == (1536, 1536)
    assert [any("rows may be shorter" in told for told in one.assumed) for one in (packed, loose)] == [False, True]
