"""Backward in two parts, for zero-bubble schedules: first the gradients of the inputs, later those of the weights.

Both walk the autograd graph with PyTorch's own functions, which carry no promise: this file is the only user.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from ..spmd.part import SpmdPart
from .stages import trainable


def backward_input(
    part: SpmdPart,
    module: nn.Module,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    gradients: Sequence[Tensor] | None,
) -> Any:
    """Set `grad` of the inputs of a stage, a module of `part`; return what `backward_weight` goes on from.

    `gradients` are those of the outputs, None for a scalar loss.
    """
    if not inputs:  # the first stage has nobody to send to: all is left for later
        return list(outputs), None if gradients is None else list(gradients)
    with part.first_half():
        _, groups = stage_backward_input(
            list(outputs), None if gradients is None else list(gradients), list(inputs), trainable(module)
        )
    return groups


def backward_weight(part: SpmdPart, module: nn.Module, rest: Any) -> None:
    """Add the gradients of the weights to their `grad`."""
    if isinstance(rest, tuple):
        torch.autograd.backward(*rest)
        return
    with part.second_half():
        stage_backward_weight(trainable(module), rest)
        for parameter in trainable(module):  # which autograd calls only for gradients that it adds up itself
            for hook in (parameter._post_accumulate_grad_hooks or {}).values():
                hook(parameter)
