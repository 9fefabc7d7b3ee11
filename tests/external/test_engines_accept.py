"""The engines themselves judge what is emitted for them, where their packages are installed (none needs a GPU)."""

import re
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from meshwright.jobs.emit import emitted
from meshwright.jobs.launch import flags_of
from meshwright.jobs.sources import gather
from meshwright.jobs.target import Target
from meshwright.layout import Layout
from meshwright.workload.models import load_model

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
MEGATRON = [
    ("llama3-70b", "tp=4,pp=4,dp=2,vpp=5,sp=1,zero=1,schedule=interleaved,recompute=selective"),
    ("llama3-70b", "tp=8,pp=3,dp=2,sp=1,zero=1"),
    ("llama3-8b", "tp=2,cp=2,dp=4,sp=1,zero=3,recompute=full"),
    ("qwen3-30b-a3b", "tp=2,dp=8,ep=8,sp=1,zero=1"),
    ("deepseek-v3", "pp=8,dp=8,ep=8,vpp=1,zero=1"),
    ("llama3-405b", "tp=8,pp=16,dp=1,vpp=8,sp=1,zero=0,schedule=interleaved"),
]
FSDP = ["dp=8,zero=3,recompute=full", "tp=2,dp=4,zero=3", "cp=4,dp=4,zero=2,replicas=2", "dp=8,zero=0"]


def target(model: str, layout: str, batch: int = 256) -> Target:
    """Return what is emitted for a layout of a model of the catalogue."""
    return Target(
        layout=Layout.parse(layout),
        architecture=load_model(model).architecture,
        model=model,
        global_batch=batch,
        seq_len=8192,
    )


def sources_of(text: str, suffix: str):
    """Return an emitted text as the reader sees it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"job{suffix}"
        file.write_text(text)
        return gather([str(file)])


@pytest.mark.parametrize(("model", "layout"), MEGATRON)
def test_megatron_core_accepts_the_emitted_flags(model, layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = pytest.importorskip("megatron.core.transformer.transformer_config", exc_type=ImportError)
    import torch

    launch = sources_of(emitted("megatron", target(model, layout)), ".sh").launch
    flags = {key.replace("-", "_"): value for key, value in flags_of(launch.arguments).items()}
    latent = "multi_latent_attention" in flags
    kind = config.MLATransformerConfig if latent else config.TransformerConfig
    renamed = {"num_experts": "num_moe_experts", "swiglu": "gated_linear_unit", "group_query_attention": None}
    values = {}
    for name, value in flags.items():
        field = renamed.get(name, name)
        if field in kind.__dataclass_fields__:
            values[field] = int(value) if isinstance(value, str) and value.isdecimal() else value
    values["add_bias_linear"] = "disable_bias_linear" not in flags
    if "moe_layer_freq" in values:
        values["moe_layer_freq"] = [0] * 3 + [1] * 58
    if isinstance(values.get("recompute_modules"), str):
        values["recompute_modules"] = [values["recompute_modules"]]
    if "num_layers_per_virtual_pipeline_stage" in flags:
        stages = values["num_layers"] // int(flags["num_layers_per_virtual_pipeline_stage"])
        values["virtual_pipeline_model_parallel_size"] = stages // values["pipeline_model_parallel_size"]
    if values.get("pipeline_model_parallel_size", 1) > 1:
        values["pipeline_dtype"] = torch.bfloat16

    accepted = kind(**values)

    assert accepted.tensor_model_parallel_size == Layout.parse(layout).tp
    assert accepted.pipeline_model_parallel_size == Layout.parse(layout).pp


@pytest.mark.parametrize("layout", FSDP)
def test_accelerate_loads_the_emitted_configuration(layout, tmp_path):
    config = pytest.importorskip("accelerate.commands.config.config_args", exc_type=ImportError)
    parallelism = pytest.importorskip("accelerate.parallelism_config", exc_type=ImportError)
    text = emitted("accelerate", target("llama3-8b", layout))
    file = tmp_path / "accelerate.yaml"
    file.write_text(re.search(r"<<'EOF'\n(.*?)\nEOF\n", text, re.DOTALL).group(1))

    loaded = config.load_config_from_file(str(file))

    assert loaded.num_processes == Layout.parse(layout).world_size
    degrees = {key.removeprefix("parallelism_config_"): value for key, value in loaded.parallelism_config.items()}
    if degrees:
        assert parallelism.ParallelismConfig(**degrees).total_size == Layout.parse(layout).world_size


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ("llama3-8b", "tp=2,dp=8,zero=3,sp=1,replicas=2,recompute=full"),
        ("llama3-70b", "tp=8,pp=4,dp=2,vpp=2,sp=1,zero=2,schedule=interleaved"),
        ("qwen3-30b-a3b", "dp=16,ep=8,zero=3,recompute=selective"),
    ],
)
def test_torchtitans_own_classes_take_the_emitted_configuration(model, layout, monkeypatch):
    """Without a GPU its trainer does not import, so that a plain namespace stands for the trainer's configuration."""
    pytest.importorskip("torchtitan.config", exc_type=ImportError)
    pytest.importorskip("torchtitan.distributed.activation_checkpoint", exc_type=ImportError)
    trainer = SimpleNamespace(Trainer=SimpleNamespace(Config=SimpleNamespace))
    monkeypatch.setitem(sys.modules, "torchtitan.trainer", trainer)
    for family in ("llama3", "qwen3"):
        registry = SimpleNamespace(model_registry=lambda flavor: flavor)
        monkeypatch.setitem(sys.modules, f"torchtitan.models.{family}", registry)
    names: dict = {}
    exec(compile(emitted("torchtitan", target(model, layout)), "job.py", "exec"), names)

    config = names["job"]()

    assert config.parallelism.tensor_parallel_degree == Layout.parse(layout).tp
    assert config.parallelism.pipeline_parallel_degree == Layout.parse(layout).pp
    assert config.training.global_batch_size == 256
