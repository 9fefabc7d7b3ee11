"""Time of the attention between the projections: a fused (flash) kernel, or two batched products around a softmax.

FLOPs of one sequence of s tokens: 4 s^2 d a forward, half of it if causal scores are skipped; a flash backward
computes five products in place of two, 2.5 times the forward (Dao et al. 2022, arXiv 2205.14135, 2307.08691). Each
score has one exponential too, whatever the head's width, so that narrow heads take longer for their FLOPs: an H100 has
16 of them in the time of 4,096 FLOPs, those of 16 scores of 64 elements (Shah et al. 2024, arXiv 2407.08608).
What was fitted to short sequences holds for short ones: from the longest of them to twice that, a stack whose kernel
was timed alone goes over to that kernel's rate.
Without fusion the scores travel through memory: nine bytes a score forward and eleven backward in half precision
(scores written and read, softmax and its mask, dropout; Korthikanti et al. 2022, arXiv 2205.05198, section 4).
"""

import numpy as np

from ...workload.elements import BOOL_BYTES, HALF_BYTES
from .coefficients import Coefficients
from .quantities import Grid, Machine, ModelQuantities, Number

FORWARD_SCORE_BYTES = 4.0 * HALF_BYTES + BOOL_BYTES  # scores written, read, their softmax written, read; and a mask
BACKWARD_SCORE_BYTES = 5.0 * HALF_BYTES + BOOL_BYTES  # and their gradient
ALIGNED = 8  # elements: batched products of a head that is no multiple of it leave the tensor cores' fast path
FUSED_BATCH = 4  # Megatron's fused softmax needs micro-batch x heads to be a multiple of it
RECURRENT_PASSES = 5.0
HOPPER_FLOPS, HOPPER_BYTES_PER_S = 989e12, 3.35e12  # an H100's half precision and memory
USUAL_WIDTH = 128.0  # of a head, at which `attention` is what a kernel reaches
FALLBACK_PASSES = 3.0  # softmax in separate kernels, in single precision


def flash_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number
) -> tuple[Number, Number]:
    """Return seconds of the forward and the backward of one layer's fused causal attention."""
    heads = model.heads / grid.tp
    scores = grid.mbs * heads * seq_len * seq_len / grid.cp / 2.0
    flops = 2.0 * scores * (model.head_dim + model.value_dim) * seen_share(model, seq_len)
    pieces = np.where(np.greater(c.heads_exchanged, 0), 1.0, grid.cp)  # of a sequence, a kernel each
    short = 1.0 + c.attention_length * pieces / model.rows(seq_len)
    width = (model.head_dim + model.value_dim) / 2.0
    narrow = (1.0 + c.exponentials / width) / (1.0 + c.exponentials / USUAL_WIDTH)
    forward = flops / (machine.peak_half * c.attention) * short * narrow
    if np.any(c.attention_alone):
        alone = flops / (machine.peak_half * np.where(c.attention_alone > 0, c.attention_alone, 1.0)) * narrow
        beyond = np.clip(seq_len / c.attention_within - 1.0, 0.0, 1.0) * (c.attention_alone > 0)
        forward = (1.0 - beyond) * forward + beyond * alone
    return forward, 2.5 * forward


def seen_share(model: ModelQuantities, seq_len: Number) -> Number:
    """Return the causal scores that layers compute, as a share of those of full attention in every layer.

    A window of w of s tokens: (2w - w^2/s) / s; chunks of c: c / s; an encoder of e tokens: (e/s)^2, reading it: e/s.
    """
    near = np.minimum(model.window / seq_len, 1.0)
    chunk = np.minimum(model.chunk / seq_len, 1.0)
    seen = model.full_scores + model.near_scores * near * (2.0 - near) + model.chunk_scores * chunk
    return seen + _of_fixed(model, seq_len)


def _of_fixed(model: ModelQuantities, seq_len: Number) -> Number:
    """Return the scores with an encoder's tokens that are as many whatever the text, likewise."""
    longer = model.fixed / seq_len
    return (model.fixed_scores * longer + model.read_scores) * longer


def recurrence_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, tokens: Number
) -> tuple[Number, Number]:
    """Return seconds of the forward and the backward of the mean layer's recurrence over the sequence.

    Its kernels pass through memory what they keep: a convolution and two passes of the scan read it, two write;
    `scan` says how many times that. The products of a chunk and what moves through memory are kernels of their own,
    so that one hides nothing of the other. They are Triton's, written for Hopper, and later GPUs run them no faster:
    Nemotron 3 on H100 and on GB300 have one `scan` only so.
    """
    peak, rate = np.minimum(machine.peak_half, HOPPER_FLOPS), np.minimum(machine.memory_rate, HOPPER_BYTES_PER_S)
    computed = tokens * model.recurrent_flops / grid.tp / (peak * c.attention * c.recurrence)
    moved = RECURRENT_PASSES * c.scan * 2.0 * tokens * model.recurrent_kept / grid.tp / (rate * c.memory)
    forward = computed + moved
    return forward, 2.0 * forward


def unfused_s(
    machine: Machine, c: Coefficients, model: ModelQuantities, grid: Grid, seq_len: Number
) -> tuple[Number, Number]:
    """Return seconds of the forward and the backward of one layer's attention in separate kernels."""
    heads = model.heads / grid.tp
    seen = model.full_scores + model.near_scores + model.chunk_scores + _of_fixed(model, seq_len)
    scores = grid.mbs * heads * seq_len * seq_len / grid.cp * seen
    ragged = model.head_dim % ALIGNED > 0
    flops_s = 4.0 * scores * model.head_dim / (machine.peak_half * c.product)
    products = flops_s * (1.0 + c.product_depth / model.head_dim) * np.where(ragged, c.head_ragged, 1.0)
    fallback = np.where((grid.mbs * heads) % FUSED_BATCH > 0, FALLBACK_PASSES, 1.0)
    byte_s = scores * fallback * c.softmax / (machine.memory_rate * c.memory)
    return products + FORWARD_SCORE_BYTES * byte_s, 2.0 * products + BACKWARD_SCORE_BYTES * byte_s
