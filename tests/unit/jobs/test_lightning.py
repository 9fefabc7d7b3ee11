"""Lightning's CLI: its trainer and strategy, and arguments of one's own classes whose names leave no doubt."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

TRAINER = """trainer:
  devices: 4
  num_nodes: 2
  precision: {precision}
  strategy: {strategy}
  accumulate_grad_batches: 3
"""
CLASSES = """model: {class_path: own.Module, init_args: {model_name_or_path: Qwen/Qwen2.5-7B, lr: 1e-5}}
data:
  class_path: own.Data
  init_args: {batch_size: 2, max_seq_length: 2048, num_workers: 4}
"""
FSDP = "{class_path: lightning.pytorch.strategies.FSDPStrategy, init_args: {sharding_strategy: %s}}"


def yaml(strategy: str = "ddp", precision: str = "bf16-mixed") -> str:
    """Return a YAML of Lightning's CLI with a strategy and a precision."""
    return TRAINER.format(strategy=strategy, precision=precision) + CLASSES


def test_ranks_batch_and_length_are_its_own_and_what_classes_say_is_listed(tmp_path):
    found = job(tmp_path, {"own.yaml": yaml()})

    assert (found.world, found.gpus_per_node, found.layout.dp, found.layout.zero) == (8, 4, 8, 0)
    assert (found.layout.mbs, found.global_batch, found.seq_len, found.precision) == (2, 48, 2048, "bf16")
    assert found.architecture is not None
    assert found.architecture.name == "qwen2.5-7b"
    assert any("taken for the sequences of a rank in a pass" in text for text in found.assumed)
    assert not found.ignored


@pytest.mark.parametrize(
    ("strategy", "zero", "copies", "offload"),
    [
        ("fsdp", 3, None, None),
        (FSDP % "SHARD_GRAD_OP", 2, None, None),
        (FSDP % "HYBRID_SHARD", 3, 2, None),
        (FSDP % "FULL_SHARD, cpu_offload: true", 3, None, "parameters"),
        ("deepspeed_stage_2", 2, None, "none"),
        ("deepspeed_stage_3_offload", 3, None, "parameters"),
        ("{class_path: DeepSpeedStrategy, init_args: {stage: 3, offload_optimizer: true}}", 3, None, "optimizer"),
    ],
)
def test_a_strategy_says_what_is_shared_and_what_leaves_the_gpus(tmp_path, strategy, zero, copies, offload):
    layout = job(tmp_path, {"own.yaml": yaml(strategy)}).layout

    assert (layout.zero, layout.replicas, layout.offload) == (zero, copies, offload)


def test_words_of_fit_count_before_the_file_that_it_names(tmp_path):
    words = "srun python main.py fit --config own.yaml --data.batch_size 5 --trainer.strategy=fsdp\n"
    files = {
        "go.sh": f"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n{words}",
        "own.yaml": yaml(),
        "main.py": "cli()\n",
    }

    found = job(tmp_path, files, str(tmp_path / "go.sh"))

    assert (found.layout.mbs, found.global_batch, found.layout.zero) == (5, 120, 3)


def test_tasks_of_slurm_that_are_not_the_trainers_devices_are_a_contradiction(tmp_path):
    line = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nsrun python main.py fit --config own.yaml\n"

    with pytest.raises(InputError, match=r"trainer.devices 4 x trainer.num_nodes 2 = 8 contradicts .* 16 .go.sh."):
        job(tmp_path, {"go.sh": line, "own.yaml": yaml()}, str(tmp_path / "go.sh"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("num_workers: 4", "train_batch_size: 4", "which of them counts the sequences of a rank in a pass"),
        ("strategy: ddp", "strategy: ModelParallelStrategy", "strategy ModelParallelStrategy: expected FSDP, DDP"),
        ("bf16-mixed", "half", "trainer.precision half: expected one of"),
    ],
)
def test_what_is_not_known_is_refused_by_its_name(tmp_path, old, new, told):
    with pytest.raises(InputError, match=told):
        job(tmp_path, {"own.yaml": yaml().replace(old, new)})


def test_a_policy_of_layers_recomputes_all_of_them(tmp_path):
    policy = "FULL_SHARD, activation_checkpointing_policy: [own.Layer]"

    assert job(tmp_path, {"own.yaml": yaml(FSDP % policy)}).layout.recompute == "full"
    assert job(tmp_path, {"own.yaml": yaml("fsdp")}).layout.recompute == "none"
