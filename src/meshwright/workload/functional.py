"""The operators of a decoder as torch functions: what the model calls and what calibration times, one by one.

Shapes: B sequences, T positions, H query heads, G key-value heads, D head width, N = B x T rows, C features.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def rotary_tables(positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each [positions, 1, head_dim / 2] (Su et al. 2021, arXiv 2104.09864)."""
    frequencies = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float64), frequencies)[:, None, :]
    return angles.cos(), angles.sin()


def rotary(x_BTHD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (i, i + D/2) of a head by its position's angle: the convention of Hugging Face's Llama."""
    first, second = x_BTHD.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def split_heads(qkv_BTC: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cut a fused projection into rotated queries [B, H, T, D], rotated keys and values [B, G, T, D]."""
    x_BTHD = qkv_BTC.view(*qkv_BTC.shape[:2], heads + 2 * kv_heads, -1)
    rotated, v = torch.split(x_BTHD, [heads + kv_heads, kv_heads], dim=2)
    q, k = torch.split(rotary(rotated, cos, sin), [heads, kv_heads], dim=2)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def attention(q_BHTD: Tensor, k_BGTD: Tensor, v_BGTD: Tensor) -> Tensor:
    """Return causal scaled dot-product attention [B, H, T, D], each key-value head serving H / G query heads."""
    grouped = q_BHTD.shape[1] != k_BGTD.shape[1]
    return F.scaled_dot_product_attention(q_BHTD, k_BGTD, v_BGTD, is_causal=True, enable_gqa=grouped)


def context_attention(q_BHTD: Tensor, gathered_BGSW: Tensor, index: int, ranks: int) -> Tensor:
    """Return causal attention [B, H, T, D] of what rank `index` of `ranks` holds: an early chunk and a late one.

    The sequence is cut into 2 x ranks chunks, of which rank i holds i and 2 x ranks - 1 - i. `gathered_BGSW` are the
    keys and values, side by side (W = 2 D), of all ranks, one behind the other (S = ranks x T).
    """
    chunks = 2 * ranks
    both = gathered_BGSW.chunk(chunks, 2)
    ascending = [*both[0::2], *reversed(both[1::2])]  # each rank's early chunk, then the late ones
    k_all, v_all = torch.cat(ascending, 2).chunk(2, -1)
    parts = []
    for number, q in zip((index, chunks - 1 - index), q_BHTD.chunk(2, 2), strict=True):
        length = q.shape[2]
        seen = (number + 1) * length
        mask = torch.ones(length, seen, dtype=torch.bool, device=q.device).tril(seen - length)
        grouped = q.shape[1] != k_all.shape[1]
        k, v = k_all[:, :, :seen], v_all[:, :, :seen]
        parts.append(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped))
    return torch.cat(parts, 2)


def swiglu(gate_up_NC: Tensor) -> Tensor:
    """Return silu(gate) x up of a fused [N, 2C] projection (Shazeer 2020, arXiv 2002.05202)."""
    gate, up = gate_up_NC.chunk(2, dim=-1)
    return F.silu(gate) * up


def rms_norm(x_NC: Tensor, weight_C: Tensor, eps: float) -> Tensor:
    """Return x over its root mean square, scaled (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    return F.rms_norm(x_NC, (x_NC.shape[-1],), weight_C, eps)


def cross_entropy(logits_NV: Tensor, targets_N: Tensor) -> Tensor:
    """Return the sum over rows of the negative log-likelihood, in nats."""
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))  # float64 stays
    return F.cross_entropy(logits_NV, targets_N, reduction="sum")


def vocabulary_cross_entropy(
    logits_NV: Tensor,
    targets_N: Tensor,
    first: int,
    greatest: Callable[[Tensor], Tensor],
    summed: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the summed negative log-likelihood, in nats, where this rank has the logits of `first` and what follows.

    `greatest` and `summed` return the greatest and the sum of what all ranks give, element by element.
    """
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    highest_N = greatest(logits_NV.detach().amax(1))
    shifted_NV = logits_NV - highest_N[:, None]
    total_N = summed(shifted_NV.exp().sum(1))
    local_N = targets_N - first
    absent_N = (local_N < 0) | (local_N >= logits_NV.shape[1])
    chosen_N = shifted_NV.gather(1, local_N.masked_fill(absent_N, 0)[:, None])[:, 0].masked_fill(absent_N, 0)
    losses_N = total_N.log() - summed(chosen_N)
    return losses_N.masked_fill(targets_N < 0, 0).sum()


def seeded_dropout(
    x_BTC: Tensor, rate: float, seeds: Sequence[int], positions: Tensor | None = None, length: int = 0
) -> Tensor:
    """Zero elements with probability `rate`, scale the others by 1 / (1 - rate); sample i is masked by seeds[i] alone.

    `positions`: the indices of the T rows in full sequences of `length` (None: all rows); masks are drawn full-length,
    then sliced.
    """
    masks_BTC = torch.empty_like(x_BTC, dtype=torch.float32)
    for mask_TC, seed in zip(masks_BTC, seeds, strict=True):
        generator = torch.Generator(x_BTC.device).manual_seed(seed)
        if positions is None:
            mask_TC.uniform_(generator=generator)
        else:
            whole_TC = torch.empty(length, *mask_TC.shape[1:], device=x_BTC.device).uniform_(generator=generator)
            mask_TC.copy_(whole_TC[positions])
    return x_BTC * (masks_BTC >= rate) / (1 - rate)
