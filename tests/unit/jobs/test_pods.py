"""Pods of Kubernetes' kinds, pools of Vertex AI, and the folder in which the command of a manifest runs."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

WORDS = (
    "tune.py --model_name_or_path Qwen/Qwen2.5-1.5B --do_train --block_size 512 --per_device_train_batch_size 2 --bf16"
)
GPUS = "resources: {limits: {nvidia.com/gpu: 4}}"


def container(launcher: str = "torchrun --nproc_per_node=4", more: str = GPUS) -> str:
    words = ", ".join(f'"{word}"' for word in f"{launcher} {WORDS}".split())
    return f"{{name: t, command: [{words}], {more}}}"


def manifest(kind: str, spec: str) -> str:
    return f"apiVersion: x/v1\nkind: {kind}\nmetadata: {{name: t}}\nspec: {spec}\n"


POD = f"template: {{spec: {{containers: [{container()}]}}}}"
LAUNCHER = f"template: {{spec: {{containers: [{container('mpirun python', 'image: x')}]}}}}"
WORKER = f"template: {{spec: {{containers: [{{name: w, {GPUS}}}]}}}}"
MPI = f"{{slotsPerWorker: 4, mpiReplicaSpecs: {{Launcher: {{{LAUNCHER}}}, Worker: {{replicas: 3, {WORKER}}}}}}}"
JOB = f"{{completions: 3, {POD}}}"


@pytest.mark.parametrize(
    ("text", "world"),
    [
        (manifest("StatefulSet", f"{{replicas: 3, {POD}}}"), 12),
        (manifest("Deployment", f"{{{POD}}}"), 4),
        (manifest("CronJob", f"{{jobTemplate: {{spec: {JOB}}}}}"), 12),
        (manifest("LeaderWorkerSet", f"{{leaderWorkerTemplate: {{size: 3, worker{POD.capitalize()}}}}}"), 12),
        (manifest("MPIJob", MPI), 12),
        ("apiVersion: v1\nkind: List\nitems: [{kind: Job, spec: " + JOB + "}]\n", 12),
        (manifest("AppWrapper", f"{{components: [{{template: {{kind: Job, spec: {JOB}}}}}]}}"), 12),
        (
            manifest(
                "Workflow", f"{{templates: [{{container: {container('torchrun --nnodes=2 --nproc_per_node=4')}}}]}}"
            ),
            8,
        ),
    ],
)
def test_the_pods_of_each_kind_are_counted(tmp_path, text, world):
    assert job(tmp_path, {"job.yaml": text}).world == world


@pytest.mark.parametrize(
    ("tasks", "idle"),
    [("", None), ("-np 12 ", None), ("-np 6 -npernode 2 ", "6 of 12 GPUs (3 pods x 4 GPUs a pod)")],
)
def test_gpus_that_are_asked_for_and_run_no_rank_are_said(tmp_path, tasks, idle):
    words = [f'"{word}"' for word in tasks.split()]
    text = manifest("MPIJob", MPI.replace('"mpirun",', ", ".join(['"mpirun"', *words, ""])))

    found = job(tmp_path, {"job.yaml": text})

    assert [note for note in found.notes if "run no rank" in note] == (
        [f"{idle} run no rank of this training"] if idle else []
    )
    assert found.world == (6 if idle else 12)


def test_gpus_without_a_rank_are_counted_on_nodes_of_slurm_too(tmp_path):
    head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=1\n"
    script = f"{head}srun torchrun --nnodes 2 --nproc_per_node 4 {WORDS}\n"

    found = job(tmp_path, {"go.sh": script})

    assert found.world == 8
    assert any(note.startswith("8 of 16 GPUs (") for note in found.notes)


def test_of_a_kind_that_is_not_known_the_nodes_are_those_of_the_command(tmp_path):
    found = job(tmp_path, {"job.yaml": manifest("Workflow", f"{{templates: [{{container: {container()}}}]}}")})

    assert found.world == 4
    assert "nnodes 1 (the default of torchrun)" in found.assumed


def leader(more: str) -> str:
    pods = f"size: 3, leader{POD.capitalize()}, worker{POD.capitalize()}"
    return manifest("LeaderWorkerSet", f"{{leaderWorkerTemplate: {{{pods}}}{more}}}")


def test_the_leader_of_a_group_is_one_of_its_pods(tmp_path):
    assert job(tmp_path, {"job.yaml": leader("")}).world == 12


def test_groups_of_pods_are_trainings_of_their_own_and_that_is_said(tmp_path):
    found = job(tmp_path, {"job.yaml": leader(", replicas: 5")})

    assert found.world == 12
    assert "job.yaml: one of its 5 groups of pods, each of which trains on its own" in found.assumed


def test_variables_of_a_group_count_its_pods(tmp_path):
    text = leader("").replace('"--nproc_per_node=4"', '"--nnodes=$(LWS_GROUP_SIZE)", "--nproc_per_node=4"')

    assert job(tmp_path, {"job.yaml": text}).world == 12


RUNTIME = f"""apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {{name: ours}}
spec:
  mlPolicy: {{numNodes: 2, torch: {{numProcPerNode: 4}}}}
  template: {{spec: {{replicatedJobs: [{{template: {{spec: {{{POD}}}}}}}]}}}}
---
"""


@pytest.mark.parametrize(("trainer", "world"), [("", 8), (", trainer: {numNodes: 3}", 12)])
def test_a_train_job_has_what_its_runtime_says_unless_it_says_it_itself(tmp_path, trainer, world):
    text = RUNTIME + manifest("TrainJob", f"{{runtimeRef: {{name: ours}}{trainer}}}")

    assert job(tmp_path, {"job.yaml": text}).world == world


# --- Vertex AI


def pools(key: str = "workerPoolSpecs", launcher: str = "torchrun --nnodes=3 --nproc_per_node=4") -> str:
    spec = "machineSpec: {machineType: a2-highgpu-4g, acceleratorCount: 4}, containerSpec: &c "
    first = f"{{{spec}{container(launcher, 'imageUri: x')}, replicaCount: 1}}"
    return f"{key}: [{first}, {{machineSpec: {{acceleratorCount: 4}}, containerSpec: *c, replicaCount: '2'}}]\n"


@pytest.mark.parametrize("launcher", ["torchrun --nnodes=3 --nproc_per_node=4", "torchrun --nproc_per_node=gpu"])
def test_the_replicas_of_all_pools_train_together(tmp_path, launcher):
    assert job(tmp_path, {"job.yaml": pools(launcher=launcher)}).world == 12


def test_replicas_and_nodes_that_differ_are_a_contradiction(tmp_path):
    with pytest.raises(InputError, match="nnodes 2 contradicts 3 replicas"):
        job(tmp_path, {"job.yaml": pools(launcher="torchrun --nnodes=2 --nproc_per_node=4")})


def test_pools_may_be_written_in_json_and_by_names_with_underscores(tmp_path):
    words = ", ".join(f'"{word}"' for word in f"torchrun --nproc_per_node=4 {WORDS}".split())
    spec = (
        f'{{"machine_spec": {{"accelerator_count": 4}}, "replica_count": 2, "container_spec": {{"args": [{words}]}}}}'
    )

    assert job(tmp_path, {"job.json": f'{{"job_spec": {{"worker_pool_specs": [{spec}]}}}}'}).world == 8


def test_args_beside_a_command_of_an_unknown_launcher_are_its_further_words(tmp_path):
    text = f"run_it:\n  command: [bash, -c]\n  args: ['torchrun --nnodes=2 --nproc_per_node=4 {WORDS}']\n"

    found = job(tmp_path, {"job.yaml": text})

    assert found.world == 8
    assert "job.yaml: of a launcher that is not known: its command alone is read" in found.assumed


# --- folders


def test_a_file_that_the_command_names_is_taken_from_the_folder_that_the_manifest_hands_over(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "own.json").write_text('{"zero_optimization": {"stage": 2}}')
    text = f"code: src\ncommand: python {WORDS} --deepspeed own.json\nresources: {{instance_count: 2}}\n"

    found = job(tmp_path, {"job.yml": f"{text}distribution: {{type: pytorch, process_count_per_instance: 4}}\n"})

    assert (found.world, found.layout.zero) == (8, 2)
