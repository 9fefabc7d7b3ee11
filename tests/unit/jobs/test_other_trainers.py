"""Trainers around the engines: some are refused by name, others keep their own rules."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.jobs.unsupported import unread_command, yaml_of_command
from tests.unit.jobs.test_strangers import MEGATRON, job

# --- refused by name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("megatron rlhf --model Qwen/Qwen2.5-14B --tensor_model_parallel_size 4", "ms-swift"),
        ("megatron sft --model Qwen/Qwen2.5-14B --tensor_model_parallel_size 4", None),
        ("swift sft --model Qwen/Qwen2.5-7B --deepspeed zero3", None),
        ("deepspeed --module openrlhf.cli.train_sft --zero_stage 3 --bf16", "OpenRLHF"),
        ("python3 -m verl.trainer.main_ppo trainer.nnodes=2", "verl"),
        ("ray job submit -- python3 train.py --actor-num-nodes 8 --tensor-model-parallel-size 8", "slime"),
        ("tune run --nproc_per_node 8 full_finetune_distributed --config llama3/8B_full", None),
        ("torchrun --nproc_per_node 8 /src/picotron/train.py --config config.json", None),
        ("composer -n 8 train.py parameters.yaml", "Composer"),
        ("./deepy.py train.py configs/20B.yml", "GPT-NeoX"),
        ("torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1", None),
        ("torchrun --nproc_per_node 8 -m scripts.base_train -- --depth 20", "nanochat"),
        ("python -m levanter.main.train_lm --config_path llama.yaml", "Levanter"),
        ("fairseq2 lm instruction_finetune out --config-file sft.yaml", "fairseq2"),
        ("torchrun --nproc-per-node 8 src/scripts/train/OLMo2-7B.py train run cluster", "OLMo-core"),
        ("torchrun --nproc-per-node 8 src/scripts/train/sft/Olmo-3-7B.py train run cluster", "OLMo-core"),
        ("torchrun --nproc-per-node 8 src/scripts/official/OLMo2-32B.py train run", "OLMo-core"),
        ("torchrun --nproc-per-node 8 mine.py train run --trainer.max_duration.value=1", "OLMo-core"),
        ("uv run sft @ configs/sft.toml --run.name mine", "prime-rl"),
        ("python -m EasyLM.models.llama.llama_train --mesh_dim=1,-1,1", "EasyLM"),
        ("python3 -m axlearn.common.launch_trainer_main --module=text.gpt.c4_trainer --config=fuji-7B-v2", "AXLearn"),
        ("uv run -m skyrl_train.entrypoints.main_base trainer.strategy=fsdp2", "SkyRL"),
        ("torchrun --nproc_per_node 8 -m oumi train -c sft.yaml", "Oumi"),
        ("oumi distributed torchrun -m oumi train -c sft.yaml", "Oumi"),
        ("fabric run --devices 8 --num-nodes 2 own.py", "Lightning Fabric"),
        ("composer install", None),
        ("pip install verl", None),
    ],
)
def test_a_trainer_that_is_not_read_is_known_by_its_command(words, name):
    assert unread_command(words.split()) == name


def test_a_script_of_such_a_trainer_is_refused_by_its_name(tmp_path):
    script = "NNODES=2 NPROC_PER_NODE=4 \\\nmegatron rlhf --model Qwen/Qwen2.5-14B --tensor_model_parallel_size 4\n"

    with pytest.raises(InputError, match=r"run\.sh: this starts ms-swift, which is not read"):
        job(tmp_path, {"run.sh": script})


def test_a_command_that_a_here_document_holds_is_followed(tmp_path):
    script = "read -r -d '' words <<EOF\nopenrlhf.cli.train_sft \\\n --zero_stage 2\nEOF\ndeepspeed --module $words\n"

    with pytest.raises(InputError, match="OpenRLHF"):
        job(tmp_path, {"run.sh": script})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("modules: {a: {framework: megatron}, b: {framework: megatron}}\n", "Primus"),
        ("max_duration: 10ba\ntrain_batch_size: 16\ngrad_accum: 2\n", "Composer"),
        ("train_batch_size: 1024\nmax_response_length: 512\nreward_fn_key: data_source\n", "verl"),
        ("_target_: verl.workers.config.FSDPActorConfig\nfsdp_config: {fsdp_size: -1}\n", "verl"),
        ("trainer: {mp: 'p=f32,c=bfloat16', train_batch_size: 512, model_axis_size: 4}\n", "Levanter"),
        ("trainer: {data_parallelism: fsdp, dtype: bfloat16}\ngang: {tensor_parallel_size: 2}\n", "fairseq2"),
        ("trainer: {optim: {lr: 1e-6}}\norchestrator: {batch_size: 128}\n", "prime-rl"),
        ("model: {name: a}\ndata: {seq_len: 4096, batch_size: 8}\noptim: {lr: 1e-5}\n", "prime-rl"),
        ("experiment_name: a\nallocation_mode: sglang.d4p1t1+d4p1t1\n", "AReaL"),
        ("model: {model_name: a}\ntraining: {trainer_type: TRL_SFT, per_device_train_batch_size: 2}\n", "Oumi"),
        ("policy: {parallelism: {tp_size: 2}}\ntrain: {epoch: 2}\n", "Cosmos-RL"),
        (
            "model: {model_path: a}\ntrain: {global_batch_size: 8, micro_batch_size: 1, data_parallel_mode: fsdp2}\n",
            "VeOmni",
        ),
        ("actor_train: {strategy_args: {strategy_config: {tensor_model_parallel_size: 1}}}\n", "ROLL"),
        ("pretrained_model_name_or_path: a\nici_fsdp_parallelism: 8\nper_device_batch_size: 1\n", "MaxDiffusion"),
        (
            "trainer: {model: {name: qwen3}}\nservices: {policy: {procs: 2}}\nactors: {trainer: {procs: 8}}\n",
            "torchforge",
        ),
        ("grpo: {num_prompts_per_step: 32}\npolicy: {megatron_cfg: {tensor_model_parallel_size: 1}}\n", "NeMo RL"),
    ],
)
def test_a_file_of_such_a_trainer_is_refused_by_its_name(tmp_path, text, name):
    with pytest.raises(InputError, match=f"a configuration of {name}, which is not read"):
        job(tmp_path, {"a.yaml": text})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import easydel as ed\nargs = ed.SFTConfig(total_batch_size=64, max_sequence_length=4096)\n", "EasyDeL"),
        ("from paddlenlp.trainer import TrainingArguments\nargs = TrainingArguments(output_dir='o')\n", "PaddleNLP"),
        ("from xtuner.v1.config import FSDPConfig\nfsdp = FSDPConfig(ep_size=8)\n", "xtuner"),
        ("from olmo_core.config import DType\n\ndef build_model_config():\n    return Config()\n", "OLMo-core"),
        ("model_type = 'INTERNLM2'\nparallel = dict(zero1=dict(size=8), tensor=dict(size=4))\n", "InternEvo"),
    ],
)
def test_a_program_of_such_a_trainer_is_refused_by_its_name_whatever_its_classes_are_called(tmp_path, text, name):
    with pytest.raises(InputError, match=f"this starts {name}, which is not read"):
        job(tmp_path, {"own.py": text})


def test_arguments_of_a_package_that_is_not_known_are_said_to_be_taken_for_hugging_faces(tmp_path):
    text = "from ours.config import TrainingArguments\nargs = TrainingArguments(per_device_train_batch_size=2)\n"

    found = job(tmp_path, {"own.py": text}, gpus=4)

    assert any("TrainingArguments of ours has the settings of Hugging Face's" in line for line in found.assumed)


def test_a_recipe_that_a_launch_names_is_asked_for(tmp_path):
    file = tmp_path / "launch.sh"
    file.write_text("python3 setup_experiment.py --model_recipe_name qwen3_30b_a3b --num_gpus 64 -tp 4 -gb 512\n")

    with pytest.raises(InputError, match=r"from the recipe qwen3_30b_a3b \(as FILE.py:FUNCTION\)"):
        read_job([str(file)])


SAID = "--num_gpus 64 --gpus_per_node 8 -tp 4 -pp 2 -vp 5 -cp 1 -mb 1 -gb 128 -sl 4096 --compute_dtype {dtype}"


@pytest.mark.parametrize("dtype", ["bf16", "fp8_mx"])
def test_a_recipe_that_is_not_here_is_not_needed_where_the_launch_says_all_that_is_priced(tmp_path, dtype):
    words = SAID.format(dtype=dtype)
    line = f"python3 setup_experiment.py --model_family_name llama --model_recipe_name llama3_70b {words}\n"

    found = job(tmp_path, {"launch.sh": line})

    layout = found.layout
    assert (found.world, layout.tp, layout.pp, layout.vpp, layout.dp, layout.sp, layout.zero) == (64, 4, 2, 5, 8, 1, 1)
    assert (layout.mbs, found.global_batch, found.seq_len, found.model_name) == (1, 128, 4096, "llama3-70b")
    assert found.precision == {"bf16": "bf16", "fp8_mx": "mxfp8"}[dtype]
    assert any("the recipe llama3_70b is not here" in text for text in found.assumed)
    assert not found.ignored


@pytest.mark.parametrize(
    ("recipe", "left", "told"),
    [
        ("llama3_70b", "-vp 5 ", "virtual_pipeline_model_parallel_size"),
        ("llama3_70b", "-sl 4096 ", "seq_length"),
        ("qwen3_30b_a3b", "-gb 128 ", "global_batch_size, expert_model_parallel_size, expert_tensor_parallel_size"),
    ],
)
def test_what_a_launch_leaves_to_a_recipe_that_is_not_here_is_named(tmp_path, recipe, left, told):
    words = SAID.format(dtype="bf16").replace(left, "")

    with pytest.raises(InputError, match=f"takes {told} from the recipe {recipe} .*which is not here"):
        job(tmp_path, {"launch.sh": f"python3 setup_experiment.py --model_recipe_name {recipe} {words}\n"})


def test_words_under_the_sections_of_a_recipe_are_not_asked_of_it(tmp_path):
    words = "model.tensor_model_parallel_size=$TP model.pipeline_model_parallel_size=1 model.context_parallel_size=1"
    words += " train.micro_batch_size=1 train.global_batch_size=64 model.seq_length=4096"
    line = (
        f"for TP in 2 4; do srun -N 2 --ntasks-per-node 8 python run_recipe.py --recipe llama3_70b_own {words}; done\n"
    )

    with pytest.raises(InputError, match=r"takes compute_dtype from the recipe .*the command says tensor_.*_size 2, "):
        job(tmp_path, {"a.sh": line}, str(tmp_path / "a.sh"), "TP=2")
    with pytest.raises(InputError, match=r"starts 2 different training commands .*expected one of \(TP=2\), \(TP=4\)"):
        job(tmp_path, {"a.sh": line})


def test_what_is_learnt_from_pairs_of_answers_is_named_and_weights_in_bf16_alone_are_priced(tmp_path):
    file = tmp_path / "dpo.yaml"
    file.write_text("base_model: Qwen/Qwen3-8B\nsequence_len: 2048\nmicro_batch_size: 1\nrl: dpo\nbf16: full\n")

    found = read_job([str(file)], JobOptions(gpus=8))

    assert any(text.startswith("rl dpo (dpo.yaml): learns from answers that are compared") for text in found.ignored)
    assert found.weights == "bf16"


@pytest.mark.parametrize(
    ("converter", "told"),
    [
        ("LoRAConverter.Config()", "LoRA: adapters alone"),
        ("NVFP4LinearConverter.Config(fqns=['layers.0'])", "some layers alone"),
    ],
)
def test_converters_that_are_not_priced_as_they_are_are_named(tmp_path, converter, told):
    file = tmp_path / "registry.py"
    file.write_text(
        "from torchtitan.trainer import Trainer\n\n\ndef job():\n    return Trainer.Config(\n"
        f"        model_spec=model_registry('8B', converters=[{converter}]), training=TrainingConfig())\n"
    )

    found = read_job([f"{file}:job"], JobOptions(gpus=8))

    assert any(told in text for text in found.ignored)


def test_a_file_with_a_model_and_a_train_alone_is_not_megatron_bridges(tmp_path):
    with pytest.raises(InputError, match="no engine's configuration is recognised"):
        job(tmp_path, {"a.yaml": "model: {width: 512}\ntrain: {epochs: 3}\n"}, gpus=8)


def test_a_trainer_on_lightning_is_not_taken_for_nemo(tmp_path):
    text = "trainer: {num_nodes: 2, devices: 2, strategy: ddp}\nmodel: {vocab_size: 65, n_embd: 384}\n"

    with pytest.raises(InputError, match="no engine's configuration is recognised"):
        job(tmp_path, {"a.yaml": text})


def test_a_script_that_starts_llama_factory_asks_for_its_yaml(tmp_path):
    script = "FORCE_TORCHRUN=1 llamafactory-cli train examples/full.yaml\n"

    assert yaml_of_command(script.split()) == ("LLaMA-Factory", "examples/full.yaml")
    with pytest.raises(InputError, match=r"starts LLaMA-Factory with examples/full\.yaml, which is not here"):
        job(tmp_path, {"run.sh": script})


# --- programs of Megatron's that have another name


def test_a_program_with_megatron_in_its_name_is_not_nemos(tmp_path):
    script = f"torchrun --nproc_per_node 8 --nnodes 1 pretrain_megatron_llama.py {MEGATRON}"

    assert job(tmp_path, {"run.sh": script}).engine == "megatron"


def test_the_old_switches_of_fp8_are_fp8(tmp_path):
    script = f"torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py {MEGATRON} --fp8-hybrid"

    assert job(tmp_path, {"run.sh": script}).precision == "fp8"


def test_latent_attention_and_shared_experts_of_pai_megatron_patch_are_the_models(tmp_path):
    flags = (
        "--num-layers 27 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 10944 --num-experts 64 "
        "--moe-ffn-hidden-size 1408 --moe-router-topk 6 --moe-layer-freq '([0]+[1]*26)' --swiglu --kv-channels 128 "
        "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type "
        "rope --micro-batch-size 1 --global-batch-size 64 --seq-length 1024 --bf16 --vocab-size 102400 "
    )
    theirs = "--kv-lora-rank 512 --qk-nope-head-dim 128 --qk-rope-head-dim 64 --v-head-dim 128 --num-shared-experts 2"
    own = "--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 "
    own += "--moe-shared-expert-intermediate-size 2816"
    start = "torchrun --nproc_per_node 8 --nnodes 1 pretrain_deepseek.py "

    patched = job(tmp_path, {"patch.sh": start + flags + theirs})
    plain = job(tmp_path, {"plain.sh": start + flags + own})

    assert patched.architecture.parameters == plain.architecture.parameters  # DeepSeek-V2-Lite without one norm
    assert plain.architecture.parameters == 15_706_484_224 - 27 * 512


# --- DeepSpeed


def test_deepspeed_cuts_layers_that_do_not_divide_with_the_embeddings_as_layers(tmp_path):
    flags = MEGATRON.replace("--num-layers 16", "--num-layers 70")
    script = (
        "cat > ds.json <<EOF\n" + '{"train_batch_size": 64, "zero_optimization": {"stage": 0}}\nEOF\n'
        f"deepspeed --num_gpus 8 --num_nodes 3 pretrain_gpt.py {flags} --pipeline-model-parallel-size 12 --deepspeed "
        "--deepspeed_config ds.json --zero-stage 0 --pp-partition-method 'type:transformer|embedding'\n"
    )

    found = job(tmp_path, {"bloom.sh": script})

    assert found.stages == (5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5)
    assert found.layout.zero == 1  # its optimizer for bf16 shares the states
    assert any("in bf16 DeepSpeed shares the states" in text for text in found.assumed)


def test_the_stage_in_deepspeeds_file_counts_and_a_flag_that_differs_is_said(tmp_path):
    script = (
        "cat > ds.json <<EOF\n"
        '{"train_batch_size": 64, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}\nEOF\n'
        f"deepspeed --num_gpus 8 pretrain_gpt.py {MEGATRON} --deepspeed --deepspeed_config ds.json --zero-stage 1\n"
    )

    found = job(tmp_path, {"run.sh": script})

    assert (found.layout.zero, found.layout.offload) == (3, "optimizer")
    assert "zero-stage 1 gives way to zero_optimization.stage 3 (ds.json)" in found.notes


@pytest.mark.parametrize(
    ("flags", "stack"),
    [
        ("--deepspeed --zero-stage 1", "before-2023"),
        ("--deepspeed --zero-stage 1 --use-flash-attn-v2", ""),
        ("--deepspeed --zero-stage 1 --use-flash-attn", ""),
        ("", ""),  # of Megatron-LM, whose Transformer Engine has a fused kernel
    ],
)
def test_megatron_deepspeed_without_its_switch_of_fused_attention_is_priced_without_it(tmp_path, flags, stack):
    start = f"torchrun --nproc_per_node 8 pretrain_gpt.py {MEGATRON} {flags}"

    found = job(tmp_path, {"run.sh": f"{start}\n"})

    assert found.stack == stack
    assert not any("flash" in text for text in found.ignored)


@pytest.mark.parametrize(("flags", "zero", "precision"), [("--zero_stage 3 --dtype bf16", 3, "bf16")])
def test_a_program_that_makes_deepspeeds_configuration_from_flags_is_read_by_them(tmp_path, flags, zero, precision):
    start = "deepspeed --num_gpus 8 main.py --model_name_or_path meta-llama/Llama-2-7b-hf --max_seq_len 512 "

    found = job(tmp_path, {"run.sh": f"{start} --per_device_train_batch_size 4 --deepspeed {flags}\n"})

    assert (found.engine, found.layout.zero, found.precision) == ("deepspeed", zero, precision)


def test_a_stage_of_zero_that_is_nowhere_is_asked_for(tmp_path):
    start = "deepspeed --num_gpus 8 main.py --model_name_or_path meta-llama/Llama-2-7b-hf"

    with pytest.raises(InputError, match=r"no --deepspeed FILE and no --zero_stage: the DeepSpeed config"):
        job(tmp_path, {"run.sh": f"{start} --per_device_train_batch_size 4 --max_seq_len 512\n"})


OWN_FLAGS = "accelerate launch --num_processes 8 own.py --model_id Qwen/Qwen3-8B --learning_rate 1e-5 "


def test_a_program_of_flags_of_its_own_leaves_the_batch_open(tmp_path):
    """TrainingArguments' defaults are those of programs that have its flags."""
    found = job(tmp_path, {"run.sh": OWN_FLAGS})

    assert (found.layout.mbs, found.global_batch, found.architecture.num_hidden_layers) == (None, None, 36)
    assert found.asked == ("--seq-len", "--global-batch")
    assert any(text.startswith("the batch is in none of the files") for text in found.notes)


def test_such_a_batch_can_be_given_beside_the_files(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(OWN_FLAGS)

    passes = read_job([str(path), "per_device_train_batch_size=2", "gradient_accumulation_steps=4"])
    whole = read_job([str(path)], JobOptions(global_batch=64))

    assert (passes.layout.mbs, passes.global_batch, passes.engine) == (2, 64, "accelerate")
    assert (whole.layout.mbs, whole.global_batch) == (None, 64)
    assert "passes of one sequence on each rank: the files do not say how many" in whole.assumed


# --- scripts


def test_an_argument_that_is_not_given_takes_the_default_that_the_script_has_for_it(tmp_path):
    script = (
        'ZERO=$1\nif [ "$ZERO" == "" ]; then\n  ZERO=2\nfi\n'
        "deepspeed --num_gpus 8 main.py --per_device_train_batch_size 4 --deepspeed --zero_stage $ZERO\n"
    )

    found = job(tmp_path, {"run.sh": script})

    assert found.layout.zero == 2
    assert "argument 1 of run.sh is not given, taken as empty" in found.assumed


def test_gpus_that_only_the_machine_counts_come_from_the_batch_script(tmp_path):
    script = (
        "#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\n"
        "GPUS=`python3 -c 'import torch; print(torch.cuda.device_count())'`\n"
        f"srun torchrun --nproc_per_node $GPUS --nnodes $SLURM_NNODES pretrain_gpt.py {MEGATRON}\n"
    )

    assert job(tmp_path, {"run.slurm": script}).world == 32


# --- Python


def test_a_table_that_a_decorator_fills_gives_the_function_of_that_name(tmp_path):
    recipe = (
        "from megatron.bridge.training.config import ConfigContainer\n"
        "TABLE = {}\n\n\ndef register(function):\n    TABLE[function.__name__] = function\n    return function\n\n\n"
        "@register\ndef bf16_with_mxfp8_mixed():\n"
        '    return MixedPrecisionConfig(bf16=True, fp8="e4m3", fp8_recipe="mxfp8")\n\n\n'
        "def chosen(name):\n    if isinstance(name, MixedPrecisionConfig):\n        return name\n"
        '    return TABLE[name.replace("-", "_")]()\n\n\n'
        "def job_config() -> ConfigContainer:\n"
        '    return ConfigContainer(mixed_precision=chosen("bf16-with-mxfp8-mixed"), '
        "train=TrainingConfig(global_batch_size=64))\n"
    )

    found = job(tmp_path, {"recipe.py": recipe}, f"{tmp_path / 'recipe.py'}:job_config", gpus=8)

    assert (found.engine, found.precision) == ("bridge", "mxfp8")
    assert not any("isinstance" in text for text in found.assumed)


def test_parameters_of_a_recipe_without_a_default_are_asked_for_and_taken(tmp_path):
    recipe = (
        "from megatron.bridge.training.config import ConfigContainer\n\n\n"
        "def job_config(degree, precision='bf16_mixed') -> ConfigContainer:\n"
        "    return ConfigContainer(model=Provider(tensor_model_parallel_size=degree), mixed_precision=precision)\n"
    )
    (tmp_path / "recipe.py").write_text(recipe)
    item = f"{tmp_path / 'recipe.py'}:job_config"

    with pytest.raises(InputError, match="job_config: takes degree without a default: say degree=VALUE"):
        job(tmp_path, {}, item, gpus=8)
    assert job(tmp_path, {}, item, "degree=4", gpus=8).layout.tp == 4


def test_sizes_that_a_model_of_several_kinds_of_layers_cannot_take_are_named(tmp_path):
    recipe = (
        "from megatron.bridge.training.config import ConfigContainer\n\n\n"
        "def nano_config() -> ConfigContainer:\n"
        "    return ConfigContainer(model=Provider(ffn_hidden_size=1234), hf_path='nemotron3-nano-30b-a3b')\n"
    )

    found = job(tmp_path, {"recipe.py": recipe}, f"{tmp_path / 'recipe.py'}:nano_config", gpus=8)

    assert found.architecture.name == "nemotron3-nano-30b-a3b"
    assert any(text.startswith("intermediate_size = 1234: nemotron3-nano-30b-a3b has") for text in found.ignored)


# --- Automodel's own defaults


AUTOMODEL = (
    "step_scheduler: {global_batch_size: 64, local_batch_size: 2}\n"
    "distributed: {strategy: fsdp2, pp_size: %d, ep_size: %d%s}\n"
    "model: {config: {pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B}}\ndataset: {seq_len: 4096}\n"
)


@pytest.mark.parametrize(
    ("pp", "ep", "more", "zero"),
    [(1, 1, "", 3), (2, 1, "", 2), (1, 8, "", 2), (1, 8, ", moe: {reshard_after_forward: true}", 3)],
)
def test_weights_stay_in_pipelines_and_with_experts_unless_the_file_says_otherwise(tmp_path, pp, ep, more, zero):
    assert job(tmp_path, {"a.yaml": AUTOMODEL % (pp, ep, more)}, gpus=16).layout.zero == zero


@pytest.mark.parametrize(("said", "read"), [("selective", "selective"), ("full", "full"), ("true", "full")])
def test_automodel_names_what_it_computes_again(tmp_path, said, read):
    found = job(tmp_path, {"a.yaml": AUTOMODEL % (1, 1, f", activation_checkpointing: {said}")}, gpus=16)

    assert found.layout.recompute == read


def test_virtual_stages_are_not_assumed_where_only_the_model_is_missing(tmp_path):
    text = AUTOMODEL % (4, 1, ", pipeline: {pp_schedule: interleaved1f1b, layers_per_stage: 2}")
    found = job(tmp_path, {"a.yaml": text.replace("Qwen/Qwen3-30B-A3B", "someone/unknown")}, gpus=16)

    assert (found.layout.vpp, found.asked) == (None, ("--model",))
    assert not any("layers_per_stage" in told for told in found.assumed)


def test_automodel_says_its_dispatcher_and_that_its_states_are_in_single_precision(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "step_scheduler: {global_batch_size: 64, local_batch_size: 1}\n"
        "distributed: {strategy: fsdp2, tp_size: 1, pp_size: 1, ep_size: 8}\n"
        "dataset: {seq_len: 4096}\nbenchmark: {num_nodes: 1}\n"
        "model:\n  dtype: float32\n  config: {pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B}\n"
        "  backend: {dispatcher: deepep}\n"
    )
    found = read_job([str(tmp_path / "a.yaml")], JobOptions(gpus=8))

    assert found.routed_once is True
    assert found.weights == "fp32"
    assert not any("float32" in line for line in found.ignored)


@pytest.mark.parametrize(("gate", "traits"), [("true", ("beside",)), ("false", ())])
def test_a_gate_for_benchmarks_sends_rows_to_fewer_ranks_than_a_trained_one(tmp_path, gate, traits):
    text = AUTOMODEL.replace("}}\ndataset", "}, backend: {fake_balanced_gate: %s}}\ndataset")
    assert job(tmp_path, {"a.yaml": text % (1, 8, "", gate)}, gpus=8).traits == traits


def test_a_key_that_is_a_number_is_no_crash(tmp_path):
    text = "16: true\nmodel_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\nbf16: true\n"

    assert job(tmp_path, {"odd.yaml": text}, gpus=8).layout.mbs == 1
