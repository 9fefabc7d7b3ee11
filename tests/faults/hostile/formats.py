"""Every file format that Meshwright reads: a good file of each, and what reads it, as the command line does."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from meshwright import cli
from meshwright.collectives.catalogue import build_schedule
from meshwright.layout import Layout
from meshwright.train.checkpoint.llama import read_config
from meshwright.train.data.corpus import vocabulary_size
from meshwright.train.job.config import load_job, template
from meshwright.train.run.run_folder import RunFolder
from meshwright.workload.models.catalogue import load_model
from testkit.small_checkpoints import HUGGING_FACE
from testkit.topology_dumps import matrix_text
from testkit.train_jobs import small_job, write_run
from tests.unit.bench.test_table import NCCL_TESTS
from tests.unit.train.checkpoint.samples import whole_tensors, write_checkpoint

SHARED = Path(__file__).parents[2] / "unit"
MATRIX = matrix_text(("GPU0", "GPU1"), {(0, 1): "NV18"}, ("0-7", "8-15"), (0, 1))
CATALOGUE = """[sources]
lab = "measured in our lab"
[accelerators.x1]
title = "X1"
vendor = "us"
host_link = "pcie-5"
memory = { value = "48GB", source = "lab" }
memory_rate = { value = "1TB/s", source = "lab" }
flops = { bf16 = { value = "200TFLOP/s", source = "lab" } }
"""
TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
    "pre_tokenizer": None, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2}, "unk_token": "[UNK]"},
}  # fmt: skip


@dataclass(frozen=True)
class Format:
    """A format: how a good file comes about, under which name, and what reads it."""

    name: str
    file: str  # in the folder that `make` fills; this is what is malformed
    make: Callable[[Path], None]
    read: Callable[[Path], int]  # the exit code; called with the folder


def command_line(*words: str) -> Callable[[Path], int]:
    """Return what runs a command; `{}` in a word is the folder."""
    return lambda folder: cli.run_command([word.replace("{}", str(folder)) for word in words])


def or_found(read: Callable[[Path], int]) -> Callable[[Path], int]:
    """Return what runs a command whose exit code 1 says that it found what it looks for."""
    return lambda folder: 0 if (code := read(folder)) == 1 else code


def called(function: Callable[[Path], object]) -> Callable[[Path], int]:
    """Return what calls a reader as a command would, without what the command goes on to do."""

    def read(folder: Path) -> int:
        @click.command()
        def command() -> int:
            function(folder)
            return 0

        return cli.run_command([], command=command)

    return read


def text(name: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(content) and None


def run_folder(folder: Path) -> None:
    write_run(folder / "run", small_job("corpus"), Layout(dp=2, mbs=2))


def flight(folder: Path) -> None:
    call = {"sequence": 3, "operation": "all_reduce", "size_bytes": 40, "ended": False}
    group = {"name": "0", "arrivals": {"0": 3, "1": 2}, "flights": [call]}
    record = {"rank": 0, "pid": 1, "reason": "", "written_s": 2.0, "groups": [group]}
    (folder / "flight-0.json").write_text(json.dumps(record))


def copied(name: str, source: str) -> Callable[[Path], None]:
    return text(name, (SHARED / source).read_text())


FORMATS = (
    Format("config", "job.toml", text("job.toml", template()), called(lambda f: load_job(f / "job.toml", {}))),
    Format(
        "catalogue", "hardware.toml", text("hardware.toml", CATALOGUE),
        command_line("topo", "--catalogue", "--hardware", "{}/hardware.toml"),
    ),
    Format("cluster", "run/cluster.json", run_folder, command_line("topo", "--from", "{}/run/cluster.json")),
    Format("plan", "run/plan.json", run_folder, called(lambda f: RunFolder(f / "run").plan())),
    Format(
        "timeline", "run/predicted_timeline.json", run_folder,
        called(lambda f: RunFolder(f / "run").timeline("predicted")),
    ),
    Format(
        "trace", "run/predicted_timeline.json", run_folder,
        command_line("report", "{}/run/predicted_timeline.json", "--output", "{}/page.html"),
    ),
    Format(
        "manifest", "c/manifest.json", lambda f: write_checkpoint(f / "c", whole_tensors(), "rows", 2) and None,
        command_line("checkpoint", "verify", "{}/c"),
    ),
    Format(
        "shard", "c/rank-00001.safetensors", lambda f: write_checkpoint(f / "c", whole_tensors(), "rows", 2) and None,
        command_line("checkpoint", "verify", "{}/c"),
    ),
    Format("matrix", "topo.txt", text("topo.txt", MATRIX), command_line("topo", "--from", "{}/topo.txt")),
    Format(
        "lstopo", "topo.xml", copied("topo.xml", "cluster/data/synthetic_2x4.xml"),
        command_line("topo", "--from", "{}/topo.xml"),
    ),
    Format(
        "msccl", "ring.xml", copied("ring.xml", "collectives/msccl/allreduce_ring_4.xml"),
        or_found(command_line("collectives", "verify", "--xml", "{}/ring.xml")),
    ),
    Format(
        "schedule", "ring.txt", text("ring.txt", str(build_schedule("all_reduce", "ring", 3))),
        or_found(command_line("collectives", "verify", "--file", "{}/ring.txt")),
    ),
    Format(
        "tokenizer", "tokenizer.json", text("tokenizer.json", json.dumps(TOKENIZER)),
        called(lambda f: vocabulary_size(str(f / "tokenizer.json"))),
    ),
    Format(
        "model", "config.json", text("config.json", json.dumps(HUGGING_FACE)),
        called(lambda f: load_model(str(f / "config.json"))),
    ),
    Format(
        "hugging face", "config.json", text("config.json", json.dumps(HUGGING_FACE)),
        called(lambda f: read_config(f / "config.json")),
    ),
    Format("flight record", "flight-0.json", flight, or_found(command_line("doctor", "--run", "{}"))),
    Format("bench table", "table.txt", text("table.txt", NCCL_TESTS), command_line("bench", "--from", "{}/table.txt")),
)  # fmt: skip
