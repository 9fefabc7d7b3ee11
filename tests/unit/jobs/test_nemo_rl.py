"""NeMo RL's YAML: both policies that it trains, files that lie over others, pairs of answers, what is refused."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

BASE = """sft: {max_num_steps: 10}
policy:
  model_name: meta-llama/Llama-3.1-8B
  train_global_batch_size: 64
  train_micro_batch_size: 2
  max_total_sequence_length: 2048
  precision: bfloat16
  dtensor_cfg: {enabled: true, tensor_parallel_size: 2, context_parallel_size: 1, activation_checkpointing: true}
  make_sequence_length_divisible_by: ${policy.dtensor_cfg.tensor_parallel_size}
  optimizer: {name: torch.optim.AdamW, kwargs: {lr: 1.0e-6}}
  megatron_cfg:
    enabled: false
    activation_checkpointing: false
    tensor_model_parallel_size: 1
    pipeline_model_parallel_size: 1
    pipeline_dtype: ${policy.precision}
    optimizer: {optimizer: adam, lr: 1.0e-6, use_distributed_optimizer: true}
    distributed_data_parallel_config: {grad_reduce_in_fp32: false, overlap_grad_reduce: true}
cluster: {gpus_per_node: 8, num_nodes: 1}
"""
ABOVE = """defaults: ../base.yaml
policy:
  dtensor_cfg: {enabled: false}
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 4, pipeline_model_parallel_size: 2, sequence_parallel: true}
cluster: {num_nodes: 2}
"""


def test_a_policy_under_dtensor_is_sharded_by_fsdp_over_weights_in_single_precision(tmp_path):
    found = job(tmp_path, {"base.yaml": BASE})

    assert (found.engine, found.world, found.weights, found.precision) == ("automodel", 8, "fp32", "bf16")
    assert (found.layout.tp, found.layout.dp, found.layout.zero, found.layout.recompute) == (2, 4, 3, "full")
    assert (found.layout.mbs, found.global_batch, found.seq_len) == (2, 64, 2048)
    assert not found.ignored


def test_a_policy_under_megatron_lies_over_the_file_that_its_defaults_name(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)

    found = job(tmp_path, {"recipes/above.yaml": ABOVE})

    assert (found.engine, found.world, found.half_sums) == ("bridge", 16, True)
    assert (found.layout.tp, found.layout.pp, found.layout.dp, found.layout.sp) == (4, 2, 2, 1)
    assert (found.layout.zero, found.layout.recompute, found.layout.mbs, found.global_batch) == (1, "none", 2, 64)
    assert not found.ignored


def test_recomputation_of_a_policy_under_megatron_is_full(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)
    above = ABOVE.replace("{enabled: true, ", "{enabled: true, activation_checkpointing: true, ")

    assert job(tmp_path, {"recipes/above.yaml": above}).layout.recompute == "full"


@pytest.mark.parametrize("start", ["uv run examples/run_sft.py", "uv run --extra mcore python run_sft.py"])
def test_words_of_the_command_lie_over_the_file_that_it_names(tmp_path, start):
    (tmp_path / "base.yaml").write_text(BASE)
    words = "cluster.num_nodes=2 policy.train_global_batch_size=128 ++policy.dtensor_cfg.tensor_parallel_size=4"

    found = job(tmp_path, {"run.sh": f"{start} --config base.yaml {words}\n"})

    assert (found.world, found.layout.tp, found.layout.dp, found.global_batch) == (16, 4, 4, 128)


@pytest.mark.parametrize(("kind", "copied"), [("dpo", True), ("rm", False)])
def test_pairs_of_answers_double_both_batches(tmp_path, kind, copied):
    found = job(tmp_path, {"a.yaml": BASE.replace("sft:", f"{kind}:")})

    assert (found.layout.mbs, found.global_batch) == (4, 128)
    assert any("frozen copy" in text for text in found.ignored) == copied


def test_a_batch_that_the_ranks_do_not_share_is_refused_by_its_own_name(tmp_path):
    with pytest.raises(InputError, match=r"policy\.train_global_batch_size 60 is not a multiple of"):
        job(tmp_path, {"a.yaml": BASE.replace("64", "60")})


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"above.yaml": ABOVE}, r"names base\.yaml, which is not here"),
        ({"a.yaml": BASE.replace("enabled: true", "enabled: false")}, "neither of policy.dtensor_cfg.enabled and"),
        ({"a.yaml": BASE.replace("enabled: false", "enabled: true")}, "both of policy.dtensor_cfg.enabled and"),
        ({"a.yaml": "defaults: b.yaml\npolicy: {megatron_cfg: {enabled: true}}\n"}, "algorithms sft, dpo, rm are read"),
        ({"a.yaml": "defaults: a.yaml\npolicy: {megatron_cfg: {enabled: true}}\n"}, "its defaults name each other"),
    ],
)
def test_what_no_policy_can_be_read_of_is_refused(tmp_path, files, told):
    (tmp_path / "b.yaml").write_text("grpo: {num_prompts_per_step: 8}\npolicy: {train_global_batch_size: 8}\n")

    with pytest.raises(InputError, match=told):
        job(tmp_path, files)
