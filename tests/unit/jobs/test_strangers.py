"""Forms of configurations that people publish: models of one family, scripts that start scripts, trainers on others."""

from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.jobs.job import Job
from meshwright.jobs.models import catalogue_name
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job


def job(folder: Path, files: dict[str, str], *more: str, gpus: int | None = None) -> Job:
    """Return the job of files with these texts; the first alone is given where `more` begins with its name."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    items = more or tuple(str(folder / name) for name in files)
    return read_job(items, JobOptions(gpus=gpus))


MEGATRON = """--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 8192 --swiglu \\
  --normalization RMSNorm --disable-bias-linear --micro-batch-size 1 --global-batch-size 64 --seq-length 1024 \\
  --bf16 --vocab-size 32000"""


# --- models


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bigscience/bloom", "bloom-176b"),
        ("bigscience/bloom-560m", None),
        ("bigscience/bloom-7b1", None),
        ("own/dbrx-base-converted-v2", "dbrx-132b"),
        ("own/tiny-random-dbrx", None),
        ("openai-community/gpt2", "gpt2"),
        ("openai-community/gpt2-xl", "gpt2-xl"),
        ("distilbert/distilgpt2", None),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("deepseek_v3 671B", "deepseek-v3"),
        ("deepseek_v3 16B", None),
        ("deepseek-v3-lite", None),
        ("llama3_8b_h100_16k", "llama3-8b"),
        ("someone/llama-3-8b-bnb-4bit", "llama3-8b"),  # four bits are no size
        ("Qwen/Qwen2-7B-Instruct", "qwen2.5-7b"),  # of the same sizes
        ("Qwen/Qwen2-57B-A14B", None),
        ("Qwen/Qwen2-VL-7B", None),
        ("llama3-8b-2layers", None),
        ("someone/Qwen2.5-7B-4x-upcycled", None),
        ("someone/EAGLE3-LLaMA3.1-Instruct-8B", None),
        ("someone/Qwen3-8B_eagle3", None),
        ("someone/Llama-3.1-8B-speculator", None),
    ],
)
def test_another_size_of_a_family_is_not_taken_for_the_one_in_the_catalogue(text, name):
    assert catalogue_name(text) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen/Qwen2.5-Coder-14B-Instruct", "qwen2.5-14b"),
        ("Qwen/Qwen2-Math-7B", "qwen2.5-7b"),
        ("Qwen/QwQ-32B-Preview", "qwen2.5-32b"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama3-8b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", None),  # its output is not tied, as in Qwen2.5-1.5B
        ("Qwen/Qwen2.5-Math-PRM-7B", None),  # another head
        ("codellama/CodeLlama-7b-hf", None),  # another vocabulary
        ("mistralai/Mistral-Nemo-Base-2407", "mistral-nemo-12b"),
    ],
)
def test_a_model_trained_on_from_a_published_one_is_of_its_sizes_where_they_are_known_to_be_the_same(text, name):
    assert catalogue_name(text) == name


def test_a_small_flavor_of_torchtitan_is_not_read_as_the_large_model(tmp_path):
    toml = '[model]\nname = "deepseek_v3"\nflavor = "%s"\n[training]\nlocal_batch_size = 2\nseq_len = 4096\n'

    small = job(tmp_path, {"16b.toml": toml % "16B"}, gpus=8)  # DeepSeek-V2-Lite in every size
    debug = job(tmp_path, {"debug.toml": toml % "debugmodel"}, gpus=8)

    assert small.model_name == "deepseek-v2-lite"
    assert small.architecture.parameters == 15_706_484_224
    assert debug.architecture is None
    assert debug.asked == ("--model",)


def test_a_registry_of_one_family_does_not_get_a_model_of_another(tmp_path):
    registry = (
        "from torchtitan.trainer import Trainer\nfrom . import model_registry\n\n\n"
        "def sft_8b() -> Trainer.Config:\n"
        '    return Trainer.Config(model_spec=model_registry("8B"), training=TrainingConfig())\n'
    )

    own = job(tmp_path, {"qwen3/config_registry.py": registry}, gpus=8)
    other = job(tmp_path, {"flux/config_registry.py": registry}, gpus=8)

    assert own.model_name == "qwen3-8b"
    assert own.architecture.num_hidden_layers == 36
    assert (other.model_name, other.architecture) == ("flux 8B", None)


@pytest.mark.parametrize(
    ("pattern", "with_experts", "dense_first"),
    [
        ("'([0]+[1]*15)'", 15, 1),
        ("'[0]*3+[1]*13'", 13, 3),
        ("2", 8, None),
        ("'([1,0]*8)'", 8, None),
    ],
)
def test_layers_with_experts_follow_from_the_pattern(tmp_path, pattern, with_experts, dense_first):
    script = f"torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py {MEGATRON} \\\n"
    script += f"--num-experts 8 --moe-ffn-hidden-size 1024 --moe-layer-freq {pattern}"

    model = job(tmp_path, {"moe.sh": script}).architecture

    kinds = [hasattr(run.layer.network, "top") for run in model.runs for _ in range(run.count)]
    assert sum(kinds) == with_experts
    if dense_first is not None:
        assert kinds.index(True) == dense_first
        assert not model.stack


def test_a_pattern_of_another_number_of_layers_is_a_contradiction(tmp_path):
    script = f"torchrun --nproc-per-node 8 pretrain_gpt.py {MEGATRON} --num-experts 8 --moe-layer-freq '([0]+[1]*6)'"

    with pytest.raises(InputError, match=r"moe-layer-freq: expected 16 layers \(num-layers\), got 7"):
        job(tmp_path, {"moe.sh": script})


@pytest.mark.parametrize("experts", ["", "--num-experts 8 --moe-expert-parallel-size 8"])
def test_more_layers_than_any_model_has_are_refused(tmp_path, experts):
    script = f"deepspeed --num_gpus 8 pretrain_gpt.py {MEGATRON} {experts} --num-layers 1000000000000"

    with pytest.raises(InputError, match="num_hidden_layers: expected at most 10000, got 1000000000000"):
        job(tmp_path, {"deep.sh": script})


def test_megatron_deepspeed_has_experts_in_every_second_layer_and_one_for_each_token(tmp_path):
    script = (
        f"deepspeed --num_gpus 8 pretrain_gpt.py {MEGATRON} --moe-expert-parallel-size 8 --num-experts 64 --deepspeed"
    )

    found = job(tmp_path, {"moe.sh": script})

    kinds = [hasattr(run.layer.network, "top") for run in found.architecture.runs for _ in range(run.count)]
    assert kinds == [False, True] * 8
    assert found.architecture.experts_per_token == 1
    assert found.layout.ep == 8


@pytest.mark.parametrize("extra", ["pretrain_mamba.py --hybrid-attention-ratio 0.08", "pretrain_t5.py"])
def test_a_model_that_is_no_plain_decoder_is_asked_for(tmp_path, extra):
    script = f"torchrun --nproc-per-node 8 --nnodes 1 {extra} {MEGATRON}"

    found = job(tmp_path, {"other.sh": script})

    assert found.architecture is None
    assert "--model" in found.asked


# --- scripts


CALLED = f"""#!/bin/bash
MODE=$1
NODES=$2
TP=${{3:-1}}
if [ $MODE = local ]; then NODES=1; fi
if [ $# -lt 2 ]; then echo "usage: $0 MODE NODES"; exit 1; fi
[ -f /data/index ] || {{ echo "no data"; exit 2; }}
torchrun --nproc-per-node 8 --nnodes $NODES pretrain_gpt.py {MEGATRON} ${{SWITCHES}} \\
  --tensor-model-parallel-size $TP --use-distributed-optimizer $UNSET --sequence-parallel ${{ANOTHER}}
"""


def test_a_script_takes_its_arguments_from_the_script_that_starts_it(tmp_path):
    wrapper = "export SWITCHES=--disable-bias-linear\nHIDDEN=1\nbash run.sh slurm 4 2\n"

    found = job(tmp_path, {"wrapper.sh": wrapper, "run.sh": CALLED})

    assert (found.world, found.layout.tp, found.layout.dp) == (32, 2, 16)
    assert found.precision == "bf16"
    assert (found.layout.zero, found.layout.sp) == (1, 1)


def test_a_command_line_stands_in_place_of_a_file(tmp_path):
    (tmp_path / "run.sh").write_text(CALLED)

    found = job(tmp_path, {}, f"bash {tmp_path}/run.sh local 7 4")

    assert (found.world, found.layout.tp) == (8, 4)


def test_only_exported_variables_reach_a_script_that_is_started(tmp_path):
    called = f"torchrun --nproc-per-node ${{N:-8}} --nnodes ${{NODES:-1}} pretrain_gpt.py {MEGATRON}"
    wrapper = "N=4\nexport NODES=2\nsrun -N 2 bash run.sh\n"

    found = job(tmp_path, {"wrapper.sh": wrapper, "run.sh": called})

    assert (found.world, found.gpus_per_node) == (16, 8)


def test_a_script_that_is_started_and_not_here_is_named(tmp_path):
    with pytest.raises(InputError, match="wrapper.sh: starts train_it.sh, which is not here: give it too"):
        job(tmp_path, {"wrapper.sh": "srun bash -c 'TP=2 bash examples/train_it.sh 2>&1 | tee log'\n"})


def test_a_program_of_no_engine_is_named(tmp_path):
    with pytest.raises(InputError, match="starts train.py, no training of an engine that is known"):
        job(tmp_path, {"run.sh": "torchrun --nproc_per_node=8 train.py --num_layers=80 --hidden_width=8192\n"})


def test_exits_that_guard_against_missing_arguments_do_not_hide_the_training(tmp_path):
    found = job(tmp_path, {"run.sh": CALLED}, gpus=16)

    assert found.world == 16
    assert any("exit is passed over" in text for text in found.assumed)


def test_a_switch_is_on_though_an_unset_variable_follows_it(tmp_path):
    script = f"torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py {MEGATRON} --use-distributed-optimizer $MORE"

    found = job(tmp_path, {"run.sh": script})

    assert found.layout.zero == 1
    assert any("$MORE" in text for text in [*found.notes, *found.ignored])


def test_a_batch_that_depends_on_the_machine_is_asked_for(tmp_path):
    script = "BS=$(($(wc -l < $PBS_NODEFILE) * 4))\n"
    script += f"torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py {MEGATRON} --global-batch-size $BS"

    found = job(tmp_path, {"run.sh": script})

    assert found.global_batch is None
    assert found.asked == ("--global-batch",)


# --- trainers on top of Hugging Face's

AXOLOTL = """
base_model: meta-llama/Llama-3.1-8B
datasets:
  - path: some/data
    type: alpaca
sequence_len: 2048
sample_packing: true
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: adamw_torch_fused
bf16: auto
"""


def test_axolotl_says_its_batch_length_and_precision_in_words_of_its_own(tmp_path):
    found = job(tmp_path, {"full.yaml": AXOLOTL}, gpus=8)

    assert (found.global_batch, found.seq_len, found.layout.mbs, found.precision) == (64, 2048, 2, "bf16")
    assert found.model_name == "meta-llama/Llama-3.1-8B"
    assert (found.layout.zero, found.layout.recompute) == (0, "none")
    assert not found.ignored


def test_axolotl_without_a_precision_is_bf16_which_is_its_default(tmp_path):
    text = "base_model: Qwen/Qwen3-8B\nsequence_len: 2048\nmicro_batch_size: 2\ngradient_accumulation_steps: 1\n"

    silent = job(tmp_path, {"a.yaml": text}, gpus=8)
    off = job(tmp_path, {"b.yaml": text + "bf16: false\n"}, gpus=8)

    assert silent.precision == "bf16"
    assert any("bf16: auto" in line for line in silent.assumed)
    assert off.precision == "fp32"


def test_axolotl_shards_over_a_mesh(tmp_path):
    mesh = "dp_shard_size: 2\ndp_replicate_size: 2\ntensor_parallel_size: 2\nfsdp_version: 2\n"
    mesh += "fsdp_config:\n  offload_params: true\n  reshard_after_forward: true\ngradient_checkpointing: offload\n"

    found = job(tmp_path, {"mesh.yaml": AXOLOTL + mesh})

    assert (found.world, found.layout.tp, found.layout.dp, found.layout.replicas) == (8, 2, 4, 2)
    assert (found.layout.zero, found.layout.offload, found.layout.recompute) == (3, "parameters", "full")
    assert found.away == ("input",)
    assert not found.ignored


def test_axolotl_with_lists_of_fsdp_and_with_adapters(tmp_path):
    words = (
        "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\nadapter: qlora\n"
    )

    found = job(tmp_path, {"lora.yaml": AXOLOTL + words}, gpus=8)

    assert found.layout.zero == 2
    assert any("adapters alone" in text for text in found.ignored)


def test_arguments_list_what_fsdp_does(tmp_path):
    text = "model_name_or_path: llama2-7b\nper_device_train_batch_size: 1\nmax_length: 4096\nbf16: true\n"
    text += "fsdp: [full_shard, auto_wrap, offload]\nfsdp_config:\n  fsdp_version: 2\n"

    found = job(tmp_path, {"args.yaml": text}, gpus=8)

    assert (found.layout.zero, found.layout.offload, found.engine_version) == (3, "parameters", "FSDP 2")


def test_llama_factory_recomputes_unless_it_is_told_not_to(tmp_path):
    text = "model_name_or_path: llama2-7b\nstage: sft\ntemplate: llama2\nfinetuning_type: full\nbf16: true\n"
    text += "per_device_train_batch_size: 1\n"

    again = job(tmp_path, {"full.yaml": text}, gpus=8)
    kept = job(tmp_path, {"kept.yaml": text + "disable_gradient_checkpointing: true\n"}, gpus=8)

    assert (again.layout.recompute, again.seq_len) == ("full", 2048)
    assert kept.layout.recompute == "none"


# --- recipes and meshes


def test_a_recipe_takes_what_it_leaves_out_from_the_base_that_it_starts_from(tmp_path):
    recipe = (
        "from megatron.bridge.recipes.common import _pretrain_common\n"
        "from megatron.bridge.training.config import ConfigContainer\n\n\n"
        "def llama3_8b_pretrain_config() -> ConfigContainer:\n"
        "    cfg = _pretrain_common()\n"
        '    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_megatron_provider()\n'
        "    cfg.model.tensor_model_parallel_size = 2\n"
        "    cfg.ddp.use_distributed_optimizer = False\n"
        "    return cfg\n"
    )

    found = job(tmp_path, {"llama3.py": recipe}, gpus=8)

    assert (found.global_batch, found.layout.mbs, found.seq_len, found.precision) == (32, 2, 4096, "bf16")
    assert found.layout.zero == 1  # the optimizer's switch turns both on


def test_a_recipe_lists_the_layers_of_its_stages(tmp_path):
    recipe = (
        "from megatron.bridge.training.config import ConfigContainer\n\n\n"
        "def place(model):\n"
        '    last = ["mtp"] * (getattr(model, "mtp_num_layers", 1) or 0) + ["loss"]\n'
        "    size = model.pipeline_model_parallel_size or 1\n"
        "    places = {\n"
        "        (1, 1): None,\n"
        '        (4, 1): [["embedding"] + ["decoder"] * 9] + [["decoder"] * 8] * 2 + [["decoder"] * 7 + last],\n'
        "    }\n"
        "    if (size, 1) in places:\n"
        "        model.pipeline_model_parallel_layout = places[(size, 1)]\n\n\n"
        "def llama3_8b_pretrain_config() -> ConfigContainer:\n"
        "    cfg = _pretrain_common()\n"
        '    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_megatron_provider()\n'
        "    cfg.model.pipeline_model_parallel_size = 4\n"
        "    place(cfg.model)\n"
        "    return cfg\n"
    )

    assert job(tmp_path, {"llama3.py": recipe}, gpus=8).stages == (9, 8, 8, 7)


def test_without_dcn_axes_all_tpus_are_one_slice_and_a_node_of_gpus_is(tmp_path):
    line = "python3 MaxText/train.py MaxText/configs/base.yml model_name=llama2-7b per_device_batch_size=2 "
    line += "max_target_length=2048 ici_fsdp_parallelism=-1 ici_tensor_parallelism=8"

    tpu = job(tmp_path, {"tpu.sh": line}, gpus=64)
    gpu = job(tmp_path, {"gpu.sh": line + " hardware=gpu"}, gpus=64)

    assert (tpu.layout.zero, tpu.layout.dp) == (3, 8)
    assert (gpu.layout.zero, gpu.layout.dp) == (0, 8)


def test_slices_of_tpus_that_a_larger_one_holds_are_said_to_be_priced_as_that(tmp_path):
    line = "python3 MaxText/train.py MaxText/configs/base.yml model_name=llama2-7b per_device_batch_size=2 "
    line += "max_target_length=2048 dcn_data_parallelism={slices} ici_fsdp_parallelism=16"

    two = job(tmp_path, {"two.sh": line.format(slices=2)}, gpus=32)
    one = job(tmp_path, {"one.sh": line.format(slices=1)}, gpus=16)
    nodes = job(tmp_path, {"gpu.sh": line.format(slices=2).replace("=16", "=8") + " hardware=gpu"}, gpus=16)

    assert [text for text in two.ignored if "between the 2 slices (dcn): TPUs are priced as the fewest" in text]
    assert not [text for text in (*one.ignored, *nodes.ignored) if "slices" in text]


# --- trainers that are not read

OTHERS = {
    "GPT-NeoX": '{"pipe_parallel_size": 1, "model_parallel_size": 2, "train_micro_batch_size_per_gpu": 4}',
    "nanotron": "parallelism:\n  dp: 2\n  tp: 2\ntokens:\n  micro_batch_size: 2\n  sequence_length: 256\n",
    "torchtune": "model:\n  _component_: torchtune.models.llama3.llama3_8b\nmax_new_tokens: 300\n",
    "LLM Foundry": "max_seq_len: 2048\nglobal_train_batch_size: 1024\nfsdp_config:\n  sharding_strategy: FULL_SHARD\n",
    "verl": "actor_rollout_ref:\n  actor:\n    megatron:\n      tensor_model_parallel_size: 2\ntrainer:\n  nnodes: 1\n",
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_trainer_that_is_not_read_is_refused_by_its_name(tmp_path, name):
    with pytest.raises(InputError, match=f"this is a configuration of {name}, which is not read"):
        job(tmp_path, {"other.yaml": OTHERS[name]}, gpus=8)


# --- NeMo's FSDP and packed sequences

NEMO = """
trainer:
  num_nodes: 2
  devices: 8
  precision: bf16
model:
  micro_batch_size: 2
  global_batch_size: 64
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 1
  encoder_seq_length: 2048
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 32
  optim:
    name: fused_adam
"""


@pytest.mark.parametrize(
    ("lines", "zero"),
    [
        ("", 0),
        ("  fsdp: false\n", 0),
        ("  fsdp: true\n", 3),
        ("  fsdp: true\n  fsdp_sharding_strategy: full\n", 3),
        ("  fsdp: true\n  fsdp_sharding_strategy: grad\n", 2),
    ],
)
def test_nemo_shards_with_torch_where_its_switch_is_on(tmp_path, lines, zero):
    found = job(tmp_path, {"conf.yaml": NEMO + lines})

    assert found.layout.zero == zero
    assert not any("fsdp" in text for text in found.ignored)


def test_sequences_that_are_packed_are_as_long_as_the_pack(tmp_path):
    text = (
        "step_scheduler:\n  global_batch_size: 32\n  local_batch_size: 1\n"
        "model:\n  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\n"
        "distributed:\n  tp_size: 1\n  cp_size: 1\ndataset:\n  seq_length: 1024\npacked_sequence:\n"
    )

    packed = job(tmp_path, {"packed.yaml": text + "  packed_sequence_size: 4096\n"}, gpus=8)
    seen = job(tmp_path, {"seen.yaml": text + "  pack_size: 2048\n  max_length: 2048\n"}, gpus=8)
    not_packed = job(tmp_path, {"plain.yaml": text + "  packed_sequence_size: 0\n"}, gpus=8)

    assert (packed.seq_len, seen.seq_len, not_packed.seq_len) == (4096, 2048, 1024)


# --- more of the shell


def test_tasks_of_the_batch_lines_are_the_ranks_of_a_program_under_srun(tmp_path):
    script = (
        f'#!/bin/bash\n#SBATCH -N 8\n#SBATCH -n 64\nsrun -l sh -c "cd /opt && python -u pretrain_gpt.py {MEGATRON}"\n'
    )

    assert job(tmp_path, {"run.sbatch": script.replace(" \\\n ", " ")}).world == 64


def test_a_here_string_is_read_into_its_names(tmp_path):
    script = (
        'declare -A SIZES=([small]="12 768 12" [large]="24 1024 16")\n'
        'read -r LAYERS HIDDEN HEADS <<< "${SIZES[large]}"\nIFS=\'=\' read -r KEY VALUE <<< "MBS=4"\n'
        "torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers $LAYERS --hidden-size $HIDDEN "
        "--num-attention-heads $HEADS --micro-batch-size $VALUE --global-batch-size 64 --seq-length 1024 --bf16\n"
    )

    found = job(tmp_path, {"run.sh": script})

    assert (found.architecture.num_hidden_layers, found.architecture.hidden_size) == (24, 1024)
    assert found.layout.mbs == 4


@pytest.mark.parametrize(("tp", "sp"), [(2, 1), (1, 0)])
def test_what_a_condition_echoes_is_known(tmp_path, tp, sp):
    script = f"TP={tp}\ntorchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py {MEGATRON} \\\n"
    script += '  --tensor-model-parallel-size $TP $([[ $TP -gt 1 ]] && echo "--sequence-parallel")\n'

    found = job(tmp_path, {"run.sh": script})

    assert found.layout.sp == sp
    assert not any("further flags" in note for note in found.notes)


def test_what_a_command_prints_stays_unknown(tmp_path):
    script = f"torchrun --nproc-per-node 8 --nnodes $(echo a; nodes_of_job) pretrain_gpt.py {MEGATRON}\n"

    assert job(tmp_path, {"run.sh": script}).world is None


# --- DeepSpeed's file


def test_deepspeed_s_file_may_have_comments_and_closing_commas(tmp_path):
    text = '{\n  // stage\n  "train_batch_size": 64, # of all ranks\n  "zero_optimization": {"stage": 2,},\n'
    text += '  "tensorboard": {"output_path": "s3://bucket/#1, "},\n}\n'

    found = job(tmp_path, {"ds.json": text}, gpus=8)

    assert (found.global_batch, found.layout.zero) == (64, 2)


def test_a_file_that_is_no_json_even_without_comments_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"ds\.json"):
        job(tmp_path, {"ds.json": '{"train_batch_size": 64 // batch\n'}, gpus=8)


def test_the_old_name_of_bfloat16_is_read(tmp_path):
    text = '{"train_batch_size": 64, "bfloat16": {"enabled": true}, "zero_optimization": {"stage": 1}}'

    assert job(tmp_path, {"ds.json": text}, gpus=8).precision == "bf16"


def test_how_deepspeed_would_recompute_does_not_switch_it_on(tmp_path):
    text = (
        '{"train_batch_size": 64, "bf16": {"enabled": true}, '
        '"activation_checkpointing": {"partition_activations": true}}'
    )

    found = job(tmp_path, {"ds.json": text}, gpus=8)

    assert found.layout.recompute == "none"
    assert any("only a model that calls it does" in assumed for assumed in found.assumed)


# --- found in review


def test_a_script_that_is_given_beside_the_one_that_starts_it_is_followed_from_there(tmp_path):
    files = {
        "a/go.sh": "bash child.sh 2\n",
        "b/child.sh": f"torchrun pretrain_gpt.py {MEGATRON} --tensor-model-parallel-size $1\n",
    }

    assert job(tmp_path, files, gpus=8).layout.tp == 2


def test_a_program_with_the_letters_of_another_kind_of_model_inside_a_word_is_a_decoder(tmp_path):
    found = job(tmp_path, {"run.sh": f"torchrun pretrain_gpt_strict.py {MEGATRON}\n"}, gpus=8)

    assert found.architecture is not None


def test_a_list_where_a_word_is_expected_is_no_crash(tmp_path):
    text = "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\n"
    text += "sequence_len: 2048\ndatasets: []\nbf16: true\ngradient_checkpointing: [a]\n"

    with pytest.raises(InputError):
        job(tmp_path, {"axolotl.yaml": text}, gpus=8)


def test_a_tag_that_a_program_gives_a_meaning_is_a_word_and_one_that_builds_objects_is_refused(tmp_path):
    yaml = "include: !include data/own.yaml\nnames: !join [a, b]\nper_device_train_batch_size: 2\nbf16: true\n"
    yaml += "model_name_or_path: Qwen/Qwen3-8B\nmax_length: 1024\n"

    assert job(tmp_path, {"a.yaml": yaml}, gpus=2).layout.mbs == 2
    with pytest.raises(InputError, match=r"a\.yaml: line 1: could not determine a constructor"):
        job(tmp_path, {"a.yaml": "x: !!python/name:os.system\n" + yaml})
