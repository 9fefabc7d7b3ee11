"""Cache pollution: work between two timed calls that takes their code and data out of the caches, as a step does."""

import functools

import torch
import torch.nn.functional as F

from ..workload import functional

PASSED_BYTES = 2**23  # of memory, more than a core's own caches hold


def run_others() -> None:
    """Run the code of operators of other kinds, forward and backward, on next to nothing."""
    x, w = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4, requires_grad=True)
    y = functional.swiglu(torch.cat((F.linear(functional.rms_norm(x, w[0], 1e-5), w), x), 1))
    z = F.scaled_dot_product_attention(y[None, None], y[None, None], y[None, None], is_causal=True)[0, 0]
    torch.autograd.backward(functional.cross_entropy(z + F.embedding(torch.arange(4), w), torch.arange(4)))


def pollute_caches() -> None:
    """Pass through some memory, and run the code of operators."""
    _passed().add_(1.0)
    run_others()


@functools.cache
def _passed() -> torch.Tensor:
    return torch.zeros(PASSED_BYTES // 4)
