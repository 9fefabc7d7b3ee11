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


def test_without_a_cluster_the_number_is_asked_for(tmp_path):
    found = job(tmp_path, {"run.sh": f"torchrun --nproc_per_node gpu --nnodes 2 {TUNE}\n"})

    assert found.world is None
    assert "--gpus" in found.asked
