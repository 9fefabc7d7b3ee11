"""A run folder without a run: as many steps and ranks as a test wants, every figure from a seed."""

import json
import math
import random
from pathlib import Path

import msgspec

from meshwright.cluster.graph import Cluster, Device, Host, Measurements
from meshwright.files import write_struct
from meshwright.layout import Candidate, Layout, Plan
from meshwright.timeline import Span, Timeline, step_parts, summarize, typical_step
from meshwright.train.job.config import JobConfig
from meshwright.train.run.run_folder import RankParts, RankPlace, RunFolder

MIB = 2**20


def step_spans(rank: int, step: int, start_s: float, *, slow: float = 1.0, buckets: int = 4) -> list[Span]:
    """Return one data-parallel step: four micro-batches, buckets that travel while backward goes on."""
    spans, now = [], start_s
    for _ in range(4):
        spans.append(Span(rank, "data", "data", now, now + 1e-4, step))
        now += 1e-4
        for name, time_s in (("forward", 4e-3 * slow), ("backward", 8e-3 * slow)):
            spans.append(Span(rank, "compute", name, now, now + time_s, step))
            now += time_s
    begun = now - 8e-3 * slow
    for bucket in range(buckets):
        begin = begun + (bucket + 1) * 2e-3
        spans.append(Span(rank, "comm", "all_reduce", begin, begin + 3e-3, step, 4 * MIB))
        now = max(now, begin + 3e-3)
    spans.append(Span(rank, "compute", "optimizer", now, now + 2e-3, step))
    return spans


def fake_run(
    path: Path, *, steps: int = 40, ranks: int = 4, hosts: int = 2, seed: int = 0, hostile: str = "", slow_rank: int = 1
) -> RunFolder:
    """Write the folder of a run that could have been; `hostile` is put wherever a name comes from outside."""
    rng = random.Random(seed)
    folder = RunFolder(path)
    layout = Layout(dp=ranks, mbs=2)
    predicted_timeline = Timeline(tuple(step_spans(0, 0, 0.0, slow=0.95)), "predicted")
    spans = [
        span
        for step in range(steps - min(steps, 5), steps)
        for rank in range(ranks)
        for span in step_spans(rank, step, step * 0.1, slow=1.2 if rank == slow_rank else rng.uniform(0.99, 1.01))
    ]
    if hostile:
        spans += [
            Span(0, "comm", hostile, span.end_s, span.end_s + 1e-3, span.step, 8, hostile)
            for span in spans
            if span.rank == 0 and span.name == "optimizer"
        ]
    figures = {"ranks": ranks, "tokens_per_step": 4096, "model_flops_per_step": 1e12, "peak_flops_per_s": 1e13}
    predicted = summarize(
        [step_parts(predicted_timeline.spans)], **figures, peak_memory_bytes=900 * MIB, error_band=0.15,
        not_modelled=("other programs on the same cores", *([hostile] if hostile else [])), calibration=("none",),
    )  # fmt: skip
    recorded = sorted({span.step for span in spans})
    by_step = [[[s for s in spans if (s.rank, s.step) == (rank, step)] for step in recorded] for rank in range(ranks)]
    parts = [typical_step(list(map(step_parts, of_rank))) for of_rank in by_step]
    measured = summarize(parts, **figures, peak_memory_bytes=1000 * MIB)
    others = [
        Candidate(Layout(dp=ranks, mbs=mbs), msgspec.structs.replace(predicted, step_time_s=predicted.step_time_s * k))
        for mbs, k in ((1, 1.3), (4, 1.1), (8, 2.0))
    ]
    plan = Plan(
        layout=layout, predicted=predicted, global_batch_sequences=8 * ranks, seq_len=128, bucket_bytes=4 * MIB,
        alternatives=tuple(others), reason=f"the fastest {hostile}",
    )  # fmt: skip
    names = [f"node{i}{hostile}" for i in range(hosts)]
    cluster = Cluster(
        name=f"box{hostile}",
        hosts=tuple(Host(name=name, cores=4, memory_bytes=2**34) for name in names),
        devices=tuple(
            Device(id=f"{name}/NIC0", kind="nic", node=name, network_bandwidth_bytes_per_s=125e6) for name in names
        ),
        measured=Measurements(fingerprint="none", memory_bandwidth_bytes_per_s=10e9),
    )
    folder.create(JobConfig(), cluster, plan, predicted_timeline, "")
    folder.write_measured(measured, Timeline(tuple(spans), "measured"))
    folder.write_rank_memory([1000 * MIB - rank * MIB for rank in range(ranks)])
    folder.write_rank_parts([RankParts(rank, of_rank, tuple(recorded)) for rank, of_rank in enumerate(parts)])
    for rank in range(ranks):
        write_struct(folder.ranks / f"{rank}.json", RankPlace(rank, names[rank * hosts // ranks], 1000 + rank))
    with folder.metrics.open("w") as file:
        for step in range(steps):
            row = {
                "step": step, "loss": 2 + 4 * math.exp(-step / 20) + rng.gauss(0, 0.02), "step_time_s": 0.05,
                "tokens_per_s": 80e3 + rng.gauss(0, 1e3), "grad_norm": 8 * math.exp(-step / 10) + 0.02,
                "learning_rate": 3e-4 * min(1.0, step / 10),
            }  # fmt: skip
            if step % max(1, steps // 4) == 0:
                row["validation_loss"] = row["loss"] + 0.1
            file.write(json.dumps(row) + "\n")
    return folder
