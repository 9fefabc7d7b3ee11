"""The prediction of a job under its mode, from the price of a worker's own program on the same machine."""

import math

import msgspec

from ...cluster.graph import Measurements
from ...layout import Layout, Plan
from ...plan.measured.data_parallel import find_fit
from ...plan.search.asynchronous import AsynchronousMode, Surroundings, WorkerStep, price_mode
from ...workload.elements import SINGLE_BYTES
from ...workload.holdings import held_by
from ...workload.transformer import describe_workload, parameter_shapes
from ..job.config import JobConfig
from .terms import workers

NOT_MODELLED = ("what the servers' processes take of the cores", "workers that come and go")
ISLANDS = "islands that share cores and links: the collectives of one were timed with no other island at work"


def mode_of(config: JobConfig) -> AsynchronousMode:
    """Return a job's mode as the planner prices it."""
    settings = config.data_parallel
    return AsynchronousMode(
        mode=settings.mode,
        wire=settings.wire,
        staleness=None if settings.staleness == "unbounded" else settings.staleness,
        servers=settings.servers,
        sync_every=settings.sync_every,
        fragments=settings.fragments,
        stream=settings.stream,
        adapt=settings.adapt,
    )


def parameters(config: JobConfig) -> int:
    """Return how many weights a job trains."""
    total = 0
    for shape in parameter_shapes(config.model):
        count = 1
        for extent in shape:
            count *= extent
        total += count
    return total


def island_of(config: JobConfig) -> int:
    """Return the ranks of a worker of a job's mode; 0 where all ranks train together."""
    return 0 if config.data_parallel.mode == "sync" else config.data_parallel.island


def repriced(plan: Plan, worker: Plan, config: JobConfig, measured: Measurements, backend: str) -> Plan:
    """Return a plan with the prediction of its mode: the price of the plan of one `worker`, and what workers send.

    What they send is taken to move as fast as this machine's all-reduce moves it. Buckets are those of a worker.
    """
    mode, own = mode_of(config), worker.predicted
    step = WorkerStep(layout=worker.layout, workers=workers(config, plan), predicted=own)
    size_bytes = SINGLE_BYTES * parameters(config)
    fit = find_fit(measured, "all_reduce", backend, plan.layout.dp, size_bytes)
    around = Surroundings(
        parameters=parameters(config),
        compute_s=(step.share_s(mode),) * step.workers,
        bandwidth_bytes_per_s=1 / fit.beta_s_per_byte if fit.beta_s_per_byte else math.inf,  # small ones may be alike
        latency_s=fit.alpha_s,
    )
    found = price_mode(mode, around)
    pace = own.step_time_s / found.step_time_s
    memory_bytes = own.peak_memory_bytes_per_gpu - (_moments_bytes(config, step.layout) if mode.is_served else 0)
    predicted = msgspec.structs.replace(
        own,
        step_time_s=found.step_time_s,
        optimizer_s=0.0 if mode.is_served else own.optimizer_s,
        exposed_comm_s=found.exposed_comm_s + own.exposed_comm_s,
        tokens_per_s_per_gpu=own.tokens_per_s_per_gpu * pace,
        model_tflops_per_gpu=own.model_tflops_per_gpu * pace,
        peak_memory_bytes_per_gpu=memory_bytes,
        mfu=None if own.mfu is None else own.mfu * pace,
        not_modelled=(*own.not_modelled, *NOT_MODELLED, *([ISLANDS] if step.layout.world_size > 1 else [])),
    )
    reason = f"as a synchronous job, {plan.reason}; data_parallel.mode = {mode.mode}: a worker runs {step.layout}"
    return msgspec.structs.replace(plan, predicted=predicted, bucket_bytes=worker.bucket_bytes, reason=reason)


def _moments_bytes(config: JobConfig, layout: Layout) -> int:
    """Return the bytes of an optimiser's states on a rank, which servers hold in place of their workers."""
    workload = describe_workload(config.model, seq_len=config.data.seq_len, micro_batch=layout.mbs, layout=layout)
    return int(held_by(workload, layout)[0].states.optimizer)
