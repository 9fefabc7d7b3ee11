"""OLMo's YAML: sizes and batches of its own names, a feed-forward in halves, and no file of LLM Foundry's."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

CONFIG = """
run_name: own
seed: 1
model:
  d_model: 1024
  n_heads: 8
  n_layers: 6
  mlp_ratio: 6
  rope: true
  include_bias: false
  weight_tying: false
  max_sequence_length: 1024
  vocab_size: 1000
  embedding_size: 1024
{more}
optimizer: {{name: adamw, learning_rate: 1e-4}}
data: {{paths: "${{path.glob:${{path.choose:${{oc.env:SCRATCH,none}}/own,/srv/own}}/*.npy}}", num_workers: 2}}
max_duration: 100ba
save_folder: "${{path.choose:${{oc.env:SCRATCH,none}}/out,/results}}/${{oc.env:SLURM_JOB_ID,${{run_name}}}}"
global_train_batch_size: 128
device_train_batch_size: auto
device_train_microbatch_size: 2
n_gpus: null
precision: amp_bf16
{fsdp}
"""
WHOLE = "fsdp: {sharding_strategy: FULL_SHARD, precision: mixed}\nactivation_checkpointing: whole_layer"


def config(more="  activation_type: swiglu", fsdp=WHOLE):
    return {"own.yaml": CONFIG.format(more=more, fsdp=fsdp)}


def test_batch_length_and_states_are_olmos_own(tmp_path):
    found = job(tmp_path, config(), gpus=16)

    layout = found.layout
    assert (layout.dp, layout.mbs, found.global_batch, found.seq_len) == (16, 2, 128, 1024)
    assert (layout.zero, layout.recompute, found.precision) == (3, "full", "bf16")
    assert any("OLMo shards" in text for text in found.notes)


def test_a_gated_feed_forward_is_cut_in_two_halves(tmp_path):
    gated = job(tmp_path, config(), gpus=8).architecture
    plain = job(tmp_path, config("  activation_type: gelu"), gpus=8).architecture

    assert gated is not None
    assert plain is not None
    assert (gated.intermediate_size, plain.intermediate_size) == (3072, 6144)
    assert abs(gated.parameters - 6 * 13 * 1024**2 - 2 * 1024**2) < 100_000  # norms beside the matrices
    assert abs(plain.parameters - 6 * 16 * 1024**2 - 2 * 1024**2) < 100_000


def test_the_kind_of_feed_forward_that_its_default_has_changed_is_asked_for(tmp_path):
    with pytest.raises(InputError, match=r"activation_type is not set.*--job model\.activation_type=swiglu"):
        job(tmp_path, config(""), gpus=8)

    files = config("")
    (tmp_path / "own.yaml").write_text(files["own.yaml"])
    found = job(tmp_path, files, str(tmp_path / "own.yaml"), "model.activation_type=gelu", gpus=8)
    assert found.architecture is not None


def test_the_section_of_its_first_releases_is_read_too(tmp_path):
    old = "fsdp_config: {sharding_strategy: SHARD_GRAD_OP, activation_checkpointing: true, verbose: false}"

    layout = job(tmp_path, config(fsdp=old), gpus=8).layout

    assert (layout.zero, layout.recompute) == (2, "full")


def test_gradients_that_are_reduced_in_half_precision_are_said(tmp_path):
    pure = "fsdp: {sharding_strategy: FULL_SHARD, precision: pure}"

    assert any("fsdp.precision = pure" in text for text in job(tmp_path, config(fsdp=pure), gpus=8).ignored)


def test_a_checkpoint_of_some_layers_is_refused_by_its_name(tmp_path):
    some = "fsdp: {sharding_strategy: FULL_SHARD}\nactivation_checkpointing: one_in_three"

    with pytest.raises(InputError, match="activation_checkpointing one_in_three: expected one of whole_layer"):
        job(tmp_path, config(fsdp=some), gpus=8)


def test_words_of_its_command_count_over_the_file(tmp_path):
    words = "--device_train_microbatch_size=4 --model.n_layers=3 --global_train_batch_size=64"
    run = f"torchrun --nnodes=2 --nproc_per_node=8 scripts/train.py own.yaml --run_name=other {words}\n"

    found = job(tmp_path, {"run.sh": run} | config(), str(tmp_path / "run.sh"))

    assert (found.world, found.layout.mbs, found.global_batch) == (16, 4, 64)
    assert found.architecture is not None
    assert found.architecture.num_hidden_layers == 3


def test_a_file_that_its_command_names_is_asked_for(tmp_path):
    run = "torchrun --nproc_per_node=8 scripts/train.py configs/other.yaml\n"

    with pytest.raises(InputError, match=r"other\.yaml, which is not here"):
        job(tmp_path, {"run.sh": run} | config())


def test_a_length_that_the_file_leaves_to_its_default_is_asked_for(tmp_path):
    text = config()["own.yaml"].replace("  max_sequence_length: 1024\n", "")

    assert job(tmp_path, {"own.yaml": text}, gpus=8).seq_len is None
