"""The terms of a job for servers and workers, from its configuration."""

import torch
from torch import nn

from ...device import count
from ...errors import InputError
from ...layout import Layout, Plan
from ...parallel.asynchronous import coordinator, worker
from ...parallel.engine import OptimizerFactory
from ..job.config import JobConfig
from ..model.optimizer import learning_rate, make_optimizer

Rate = coordinator.Rate


def check_mode(config: JobConfig, layout: Layout) -> None:
    """Raise InputError unless a layout can run a job's mode."""
    settings = config.data_parallel
    if settings.mode == "sync":
        return
    if not layout.is_plain:
        raise InputError(f'data_parallel.mode: "{settings.mode}" splits by data alone (dp, mbs), not {layout}')
    if layout.dp % settings.island:
        raise InputError(f"data_parallel.island: {settings.island} does not divide the {layout.dp} ranks")
    if config.train.precision == "bf16" or count():
        # weights travel through the memory of the hosts, and that is all that has been tried
        raise InputError(f'data_parallel.mode: "{settings.mode}" trains in float32 on CPUs; "sync" does more')


def workers(config: JobConfig, plan: Plan) -> int:
    """Return how many workers the data are cut for: ranks, or islands of them."""
    return plan.layout.dp // config.data_parallel.island


def coordinator_terms(config: JobConfig, plan: Plan) -> coordinator.RunTerms:
    """Return what the coordinator has to know."""
    settings, count = config.data_parallel, workers(config, plan)
    bound = settings.staleness
    return coordinator.RunTerms(
        workers=count,
        steps=config.train.steps,
        tokens_per_share=tokens_per_share(config, plan),
        shares_per_lease=settings.sync_every // settings.fragments if settings.is_local else 1,
        together=settings.is_local or bound == 0,
        staleness=None if bound == "unbounded" else bound,
        gradients=not settings.is_local,
        max_grad_norm=config.optimizer.max_grad_norm if clips_at_server(config) else 0.0,
        staleness_aware=settings.staleness_aware,
        adapt=settings.is_local and settings.adapt,
        validate_every=config.train.validate_every,
        checkpoint_every=config.train.checkpoint_every,
        silence_s=settings.silence_s,
        patience_s=settings.patience_s,
    )


def worker_terms(config: JobConfig, plan: Plan) -> worker.WorkerTerms:
    """Return what a worker has to know."""
    settings = config.data_parallel
    return worker.WorkerTerms(
        fragments=settings.fragments,
        wire=settings.wire,
        stream=settings.is_local and settings.stream,
        tokens_per_share=tokens_per_share(config, plan),
    )


def tokens_per_share(config: JobConfig, plan: Plan) -> int:
    """Return the tokens that a worker trains on at a time."""
    return config.train.global_batch * config.data.seq_len // workers(config, plan)


def clips_at_server(config: JobConfig) -> bool:
    """Return whether gradients are summed over all workers, as in synchronous training, and then clipped."""
    return config.data_parallel.mode == "parameter_server" and config.data_parallel.staleness == 0


def server_optimizer(config: JobConfig) -> OptimizerFactory:
    """Return the optimiser that the servers run: the job's, or the outer one (the mean of the workers in local SGD)."""
    settings = config.data_parallel
    if not settings.is_local:
        return lambda module: make_optimizer(module, config.optimizer)
    momentum = settings.outer_momentum if settings.mode == "diloco" else 0.0

    def outer(module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(module.parameters(), lr=1.0, momentum=momentum, nesterov=momentum > 0)

    return outer


def server_rate(config: JobConfig) -> Rate:
    """Return the servers' learning rate by the steps that are done."""
    settings, optimizer, steps = config.data_parallel, config.optimizer, config.train.steps
    if not settings.is_local:
        return lambda step: learning_rate(optimizer, step, steps)
    rate = settings.outer_learning_rate if settings.mode == "diloco" else 1.0
    return lambda step: rate
