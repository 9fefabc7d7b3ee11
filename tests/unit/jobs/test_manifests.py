"""Kubernetes manifests and notebooks: the commands, files and variables that they hold."""

import json

import pytest

from meshwright.errors import InputError
from meshwright.jobs.files.manifest import yaml_parts
from tests.unit.jobs.test_programs import TRAINER
from tests.unit.jobs.test_strangers import MEGATRON, job

LINE = MEGATRON.replace("\\\n  ", "")
POD = """{indent}containers:
{indent}- name: beside
{indent}  command: [sleep, infinity]
{indent}- name: train
{indent}  env:
{indent}  - {{name: TP, value: "4"}}
{indent}  - {{name: WORDS, value: "--tensor-model-parallel-size $(TP)"}}
{indent}  - {{name: RANK_OF_NODE, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
{indent}  {command}
{indent}  resources: {{limits: {{nvidia.com/gpu: 8}}}}
"""
TEXT = f'command: [bash, -c, "set -e; torchrun {{counts}} pretrain_gpt.py $WORDS {LINE}"]'
JOBSET = """kind: JobSet
apiVersion: jobset.x-k8s.io/v1alpha2
spec:
  replicatedJobs:
  - name: workers
    replicas: 2
    template:
      spec:
        completions: 2
        template:
          spec:
"""
PYTORCH = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  nprocPerNode: "8"
  pytorchReplicaSpecs:
    Master:
      template:
        spec:
{pod}    Worker:
      replicas: 3
      template:
        spec:
{pod}"""


def jobset(command: str) -> str:
    return JOBSET + POD.format(indent=" " * 12, command=command)


@pytest.mark.parametrize(
    "counts", ["--nnodes=4 --nproc_per_node=8", "--nnodes=4 --nproc_per_node=gpu", "--nnodes=$N --nproc_per_node=8", ""]
)
def test_a_job_set_is_read_from_the_container_with_gpus(tmp_path, counts):
    found = job(tmp_path, {"set.yaml": "# pods\n---\n" + jobset(TEXT.format(counts=counts))})

    assert (found.engine, found.world, found.layout.tp, found.layout.dp) == ("megatron", 32, 4, 8)
    assert found.global_batch == 64


def test_pods_and_nodes_that_differ_are_a_contradiction(tmp_path):
    with pytest.raises(InputError, match=r"set\.yaml: nnodes 2 contradicts 4 pods with GPUs"):
        job(tmp_path, {"set.yaml": jobset(TEXT.format(counts="--nnodes=2 --nproc_per_node=8"))})


def test_pods_that_start_with_the_same_rank_never_join(tmp_path):
    pods = POD.format(indent=" " * 10, command=TEXT.format(counts="--nnodes=4 --nproc_per_node=8 --node_rank=1"))
    with pytest.raises(InputError, match=r"p\.yaml: 4 pods start with node_rank 1: expected a rank of its own"):
        job(tmp_path, {"p.yaml": PYTORCH.format(pod=pods)})
    joined = pods.replace("--node_rank=1", "--rdzv_backend=c10d --node_rank=1")
    assert job(tmp_path, {"p.yaml": PYTORCH.format(pod=joined)}).world == 32


def test_words_of_a_container_without_a_shell_take_its_variables(tmp_path):
    words = ["torchrun", "--nnodes=4", "--nproc_per_node=8", "pretrain_gpt.py", "--tensor-model-parallel-size=$(TP)"]
    command = f"command: {json.dumps(words)}\n{' ' * 14}args: {json.dumps(LINE.split())}"

    assert job(tmp_path, {"set.yaml": jobset(command)}).layout.tp == 4


def test_a_script_of_a_config_map_is_followed_with_what_kubeflow_sets(tmp_path):
    pod = POD.format(indent=" " * 10, command='command: ["bash", "/mnt/run.sh"]')
    scripts = "apiVersion: v1\nkind: ConfigMap\ndata:\n  run.sh: |\n"
    scripts += f"    torchrun --rdzv_backend=c10d pretrain_gpt.py $WORDS {LINE}\n---\n"

    found = job(tmp_path, {"torch.yaml": scripts + PYTORCH.format(pod=pod)})

    assert (found.world, found.layout.tp, found.layout.dp) == (32, 4, 8)


def test_a_launcher_pod_without_gpus_starts_the_ranks_of_the_workers(tmp_path):
    words = "[mpirun, -np, '16', python, pretrain_gpt.py, " + ", ".join(LINE.split()) + "]"
    text = "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec:\n  mpiReplicaSpecs:\n"
    text += f"    Launcher: {{template: {{spec: {{containers: [{{command: {words}}}]}}}}}}\n"
    text += "    Worker: {replicas: 2, template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}}\n"

    assert job(tmp_path, {"mpi.yaml": text}).world == 16


def test_nodes_of_a_train_job_are_its_own_count(tmp_path):
    text = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec:\n  trainer:\n    numNodes: 3\n"
    text += f'    numProcPerNode: 8\n    command: [bash, -c]\n    args: ["torchrun pretrain_gpt.py {LINE}"]\n'

    assert job(tmp_path, {"train.yaml": text.replace("batch-size 64", "batch-size 48")}).world == 24


@pytest.mark.parametrize(
    "text",
    [
        "spec: 3\nkind: Job\n",
        "kind: ConfigMap\ndata: [1]\n",
        "kind: Pod\nspec:\n  containers: [a, {command: 5, env: [3, {name: 1, value: 2}]}]\n---\n# nothing\n",
        "kind: Job\nspec: {{ .Values.x }}\n",
        "kind: Pod\n---\n- 1\n",
    ],
)
def test_a_manifest_of_another_kind_or_a_broken_one_is_one_line(tmp_path, text):
    with pytest.raises(InputError, match=r"^k\.yaml: "):
        job(tmp_path, {"k.yaml": f"apiVersion: v1\n{text}"})


# --- notebooks


def notebook(*cells: str) -> str:
    made = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["!deepspeed no.py"]}, *made], "nbformat": 4})


def test_a_program_that_a_cell_writes_and_another_starts_is_read(tmp_path):
    line = "!torchrun --nnodes 1 \\\n   --nproc_per_node {RANKS} own/train.py\n"
    cells = ("RANKS = 4\n", "%%writefile own/train.py\n" + TRAINER, "!pip install x\n", line)

    found = job(tmp_path, {"tune.ipynb": notebook(*cells)})

    assert (found.world, found.global_batch, found.layout.zero, found.seq_len) == (4, 32, 2, 1024)


def test_arguments_in_cells_are_read_with_the_ranks_of_the_launcher(tmp_path):
    cells = (
        "%matplotlib inline\nfrom transformers import TrainingArguments\nfrom accelerate import notebook_launcher\n",
        "def tune():\n    args = TrainingArguments(per_device_train_batch_size=3, bf16=True)\n    return args\n",
        "%%html\n<b>not Python",
        "x = 1if True else 2",  # Python warns of it
        "%%time\nnotebook_launcher(tune, num_processes=2)\n",
    )

    found = job(tmp_path, {"tune.ipynb": notebook(*cells)})

    assert (found.world, found.layout.mbs, found.global_batch, found.precision) == (2, 3, 6, "bf16")


def test_files_and_variables_of_cells_are_those_of_the_command(tmp_path):
    yaml = "%%writefile fsdp.yaml\ndistributed_type: FSDP\nnum_machines: 1\nnum_processes: 8\n"
    yaml += "fsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}\n"
    line = "%%bash\naccelerate launch --config_file fsdp.yaml own.py --per_device_train_batch_size $SIZE --bf16 true\n"

    found = job(tmp_path, {"tune.ipynb": notebook(yaml, "%env SIZE=5\n", line)})

    assert (found.world, found.layout.mbs, found.layout.zero) == (8, 5, 2)


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"cells": [1, {"cell_type": "code"}, {"cell_type": "code", "source": [1, "!"]}]}']
)
def test_a_notebook_without_a_training_is_one_line(tmp_path, text):
    with pytest.raises(InputError, match=r"^tune\.ipynb: "):
        job(tmp_path, {"tune.ipynb": text})


def test_a_value_that_holds_itself_is_refused_with_its_line(tmp_path):
    with pytest.raises(InputError, match=r"^made\.yaml: line 1: a value that holds itself, refused"):
        job(tmp_path, {"made.yaml": "model: &m\n  hidden_size: *m\n  num_layers: 32\n"})


def test_a_document_of_endless_nesting_is_left_to_the_reader_that_refuses_it():
    nested = "a: " + "[" * 3000 + "]" * 3000

    assert yaml_parts(nested) == [nested]


COMPOSE = """services:
  logs: {image: grafana/loki, command: -config.file=own.yaml}
  train:
    image: ours/train
    environment: [TP=2, NPROC_PER_NODE=4]
    command: %s
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 4, capabilities: [gpu]}]}}}
"""
STARTS = f"torchrun %s pretrain_gpt.py --tensor-model-parallel-size %s {LINE}"


def test_a_service_of_docker_compose_has_its_command_its_variables_and_the_gpus_it_reserves(tmp_path):
    plain = job(tmp_path, {"a.yaml": COMPOSE % (STARTS % ("--nproc-per-node 4", "2"))})
    inner = STARTS % ("--nproc-per-node gpu", "$$TP")
    listed = job(tmp_path, {"b.yaml": COMPOSE % f"[bash, -c, '{inner}']"})
    two = job(tmp_path, {"c.yaml": COMPOSE % (STARTS % ("--nnodes 2 --nproc-per-node 4", "$$TP"))})

    assert [(one.world, one.layout.tp) for one in (plain, listed, two)] == [(4, 2), (4, 2), (8, 2)]


def test_a_variable_of_the_host_is_not_taken_for_the_containers_of_that_name(tmp_path):
    with pytest.raises(InputError, match="TP_of_the_host.*is not set in the files"):
        job(tmp_path, {"a.yaml": COMPOSE % (STARTS % ("--nproc-per-node 4", "${TP}"))})
    assert job(tmp_path, {"b.yaml": COMPOSE % (STARTS % ("--nproc-per-node 4", "${TP:-4}"))}).layout.tp == 4
