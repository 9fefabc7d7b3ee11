"""Manifests of launchers beside Kubernetes, and SageMaker's estimators: command, variables, nodes and GPUs."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.files.manifest import gpu_count, machine_name
from meshwright.jobs.files.sagemaker import gpus_of_instance
from tests.unit.jobs.test_strangers import MEGATRON, job

LINE = MEGATRON.replace("\\\n  ", "")
SKY = """name: small
resources:
  accelerators: {{{gpus}}}
num_nodes: 4  # 8 on Sundays
envs:
  TP: 2
  WANDB_KEY:
setup: |
  export TP=8
  pip install -r requirements.txt
run: |
  NODES=$(echo "$SKYPILOT_NODE_IPS" | wc -l)
  torchrun --nnodes={nodes} --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE pretrain_gpt.py \\
    --tensor-model-parallel-size $TP {line}
"""


def sky(nodes: str = "$NODES", gpus: str = "A100-80GB: 8") -> str:
    return SKY.format(nodes=nodes, gpus=gpus, line=LINE)


# --- SkyPilot


def test_a_skypilot_task_has_its_own_nodes_and_variables_and_none_of_its_setup(tmp_path):
    found = job(tmp_path, {"task.yaml": sky()})

    assert (found.engine, found.world, found.layout.tp, found.layout.dp) == ("megatron", 32, 2, 16)


def test_a_variable_of_a_skypilot_task_is_replaced_from_outside(tmp_path):
    file = tmp_path / "task.yaml"

    assert job(tmp_path, {"task.yaml": sky()}, str(file), "TP=4").layout.tp == 4


def test_nodes_of_the_command_that_the_task_does_not_have_are_a_contradiction(tmp_path):
    with pytest.raises(InputError, match=r"task\.yaml: nnodes 2 contradicts num_nodes 4 \(task\.yaml\)"):
        job(tmp_path, {"task.yaml": sky("2")})


def test_a_choice_of_machines_with_other_numbers_of_gpus_is_asked_for(tmp_path):
    found = job(tmp_path, {"task.yaml": sky(gpus="A100: 8, L40S: 4")})

    assert found.world is None
    assert "--gpus" in found.asked


@pytest.mark.parametrize("choice", ["A100-80GB:8, L40S:8", "A100-80GB: 8, L40S:8", '"L40S:8":'])
def test_a_set_of_machines_to_choose_from_has_the_gpus_of_each_of_them(tmp_path, choice):
    assert job(tmp_path, {"task.yaml": sky(gpus=choice)}).world == 32


def test_torchrun_without_nodes_is_said_to_join_them_and_one_for_itself_does_not(tmp_path):
    joined = job(tmp_path, {"task.yaml": sky().replace("--nnodes=$NODES ", "")})
    alone = job(tmp_path, {"alone.yaml": sky().replace("--nnodes=$NODES", "--standalone")})

    assert joined.world == 32
    assert "torchrun joins the 4 nodes of task.yaml: it has no --nnodes" in joined.assumed
    assert alone.world == 8


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        (8, 8),
        ("H100", 1),
        ("H100:4", 4),
        ("80GB:8", 8),
        ("24GB..48GB:2", 2),
        ("A100:1..8", None),
        ("1..2", None),
        ({"name": ["A100", "H100"], "count": 8}, 8),
        ({"name": "H100", "count": "4..8"}, None),
        ({"memory": "40GB"}, 1),
        (["A100:8", "H100:8"], 8),
        (["A100:8", "H100:4"], None),
        ("V100:0.5", None),
    ],
)
def test_a_request_says_how_many_gpus_a_node_has_or_leaves_it_open(asked, count):
    assert gpu_count(asked) == count


# --- dstack

DSTACK = """type: task
nodes: 3
env:
  - HF_TOKEN
  - LENGTH=4096
commands:
  - pip install trl
  - export STEPS=6
  - |
    accelerate launch --config_file shard.yaml --num_machines=$DSTACK_NODES_NUM \\
      --num_processes=$((DSTACK_NODES_NUM * DSTACK_GPUS_PER_NODE)) tune.py --model_name_or_path Qwen/Qwen3-8B \\
      --per_device_train_batch_size 2 --gradient_accumulation_steps 3 --max_length $LENGTH --bf16 \\
      --gradient_accumulation_steps $STEPS
resources:
  gpu: 80GB:4
"""
SHARD = """distributed_type: FSDP
fsdp_config: {fsdp_version: 1, fsdp_sharding_strategy: HYBRID_SHARD}
mixed_precision: bf16
num_machines: 1
num_processes: 4
"""


def test_the_command_of_a_dstack_task_counts_before_the_yaml_and_its_last_flag_before_the_first(tmp_path):
    found = job(tmp_path, {"tune.dstack.yml": DSTACK, "shard.yaml": SHARD})

    assert (found.world, found.layout.dp, found.layout.replicas, found.layout.zero) == (12, 12, 3, 3)
    assert (found.layout.mbs, found.global_batch, found.seq_len) == (2, 2 * 6 * 12, 4096)


def test_gpus_of_a_dstack_task_that_are_a_range_leave_the_ranks_open(tmp_path):
    found = job(tmp_path, {"tune.dstack.yml": DSTACK.replace("80GB:4", "1..4"), "shard.yaml": SHARD})

    assert found.world is None  # and not the 4 of the YAML
    assert "--gpus" in found.asked


def test_machines_of_the_yaml_that_the_task_does_not_have_are_a_contradiction(tmp_path):
    text = DSTACK.replace("--num_machines=$DSTACK_NODES_NUM", "")

    with pytest.raises(InputError, match=r"num_machines 1 \(shard\.yaml\) contradicts nodes 3 \(tune\.dstack\.yml\)"):
        job(tmp_path, {"tune.dstack.yml": text, "shard.yaml": SHARD})


# --- AzureML

AZURE = """$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
command: >-
  python tune.py --data ${{inputs.rows}} --deepspeed --deepspeed_config ds.json
  --gradient-accumulation-steps ${{inputs.steps}}
inputs:
  rows: {type: uri_folder, path: azureml://rows}
  steps: 4
resources: {instance_count: 2}
distribution: {type: pytorch, process_count_per_instance: 4}
"""
ZERO = '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'


def test_azure_starts_a_process_for_each_gpu_of_its_instances(tmp_path):
    found = job(tmp_path, {"job.yml": AZURE, "ds.json": ZERO})

    assert (found.engine, found.world, found.layout.dp, found.global_batch) == ("deepspeed", 8, 8, 2 * 4 * 8)


def test_a_command_of_azure_without_a_distribution_leaves_the_ranks_open(tmp_path):
    text = AZURE.partition("distribution")[0]

    assert job(tmp_path, {"job.yml": text, "ds.json": ZERO}).world is None


def test_a_command_of_a_pipeline_of_azure_is_found(tmp_path):
    inner = AZURE.replace("\n", "\n    ").rstrip()
    text = f"type: pipeline\njobs:\n  tune:\n    {inner}\n"

    assert job(tmp_path, {"job.yml": text, "ds.json": ZERO}).world == 8


# --- launchers that are not known


def test_an_elastic_number_of_nodes_is_no_number(tmp_path):
    found = job(tmp_path, {"run.sh": f"torchrun --nnodes=2:4 --nproc_per_node=8 pretrain_gpt.py {LINE}\n"})

    assert found.world is None


def test_the_command_of_a_launcher_that_is_not_known_is_read_without_its_machines(tmp_path):
    text = "services:\n  train:\n    command: [torchrun, --nnodes, $COUNT, --nproc_per_node, '8', pretrain_gpt.py, "
    text += ", ".join(f"'{word}'" for word in LINE.split()) + "]\n"

    found = job(tmp_path, {"compose.yaml": text})

    assert (found.engine, found.world, found.global_batch) == ("megatron", None, 64)
    assert "compose.yaml: of a launcher that is not known: its command alone is read" in found.assumed
    assert not found.ignored


# --- Ray

RAY = """apiVersion: ray.io/v1
kind: RayJob
spec:
  entrypoint: torchrun --nnodes=2 --nproc_per_node=8 pretrain_gpt.py --tensor-model-parallel-size $TP {line}
  runtimeEnvYAML: |
    env_vars: {{TP: "4"}}
  rayClusterSpec:
    headGroupSpec: {{rayStartParams: {{num-gpus: "0"}}, template: {{spec: {{containers: [{{name: head}}]}}}}}}
    workerGroupSpecs:
    - replicas: {workers}
      template: {{spec: {{containers: [{{name: log}}, {{name: w, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}}}
"""


def test_the_entry_point_of_a_ray_job_runs_on_its_workers(tmp_path):
    found = job(tmp_path, {"ray.yaml": RAY.format(line=LINE, workers=2)})

    assert (found.world, found.layout.tp) == (16, 4)
    with pytest.raises(InputError, match="nnodes 2 contradicts 3 pods"):
        job(tmp_path, {"ray.yaml": RAY.format(line=LINE, workers=3)})


# --- SageMaker

ESTIMATOR = """import json
from sagemaker.huggingface import HuggingFace

COUNT = 3
common = {
    "model_name_or_path": "Qwen/Qwen3-8B",
    "per_device_train_batch_size": 8,
    # "per_device_train_batch_size": 16,
    "gradient_accumulation_steps": 1,
    "bf16": True,
    "fsdp": "full_shard auto_wrap",
    "fsdp_config": json.dumps({"activation_checkpointing": True}),
}
settings = common | {"per_device_train_batch_size": 1, "max_length": 2048}
settings["gradient_accumulation_steps"] = 5
HuggingFace(
    entry_point="tune.py",
    instance_count=COUNT,
    instance_type="ml.g5.12xlarge",
    hyperparameters=settings,
    distribution={"torch_distributed": {"enabled": True}},
).fit()
"""


def test_an_estimator_runs_its_hyperparameters_on_the_gpus_of_its_instances(tmp_path):
    found = job(tmp_path, {"start.py": ESTIMATOR})

    assert (found.world, found.layout.dp, found.layout.zero, found.layout.recompute) == (12, 12, 3, "full")
    assert (found.layout.mbs, found.global_batch, found.seq_len) == (1, 5 * 12, 2048)


def test_a_trainer_of_the_newer_kit_keeps_its_instances_in_parts(tmp_path):
    head, _, _ = ESTIMATOR.partition("HuggingFace(\n")
    parts = "source_code=SourceCode(entry_script='tune.py'), compute=Compute(instance_count=COUNT, "
    parts += "instance_type='ml.p5.48xlarge'), hyperparameters=settings, distributed=Torchrun()"

    assert job(tmp_path, {"start.py": f"{head}ModelTrainer({parts}).train()\n"}).world == 24


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ml.g5.12xlarge", "ml.p9.96xlarge"),
        ("instance_count=COUNT", "instance_count=int(input())"),
        ("    distribution={", "    volume_size={"),
    ],
)
def test_an_estimator_that_leaves_its_ranks_open_is_asked_for_them(tmp_path, old, new):
    found = job(tmp_path, {"start.py": ESTIMATOR.replace(old, new)})

    assert found.world is None
    assert "--gpus" in found.asked


def test_a_hyperparameter_that_only_the_file_knows_is_no_guess(tmp_path):
    text = ESTIMATOR.replace(
        'settings["gradient_accumulation_steps"] = 5', 'settings["gradient_accumulation_steps"] = f()'
    )

    with pytest.raises(InputError, match=r"gradient_accumulation_steps \(\$gradient_accumulation_steps\): is not set"):
        job(tmp_path, {"start.py": text})


def test_two_estimators_that_differ_are_not_one_job(tmp_path):
    second = ESTIMATOR.partition("HuggingFace(\n")[2].replace("hyperparameters=settings", "hyperparameters=common")

    with pytest.raises(InputError, match="both start a training"):
        job(tmp_path, {"start.py": f"{ESTIMATOR}\nHuggingFace(\n{second}"})


@pytest.mark.parametrize(
    ("kind", "gpus"),
    [
        ("ml.p4d.24xlarge", 8),
        ("ml.p5en.48xlarge", 8),
        ("ml.g6e.12xlarge", 4),
        ("ml.g5.xlarge", 1),
        ("ml.trn1.32xlarge", None),
    ],
)
def test_instances_have_the_gpus_of_their_size(kind, gpus):
    assert gpus_of_instance(kind) == gpus


# --- what the machines are


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("accelerators: H200:8", "H200"),
        ("accelerators: {A100-80GB: 8}", "A100-80GB"),
        ("accelerators: {A100: 8, L40S: 8}", None),
        ("accelerators: {A100:8, L40S:8}", None),
        ("accelerators: {A100:8}", "A100"),
        ("accelerators: [A100:8, L40S:8]", None),
        ("accelerators: [L40S:8]", "L40S"),
        ("instance_type: p5.48xlarge\n  accelerators: H100:8", "p5.48xlarge"),
    ],
)
def test_a_manifest_names_its_machines_where_it_leaves_no_choice(tmp_path, asked, named):
    task = sky().replace("accelerators: {A100-80GB: 8}", asked)

    assert job(tmp_path, {"task.yaml": task}).machines == named


def test_a_memory_names_no_accelerator():
    assert [machine_name(one) for one in ("80GB:8", "24GB", {"memory": "80GB"}, {"name": "H100", "count": 8})] == [
        None,
        None,
        None,
        "H100",
    ]


TRIAL = """name: tune
resources:
  slots_per_trial: {slots}
searcher: {{name: single, max_length: {{batches: 100}}, metric: loss}}
environment:
  environment_variables: [MBS=2]
entrypoint: >-
  python3 -m determined.launch.torch_distributed
  python3 tune.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size $MBS --max_length 512 --bf16
"""


def test_a_trial_of_determined_trains_on_its_slots(tmp_path):
    found = job(tmp_path, {"trial.yaml": TRIAL.format(slots=16)})

    assert (found.engine, found.world, found.layout.zero, found.layout.mbs) == ("accelerate", 16, 0, 2)
    assert found.global_batch == 32


# --- launchers that are started on several nodes from outside

TUNE = "tune.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --max_length 2048 --deepspeed z.json"
STAGE = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}'
SLURM = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n#SBATCH --ntasks-per-node=1\n"
WRAPPER = "python submit.py --num_nodes 4 --gpus 8 -- "


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (f"{WRAPPER}accelerate launch --num_processes 8", "num_processes 8 contradicts num_nodes 4 x gpus 8 = 32"),
        (f"{WRAPPER}torchrun --nnodes 1 --nproc-per-node 8", "nnodes 1 contradicts num_nodes 4"),
        (f"{WRAPPER}deepspeed --num_gpus 8", "no --num_nodes contradicts num_nodes 4"),
        (f"{SLURM}srun accelerate launch --num_processes 8", r"contradicts #SBATCH nodes 4 \(run.sh\) x 8 GPUs"),
        (f"{SLURM}srun torchrun --nnodes 1 --nproc-per-node 8", "nnodes 1 contradicts #SBATCH nodes 4"),
        (
            f"{SLURM}srun accelerate launch --num_machines 1 --num_processes 8",
            "num_machines 1 .*contradicts #SBATCH nodes 4",
        ),
    ],
)
def test_a_launcher_of_one_node_that_is_started_on_several_is_a_contradiction(tmp_path, line, why):
    files = {"run.sh": f"{line} {TUNE}\n", "z.json": STAGE}

    with pytest.raises(InputError, match=why):
        job(tmp_path, files)

    assert job(tmp_path, files, gpus=32).world == 32


@pytest.mark.parametrize(
    ("line", "world"),
    [
        (f"{WRAPPER}accelerate launch --num_machines 4 --num_processes 32", 32),
        (f"{WRAPPER}torchrun --nproc-per-node 8", 32),
        (f"{SLURM}srun --nodes=1 --ntasks=1 accelerate launch --num_processes 8", 8),
        (f"{SLURM}srun torchrun --nnodes 4 --nproc-per-node 8", 32),
    ],
)
def test_a_launcher_that_says_the_nodes_it_is_started_on_is_none(tmp_path, line, world):
    assert job(tmp_path, {"run.sh": f"{line} {TUNE}\n", "z.json": STAGE}).world == world


# --- several commands under one launcher, and several components of a job

DEEP = f"{TUNE} --bf16"
HETEROGENEOUS = """#!/bin/bash
#SBATCH --nodes=4 --gpus-per-node=8
#SBATCH hetjob
#SBATCH --nodes=1 --gpus-per-node=2
"""


@pytest.mark.parametrize(
    ("line", "world"),
    [
        (f"srun --het-group=0 torchrun --nproc-per-node 8 {DEEP} : --het-group=1 python judge.py --max_length 7", 32),
        (f"mpirun -np 1 python watch.py : -np 16 python {DEEP}", 16),
    ],
)
def test_words_behind_a_colon_are_another_commands(tmp_path, line, world):
    found = job(tmp_path, {"run.sh": f"{HETEROGENEOUS}{line}\n", "z.json": STAGE})

    assert (found.world, found.seq_len) == (world, 2048)


def test_a_step_of_another_component_of_a_job_has_the_nodes_of_that_component(tmp_path):
    line = f"srun --het-group=0 python judge.py : --het-group=1 torchrun --nproc-per-node 2 {DEEP}\n"

    assert job(tmp_path, {"run.sh": HETEROGENEOUS + line, "z.json": STAGE}).world == 2


@pytest.mark.parametrize(
    "name", ["SLURM_NNODES", "SLURM_JOB_NUM_NODES_HET_GROUP_1", "SLURM_JOB_NUM_NODES_PACK_GROUP_1"]
)
def test_a_shell_in_a_step_of_a_component_sees_the_nodes_of_that_component(tmp_path, name):
    head = HETEROGENEOUS.replace("--nodes=1", "--nodes=3")
    line = f"srun --het-group=1 bash -c 'torchrun --nnodes ${name} --nproc-per-node 2 {DEEP}'\n"

    assert job(tmp_path, {"run.sh": head + line, "z.json": STAGE}).world == 6


def test_nodes_of_a_component_that_the_script_does_not_describe_are_asked_for(tmp_path):
    found = job(
        tmp_path, {"run.sh": f"{HETEROGENEOUS}srun --het-group=2 torchrun --nproc-per-node 2 {DEEP}\n", "z.json": STAGE}
    )

    assert found.world is None
    assert "nodes of het-group 2 is known only where the job runs" in found.notes
