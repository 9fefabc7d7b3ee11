"""Megatron's settings that its flags do not say: of a YAML of arguments, a model's name, a folder of weights."""

from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.jobs.job import Job
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job

LAUNCH = """torchrun --nproc_per_node 8 {program} --tensor-model-parallel-size 2 --micro-batch-size 1 \\
  --global-batch-size 16 --seq-length 2048 {more}
"""
SIZES = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 --swiglu"


def job(folder: Path, text: str, *, gpus: int | None = None, model: str | None = None, **files: str) -> Job:
    """Return the job of a script with this text, beside files with these names and texts."""
    (folder / "run.sh").write_text(text)
    for name, inside in files.items():
        (folder / f"{name}.yaml").write_text(inside)
    return read_job([str(folder / "run.sh")], JobOptions(gpus=gpus, model=model))


def test_first_and_last_stages_are_cut_from_the_layers_of_a_model_that_is_named(tmp_path):
    more = (
        "--tokenizer-model /hub/Qwen3-235B-A22B --pipeline-model-parallel-size 8 --bf16 "
        "--decoder-first-pipeline-num-layers 11 --decoder-last-pipeline-num-layers 11"
    )

    found = job(tmp_path, LAUNCH.format(program="tune.py", more=more), gpus=64)

    assert found.stages == (11, 12, 12, 12, 12, 12, 12, 11)


def test_a_yaml_of_arguments_that_a_flag_names_is_read_from_beside_the_script(tmp_path):
    more = "--my-yaml-cfg conf/sizes.yaml"
    sizes = "num_layers: 16\nhidden_size: 2048\nnum_attention_heads: 16\nvocab_size: 32000\nbf16: true\n"

    found = job(tmp_path, LAUNCH.format(program="tune.py", more=more), sizes=sizes)

    assert found.precision == "bf16"
    assert found.architecture is not None
    assert found.architecture.num_hidden_layers == 16


def test_an_activation_of_a_yaml_of_arguments_makes_a_gated_network(tmp_path):
    sizes = "num_layers: 16\nhidden_size: 2048\nnum_attention_heads: 16\nvocab_size: 32000\nbf16: true\n"

    plain, gated = (
        job(tmp_path, LAUNCH.format(program="tune.py", more="--yaml-cfg sizes.yaml"), sizes=f"{sizes}{more}")
        for more in ("activation_func: gelu\n", "activation_func: swiglu\ngated_linear_unit: false\n")
    )

    assert (plain.architecture.gated, plain.architecture.intermediate_size) == (False, 8192)
    assert (gated.architecture.gated, gated.architecture.intermediate_size) == (True, 5440)


def test_the_precision_is_no_guess_where_a_yaml_of_arguments_is_not_here(tmp_path):
    more = f"{SIZES} --vocab-size 32000 --my-yaml-cfg conf/precision.yaml"

    with pytest.raises(InputError, match=r"names precision.yaml, which is not here: give it too"):
        job(tmp_path, LAUNCH.format(program="tune.py", more=more))
    told = job(tmp_path, LAUNCH.format(program="tune.py", more=f"{more} --bf16"))

    assert told.precision == "bf16"


def test_a_vocabulary_that_is_a_guess_does_not_make_a_published_model(tmp_path):
    sizes = f"{SIZES} --group-query-attention --num-query-groups 8 --normalization RMSNorm --disable-bias-linear"
    plain = f"{sizes} --untie-embeddings-and-output-weights --bf16"

    guessed = job(
        tmp_path,
        LAUNCH.format(program="pretrain_gpt.py", more=f"{plain} --tokenizer-type Llama2Tokenizer --tokenizer-model t"),
    )
    said = job(tmp_path, LAUNCH.format(program="pretrain_gpt.py", more=f"{plain} --vocab-size 32000"))

    assert guessed.architecture is not None
    assert (guessed.architecture.vocab_size, guessed.architecture.name) == (32000, "")
    assert said.architecture is not None
    assert said.architecture.name == "mistral-7b"


def test_a_model_that_is_built_from_a_folder_of_weights_is_not_priced_by_sizes_beside_it(tmp_path):
    partial = "--num-layers 36 --hidden-size 4096 --num-attention-heads 32 --bf16 --use-torch-fsdp2"
    script = LAUNCH.format(program="train_sharded.py", more=f"{partial} --init-from-hf-path {{path}}")

    open_path = job(tmp_path, script.format(path="your model folder"))
    named = job(tmp_path, script.format(path="/hub/Qwen3-8B --loss-compute-mode chunk"))

    assert open_path.architecture is None
    assert "--model" in open_path.asked
    assert named.architecture is not None
    assert named.architecture.intermediate_size == 12288
    assert named.loss == "chunked"


def test_a_batch_that_may_be_among_words_of_a_file_that_is_not_here_says_so(tmp_path):
    text = "ARGS=$(yq '.MODEL_ARGS' model.yaml)\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 $ARGS\n"

    with pytest.raises(InputError, match=r"micro-batch-size: missing \(words of the command come of \$\(yq"):
        job(tmp_path, text)


# --- MindSpeed's settings beside Megatron's

NPUS = """msrun --worker_num 32 --local_worker_num 16 --join=True posttrain_gpt.py {sizes} --bf16 --vocab-size 64000 \\
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 \\
  --micro-batch-size 1 --global-batch-size 16 --seq-length 2048 --use-distributed-optimizer {more}
"""


def test_layers_that_do_nothing_are_no_layers_and_their_stages_are_shorter(tmp_path):
    whole = job(tmp_path, NPUS.format(sizes=SIZES, more=""))
    found = job(tmp_path, NPUS.format(sizes=SIZES, more="--noop-layers 0,30,31"))

    assert found.architecture.num_hidden_layers == 29
    assert found.stages == (3, 4, 4, 4, 4, 4, 4, 2)
    assert found.architecture.parameters < whole.architecture.parameters
    with pytest.raises(InputError, match="noop-layers 32: expected places of some of 32 layers"):
        job(tmp_path, NPUS.format(sizes=SIZES, more="--noop-layers 32"))


def test_ranks_of_msrun_are_counted_by_its_flags(tmp_path):
    found = job(tmp_path, NPUS.format(sizes=SIZES, more=""))

    assert (found.world, found.gpus_per_node, found.layout.dp) == (32, 16, 4)


def test_whole_experts_on_ranks_of_tensor_parallelism_multiply_their_degree(tmp_path):
    experts = "--sequence-parallel --num-experts 16 --moe-router-topk 2 --expert-model-parallel-size 4"

    cut = job(tmp_path, NPUS.format(sizes=SIZES, more=experts))
    apart = job(tmp_path, NPUS.format(sizes=SIZES, more=f"{experts} --moe-tp-extend-ep"))

    assert (cut.layout.ep, cut.layout.etp) == (4, 2)
    assert (apart.layout.ep, apart.layout.etp) == (8, 1)


def test_layers_before_those_with_experts_are_dense_ones(tmp_path):
    experts = "--sequence-parallel --num-experts 16 --moe-router-topk 2 --moe-intermediate-size 1024"

    none, first, second = (
        job(tmp_path, NPUS.format(sizes=SIZES, more=f"{experts} {more}")).architecture
        for more in ("", "--first-k-dense-replace 2", "--first-k-dense-replace 2 --moe-layer-freq 2")
    )

    assert (none.dense_layers, first.dense_layers, first.expert_size) == (0, 2, 1024)
    assert second.dense_layers == 2 + 15  # of the others each second one


def test_attention_under_mindspeed_s_name_is_latent(tmp_path):
    more = "--multi-head-latent-attention --kv-lora-rank 512"

    assert job(tmp_path, NPUS.format(sizes=SIZES, more=more)).architecture.kv_rank == 512


def test_states_that_are_swapped_lie_on_the_host(tmp_path):
    found = job(tmp_path, NPUS.format(sizes=SIZES, more="--swap-optimizer"))

    assert found.layout.offload == "optimizer"
    assert any(text.startswith("swap-optimizer:") for text in found.ignored)
