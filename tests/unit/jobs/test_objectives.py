"""Objectives of a fine-tuning: texts are priced, answers that are compared are named, and generated ones refused."""

from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.jobs.draft import JobOptions
from meshwright.jobs.job import Job
from meshwright.jobs.read import read_job
from tests.unit.jobs.test_strangers import MEGATRON

COMPARED = "learns from answers that are compared (two sequences for each sample"
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


@pytest.mark.parametrize("stage", ["dpo", "kto", "rm"])
def test_a_stage_that_compares_answers_is_said_not_to_be_priced(tmp_path, stage):
    found = job(tmp_path, "factory.yaml", FACTORY.format(stage=stage))

    assert [text for text in found.ignored if text.startswith(f"stage {stage} (factory.yaml): {COMPARED}")]


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

    assert any(COMPARED in text for text in found.ignored) == told


def test_a_program_that_makes_its_answers_is_refused_by_its_name(tmp_path):
    with pytest.raises(InputError, match=r"train_grpo.py, by its name, learns from answers that are made"):
        job(tmp_path, "run.sh", PROGRAM.format(program="train_grpo.py", more=""))


def test_another_trainer_behind_trls_command_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="this starts TRL beyond its SFTTrainer, which is not read"):
        job(tmp_path, "run.sh", "trl dpo --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1\n")


@pytest.mark.parametrize("flag", ["--teacher-load", "--export-kd-teacher-load"])
def test_a_teacher_that_runs_beside_the_model_is_named_as_not_priced(tmp_path, flag):
    found = job(tmp_path, "run.sh", f"torchrun --nproc_per_node 4 pretrain_gpt.py {MEGATRON} {flag} /models/large\n")

    assert any("teacher" in text and "a second model runs beside" in text for text in found.ignored)
