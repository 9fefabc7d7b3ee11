"""Commands of launch scripts: what they start, on which ranks, and what the names in their words say."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import MEGATRON, job


def test_a_micro_batch_alone_is_no_sign_of_megatron(tmp_path):
    flags = "--model=big --micro-batch-size=2 --global-batch-size=128 --max-steps=10"

    with pytest.raises(InputError, match=r"starts mine\.py, no training of an engine that is known"):
        job(tmp_path, {"run.sh": f"torchrun --nproc_per_node=8 mine.py {flags}\n"})


def test_a_command_that_handles_the_file_of_a_program_does_not_start_it(tmp_path):
    start = f"torchrun --nproc_per_node 8 pretrain_gpt.py {MEGATRON} --tensor-model-parallel-size 2\n"

    found = job(tmp_path, {"run.sh": f"cp pretrain_gpt.py work/\nchmod +x pretrain_gpt.py\n{start}"})

    assert (found.layout.tp, found.layout.dp) == (2, 4)


@pytest.mark.parametrize(
    ("tokenizer", "size", "told"),
    [
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model /w/Baichuan2-7B-Base/tokenizer.model", 125696, "that of"),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model /w/llama-2/tokenizer.model", 32000, "that of"),
        ("--tokenizer-type Llama2Tokenizer --tokenizer-model /w/ours/t.model", 32000, "whose file may hold another"),
    ],
)
def test_the_vocabulary_is_that_of_a_tokenizers_file_before_its_class(tmp_path, tokenizer, size, told):
    flags = MEGATRON.replace("--vocab-size 32000", tokenizer)

    found = job(tmp_path, {"run.sh": f"torchrun --nproc_per_node 8 pretrain_gpt.py {flags}\n"})

    assert found.architecture.vocab_size == size
    assert any(told in text for text in found.assumed if f"vocabulary of {size}" in text)


def test_a_deepspeed_file_that_a_flag_names_is_not_the_yaml_of_llama_factory(tmp_path):
    words = "--model_name_or_path Qwen/Qwen3-8B --stage sft --template qwen3 --finetuning_type full --cutoff_len 2048"
    more = "--per_device_train_batch_size 1 --bf16 true --deepspeed examples/ds_z3_config.json"

    found = job(tmp_path, {"run.sh": f"NPROC_PER_NODE=8 llamafactory-cli train {words} {more}\n"})

    assert (found.world, found.layout.zero) == (8, 3)
    assert any("by the name of ds_z3_config.json" in text for text in found.assumed)


def test_slots_that_an_include_names_need_no_hostfile(tmp_path):
    words = "tune.py --zero_stage 2 --per_device_train_batch_size 1 --model_name_or_path Qwen/Qwen3-8B --bf16"
    start = f"deepspeed --hostfile away --include %s {words} --max_length 2048\n"

    assert job(tmp_path, {"run.sh": start % "n1:0,1,2,3@n2:0,1,2,3"}).world == 8
    assert job(tmp_path, {"run.sh": start % "n1@n2:0,1"}).world is None


def test_a_model_below_a_folder_that_is_not_known_has_its_name(tmp_path):
    words = "--per_device_train_batch_size 1 --bf16 --max_length 2048"

    assert (
        job(tmp_path, {"run.sh": f"torchrun t.py --model_name_or_path $W/m/Qwen3-8B {words}\n"}).model_name
        == "Qwen3-8B"
    )
    assert job(tmp_path, {"run.sh": f"torchrun t.py --model_name_or_path $W/$NAME {words}\n"}).model_name is None


def test_the_program_that_swifts_command_starts_has_its_defaults(tmp_path):
    program = "/usr/lib/python3/site-packages/swift/cli/_megatron/sft.py"
    flags = "--model Qwen/Qwen3-8B --tensor_model_parallel_size 2 --max_length 4096 --micro_batch_size 1"

    found = job(tmp_path, {"run.sh": f"torchrun --nnodes 1 --nproc_per_node 8 {program} {flags}\n"})

    assert (found.seq_len, found.layout.tp, found.layout.zero, found.global_batch) == (4096, 2, 1, 16)


@pytest.mark.parametrize("told", ["#SBATCH --gres=gpu:4\n#SBATCH -N 2\n", ""])
def test_what_a_script_counts_of_its_job_is_what_slurm_was_asked_for(tmp_path, told):
    text = f"""#!/bin/bash
{told}ranks=$(nvidia-smi -L | wc -l)
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l)
srun torchrun --nnodes=$nodes --nproc_per_node=$ranks pretrain_gpt.py {MEGATRON}
"""

    assert job(tmp_path, {"run.sh": text}).world == (8 if told else None)


@pytest.mark.parametrize(("strategy", "stage"), [("2", 2), ("FULL_SHARD", 3), ("NO_SHARD", 0)])
def test_the_variable_that_accelerate_heeds_says_what_is_sharded(tmp_path, strategy, stage):
    words = "--per_device_train_batch_size 1 --model_name_or_path Qwen/Qwen3-8B --bf16 --max_length 2048"
    text = f"export FSDP_SHARDING_STRATEGY={strategy}\ntorchrun --nproc_per_node 8 t.py {words} --fsdp auto_wrap\n"

    assert job(tmp_path, {"run.sh": text}).layout.zero == stage


def test_a_command_that_another_hands_on_is_the_one_that_trains(tmp_path):
    start = "python submit.py --num_nodes 2 --image ours --gpus 8 -- torchrun --nnodes 2 --nproc_per_node 8"

    found = job(tmp_path, {"run.sh": f"{start} pretrain_gpt.py {MEGATRON} --tensor-model-parallel-size 2\n"})

    assert (found.world, found.layout.tp) == (16, 2)
    assert not any("image" in text for text in found.ignored)


def test_a_command_line_may_be_longer_than_a_name_of_a_file(tmp_path):
    (tmp_path / "run.sh").write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {MEGATRON} $1\n")
    words = " ".join(f"NAME_{number}=some-value" for number in range(40))

    found = job(tmp_path, {}, f"bash {tmp_path}/run.sh --tensor-model-parallel-size=4 {words}")

    assert found.layout.tp == 4


@pytest.mark.parametrize(("recipe", "left"), [("nvfp4", []), ("custom", ["fp4-recipe = custom"])])
def test_a_recipe_of_fp4_that_is_priced_is_not_left_out(tmp_path, recipe, left):
    words = f"pretrain_gpt.py {MEGATRON} --tensor-model-parallel-size 2 --fp4-format e2m1 --fp4-recipe {recipe}\n"

    found = job(tmp_path, {"run.sh": f"torchrun --nproc_per_node 8 {words}"})

    assert found.precision == "nvfp4"
    assert [text for text in found.ignored if "fp4" in text] == left
