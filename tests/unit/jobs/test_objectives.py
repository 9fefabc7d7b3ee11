"""Objectives of a fine-tuning: texts are priced, answers that are compared are named, and generated ones refused."""

from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.jobs.job import Job
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from tests.unit.jobs.test_strangers import MEGATRON

COMPARED = "learns from answers that are compared: a frozen copy of the model"
PAIRS = "learns from pairs of answers: two sequences for each sample"
FACTORY = """model_name_or_path: Qwen/Qwen3-8B
stage: {stage}
do_train: true
finetuning_type: full
template: qwen3
cutoff_len: 2048
per_device_train_batch_size: 1
bf16: true
"""
PROGRAM = """torchrun --nproc_per_node 4 {program} --model_name_or_path Qwen/Qwen3-8B --max_length 1024 --bf16 True \\
  --per_device_train_batch_size 2 --gradient_accumulation_steps 4 {more}
"""


def job(folder: Path, name: str, text: str) -> Job:
    """Return the job of one file with this text, on four GPUs."""
    (folder / name).write_text(text)
    return read_job([str(folder / name)], JobOptions(gpus=4))


@pytest.mark.parametrize(("stage", "copied"), [("dpo", True), ("kto", True), ("rm", False)])
def test_a_frozen_copy_that_answers_are_compared_with_is_said_not_to_be_priced(tmp_path, stage, copied):
    found = job(tmp_path, "factory.yaml", FACTORY.format(stage=stage))

    assert any(text.startswith(f"stage {stage} (factory.yaml): {COMPARED}") for text in found.ignored) == copied


@pytest.mark.parametrize(("stage", "sequences"), [("dpo", 2), ("rm", 2), ("kto", 1), ("sft", 1)])
def test_both_answers_of_a_pair_are_sequences_of_the_batch(tmp_path, stage, sequences):
    found = job(tmp_path, "factory.yaml", FACTORY.format(stage=stage))

    assert (found.layout.mbs, found.global_batch) == (sequences, 4 * sequences)


def test_adapters_are_compared_with_the_model_beneath_them(tmp_path):
    text = FACTORY.replace("type: full", "type: lora\nlora_rank: 8").format(stage="dpo")

    found = job(tmp_path, "factory.yaml", text)

    assert any("the forward pass of the model without its adapters is not priced" in text for text in found.ignored)


def test_the_way_to_the_loss_of_trls_sft_is_none_of_its_dpo(tmp_path):
    by_sft = job(tmp_path, "run.sh", PROGRAM.format(program="trl/scripts/sft.py", more=""))
    by_dpo = job(tmp_path, "run.sh", PROGRAM.format(program="trl/scripts/dpo.py", more=""))

    assert (by_sft.loss, by_dpo.loss) == ("fused", "")
    assert "gradient_checkpointing True (the default of TRL's DPOConfig)" in by_dpo.assumed


def test_a_stage_that_makes_its_answers_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"stage ppo: learns from answers that are made while it trains"):
        job(tmp_path, "factory.yaml", FACTORY.format(stage="ppo"))


@pytest.mark.parametrize(
    ("program", "more", "told"),
    [
        ("orpo_training.py", "", True),
        ("scripts/run_dpo.py", "", True),
        ("train_sft_then_dpo.py", "", False),  # either
        ("train_dpo.py", "--stage sft", False),  # the flag says it
        ("train.py", "--stage 2", False),  # a number of its own
        ("dpotrainer_utils.py", "", False),  # the letters inside a word
    ],
)
def test_a_program_that_compares_answers_is_known_by_its_name(tmp_path, program, more, told):
    found = job(tmp_path, "run.sh", PROGRAM.format(program=program, more=more))

    assert any(PAIRS in text for text in found.notes) == told


def test_a_program_that_makes_its_answers_is_refused_by_its_name(tmp_path):
    with pytest.raises(InputError, match=r"train_grpo.py, by its name, learns from answers that are made"):
        job(tmp_path, "run.sh", PROGRAM.format(program="train_grpo.py", more=""))


@pytest.mark.parametrize("more", ["--num_generations 5", "--num_generations 3 --generation_batch_size 16"])
def test_answers_of_a_round_that_are_no_whole_groups_are_refused_with_the_product(tmp_path, more):
    with pytest.raises(InputError, match=r"train_grpo.py, by its name, makes .*, no multiple of num_generations [53]"):
        job(tmp_path, "run.sh", PROGRAM.format(program="train_grpo.py", more=more))


def test_another_trainer_behind_trls_command_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="this starts TRL beyond its SFTTrainer, which is not read"):
        job(tmp_path, "run.sh", "trl grpo --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1\n")


@pytest.mark.parametrize(("word", "sequences", "copied"), [("dpo", 24, True), ("kto", 12, True), ("reward", 24, False)])
def test_trls_command_says_by_its_word_what_is_learnt_from(tmp_path, word, sequences, copied):
    words = "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 3 --max_length 1024 --num_processes 4"
    found = job(tmp_path, "run.sh", f"trl {word} {words}\n")

    assert (found.world, found.global_batch) == (4, sequences)
    assert any("frozen copy" in told for told in found.ignored) == copied


@pytest.mark.parametrize("flag", ["--teacher-load", "--export-kd-teacher-load"])
def test_a_teacher_that_runs_beside_the_model_is_named_as_not_priced(tmp_path, flag):
    found = job(tmp_path, "run.sh", f"torchrun --nproc_per_node 4 pretrain_gpt.py {MEGATRON} {flag} /models/large\n")

    assert any("teacher" in text and "a second model runs beside" in text for text in found.ignored)


OWN = """from transformers import AutoModelForCausalLM, TrainingArguments
from trl import DPOConfig, DPOTrainer, PPOTrainer, RewardTrainer, SFTTrainer

class Watched{trainer}({trainer}):
    pass

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
args = {arguments}(output_dir="o", per_device_train_batch_size=3, bf16=True)
Watched{trainer}(model, args=args).train()
"""


@pytest.mark.parametrize(
    ("trainer", "arguments", "sequences"),
    [
        ("DPOTrainer", "TrainingArguments", 6),
        ("RewardTrainer", "TrainingArguments", 6),
        ("DPOTrainer", "DPOConfig", 6),
        ("SFTTrainer", "TrainingArguments", 3),
    ],
)
def test_the_class_of_a_trainer_says_what_a_program_learns_from(tmp_path, trainer, arguments, sequences):
    found = job(tmp_path, "train.py", OWN.format(trainer=trainer, arguments=arguments))

    assert found.layout.mbs == sequences
    assert any(PAIRS in text for text in found.notes) == (sequences == 6)
    assert any(COMPARED in text for text in found.ignored) == (trainer == "DPOTrainer")


def test_a_program_of_a_trainer_that_makes_its_answers_is_refused(tmp_path):
    with pytest.raises(InputError, match="trainer PPOTrainer: learns from answers that are made"):
        job(tmp_path, "train.py", OWN.format(trainer="PPOTrainer", arguments="TrainingArguments"))
