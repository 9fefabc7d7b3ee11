"""Scripts that are handed to batch systems, with the variables and nodes that the command sets for them."""

from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.jobs.job import Job
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job

MEGATRON = """pretrain_gpt.py --num-layers 16 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 \\
  --micro-batch-size 1 --global-batch-size 64 --bf16 --vocab-size 32000 --tensor-model-parallel-size ${TP:-1}
"""
PBS = (
    """#!/bin/bash
#PBS -q gpu
cd ${PBS_O_WORKDIR}
NODES=$(wc -l < ${PBS_NODEFILE})
mpirun -np $((NODES * 8)) --npernode 8 python """
    + MEGATRON
)
SLURM = (
    """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
srun python """
    + MEGATRON
)


def job(folder: Path, item: str, **scripts: str) -> Job:
    """Return the job of a command line or file, beside scripts with these texts."""
    for name, text in scripts.items():
        (folder / name.replace("_", ".")).write_text(text)
    return read_job([item.format(here=folder)], JobOptions())


def test_qsub_sets_the_nodes_and_the_variables_of_its_script(tmp_path):
    submit = "qsub -l select=$1,walltime=1:00:00 -v TP=2,NAME=x train.sh\n"

    found = job(tmp_path, "bash {here}/submit.sh 4", submit_sh=submit, train_sh=PBS)

    assert (found.world, found.layout.tp) == (32, 2)


def test_a_script_of_pbs_sees_no_variable_that_qsub_does_not_hand_over(tmp_path):
    hidden = job(tmp_path, "{here}/a.sh", a_sh="export TP=2\nqsub -l select=2 train.sh\n", train_sh=PBS)
    handed = job(tmp_path, "{here}/a.sh", a_sh="export TP=2\nqsub -V -l select=2 train.sh\n", train_sh=PBS)
    named = job(tmp_path, "{here}/a.sh", a_sh="TP=4\nqsub -v TP -l select=2 train.sh\n", train_sh=PBS)

    assert [found.layout.tp for found in (hidden, handed, named)] == [1, 2, 4]


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("#PBS -l select=4:ncpus=64:ngpus=8", 32),
        ("#PBS -l nodes=2:ppn=1", 16),
        ("#PBS -l select=1:ncpus=1+2:ncpus=8", None),  # two kinds of nodes
    ],
)
def test_lines_of_pbs_say_how_many_nodes_there_are(tmp_path, line, ranks):
    found = job(tmp_path, "{here}/train.pbs", train_pbs=PBS.replace("#PBS -q gpu", line))

    assert found.world == ranks


def test_options_of_sbatch_count_before_the_lines_of_its_script(tmp_path):
    found = job(tmp_path, "{here}/a.sh", a_sh="sbatch --nodes=4 --export=ALL,TP=2 train.sh\n", train_sh=SLURM)

    assert (found.world, found.layout.tp) == (32, 2)


def test_a_script_that_is_submitted_runs_though_the_number_of_its_job_is_kept(tmp_path):
    found = job(tmp_path, "{here}/a.sh", a_sh="id=$(sbatch --parsable train.sh)\necho $id\n", train_sh=SLURM)

    assert found.world == 8


@pytest.mark.parametrize("item", ["bash {here}/train.sh", "TP=2 bash {here}/train.sh", "sbatch {here}/train.sh"])
def test_a_command_line_may_end_in_its_script_and_begin_with_variables(tmp_path, item):
    found = job(tmp_path, item, train_sh=SLURM)

    assert (found.world, found.layout.tp) == (8, 2 if item.startswith("TP") else 1)


@pytest.mark.parametrize(
    ("item", "ranks"),
    [
        ("llamafactory-cli train sft.yaml", None),
        ("NPROC_PER_NODE=4 llamafactory-cli train sft.yaml", 4),
        ("/opt/env/bin/trl sft --config sft.yaml --num_processes 2", 2),
        ("tune run --nproc_per_node 8 full_finetune_distributed --config tune.yaml", 8),
        (
            "python3 -m torch.distributed.run --nproc_per_node 8 sft.py --model Qwen/Qwen3-8B --bf16 True "
            "--per_device_train_batch_size 1",
            8,
        ),
    ],
)
def test_a_command_line_may_be_any_that_starts_a_training(tmp_path, monkeypatch, item, ranks):
    monkeypatch.chdir(tmp_path)
    arguments = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\nmax_length: 2048\n"
    (tmp_path / "sft.yaml").write_text(arguments)
    (tmp_path / "tune.yaml").write_text("model: {_component_: torchtune.models.llama3.llama3_8b}\nbatch_size: 1\n")

    assert read_job([item], JobOptions()).world == ranks


def test_words_that_start_no_training_are_a_file_that_is_not_there():
    with pytest.raises(InputError, match=r"my own\.yaml: no such file"):
        read_job(["my own.yaml"], JobOptions())


REGISTRY = """from torchtitan.trainer import Trainer
from . import model_registry


def small() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("1.7B"), training=TrainingConfig(local_batch_size=4, seq_len=4096, steps=10)
    )
"""


@pytest.mark.parametrize("folder", ["torchtitan/models/qwen3", "torchtitan/experiments/qwen3"])
def test_a_registry_of_torchtitan_is_found_in_the_checkout_beside_the_script(tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "config_registry.py").write_text(REGISTRY)
    launch = "torchrun --nproc_per_node 8 -m torchtitan.train --module qwen3 --config small\n"

    found = job(tmp_path, "{here}/run.sh", run_sh=launch)

    assert (found.model_name, found.global_batch) == ("qwen3-1.7b", 32)


TRAINED = "--model_name_or_path Qwen/Qwen2.5-1.5B --do_train --max_length 512 --per_device_train_batch_size 2"


@pytest.mark.parametrize("command", ["hostname -s", "date +%F", "uname -n", "nproc"])
def test_what_only_the_machine_prints_is_no_empty_word_that_parts_the_tasks_of_srun(tmp_path, command):
    step = f"srun bash -c 'accelerate launch --num_processes 4 --num_machines 1 --role $({command}): own.py {TRAINED}'"

    found = job(tmp_path, "{here}/a.sh", a_sh=f"#SBATCH --nodes=1\n{step}\n")

    assert found.world == 4


def test_an_argument_behind_the_last_that_a_submitted_script_is_given_is_empty(tmp_path):
    script = f"torchrun --nproc_per_node $1 --nnodes 1 own.py {TRAINED} $2\n"

    few = job(tmp_path, "sbatch {here}/t.sh 4", t_sh=script)
    none = job(tmp_path, "{here}/t.sh", t_sh=f"torchrun --nproc_per_node 4 --nnodes 1 own.py {TRAINED} $2\n")

    assert few.world == 4
    assert not any("further flags" in note for note in few.notes)
    assert any("$2" in note for note in none.notes)
