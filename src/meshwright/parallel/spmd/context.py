"""Context parallelism: each rank of cp holds a part of every sequence; keys and values are gathered for attention.

A sequence is cut into 2 cp chunks and rank r holds chunks r and 2 cp - 1 - r, so that under causal attention, where a
late position looks at more than an early one, all ranks compute as much. Keys and values travel as one all-gather,
their gradients as one reduce-scatter (as in Llama 3, arXiv 2407.21783, section 3.3.2).
"""

import torch
from torch import Tensor, nn

from ...errors import InputError
from ...workload.functional import context_attention
from ..engine import Batch
from .channel import AxisChannel, gathered

POSITION_DIM = 2  # of queries, keys and values [sequences, heads, positions, width]


def held_positions(index: int, ranks: int, seq_len: int) -> Tensor:
    """Return the positions of a sequence that a rank of cp holds, ascending."""
    if seq_len % (2 * ranks):
        raise InputError(f"cp: 2 x {ranks} does not divide the sequence of {seq_len} tokens")
    early, late = torch.arange(seq_len).chunk(2 * ranks)[index], torch.arange(seq_len).chunk(2 * ranks)[-1 - index]
    return torch.cat((early, late))


class ContextAttention:
    """Causal attention of this rank's queries over the keys and values of all ranks."""

    def __init__(self, channel: AxisChannel) -> None:
        self._channel = channel

    def __call__(self, q_BHTD: Tensor, k_BGTD: Tensor, v_BGTD: Tensor) -> Tensor:
        """Return what each of this rank's positions gathers from those before it."""
        channel = self._channel
        both = gathered(torch.cat((k_BGTD, v_BGTD), -1), channel, POSITION_DIM)
        return context_attention(q_BHTD, both, channel.index, channel.size)


def split_context(module: nn.Module, channel: AxisChannel, seq_len: int) -> None:
    """Make `module` work on this rank's positions.

    Its attention layers must call their attribute `attend(q, k, v)`, and what depends on positions must be cut by a
    method `hold_positions(positions)` of the module that owns it; InputError where the model offers neither.
    """
    attending = [layer for layer in module.modules() if hasattr(layer, "attend")]
    positioned = [layer for layer in module.modules() if hasattr(layer, "hold_positions")]
    if not attending or not positioned:
        raise InputError(
            f"cp: {type(module).__name__} offers no `attend` and `hold_positions`; see the documentation of `cp`"
        )
    attend, held = ContextAttention(channel), held_positions(channel.index, channel.size, seq_len)
    for layer in attending:
        layer.attend = attend  # type: ignore[assignment]
    for layer in positioned:
        layer.hold_positions(held)  # type: ignore[operator]


def held_part(batch: Batch, channel: AxisChannel) -> Batch:
    """Return the columns of a micro-batch that this rank of cp holds."""
    if channel.size == 1:
        return batch
    inputs, targets = batch
    held = held_positions(channel.index, channel.size, inputs.shape[1]).to(inputs.device)
    return inputs[:, held], targets[:, held]
