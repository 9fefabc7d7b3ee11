"""Encoders of patches: of images, of videos and of spectrograms, with classes of them or without."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind
from .decoders import attention_of_config
from .reader import ConfigReader
from .towers import Tower, alone


def squares(c: ConfigReader) -> tuple[int, int]:
    """Return the elements of a square patch, and the patches of an image."""
    patch, image = c.whole("patch_size"), c.whole("image_size")
    if not patch or image < patch:
        raise ValueError(f"patch_size: {patch} does not fit image_size {image}")
    return c.whole("channels") * patch * patch, (image // patch) ** 2


def numbered_patches(c: ConfigReader) -> tuple[int, int]:
    """Return the elements of a square patch, and the patches that a file gives the number of."""
    return c.whole("channels") * c.whole("patch_size") ** 2, c.whole("num_patches")


def tubes(c: ConfigReader) -> tuple[int, int]:
    """Return the elements of a patch over some frames, and the patches of a video."""
    frames, deep = c.whole("num_frames"), c.whole("tubelet_size")
    if not deep or frames % deep:
        raise ValueError(f"tubelet_size: {deep} does not divide the {frames} frames of a video")
    pixels, patches = squares(c)
    return pixels * deep, patches * (frames // deep)


def spectrogram(c: ConfigReader) -> tuple[int, int]:
    """Return the elements of a patch, and the patches of a spectrogram, which lie a stride apart."""
    patch, sides = c.whole("patch_size"), (c.whole("num_mel_bins"), c.whole("max_length"))
    strides = (c.whole("frequency_stride"), c.whole("time_stride"))
    if not all(strides) or min(sides) < patch:
        raise ValueError(f"frequency_stride, time_stride, patch_size: {strides} and {patch} do not fit {sides}")
    return patch * patch, math.prod((side - patch) // step + 1 for side, step in zip(sides, strides, strict=True))


@dataclass(frozen=True, slots=True)
class Sight:
    """The differences of an encoder of images from ViT."""

    tokens: int = 1  # beside the patches
    masked_token: bool = False  # a vector for patches that are hidden, held alone
    scaled: bool = False  # a scale a channel behind each half of a layer
    key_bias: bool = True
    pooled: int = 1  # vectors that the classes are computed from
    ratio: bool = False  # the network's width is mlp_ratio times the layer's
    places: bool = True  # a table of positions
    registers: bool = False
    relative: bool = False  # a table of relative places in each layer, a column a head
    gated: bool = False
    shared_relative: bool = False  # such a table for all layers
    patch_bias: bool = True
    first_norm: bool = False
    last_norm: bool = True
    head: bool = False  # SigLIP's: a query over the patches, and a network, where vision_use_head says so
    sees: Callable[[ConfigReader], tuple[int, int]] = squares  # elements of a patch, and how many there are


def patch_tower(c: ConfigReader, sight: Sight) -> Tower:
    """Return an encoder whose tokens are patches, and some tokens more."""
    hidden, bias = c.whole("hidden_size"), c.flag("qkv_bias", default=True)
    width = int(hidden * c.value("mlp_ratio", 4)) if sight.ratio else c.whole("intermediate_size")
    elements, patches = sight.sees(c)
    narrowed = sight.ratio and c.flag("use_swiglu_ffn")
    width, gated = (int(width * 2 / 3) + 7) // 8 * 8 if narrowed else width, narrowed or sight.gated
    c.skip("encoder_stride", "pooler_output_size", "pooler_act")
    registers = c.whole("num_register_tokens", 0) if sight.registers else 0
    plain = attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    small = 4 * hidden + (2 + sight.key_bias) * hidden * bias + hidden + (1 + gated) * width + hidden
    small += 2 * hidden * sight.scaled
    side = math.isqrt(patches)
    table = ((2 * side - 1) ** 2 + 3) * mixer.heads  # of relative places, and to and from the first token
    small += table * sight.relative
    rows = sight.tokens + registers + sight.patch_bias + 2 * sight.first_norm + 2 * sight.last_norm
    rows += sight.masked_token and c.flag("use_mask_token", default=True)
    rows += (patches + sight.tokens) * sight.places
    pools = sight.head and c.flag("vision_use_head", default=True)
    # keys and values of each patch; a query, its output and a network of one vector
    met, once = 2 * hidden * hidden * pools, 2 * hidden * (hidden + width) * pools
    return Tower(
        width=hidden,
        layers=[LayerKind(mixer=mixer, network=Dense(width=width, gated=gated), small=small)] * c.layers(),
        held=rows * hidden + table * sight.shared_relative + (8 * hidden + width) * pools,
        met=hidden * elements + met,
        once=once,
        places=patches + sight.tokens + registers,
    )


def image_encoder(c: ConfigReader, sight: Sight) -> Architecture:
    """Return an encoder that classifies images."""
    return alone(patch_tower(c, sight), c.classes(), pooled=sight.pooled)


OF_BACKBONE = ("stage_names", "out_features", "out_indices", "reshape_hidden_states")  # which states it hands on


def dinov2(c: ConfigReader, *, registers: bool = False) -> Architecture:
    """Return DINOv2: scaled halves, classes from the first token and the mean of the patches."""
    c.skip("layerscale_value", "apply_layernorm", *OF_BACKBONE)
    if registers:
        c.skip("use_mask_token")
    sight = Sight(masked_token=True, scaled=True, pooled=2, ratio=True, registers=registers)
    return image_encoder(c, sight)


def dinov3(c: ConfigReader) -> Architecture:
    """Return DINOv3: scaled halves, rotated places in place of a table, biases by the part they belong to."""
    c.fixed({"proj_bias": True, "mlp_bias": True, "value_bias": c.flag("query_bias", default=True)})
    c.skip("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale", "apply_layernorm", *OF_BACKBONE)
    biased = c.flag("query_bias", default=True)
    if c.flag("key_bias") and not biased:
        raise ValueError("key_bias: expected false where query_bias is")
    sight = Sight(
        masked_token=True,
        scaled=True,
        key_bias=c.flag("key_bias"),
        registers=True,
        places=False,
        gated=c.flag("use_gated_mlp"),
    )
    return image_encoder(c.changed({"qkv_bias": biased}), sight)


def beit(c: ConfigReader, *, vectors: bool = False) -> Architecture:
    """Return BEiT with classes of images; `vectors`: without, and without the norm before them."""
    tower = beit_tower(c)
    if vectors:
        return alone(replace(tower, held=tower.held - 2 * tower.width), 0)
    return alone(tower, c.classes())


def beit_tower(c: ConfigReader) -> Tower:
    """Return BEiT: keys without a bias, scaled halves, positions where a key says so, of each or of relative places."""
    c.skip("vocab_size", "use_mean_pooling", "pool_scales", "use_auxiliary_head", "layer_scale_init_value", "add_fpn")
    c.skip("semantic_loss_ignore_index", *OF_BACKBONE)
    c.skip(*(f"auxiliary_{name}" for name in ("loss_weight", "channels", "num_convs", "concat_input")))
    if not c.flag("use_mean_pooling", default=True) or not c.value("layer_scale_init_value", 0.1):
        raise ValueError("use_mean_pooling, layer_scale_init_value: expected true, and a number above 0")
    places = c.flag("use_absolute_position_embeddings")
    sight = Sight(
        masked_token=c.flag("use_mask_token"),
        scaled=True,
        key_bias=False,
        places=places,
        relative=c.flag("use_relative_position_bias"),
        shared_relative=c.flag("use_shared_relative_position_bias"),
    )
    return patch_tower(c, sight)


def ast(c: ConfigReader, *, vectors: bool = False) -> Architecture:
    """Return the Audio Spectrogram Transformer, with classes of sounds behind a norm or without."""
    tower = patch_tower(c, Sight(tokens=2, sees=spectrogram))
    held = tower.held + 2 * tower.width * (not vectors)
    return alone(replace(tower, held=held), 0 if vectors else c.classes())


def deit_with_teacher(c: ConfigReader) -> Architecture:
    """Return DeiT with classes of two tokens, one of which learns from a teacher."""
    tower, classes = patch_tower(c, Sight(tokens=2)), c.classes()
    return alone(replace(tower, held=tower.held + classes), classes, pooled=2)
