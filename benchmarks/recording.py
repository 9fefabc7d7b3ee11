"""The cost of recording the timeline: step time with the recorder on and off, in alternating blocks of one launch."""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.result import Result
from meshwright.bench.ranks.pool import RankPool
from meshwright.bench.ranks.process import prepare_process
from meshwright.layout import Layout, Plan
from meshwright.timeline import Performance
from meshwright.train.data.corpus import load_corpus
from meshwright.train.job.config import JobConfig
from meshwright.train.loop import Trainer
from meshwright.train.run.run_folder import RunFolder

RANKS = 2
BLOCK = 10  # steps of one block


def run(arguments: list[str]) -> Result:
    """Train the default job's model on two ranks, with the recorder switched every few steps."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks recording")
    parser.add_argument("--steps", type=int, default=250, help="of each kind")
    options = parser.parse_args(arguments)
    with RankPool(RANKS) as pool:
        times = pool.run(_measure, options.steps, timeout_s=600)[0]
    on, off = (statistics.median(times[kind]) for kind in ("on", "off"))
    row = {"steps_each": len(times["on"]), "on_ms": on * 1e3, "off_ms": off * 1e3, "cost_percent": (on / off - 1) * 100}
    return Result("recording on and off", [row], ["target: under 1 %"])


def _measure(rank: int, world_size: int, store: dist.Store, steps: int) -> dict[str, list[float]]:
    prepare_process(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
    with tempfile.TemporaryDirectory() as path:
        return on_and_off(trainer_of(JobConfig(), rank, world_size, torch.device("cpu"), Path(path)), steps)


def trainer_of(config: JobConfig, rank: int, ranks: int, where: torch.device, folder: Path) -> Trainer:
    """Return a rank's share of a data-parallel job."""
    corpus = load_corpus(config.data)
    return Trainer(config, _plan(config, ranks), corpus, RunFolder(folder), rank=rank, device=where)


def on_and_off(trainer: Trainer, steps: int, block: int = BLOCK) -> dict[str, list[float]]:
    """Return the seconds of a number of steps with the recorder on, and of as many with it off, in blocks by turns.

    A step ends when its loss has come to the host, on an accelerator too.
    """
    times: dict[str, list[float]] = {"on": [], "off": []}
    for step in range(2 * block):  # settles threads, buckets and caches
        trainer.step(step)
    blocks = 0
    while len(times["off"]) < steps:
        kind = "off" if blocks % 2 else "on"
        trainer.recorder.enabled = kind == "on"
        for index in range(block):
            start = time.perf_counter()
            trainer.step((2 + blocks) * block + index)
            times[kind].append(time.perf_counter() - start)
        blocks += 1
    return times


def _plan(config: JobConfig, ranks: int) -> Plan:
    parts: dict[str, Any] = dict.fromkeys(Performance.__struct_fields__[:8], 1.0)
    nothing = Performance(
        **parts,
        tokens_per_s_per_gpu=1.0,
        model_tflops_per_gpu=1.0,
        mfu=None,
        peak_memory_bytes_per_gpu=1,
    )
    batch = config.train.global_batch
    return Plan(
        layout=Layout(dp=ranks, mbs=batch // ranks),
        predicted=nothing,
        global_batch_sequences=batch,
        seq_len=config.data.seq_len,
        bucket_bytes=4 * 2**20,
    )
