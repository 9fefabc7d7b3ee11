"""Folders in place of a file, templates of manifests, and what a script is not given: found, or asked for."""

import pytest

from meshwright.cli import run_command
from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import MEGATRON, job

START = f"torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py {MEGATRON}\n"
TRAINER = "run_clm.py --model_name_or_path gpt2-xl --per_device_train_batch_size 2 --block_size 512 --bf16"


def test_the_script_that_alone_trains_is_the_job_of_a_folder(tmp_path):
    files = {
        "go.sh": "bash inner.sh 2\n",
        "inner.sh": f"TP=$1\n{START}",
        "download.sh": "wget a\n",
        "README.md": "hi\n",
    }

    found = job(tmp_path, files, str(tmp_path))

    assert (found.world, found.files[0]) == (16, "go.sh")
    assert any("go.sh is the job" in text for text in found.assumed)


def test_a_configuration_is_the_job_of_a_folder_where_no_script_trains(tmp_path):
    files = {
        "own.toml": '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 4096\n',
        "requirements.txt": "a\n",
    }

    assert job(tmp_path, files, str(tmp_path)).engine == "torchtitan"


@pytest.mark.parametrize("name", ["go.sub", "submit", "go.job", "go.cmd"])
@pytest.mark.parametrize("head", ["#!/bin/bash", "#!/usr/bin/env bash", "# ours\n#SBATCH --nodes=2"])
def test_a_script_of_a_folder_is_known_by_its_first_lines_whatever_its_name(tmp_path, name, head):
    found = job(tmp_path, {name: f"{head}\n{START}", "notes": "to do\n", "words.txt": START}, str(tmp_path))

    assert (found.world, found.files[0]) == (16, name)


def test_two_trainings_of_a_folder_are_named(tmp_path):
    with pytest.raises(InputError, match=r"in which a\.sh, b\.sbatch start trainings: expected one of them"):
        job(tmp_path, {"a.sh": START, "b.sbatch": START.replace("nnodes 2", "nnodes 4")}, str(tmp_path))


def test_a_folder_without_a_training_is_refused_with_its_files(tmp_path):
    with pytest.raises(InputError, match=r"none of its files starts a training that is known \(get\.sh\)"):
        job(tmp_path, {"get.sh": "wget a\n"}, str(tmp_path))


TEMPLATE = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: $NODES
      template:
        spec:
          containers:
            - resources: {limits: {nvidia.com/gpu: 8}}
              command: [torchrun, --nproc_per_node=8, """


def test_pods_that_a_variable_counts_are_not_taken_for_one(tmp_path):
    manifest = TEMPLATE + ", ".join(TRAINER.split()) + "]\n"
    own = str(tmp_path / "k.yaml")

    with pytest.raises(InputError, match=r"k\.yaml: replicas \$NODES: not set in the files: .* --job NODES=N"):
        job(tmp_path, {"k.yaml": manifest}, own)
    assert job(tmp_path, {"k.yaml": manifest}, own, "NODES=3").world == 24
    assert job(tmp_path, {"k.yaml": manifest, "env_vars": "export NODES=5\n"}).world == 40
    assert job(tmp_path, {}, str(tmp_path)).world == 40


CASE = f"""case "${{1:?small or large}}" in
  small) SIZE=1 ;;
  large) SIZE=4 ;;
esac
torchrun --nproc_per_node 8 {TRAINER.replace("size 2", "size $SIZE")}
"""


def test_an_argument_that_chooses_is_asked_for_with_the_words_of_the_script(tmp_path):
    with pytest.raises(InputError, match=r'run\.sh is not given \$1 \(small or large\): --job "bash run\.sh WORD'):
        job(tmp_path, {"run.sh": CASE})
    assert job(tmp_path, {}, f"bash {tmp_path / 'run.sh'} large").global_batch == 32


def test_what_is_known_is_told_beside_what_is_missing(tmp_path, capsys):
    (tmp_path / "run.sh").write_text(START.replace("--num-layers 16", "--zero 1 --tensor-model-parallel-size 2"))

    assert run_command(["plan", "--job", str(tmp_path / "run.sh")]) == 2
    told = capsys.readouterr().err
    assert "--model: expected" in told
    assert "read so far: 16 GPUs, tp=2, dp=8, mbs=1" in told
    assert "64 sequences a step, 1,024 tokens a sequence, bf16" in told


@pytest.mark.parametrize(
    ("words", "why"), [([], "--cluster: expected"), (["--cluster", "dgx-h100", "--gpus", "10"], "not a multiple")]
)
def test_what_is_known_is_told_where_the_machines_are_not_known_or_do_not_fit(tmp_path, capsys, words, why):
    (tmp_path / "run.sh").write_text(
        START.replace("nproc_per_node 8", "nproc_per_node 5").replace("size 64", "size 60")
    )

    assert run_command(["plan", "--job", str(tmp_path / "run.sh"), *words]) == 2
    told = capsys.readouterr().err
    assert why in told
    assert "10 GPUs, dp=10, mbs=1" in told
