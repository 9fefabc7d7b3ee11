"""The prediction of a job under its mode, from that of a synchronous step on the same machine."""

import math

import msgspec

from ...cluster.graph import Measurements
from ...layout import Plan
from ...plan.measured.data_parallel import find_fit
from ...plan.search.asynchronous import AsynchronousMode, Surroundings, price_mode
from ...workload.conventions import SINGLE_BYTES
from ...workload.transformer import parameter_shapes
from ..job.config import JobConfig

NOT_MODELLED = ("what the servers' processes take of the cores", "workers that come and go")


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


def repriced(plan: Plan, config: JobConfig, measured: Measurements, backend: str) -> Plan:
    """Return the plan with the prediction of the job's mode; synchronous ones as they are.

    Bytes are taken to move as fast as this machine's all-reduce moves them.
    """
    mode, old = mode_of(config), plan.predicted
    if mode.mode == "sync" or plan.layout.dp == 1:
        return plan
    size_bytes = SINGLE_BYTES * parameters(config)
    fit = find_fit(measured, "all_reduce", backend, plan.layout.dp, size_bytes)
    optimizer_s = old.optimizer_s if config.data_parallel.is_local else 0.0
    island = config.data_parallel.island
    share_s = old.data_s + old.forward_s + old.backward_s + optimizer_s
    around = Surroundings(
        parameters=parameters(config),
        compute_s=(share_s,) * (plan.layout.dp // island),
        bandwidth_bytes_per_s=1 / fit.beta_s_per_byte if fit.beta_s_per_byte else math.inf,  # small ones may be alike
        latency_s=fit.alpha_s,
    )
    found = price_mode(mode, around)
    inside_s = old.exposed_comm_s if island > 1 else 0.0  # the all-reduce of an island, in every step
    step_s = found.step_time_s + inside_s
    pace = old.step_time_s / step_s
    predicted = msgspec.structs.replace(
        old,
        step_time_s=step_s,
        optimizer_s=optimizer_s,
        exposed_comm_s=found.exposed_comm_s + inside_s,
        hidden_comm_s=0.0,
        tokens_per_s_per_gpu=old.tokens_per_s_per_gpu * pace,
        model_tflops_per_gpu=old.model_tflops_per_gpu * pace,
        mfu=None if old.mfu is None else old.mfu * pace,
        not_modelled=(*old.not_modelled, *NOT_MODELLED),
    )
    return msgspec.structs.replace(plan, predicted=predicted, reason=f"{plan.reason}; data_parallel.mode = {mode.mode}")
