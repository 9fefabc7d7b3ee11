"""Swin as numbers: an encoder of images whose stages halve the sides and double the width, with attention in windows.

Sizes carry the keys of a Hugging Face config.json of `swin` and `swinv2` (Liu et al., arXiv 2103.14030 and
2111.09883) and of `donut-swin`, Swin without a norm behind its stages. They classify, by a mean over the last stage and
an output over the classes, or put out the last stage as it is.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...errors import InputError
from ..architecture import MOST_LAYERS
from ..configs.reader import ConfigReader

KINDS = ("swin", "swinv2", "donut-swin")
CLASSIFIES, BARE = "ForImageClassification", "Model"
BIAS_WIDTH = 512  # of the network that computes biases of relative places (v2)
USUAL = {"image_size": 224, "patch_size": 4, "num_channels": 3, "window_size": 7}
PASSED = ("encoder_stride", "path_norm", "stage_names", "out_features", "out_indices", "pretrained_window_sizes")


class Pyramid(msgspec.Struct, frozen=True, kw_only=True):
    """A classifier of images in stages, from the widest image to the widest layer."""

    image_size: int  # pixels of a column
    patch_size: int
    num_channels: int
    embed_dim: int  # width of the first stage
    depths: tuple[int, ...]  # layers of each stage
    num_heads: tuple[int, ...]
    window_size: int
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    use_absolute_embeddings: bool = False
    num_labels: int = 2  # 0: no output over classes
    image_width: int = 0  # pixels of a row, where they are not as many
    last_norm: bool = True
    computed: bool = False  # biases of relative places come from a network, as in v2; else from a table

    def __post_init__(self) -> None:
        if not self.depths or len(self.depths) != len(self.num_heads) or not 0 < sum(self.depths) <= MOST_LAYERS:
            raise ValueError("depths, num_heads: expected one number each for every stage")
        sizes = (self.patch_size, self.num_channels, self.embed_dim, self.window_size, *self.num_heads)
        if not all(0 < size < 2**20 for size in (*self.image, *sizes)) or not 0 < self.mlp_ratio < 2**10:
            raise ValueError("sizes: expected numbers above 0 and below 1,048,576")
        if not 0 <= self.num_labels < 2**20:
            raise ValueError(f"num_labels: expected 0 to 1,048,575, got {self.num_labels}")
        if len(self.depths) > 16 or min(self.image) < self.patch_size:
            raise ValueError(f"patch_size: {self.patch_size} does not fit image_size {self.image_size}")
        for heads, (width, _, _) in zip(self.num_heads, self.stages(), strict=True):
            if width % heads:
                raise ValueError(f"num_heads: {heads} does not divide the width {width} of its stage")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, where: str = "config.json") -> tuple["Pyramid", tuple[str, ...]]:
        """Return the network that a config describes, and what was assumed of it.

        Raises InputError naming a key that is wrong, missing or not understood.
        """
        donut = config.get("model_type") == "donut-swin"
        named = next(iter(config.get("architectures") or []), BARE if donut else CLASSIFIES)
        if not isinstance(named, str) or not named.endswith((CLASSIFIES, BARE)):
            raise InputError(f"{where}: architectures: {named}: expected a name that ends in {CLASSIFIES} or {BARE}")
        c, assumed = ConfigReader(config, {}, where), []
        high, wide = _image(c)
        sizes = {name: c.whole(name, usual) for name, usual in USUAL.items() if name != "image_size"}
        assumed += [
            f"{name} = {usual}, the default of the model type" for name, usual in USUAL.items() if not c.given(name)
        ]
        labels = c.value("id2label", {})
        classes = c.whole("num_labels", len(labels) if isinstance(labels, Mapping) and labels else 2)
        classes = 0 if named.endswith(BARE) else classes
        unsaid = classes and not labels and not c.given("num_labels")
        assumed += ["an output over 2 classes: the file names none"] if unsaid else []
        depths, heads = ([*(c.numbers(name) or [])] for name in ("depths", "num_heads"))
        try:
            found = cls(
                **sizes, image_size=high, image_width=wide, last_norm=not donut,
                embed_dim=c.whole("embed_dim"), depths=tuple(depths), num_heads=tuple(heads),
                mlp_ratio=_number(c, "mlp_ratio", 4.0), qkv_bias=c.flag("qkv_bias", default=True),
                use_absolute_embeddings=c.flag("use_absolute_embeddings"), num_labels=classes,
                computed=config.get("model_type") == "swinv2",
            )  # fmt: skip
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
        _check_told(c, found)
        return found, tuple(assumed)

    @property
    def image(self) -> tuple[int, int]:
        """Pixels of a column and of a row."""
        return self.image_size, self.image_width or self.image_size

    def stages(self) -> Iterator[tuple[int, tuple[int, int], int]]:
        """Yield width, tokens of a column and of a row, and layers of each stage."""
        high, wide = (-(-size // self.patch_size) for size in self.image)
        for place, depth in enumerate(self.depths):
            yield self.embed_dim * 2**place, (high, wide), depth
            high, wide = -(-high // 2), -(-wide // 2)

    @property
    def parameters(self) -> int:
        """Parameters in all, the output over the classes with its bias included."""
        width, patches = self.embed_dim, math.prod(size // self.patch_size for size in self.image)
        spare = self.computed or not self.last_norm  # a row of positions that no patch has
        rows = 1 + 2 + (patches + spare) * self.use_absolute_embeddings
        found = self._patch * width + rows * width
        for place, ((wide, _, depth), heads) in enumerate(zip(self.stages(), self.num_heads, strict=True)):
            found += depth * self._layer(wide, heads)
            if place + 1 < len(self.depths):
                found += 8 * wide * wide + 2 * (2 if self.computed else 4) * wide
            width = wide
        return found + 2 * width * self.last_norm + (width + 1) * self.num_labels

    @property
    def forward_flops(self) -> int:
        """FLOPs of the forward pass of one image: 2 a multiply-add, windows that reach over the edge in full."""
        found, width = 0, self.embed_dim
        for place, (wide, sides, depth) in enumerate(self.stages()):
            tokens, window = math.prod(sides), min(self.window_size, *sides)
            found += 2 * tokens * (self._patch * wide if not place else 2 * wide * wide)  # of patches, or four merged
            within = math.prod(-(-side // window) * window for side in sides)  # tokens of whole windows
            products = 4 * wide * wide * within + 2 * wide * int(self.mlp_ratio * wide) * tokens
            found += 2 * depth * (products + 2 * window**2 * wide * within)
            width = wide
        return found + 2 * width * self.num_labels

    @property
    def sample_bytes(self) -> int:
        """Bytes of one image, a byte a channel and pixel."""
        return self.num_channels * math.prod(self.image)

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


def _image(c: ConfigReader) -> tuple[int, int]:
    """Return the pixels of a column and of a row of an image, which a file says as one number or as two."""
    said = c.alone("image_size")
    if not isinstance(said, list) or len(said) != 2:
        side = c.whole("image_size", USUAL["image_size"])
        return side, side
    high, wide = c.numbers("image_size") or (0, 0)
    if not wide:
        raise InputError(f"{c.where}: image_size: expected numbers above 0, got {said}")
    return high, wide


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
