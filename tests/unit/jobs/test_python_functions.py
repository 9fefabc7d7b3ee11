"""Functions of a Python file: which is its configuration, and what others hand on."""

import ast

import pytest

from meshwright.errors import InputError
from meshwright.jobs.python.functions import returns_config, runs_among
from tests.unit.jobs.test_strangers import job

PARTS = """
def model() -> run.Config[LightningModule]:
    return run.Config(Own)

def trainer(nodes: int = 4) -> run.Config:
    return run.Config(Trainer, num_nodes=nodes)

def helper(size: int) -> int:
    return size
"""
ONE = "def pretrain_recipe() -> run.Partial:\n    return run.Partial(pretrain, model=model(), trainer=trainer())\n"
TWO = f"{ONE}\ndef finetune_recipe() -> run.Partial[Own]:\n    return base()\n"


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        (PARTS, ["model", "trainer"]),
        (PARTS + ONE, ["pretrain_recipe"]),
        (PARTS + TWO, ["pretrain_recipe", "finetune_recipe"]),
    ],
)
def test_what_runs_is_chosen_before_the_parts_that_it_is_made_of(text, chosen):
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}

    assert runs_among([name for name, node in functions.items() if returns_config(node)], functions) == chosen


# --- configurations that are handed on

BASE = """import dataclasses
from torchtitan.trainer import Trainer
from ours.trainer import OwnTrainer, with_tests


def base() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        hf_assets_path="./Qwen3-8B",
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=8192, max_context_length=4096),
        parallelism=ParallelismConfig(data_parallel_shard_degree=4, tensor_parallel_degree=2),
    )


def own() -> OwnTrainer.Config:
    config = base()
    return HANDED
"""


@pytest.mark.parametrize(
    "handed",
    [
        "OwnTrainer.Config(**{f.name: getattr(config, f.name) for f in dataclasses.fields(Trainer.Config)})",
        "OwnTrainer.Config(**vars(config))",
        "OwnTrainer.Config(**config.__dict__)",
        "with_tests(config)",
    ],
)
def test_a_configuration_that_is_made_of_another_has_its_settings(tmp_path, handed):
    (tmp_path / "registry.py").write_text(BASE.replace("HANDED", handed))

    found = job(tmp_path, {}, f"{tmp_path}/registry.py:own")

    assert (found.world, found.layout.tp, found.layout.dp) == (8, 2, 4)
    assert (found.seq_len, found.layout.mbs) == (4096, 2)


def test_settings_that_only_running_the_file_tells_are_no_defaults(tmp_path):
    (tmp_path / "registry.py").write_text(BASE.replace("HANDED", "OwnTrainer.Config(**json.load(open(PATH)))"))

    with pytest.raises(InputError, match=r"OwnTrainer\.Config takes \*\*json\.load.*only running the file tells"):
        job(tmp_path, {}, f"{tmp_path}/registry.py:own", gpus=8)
