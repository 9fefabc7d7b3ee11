"""nanotron's YAML: what it says in words of its own, and how its layers become stages."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.engines.nanotron import stages_by_cost
from tests.unit.jobs.test_strangers import job

SIZES = """model:
  dtype: bfloat16
  init_method: {std: 0.02}
  model_config:
    is_llama_config: true
    hidden_size: 4096
    intermediate_size: 14336
    num_hidden_layers: 32
    num_attention_heads: 32
    num_key_value_heads: 8
    vocab_size: 128256
"""
REST = """optimizer:
  accumulate_grad_in_fp32: true
  zero_stage: 1
  optimizer_factory: {name: adamW, adam_beta1: 0.9}
parallelism: {dp: 4, pp: 2, tp: 2, pp_engine: 1f1b, tp_mode: REDUCE_SCATTER, recompute_layer: true}
tokens: {batch_accumulation_per_replica: 3, micro_batch_size: 2, sequence_length: 2048, train_steps: 10}
"""
YAML = SIZES + REST


def test_degrees_batch_and_states_are_nanotrons_own(tmp_path):
    found = job(tmp_path, {"own.yaml": YAML})

    layout = found.layout
    assert (found.world, layout.dp, layout.tp, layout.pp, layout.sp) == (16, 4, 2, 2, 1)
    assert (layout.mbs, found.global_batch, found.seq_len, found.precision) == (2, 24, 2048, "bf16")
    assert (layout.zero, layout.recompute, layout.schedule, found.half_sums) == (1, "full", "1f1b", False)
    assert found.architecture is not None
    assert found.architecture.name == "llama3-8b"
    assert not found.ignored


def test_a_stage_ends_with_the_layer_that_passes_its_share_of_the_multiplications(tmp_path):
    # a layer multiplies 4 x 4096^2 + 3 x 14336 x 4096 = 243.3 million times, the output 525.3 million: as two layers
    assert job(tmp_path, {"own.yaml": YAML}).stages == (18, 14)
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 14336, "num_hidden_layers": 32}
    assert stages_by_cost({**sizes, "vocab_size": 128256}, 4) == (9, 9, 8, 6)
    assert stages_by_cost({**sizes, "vocab_size": 1}, 4) == (9, 8, 8, 7)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pp_engine: 1f1b, ", "", {"schedule": "gpipe"}),
        ("tp_mode: REDUCE_SCATTER, ", "", {"sp": 0}),
        (", recompute_layer: true", "", {"recompute": "none"}),
        ("zero_stage: 1", "zero_stage: 0", {"zero": 0}),
        ("dp: 4", "dp: 2, context_parallel_size: 2", {"dp": 2, "cp": 2}),
    ],
)
def test_what_the_file_leaves_out_is_nanotrons_default(tmp_path, old, new, said):
    layout = job(tmp_path, {"own.yaml": YAML.replace(old, new)}).layout

    assert {key: getattr(layout, key) for key in said} == said


def test_a_script_finds_the_yaml_that_it_names_and_has_to_start_as_many_ranks(tmp_path):
    (tmp_path / "own.yaml").write_text(YAML)
    start = "torchrun --nnodes 2 --nproc_per_node %d run_train.py --config-file own.yaml\n"

    assert job(tmp_path, {"go.sh": start % 8}, str(tmp_path / "go.sh")).world == 16
    with pytest.raises(InputError, match="do not multiply to the ranks"):
        job(tmp_path, {"go.sh": start % 4}, str(tmp_path / "go.sh"))


def test_a_program_that_reads_the_yaml_before_the_training_is_no_training(tmp_path):
    (tmp_path / "own.yaml").write_text(YAML)
    words = (
        "python prepare.py --config-file own.yaml\ntorchrun --nproc_per_node 16 run_train.py --config-file own.yaml\n"
    )

    assert job(tmp_path, {"go.sh": words}, str(tmp_path / "go.sh")).world == 16
    with pytest.raises(InputError, match="starts prepare.py, no training of an engine that is known"):
        job(tmp_path, {"data.sh": words.partition("\n")[0]}, str(tmp_path / "data.sh"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("vocab_size: 128256", "vocab_size: 128256\n    moe_config: {num_experts: 8}", "experts of nanotron"),
        ("is_llama_config", "is_starcoder2_config", "expected a model with is_llama_config"),
        ("zero_stage: 1", "zero_stage: 3", "nanotron has 0 and 1"),
        ("num_hidden_layers: 32", "num_hidden_layers: 1", "leaves a stage without one"),
    ],
)
def test_what_nanotron_has_and_is_not_read_is_refused(tmp_path, old, new, told):
    with pytest.raises(InputError, match=told):
        job(tmp_path, {"own.yaml": YAML.replace(old, new)})


def test_a_file_that_names_no_family_is_of_the_first_one_and_that_is_said(tmp_path):
    found = job(tmp_path, {"own.yaml": YAML.replace("    is_llama_config: true\n", "")})

    assert any("no is_llama_config" in text for text in found.assumed)
    with pytest.raises(InputError, match="expected a model with is_llama_config"):
        job(tmp_path, {"own.yaml": YAML.replace("is_llama_config", "is_starcoder2_config")})


def test_sums_that_the_file_does_not_say_are_wide_and_one_stage_has_no_schedule(tmp_path):
    text = YAML.replace("  accumulate_grad_in_fp32: true\n", "").replace("pp: 2, ", "").replace("pp_engine: 1f1b, ", "")
    found = job(tmp_path, {"own.yaml": text})

    assert not found.half_sums
    assert any("accumulate_grad_in_fp32" in text for text in found.assumed)
    assert not any("schedule" in note for note in found.notes)
