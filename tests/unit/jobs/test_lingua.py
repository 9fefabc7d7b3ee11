"""Lingua's YAML: a batch and accumulation of each rank, a feed-forward rounded up, copies that shards leave."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

CONFIG = """
dump_dir: /scratch/out
name: own
steps: 900
grad_acc_steps: {steps}
optim: {{lr: 1e-3, warmup: 100}}
distributed: {{fsdp_type: {kind}, dp_shard: {shard}, tp_size: {tp}, model_dtype: bf16, compile: true}}
model: {{dim: 1024, n_layers: 12, n_heads: 16, n_kv_heads: 4{more}}}
data:
  root_dir: /scratch/data
  sources: {{web: 1.0}}
  batch_size: 3
  seq_len: 2048
  n_views: 2
  tokenizer: {{name: sp, path: {tokenizer}}}
eval: {{generator: {{max_tokens: 512}}}}
"""


def config(**changes):
    plain = {"steps": 4, "kind": "full_shard", "shard": 1, "tp": 1, "more": ", vocab_size: 32000", "tokenizer": "own"}
    return {"own.yaml": CONFIG.format(**plain | changes)}


def test_the_batch_is_counted_on_each_rank_and_each_accumulation(tmp_path):
    found = job(tmp_path, config(), gpus=16)

    assert (found.layout.dp, found.layout.mbs, found.global_batch, found.seq_len) == (16, 3, 3 * 4 * 16, 2048)
    assert (found.layout.zero, found.layout.recompute, found.precision) == (2, "none", "bf16")
    assert any("layers stay gathered after their forward pass" in text for text in found.assumed)


def test_the_feed_forward_is_two_thirds_of_four_widths_rounded_up(tmp_path):
    model = job(tmp_path, config(), gpus=8).architecture
    assert model is not None
    assert (model.intermediate_size, model.tied, model.num_key_value_heads) == (2816, False, 4)

    wider = job(tmp_path, config(more=", vocab_size: 100, ffn_dim_multiplier: 1.5, multiple_of: 100"), gpus=8)
    assert wider.architecture is not None
    assert wider.architecture.intermediate_size == 4100


def test_ranks_that_shards_leave_are_copies(tmp_path):
    found = job(tmp_path, config(shard=8), gpus=32)
    assert (found.layout.dp, found.layout.replicas) == (32, 4)

    with pytest.raises(InputError, match="12 GPUs do not divide by dp_shard 8 x tp_size 1"):
        job(tmp_path, config(shard=8), gpus=12)


def test_without_sharding_every_rank_has_all_states(tmp_path):
    assert job(tmp_path, config(kind="no_shard"), gpus=8).layout.zero == 0


def test_tensor_ranks_are_no_data_ranks(tmp_path):
    found = job(tmp_path, config(tp=2, kind="full_shard"), gpus=16)

    assert (found.layout.tp, found.layout.dp, found.global_batch) == (2, 8, 3 * 4 * 8)


def test_the_vocabulary_of_a_tokenizer_that_nobody_knows_is_asked_for(tmp_path):
    with pytest.raises(
        InputError, match=r"that of the tokenizer /srv/own\.model, which is not here.*model\.vocab_size"
    ):
        job(tmp_path, config(more="", tokenizer="/srv/own.model"), gpus=8)


def test_without_a_number_of_ranks_nothing_of_the_batch_is_guessed(tmp_path):
    found = job(tmp_path, config())

    assert (found.world, found.global_batch, found.layout.mbs) == (None, None, 3)


def test_a_model_of_another_of_its_programs_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"model\.state_dim is of no plain transformer"):
        job(tmp_path, config(more=", state_dim: 128, vocab_size: 100"), gpus=8)


def test_its_command_starts_it_with_words_over_the_file(tmp_path):
    run = "torchrun --nproc_per_node 8 -m apps.main.train config=own.yaml data.batch_size=5\n"

    found = job(tmp_path, {"run.sh": run} | config(), str(tmp_path / "run.sh"))

    assert (found.world, found.layout.mbs, found.global_batch) == (8, 5, 5 * 4 * 8)


def test_a_file_of_automodels_with_its_degrees_is_automodels_still(tmp_path):
    text = (
        "model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained, pretrained_model_name_or_path: "
        "meta-llama/Llama-3.2-1B}\ndistributed: {tp_size: 2, dp_size: 4}\ndataloader: {batch_size: 1}\n"
    )

    assert job(tmp_path, {"own.yaml": text}).engine == "automodel"
