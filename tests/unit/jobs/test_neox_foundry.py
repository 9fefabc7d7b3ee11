"""GPT-NeoX's YAML with its hostfile, and LLM Foundry's YAML under Composer's launcher."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from tests.unit.jobs.test_strangers import job

NEOX = """{
  # "pipe-parallel-size": 8,
  "pipe-parallel-size": 2, "model-parallel-size": 2,
  "num-layers": 24, "hidden-size": 2048, "num-attention-heads": 16, "seq-length": 1024,
  "pos-emb": "rotary", "no-weight-tying": true, "norm": "rmsnorm", "activation": "swiglu", "intermediate-size": 5632,
  "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
  "zero_optimization": {"stage": 1, "overlap_comm": True,},
  "checkpoint-activations": true,
  "precision": "bfloat16",
}
"""
PLACES = '{"hostfile": "/job/hosts", "launcher": "pdsh", "data-path": "/data/text", "vocab-size": 32000}\n'
HOSTS = "a slots=8\n# b slots=8\nc slots=8  # newer\n"
START = "python $HERE/deepy.py train.py -d settings small places.yml\n"


def test_neox_files_are_read_with_the_hosts_that_are_no_comment(tmp_path):
    found = job(tmp_path, {"run.sh": START, "small.yml": NEOX, "places.yml": PLACES, "hosts": HOSTS})

    assert (found.world, found.layout.tp, found.layout.pp, found.layout.dp) == (16, 2, 2, 4)
    assert (found.layout.zero, found.layout.recompute, found.layout.mbs) == (1, "full", 4)
    assert (found.global_batch, found.seq_len, found.precision) == (4 * 8 * 4, 1024, "bf16")
    assert found.architecture.vocab_size == 32000
    assert not found.ignored


@pytest.mark.parametrize("start", ["./deepy.py", "nohup ./deepy.py", "deepy.py"])
def test_the_launcher_of_neox_is_a_program_that_starts_by_its_own_name(tmp_path, start):
    script = START.replace("python $HERE/deepy.py", start)

    found = job(tmp_path, {"run.sh": script, "small.yml": NEOX, "places.yml": PLACES, "hosts": HOSTS})

    assert (found.world, found.layout.dp) == (16, 4)


def test_a_neox_file_alone_takes_its_ranks_from_the_question(tmp_path):
    found = job(tmp_path, {"small.yml": NEOX}, gpus=8)

    assert (found.layout.dp, found.global_batch) == (2, 64)
    assert job(tmp_path, {"small.yml": NEOX}).asked == ("--gpus", "--global-batch")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"vocab-size": 32000', '"seq-length": 2048', "seq_length 1024 .* contradicts 2048"),
        ('"vocab-size": 32000', '"moe-num-experts": 8', "experts of GPT-NeoX are not read"),
        ('"vocab-size": 32000', '"train-batch-size": 100', "train_batch_size 100"),
    ],
)
def test_neox_files_that_contradict_each_other_are_refused(tmp_path, old, new, told):
    with pytest.raises(InputError, match=told):
        job(tmp_path, {"run.sh": START, "small.yml": NEOX, "places.yml": PLACES.replace(old, new), "hosts": HOSTS})


def test_a_neox_file_that_the_command_names_and_that_is_not_here_is_asked_for(tmp_path):
    with pytest.raises(InputError, match=r"names places\.yml, which is not here"):
        job(tmp_path, {"run.sh": START, "small.yml": NEOX, "hosts": HOSTS})


def test_a_command_of_neox_without_its_files_is_refused_by_its_name(tmp_path):
    with pytest.raises(InputError, match="this starts GPT-NeoX, which is not read"):
        job(tmp_path, {"run.sh": START})


def test_neox_runs_on_the_included_hosts_of_its_hostfile(tmp_path):
    places = PLACES.replace('"launcher"', '"include": "a", "launcher"')

    found = job(tmp_path, {"run.sh": START, "small.yml": NEOX, "places.yml": places, "hosts": HOSTS})

    assert found.world == 8


def test_hosts_that_the_hostfile_has_not_leave_the_ranks_of_neox_open(tmp_path):
    places = PLACES.replace('"launcher"', '"include": "elsewhere", "launcher"')

    found = job(tmp_path, {"run.sh": START, "small.yml": NEOX, "places.yml": places, "hosts": HOSTS})

    assert found.world is None
    assert "--gpus" in found.asked


@pytest.mark.parametrize(
    ("section", "precision", "later"),
    [
        ('{"enabled": true, "type": "bfloat16"}', "bf16", "fp16"),
        ('{"enabled": false, "type": "bfloat16"}', "bf16", "fp32"),
        ('{"enabled": true, "type": "fp16"}', "fp16", ""),
    ],
)
def test_the_type_in_the_section_of_fp16_is_the_precision_of_neox_1(tmp_path, section, precision, later):
    small = NEOX.replace('"precision": "bfloat16"', f'"fp16": {section}')

    found = job(tmp_path, {"run.sh": START, "small.yml": small, "places.yml": PLACES, "hosts": HOSTS})

    assert found.precision == precision
    assert any(f"GPT-NeoX 2 computes in {later}" in text for text in found.assumed) == bool(later)


# --- LLM Foundry

FOUNDRY = """variables: {length: 2048}
max_seq_len: ${variables.length}
model:
  name: mpt_causal_lm
  d_model: 2048
  n_heads: 16
  n_layers: 24
  expansion_ratio: 4
  max_seq_len: ${variables.length}
  vocab_size: 50368
  attn_config: {alibi: true, attn_impl: flash}
optimizer: {name: decoupled_adamw, lr: 2.0e-4}
max_duration: 100ba
global_train_batch_size: 256
# device_train_microbatch_size: 16
device_train_microbatch_size: 8
precision: amp_bf16
fsdp_config: {sharding_strategy: FULL_SHARD, activation_checkpointing: false}
"""
MCLI = """name: small
compute: {gpus: 16, cluster: r9}
env_variables:
  MICRO: "2"
command: |
  composer train/train.py /mnt/config/parameters.yaml device_train_microbatch_size=$MICRO \\
    fsdp_config.sharding_strategy=SHARD_GRAD_OP
parameters:
"""


def foundry(text: str = FOUNDRY) -> str:
    return MCLI + "".join(f"  {line}\n" for line in text.splitlines())


def test_parameters_of_a_run_are_the_yaml_of_its_command_with_its_words_on_top(tmp_path):
    found = job(tmp_path, {"run.yaml": foundry()})

    assert (found.world, found.layout.dp, found.layout.zero, found.layout.recompute) == (16, 16, 2, "none")
    assert (found.layout.mbs, found.global_batch, found.seq_len, found.precision) == (2, 256, 2048, "bf16")


def test_a_batch_that_no_whole_share_of_each_rank_makes_is_refused_where_the_pass_is_open_too(tmp_path):
    text = foundry(FOUNDRY.replace("batch_size: 256", "batch_size: 250")).replace('MICRO: "2"', 'MICRO: "auto"')

    with pytest.raises(InputError, match=r"global_train_batch_size 250 .* is not a multiple of .* x dp 16"):
        job(tmp_path, {"run.yaml": text})


def test_ranks_of_a_node_in_composer_s_command_divide_the_gpus_of_a_run(tmp_path):
    assert job(tmp_path, {"run.yaml": foundry().replace("composer", "composer -n 8")}).world == 16


def test_composer_starts_one_node_unless_it_is_told_how_many_ranks_there_are(tmp_path):
    alone = job(tmp_path, {"run.sh": "composer -n 4 train.py a.yaml\n", "a.yaml": FOUNDRY})
    several = job(tmp_path, {"run.sh": "export WORLD_SIZE=16\ncomposer -n 8 train.py a.yaml\n", "a.yaml": FOUNDRY})
    flagged = job(tmp_path, {"run.sh": "composer -n 8 --world_size 32 train.py a.yaml\n", "a.yaml": FOUNDRY})
    all_it_finds = job(tmp_path, {"run.sh": "composer train.py a.yaml\n", "a.yaml": FOUNDRY})

    assert (alone.world, several.world, flagged.world, all_it_finds.world) == (4, 16, 32, None)
    assert "nnodes 1 (the default of composer)" in alone.assumed


def test_a_foundry_file_alone_takes_its_ranks_from_the_question(tmp_path):
    (tmp_path / "a.yaml").write_text(FOUNDRY)

    found = read_job([str(tmp_path / "a.yaml")], JobOptions(gpus=8))

    assert (found.layout.dp, found.layout.mbs, found.layout.zero, found.global_batch) == (8, 8, 3, 256)


@pytest.mark.parametrize(
    ("old", "new", "layout"),
    [
        ("fsdp_config: {", "other: {", {"zero": 0}),
        ("FULL_SHARD,", "HYBRID_SHARD, data_parallel_shard_degree: 4,", {"zero": 3, "replicas": 4}),
        ("activation_checkpointing: false", "activation_checkpointing: true", {"recompute": "full"}),
        ("activation_checkpointing: false", "cpu_offload: true", {"offload": "parameters"}),
    ],
)
def test_what_composer_shards_is_the_state_of_the_job(tmp_path, old, new, layout):
    found = job(tmp_path, {"a.yaml": FOUNDRY.replace(old, new)}, gpus=16)

    assert {key: getattr(found.layout, key) for key in layout} == layout


def test_a_micro_batch_that_composer_finds_itself_is_left_open(tmp_path):
    found = job(tmp_path, {"a.yaml": FOUNDRY.replace("microbatch_size: 8", "microbatch_size: auto")}, gpus=16)

    assert found.layout.mbs is None
    assert any("Composer finds the largest that fits" in note for note in found.notes)


@pytest.mark.parametrize(("peft", "rank"), [("{r: 4, peft_type: LORA, lora_alpha: 8}", 4), ("{peft_type: LORA}", 8)])
def test_adapters_of_llm_foundry_are_trained_alone(tmp_path, peft, rank):
    text = f"""max_seq_len: 2048
model: {{name: hf_causal_lm, pretrained_model_name_or_path: Qwen/Qwen3-8B, peft_config: {peft}}}
global_train_batch_size: 16
device_train_microbatch_size: 2
precision: amp_bf16
fsdp_config: {{sharding_strategy: FULL_SHARD}}
"""

    found = job(tmp_path, {"own.yaml": text}, gpus=8)

    assert found.lora_rank == rank
    assert not any("peft_config." in text for text in found.ignored)


# --- GPT-NeoX's networks, and its settings in several files

WHOLE = NEOX.replace('"hidden-size": 2048', '"hidden-size": 4096')


@pytest.mark.parametrize(
    ("settings", "width"),
    [
        ('"activation": "swiglu", "intermediate-size": 32768,', 11008),
        ('"activation": "swiglu",', 5632),
        ('"activation": "silu", "mlp-type": "llama",', 11008),
        ('"activation": "silu", "mlp-type": "llama", "intermediate-size": 14336,', 14336),
        ('"activation": "gelu",', 16384),
        ('"activation": "gelu", "expansion-factor": 3.5,', 14336),
    ],
)
def test_a_gated_network_is_as_wide_as_neox_makes_it(tmp_path, settings, width):
    text = WHOLE.replace('"activation": "swiglu", "intermediate-size": 5632,', settings)

    found = job(tmp_path, {"small.yml": text}, gpus=8)

    assert found.architecture.intermediate_size == width


def test_files_that_have_a_job_of_neox_together_are_read_together(tmp_path):
    model = '{"model-parallel-size": 2, "num-layers": 24, "hidden-size": 2048, "num-attention-heads": 16}\n'
    batch = '{"num_gpus": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "seq-length": 1024,'
    batch += ' "zero_optimization": {"stage": 1}, "precision": "bfloat16", "vocab-size": 32000}\n'
    files = [str(tmp_path / name) for name in ("model.yml", "batch.yml")]

    found = job(tmp_path, {"model.yml": model, "batch.yml": batch}, *files)

    assert (found.world, found.layout.tp, found.layout.dp, found.layout.zero) == (8, 2, 4, 1)
    assert (found.architecture.num_hidden_layers, found.global_batch) == (24, 32)


def test_a_foundry_file_may_have_the_length_in_its_model_alone(tmp_path):
    text = FOUNDRY.replace("\nmax_seq_len: ${variables.length}\n", "\n", 1)

    found = job(tmp_path, {"run.sh": "composer -n 4 train.py a.yaml\n", "a.yaml": text})

    assert (found.world, found.layout.dp, found.seq_len) == (4, 4, 2048)


def test_a_micro_batch_is_no_more_than_what_a_device_has(tmp_path):
    found = job(tmp_path, {"a.yaml": FOUNDRY}, gpus=64)

    assert (found.layout.dp, found.layout.mbs, found.global_batch) == (64, 4, 256)
    assert any("is more than the 4 of a device" in note for note in found.notes)


@pytest.mark.parametrize(
    ("kinds", "stack"),
    [
        ('"attention-config": [[["flash"], 24]],', ""),
        ('"attention-config": [[["global"], 24]],', "before-2023"),
        ('"te_mha": true,', ""),
        ("", "before-2023"),
    ],
)
def test_attention_of_neox_that_no_fused_kernel_computes_is_priced_by_a_stack_without_one(tmp_path, kinds, stack):
    found = job(tmp_path, {"small.yml": NEOX.replace('"precision"', f'{kinds} "precision"')}, gpus=8)

    assert found.stack == stack
    assert any("attention in kernels of its own steps" in text for text in found.assumed) is bool(stack)


@pytest.mark.parametrize("kind", ["mamba", "rwkv"])
def test_layers_of_neox_that_have_no_attention_are_refused(tmp_path, kind):
    file = NEOX.replace('"precision"', f'"attention-config": [[["{kind}", "flash"], 12]], "precision"')

    with pytest.raises(InputError, match=f"layers of {kind} are not read"):
        job(tmp_path, {"small.yml": file}, gpus=8)


@pytest.mark.parametrize(("tp", "vocabulary"), [(1, 50304), (2, 50432), (4, 50688)])
def test_the_vocabulary_of_neoxs_tokenizer_is_padded_as_its_ranks_cut_it(tmp_path, tp, vocabulary):
    file = NEOX.replace('"model-parallel-size": 2', f'"model-parallel-size": {tp}, "tokenizer_type": "HFTokenizer"')
    file = file.replace('"seq-length"', '"vocab-file": "data/20B_tokenizer.json", "seq-length"')

    found = job(tmp_path, {"small.yml": file}, gpus=8)

    assert found.architecture.vocab_size == vocabulary


@pytest.mark.parametrize(
    ("said", "size", "told"),
    [
        ("", 50432, "the 50257 of GPT2BPETokenizer (the default of GPT-NeoX), in whole rounds of 256"),
        ('"tokenizer_type": "GPT2BPETokenizer",', 50432, "the 50257 of GPT2BPETokenizer, in whole rounds of 256"),
        ('"vocab-file": "20B_tokenizer.json",', 50432, "the 50277 of GPT-NeoX's tokenizer, in whole rounds of 256"),
    ],
)
def test_a_vocabulary_that_no_neox_file_says_is_that_of_its_tokenizer_as_it_is_padded(tmp_path, said, size, told):
    found = job(tmp_path, {"small.yml": NEOX.replace('"num-layers"', f'{said} "num-layers"')}, gpus=8)

    assert found.architecture.vocab_size == size
    assert f"vocabulary of {size}: {told}" in found.assumed


def test_weights_and_states_of_neox_lie_on_the_host_by_the_older_names_too(tmp_path):
    old = '"zero_optimization": {"stage": 3, "cpu_offload": true, "cpu_offload_params": true}'
    text = NEOX.replace('"zero_optimization": {"stage": 1, "overlap_comm": True,}', old)
    found = job(tmp_path, {"small.yml": text.replace('"pipe-parallel-size": 2', '"pipe-parallel-size": 0')}, gpus=8)

    assert (found.layout.pp, found.layout.zero, found.layout.offload) == (1, 3, "parameters")
