"""Ways in which commands reach the machines that train: through containers, other hosts, folders and launchers."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_neox_foundry import HOSTS, NEOX, PLACES
from tests.unit.jobs.test_strangers import MEGATRON, job

TRAIN = f"pretrain_gpt.py --tensor-model-parallel-size $TP {MEGATRON}"
PLAIN = TRAIN.replace("\\\n", " ").replace("$TP", "2")
REGISTRY = """from torchtitan.trainer import Trainer
from . import model_registry


def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=2, seq_len=4096),
        parallelism=ParallelismConfig(tensor_parallel_degree=2),
    )
"""
TOML = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 4096\n'
RUN_TRAIN = """#!/bin/bash
NGPU=${NGPU:-"8"}
torchrun --nproc_per_node=${NGPU} -m torchtitan.train --module ${MODULE:-llama3} --config ${CONFIG:-debug} "$@"
"""


@pytest.mark.parametrize("way", ["-e TP=2", "--env TP=2", "--env=TP=2"])
def test_variables_that_a_container_is_handed_are_those_of_its_command(tmp_path, way):
    words = f"docker run --gpus all {way} image bash -c 'torchrun --nproc_per_node 8 {TRAIN}'\n"

    assert job(tmp_path, {"run.sh": words}).layout.tp == 2


@pytest.mark.parametrize("way", ["--env TP=2,NODES=2", "--env=NODES=2,TP=2", "--env TP=2 --env NODES=2"])
def test_apptainer_takes_several_variables_in_one_word(tmp_path, way):
    words = f"apptainer exec --nv {way} a.sif bash -c 'torchrun --nnodes $NODES --nproc_per_node 8 {TRAIN}'\n"

    found = job(tmp_path, {"run.sh": words})

    assert (found.world, found.layout.tp) == (16, 2)


def test_tasks_of_a_program_that_starts_by_its_own_name_are_its_ranks(tmp_path):
    own = PLAIN.replace("pretrain_gpt.py", "./pretrain_gpt.py")

    assert job(tmp_path, {"run.sh": f"mpirun -np 16 {own}\n"}).world == 16
    assert job(tmp_path, {"run.sh": f"srun -N 2 --ntasks-per-node 8 {own} --world-size 7\n"}).world == 16


def test_variables_of_a_container_are_not_those_of_the_script_around_it(tmp_path):
    words = f"TP=4\ndocker run -e TP=2 image bash -c 'echo $TP'\ntorchrun --nproc_per_node 8 {TRAIN}\n"

    assert job(tmp_path, {"run.sh": words}).layout.tp == 4


@pytest.mark.parametrize("way", ["ssh -p 22 user@$HOST", "ssh -tt host", "pdsh -w host1,host2"])
def test_a_command_that_runs_on_other_hosts_is_followed(tmp_path, way):
    words = f'HOST=one\n{way} "cd /src && torchrun --nproc_per_node 8 --nnodes 4 --node_rank 0 {PLAIN}" &\nwait\n'

    assert job(tmp_path, {"run.sh": words}).world == 32


def test_a_launcher_of_accelerate_that_another_command_hands_on_is_read(tmp_path):
    words = "python submit.py --gpus 8 -- accelerate launch --num_machines 2 --num_processes 16 --use_deepspeed "
    words += "--zero_stage 2 train.py --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 1\n"

    found = job(tmp_path, {"run.sh": words})

    assert (found.world, found.layout.zero) == (16, 2)


def test_files_of_neox_in_the_folder_that_deepy_is_told_are_found(tmp_path):
    files = {"conf/small.yml": NEOX, "conf/places.yml": PLACES, "hosts": HOSTS}
    words = "python deepy.py train.py -d conf small places.yml\n"

    found = job(tmp_path, {**files, "run.sh": words}, str(tmp_path / "run.sh"))

    assert (found.layout.tp, found.layout.pp) == (2, 2)


def test_a_yaml_of_llm_foundry_beside_its_command_is_found(tmp_path):
    yaml = (
        "max_seq_len: 1024\nmodel: {name: mpt_causal_lm, d_model: 1024, n_heads: 8, n_layers: 4, vocab_size: 50368}\n"
    )
    yaml += "global_train_batch_size: 64\ndevice_train_microbatch_size: 4\nfsdp_config: {cpu_offload: false}\n"
    words = "composer -n 8 --world_size 8 train.py m.yaml\n"

    found = job(tmp_path, {"m.yaml": yaml, "run.sh": words}, str(tmp_path / "run.sh"))

    assert (found.world, found.layout.zero, found.layout.mbs) == (8, 3, 4)


@pytest.mark.parametrize("at_hand", [True, False])
def test_the_registry_that_variables_of_run_train_name_is_read(tmp_path, at_hand):
    files = {"torchtitan/models/llama3/config_registry.py": REGISTRY}
    files |= {"run_train.sh": RUN_TRAIN} if at_hand else {}
    words = "NGPU=8 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.local_batch_size 4\n"

    found = job(tmp_path, {**files, "go.sh": words}, str(tmp_path / "go.sh"))

    assert (found.world, found.layout.tp, found.global_batch, found.seq_len) == (8, 2, 16, 4096)


def test_run_train_without_a_configuration_is_no_job_of_defaults(tmp_path):
    with pytest.raises(InputError, match="takes its settings from CONFIG_FILE, or MODULE and CONFIG"):
        job(tmp_path, {"go.sh": "NGPU=8 ./run_train.sh --training.local_batch_size 4\n"})


def test_a_bracket_that_bash_refuses_is_refused(tmp_path):
    words = f'X="--moe-layer-freq ([0]*1+[1]*3)"\neval torchrun --nproc_per_node 8 {PLAIN} $X --sequence-parallel\n'
    with pytest.raises(InputError, match="a bracket is not quoted"):
        job(tmp_path, {"run.sh": words})


def test_none_is_a_choice_where_nothing_said_means_another(tmp_path):
    toml = TOML + '[activation_checkpoint]\nmode = "none"\n'
    flags = PLAIN.replace("--bf16", "--bf16 --position-embedding-type none --max-position-embeddings 4096")

    assert job(tmp_path, {"a.toml": toml}, gpus=8).layout.recompute == "none"
    model = job(tmp_path, {"run.sh": f"torchrun --nproc_per_node 8 {flags}\n"}).architecture
    assert model is not None
    assert model.max_position_embeddings == 0


def test_weights_that_torchtitan_keeps_in_a_pipeline_are_said(tmp_path):
    toml = TOML + "[parallelism]\npipeline_parallel_degree = 2\n"

    assert any("keeps gathered weights" in note for note in job(tmp_path, {"a.toml": toml}, gpus=8).notes)
    always = job(tmp_path, {"a.toml": toml + 'fsdp_reshard_after_forward = "always"\n'}, gpus=8)
    assert not any("keeps gathered weights" in note for note in always.notes)


def test_flagscales_yaml_is_megatrons(tmp_path):
    yaml = "system: {tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2, precision: {bf16: true}}\n"
    yaml += "model: {num_layers: 8, hidden_size: 1024, num_attention_heads: 8, seq_length: 1024, micro_batch_size: 1,\n"
    yaml += "  global_batch_size: 16, max_position_embeddings: 1024}\ndata: {tokenizer: {vocab_size: 32000}}\n"

    found = job(tmp_path, {"train.yaml": yaml}, gpus=8)

    assert (found.engine, found.layout.tp, found.layout.pp, found.global_batch) == ("megatron", 2, 2, 16)


# --- copies of shards on each node


HYBRID = "run_clm.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --block_size 512 --bf16"


@pytest.mark.parametrize(
    ("launcher", "gpus", "copies"),
    [
        ("torchrun --nnodes 4 --nproc_per_node 8", None, 4),
        ("torchrun --nnodes 4 --nproc_per_node 4", None, 4),
        ("accelerate launch --num_machines 2 --num_processes 16", None, 2),
        ("torchrun --nnodes 1 --nproc_per_node 8", None, None),  # one copy: sharded over all
        ("torchrun --nnodes $N --nproc_per_node 8", 24, 3),
        ("accelerate launch", 16, 2),
    ],
)
def test_a_hybrid_shard_keeps_a_copy_on_each_node_by_whatever_says_the_nodes(tmp_path, launcher, gpus, copies):
    script = f'{launcher} {HYBRID} --fsdp "hybrid_shard auto_wrap"\n'

    found = job(tmp_path, {"go.sh": script}, gpus=gpus)

    assert (found.layout.zero, found.layout.replicas) == (3, copies if copies else 1)


def test_a_hybrid_shard_of_which_nobody_says_the_nodes_takes_eight_ranks_for_one(tmp_path):
    found = job(tmp_path, {"go.sh": f'accelerate launch {HYBRID} --fsdp "hybrid_shard"\n'}, gpus=16)

    assert "HYBRID_SHARD: shards inside nodes of 8, a copy on each" in found.assumed


@pytest.mark.parametrize(("rank", "said"), [("0", True), ("$SLURM_NODEID", False), ("0 --rdzv_backend c10d", False)])
def test_one_rank_that_all_nodes_are_given_is_said(tmp_path, rank, said):
    nodes = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
    start = f"srun torchrun --nnodes 4 --nproc_per_node 8 --node_rank {rank} {PLAIN}\n"

    notes = job(tmp_path, {"run.sbatch": nodes + start}).notes

    assert any("node_rank 0 on each of" in note for note in notes) is said


@pytest.mark.parametrize("end", ["# --seed 7 \\", "--seed 7 \\ ", "--seed 7", ""])
def test_flags_behind_the_end_of_a_command_are_named_as_lost(tmp_path, end):
    script = f"torchrun --nproc_per_node 4 {PLAIN} \\\n  {end}\n  --use-distributed-optimizer \\\n  --cpu-offloading\n"

    found = job(tmp_path, {"run.sh": script})

    assert found.layout.zero == 0
    assert any(
        "begins with a flag" in text and "--use-distributed-optimizer, --cpu-off" in text for text in found.notes
    )


def test_flags_of_one_command_over_several_lines_are_not_named_as_lost(tmp_path):
    found = job(tmp_path, {"run.sh": f"torchrun --nproc_per_node 4 {PLAIN} \\\n  --use-distributed-optimizer\n"})

    assert found.layout.zero == 1
    assert not any("begins with a flag" in text for text in found.notes)


def test_a_variable_of_several_lines_in_a_text_for_a_shell_loses_its_flags(tmp_path):
    flags = PLAIN.partition(" ")[2].replace(" --", "\n  --")
    script = f'FLAGS="\n  {flags}\n"\nsrun -N 2 --ntasks-per-node 8 bash -c "python pretrain_gpt.py $FLAGS"\n'

    with pytest.raises(InputError, match=r"missing.*; run.sh line \d+: line 2, and \d+ more below, begins with a flag"):
        job(tmp_path, {"run.sh": script})


def test_a_flag_that_is_said_again_behind_is_told_with_what_it_replaces(tmp_path):
    script = f"SIZE=${{SIZE:-2}}\ntorchrun --nproc_per_node 4 {PLAIN} --micro_batch_size $SIZE --micro-batch-size=1\n"

    found = job(tmp_path, {"run.sh": script})

    assert found.layout.mbs == 1
    assert [note for note in found.notes if "more than once" in note] == [
        "micro-batch-size is said more than once: 1, the last one, counts, not 2"
    ]


@pytest.mark.parametrize(
    ("command", "world"),
    [
        (f"torchrun --nproc_per_node 4 {PLAIN} $MORE", 4),
        (f"torchrun --nproc_per_node 4 $MORE {PLAIN}", None),
        (f"torchrun --nproc_per_node 4 --nnodes $MORE {PLAIN}", None),
    ],
)
def test_unknown_words_behind_a_program_leave_its_ranks_as_they_are(tmp_path, command, world):
    found = job(tmp_path, {"run.sh": f"{command}\n"})

    assert found.world == world
    assert any("$MORE" in note for note in found.notes)
