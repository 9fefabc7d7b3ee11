"""Linear layers in fp8: their products through torchao's float8 training, all else as it was.

Weights stay as they are. In each forward and backward what enters a product is scaled by its largest value, one scale a
tensor, and rounded to eight bits: e4m3 in forward, e5m2 for gradients (torchao.float8, recipe "tensorwise"). For
backward a layer keeps its input in the type of autocast and its weights as they are, so that, other than under autocast
alone, no cast copy of them is kept.
"""

import functools
import importlib.util
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..device import lacks_fp8
from ..errors import InputError
from .conventions import EMULATES

MULTIPLE = 16  # of rows and columns, which the kernels take (torch._scaled_mm)
INSTALL = "pip install 'meshwright[fp8]'"


def lacking(precision: str, where: torch.device) -> str:
    """Return what this machine lacks for a precision of `EMULATES` and what would give it, in words; "" for nothing."""
    missing = []
    if importlib.util.find_spec("torchao") is None:
        missing.append(f"torchao is not installed: {INSTALL}")
    device = "" if EMULATES[precision] else lacks_fp8(where)
    if device:
        missing.append(f'{device}: "bf16" trains here, "fp8-emulated" imitates the rounding, slower than bf16')
    return "; ".join(missing)


def indivisible(sizes: Mapping[str, int]) -> str:
    """Return which named sizes of the products fp8 kernels do not take, "" if they take all."""
    wrong = [f"{name} = {size}" for name, size in sizes.items() if size % MULTIPLE]
    return f"fp8 kernels take multiples of {MULTIPLE}, got {', '.join(wrong)}" if wrong else ""


def in_float8(module: nn.Module, precision: str) -> nn.Module:
    """Return `module` with the linear layers inside its ModuleLists, or itself if it is one, in fp8; "" changes none.

    What lies outside of lists of layers (embedding, output) stays as it is. Parameters and their names do not change.
    Raises InputError where torchao is missing or cannot be imported.
    """
    if precision not in EMULATES:
        return module
    convert, config = _torchao()
    inside = {
        id(part)
        for some in module.modules()
        if isinstance(some, nn.ModuleList)
        for part in some.modules()
        if isinstance(part, nn.Linear)
    }
    alone = isinstance(module, nn.Linear)
    chosen = convert(
        module,
        config=config(emulate=EMULATES[precision]),
        module_filter_fn=lambda part, _name: alone or id(part) in inside,
    )
    for part in chosen.modules():
        if type(part).__name__ == "Float8Linear":
            part.register_forward_pre_hook(_as_autocast_does)
    converted: nn.Module = chosen
    return converted


def _as_autocast_does(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Cast what enters as autocast would: torchao asks for CUDA's alone, so that other devices would keep float32."""
    kind = inputs[0].device.type
    return (inputs[0].to(torch.get_autocast_dtype(kind)),) if torch.is_autocast_enabled(kind) else inputs


@functools.cache
def _torchao() -> tuple[Any, Any]:
    """Return torchao's conversion and its configuration; what it says of kernels that it lacks here is left out."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError as error:
        raise InputError(f'train.precision: "fp8": torchao cannot be imported ({error}): {INSTALL}') from None
    finally:
        logging.disable(before)
    return convert_to_float8_training, Float8LinearConfig
