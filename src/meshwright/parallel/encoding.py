"""Encodings of a vector for a slow wire: its own type, bfloat16, or int8 with a scale for every block.

An encoding loses something unless it is "full". `Feedback` adds what one message lost to the next one, so that a sum
over many messages loses nothing in the long run (Seide et al. 2014; Karimireddy et al. 2019, arXiv 1901.09847).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..plan.search.asynchronous import INT8_BLOCK, Wire, encoded_bytes


def encode(vector: Tensor, wire: Wire) -> Tensor:
    """Return the bytes of a contiguous vector as a uint8 tensor; of "full", a view of the vector.

    int8: blocks of 1024 are scaled so that their largest element becomes 127, and the scales (float32) come first.
    """
    if wire == "full":
        return vector.view(torch.uint8)
    if wire == "bf16":
        return vector.to(torch.bfloat16).view(torch.uint8)
    blocks = F.pad(vector, (0, -vector.numel() % INT8_BLOCK)).view(-1, INT8_BLOCK)
    scales = (blocks.abs().amax(dim=1, keepdim=True) / 127).to(torch.float32)
    inverse = torch.where(scales > 0, 1 / scales, 0.0)
    levels = (blocks * inverse).round_().to(torch.int8).view(-1)[: vector.numel()]
    return torch.cat((scales.view(-1).view(torch.uint8), levels.view(torch.uint8)))


def decode(data: Tensor, count: int, dtype: torch.dtype, wire: Wire) -> Tensor:
    """Return the vector of `count` elements of `dtype` that `encode` made `data` from; ValueError if sizes differ."""
    if data.numel() != encoded_bytes(count, dtype.itemsize, wire):
        raise ValueError(f"{data.numel()} bytes are not {count} elements of {dtype} as {wire}")
    if wire == "full":
        return data.view(dtype)
    if wire == "bf16":
        return data.view(torch.bfloat16).to(dtype)
    blocks = -(-count // INT8_BLOCK)
    scales = data[: 4 * blocks].view(torch.float32).view(-1, 1).to(dtype)
    levels = data[4 * blocks :].view(torch.int8).to(dtype)
    return (F.pad(levels, (0, -count % INT8_BLOCK)).view(-1, INT8_BLOCK) * scales).view(-1)[:count]


class Feedback:
    """Encodes one vector again and again, each time with what the encoding before it lost."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._lost: Tensor | None = None

    def encode(self, vector: Tensor) -> Tensor:
        """Return the bytes of `vector` plus what is owed; what they lose is owed from now on."""
        if self._wire == "full":
            return encode(vector, "full")
        wanted = vector if self._lost is None else vector + self._lost
        data = encode(wanted, self._wire)
        self._lost = wanted - decode(data, vector.numel(), vector.dtype, self._wire)
        return data
