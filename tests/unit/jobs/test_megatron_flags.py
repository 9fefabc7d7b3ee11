"""Flags emitted for Megatron-LM parse by a list of the names, kinds and choices of its own flags."""

import argparse
import json
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.jobs.emit.config import emitted
from meshwright.jobs.emit.target import EmitTarget
from meshwright.jobs.gather import gather_sources
from meshwright.jobs.options import JobOptions
from meshwright.jobs.read import read_job
from meshwright.layout import Layout
from meshwright.workload.models import load_model

KNOWN = json.loads((Path(__file__).parent / "megatron_flags.json").read_text())
EMITTED = [
    ("llama3-70b", "tp=4,pp=4,dp=2,vpp=5,sp=1,zero=1,schedule=interleaved,recompute=selective", "bf16"),
    ("llama3-70b", "tp=8,pp=3,dp=2,sp=1,zero=1", "fp8"),
    ("llama3-8b", "tp=2,cp=2,dp=4,sp=1,zero=3,recompute=full", "mxfp8"),
    ("llama3-8b", "dp=8,zero=2", "nvfp4"),
    ("gpt2", "dp=8,zero=0", "fp16"),
    ("qwen3-30b-a3b", "tp=2,dp=8,ep=8,sp=1,zero=1", "bf16"),
    ("deepseek-v3", "pp=8,dp=8,ep=8,zero=1", "bf16"),
    ("mixtral-8x7b", "dp=8,ep=8,zero=1", "bf16"),
    ("qwen2.5-7b", "dp=8,zero=1", "bf16"),
    ("llama3-405b", "tp=8,pp=16,dp=1,vpp=8,sp=1,zero=0,schedule=interleaved", "bf16"),
]


class Refused(Exception):
    """A command line that the parser does not take."""


class Parser(argparse.ArgumentParser):
    """A parser that raises in place of ending the process."""

    def error(self, message):
        raise Refused(message)


def parser() -> Parser:
    """Return a parser with the flags of the list, of their kinds."""
    made = Parser(allow_abbrev=False)
    for name in KNOWN["switch"]:
        made.add_argument(f"--{name}", action="store_true")
    for kind, of in (("whole", int), ("number", float), ("text", str)):
        for name in KNOWN[kind]:
            made.add_argument(f"--{name}", type=of)
    for name in KNOWN["several"]:
        made.add_argument(f"--{name}", nargs="+")
    for name, choices in KNOWN["one_of"].items():
        made.add_argument(f"--{name}", choices=choices)
    return made


def arguments(text: str, folder: Path) -> list[str]:
    """Return the words behind the program in a script."""
    script = folder / "job.sh"
    script.write_text(text)
    return [word for word in gather_sources([str(script)]).launch.arguments if word]


@pytest.mark.parametrize(("model", "layout", "precision"), EMITTED)
def test_megatron_s_parser_takes_what_is_emitted(model, layout, precision, tmp_path):
    target = EmitTarget(
        layout=Layout.parse(layout),
        architecture=load_model(model).architecture,
        model=model,
        global_batch=256,
        seq_len=8192,
        precision=precision,
    )

    found = parser().parse_args(arguments(emitted("megatron", target), tmp_path))

    assert found.tensor_model_parallel_size == target.layout.tp
    assert found.global_batch_size == 256


@pytest.mark.parametrize(
    ("model", "none", "queries"),
    [("llama3-8b", True, False), ("qwen2.5-7b", True, True), ("gpt3-175b", False, False), ("deepseek-v3", True, False)],
)
def test_linear_layers_have_the_biases_of_the_model(model, none, queries, tmp_path):
    target = EmitTarget(
        layout=Layout.parse("dp=8"),
        architecture=load_model(model).architecture,
        model=model,
        global_batch=64,
        seq_len=2048,
    )

    found = parser().parse_args(arguments(emitted("megatron", target), tmp_path))

    assert (found.disable_bias_linear, found.add_qkv_bias) == (none, queries)


def test_layers_with_experts_are_emitted_where_they_are(tmp_path):
    script = tmp_path / "mixed.sh"
    script.write_text(
        "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 6 --hidden-size 1024 --num-attention-heads 16 "
        "--ffn-hidden-size 4096 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 32000 --bf16 "
        "--micro-batch-size 1 --global-batch-size 64 --num-experts 8 --expert-model-parallel-size 8 --moe-layer-freq 2"
    )
    job = read_job([str(script)], JobOptions())
    target = EmitTarget(
        layout=Layout.parse("dp=8,ep=8"),
        architecture=job.architecture,
        model="",
        global_batch=64,
        seq_len=2048,
        precision="bf16",
    )

    found = parser().parse_args(arguments(emitted("megatron", target), tmp_path))

    assert found.moe_layer_freq == "([1]*1+[0]*1+[1]*1+[0]*1+[1]*1+[0]*1)"
    again = read_job([str(tmp_path / "job.sh")], JobOptions(gpus=8)).architecture
    assert again.runs == job.architecture.runs


@pytest.mark.parametrize(
    "words",
    [["--tensor-parallel-size", "2"], ["--bf16", "true"], ["--num-layers", "many"], ["--normalization", "rms"]],
)
def test_the_list_refuses_what_megatron_does_not_take(words):
    with pytest.raises(Refused):
        parser().parse_args(words)


def test_modules_that_predict_further_tokens_and_scales_of_blocks_are_emitted_and_read_back(tmp_path):
    target = EmitTarget(
        layout=Layout.parse("pp=4,dp=2,ep=2,zero=1"),
        architecture=load_model("deepseek-v3").training(1).architecture,
        model="deepseek-v3",
        global_batch=64,
        seq_len=4096,
        precision="fp8-block",
    )

    found = parser().parse_args(arguments(emitted("megatron", target), tmp_path))
    job = read_job([str(tmp_path / "job.sh")], JobOptions(gpus=8))

    assert (found.mtp_num_layers, found.fp8_recipe) == (1, "blockwise")
    assert found.pipeline_model_parallel_layout.endswith("mL")
    assert (job.architecture.mtp_trained, job.precision) == (1, "fp8-block")
    assert job.architecture.parameters == pytest.approx(target.architecture.parameters, rel=1e-6)
    bridge = emitted("bridge", target)
    assert "model.mtp_num_layers=1" in bridge
    assert "mixed_precision=bf16_with_fp8_subchannel_scaling_mixed" in bridge


def test_an_engine_whose_text_says_no_such_modules_refuses_them():
    target = EmitTarget(
        layout=Layout.parse("dp=8,zero=3"), architecture=load_model("llama3-8b").training(1).architecture,
        model="llama3-8b", global_batch=64, seq_len=4096,
    )  # fmt: skip

    with pytest.raises(InputError, match="--emit torchtitan: of modules that predict further tokens"):
        emitted("torchtitan", target)
