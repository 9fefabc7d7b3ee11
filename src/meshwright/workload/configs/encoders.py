"""Encoders of text beside BERT's own style, and encoders of images that classify them."""

from dataclasses import dataclass

from ..architecture import Architecture
from ..kinds import Attention, Dense, DynamicConv, LayerKind, runs_of
from .decoders import Traits, attention_of_config, made
from .reader import ConfigReader

STYLE = Traits(layer_norm=True, tied=True, positions="none")


def deberta_v2(c: ConfigReader) -> Architecture:
    """Return DeBERTa v2 and v3: scores with a table of relative places, from either side."""
    hidden, vocab, width = c.whole("hidden_size"), c.whole("vocab_size"), c.whole("intermediate_size")
    types, places = c.whole("type_vocab_size", 0), c.whole("max_position_embeddings")
    relative, kernel = c.flag("relative_attention"), c.whole("conv_kernel_size", 0)
    sides = c.value("pos_att_type", [])
    sides = sides.split("|") if isinstance(sides, str) else sides
    if not isinstance(sides, list) or not set(sides) <= {"c2p", "p2c", ""}:
        raise ValueError(f"pos_att_type: expected c2p and p2c, got {sides!r}")
    if c.whole("embedding_size", hidden) != hidden:
        raise ValueError(f"embedding_size: expected {hidden}, hidden_size")
    span = _span(c, places)
    c.skip("pooler_hidden_size", "legacy", "max_relative_positions", "conv_groups")
    shared = c.flag("share_att_key")
    scored = len(set(sides) - {""}) * relative
    plain = attention_of_config(c)
    table = 2 * span * hidden
    mixer = Attention(
        heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False, places=scored * table
    )
    apart = ("c2p" in sides) + ("p2c" in sides) if relative and not shared else 0
    small = 4 * hidden + 3 * hidden + hidden + width + hidden + apart * hidden * (hidden + 1)
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=small)
    tables = (types + places * c.flag("position_biased_input", default=True) + 2) * hidden
    normed = "layer_norm" in str(c.value("norm_rel_ebd", "none"))
    tables += (table + 2 * hidden * normed) * relative
    groups = c.whole("conv_groups", 1) or 1
    convolved = hidden * hidden // groups * kernel + 3 * hidden if kernel else 0
    beside = tables + vocab + 3 * hidden - 2 * hidden + (3 * hidden if kernel else 0)
    return made(
        *(c, STYLE, [layer] * c.layers()),
        beside_parameters=beside,
        beside_weights=hidden * hidden + max(0, convolved - 3 * hidden),
    )


def _span(c: ConfigReader, places: int) -> int:
    """Return how many relative places a table has on each side."""
    buckets, most = c.value("position_buckets", -1), c.value("max_relative_positions", -1)
    buckets, most = (number if type(number) is int and number >= 1 else 0 for number in (buckets, most))
    c.skip("position_buckets")
    return buckets or most or places


def convbert_layer(c: ConfigReader) -> LayerKind:
    """Return a layer of ConvBERT: fewer heads, half as wide together as the stream, beside a dynamic convolution."""
    hidden, width, kernel = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("conv_kernel_size")
    heads = max(1, c.whole("num_attention_heads") // max(1, c.whole("head_ratio")))
    half, groups = hidden // 2, c.whole("num_groups")
    if hidden % (2 * heads) or not groups or hidden % groups or width % groups:
        raise ValueError(
            f"num_attention_heads, head_ratio, num_groups: {2 * heads} or {groups} divides no hidden_size {hidden}"
        )
    if groups > 1:
        c.assumed.append(f"networks of {groups} groups are counted as one as wide as a group")
    mixer = Attention(heads=heads, kv_heads=heads, head_dim=half // heads, masked=False)
    convolved = DynamicConv(width=half, heads=heads, kernel=kernel)
    small = 3 * half + 2 * half + heads * kernel + hidden * kernel  # of queries to values, and of the convolution
    small += hidden + 4 * hidden + width + hidden
    return LayerKind(mixer=mixer, beside=convolved, network=Dense(width=width // groups, gated=False), small=small)


def esm(c: ConfigReader) -> Architecture:
    """Return ESM: norms before both halves and behind the last layer, and a regression of contacts."""
    hidden, vocab, width, count = (
        c.whole("hidden_size"),
        c.whole("vocab_size"),
        c.whole("intermediate_size"),
        c.layers(),
    )
    if c.flag("is_folding_model"):
        raise ValueError("is_folding_model: expected false")
    plain = attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=4 * hidden + 5 * hidden + width)
    places = c.whole("max_position_embeddings") * (c.value("position_embedding_type", "absolute") == "absolute")
    c.skip("token_dropout", "esmfold_config", "vocab_list")
    before = 2 * hidden * c.flag("emb_layer_norm_before")
    contacts = count * plain.heads + 1
    beside = places * hidden + before + contacts + vocab + 3 * hidden
    return made(c, STYLE, [layer] * count, beside_parameters=beside, beside_weights=hidden * hidden)


def nomic_bert(c: ConfigReader) -> Architecture:
    """Return Nomic BERT: rotated queries and keys, gated networks without biases, norms behind both halves."""
    hidden, vocab = c.whole("hidden_size"), c.whole("vocab_size")
    plain = attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    layer = LayerKind(mixer=mixer, network=Dense(width=c.whole("intermediate_size")), small=4 * hidden)
    beside = c.whole("type_vocab_size") * hidden + 2 * hidden + vocab + 3 * hidden - 2 * hidden
    c.skip("classifier_dropout")
    traits = Traits(layer_norm=True, tied=True)
    return made(c, traits, [layer] * c.layers(), beside_parameters=beside, beside_weights=hidden * hidden)


def roformer(c: ConfigReader) -> Architecture:
    """Return RoFormer: BERT with rotated queries and keys, by a table that is stored and not trained."""
    hidden, vocab, width = c.whole("hidden_size"), c.whole("vocab_size"), c.whole("intermediate_size")
    narrow, plain = c.whole("embedding_size", hidden), attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    small = 4 * hidden + 3 * hidden + hidden + width + hidden
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=False), small=small)
    c.skip("rotary_value")
    tables = (c.whole("type_vocab_size") + 2) * narrow + c.whole("max_position_embeddings") * plain.head_dim
    projected = hidden * narrow if narrow != hidden else 0
    beside = tables + vocab + 3 * narrow - 2 * hidden + (hidden if projected else 0)
    return made(
        *(c, STYLE, [layer] * c.layers()),
        embedding_size=narrow,
        beside_parameters=beside,
        beside_weights=hidden * narrow + projected,
    )


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


def image_encoder(c: ConfigReader, sight: Sight) -> Architecture:
    """Return an encoder that classifies images; a sequence is the patches of an image and some tokens more."""
    hidden, patch, image = c.whole("hidden_size"), c.whole("patch_size"), c.whole("image_size")
    bias, labels = c.flag("qkv_bias", default=True), c.value("id2label", {})
    classes = c.whole("num_labels", len(labels) if isinstance(labels, dict) and labels else 2)
    width = int(hidden * c.value("mlp_ratio", 4)) if sight.ratio else c.whole("intermediate_size")
    if not patch or image % patch:
        raise ValueError(f"patch_size: {patch} does not divide image_size {image}")
    narrowed = sight.ratio and c.flag("use_swiglu_ffn")
    width, gated = (int(width * 2 / 3) + 7) // 8 * 8 if narrowed else width, narrowed or sight.gated
    c.skip("encoder_stride", "pooler_output_size", "pooler_act")
    patches = (image // patch) ** 2
    registers = c.whole("num_register_tokens", 0) if sight.registers else 0
    plain = attention_of_config(c)
    mixer = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, masked=False)
    small = 4 * hidden + (2 + sight.key_bias) * hidden * bias + hidden + (1 + gated) * width + hidden
    small += 2 * hidden * sight.scaled
    table = ((2 * (image // patch) - 1) ** 2 + 3) * mixer.heads  # of relative places, and to and from the first token
    small += table * sight.relative
    rows = sight.tokens + registers + 1  # and the bias of patches
    rows += sight.masked_token and c.flag("use_mask_token", default=True)
    rows += (patches + sight.tokens) * sight.places
    layer = LayerKind(mixer=mixer, network=Dense(width=width, gated=gated), small=small)
    return Architecture(
        vocab_size=classes,
        hidden_size=hidden,
        intermediate_size=width,
        num_hidden_layers=c.layers(),
        num_attention_heads=mixer.heads,
        num_key_value_heads=mixer.kv_heads,
        head_dim=mixer.head_dim,
        max_position_embeddings=patches + sight.tokens + registers,
        gated=gated,
        norm="layer",
        bias=True,
        positions="none",
        embeds=False,
        beside_parameters=rows * hidden + classes + table * sight.shared_relative,
        beside_weights=hidden * patch * patch * c.whole("num_channels") + (sight.pooled - 1) * hidden * classes,
        once_weights=sight.pooled * hidden * classes,
        stack=runs_of([layer] * c.layers()),
    )


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


def beit(c: ConfigReader) -> Architecture:
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
    return image_encoder(c, sight)
