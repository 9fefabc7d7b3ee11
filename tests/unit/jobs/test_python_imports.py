"""Recipes that take settings from other modules of their own source tree."""

import pytest

from meshwright.errors import InputError
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job

BASE = """from megatron.bridge.training.config import ConfigContainer

def set_layout(model):
    pp = model.pipeline_model_parallel_size or 1
    vpp = model.virtual_pipeline_model_parallel_size or 1
    layouts = {
        (1, 1): None,
        (4, 2): [["embedding"] + ["decoder"] * 8] + [["decoder"] * 8] * 6 + [["decoder"] * 5 + ["mtp", "loss"]],
    }
    if (pp, vpp) in layouts:
        model.pipeline_model_parallel_layout = list([list(stage) for stage in layouts[(pp, vpp)]])

def deepseek_v3_base() -> ConfigContainer:
    cfg = ConfigContainer()
    cfg.model = AutoBridge.from_hf_pretrained("deepseek-ai/DeepSeek-V3").to_megatron_provider()
    cfg.dataset.seq_length = 4096
    cfg.train.global_batch_size = 2048
    cfg.train.micro_batch_size = 1
    cfg.model.expert_model_parallel_size = 16
    cfg.optimizer.use_distributed_optimizer = True
    return cfg
"""
PRECISION = """def of(name):
    cfg = MixedPrecisionConfig(bf16=True)
    if name == "mx":
        cfg.fp8 = "e4m3"
        cfg.fp8_recipe = "mxfp8"
    return cfg
"""
RECIPE = """from megatron.bridge.recipes.deepseek import deepseek_v3_base, set_layout
from .common import of

def deepseek_v3_pretrain_256gpu_b200_config():
    cfg = deepseek_v3_base()
    cfg.mixed_precision = of("mx")
    cfg.model.pipeline_model_parallel_size = 4
    cfg.model.virtual_pipeline_model_parallel_size = 2
    set_layout(cfg.model)
    return cfg
"""


def tree(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_what_a_recipe_imports_from_its_own_tree_is_read(tmp_path):
    tree(
        tmp_path,
        {
            "src/megatron/bridge/recipes/deepseek/__init__.py": "from .v3 import deepseek_v3_base, set_layout\n",
            "src/megatron/bridge/recipes/deepseek/v3.py": BASE,
            "src/megatron/bridge/perf/common.py": PRECISION,
            "src/megatron/bridge/perf/deepseek.py": RECIPE,
        },
    )

    job = read_job(
        [str(tmp_path / "src/megatron/bridge/perf/deepseek.py:deepseek_v3_pretrain_256gpu_b200_config")], JobOptions()
    )

    assert (job.world, job.global_batch, job.seq_len, job.precision) == (256, 2048, 4096, "mxfp8")
    assert (job.layout.pp, job.layout.vpp, job.layout.ep, job.layout.zero) == (4, 2, 16, 1)
    assert job.stages == (8, 8, 8, 8, 8, 8, 8, 5)
    assert any("256 GPUs" in line for line in job.assumed)


def test_a_recipe_that_hands_on_another_is_refused_where_that_one_is_not_here(tmp_path):
    text = "from .h100 import llama3_8b_h100_config\n\ndef llama3_8b_8gpu_b200_config():\n"
    text += "    return llama3_8b_h100_config()\n"
    tree(tmp_path, {"megatron_bridge_recipe.py": "from megatron.bridge.training import x\n" + text})

    with pytest.raises(InputError, match="takes its degrees from llama3_8b_h100_config, which is not here"):
        read_job([str(tmp_path / "megatron_bridge_recipe.py:llama3_8b_8gpu_b200_config")], JobOptions(gpus=8))


def test_modules_that_import_each_other_end(tmp_path):
    tree(
        tmp_path,
        {
            "a.py": "from .b import llama3_8b_config\nfrom megatron.bridge.training import x\n",
            "b.py": "from .a import llama3_8b_config\n",
        },
    )

    with pytest.raises(InputError):
        read_job([str(tmp_path / "a.py:llama3_8b_config")], JobOptions(gpus=8))


def test_the_converters_of_a_torchtitan_model_count_although_its_registry_is_here(tmp_path):
    registry = "def model_registry(flavor, converters=None):\n    return ModelSpec(name='llama3', flavor=flavor)\n"
    config = (
        "from torchtitan.models.llama3 import model_registry\nfrom torchtitan.trainer import Trainer\n\n"
        "def llama3_8b_mx() -> Trainer.Config:\n    return Trainer.Config(\n"
        "        model_spec=model_registry('8B', converters=[MXFP8LinearConverter.Config()]),\n"
        "        training=TrainingConfig(local_batch_size=1, seq_len=8192),\n    )\n"
    )
    tree(
        tmp_path,
        {"torchtitan/models/llama3/__init__.py": registry, "torchtitan/models/llama3/config_registry.py": config},
    )

    job = read_job([str(tmp_path / "torchtitan/models/llama3/config_registry.py:llama3_8b_mx")], JobOptions(gpus=8))

    assert (job.precision, job.model_name) == ("mxfp8", "llama3-8b")


def test_a_module_that_passes_on_a_recipe_stands_for_it(tmp_path):
    passed_on = "from megatron.bridge.recipes.deepseek.v3 import deepseek_v3_base\n"
    tree(
        tmp_path,
        {
            "megatron/bridge/recipes/deepseek/__init__.py": passed_on,
            "megatron/bridge/recipes/deepseek/v3.py": BASE,
        },
    )

    job = read_job(
        [str(tmp_path / "megatron/bridge/recipes/deepseek/__init__.py:deepseek_v3_base")], JobOptions(gpus=64)
    )

    assert (job.engine, job.layout.ep, job.global_batch) == ("bridge", 16, 2048)
