"""The settings that an engine takes from a job."""

import torch

from ...parallel.engine import Notes, Settings
from ...workload.conventions import EMULATES
from ..job.config import JobConfig
from ..job.precision import narrow_type
from .optimizer import make_optimizer


def engine_settings(config: JobConfig, device: torch.device, notes: Notes) -> Settings:
    """Return what an engine takes from the configuration."""
    low = narrow_type(config.train.precision, device)
    return Settings(
        device=device,
        optimizer=lambda module: make_optimizer(module, config.optimizer),
        notes=notes,
        max_grad_norm=config.optimizer.max_grad_norm,
        autocast=torch.bfloat16 if low else None,
        float8=low if low in EMULATES else "",
        seed=config.train.seed,
        compiled=config.train.compile,
        async_tensor_parallel=config.train.async_tensor_parallel,
        compression=config.data_parallel.compression,
        powersgd_rank=config.data_parallel.powersgd_rank,
    )
