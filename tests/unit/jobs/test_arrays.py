"""Job arrays: one job where no price tells the tasks apart, else a choice by the variable that numbers them."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.job import Job
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --array={tasks}\n"
MEGATRON = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 16 --hidden-size 2048 --num-attention-heads 16 \\
  --micro-batch-size 1 --global-batch-size 64 --bf16 --vocab-size 32000 --seq-length $LENGTH
"""


def job(folder, choice: str, *, tasks: str = "0-2%1", more: tuple[str, ...] = ()) -> Job:
    """Return the job of a script that chooses its length before it trains."""
    (folder / "sweep.sbatch").write_text(f"{HEAD.format(tasks=tasks)}{choice}\n{MEGATRON}")
    return read_job([str(folder / "sweep.sbatch"), *more], JobOptions())


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("ALL=(1024 2048 4096)\nLENGTH=${ALL[$SLURM_ARRAY_TASK_ID]}", "1024, 2048 and 4096"),
        ("LENGTH=$((1024 << SLURM_ARRAY_TASK_ID))", "1024, 2048 and 4096"),
        ("LENGTH=$((1024 * (SLURM_ARRAY_TASK_MAX + 1)))\n[ $SLURM_ARRAY_TASK_ID = 1 ] && LENGTH=1024", "3072 and 1024"),
        ("case $SLURM_ARRAY_TASK_ID in 0) LENGTH=1024;; *) LENGTH=4096;; esac", "1024 and 4096"),
        ("LENGTH=1024\nif [ $SLURM_ARRAY_TASK_ID -gt 1 ]; then LENGTH=4096; fi", "1024 and 4096"),
        ("LENGTH=1024\n(( SLURM_ARRAY_TASK_ID > 1 )) && LENGTH=4096", "1024 and 4096"),
        ("I=${SLURM_ARRAY_TASK_ID:-0}\nLENGTH=$((1024 + 1024 * (I / 2)))", "1024 and 2048"),
    ],
)
def test_tasks_that_differ_in_a_price_are_named_with_what_differs(tmp_path, choice, told):
    with pytest.raises(InputError, match=rf"tasks 0 to 2 are trainings of seq_len {told}; .*SLURM_ARRAY_TASK_ID=0"):
        job(tmp_path, choice)


def test_a_task_that_is_named_is_the_one_that_is_read(tmp_path):
    choice = "LENGTH=$((1024 << SLURM_ARRAY_TASK_ID))"

    assert [job(tmp_path, choice, more=(f"SLURM_ARRAY_TASK_ID={task}",)).seq_len for task in (0, 2)] == [1024, 4096]


@pytest.mark.parametrize("tasks", ["0-2", "1-100%1", "3,7,9", "0-8:4"])
def test_tasks_that_differ_in_their_seed_alone_are_one_job(tmp_path, tasks):
    found = job(tmp_path, "LENGTH=2048\nSEED=$((SLURM_ARRAY_TASK_ID * 7))", tasks=tasks)

    assert found.seq_len == 2048
    assert "differ in nothing that is priced" in found.assumed[0]


def test_a_script_that_does_not_ask_for_its_task_has_one_job(tmp_path):
    assert not [text for text in job(tmp_path, "LENGTH=2048").assumed if "array" in text]


def test_steps_and_lists_of_tasks_are_followed(tmp_path):
    choice = "LENGTH=$((1024 * SLURM_ARRAY_TASK_ID))"

    with pytest.raises(InputError, match="seq_len 1024, 3072, 5120 and 8192;"):
        job(tmp_path, choice, tasks="1-5:2,8")


def test_a_task_that_cannot_be_read_is_said_with_its_reason(tmp_path):
    with pytest.raises(InputError, match=r"tasks 0 to 2 are different trainings; .*seq-length: expected"):
        job(tmp_path, "ALL=(1024 2048 long)\nLENGTH=${ALL[$SLURM_ARRAY_TASK_ID]}")


@pytest.mark.parametrize("word", ["--array=0-1", "-a 0-1"])
def test_an_array_may_be_asked_for_by_the_command_that_submits(tmp_path, word):
    (tmp_path / "train.sh").write_text(f"LENGTH=$((1024 << SLURM_ARRAY_TASK_ID))\n{MEGATRON}")
    (tmp_path / "submit.sh").write_text(f"sbatch {word} train.sh\n")

    with pytest.raises(InputError, match="seq_len 1024 and 2048"):
        read_job([str(tmp_path / "submit.sh")], JobOptions())


def test_an_array_of_pbs_has_its_own_variable(tmp_path):
    head = "#!/bin/bash\n#PBS -l select=1\n#PBS -J 1-3\nLENGTH=$((1024 * PBS_ARRAY_INDEX))\n"
    (tmp_path / "train.pbs").write_text(head + MEGATRON)

    with pytest.raises(InputError, match=r"seq_len 1024, 2048 and 3072; .*PBS_ARRAY_INDEX=1"):
        read_job([str(tmp_path / "train.pbs")], JobOptions())
