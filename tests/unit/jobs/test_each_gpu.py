"""Launchers that start a rank on each GPU that they see: how many those are is the cluster's word, where no file's."""

import pytest

from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from tests.unit.jobs.test_strangers import job

TUNE = "tune.py --model_name_or_path Qwen/Qwen2.5-1.5B --do_train --block_size 512 --per_device_train_batch_size 2"
FACTORY = "model_name_or_path: Qwen/Qwen2.5-1.5B\nstage: sft\ndo_train: true\ncutoff_len: 512\nbf16: true\n"


@pytest.mark.parametrize(
    ("command", "world"),
    [
        ("FORCE_TORCHRUN=1 NNODES=3 llamafactory-cli train a.yaml", 12),
        (f"torchrun --nproc_per_node gpu --nnodes 2 {TUNE}", 8),
        (f"torchrun --nproc_per_node auto {TUNE}", 4),
        (f"torchrun --nproc_per_node gpu --nnodes $N {TUNE}", None),
        (f"torchrun --nproc_per_node 2 --nnodes 2 {TUNE}", 4),
        (f"torchrun --nproc_per_node $EACH --nnodes 2 {TUNE}", None),
        (f"CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node gpu {TUNE}", 2),
    ],
)
def test_ranks_on_each_gpu_are_as_many_as_a_node_of_the_cluster_has(tmp_path, command, world):
    (tmp_path / "run.sh").write_text(f"{command}\n")
    (tmp_path / "a.yaml").write_text(f"{FACTORY}per_device_train_batch_size: 2\n")
    files = [str(tmp_path / name) for name in ("run.sh", *(["a.yaml"] if "a.yaml" in command else []))]

    found = read_job(files, JobOptions(gpus_per_node=4))

    assert found.world == world
    listed = any("starts one on each GPU that it sees, and a node of --cluster has 4" in text for text in found.assumed)
    assert listed is (any(word in command for word in (" gpu ", " auto ", "llama")) and "VISIBLE" not in command)


SCRATCH = """model_name: pythia-160m
train: {global_batch_size: 64, micro_batch_size: 4, max_seq_length: 512}
devices: auto
"""


@pytest.mark.parametrize(
    ("command", "world"),
    [
        (f"deepspeed {TUNE} --zero_stage 2", 4),
        (f"deepspeed --master_port 29501 {TUNE} --zero_stage 2", 4),
        (f"accelerate launch {TUNE}", 4),
        (f"deepspeed --hostfile hosts {TUNE} --zero_stage 2", None),
        (f"deepspeed $WHERE {TUNE} --zero_stage 2", None),
        (f"#SBATCH --nodes=2\ndeepspeed {TUNE} --zero_stage 2", None),
        (f"accelerate launch --num_machines 3 {TUNE}", None),
        (f"NNODES=2\ndeepspeed {TUNE} --zero_stage 2", None),
    ],
)
def test_a_launcher_that_no_file_of_hosts_is_named_to_starts_on_one_node_which_is_listed(tmp_path, command, world):
    (tmp_path / "run.sh").write_text(f"{command}\n")

    found = read_job([str(tmp_path / "run.sh")], JobOptions(gpus_per_node=4))

    assert found.world == world
    assert any("one node: " in text and "--gpus" in text for text in found.assumed) is (world is not None)


def test_ranks_that_are_asked_for_are_none_of_one_node(tmp_path):
    (tmp_path / "run.sh").write_text(f"deepspeed {TUNE} --zero_stage 2\n")

    found = read_job([str(tmp_path / "run.sh")], JobOptions(gpus_per_node=4, gpus=16))

    assert found.world == 16
    assert not any("one node" in text for text in found.assumed)


@pytest.mark.parametrize(("nodes", "world"), [("", 4), ("num_nodes: 3\n", 12)])
def test_devices_that_a_trainer_finds_by_itself_are_those_of_a_node_of_the_cluster(tmp_path, nodes, world):
    (tmp_path / "own.yaml").write_text(SCRATCH + nodes)

    found = read_job([str(tmp_path / "own.yaml")], JobOptions(gpus_per_node=4))

    assert found.world == world
    assert any("a node of --cluster has 4" in text for text in found.assumed)


def test_without_a_cluster_the_number_is_asked_for(tmp_path):
    found = job(tmp_path, {"run.sh": f"torchrun --nproc_per_node gpu --nnodes 2 {TUNE}\n"})

    assert found.world is None
    assert "--gpus" in found.asked
