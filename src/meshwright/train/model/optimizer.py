"""AdamW with decay of matrices only, or plain SGD, and the learning-rate schedule."""

import math

import torch

from ..job.config import OptimizerConfig


def make_optimizer(model: torch.nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Return AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101) or SGD over `model`; norms are not decayed."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    if config.kind == "sgd":
        return torch.optim.SGD(groups, lr=config.learning_rate)
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
    )


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """Return the learning rate of `step` (from 0): linear warm-up, then a cosine down to the final share."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    progress = min(1.0, (step - config.warmup_steps) / max(1, steps - config.warmup_steps))
    share = config.final_share + (1 - config.final_share) * 0.5 * (1 + math.cos(math.pi * progress))
    return config.learning_rate * share
