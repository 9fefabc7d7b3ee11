"""The precision of a job's products on a device, and the refusal of fp8 where it cannot be had."""

import torch

from ...device import has_bf16, is_accelerator
from ...errors import InputError
from ...workload.conventions import EMULATES
from ...workload.float8 import indivisible, lacking
from .config import JobConfig


def narrow_type(precision: str, where: torch.device) -> str:
    """Return the type of a job's products, "bf16" or one of `conventions.EMULATES`, all else under autocast to bf16.

    "" where all is in float32. By default accelerators that multiply bf16 do so.
    """
    if precision == "auto":
        return "bf16" if is_accelerator(where) and has_bf16(where) else ""
    return "" if precision == "float32" else precision


def product_type(precision: str, where: torch.device) -> str:
    """Return what a job's products are computed in on a device, as `train.precision` names it, "auto" resolved."""
    return narrow_type(precision, where) or "float32"


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
