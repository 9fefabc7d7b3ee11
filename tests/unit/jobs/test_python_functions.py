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


# --- registries that lie in a folder of another name

BESIDE = """from torchtitan.trainer import Trainer
from . import model_registry


def FUNCTION() -> Trainer.Config:
    return Trainer.Config(model_spec=model_registry("16B"), training=TrainingConfig(local_batch_size=4, seq_len=4096))
"""


def test_a_registry_in_a_folder_of_another_name_is_of_the_family_that_its_function_is_named_for(tmp_path):
    found = job(tmp_path, {"config_registry.py": BESIDE.replace("FUNCTION", "deepseek_v3_16b_long")}, gpus=8)

    assert found.model_name == "deepseek-v2-lite"
    assert "the model deepseek-v2-lite: by the name of the function deepseek_v3_16b_long" in found.assumed


@pytest.mark.parametrize("function", ["ours_16b", "deepseek_v3_lite_16b"])
def test_a_function_of_no_known_family_leaves_the_model_open(tmp_path, function):
    found = job(tmp_path, {"config_registry.py": BESIDE.replace("FUNCTION", function)}, gpus=8)

    assert found.architecture is None
