"""Small jobs for tests: a run folder with a plan that was not measured, and one rank of it."""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist

from meshwright.cluster.graph import Cluster
from meshwright.errors import MeshwrightError
from meshwright.layout import Layout, Plan
from meshwright.timeline import Performance, Span, Timeline
from meshwright.train.integrity.flips import FLIP_VARIABLE
from meshwright.train.job.config import DataConfig, JobConfig, LaunchConfig, OptimizerConfig, TrainConfig
from meshwright.train.job.environment import Place
from meshwright.train.run.run_folder import RunFolder
from meshwright.train.worker import Member, train_rank
from meshwright.workload.transformer import ModelConfig

UNMEASURED = Performance(
    step_time_s=1.0,
    forward_s=0.3,
    backward_s=0.6,
    optimizer_s=0.1,
    exposed_comm_s=0.0,
    hidden_comm_s=0.0,
    bubble_s=0.0,
    data_s=0.0,
    tokens_per_s_per_gpu=1.0,
    model_tflops_per_gpu=1.0,
    mfu=0.5,
    peak_memory_bytes_per_gpu=1,
)


def write_corpus(folder: Path) -> str:
    """Write a few files of text that no two alike parts make up, and return their folder."""
    corpus = folder / "corpus"
    corpus.mkdir()
    for number in range(12):
        lines = (f"def f{number}_{line}(x): return x * {line * line % 97} + {number}\n" for line in range(200))
        (corpus / f"file{number}.py").write_text("".join(lines))
    return str(corpus)


def small_job(corpus: str, **train: object) -> JobConfig:
    """Return a job that takes milliseconds a step."""
    return JobConfig(
        model=ModelConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2
        ),
        data=DataConfig(paths=(corpus,), seq_len=32, validation_sequences=8),
        optimizer=OptimizerConfig(warmup_steps=5),
        train=TrainConfig(**({"steps": 20, "global_batch": 8, "checkpoint_every": 0} | train)),
        launch=LaunchConfig(timeout_s=30.0),
    )


def write_run(path: Path, job: JobConfig, layout: Layout) -> RunFolder:
    """Write the run folder of a job under a layout."""
    plan = Plan(
        layout=layout,
        predicted=UNMEASURED,
        global_batch_sequences=job.train.global_batch,
        seq_len=job.data.seq_len,
        bucket_bytes=2**14,  # several buckets even for a small model
    )
    timeline = Timeline(spans=(Span(0, "compute", "forward", 0.0, 1.0),), source="predicted")
    folder = RunFolder(path)
    folder.create(job, Cluster(name="test"), plan, timeline, "")
    return folder


def run_rank(rank: int, world_size: int, store: dist.Store, path: str, backend: str = "meshwright") -> str:
    """Run one rank of a job in a rank pool; return what stopped it."""
    if world_size > 1:
        dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    return train_rank(RunFolder(Path(path)), Member(Place(rank, world_size, rank, world_size), torch.device("cpu")))


def losses(folder: RunFolder) -> list[float]:
    """Return the loss of each step, as metrics.jsonl has it."""
    return [json.loads(line)["loss"] for line in folder.metrics.read_text().splitlines()]


def run_flipped(rank: int, world_size: int, store: dist.Store, path: str, flip: str) -> str:
    """Run one rank of a job in which a bit flips; return what it raised."""
    os.environ[FLIP_VARIABLE] = flip
    try:
        return run_rank(rank, world_size, store, path)
    except MeshwrightError as error:
        return str(error)
    finally:
        del os.environ[FLIP_VARIABLE]
        if dist.is_initialized():
            dist.destroy_process_group()
