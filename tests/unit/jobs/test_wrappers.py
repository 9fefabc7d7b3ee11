"""Programs that wrap another engine's arguments, and recipes whose trainer is made elsewhere."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from tests.unit.jobs.test_strangers import job

SWIFT = (
    "megatron sft --load Qwen2.5-7B-mcore --tensor_model_parallel_size 2 --max_length 4096 --sequence_parallel true\n"
)
PRIMUS = """
modules:
  pre_trainer:
    framework: {framework}
    model: ${{PRIMUS_MODEL:llama3.1_8B}}.yaml
    overrides:
      {overrides}
"""


def test_swifts_defaults_stand_where_megatron_has_others(tmp_path):
    found = job(tmp_path, {"run.sh": f"NPROC_PER_NODE=8 {SWIFT}"})

    assert (found.engine, found.world, found.model_name) == ("megatron", 8, "Qwen2.5-7B")
    assert (found.layout.zero, found.layout.recompute, found.layout.sp) == (1, "selective", 1)
    assert (found.global_batch, found.seq_len, found.precision) == (16, 4096, "bf16")
    assert any("global-batch-size 16" in text and "ms-swift" in text for text in found.assumed)


def test_defaults_of_swift_that_are_all_given_are_not_named(tmp_path):
    given = "--micro_batch_size 1 --global_batch_size 16 --recompute_granularity selective --bf16 true"
    given += " --use_distributed_optimizer true --expert_tensor_parallel_size 1 --moe_token_dispatcher_type alltoall"
    found = job(tmp_path, {"run.sh": f"NPROC_PER_NODE=8 {SWIFT.strip()} {given}\n"})

    assert not any("ms-swift's defaults" in text for text in found.assumed)


@pytest.mark.parametrize(("word", "precision"), [("True", "fp16"), ("1", "fp16"), ("False", "bf16")])
def test_swifts_bf16_gives_way_to_fp16_however_it_is_written(tmp_path, word, precision):
    assert job(tmp_path, {"run.sh": f"NPROC_PER_NODE=8 {SWIFT.strip()} --fp16 {word}\n"}).precision == precision


def test_several_words_behind_swifts_fp16_are_refused(tmp_path):
    with pytest.raises(InputError, match="fp16: expected true or false"):
        job(tmp_path, {"run.sh": f"NPROC_PER_NODE=8 {SWIFT.strip()} --fp16 true false\n"})


def test_without_counts_in_its_environment_swift_asks_for_the_ranks(tmp_path):
    assert "--gpus" in job(tmp_path, {"run.sh": SWIFT}).asked


def test_primus_is_read_as_the_engine_it_wraps_with_its_variables(tmp_path):
    text = PRIMUS.format(framework="megatron", overrides="tensor_model_parallel_size: ${PRIMUS_TP:2}")
    found = job(tmp_path, {"a.yaml": text}, gpus=8)
    (tmp_path / "b.yaml").write_text(text)
    other = read_job([str(tmp_path / "b.yaml"), "PRIMUS_TP=4"], JobOptions(gpus=8))

    assert (found.engine, found.layout.tp, found.global_batch, found.precision) == ("megatron", 2, 128, "bf16")
    assert found.architecture.num_hidden_layers == 32
    assert "PRIMUS_TP=2 (its default in a.yaml)" in found.assumed
    assert other.layout.tp == 4


def test_a_model_of_primus_whose_base_is_not_here_is_taken_by_its_name_and_not_in_part(tmp_path):
    text = PRIMUS.format(framework="megatron", overrides="{micro_batch_size: 1}")
    model = "bases: [llama_base.yaml]\nnum_layers: 2\nhidden_size: 4096\nnum_attention_heads: 32\n"

    found = job(tmp_path, {"a.yaml": text, "llama3.1_8B.yaml": model}, gpus=8)

    assert found.architecture.num_hidden_layers == 32
    assert any("llama_base.yaml, which is not here" in text for text in found.notes)


def test_a_base_of_primus_that_is_here_is_not_said_to_be_missing(tmp_path):
    files = {
        "a.yaml": PRIMUS.format(framework="megatron", overrides="{micro_batch_size: 1}"),
        "llama3.1_8B.yaml": "bases: [own_base.yaml]\nnum_layers: 2\n",
        "own_base.yaml": "bases: [llama_base.yaml]\nhidden_size: 4096\nnum_attention_heads: 32\n",
    }
    found = job(tmp_path, files, gpus=8)

    assert any("own_base.yaml: builds on llama_base.yaml, which is not here" in text for text in found.notes)
    assert not any("own_base.yaml, which is not here" in text for text in found.notes)


@pytest.mark.parametrize("layers", [None, 2])
def test_a_file_of_primus_may_have_the_name_of_its_model(tmp_path, layers):
    files = {"llama3.1_8B.yaml": PRIMUS.format(framework="megatron", overrides="{micro_batch_size: 4}")}
    if layers:
        model = f"num_layers: {layers}\nhidden_size: 4096\nnum_attention_heads: 32\n"
        files["models/llama3.1_8B.yaml"] = model

    found = job(tmp_path, files, gpus=8)

    assert (found.architecture.num_hidden_layers, found.layout.mbs) == (layers or 32, 4)


def test_a_variable_of_primus_that_is_given_empty_is_empty_and_not_its_default(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(PRIMUS.format(framework="megatron", overrides="tensor_model_parallel_size: 2${PRIMUS_MORE:1}"))

    found = read_job([str(file), "PRIMUS_MORE="], JobOptions(gpus=8))

    assert found.layout.tp == 2
    assert not any("PRIMUS_MORE" in text for text in found.assumed)


def test_a_framework_of_primus_that_is_not_read_is_named(tmp_path):
    with pytest.raises(InputError, match="framework maxtext: expected megatron or torchtitan"):
        job(tmp_path, {"a.yaml": PRIMUS.format(framework="maxtext", overrides="{a: 1}")})


def test_a_recipe_that_takes_its_degrees_from_a_function_that_is_not_here_is_refused(tmp_path):
    recipe = (
        "import nemo_run as run\nfrom nemo.collections.llm.recipes.llama import make_trainer, model\n\n\n"
        "def pretrain_recipe():\n    return run.Partial(fn, model=model(), trainer=make_trainer(num_nodes=2), "
        "data=run.Config(Data, seq_length=4096, global_batch_size=64, micro_batch_size=1))\n"
    )
    file = tmp_path / "llama3_8b.py"
    file.write_text(recipe)

    with pytest.raises(InputError, match="takes its degrees from make_trainer, which is not here"):
        read_job([f"{file}:pretrain_recipe"])


def test_a_file_that_another_sources_counts_where_it_is_sourced(tmp_path):
    yaml = (
        "trainer: {devices: 8, num_nodes: 1, precision: bf16}\nmodel:\n"
        "  micro_batch_size: ${oc.decode:${oc.env:MBS}}\n  global_batch_size: 24\n  tensor_model_parallel_size: 1\n"
    )
    files = {"a.yaml": yaml, "config_a.sh": "source config_common.sh\nexport MBS=3\n", "config_common.sh": "MBS=1\n"}

    assert job(tmp_path, files).layout.mbs == 3


def test_unknown_words_behind_a_switch_stay_unknown_through_eval(tmp_path):
    flags = "--micro-batch-size 1 --bf16 $A_ARGS $B_ARGS"
    script = f'cmd="torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py {flags}"\neval $cmd\n'

    found = job(tmp_path, {"run.sh": script})

    assert found.precision == "bf16"
    assert {"$A_ARGS behind bf16 (further flags) is known only where the job runs"} <= set(found.notes)
    assert not any("\ue000" in text for text in (*found.notes, *found.assumed, *found.ignored))


def test_experts_that_axolotl_splits_are_refused(tmp_path):
    text = "base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 2048\nmicro_batch_size: 1\nexpert_parallel_size: 2\n"

    with pytest.raises(InputError, match="expert_parallel_size 2: axolotl's split of experts is not read"):
        job(tmp_path, {"a.yaml": text}, gpus=4)


def test_the_name_that_a_model_of_swift_calls_itself_is_not_the_model(tmp_path):
    words = "megatron sft --model Qwen/Qwen3-8B --model_author us --model_name helper --max_length 2048\n"

    assert job(tmp_path, {"run.sh": f"NPROC_PER_NODE=8 {words}"}).model_name == "Qwen/Qwen3-8B"


def test_a_way_of_swift_to_train_some_weights_that_is_not_known_is_refused(tmp_path):
    with pytest.raises(InputError, match="tuner-type vera: expected full or lora"):
        job(tmp_path, {"run.sh": f"NPROC_PER_NODE=8 {SWIFT.strip()} --tuner_type vera\n"})


OF_TESTS = """ENV_VARS: {CUDA_DEVICE_MAX_CONNECTIONS: 1}
MODEL_ARGS: {--num-layers: 24, --hidden-size: 2048, --num-attention-heads: 16, --seq-length: 1024, --vocab-size: 32000,
  --max-position-embeddings: 1024, --micro-batch-size: 2, --global-batch-size: 32, --tensor-model-parallel-size: 2,
  --pipeline-model-parallel-size: 2, --use-distributed-optimizer: true, --bf16: true}
"""


def test_flags_that_megatrons_tests_keep_in_a_yaml_are_its_flags(tmp_path):
    found = job(tmp_path, {"model_config.yaml": OF_TESTS}, gpus=8)

    assert (found.engine, found.layout.tp, found.layout.pp, found.layout.dp, found.layout.zero) == (
        "megatron",
        2,
        2,
        2,
        1,
    )
    assert (found.global_batch, found.seq_len, found.layout.mbs, found.precision) == (32, 1024, 2, "bf16")


WRAPPED = PRIMUS.format(framework="megatron", overrides="tensor_model_parallel_size: 2")


@pytest.mark.parametrize("before", ["export GPUS_PER_NODE=4 NNODES=2\n", "GPUS_PER_NODE=4 NNODES=2 "])
def test_a_script_that_is_not_here_starts_the_ranks_that_its_variables_say(tmp_path, before):
    found = job(tmp_path, {"run.sh": f"{before}EXP=a.yaml bash examples/run_pretrain.sh\n", "a.yaml": WRAPPED})

    assert (found.world, found.layout.dp, found.gpus_per_node) == (8, 4, 4)
    assert any(text.startswith("run_pretrain.sh, which is not here, starts what GPUS_PER") for text in found.assumed)


@pytest.mark.parametrize("before", ["", "GPUS_PER_NODE=4 NNODES=$MINE ", "GPUS_PER_NODE=4\n"])
def test_ranks_that_a_script_that_is_not_here_is_not_told_stay_open(tmp_path, before):
    found = job(tmp_path, {"run.sh": f"{before}bash examples/run_pretrain.sh\n", "a.yaml": WRAPPED})

    assert found.world is None


def test_nodes_that_depend_on_a_variable_that_nothing_sets_are_not_one_node(tmp_path):
    found = job(tmp_path, {"run.sh": f"NNODES=$MINE NPROC_PER_NODE=8 {SWIFT}"})

    assert found.world is None
    assert any("NNODES ($MINE)" in text for text in found.notes)
