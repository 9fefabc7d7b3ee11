"""Checksums of tensors where they are: every bit counts, and 52 bits of the result survive a sum in float64.

On a CPU it is xxh3 of the bytes. On another device the sum over all 32-bit words of word x (2 i + 1) modulo 2^64, which
moves eight bytes to the host in place of the tensor: one that changes in a single word always changes it, for an odd
factor has an inverse.
"""

from collections.abc import Iterable
from typing import Any

import torch
import xxhash
from torch import Tensor

BITS = 52  # the widest whole numbers that a float64 holds exactly, alone and added to zeros
BLOCK_WORDS = 2**24  # that a device looks at in one go: its 64-bit products take eight times as many bytes
_BYTES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def checksum(tensors: Iterable[Tensor]) -> int:
    """Return a checksum of `BITS` bits over the bytes of tensors, in their order; 0 only by chance."""
    hashed = xxhash.xxh3_64()
    for tensor in tensors:
        if tensor.device.type == "cpu":
            array: Any = _flat(tensor).view(torch.uint8).numpy()
            hashed.update(array)
        else:
            hashed.update(_on_device(tensor).to_bytes(8, "little", signed=True))
    return hashed.intdigest() >> (64 - BITS)


def _flat(tensor: Tensor) -> Tensor:
    """Return a tensor in row-major order, copied only where it does not lie so."""
    return tensor.detach().contiguous().reshape(-1)


def _on_device(tensor: Tensor) -> int:
    flat = _flat(tensor)
    words = flat.view(_BYTES[flat.element_size()])
    if words.element_size() < 4:  # a word a value: wider, and as exact
        words = words.to(torch.int32)
    found = torch.zeros((), dtype=torch.int64, device=flat.device)
    for start in range(0, len(words), BLOCK_WORDS):
        block = words[start : start + BLOCK_WORDS].to(torch.int64)
        odd = torch.arange(2 * start + 1, 2 * (start + len(block)) + 1, 2, device=flat.device)
        found += (block * odd).sum()
    return int(found.item())
