"""Scripts that start several trainings: one job where no price tells them apart, else a choice by line."""

from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.jobs.job import Job
from meshwright.jobs.options import JobOptions
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
    with pytest.raises(InputError, match=r"3 different training commands .*, of tp 1, 2 and 4; expected one of"):
        job(tmp_path, f"for TP in 1 2 4; do\n  {MEGATRON} --tensor-model-parallel-size $TP\ndone\n")


def test_a_round_of_loops_is_chosen_by_their_variables(tmp_path):
    text = f"""for TP in 1 2; do
  for ZERO in "" --use-distributed-optimizer; do
    SP=; [ $TP -gt 1 ] && SP=--sequence-parallel
    [ $TP = 1 ] && [ -z "$ZERO" ] && continue
    {MEGATRON} --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 $SP $ZERO
  done
done
"""
    rounds = r"\(TP=1 ZERO=--use.*\), \(TP=2 ZERO=\), \(TP=2 ZERO=--use.*\)"
    chosen = f"expected one of {rounds}: --job run.sh TP=1 ZERO=--use-distributed-optimizer names it"
    with pytest.raises(InputError, match=chosen):
        job(tmp_path, text)

    found = read_job([str(tmp_path / "run.sh"), "TP=1", "ZERO=--use-distributed-optimizer"], JobOptions())

    assert (found.layout.tp, found.layout.pp, found.layout.zero) == (1, 2, 1)
    assert read_job([str(tmp_path / "run.sh"), "TP=2", "ZERO="], JobOptions()).layout.zero == 0


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


# --- configurations of several trainings

FACTORY = "model_name_or_path: {model}\nstage: sft\nfinetuning_type: full\ncutoff_len: {length}\nbf16: true\n"
FACTORY += "per_device_train_batch_size: 1\n"
AXOLOTL = "base_model: {model}\nsequence_len: {length}\nmicro_batch_size: 1\ndatasets: [{{path: a}}]\n"


def two_files(folder: Path, text: str) -> list[str]:
    """Write two configurations that differ in their length, and return their paths."""
    for name, length in (("one.yaml", 2048), ("two.yaml", 4096)):
        (folder / name).write_text(text.format(model="Qwen/Qwen3-8B", length=length))
    return [str(folder / name) for name in ("one.yaml", "two.yaml")]


@pytest.mark.parametrize(("command", "text"), [("llamafactory-cli train", FACTORY), ("axolotl train", AXOLOTL)])
def test_trainings_by_files_of_their_own_are_not_mixed(tmp_path, command, text):
    two_files(tmp_path, text)

    with pytest.raises(InputError, match="starts 2 different training commands .* of seq_len 2048 and 4096"):
        job(tmp_path, f"{command} one.yaml\n{command} two.yaml\n", gpus=8)
    lengths = [job(tmp_path, f"{command} one.yaml\n{command} two.yaml\n", line=line, gpus=8).seq_len for line in (1, 2)]
    assert lengths == [2048, 4096]


def test_files_that_are_given_for_other_trainings_are_left_out(tmp_path):
    files = two_files(tmp_path, FACTORY)
    (tmp_path / "run.sh").write_text("llamafactory-cli train one.yaml\nllamafactory-cli train two.yaml\n")

    found = read_job([f"{tmp_path / 'run.sh'}:1", *files], JobOptions(gpus=8))

    assert (found.seq_len, found.files) == (2048, ("run.sh", "one.yaml"))


def test_trainings_of_other_models_are_told_by_their_names(tmp_path):
    (tmp_path / "one.yaml").write_text(FACTORY.format(model="Qwen/Qwen3-8B", length=2048))
    (tmp_path / "two.yaml").write_text(FACTORY.format(model="Qwen/Qwen3-14B", length=2048))

    with pytest.raises(InputError, match="of the models Qwen/Qwen3-8B and Qwen/Qwen3-14B; expected one"):
        job(tmp_path, "llamafactory-cli train one.yaml\nllamafactory-cli train two.yaml\n", gpus=8)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (
            "accelerate launch --use_deepspeed --zero_stage 2",
            "accelerate launch --use_deepspeed --zero_stage 3",
            "zero",
        ),
        ("torchrun --nnodes 1 --nproc_per_node 8", "torchrun --nnodes 2 --nproc_per_node 8", "dp 8 and 16"),
    ],
)
def test_trainings_that_differ_in_the_words_of_their_launcher_are_two(tmp_path, first, second, told):
    words = "train.py --model_name_or_path Qwen/Qwen3-8B --max_length 2048 --per_device_train_batch_size 1 --bf16 True"
    more = " --num_processes 8" if "accelerate" in first else ""

    with pytest.raises(InputError, match=f"starts 2 different training commands .*, of {told}"):
        job(tmp_path, f"{first}{more} {words}\n{second}{more} {words}\n")


def test_the_ranks_of_machines_make_one_training(tmp_path):
    script = "for N in 0 1; do\n  ssh node$N torchrun --nnodes 2 --node_rank $N --master_addr node$N "

    found = job(tmp_path, script + MEGATRON.removeprefix("torchrun ") + "\ndone\n")

    assert found.world == 16
    assert not [text for text in found.assumed if "trainings" in text]
