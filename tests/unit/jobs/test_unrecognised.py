"""Files of no engine that is read: each refusal says what is missing, or what is started in its place."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.job import understood
from meshwright.jobs.shell.calls import called_script
from meshwright.jobs.shell.script import follow
from meshwright.jobs.unsupported import unread_command, unread_configuration
from tests.unit.jobs.test_strangers import MEGATRON, job


def test_scripts_that_are_sourced_and_not_here_are_asked_for_with_what_is_known(tmp_path):
    run = "TP=4\nGBS=96\nLOG=out\n. `pwd`/COMMON.sh\nsource submit.sh\n"

    with pytest.raises(InputError) as refused:
        job(tmp_path, {"own.sh": run})

    told = str(refused.value)
    assert "sources $(pwd)/COMMON.sh and submit.sh, which are not here" in told
    assert "(--job own.sh COMMON.sh submit.sh)" in told
    assert told.endswith("it sets TP=4, GBS=96")


def test_a_file_of_settings_alone_is_said_to_start_nothing(tmp_path):
    files = {"config_a.sh": "source common.sh\nexport TP=2\n", "common.sh": "export DGXNGPU=4\nexport TP=8\n"}

    with pytest.raises(InputError, match=r"starts no training: give the script that does too.*DGXNGPU=4, TP=2"):
        job(tmp_path, files, str(tmp_path / "config_a.sh"))


def test_a_script_that_sources_nothing_missing_and_sets_nothing_is_still_of_no_engine(tmp_path):
    with pytest.raises(InputError, match="no engine's configuration is recognised"):
        job(tmp_path, {"own.sh": "echo hello\n"})


def test_the_advice_beside_a_program_of_ones_own_is_one_without_its_files(tmp_path):
    with pytest.raises(InputError, match=r"--layout, --gpus, --global-batch and --seq-len in place of --job"):
        job(tmp_path, {"own.sh": "torchrun --nproc_per_node 8 own.py\n"})


@pytest.mark.parametrize(
    ("command", "called"),
    [
        ("srun ./inner.sh", (("srun",), "./inner.sh", [])),
        ("srun -N 4 --label ./inner.sh a b", (("srun", "-N", "4", "--label"), "./inner.sh", ["a", "b"])),
        ("mpirun -np 2 /opt/inner.bash", (("mpirun", "-np", "2"), "/opt/inner.bash", [])),
        ("srun --prolog set.sh ./inner.sh", (("srun", "--prolog", "set.sh"), "./inner.sh", [])),
        ("srun -o log.sh hostname", None),
        ("srun ./wrap.sh python own.py", None),
    ],
)
def test_a_script_that_a_starter_of_tasks_runs_is_known(command, called):
    assert called_script(command.split()) == called


def test_a_script_behind_srun_is_followed_with_the_tasks_of_its_step(tmp_path):
    outer = "#!/bin/bash\n#SBATCH --nodes=8\n#SBATCH --ntasks-per-node=1\nsrun ./inner.sh\n"
    inner = f"torchrun --nnodes=$SLURM_NTASKS --nproc_per_node=4 pretrain_gpt.py {MEGATRON}\n"

    found = job(tmp_path, {"outer.slurm": outer, "inner.sh": inner}, str(tmp_path / "outer.slurm"))

    assert found.world == 32


def test_a_script_behind_srun_that_is_not_here_is_asked_for(tmp_path):
    outcome = follow("srun --nodes 2 ./inner.sh\n", where="outer.sh")
    assert outcome.called_missing == ["inner.sh"]

    with pytest.raises(InputError, match=r"starts inner\.sh, which is not here"):
        job(tmp_path, {"outer.sh": "srun --nodes 2 ./inner.sh\n"})


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python -u -m paddle.distributed.launch --gpus 0,1 own.py own.json", "PaddlePaddle"),
        ("torchrun --nproc_per_node=8 main_training_llama.py --use_dummy_dataset=True", "fms-fsdp"),
        ("torchrun --nproc_per_node=4 train.py --n_embd=256 --n_layer=4", "nanoGPT"),
        ("torchrun --nproc_per_node=4 run_clm.py --block_size 1024 --per_device_train_batch_size 1", None),
    ],
)
def test_a_trainer_that_is_not_read_is_named_by_its_launcher_program_or_flag(words, name):
    assert unread_command(words.split()) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("batch_size = 4\nblock_size = 64\n", "nanoGPT"),
        ("init_from = 'gpt2'\ngradient_accumulation_steps = 8\n", "nanoGPT"),
        ("import torch\nbatch_size = 4\nblock_size = 64\n", None),
        ("hybrid_zero_optimizer = dict(clip_grad_norm=1.0)\nparallel = dict(zero1=dict(size=-1))\n", "InternEvo"),
        ("batch_size = 4\n", None),
    ],
)
def test_a_trainer_is_named_by_the_lines_of_its_configuration(text, name):
    assert unread_configuration(text) == name


def test_a_configuration_of_a_trainer_that_is_not_read_is_refused_by_its_name(tmp_path):
    text = "hybrid_zero_optimizer = dict(a=1)\nparallel = dict(b=2)\n"

    with pytest.raises(InputError, match="starts InternEvo, which is not read"):
        job(tmp_path, {"own.py": text}, gpus=8)


@pytest.mark.parametrize(
    ("program", "trains"),
    [
        ("tools/hf2own_weight_converter.py", False),
        ("tools/checkpoint/convert.py", False),
        ("tools/own_hf_to_mcore.py", False),
        ("examples/inference/run_text_generation_server.py", False),
        ("tools/merge_shards.py", False),
        ("evaluate_own.py", False),
        ("finetune_and_convert.py", True),
        ("own_converted.py", True),
    ],
)
def test_a_program_that_converts_or_serves_is_no_training_whatever_its_flags_are(tmp_path, program, trains):
    run = f"torchrun --nproc_per_node 8 {program} {MEGATRON} --tensor-model-parallel-size 2\n"

    if trains:
        assert job(tmp_path, {"own.sh": run}).world == 8
        return
    with pytest.raises(InputError, match=f"starts {program.rpartition('/')[2]}, no training"):
        job(tmp_path, {"own.sh": run})


def test_a_script_that_converts_before_it_trains_is_its_training(tmp_path):
    words = f"{MEGATRON} --tensor-model-parallel-size 2"
    run = f"torchrun --nproc_per_node 2 convert_own.py {words}\ntorchrun --nproc_per_node 8 pretrain_gpt.py {words}\n"

    assert job(tmp_path, {"own.sh": run}).world == 8


def test_the_configuration_that_a_command_names_names_the_trainer(tmp_path):
    files = {
        "own.sh": "torchrun --nproc_per_node 8 train.py --config ./own.py\n",
        "own.py": "hybrid_zero_optimizer = dict(a=1)\nparallel = dict(b=2)\n",
    }

    with pytest.raises(InputError, match="starts InternEvo, which is not read"):
        job(tmp_path, files, str(tmp_path / "own.sh"))


def test_a_hostfile_that_is_not_here_is_named(tmp_path):
    run = f"deepspeed --num_nodes=1 --hostfile /srv/hosts pretrain_gpt.py {MEGATRON} --deepspeed\n"

    found = job(tmp_path, {"own.sh": run})

    assert found.world is None
    assert any("slots in /srv/hosts, which is not here" in note for note in found.notes)


def test_a_script_for_other_accelerators_says_so(tmp_path):
    run = f"export ASCEND_RT_VISIBLE_DEVICES=0,1\ntorchrun --nnodes 1 --nproc_per_node 2 pretrain_gpt.py {MEGATRON}\n"

    assert any("written for Ascend NPUs" in note for note in job(tmp_path, {"own.sh": run}).notes)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("own.toml", '[model]\ntype = "unet"\n[training]\nbatch_size = 4\nepochs = 3\n[optimizer]\nlr = 1e-4\n'),
        ("own.yaml", "training: {micro_batch_size: 4, seq_length: 512}\nmodel: {hidden_size: 256, num_heads: 8}\n"),
        ("own.yaml", "model: {dim: 256, n_layers: 4}\ndata: {batch_size: 2}\ndistributed: {tp_size: 2, dp_size: 4}\n"),
        ("own.yaml", "trainer: {num_nodes: 2, devices: 8}\nmodel: {hidden_size: 256}\n"),
    ],
)
def test_names_that_many_trainers_have_make_a_file_no_engines(tmp_path, name, text):
    with pytest.raises(InputError, match="no engine's configuration is recognised"):
        job(tmp_path, {name: text}, gpus=8)


@pytest.mark.parametrize(
    ("name", "text", "engine"),
    [
        ("own.toml", "[training]\nseq_len = 512\nlocal_batch_size = 2\n", "torchtitan"),
        ("own.toml", "[training]\nbatch_size = 2\ntensor_parallel_degree = 2\n", "torchtitan"),
        ("own.yaml", "micro_batch_size: 1\nlanguage_model: {num_layers: 4, num_attention_heads: 8}\n", "megatron"),
        ("own.yaml", "model_parallel: {tensor_model_parallel_size: 2}\nmicro_batch_size: 1\n", "megatron"),
    ],
)
def test_a_setting_that_is_an_engines_own_makes_a_file_the_engines(tmp_path, name, text, engine):
    assert job(tmp_path, {name: text}, gpus=8).engine == engine


def test_adapters_are_told_of_a_job_that_leaves_something_open(tmp_path):
    run = """NNODES=1 NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B --train_type lora --lora_rank 16 \\
    --target_modules all-linear --tensor_model_parallel_size 2 --micro_batch_size 1 --global_batch_size 32
"""

    found = job(tmp_path, {"own.sh": run})

    assert found.seq_len is None
    assert "adapters of rank 16, 8 GPUs, tp=2" in understood(found)


PADDLES = """{"model_name_or_path": "Qwen/Qwen2.5-7B", "per_device_train_batch_size": 2, "output_dir": "out",
"max_length": 1024, "bf16": true, "gradient_accumulation_steps": 4, %s}"""


@pytest.mark.parametrize(
    "own",
    [
        '"recompute": true, "tensor_parallel_degree": 4, "pipeline_parallel_degree": 1, "lora": true',
        '"unified_checkpoint": true, "sharding": "stage1"',
        '"recompute": false, "fp16_opt_level": "O2", "sharding": "stage3"',
        '"sharding_parallel_degree": 8, "amp_master_grad": true',
    ],
)
def test_arguments_of_paddle_are_not_taken_for_hugging_faces(tmp_path, own):
    with pytest.raises(InputError, match="this is a configuration of PaddleNLP, which is not read"):
        job(tmp_path, {"sft.json": PADDLES % own}, gpus=8)


@pytest.mark.parametrize(
    "own", ['"stage": "SFT", "fine_tuning": "full"', '"sharding": "stage1", "tensor_model_parallel_size": 2']
)
def test_arguments_of_paddles_formers_are_not_taken_for_another_engines(tmp_path, own):
    with pytest.raises(InputError, match="this is a configuration of PaddleFormers, which is not read"):
        job(tmp_path, {"sft.yaml": PADDLES % own}, gpus=8)


def test_arguments_of_hugging_face_with_a_degree_of_their_own_program_are_still_read(tmp_path):
    found = job(tmp_path, {"sft.json": PADDLES % '"tensor_parallel_degree": 2, "fp16_opt_level": "O1"'}, gpus=8)

    assert found.layout.tp == 2


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("torchrun --nnodes 4 --nproc_per_node 8 own.py", r"nnodes 4 x nproc_per_node 8 = 32 ranks$"),
        ("srun -N 2 --ntasks-per-node 4 python own.py", r"= 8 ranks$"),
        ("python own.py", r"TrainingArguments$"),
    ],
)
def test_ranks_that_start_a_program_of_no_engine_are_told(tmp_path, start, told):
    with pytest.raises(InputError, match=told):
        job(tmp_path, {"own.sh": f"{start}\n"})
