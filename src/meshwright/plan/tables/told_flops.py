"""Steps that a rate in FLOPs, or a share of the peak, would make: told, and never counted as measured.

Pages print TFLOP/s of the model or with what recomputation repeats, and shares of one peak or another.
"""

import re
from collections.abc import Mapping

from ...hardware import Catalogue
from ...units import format_time
from ..analytic.price import peak_flops_per_s
from .cells import is_empty
from .names import leaf_of, letters

_DEVICE = "(?:gpu|device|chip|accelerator|hpu|npu)"
_A_SECOND = "(?:ps|(?:per)?(?:s|sec|second))?"
FLOPS = re.compile(  # "TFLOPS/GPU", "TFLOP/sec/chip", "throughput per GPU (TFLOP/s/GPU)", "pflops_per_gpu"
    rf"(?:throughput|achieved|training|train|average|avg|mean)*(?:per{_DEVICE})?(?:model|hardware)?"
    rf"(?P<unit>[tp])flops?{_A_SECOND}(?:(?:per)?{_DEVICE})?{_A_SECOND}(?:model|hardware)?"
)
SHARE = frozenset({"mfu", "mfupct", "mfupercent", "modelflopsutilization"})
NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)(?:\s*[TP]?FLOP\S*)?")
AGAIN = 4.0 / 3.0  # FLOPs with a second forward over those without (arXiv 2104.04473, section 5.1)


def is_flops(name: str) -> bool:
    """Return whether a column is a rate in FLOPs of one GPU, or the share of its peak that a model makes."""
    plain = letters(leaf_of(name))
    return plain in SHARE or _flops_of_unit(plain) > 0


def _flops_of_unit(plain: str) -> float:
    """Return the FLOPs of a column's unit, 0 where it has none."""
    found = FLOPS.fullmatch(plain)
    return {"t": 1e12, "p": 1e15}[found["unit"]] if found else 0.0


def told_of_flops(
    cells: Mapping[str, str], model_flops: float, accelerator: str, precision: str, catalogue: Catalogue, *, again: bool
) -> str:
    """Return what a row's rate in FLOPs makes of a step, "" where it has none.

    `model_flops`: of one GPU in a step. `again`: a forward is repeated, or may be.
    """
    said = {name: text for name, text in cells.items() if is_flops(name) and not is_empty(text)}
    name = min(said, key=lambda one: letters(leaf_of(one)) in SHARE, default="")
    number = NUMBER.fullmatch(said[name].strip()) if name else None
    if number is None or not float(number[1]):
        return ""
    peak = peak_flops_per_s(catalogue.accelerators[accelerator].peak_flops_per_s, precision, where=accelerator)
    value, plain = float(number[1]), letters(leaf_of(name))
    if plain in SHARE:
        share = value / 100.0 if number[2] or value > 1.0 else value
        step = format_time(model_flops / (share * peak))
        return f"{name} {said[name]} is no time: of the dense peak it makes a step of {step}"
    rate = value * _flops_of_unit(plain)
    of_model, with_again = (format_time(flops / rate) for flops in (model_flops, model_flops * AGAIN))
    if rate > peak:
        return (
            f"{name} {said[name]} is no time, and more than the dense peak of {accelerator}, {peak / 1e12:.4g} TFLOP/s"
        )
    told = f"{name} {said[name]} is no time: a step of {of_model} if they are the model's FLOPs"
    both = again and "model" not in plain
    return told + (f", of {with_again} if those of recomputation count too" if both else "")
