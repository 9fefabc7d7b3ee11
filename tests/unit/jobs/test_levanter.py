"""Levanter's YAML: its two axes, its batch, its precisions, its models and what of it is refused."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

OWN = """data: {tokenizer: meta-llama/Llama-2-7b-hf, cache_dir: "gs://own/cache"}
model:
  {type: llama, seq_len: 4096, hidden_dim: 2048, intermediate_dim: 5632, num_layers: 24, num_heads: 16, num_kv_heads: 4}
trainer:
  mp: p=f32,c=bfloat16
  train_batch_size: 256
  per_device_parallelism: 4
  model_axis_size: 2
  tensor_parallel_axes: [mlp, heads]
  fsdp_axis: embed
  num_train_steps: 100
optimizer: {learning_rate: 1.0e-3, weight_decay: 0.1}
"""
START = "srun -N 2 --ntasks-per-node 8 python -m levanter.main.train_lm --config_path own.yaml"


def test_the_model_axis_is_tensor_parallelism_and_the_data_axis_is_sharded(tmp_path):
    found = job(tmp_path, {"own.yaml": OWN}, gpus=16)

    assert (found.engine, found.layout.tp, found.layout.dp, found.layout.zero) == ("maxtext", 2, 8, 3)
    assert (found.layout.mbs, found.global_batch, found.seq_len) == (4, 256, 4096)
    assert (found.precision, found.weights, found.layout.recompute) == ("bf16", "", "full")
    assert found.architecture.num_hidden_layers == 24
    assert found.architecture.vocab_size == 32000
    assert not found.ignored


def test_flags_of_the_command_lie_over_the_file_that_it_names(tmp_path):
    (tmp_path / "own.yaml").write_text(OWN)

    found = job(tmp_path, {"run.sh": f"{START} --trainer.train_batch_size 512 --model.seq_len 2048\n"})

    assert (found.world, found.layout.dp, found.global_batch, found.seq_len) == (16, 8, 512, 2048)


def test_without_a_number_of_its_own_each_device_takes_its_whole_share_at_once(tmp_path):
    found = job(tmp_path, {"own.yaml": OWN.replace("  per_device_parallelism: 4\n", "")}, gpus=16)

    assert found.layout.mbs == 256 // 8
    assert any("32 sequences of each device at once" in text for text in found.assumed)


@pytest.mark.parametrize(
    ("policy", "computed", "held"),
    [
        ("p=f32,c=bf16", "bf16", ""),
        ("bfloat16", "bf16", "bf16"),
        ("params=float32,compute=half", "fp16", ""),
        ("f32", "fp32", ""),
    ],
)
def test_a_policy_says_the_types_of_products_and_of_weights(tmp_path, policy, computed, held):
    found = job(tmp_path, {"own.yaml": OWN.replace("p=f32,c=bfloat16", policy)}, gpus=16)

    assert (found.precision, found.weights) == (computed, held)


def test_a_model_of_hugging_face_counts_by_its_name_and_asks_for_the_sequence(tmp_path):
    text = OWN.replace("data:", "initialize_from_hf: Qwen/Qwen3-8B\nuse_hf_model_config: true\ndata:")

    found = job(tmp_path, {"own.yaml": text}, gpus=16)

    assert (found.model_name, found.architecture.num_hidden_layers) == ("Qwen/Qwen3-8B", 36)
    assert found.asked == ("--seq-len",)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("  tensor_parallel_axes: [mlp, heads]\n", "", "model_axis_size 2: no tensor_parallel_axes are cut over it"),
        ("  model_axis_size: 2\n", "  mesh: {axes: {data: -1, model: 2}}\n", "a mesh of named axes is not read"),
        ("train_batch_size: 256", "train_batch_size: 250", r"train_batch_size 250 is not a multiple of"),
        ("p=f32,c=bfloat16", "p=f32,c=int8", "expected a policy such as"),
    ],
)
def test_what_levanter_or_the_reader_does_not_take_is_refused(tmp_path, old, new, told):
    with pytest.raises(InputError, match=told):
        job(tmp_path, {"own.yaml": OWN.replace(old, new)}, gpus=16)


def test_a_program_of_levanters_that_does_not_train_is_refused(tmp_path):
    (tmp_path / "own.yaml").write_text(OWN)

    with pytest.raises(InputError, match=r"levanter\.main\.eval_lm of Levanter is not read"):
        job(tmp_path, {"run.sh": f"{START}\n".replace("train_lm", "eval_lm")})


def test_a_tokenizer_at_the_top_says_the_vocabulary_too(tmp_path):
    text = OWN.replace('data: {tokenizer: meta-llama/Llama-2-7b-hf, cache_dir: "gs://own/cache"}', "tokenizer: gpt2")

    assert job(tmp_path, {"own.yaml": text}, gpus=16).architecture.vocab_size == 50257


def test_a_model_with_gates_is_not_taken_for_a_published_one_without(tmp_path):
    text = (
        OWN.replace("tokenizer: meta-llama/Llama-2-7b-hf, ", "")
        .replace("5632", "8192")
        .replace("heads: 4", "heads: 16")
    )

    found = job(tmp_path, {"own.yaml": text}, gpus=16)  # layers, width, heads and network's width are pythia-1.4b's

    assert "pythia" not in found.architecture.name
    assert not any("pythia" in told for told in found.assumed)
    assert any("vocabulary of 50257: the files do not say it" in told for told in found.assumed)


def test_a_length_that_the_configuration_of_a_known_model_decides_is_told_beside_the_question(tmp_path):
    of_hf = "model: {type: llama}\nuse_hf_model_config: true\ninitialize_from_hf: %s\n"
    trainer = OWN[OWN.index("trainer:") :]

    known = job(tmp_path, {"own.yaml": of_hf % "meta-llama/Llama-2-13b-hf" + trainer}, gpus=16)
    other = job(tmp_path, {"own.yaml": of_hf % "us/our-model" + trainer}, gpus=16)

    assert any("config.json has positions: 4096 of the published one" in note for note in known.notes)
    assert any(note.endswith("config.json has positions") for note in other.notes)


def test_what_a_file_includes_and_defaults_of_its_models_are_told(tmp_path):
    start = OWN.index("model:")
    found = job(tmp_path, {"own.yaml": "data: !include texts/own.yaml\n" + OWN[start:]}, gpus=16)

    assert any(told.startswith("data: texts/own.yaml, which it includes, is not here") for told in found.notes)
    assert "gradient_checkpointing true (the default of Levanter's models)" in found.assumed
    assert not any("gradient_checkpointing" in told for told in job(tmp_path, {"b.yaml": AGAIN}, gpus=16).assumed)


AGAIN = OWN.replace("type: llama", "type: llama, gradient_checkpointing: true")
