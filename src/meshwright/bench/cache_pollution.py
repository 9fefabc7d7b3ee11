"""Cache pollution: work between two timed calls that takes their code and data out of the caches, as a step does."""

import functools
import time

import torch
import torch.nn.functional as F

from ..workload import functional

PASSED_BYTES = 2**23  # of memory, more than a core's own caches hold
COMPUTED_S = 10e-3  # of a core: afterwards it fetches other code from far, as after the layers of a step


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


def compute_at_length() -> None:
    """Multiply matrices for as long as a core needs to forget other code, then run the code of operators.

    What runs once a step, after all its layers, is slower than right after itself: clipping gradients takes 0.60 ms in
    a step of the default job, 0.55 after this and 0.45 after `run_others` alone (AMD EPYC, one thread).
    """
    multiply_for(COMPUTED_S, _factor())
    run_others()


def multiply_for(seconds: float, factor: torch.Tensor) -> None:
    """Multiply a matrix with itself for as much processor time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        factor @ factor


@functools.cache
def _factor() -> torch.Tensor:
    return torch.ones(512, 512)
