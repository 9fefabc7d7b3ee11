"""Programs on Lightning's trainer: its devices, strategy and precision, and samples and lengths that calls name."""

import pytest

from meshwright.errors import InputError
from tests.unit.jobs.test_strangers import job

PROGRAM = """import lightning.pytorch as pl
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch.utils.data import DataLoader

ROWS = 3


class Net(pl.LightningModule):
    def configure_model(self):
        self.net = make(block_size=1024)

    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=ROWS)

    def val_dataloader(self):
        return DataLoader(self.rows, batch_size=64)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    trainer = pl.Trainer(
        devices=4, num_nodes=2, precision="bf16-mixed", accumulate_grad_batches=5, strategy=STRATEGY, max_steps=9
    )
    trainer.fit(Net(model_name="Qwen/Qwen2.5-7B"))


if __name__ == "__main__":
    main()
"""


def program(strategy: str = '"ddp"', *changes: tuple[str, str]) -> str:
    """Return a program with a strategy, some of its words changed."""
    text = PROGRAM.replace("STRATEGY", strategy)
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


def test_a_program_is_its_trainer_with_the_batch_and_length_that_its_calls_say(tmp_path):
    found = job(tmp_path, {"own.py": program()})

    assert (found.world, found.layout.dp, found.layout.zero) == (8, 8, 0)
    assert (found.layout.mbs, found.global_batch, found.seq_len, found.precision) == (3, 3 * 5 * 8, 1024, "bf16")
    assert (found.model_name, found.optimizer) == ("Qwen/Qwen2.5-7B", "sgd")
    assert "DataLoader.batch_size 3 (own.py): taken for the sequences of a rank in a pass" in found.assumed
    assert not found.ignored


@pytest.mark.parametrize(
    ("strategy", "zero", "copies"),
    [
        ('"fsdp"', 3, 1),
        ("FSDPStrategy(sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)", 2, 1),
        ('FSDPStrategy(sharding_strategy="HYBRID_SHARD")', 3, 2),
        ("pl.strategies.DDPStrategy(find_unused_parameters=False)", 0, 1),
        ('"deepspeed_stage_1"', 1, 1),
    ],
)
def test_the_strategy_of_a_program_is_read_as_that_of_a_yaml(tmp_path, strategy, zero, copies):
    found = job(tmp_path, {"own.py": program(strategy)})

    assert (found.layout.zero, found.layout.replicas or 1) == (zero, copies)


def test_what_a_strategy_offloads_stands_in_a_class_of_torchs(tmp_path):
    found = job(tmp_path, {"own.py": program("FSDPStrategy(cpu_offload=CPUOffload(offload_params=True))")})

    assert found.layout.offload == "parameters"


@pytest.mark.parametrize(
    ("sizes", "tp", "dp"),
    [("", 4, 2), ("tensor_parallel_size=2, data_parallel_size=4", 2, 4), ('tensor_parallel_size="auto"', 4, 2)],
)
def test_a_mesh_splits_the_ranks_and_what_the_code_shards_is_said_as_it_is_taken(tmp_path, sizes, tp, dp):
    found = job(tmp_path, {"own.py": program(f"ModelParallelStrategy({sizes})")})

    assert (found.layout.tp, found.layout.dp, found.layout.zero) == (tp, dp, 0)
    assert found.global_batch == 3 * 5 * dp
    assert any("the split that configure_model makes is not read" in text for text in found.assumed)


def test_a_model_that_shards_itself_in_the_file_is_sharded(tmp_path):
    text = program(
        "ModelParallelStrategy()", ("self.net = make(", "fully_shard(self.net, mesh=self.mesh)\n        make(")
    )

    assert job(tmp_path, {"own.py": text}).layout.zero == 3


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('precision="bf16-mixed"', "precision=chosen()", r"trainer\.precision \(chosen\(\)\): is not set"),
        ("num_nodes=2", "num_nodes=nodes_of_job()", r"trainer\.num_nodes \(nodes_of_job\(\)\): is not set"),
        ("num_nodes=2", "num_nodes=count", r"trainer\.num_nodes \(count\): is not set"),
        ('strategy="ddp"', "strategy=pick", r"trainer\.strategy \(pick\): is not set"),
        ("max_steps=9", "**more", r"trainer\.\*\* \(more\): is not set"),
        ("num_nodes=2", "num_nodes=0", "expected a whole number of 1"),
    ],
)
def test_what_only_the_running_program_knows_is_asked_for_and_no_default(tmp_path, before, after, told):
    with pytest.raises(InputError, match=told):
        job(tmp_path, {"own.py": program('"ddp"', (before, after))})


@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        ('"fsdp"', "plugins=[MixedPrecision('bf16-mixed', 'cuda')]"),
        ("FSDPStrategy(mixed_precision=MixedPrecision())", ""),
    ],
)
def test_a_plugin_that_sets_the_precision_is_no_single_precision(tmp_path, strategy, more):
    text = program(strategy, ('precision="bf16-mixed", ', ""), ("max_steps=9", more or "max_steps=9"))

    with pytest.raises(InputError, match="sets the precision, which is not read: say it with --precision"):
        job(tmp_path, {"own.py": text})


def test_a_batch_that_no_call_says_is_asked_for(tmp_path):
    found = job(tmp_path, {"own.py": program('"ddp"', ("batch_size=ROWS", "batch_size=self.rows_of_pass"))})

    assert found.layout.mbs is None
    assert "--global-batch" in found.asked


def test_tasks_of_slurm_are_the_devices_of_a_program_that_they_start(tmp_path):
    head = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-node=4\n"
    files = {"go.sh": f"{head}srun python own.py\n", "own.py": program()}

    assert job(tmp_path, files, str(tmp_path / "go.sh")).world == 8
    with pytest.raises(InputError, match=r"trainer\.devices 4 x trainer\.num_nodes 2 = 8 contradicts"):
        job(tmp_path, files | {"go.sh": files["go.sh"].replace("nodes=2", "nodes=3")}, str(tmp_path / "go.sh"))


def test_a_trainer_that_nothing_in_the_file_makes_is_refused_by_name(tmp_path):
    text = program('"ddp"', ('if __name__ == "__main__":\n    main()\n', ""))

    with pytest.raises(InputError, match="this starts Lightning, which is not read"):
        job(tmp_path, {"own.py": text})


@pytest.mark.parametrize(
    ("made", "model"),
    [
        ("AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(NAME))", "Qwen/Qwen2.5-7B"),
        ("AutoModelForCausalLM.from_pretrained(NAME, torch_dtype=torch.bfloat16)", "Qwen/Qwen2.5-7B"),
        ("AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(NAME, num_hidden_layers=2))", None),
        ("AutoModelForCausalLM.from_pretrained(self.hparams.name)", None),
        ("AutoTokenizer.from_pretrained(NAME)", None),
    ],
)
def test_a_module_is_the_model_that_its_class_loads_by_a_name_of_the_file(tmp_path, made, model):
    text = program('"ddp"', ("ROWS = 3", 'ROWS = 3\nNAME = "Qwen/Qwen2.5-7B"'), ("make(block_size=1024)", made))
    text = text.replace('Net(model_name="Qwen/Qwen2.5-7B")', "Net()").replace("ROWS = 3", "ROWS = 3\nBLOCK_SIZE = 512")

    found = job(tmp_path, {"own.py": text})

    assert (found.model_name, found.seq_len) == (model, 512)
    assert any("512" in told and "taken for the tokens of a sequence" in told for told in found.assumed)


@pytest.mark.parametrize(("fused", "kind"), [("", ""), (", fused=True", "adamw-fused"), (", fused=self.fused", "")])
def test_the_optimiser_of_a_class_is_fused_where_its_call_says_so(tmp_path, fused, kind):
    text = program('"ddp"', ("torch.optim.SGD(self.parameters(), lr=0.1)", f"AdamW(self.parameters(), lr=0.1{fused})"))

    assert job(tmp_path, {"own.py": text}).optimizer == kind
