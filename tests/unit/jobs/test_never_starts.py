"""Launches that end before their first step, or that start other ranks than they seem to: what contradicts is named."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import MEGATRON, job

TRAINER = "run_clm.py --model_name_or_path EleutherAI/gpt-j-6b --per_device_train_batch_size 2 --block_size 1024 --bf16"
AGENT = f"torchrun --nnodes 6 --nproc_per_node 4 --rdzv_backend c10d {TRAINER}\n"
PBS = "#PBS -l select=3:ncpus=8:ngpus=4\n"


@pytest.mark.parametrize("starter", ["mpiexec -perhost 1", "mpiexec -ppn 1", "mpirun --map-by ppr:1:node"])
def test_agents_that_wait_for_more_nodes_than_pbs_gives_are_refused(tmp_path, starter):
    with pytest.raises(InputError, match=r"nnodes 6 contradicts #PBS select 3 .*waits for nodes that are not there"):
        job(tmp_path, {"a.pbs": f"{PBS}{starter} {AGENT}"})


def test_agents_that_wait_for_more_nodes_than_srun_starts_are_refused(tmp_path):
    with pytest.raises(InputError, match="nnodes 6 contradicts #SBATCH nodes 3"):
        job(tmp_path, {"a.sh": f"#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=1\nsrun {AGENT}"})


@pytest.mark.parametrize(
    ("starter", "told"), [("mpirun -np 3 -npernode 1", "np 3"), ("jsrun -n 3 -a 1 -g 4", "3 resource sets of jsrun")]
)
def test_agents_that_are_fewer_than_the_nodes_that_they_wait_for_are_refused(tmp_path, starter, told):
    with pytest.raises(InputError, match=f"nnodes 6 contradicts {told}"):
        job(tmp_path, {"a.sh": f"{starter} {AGENT}"})


@pytest.mark.parametrize("asked", ["--gpus-per-node=2", "--gres=gpu:a100:2"])
def test_more_ranks_than_the_gpus_that_a_script_asks_for_are_refused(tmp_path, asked):
    script = f"#SBATCH --nodes=6\n#SBATCH {asked}\n#SBATCH --ntasks-per-node=1\nsrun {AGENT}"

    with pytest.raises(InputError, match=r"nproc_per_node 4 contradicts 2 GPUs a node \(a rank needs a GPU of its own"):
        job(tmp_path, {"a.sh": script})
    assert job(tmp_path, {"a.sh": script.replace(asked, "--gpus-per-node=8")}).world == 24


def test_an_agent_that_srun_starts_on_one_node_of_several_waits_for_the_others_in_peace(tmp_path):
    loop = f'for i in 0 1 2 3 4 5; do\n  srun -N 1 -n 1 -w "n$i" {AGENT.strip()} --node_rank $i &\ndone\nwait\n'

    assert job(tmp_path, {"a.sh": f"#SBATCH --nodes=6\n{loop}"}).world == 24


@pytest.mark.parametrize("flag", ["-N 4", "-npernode 4", "-ppn 4", "--map-by ppr:4:node:PE=8"])
def test_ranks_of_a_node_are_as_mpi_is_told(tmp_path, flag):
    found = job(tmp_path, {"a.sh": f"mpirun -np 12 {flag} python pretrain_gpt.py {MEGATRON} --global-batch-size 24\n"})

    assert (found.world, found.gpus_per_node) == (12, 4)


HOSTS = [
    "oarsh $n",
    "rsh $n",
    "ssh $n",
    "sshpass -f word ssh $n",
    "pssh -i -h $OAR_NODEFILE -t 0",
    "parallel-ssh -H $n",
]


@pytest.mark.parametrize("shell", HOSTS)
def test_a_command_in_the_words_of_another_host_is_read(tmp_path, shell):
    loop = f'for n in $(sort -u $OAR_NODEFILE); do\n  {shell} "cd $PWD && {AGENT.strip()}" &\ndone\nwait\n'

    assert job(tmp_path, {"a.oar": loop}).world == 24


@pytest.mark.parametrize(
    ("words", "both"),
    [
        ("--include=a --exclude=b:0", "--include contradicts --exclude"),
        ("--include=a --num_gpus 2", "--include contradicts --num_gpus"),
        ("--exclude=b --num_nodes 1", "--exclude contradicts --num_nodes"),
        ("--include=a@c", "--include c: is none of the 2 hosts and their slots of hosts"),
        ("--exclude=b:7", "--exclude b:7: is none of the 2 hosts"),
    ],
)
def test_deepspeed_takes_one_way_of_choosing_hosts_that_are_there(tmp_path, words, both):
    files = {
        "a.sh": f"deepspeed --hostfile hosts {words} {TRAINER} --deepspeed z.json\n",
        "hosts": "a slots=4\nb slots=4\n",
        "z.json": '{"zero_optimization": {"stage": 2}}',
    }
    with pytest.raises(InputError, match=both):
        job(tmp_path, files)


ACCELERATE = """distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true}
num_machines: 1
num_processes: 4
"""


def test_recomputation_by_fsdp_and_by_the_trainer_at_once_is_refused(tmp_path):
    script = f"accelerate launch --config_file f.yaml {TRAINER} --gradient_checkpointing"

    with pytest.raises(InputError, match=r"fsdp_activation_checkpointing True .* contradicts gradient_checkpointing"):
        job(tmp_path, {"a.sh": f"{script}\n", "f.yaml": ACCELERATE})
    assert job(tmp_path, {"a.sh": f"{script} false\n", "f.yaml": ACCELERATE}).layout.recompute == "full"


ARGUMENTS = """language_model: {num_layers: 16, hidden_size: 1024, num_attention_heads: 16, ffn_hidden_size: 4096}
model_parallel: {pipeline_model_parallel_size: 2, bf16: true}
micro_batch_size: 1
global_batch_size: 64
seq_length: 1024
"""
BY_YAML = "torchrun --nproc_per_node 8 pretrain_gpt.py --yaml-cfg own.yaml\n"


def test_a_yaml_of_megatrons_takes_no_virtual_stages_on_two_ranks(tmp_path):
    own = f"{ARGUMENTS}num_layers_per_virtual_pipeline_stage: 2\n"

    with pytest.raises(
        InputError, match=r"yaml-cfg contradicts num-layers-per-virtual-pipeline-stage 2 .* on pipeline"
    ):
        job(tmp_path, {"a.sh": BY_YAML, "own.yaml": own})


def test_the_number_of_virtual_stages_in_a_yaml_of_megatrons_has_no_effect(tmp_path):
    own = ARGUMENTS.replace("bf16", "virtual_pipeline_model_parallel_size: 4, bf16")

    found = job(tmp_path, {"a.sh": BY_YAML, "own.yaml": own})

    assert (found.layout.vpp or 1, found.layout.schedule) == (1, "1f1b")
    assert any("4 virtual stages: no effect in a YAML" in note for note in found.notes)


def test_virtual_stages_on_two_ranks_need_transfers_that_overlap(tmp_path):
    words = f"{MEGATRON} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2"

    with pytest.raises(InputError, match="no-overlap-p2p-communication contradicts"):
        job(tmp_path, {"a.sh": f"torchrun --nproc_per_node 8 pretrain_gpt.py {words} --no-overlap-p2p-communication\n"})


MACHINES = {
    "compose.yaml": "services:\n  a:\n    image: i\n    command: START\n"
    "    deploy: {resources: {reservations: {devices: [{count: COUNT}]}}}\n",
    "a.yml": "$schema: commandJob\ncommand: START\ndistribution: {type: pytorch, process_count_per_instance: COUNT}\n",
    "sky.yaml": "run: START\nresources: {accelerators: {A100: COUNT}}\n",
}


@pytest.mark.parametrize(
    ("name", "count", "fits"),
    [
        ("compose.yaml", "all", True),
        ("compose.yaml", "2", False),
        ("a.yml", "1", True),  # one process on each node, which starts the ranks
        ("sky.yaml", "8", True),
        ("sky.yaml", "1", False),
    ],
)
def test_ranks_are_held_against_the_gpus_of_a_manifest_and_not_against_its_processes(tmp_path, name, count, fits):
    text = MACHINES[name].replace("START", f"torchrun --nproc_per_node 4 {TRAINER}").replace("COUNT", count)

    if fits:
        assert job(tmp_path, {name: text}).world == 4
        return
    with pytest.raises(InputError, match=rf"nproc_per_node 4 contradicts {count} GPUs? a node"):
        job(tmp_path, {name: text})


DSTACK = """type: task
nodes: 2
commands:
  - accelerate launch --num_processes 16 --num_machines 2 --machine_rank RANK {}
resources: {{gpu: "H100:8"}}
"""


@pytest.mark.parametrize(("rank", "said"), [("$DSTACK_NODE_RANK", False), ("${DSTACK_NODE_RANK}", False), ("0", True)])
def test_the_rank_that_a_launcher_gives_each_node_is_no_rank_of_all(tmp_path, rank, said):
    found = job(tmp_path, {"a.dstack.yml": DSTACK.format(TRAINER).replace("RANK", rank)})

    assert any("a node needs a rank of its own" in note for note in found.notes) is said


ESTIMATOR = """from sagemaker.pytorch import PyTorch
PyTorch(
    entry_point="run_clm.py", instance_count=1, instance_type="ml.g5.12xlarge",
    hyperparameters={"model_name_or_path": "gpt2-xl", "per_device_train_batch_size": 4, "block_size": 512},
    distribution=PARTS,
).fit()
"""


@pytest.mark.parametrize(
    ("parts", "ranks"),
    [
        ('{"pytorchddp": {"enabled": True}}', 4),
        ('{"smdistributed": {"dataparallel": {"enabled": True}}}', 4),
        ('{"pytorchddp": {"enable": True}}', None),
        ('{"torch_distributed": {"enabled": False}}', None),
    ],
)
def test_a_distribution_of_sagemakers_that_is_not_enabled_starts_no_ranks(tmp_path, parts, ranks):
    found = job(tmp_path, {"a.py": ESTIMATOR.replace("PARTS", parts)})

    assert found.world == ranks
    assert any("no enabled = True" in note for note in found.notes) is (ranks is None)


def test_a_program_beside_the_script_that_is_on_a_trainer_that_is_not_read_is_refused_by_its_name(tmp_path):
    (tmp_path / "own.py").write_text("from olmo_core.train import TrainerConfig\n\nconfig = TrainerConfig()\n")

    with pytest.raises(InputError, match="this starts OLMo-core, which is not read"):
        job(tmp_path, {"run.sh": "torchrun --nproc_per_node 4 own.py first\n"})


def test_a_program_of_ones_own_that_is_given_too_is_named_with_what_says_its_job(tmp_path):
    files = {"run.sh": "torchrun --nproc_per_node 4 own.py\n", "own.py": "import torch\n\nprint(torch.ones(1))\n"}

    with pytest.raises(InputError, match=r"run\.sh: starts own\.py, no training of .*said by --model, --layout"):
        job(tmp_path, files)
