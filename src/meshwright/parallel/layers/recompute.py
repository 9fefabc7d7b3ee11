"""Recomputation: what a layer's forward keeps for backward.

- none: all that autograd asks for
- full: the layer's input; its forward runs once more in backward
- selective: also what matrix products and attention return, so that only cheap operators run once more (norms,
  activations, rotary positions), as torch's selective activation checkpointing does it
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from ...layout import Recompute
from ...workload.conventions import ENGINE
from . import dropout

_KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
}


def recomputed(mode: Recompute, layer: nn.Module, *inputs: Tensor) -> Tensor:
    """Return `layer(*inputs)`, which keeps for backward what `mode` says."""
    if mode == "none" or not torch.is_grad_enabled():
        result: Tensor = layer(*inputs)
        return result
    moment = dropout.now()

    def run(*inputs: Tensor) -> Tensor:
        """Run the layer with the masks of this micro-batch; its backward may come after the forward of others."""
        with dropout.at(moment):
            result: Tensor = layer(*inputs)
            return result

    options: dict[str, Any] = {"early_stop": bool(ENGINE.stops_early)}
    if mode == "selective":
        options["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _policy)
    found: Tensor = checkpoint(run, *inputs, use_reentrant=False, preserve_rng_state=False, **options)
    return found


def _policy(_: object, operator: Any, *arguments: Any, **options: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE
