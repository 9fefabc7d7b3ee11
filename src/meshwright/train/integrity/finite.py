"""Losses and states that are no numbers any more: training stops before they are saved, and says so in an event."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ...errors import MeshwrightError


class NotFinite(MeshwrightError):
    """The loss, the gradient or the state is NaN or infinite: starting again would end the same way."""


def not_finite(**figures: float) -> str:
    """Return which of these figures are NaN or infinite, "" where all are numbers."""
    found = [f"{name} {value:g}" for name, value in figures.items() if not math.isfinite(value)]
    return ", ".join(found).replace("_", " ")


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Return whether every element is a number; whole numbers always are."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors if tensor.is_floating_point())
