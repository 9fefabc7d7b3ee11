"""Swin as numbers: an encoder of images whose stages halve the sides and double the width, with attention in windows.

Sizes carry the keys of a Hugging Face config.json of `swin` and `swinv2` (Liu et al., arXiv 2103.14030 and
2111.09883). Both classify: a mean over the last stage, and an output over the classes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...errors import InputError
from ..architecture import MOST_LAYERS
from ..configs.reader import ConfigReader

KINDS = ("swin", "swinv2")
CLASSIFIES = "ForImageClassification"
BIAS_WIDTH = 512  # of the network that computes biases of relative places (v2)
USUAL = {"image_size": 224, "patch_size": 4, "num_channels": 3, "window_size": 7}
PASSED = ("encoder_stride", "path_norm", "stage_names", "out_features", "out_indices", "pretrained_window_sizes")


class Pyramid(msgspec.Struct, frozen=True, kw_only=True):
    """A classifier of images in stages, from the widest image to the widest layer."""

    image_size: int
    patch_size: int
    num_channels: int
    embed_dim: int  # width of the first stage
    depths: tuple[int, ...]  # layers of each stage
    num_heads: tuple[int, ...]
    window_size: int
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    use_absolute_embeddings: bool = False
    num_labels: int = 2
    computed: bool = False  # biases of relative places come from a network, as in v2; else from a table

    def __post_init__(self) -> None:
        if not self.depths or len(self.depths) != len(self.num_heads) or not 0 < sum(self.depths) <= MOST_LAYERS:
            raise ValueError("depths, num_heads: expected one number each for every stage")
        sizes = (self.patch_size, self.num_channels, self.embed_dim, self.window_size, self.num_labels, *self.num_heads)
        if not all(0 < size < 2**20 for size in (self.image_size, *sizes)) or not 0 < self.mlp_ratio < 2**10:
            raise ValueError("sizes: expected numbers above 0 and below 1,048,576")
        if len(self.depths) > 16 or self.image_size < self.patch_size:
            raise ValueError(f"patch_size: {self.patch_size} does not fit image_size {self.image_size}")
        for heads, (width, _, _) in zip(self.num_heads, self.stages(), strict=True):
            if width % heads:
                raise ValueError(f"num_heads: {heads} does not divide the width {width} of its stage")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, where: str = "config.json") -> tuple["Pyramid", tuple[str, ...]]:
        """Return the network that a config describes, and what was assumed of it.

        Raises InputError naming a key that is wrong, missing or not understood.
        """
        named = next(iter(config.get("architectures") or []), CLASSIFIES)
        if not isinstance(named, str) or not named.endswith(CLASSIFIES):
            raise InputError(f"{where}: architectures: {named}: expected a name that ends in {CLASSIFIES}")
        c, assumed = ConfigReader(config, {}, where), []
        sizes = {name: c.whole(name, usual) for name, usual in USUAL.items()}
        assumed += [f"{name} = {sizes[name]}, the default of the model type" for name in USUAL if not c.given(name)]
        labels = c.value("id2label", {})
        classes = c.whole("num_labels", len(labels) if isinstance(labels, Mapping) and labels else 2)
        assumed += [] if labels or c.given("num_labels") else ["an output over 2 classes: the file names none"]
        depths, heads = ([*(c.numbers(name) or [])] for name in ("depths", "num_heads"))
        try:
            found = cls(
                **sizes, embed_dim=c.whole("embed_dim"), depths=tuple(depths), num_heads=tuple(heads),
                mlp_ratio=_number(c, "mlp_ratio", 4.0), qkv_bias=c.flag("qkv_bias", default=True),
                use_absolute_embeddings=c.flag("use_absolute_embeddings"), num_labels=classes,
                computed=config.get("model_type") == "swinv2",
            )  # fmt: skip
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
        _check_told(c, found)
        return found, tuple(assumed)

    def stages(self) -> Iterator[tuple[int, int, int]]:
        """Yield width, tokens of a side and layers of each stage."""
        side = -(-self.image_size // self.patch_size)
        for place, depth in enumerate(self.depths):
            yield self.embed_dim * 2**place, side, depth
            side = -(-side // 2)

    @property
    def parameters(self) -> int:
        """Parameters in all, the output over the classes with its bias included."""
        width, patches = self.embed_dim, (self.image_size // self.patch_size) ** 2
        rows = 1 + 2 + (patches + self.computed) * self.use_absolute_embeddings
        found = self._patch * width + rows * width
        for place, ((wide, _, depth), heads) in enumerate(zip(self.stages(), self.num_heads, strict=True)):
            found += depth * self._layer(wide, heads)
            if place + 1 < len(self.depths):
                found += 8 * wide * wide + 2 * (2 if self.computed else 4) * wide
            width = wide
        return found + 2 * width + (width + 1) * self.num_labels

    @property
    def forward_flops(self) -> int:
        """FLOPs of the forward pass of one image: 2 a multiply-add, windows that reach over the edge in full."""
        found, width = 0, self.embed_dim
        for place, (wide, side, depth) in enumerate(self.stages()):
            found += 2 * side**2 * (self._patch * wide if not place else 2 * wide * wide)  # of patches, or four merged
            window = min(self.window_size, side)
            within = (-(-side // window) * window) ** 2  # tokens of whole windows
            products = 4 * wide * wide * within + 2 * wide * int(self.mlp_ratio * wide) * side**2
            found += 2 * depth * (products + 2 * window**2 * wide * within)
            width = wide
        return found + 2 * width * self.num_labels

    @property
    def sample_bytes(self) -> int:
        """Bytes of one image, a byte a channel and pixel."""
        return self.num_channels * self.image_size**2

    @property
    def _patch(self) -> int:
        return self.num_channels * self.patch_size**2

    def _layer(self, width: int, heads: int) -> int:
        """Return the parameters of one layer: attention with biases of relative places, network, two norms."""
        inner = int(self.mlp_ratio * width)
        biases = (2 if self.computed else 3) * width * self.qkv_bias + width + inner + width
        places = (2 * self.window_size - 1) ** 2 * heads
        if self.computed:  # from two coordinates, and a scale of its own for the scores of each head
            places = 3 * BIAS_WIDTH + BIAS_WIDTH * heads + heads
        return 4 * width * width + 2 * width * inner + biases + places + 4 * width


def _number(c: ConfigReader, name: str, usual: float) -> float:
    value = c.value(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: expected a number, got {value!r}")
    return float(value)


def _check_told(c: ConfigReader, found: Pyramid) -> None:
    """Raise InputError at sizes that do not follow from the stages, and at keys that are not understood."""
    last = found.embed_dim * 2 ** (len(found.depths) - 1)
    c.fixed({"hidden_size": last, "num_layers": len(found.depths)})
    c.skip(*PASSED)
    if unknown := c.unknown():
        raise InputError(f"{c.where}: {unknown[0]}: not understood, and it may change the size")
