"""Batch systems and what starts tasks under them: nodes, tasks and GPUs by the options of each."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

TRAIN = "python run_clm.py --model_name_or_path Qwen/Qwen2.5-1.5B --do_train --block_size 512 --bf16"
TRAIN += " --per_device_train_batch_size 2 --gradient_accumulation_steps 2"
AGENT = TRAIN.replace("python", "torchrun --nnodes 3 --nproc_per_node {ranks}")


def world(tmp_path, *lines: str) -> int | None:
    return job(tmp_path, {"run.sh": "\n".join(["#!/bin/bash", *lines, ""])}).world


@pytest.mark.parametrize(
    ("starter", "tasks"),
    [
        ("jsrun -n 3 -a 4 -g 4", 12),
        ("jsrun -n3 -a4 -c20 -g4 -r1", 12),
        ("jsrun --nrs=6 --tasks_per_rs=2 --gpu_per_rs=2", 12),
        ("jsrun -n 12 -g 1", 12),
        ("jsrun --np 6 -g 1", 6),
        ("aprun -n 12 -N 4", 12),
        ("flux run -N 3 -n 12 -g 1", 12),
        ("flux run -N3 --tasks-per-node=4", 12),
        ("lrun -N 3 -T 4", 12),
        ("ibrun -n 12", 12),
        ("srun -N3 -n12", 12),
        ("mpiexec.hydra -n 12 -ppn 4", 12),
        ("mpirun -H a1:4,a2:4,a3:4", 12),
    ],
)
def test_each_starter_of_tasks_counts_them_by_its_own_options(tmp_path, starter, tasks):
    assert world(tmp_path, f"{starter} {TRAIN}") == tasks


def test_jsrun_starts_an_agent_on_each_resource_set(tmp_path):
    assert world(tmp_path, f"jsrun -n 3 -r 1 -a 1 -g 4 {AGENT.format(ranks=4)}") == 12


def test_more_ranks_than_the_gpus_of_jsruns_sets_on_a_host_are_refused(tmp_path):
    with pytest.raises(InputError, match="nproc_per_node 8 contradicts r 1 x g 4"):
        world(tmp_path, f"jsrun -n 3 -r 1 -a 1 -g 4 {AGENT.format(ranks=8)}")


@pytest.mark.parametrize(
    "lines",
    [
        ("#SBATCH -N3", "#SBATCH --ntasks-per-node=4", f"srun {TRAIN}"),
        ("#SBATCH -N3 --ntasks-per-node=4", f"ibrun {TRAIN}"),
        ("#SBATCH -n12", f"mpirun {TRAIN}"),
        ("#PBS -l select=3:ncpus=8:mpiprocs=4:ngpus=4", f"mpirun {TRAIN}"),
        ("#BSUB -n 12", '#BSUB -R "span[ptile=4]"', f"mpirun {TRAIN}"),
    ],
)
def test_tasks_that_no_option_counts_are_those_of_the_batch_system(tmp_path, lines):
    assert world(tmp_path, *lines) == 12


@pytest.mark.parametrize("starter", ["mpirun --hostfile hosts", "mpirun -H a1,a2", "mpirun -np $RANKS"])
def test_tasks_that_are_counted_elsewhere_are_not_those_of_the_batch_system(tmp_path, starter):
    assert world(tmp_path, "#SBATCH -n 12", f"{starter} {TRAIN}") is None


@pytest.mark.parametrize(
    "head",
    [
        ("#SBATCH --gres=gpu:4,tmpfs:1",),
        ("#SBATCH --gres=tmpfs:2,gpu:a100:4",),
        ("#SBATCH --gpus-per-node=a100:4",),
        ("#SBATCH -G 12",),
        ("#SBATCH --gpus=h100:12",),
        ("#SBATCH --ntasks-per-node=1 --gpus-per-task=4",),
    ],
)
def test_the_gpus_of_a_node_are_as_many_as_slurm_is_asked_for_however_that_is_said(tmp_path, head):
    assert world(tmp_path, "#SBATCH -N 3", *head, f"srun {AGENT.format(ranks='gpu')}") == 12


def test_a_range_of_nodes_is_no_number_of_them(tmp_path):
    assert world(tmp_path, "#SBATCH --nodes=2-4", "#SBATCH --ntasks-per-node=4", f"srun {TRAIN}") is None


def test_the_hosts_in_the_hostfile_of_lsf_are_counted_without_the_node_of_the_script(tmp_path):
    count = "N=$(cat $LSB_DJOB_HOSTFILE | sort | uniq | grep -v batch | wc -l)"
    line = f"jsrun -n $N -r 1 -a 1 -g 4 {AGENT.format(ranks=4)}".replace("--nnodes 3", "--nnodes $N")

    assert world(tmp_path, "#BSUB -nnodes 3", count, line) == 12


def test_agents_that_wait_for_more_nodes_than_lsf_gives_are_refused(tmp_path):
    with pytest.raises(InputError, match="nnodes 3 contradicts #BSUB 2 nodes"):
        world(tmp_path, "#BSUB -nnodes 2", f"jsrun -n 3 -a 1 -g 4 {AGENT.format(ranks=4)}")


def test_tasks_of_an_array_of_lsf_that_differ_are_asked_for(tmp_path):
    line = f"jsrun -n 4 {TRAIN}".replace("512", "$((512 * LSB_JOBINDEX))")

    with pytest.raises(InputError, match=r"seq_len 512 and 1024; .*LSB_JOBINDEX=1"):
        world(tmp_path, '#BSUB -J "tune[1-2]"', line)


STARTED = f"mpirun -np $((NHOSTS * 4)) -npernode 4 {TRAIN}"


@pytest.mark.parametrize(
    ("asked", "ranks"),
    [
        ("#$ -l rt_F=6", 24),
        ("#$ -cwd -l h_rt=1:00:00,node_f=2", 8),
        ("#$ -l f_node=3\n#$ -l h_rt=0:10:00", 12),
        ("#$ -l rt_G.small=1", None),  # a part of a node
        ("# $ -l rt_F=6", None),
    ],
)
def test_whole_nodes_that_grid_engine_is_asked_for_are_its_hosts(tmp_path, asked, ranks):
    assert world(tmp_path, asked, STARTED) == ranks


def test_whole_nodes_of_the_command_that_submits_are_the_hosts_of_its_script(tmp_path):
    files = {"go.sh": "qsub -g group -l rt_AF=2 train.sh\n", "train.sh": f"#!/bin/bash\n#$ -cwd\n{STARTED}\n"}

    assert job(tmp_path, files, str(tmp_path / "go.sh")).world == 8
