"""A residual network as numbers: its convolutions, parameters, FLOPs and activations of one image.

Sizes carry the keys of a Hugging Face ResNet config.json. The stride of a stage is in the 3 x 3 convolution.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...errors import InputError
from ...files import convert

REDUCTION = 4  # a bottleneck is this much narrower than what it returns


class Filter(msgspec.Struct, frozen=True):
    """One convolution without bias, and the norm behind it."""

    inputs: int
    outputs: int
    size: int  # of the square kernel
    side: int  # of the square output

    @property
    def parameters(self) -> int:
        """Weights, and scale and shift of the norm."""
        return self.size**2 * self.inputs * self.outputs + 2 * self.outputs

    @property
    def forward_flops(self) -> int:
        """FLOPs of the convolution for one image: 2 a multiply-add."""
        return 2 * self.size**2 * self.inputs * self.outputs * self.side**2


class Convolution(msgspec.Struct, frozen=True, kw_only=True):
    """A residual network of bottlenecks (ResNet-50, 101, 152) or basic blocks (18, 34)."""

    num_channels: int = 3
    image_size: int = 224
    embedding_size: int = 64
    hidden_sizes: tuple[int, ...] = (256, 512, 1024, 2048)
    depths: tuple[int, ...] = (3, 4, 6, 3)
    layer_type: str = "bottleneck"
    num_labels: int = 1000

    def __post_init__(self) -> None:
        numbers = (self.num_channels, self.image_size, self.embedding_size, self.num_labels)
        if not all(0 < number < 2**20 for number in (*numbers, *self.hidden_sizes, *self.depths)):
            raise ValueError("sizes: expected whole numbers of 1 to 1,048,575")
        if len(self.hidden_sizes) != len(self.depths) or not self.depths or sum(self.depths) > 10_000:
            raise ValueError(f"depths: expected one number for each of the {len(self.hidden_sizes)} hidden_sizes")
        if self.layer_type not in {"bottleneck", "basic"}:
            raise ValueError(f"layer_type: expected bottleneck or basic, got {self.layer_type!r}")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, where: str = "config.json") -> "Convolution":
        """Return the network that a config describes; keys that do not change its size are left out."""
        if config.get("downsample_in_first_stage") or config.get("downsample_in_bottleneck"):
            raise InputError(f"{where}: downsample_in_first_stage and downsample_in_bottleneck: expected false")
        known = {key: config[key] for key in cls.__struct_fields__ if key in config}
        labels = config.get("id2label")
        if "num_labels" not in known and isinstance(labels, Mapping):
            known["num_labels"] = len(labels)
        return convert(known, cls, where=where)

    @property
    def filters(self) -> list[Filter]:
        """Every convolution in the order of the forward pass."""
        return list(self._filters())

    @property
    def parameters(self) -> int:
        """Parameters in all, the classifier with its bias included."""
        return sum(f.parameters for f in self.filters) + (self.hidden_sizes[-1] + 1) * self.num_labels

    @property
    def forward_flops(self) -> int:
        """FLOPs of the forward pass of one image: convolutions and classifier."""
        return sum(f.forward_flops for f in self.filters) + 2 * self.hidden_sizes[-1] * self.num_labels

    @property
    def sample_bytes(self) -> int:
        """Bytes of one image, a byte a channel and pixel."""
        return self.num_channels * self.image_size**2

    def _filters(self) -> Iterator[Filter]:
        side = -(-self.image_size // 2)
        yield Filter(self.num_channels, self.embedding_size, 7, side)
        width, side = self.embedding_size, -(-side // 2)  # the pooling halves once more
        for stage, (outputs, depth) in enumerate(zip(self.hidden_sizes, self.depths, strict=True)):
            for block in range(depth):
                before, side = side, -(-side // 2) if stage and not block else side
                yield from self._block(width, outputs, before, side)
                width = outputs

    def _block(self, inputs: int, outputs: int, before: int, side: int) -> Iterator[Filter]:
        if self.layer_type == "bottleneck":
            inner = outputs // REDUCTION
            yield from (
                Filter(inputs, inner, 1, before),
                Filter(inner, inner, 3, side),
                Filter(inner, outputs, 1, side),
            )
        else:
            yield from (Filter(inputs, outputs, 3, side), Filter(outputs, outputs, 3, side))
        if inputs != outputs or before != side:
            yield Filter(inputs, outputs, 1, side)  # the shortcut's projection
