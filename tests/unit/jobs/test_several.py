"""Scripts that start several trainings: one job where no price tells them apart, else a choice by line."""

from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.jobs.draft import JobOptions
from meshwright.jobs.job import Job
from meshwright.jobs.read import read_job

MEGATRON = """torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 16 --hidden-size 2048 --num-attention-heads 16 \\
  --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --bf16 --vocab-size 32000 """


def job(folder: Path, text: str, *, line: int | None = None, gpus: int | None = None) -> Job:
    """Return the job of a script with this text, of the training in one of its lines where one is given."""
    (folder / "run.sh").write_text(text)
    path = str(folder / "run.sh")
    return read_job([path if line is None else f"{path}:{line}"], JobOptions(gpus=gpus))


def test_a_loop_over_what_is_not_priced_is_one_job(tmp_path):
    found = job(tmp_path, f"for LR in 1e-4 3e-4 1e-3; do\n  {MEGATRON} --lr $LR\ndone\n")

    assert found.global_batch == 64
    assert found.assumed[0] == (
        "run.sh starts 3 trainings (line 2: pretrain_gpt.py), which differ in nothing that is priced"
    )


def test_trainings_on_other_data_are_one_job(tmp_path):
    found = job(tmp_path, f"{MEGATRON} --data-path a\n{MEGATRON} --data-path b\n")

    assert found.layout.dp == 8


def test_trainings_that_differ_in_a_price_are_named_with_what_differs(tmp_path):
    text = f"{MEGATRON} --tensor-model-parallel-size 2\n{MEGATRON} --tensor-model-parallel-size 4\n"

    with pytest.raises(
        InputError, match=r"2 different training commands .*, of tp 2 and 4; expected one: --job run.sh:3"
    ):
        job(tmp_path, text)


def test_a_sweep_names_all_values_of_what_differs(tmp_path):
    with pytest.raises(InputError, match=r"3 different training commands .*, of tp 1, 2 and 4; expected one$"):
        job(tmp_path, f"for TP in 1 2 4; do\n  {MEGATRON} --tensor-model-parallel-size $TP\ndone\n")


def test_the_training_of_a_line_is_read_where_it_is_asked_for(tmp_path):
    text = f"{MEGATRON} --tensor-model-parallel-size 2\n{MEGATRON} --tensor-model-parallel-size 4\n"

    assert job(tmp_path, text, line=3).layout.tp == 4
    with pytest.raises(InputError, match=r"starts no training in line 2 \(it starts line 1: pretrain_gpt.py, line 3"):
        job(tmp_path, text, line=2)


def test_more_trainings_than_are_compared_are_refused(tmp_path):
    with pytest.raises(InputError, match="starts 40 different training commands"):
        job(tmp_path, f"for N in $(seq 1 40); do\n  {MEGATRON} --seed $N\ndone\n")


# --- the number of a machine's GPUs


@pytest.mark.parametrize(
    ("test", "sharded"),
    [
        ('[ "$N" -gt 1 ]', True),
        ("[[ $N -ge 2 ]]", True),
        ('[ "$N" -eq 1 ]', False),
        ('[ "$N" -gt 4 ]', False),  # not decided: taken as false
    ],
)
def test_a_machine_is_taken_to_have_more_than_one_gpu(tmp_path, test, sharded):
    words = "--fsdp 'full_shard auto_wrap'"
    script = f'N=$(nvidia-smi -L | wc -l)\nMORE=\nif {test}; then MORE="{words}"; fi\n'
    script += "accelerate launch --num_processes $N train.py --model_name_or_path Qwen/Qwen3-8B --max_length 2048 "
    script += "--per_device_train_batch_size 1 --bf16 True $MORE\n"

    found = job(tmp_path, script, gpus=8)

    assert found.layout.zero == (3 if sharded else 0)
    assert any("more than one GPU" in text for text in found.assumed) == (test != '[ "$N" -gt 4 ]')
