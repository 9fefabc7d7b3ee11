"""The forms in which people keep their configurations, each in a few lines."""

import msgspec
import pytest

from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job

LLAMA = (
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
    "--num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --vocab-size 128256 --seq-length 8192 --bf16 "
)
BATCH = "--micro-batch-size 1 --global-batch-size 128 "
TENSORS = "--tensor-model-parallel-size 2 --sequence-parallel "
ON_16 = "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py "
REGISTRY = """
from torchtitan.models.llama3 import model_registry

def base() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=2, seq_len=8192),
        parallelism=ParallelismConfig(data_parallel_shard_degree=8, tensor_parallel_degree=2),
        activation_checkpoint=ActivationCheckpointConfig(mode="full"),
    )

def longer() -> Trainer.Config:
    config = base()
    config.training.seq_len = 4 * 8192
    config.parallelism.context_parallel_degree = 4
    return config
"""
BRIDGE = """
from megatron.bridge import AutoBridge
LONG: int = 16384

def llama3_8b_16k_pretrain_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_megatron_provider(load_weights=False)
    cfg.dataset.seq_length = LONG
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 2
    cfg.model.virtual_pipeline_model_parallel_size = None
    cfg.model.context_parallel_size = 2
    cfg.model.sequence_parallel = True
    cfg.model.seq_length = LONG
    cfg.model.recompute_granularity = None
    cfg.train.global_batch_size = 512
    cfg.train.micro_batch_size = 1
    cfg.ddp.use_distributed_optimizer = True
    return cfg
"""
PRESETS = """
from utils.utils import WorkloadBaseConfig
BASE_LLAMA3_70B_CONFIG = WorkloadBaseConfig(num_gpus=64, global_batch_size=128)
LLAMA3_70B_PRETRAIN_CONFIG_H100_FP8_CS_V1 = replace(
    BASE_LLAMA3_70B_CONFIG, tensor_model_parallel_size=4, pipeline_model_parallel_size=8,
    virtual_pipeline_model_parallel_size=5)
"""
NEMO = """
trainer:
  devices: ${oc.decode:${oc.env:DGXNGPU,8}}
  num_nodes: ${oc.decode:${oc.env:DGXNNODES,1}}
  precision: bf16
model:
  micro_batch_size: ${oc.decode:${oc.env:MICRO_BATCH_SIZE}}
  ranks: ${multiply:${trainer.devices},${trainer.num_nodes}}
  cut: ${multiply:${.tensor_model_parallel_size},${model.pipeline_model_parallel_size}}
  global_batch_size: ${multiply:${oc.decode:${oc.env:MINIBS}},${floor_div:${model.ranks},${.cut}}}
  tensor_model_parallel_size: ${oc.decode:${oc.env:TENSOR_MODEL_PARALLEL}}
  pipeline_model_parallel_size: ${oc.decode:${oc.env:PIPELINE_MODEL_PARALLEL}}
  virtual_pipeline_model_parallel_size: ${oc.decode:${oc.env:INTERLEAVED_PIPELINE,12}}
  sequence_parallel: ${oc.decode:${oc.env:SEQ_PARALLEL,True}}
  encoder_seq_length: 2048
  num_layers: 96
  hidden_size: 12288
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 96
  normalization: layernorm1p
  activation: gelu
  fp8: ${oc.decode:${oc.env:FP8,False}}
  optim: {name: distributed_fused_adam}
"""
MLPERF = """
export MINIBS="${MINIBS:=128}"
export TENSOR_MODEL_PARALLEL=4
export PIPELINE_MODEL_PARALLEL=8
export DGXNNODES="${DGXNNODES:=64}"
export WALLTIME=$(( (${NEXP:-1} * 180) ))
source $(dirname ${BASH_SOURCE[0]})/config_fp8.sh
export MICRO_BATCH_SIZE=2
if [[ $(($MINIBS % PIPELINE_MODEL_PARALLEL)) != 0 ]]; then exit 1; fi
export INTERLEAVED_PIPELINE=4
"""
ZERO3 = (
    '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}},'
    ' "bf16": {"enabled": "auto"}, "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",'
    ' "gradient_accumulation_steps": "auto"}'
)
HF = "model_name_or_path: meta-llama/Meta-Llama-3-8B\nmax_seq_length: 4096\nper_device_train_batch_size: 2\n"


@pytest.fixture
def read(tmp_path):
    """Return a function that writes files and reads the job in them."""

    def of(files: dict[str, str], *words: str, gpus: int | None = None, mtp_layers: int | None = None):
        for name, text in files.items():
            (tmp_path / name.partition(":")[0]).write_text(text)
        asked = JobOptions(gpus=gpus, mtp_layers=mtp_layers)
        return read_job([*(str(tmp_path / name) for name in files), *words], asked)

    return of


def layout(job, *names: str) -> tuple:
    """Return some keys of a job's layout."""
    return tuple(getattr(job.layout, name) for name in names)


def test_nodes_that_no_file_gives_are_asked_for_and_not_assumed(read):
    job = read({"a.sh": "torchrun --nnodes $NNODES --nproc_per_node 8 pretrain_gpt.py " + LLAMA + BATCH})

    assert (job.world, job.layout.dp) == (None, None)
    assert job.asked == ("--gpus",)
    assert any("nnodes ($NNODES) is known only where the job runs" in note for note in job.notes)


def test_a_script_variable_can_be_set_from_the_command_line(read):
    script = "TP=${TP:-1}\n" + ON_16 + LLAMA + BATCH + "--tensor-model-parallel-size $TP"

    job = read({"a.sh": script}, "TP=4", "vocab_size=32000")

    assert layout(job, "tp", "dp") == (4, 4)
    assert job.architecture.vocab_size == 32000
    assert job.ignored == ()


def test_slurm_directives_give_nodes_and_tasks(read):
    script = (
        "#!/bin/bash\n#SBATCH -p gpu --nodes=4 --exclusive --ntasks-per-node=8\n"
        "srun python pretrain_gpt.py " + LLAMA + BATCH
    )

    assert read({"a.sh": script}).world == 32


def test_a_command_in_a_string_is_followed_through_srun_and_bash(read):
    script = (
        f'CMD="cd /x; python -u pretrain_gpt.py {LLAMA} {BATCH}"\nsrun -N 2 --ntasks-per-node=4 bash -x -c "${{CMD}}"'
    )

    assert read({"a.sh": script}).world == 8


def test_words_in_one_quotation_are_flags_where_the_array_is_not_quoted(read):
    job = read({"a.sh": f'A=("--fp8-format hybrid" "--fp8-recipe mxfp8")\n{ON_16}{LLAMA}{BATCH} ${{A[@]}}'})

    assert job.precision == "mxfp8"


def test_layers_that_do_not_divide_by_the_stages_are_refused_with_both(read):
    with pytest.raises(InputError, match="a.sh: 32 layers do not divide by pipeline-model-parallel-size 3"):
        read({"a.sh": ON_16.replace("--nnodes 2", "--nnodes 3") + LLAMA + BATCH + "--pipeline-model-parallel-size 3"})


def test_a_layout_string_of_megatron_gives_the_layers_of_each_stage(read):
    flags = "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*4|(t*4|)*6t*4L' "
    job = read({"a.sh": ON_16 + LLAMA + BATCH + flags})

    assert layout(job, "pp", "vpp", "schedule") == (4, 2, "interleaved")
    assert job.stages == (4,) * 8


def test_a_shorter_last_stage_of_megatron_is_read(read):
    flags = (
        "--pipeline-model-parallel-size 4 --decoder-last-pipeline-num-layers 5 --decoder-first-pipeline-num-layers 7"
    )

    assert read({"a.sh": ON_16 + LLAMA + BATCH + flags}).stages == (7, 10, 10, 5)


def test_a_batch_that_does_not_divide_is_refused_with_its_keys(read):
    with pytest.raises(InputError, match="global-batch-size 100 is not a multiple of micro-batch-size 1 x dp 16"):
        read({"a.sh": ON_16 + LLAMA + "--micro-batch-size 1 --global-batch-size 100"})


def test_a_growing_batch_is_priced_at_its_full_size_and_said(read):
    job = read({"a.sh": ON_16 + LLAMA + BATCH + "--rampup-batch-size 16 16 5859375"})

    assert job.global_batch == 128
    assert any("rampup-batch-size" in note for note in job.notes)


def test_key_value_heads_that_differ_from_the_published_model_count_and_are_said(read):
    job = read({"a.sh": ON_16 + LLAMA.replace("--num-query-groups 8", "--num-query-groups 4") + BATCH})

    assert job.architecture.num_key_value_heads == 4
    assert any("num_key_value_heads is 4; the published llama3-8b has 8" in note for note in job.notes)


@pytest.mark.parametrize(
    "flag", ["mtp-use-repeated-layer", "cpu-offloading", "fp8-param-gather --use-distributed-optimizer"]
)
def test_flags_that_change_the_price_and_are_not_understood_are_named(read, flag):
    ignored = read({"a.sh": ON_16 + LLAMA + BATCH + f"--{flag}"}).ignored

    assert any(text.startswith(flag.split()[0]) for text in ignored)


def test_products_hide_tensor_parallelism_where_the_command_asks_for_it_alone(read):
    silent, asked = (read({"a.sh": ON_16 + LLAMA + BATCH + TENSORS + more}) for more in ("", "--tp-comm-overlap"))

    assert (silent.traits, asked.traits) == (("dp-waits",), ("tp-overlap", "dp-waits"))
    assert asked.ignored == silent.ignored


@pytest.mark.parametrize(
    ("flags", "waits"),
    [
        ("--use-distributed-optimizer", {"dp-waits", "gather-waits"}),
        ("--use-distributed-optimizer --overlap-grad-reduce", {"gather-waits"}),
        ("--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", set()),
        ("", {"dp-waits"}),
    ],
)
def test_gradients_and_weights_travel_beside_computation_where_flags_say_so_alone(read, flags, waits):
    job = read({"a.sh": ON_16 + LLAMA + BATCH + flags})

    assert set(job.traits) == waits
    assert not any("overlap" in text for text in (*job.ignored, *job.notes))


def test_modules_that_predict_further_tokens_are_part_of_the_model_that_a_job_trains(read):
    flags = "--mtp-num-layers 2 --mtp-loss-scaling-factor 0.1"
    plain, job = (read({"a.sh": f"{ON_16}{LLAMA}{BATCH} {more}"}) for more in ("", flags))
    asked = read({"a.sh": f"{ON_16}{LLAMA}{BATCH} {flags}"}, mtp_layers=1)
    one = job.architecture.mtp_parameters

    assert job.ignored == plain.ignored
    assert job.architecture.mtp_trained == 2
    assert job.architecture.parameters == plain.architecture.parameters + 2 * one
    assert asked.architecture.mtp_trained == 1
    assert any(text.startswith("--mtp-layers 1 in place of mtp-num-layers 2") for text in asked.assumed)


def test_modules_in_another_stage_than_the_output_are_named(read):
    flags = "--pipeline-model-parallel-size 4 --mtp-num-layers 1 --pipeline-model-parallel-layout"
    beside, apart = (read({"a.sh": f"{ON_16}{LLAMA}{BATCH} {flags} 'Et*11|t*11|t*10{end}'"}) for end in ("|mL", "m|L"))

    assert beside.stages == apart.stages == (11, 11, 10, 0)
    assert not any("priced in the output's stage" in text for text in beside.ignored)
    assert any("priced in the output's stage" in text for text in apart.ignored)


def test_scales_of_rows_are_read_from_a_converter_of_torchtitan_s_python(read):
    converter = '        model_converters=[Float8Linear.Config(recipe_name="rowwise")],\n'
    text = REGISTRY.replace("        activation_checkpoint", f"{converter}        activation_checkpoint", 1)

    assert read({"reg.py:base": text}).precision == "fp8-row"


def test_modules_that_predict_further_tokens_are_read_from_nemo_and_maxtext(read):
    nemo = "trainer: {num_nodes: 2, devices: 8}\n"
    nemo += "model: {micro_batch_size: 1, global_batch_size: 64, mtp_num_layers: 1, mtp_loss_scaling_factor: 0.1, "
    nemo += "num_layers: 32, hidden_size: 4096, ffn_hidden_size: 14336, num_attention_heads: 32, "
    nemo += "num_query_groups: 8, encoder_seq_length: 8192, activation: fast-swiglu, normalization: rmsnorm}\n"
    maxtext = "model_name: llama3-8b\nmtp_num_layers: 1\nmtp_loss_scaling_factor: 0.1\nper_device_batch_size: 1\n"
    maxtext += "ici_fsdp_parallelism: 16\nmax_target_length: 8192\nhardware: gpu\n"

    for job in (read({"n.yaml": nemo}), read({"m.yml": maxtext}, gpus=16)):
        assert job.architecture.mtp_trained == 1
        assert not any("mtp" in text for text in job.ignored)


def test_flags_without_effect_on_a_step_are_not_named(read):
    flags = "--lr 1e-4 --adam-beta2 0.95 --save /x --wandb-project p --data-path d --train-iters 5 --seed 1"

    assert read({"a.sh": ON_16 + LLAMA + BATCH + flags}).ignored == ()


def test_two_different_trainings_in_one_script_are_refused(read):
    with pytest.raises(InputError, match="starts 2 different training commands"):
        read({"a.sh": f"for TP in 1 2; do\n{ON_16}{LLAMA}{BATCH} --tensor-model-parallel-size $TP\ndone"})


def test_megatrons_yaml_arguments_are_its_flags(read):
    text = "language_model: {num_layers: 32, hidden_size: 4096, num_attention_heads: 32}\n"
    text += "model_parallel: {tensor_model_parallel_size: 2}\n"
    text += "micro_batch_size: 1\nglobal_batch_size: 64\nseq_length: 2048\n"

    assert layout(read({"a.yaml": text}, gpus=16), "tp", "dp") == (2, 8)


def test_a_registry_function_built_on_another_has_its_changes(read):
    job = read({"reg.py:longer": REGISTRY})

    assert (job.seq_len, job.world, job.global_batch) == (32768, 64, 16)
    assert layout(job, "tp", "cp", "dp", "recompute") == (2, 4, 8, "full")
    assert job.architecture.name == "llama3-8b"


def test_a_registry_with_several_functions_asks_which(read):
    with pytest.raises(InputError, match=r"reg.py: say which function: FILE:NAME with one of base, longer"):
        read({"reg.py": REGISTRY})


def test_overrides_of_torchtitan_on_the_command_line_win(read):
    toml = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
    script = (
        "torchrun --nnodes=1 --nproc_per_node=8 -m torchtitan.train --job.config_file x/l.toml --training.seq_len 4096"
    )

    assert read({"a.sh": script, "l.toml": toml}).seq_len == 4096


def test_tokens_of_a_rank_that_are_no_whole_sequences_are_refused(read):
    text = REGISTRY.replace(
        "local_batch_size=2, seq_len=8192", "num_tokens_per_microbatch_per_dp_rank=10000, max_context_length=8192"
    )

    with pytest.raises(InputError, match="is not a multiple of training.max_context_length 8192"):
        read({"reg.py:base": text})


def test_a_bridge_recipe_is_read_without_importing_it(read):
    job = read({"llama3.py": BRIDGE}, gpus=32)

    assert layout(job, "tp", "pp", "cp", "dp", "zero", "sp") == (4, 2, 2, 2, 1, 1)
    assert (job.global_batch, job.seq_len, job.architecture.name) == (512, 16384, "llama3-8b")


def test_a_preset_of_bridge_says_precision_and_model_by_its_name(read):
    job = read({"presets.py:LLAMA3_70B_PRETRAIN_CONFIG_H100_FP8_CS_V1": PRESETS})

    assert (job.world, job.precision, job.architecture.name) == (64, "fp8", "llama3-70b")
    assert layout(job, "tp", "pp", "vpp", "dp") == (4, 8, 5, 2)
    assert job.asked == ("--seq-len",)


def test_nemo_with_the_variables_of_a_submission_resolves_its_interpolations(read):
    job = read({"custom.yaml": NEMO, "config_DGXH100.sh": MLPERF})

    assert (job.world, job.global_batch, job.seq_len, job.precision) == (512, 2048, 2048, "bf16")
    assert layout(job, "tp", "pp", "vpp", "mbs", "dp", "sp", "zero") == (4, 8, 4, 2, 16, 1, 1)
    assert job.architecture.intermediate_size == 49152
    assert any("config_fp8.sh is sourced but is not here" in text for text in job.assumed)


def test_variables_of_nemo_may_be_given_as_words(read):
    words = ["MICRO_BATCH_SIZE=1", "MINIBS=16", "TENSOR_MODEL_PARALLEL=4", "PIPELINE_MODEL_PARALLEL=8", "DGXNNODES=8"]

    assert layout(read({"custom.yaml": NEMO}, *words), "tp", "pp", "dp", "mbs") == (4, 8, 2, 1)


def test_nemo_without_the_variables_says_which_are_missing(read):
    with pytest.raises(InputError, match=r"TENSOR_MODEL_PARALLEL\): is not set in the files"):
        read({"custom.yaml": NEMO})


def test_a_deepspeed_file_full_of_auto_takes_the_arguments_numbers(read):
    job = read({"a.yaml": HF + "gradient_accumulation_steps: 4\nbf16: true\n", "ds.json": ZERO3}, gpus=8)

    assert (job.global_batch, job.precision) == (64, "bf16")
    assert layout(job, "zero", "mbs", "offload") == (3, 2, "parameters")


def test_numbers_that_disagree_between_deepspeed_and_arguments_are_refused(read):
    config = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}'

    with pytest.raises(InputError, match=r"train_micro_batch_size_per_gpu 4 \(ds.json\) contradicts .* 2 \(a.yaml\)"):
        read({"a.yaml": HF, "ds.json": config}, gpus=8)


def test_a_configuration_that_is_named_and_not_here_is_asked_for(read):
    with pytest.raises(InputError, match="a.yaml: names absent.json, which is not here: give it too"):
        read({"a.yaml": HF + "deepspeed: configs/absent.json\n"}, gpus=8)


def test_a_deepspeed_launch_writes_its_configuration_by_a_here_document(read):
    script = (
        "STAGE=2\ncat <<EOT > ds.json\n"
        '{"zero_optimization": {"stage": $STAGE}, "bf16": {"enabled": true}}\nEOT\n'
        "deepspeed --num_gpus 8 run_clm.py --deepspeed ds.json --model_name_or_path meta-llama/Llama-2-7b-hf "
        "--per_device_train_batch_size 4 --block_size 2048"
    )
    job = read({"a.sh": script})

    assert (job.engine, job.world, job.global_batch, job.seq_len) == ("deepspeed", 8, 32, 2048)
    assert layout(job, "zero", "mbs") == (2, 4)


def test_the_words_of_accelerate_launch_win_over_its_file(read):
    config = (
        "distributed_type: FSDP\nnum_machines: 1\nnum_processes: 8\nfsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n"
    )
    script = (
        "accelerate launch --config_file c.yaml --num_processes 16 --num_machines 2 train.py "
        "--model_name_or_path meta-llama/Meta-Llama-3-8B --max_seq_length 4096 --per_device_train_batch_size 1"
    )

    assert read({"a.sh": script, "c.yaml": config}).world == 16


def test_hybrid_sharding_keeps_a_copy_on_each_machine(read):
    config = "distributed_type: FSDP\nnum_machines: 4\nnum_processes: 32\n"
    config += "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}"

    assert layout(read({"c.yaml": config}), "zero", "replicas", "dp") == (3, 4, 32)


def test_accelerates_megatron_plugin_has_megatrons_degrees(read):
    config = (
        "distributed_type: MEGATRON_LM\nnum_processes: 16\nnum_machines: 2\nmegatron_lm_config:\n"
        "  megatron_lm_tp_degree: 4\n  megatron_lm_pp_degree: 2\n  megatron_lm_num_micro_batches: 4\n"
        "  megatron_lm_sequence_parallelism: true\n  megatron_lm_use_distributed_optimizer: true\n"
    )

    assert layout(read({"c.yaml": config}), "tp", "pp", "dp", "sp", "zero") == (4, 2, 2, 1, 1)


def test_maxtext_takes_axes_between_and_inside_slices_from_a_script(read):
    script = (
        "python3 -m MaxText.train configs/m.yml run_name=x dcn_fsdp_parallelism=16 ici_fsdp_parallelism=8 "
        "per_device_batch_size=1.0 max_target_length=8192"
    )
    job = read({"a.sh": script, "m.yml": "base_config: base.yml\nmodel_name: llama3.1-405b\nremat_policy: full\n"})

    assert (job.world, job.global_batch, job.seq_len, job.architecture.name) == (128, 128, 8192, "llama3-405b")
    assert layout(job, "dp", "zero", "recompute") == (128, 3, "full")


def test_maxtext_whose_slices_are_open_asks_for_the_ranks(read):
    job = read(
        {"m.yml": "base_config: base.yml\nmodel_name: llama2-7b\nici_fsdp_parallelism: 8\nper_device_batch_size: 4\n"}
    )

    assert "--gpus" in job.asked


def test_files_of_two_engines_are_refused_with_both(read):
    with pytest.raises(InputError, match="are configurations of different engines"):
        read({"a.sh": ON_16 + LLAMA + BATCH, "b.toml": "[training]\nseq_len = 1\n[parallelism]\n"})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "a: [1, 2", "a.yaml: line"),
        ("a.yaml", "trainer: !!python/object/apply:os.system ['touch executed']\n", "could not determine"),
        ("a.yaml", "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{b}: &{b} [{', '.join(['*' + a] * 10)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
        ), "unfolds to more than"),
        ("a.yaml", "a: 1\na: 2\n", "key 'a' is given twice"),
        ("a.yaml", "- 1\n- 2\n", "expected a mapping"),
        ("a.json", '{"zero_optimization": {"stage": 9}, "train_batch_size": 8}', "stage 9: expected 0 to 3"),
        ("a.json", '{"zero_optimization": {"stage": "x"}}', "stage: expected a whole number"),
        ("a.json", '{"train_batch_size": -4}', "train_batch_size: expected a whole number of 1 or more"),
        ("a.toml", "[training\n", "a.toml:"),
        ("a.py", "def f(:\n", "a.py: line 1: no Python"),
        ("a.py", "def f() -> Trainer.Config:\n    return f()\n", "too deeply|nested"),
        ("a.yaml", "hello: world\n", "no engine's configuration is recognised"),
        ("a.yaml", "trainer: {num_nodes: '${a}', devices: 8}\na: '${b}'\nb: '${a}'\n", "refer to each other"),
    ],
)  # fmt: skip
def test_hostile_and_broken_files_are_one_line(read, tmp_path, monkeypatch, name, text, message):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InputError, match=message) as error:
        read({name: text}, gpus=8)

    assert "\n" not in str(error.value)
    assert not (tmp_path / "executed").exists()


def test_a_job_survives_its_json_form(read):
    job = read({"a.sh": ON_16 + LLAMA + BATCH})

    assert msgspec.json.decode(msgspec.json.encode(job), type=type(job)) == job


def test_deepspeeds_three_batch_numbers_say_the_ranks_and_they_are_asked_for_all_the_same(read):
    config = '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}'
    job = read({"ds.json": config})

    assert "--gpus" in job.asked
    assert any("is 16 data-parallel ranks" in text for text in job.notes)


def test_deepspeeds_three_batch_numbers_that_do_not_multiply_are_refused(read):
    config = '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}'

    with pytest.raises(InputError, match="ds.json: train_batch_size 256 contradicts train_micro_batch_size_per_gpu 4"):
        read({"ds.json": config}, gpus=8)


def test_a_mesh_of_accelerate_that_does_not_multiply_names_its_keys(read):
    config = "distributed_type: FSDP\nnum_processes: 16\nparallelism_config: {parallelism_config_cp_size: 4, "
    config += "parallelism_config_dp_shard_size: 2}\n"

    with pytest.raises(
        InputError, match=r"c.yaml: parallelism_config.parallelism_config_cp_size 4 x .* = 8 on num_pro"
    ):
        read({"c.yaml": config})


def test_flags_of_accelerate_launch_are_the_keys_of_its_file(read):
    script = (
        "accelerate launch --use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP --num_processes 8 --mixed_precision bf16 "
        "train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --max_length 2048 --per_device_train_batch_size 2"
    )
    job = read({"a.sh": script})

    assert (job.world, job.precision) == (8, "bf16")
    assert layout(job, "zero", "dp", "mbs") == (2, 8, 2)


def test_the_distributed_optimizer_of_megatron_core_in_nemo_is_zero_1(read):
    text = "trainer: {num_nodes: 1, devices: 8, precision: bf16}\nmodel: {micro_batch_size: 1, global_batch_size: 8,"
    text += " encoder_seq_length: 4096, optim: {name: mcore_distributed_optim}}\n"

    assert layout(read({"a.yaml": text}), "zero") == (1,)


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("torchrun -m torchtitan.train --module llama3 --config llama3_8b", "llama3_8b of the registry of llama3"),
        ("torchrun run_recipe.py --recipe llama3_8b_pretrain_config", "the recipe llama3_8b_pretrain_config"),
        ("torchrun megatron_gpt_pretraining.py --config-name=x trainer.num_nodes=2", "the YAML x"),
        ("torchrun nemo_automodel/recipes/llm/train_ft.py --config y.yaml", "names y.yaml, which is not here"),
        ("torchrun pretrain_gpt.py --num-layers 2 --deepspeed --deepspeed_config z.json", "names z.json"),
    ],
)
def test_settings_that_a_launch_line_takes_from_elsewhere_are_asked_for(read, command, needed):
    with pytest.raises(InputError, match=needed):
        read({"a.sh": command}, gpus=8)


def test_a_megatron_deepspeed_script_takes_its_stage_from_its_here_document(read):
    script = (
        'cat <<EOT > ds.json\n{"zero_optimization": {"stage": 1}}\nEOT\n'
        f"deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py {LLAMA} {BATCH} --deepspeed --deepspeed_config ds.json"
    )

    assert layout(read({"a.sh": script}), "zero", "dp") == (1, 16)


def test_the_folder_of_a_program_does_not_decide_its_engine(read):
    script = ON_16.replace("pretrain_gpt.py", "/opt/NeMo/nemo/Megatron-LM/pretrain_gpt.py") + LLAMA + BATCH

    assert read({"a.sh": script}).engine == "megatron"


def test_a_contradiction_in_nemo_names_the_keys_of_its_file(read):
    text = "trainer: {num_nodes: 2, devices: 8, precision: bf16}\nmodel: {micro_batch_size: 1, global_batch_size: 8,"
    text += " encoder_seq_length: 4096, tensor_model_parallel_size: 8, pipeline_model_parallel_size: 4}\n"

    with pytest.raises(InputError, match=r"model.tensor_model_parallel_size 8 x .* = 32 on trainer.num_nodes 2 x"):
        read({"n.yaml": text})


def test_a_launch_by_torchrun_that_says_no_nodes_is_of_one(read):
    job = read({"a.sh": "torchrun --nproc_per_node 8 pretrain_gpt.py " + LLAMA + BATCH})

    assert job.world == 8
    assert "nnodes 1 (the default of torchrun)" in job.assumed


@pytest.mark.parametrize(
    ("recipe", "precision", "told"),
    [
        ("tensorwise", "fp8", False),
        ("delayed", "fp8", False),
        ("blockwise", "fp8-block", False),
        ("mxfp8", "mxfp8", False),
        ("by_column", "fp8", True),
    ],
)
def test_a_recipe_of_fp8_is_priced_with_its_scales_or_said(read, recipe, precision, told):
    job = read({"a.sh": f"{ON_16} {LLAMA} {BATCH} --fp8-format hybrid --fp8-recipe {recipe}"})

    assert job.precision == precision
    assert any(text.startswith(f"fp8-recipe {recipe}") for text in job.ignored) == told


@pytest.mark.parametrize(
    ("model", "section", "precision", "without"),
    [
        ('converters = ["quantize.linear.float8"]', "quantize.linear.float8", "fp8", ""),
        ('converters = ["float8"]', "float8", "fp8", ""),
        ("", "quantize.linear.float8", "bf16", "quantize.linear.float8"),
        ('converters = ["other"]', "float8", "bf16", "float8"),
        ("", "mx", "bf16", "mx"),
    ],
)
def test_settings_of_a_converter_that_torchtitan_is_not_told_to_use_have_no_effect(
    read, model, section, precision, without
):
    head = f'[model]\nname = "llama3"\nflavor = "8B"\n{model}\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
    job = read({"a.toml": f"{head}[{section}]\nenable_fsdp_float8_all_gather = true\n"})

    assert job.precision == precision
    assert [text.partition(" is set")[0] for text in job.notes if "converters does not name it" in text] == (
        [without] if without else []
    )


def test_the_switch_of_torchtitan_s_first_releases_makes_products_in_fp8(read):
    head = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nbatch_size = 1\nseq_len = 8192\n'

    assert read({"a.toml": f"{head}[float8]\nenable_float8_linear = true\n"}).precision == "fp8"
    assert read({"a.toml": f"{head}[float8]\nenable_float8_linear = false\n"}).precision == "bf16"


@pytest.mark.parametrize(("recipe", "told"), [("rowwise", False), ("rowwise_with_gw_hp", True)])
def test_torchtitan_s_scales_for_each_row_are_priced(read, recipe, told):
    config = (
        '[model]\nname = "llama3"\nflavor = "8B"\nconverters = ["quantize.linear.float8"]\n'
        "[training]\nlocal_batch_size = 1\nseq_len = 8192\n"
        f'[quantize.linear.float8]\nrecipe_name = "{recipe}"\n'
    )
    job = read({"a.toml": config})

    told_as_json = job.as_json()
    assert job.precision == "fp8-row"
    assert (told_as_json["precision"], told_as_json["fp8_scales"]) == ("fp8", "row")
    assert any(f"recipe_name {recipe}: priced as if gradients" in text for text in job.ignored) == told
