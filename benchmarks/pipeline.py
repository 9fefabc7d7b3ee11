"""Pipelines: idle share of each schedule against theory, and what the automatic cut gains over equal layers.

Every layer sleeps (50 ms forward, 100 ms backward a stage), as two cores cannot compute four stages at once; messages,
schedule and engine are those of training. Usage: python -m benchmarks pipeline [backend [schedule ..]]
"""

import contextlib
import statistics
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.result import Result
from benchmarks.sleeping import WIDTH, SleepingChain
from meshwright.bench.ranks.pool import RankPool
from meshwright.layout import Layout, Plan
from meshwright.parallel.build import build_engine
from meshwright.parallel.engine import Settings
from meshwright.pipelines import ChainUnit, StageTarget, best_cut, bubble_share, equal_cut, schedule, stage_times, timed
from meshwright.timeline import Performance, Span
from meshwright.train.measure.recorder import Recorder

FORWARD_S = 0.05
STEPS = 3  # measured, after one that is not
SCHEDULES = (("1f1b", 1), ("gpipe", 1), ("interleaved", 2), ("zb", 1), ("zb", 2))
UNKNOWN = Performance(
    step_time_s=0, forward_s=0, backward_s=0, optimizer_s=0, exposed_comm_s=0, hidden_comm_s=0, bubble_s=0, data_s=0,
    tokens_per_s_per_gpu=0, model_tflops_per_gpu=0, mfu=None, peak_memory_bytes_per_gpu=0,
)  # fmt: skip


def run(arguments: list[str]) -> Result:
    """Measure every schedule at p = 4, then the cut of a model with one heavy layer."""
    backend, wanted = (arguments[0], arguments[1:]) if arguments else ("meshwright", [])
    rows: list[dict[str, Any]] = []
    with RankPool(4) as pool:
        for name, virtual in ((n, v) for n, v in SCHEDULES if not wanted or n in wanted):
            for micro_batches in (4, 8, 16):
                if name == "zb" and virtual == 2 and micro_batches < 7:
                    continue
                layout = Layout(pp=4, vpp=virtual, schedule=name)  # type: ignore[arg-type]
                seconds = [FORWARD_S / virtual] * (4 * virtual)
                share = idle_share(pool.run(train, layout, seconds, micro_batches, (), backend))
                theory = bubble_share(name, 4, virtual, micro_batches)  # type: ignore[arg-type]
                rows.append(
                    {"what": f"idle share, {name}, vpp={virtual}, p=4, m={micro_batches}", "theory": round(theory, 4),
                     "measured": round(share, 4), "ratio": round(share / theory, 3)}
                )  # fmt: skip
    with RankPool(2) as pool:
        rows.append(cut_quality(pool, backend))
    return Result("Pipelines of layers that sleep", rows, [f"backend {backend}; {STEPS} steps after one, medians"])


def cut_quality(pool: RankPool, backend: str) -> dict[str, Any]:
    """Return the gain of the automatic cut over equal layers where one of 8 layers weighs 5, planned and measured."""
    seconds = [0.02 * weight for weight in (1, 1, 5, 1, 1, 1, 1, 1)]
    layout, micro_batches = Layout(pp=2), 8
    grid = schedule("1f1b", 2, 1, micro_batches)
    units: list[ChainUnit] = SleepingChain(seconds).unit_costs(1, 1)
    target = StageTarget.of(grid)
    cuts = [equal_cut(len(units), 2).bounds, best_cut(units, target).bounds]
    planned = [timed(grid, stage_times(units, target, bounds)).step_s for bounds in cuts]
    took = [span_s(pool.run(train, layout, seconds, micro_batches, bounds, backend)) for bounds in cuts]
    theory, measured = planned[0] / planned[1], took[0] / took[1]
    return {
        "what": f"throughput of cut {cuts[1]} over equal layers {cuts[0]}, one layer of 8 weighs 5, p=2, m=8",
        "theory": round(theory, 4), "measured": round(measured, 4), "ratio": round(measured / theory, 3),
    }  # fmt: skip


def train(
    rank: int, world_size: int, store: dist.Store, layout: Layout, seconds: Sequence[float], micro_batches: int,
    cut: tuple[int, ...], backend: str,
) -> list[list[Span]]:  # fmt: skip
    """Run a few steps on one rank; return the compute spans of each step but the first."""
    dist.init_process_group(backend, rank=rank, world_size=world_size, store=store)
    recorder = Recorder(rank, keep_steps=STEPS)
    plan = Plan(
        layout=layout, predicted=UNKNOWN, global_batch_sequences=micro_batches, seq_len=1, bucket_bytes=2**20, cut=cut
    )
    settings = Settings(
        device=torch.device("cpu"), optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.0), notes=recorder
    )
    engine = build_engine(SleepingChain(seconds), plan, settings)
    batch = (torch.ones(1, WIDTH), torch.ones(1))
    for step in range(STEPS + 1):
        dist.barrier()
        engine.step([batch] * micro_batches, micro_batches)
        recorder.end_step(step)
    with contextlib.suppress(RuntimeError):
        dist.barrier()
    names = {"forward", "backward"}
    return [[s for s in recorder.spans() if s.step == step and s.name in names] for step in range(1, STEPS + 1)]


def span_s(ranks: list[list[list[Span]]]) -> float:
    """Return the median seconds of a step, from the first forward to the last backward of any rank."""
    steps = [[span for rank in ranks for span in rank[step]] for step in range(STEPS)]
    return statistics.median(max(s.end_s for s in spans) - min(s.start_s for s in spans) for spans in steps)


def idle_share(ranks: list[list[list[Span]]]) -> float:
    """Return the share of a step in which a rank computes nothing, the mean over ranks, the median over steps."""
    shares = []
    for step in range(STEPS):
        spans = [span for rank in ranks for span in rank[step]]
        step_s = max(s.end_s for s in spans) - min(s.start_s for s in spans)
        shares.append(1 - sum(s.end_s - s.start_s for s in spans) / (len(ranks) * step_s))
    return statistics.median(shares)
