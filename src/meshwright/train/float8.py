"""Refusals of jobs whose linear layers cannot multiply in fp8, before anything is measured or written."""

import torch

from ..errors import InputError
from ..workload.conventions import EMULATES
from ..workload.float8 import indivisible, lacking
from .config import JobConfig


def check_float8(config: JobConfig, where: torch.device) -> None:
    """Raise InputError where a job asks for fp8 and `where`, what is installed or the job itself cannot have it."""
    precision, model, mode = config.train.precision, config.model, config.data_parallel.mode
    if precision not in EMULATES:
        return
    problem = lacking(precision, where)
    if model.num_local_experts:
        problem = "products of experts are not offered in fp8; use bf16"
    elif mode != "sync":
        problem = f'data_parallel.mode: "{mode}" trains in float32 on CPUs'
    elif sizes := indivisible(
        {
            "model.hidden_size": model.hidden_size,
            "heads times their width (qkv)": model.qkv_size,
            "model.intermediate_size": model.intermediate_size,
            "data.seq_len": config.data.seq_len,
        }
    ):
        problem = sizes
    if problem:
        raise InputError(f'train.precision: "{precision}": {problem}')
