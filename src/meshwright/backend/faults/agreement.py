"""Debug mode: before each collective the ranks compare what they are about to call, and name both sides if they differ.

Switched on by torch's own `TORCH_DISTRIBUTED_DEBUG=DETAIL`. The comparison is a gather of fixed size, so that it works
whatever the ranks call, and costs one small collective each time.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from ..hosts.placement import GroupMember
from .failures import CollectiveMismatch

CALL_BYTES = 480
Gather = Callable[[int, Sequence[int], Sequence[int]], object]  # Engine.all_gather


def call_text(name: str, number: int, tensors: Sequence[Any], options: Any) -> str:
    """Return a call as text: equal on all ranks of a correct program."""
    parts = [f"{name} #{number}", _shapes(tensors)]
    if name.startswith(("all_reduce", "reduce")):
        parts.append(str(options.reduceOp.op).removeprefix("RedOpType."))
    if name in {"broadcast", "reduce", "gather", "scatter"}:
        parts.append(f"root {options.rootRank}")
    return " ".join(part for part in parts if part)


def agree(gather: Gather, members: Sequence[GroupMember], call: str) -> None:
    """Raise CollectiveMismatch on every rank, naming both sides, unless all ranks are about to make the same call."""
    mine = ctypes.create_string_buffer(call.encode()[: CALL_BYTES - 1], CALL_BYTES)
    all_calls = [ctypes.create_string_buffer(CALL_BYTES) for _ in members]
    gather(ctypes.addressof(mine), [ctypes.addressof(b) for b in all_calls], [CALL_BYTES] * len(members))
    texts = [buffer.value.decode(errors="replace") for buffer in all_calls]
    for member, text in zip(members, texts, strict=True):
        if text != texts[0]:
            raise CollectiveMismatch(f"the ranks disagree: {members[0]} calls {texts[0]}, but {member} calls {text}")


def _shapes(tensors: Sequence[Any]) -> str:
    texts = []
    for tensor in tensors:
        if isinstance(tensor, Tensor):
            texts.append(f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}")
        else:
            texts.append(f"({_shapes(tensor)})")
    return " ".join(texts)
