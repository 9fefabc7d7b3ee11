"""Encoders of images of 2026 and what projects them to the text model: how many parameters each has.

Each function takes the keys of `vision_config` and the width of the text model.
"""

from .reader import ConfigReader
from .sound import hard_tokens
from .vision import block, siglip


def _network(width: int, inner: int, out: int, *, bias: bool = True) -> int:
    """Return the parameters of two projections."""
    return inner * (width + bias) + out * (inner + bias)


def patch_of(c: ConfigReader) -> int:
    """Return the elements of a patch."""
    return c.whole("channels", 3) * c.whole("patch_size") ** 2


def layers_of(c: ConfigReader, *, gated: bool = False, norm_bias: bool = True, more: int = 0) -> int:
    """Return the parameters of the layers of an encoder: attention, network, two norms, and `more` in each."""
    width, inner = c.whole("hidden_size"), c.whole("intermediate_size")
    c.whole("num_attention_heads")
    return c.layers() * (block(width, inner, bias=True, gated=gated, norm_bias=norm_bias) + more)


def gemma4_unified(c: ConfigReader, text: int) -> int:
    """Return Gemma 4's projection of patches: norms, a table of positions by row and column, and no layers."""
    width, merged = c.whole("mm_embed_dim"), 3 * (c.whole("patch_size") * c.whole("pooling_kernel_size")) ** 2
    c.skip("model_patch_size", "num_soft_tokens")
    norms = 2 * merged + 2 * width + 2 * width
    tables = 2 * c.whole("mm_posemb_size") * width
    return norms + width * (merged + 1) + tables + c.whole("output_proj_dims") * text


def gemma4_frames(c: ConfigReader, text: int) -> int:
    """Return Gemma 4's projection of frames of sound."""
    c.skip("audio_samples_per_token", "hidden_size", "output_proj_dims")
    return c.whole("audio_embed_dim") * text


def minimax_m3_tower(c: ConfigReader, text: int) -> int:
    """Return MiniMax-M3's encoder: patches of two frames, and two projections before and behind their merging."""
    width, inner = c.whole("hidden_size"), c.whole("projector_hidden_size")
    c.skip("image_size", "merged_hidden_size")
    merged = text * c.whole("spatial_merge_size") ** 2
    if c.whole("merged_hidden_size", merged) != merged:
        raise ValueError(f"merged_hidden_size: expected hidden_size x spatial_merge_size^2 = {merged}")
    tower = width * patch_of(c) * c.whole("temporal_patch_size") + 2 * width + layers_of(c)
    return tower + _network(width, inner, text) + _network(merged, inner, text)


def glm5_next_tower(c: ConfigReader, text: int) -> int:
    """Return GLM-5.3's encoder: gated networks, norms of queries and keys, a convolution that merges patches."""
    width, out, bias = c.whole("hidden_size"), c.whole("out_hidden_size"), c.flag("attention_bias")
    heads, inner = c.whole("num_attention_heads"), c.whole("intermediate_size")
    del text
    if not heads or width % heads:
        raise ValueError(f"num_heads: {heads} does not divide hidden_size {width}")
    c.skip("image_size")
    spared = (4 * width + 2 * inner + width) * (not bias)
    layers = layers_of(c, gated=True, norm_bias=False, more=2 * (width // heads) - spared)
    merger = out * out + 2 * out + 3 * out * c.whole("projection_intermediate_size")
    ends = width * (patch_of(c) * c.whole("temporal_patch_size") + 1) + width
    return ends + layers + out * (c.whole("spatial_merge_size") ** 2 * width + 1) + merger


def step3p7(c: ConfigReader, text: int) -> int:
    """Return Step 3.7's encoder: a scale a channel behind each half of a layer, two convolutions, one projection."""
    width, image, patch = c.whole("hidden_size"), c.whole("image_size"), c.whole("patch_size")
    ratio = c.value("mlp_ratio", 8960 / 1536)
    if not isinstance(ratio, int | float) or not patch:
        raise ValueError(f"mlp_ratio, patch_size: expected numbers above 0, got {ratio!r} and {patch}")
    c.skip("intermediate_size", "layer_scale_init_value", "max_position_embeddings", "num_attention_heads")
    c.skip("ls_init_value")
    layers = c.layers() * (block(width, int(width * ratio)) + 2 * width)
    ends = width * (patch_of(c) + (image // patch) ** 2 + 2)
    convolutions = 2 * width * (9 * width + 1) + 4 * width * (18 * width + 1)
    return ends + layers + convolutions + text * (4 * width + c.flag("projector_bias"))


def inkling2_tower(c: ConfigReader, text: int) -> int:
    """Return Inkling 2's encoder: a scale a channel behind each half of a layer, and two projections."""
    width, inner = c.whole("hidden_size"), c.whole("projection_hidden_dim")
    ratio = c.value("mlp_ratio", 4.0)
    wide = c.whole("intermediate_size") if c.given("intermediate_size") else int(width * float(ratio))
    if c.whole("text_hidden_size", text) != text:
        raise ValueError(f"text_hidden_size: expected {text}, the width of the text model")
    c.skip("layer_scale_init_value", "num_attention_heads", "native_patch_size", "adapter_merge_size")
    layers = c.layers() * (block(width, wide) + 2 * width)
    ends = width * (2 + patch_of(c) + c.whole("posemb_grid_size") ** 2 + 2)
    merged = width * c.whole("spatial_merge_size") ** 2
    return ends + layers + _network(merged, inner, text, bias=c.flag("projector_bias"))


def muse_tower(c: ConfigReader, text: int) -> int:
    """Return Muse's encoder: patches of two frames in windows, two projections of merged ones, and one more."""
    width, inner = c.whole("hidden_size"), c.whole("projector_hidden_size")
    places = c.whole("pos_emb_height") * c.whole("pos_emb_width")
    c.skip("merge_size", "max_position_embeddings", "layer_types")
    ends = width * (patch_of(c) * c.whole("patch_temporal") + places) + 4 * width
    return ends + layers_of(c) + inner * (c.whole("out_hidden_size") + inner + text)


def lfm3_tower(c: ConfigReader, text: int) -> int:
    """Return LFM3's encoder: convolutions over the image in most layers, and its projector."""
    width, inner, few = c.whole("hidden_size"), c.whole("projector_hidden_size"), c.whole("num_key_value_heads")
    heads, count = c.whole("num_attention_heads"), c.layers()
    usual = c.value("layer_types")
    kinds = usual if isinstance(usual, list) else []
    if len(kinds) != count or not heads or width % heads:
        raise ValueError(
            f"layer_types, num_attention_heads: expected a word for each of the {count} layers, whole heads"
        )
    dim = width // heads
    conv = 4 * width * width + width * c.whole("conv_kernel_size") ** 2
    full = 2 * width * width + 2 * width * few * dim + 2 * dim
    layers = sum(conv if kind == "conv" else full for kind in kinds)
    layers += count * (3 * width * c.whole("intermediate_size") + 2 * width)
    merged, bias = width * c.whole("spatial_merge_size") ** 2, c.flag("projector_bias", default=True)
    ends = width * patch_of(c) * c.whole("temporal_patch_size") + 3 * width
    return ends + layers + _network(merged, inner, text, bias=bias)


def molmo2_tower(c: ConfigReader, text: int) -> int:
    """Return Molmo 2's encoder, attention that pools the features of several of its layers, a gated projection."""
    width, heads, dim = c.whole("hidden_size"), c.whole("num_attention_heads"), c.whole("head_dim")
    few, bias, inner = c.whole("num_key_value_heads"), c.flag("attention_bias"), c.whole("intermediate_size")
    c.skip("image_size", "image_patch_id")
    columns = (heads + 2 * few) * dim
    layer = width * (columns + heads * dim) + (columns + width) * bias + 2 * width * inner + inner + width + 4 * width
    a = c.inside("adapter_config")
    joined, wide, out = a.value("vision_feature_layer", [24, 18]), a.whole("hidden_size"), a.whole("text_hidden_size")
    heads, dim, few = a.whole("num_attention_heads"), a.whole("head_dim"), a.whole("num_key_value_heads")
    del text
    if not isinstance(joined, list) or not all(type(place) is int for place in joined):
        raise ValueError(f"adapter_config: vision_feature_layer: expected a list of layers, got {joined!r}")
    count = c.layers()
    columns, a_bias = (heads + 2 * few) * dim, a.flag("attention_bias")
    pooled = len(joined) * wide * columns + heads * dim * wide + (columns + wide) * a_bias
    gated = a.whole("intermediate_size") * (2 * wide + out) + (2 * a.whole("intermediate_size") + out) * a.flag(
        "mlp_bias"
    )
    return width * (c.whole("num_position_embeddings") + patch_of(c) + 1) + count * layer + pooled + gated


def cosmos3_tower(c: ConfigReader, text: int) -> int:
    """Return the encoder of Cosmos 3 Edge, SigLIP 2's without pooling, and two projections of merged patches."""
    width, merged = c.whole("hidden_size"), c.whole("spatial_merge_size") ** 2 * c.whole("hidden_size")
    ends = width * (patch_of(c) + 1 + c.whole("num_patches")) + 2 * width + 2 * width
    return ends + layers_of(c) + _network(merged, c.whole("projector_hidden_size"), text)


def phi4_tower(c: ConfigReader, text: int) -> int:
    """Return the SigLIP encoder of Phi-4-multimodal, the vectors that end rows and images, and two projections."""
    width = c.whole("hidden_size")
    c.skip("crop_size", "feature_layer", "image_token_id")
    return siglip(c) + 2 * width + _network(width, text, text) + c.whole("adapter_weights", 0)


# weights of timm's mobilenetv5_300m_enc, the one encoder of images that Gemma 3n is published with
MOBILENET_V5 = 294_284_096


def gemma3n_tower(c: ConfigReader, text: int) -> int:
    """Return Gemma 3n's encoder, whose sizes lie in timm and not in the file, and its table of hard tokens."""
    named = c.value("architecture", "mobilenetv5_300m_enc")
    if named != "mobilenetv5_300m_enc" or c.value("model_args"):
        raise ValueError(f"architecture, model_args: expected mobilenetv5_300m_enc, and none, got {named!r}")
    c.skip("vocab_offset", "do_pooling", "num_classes", "label_names")
    return MOBILENET_V5 + hard_tokens(c, text)


def radio(c: ConfigReader, text: int) -> int:
    """Return RADIO's encoder as Nemotron-Omni has it: scaled layers, registers, projections of video and of patches."""
    width, patch = c.whole("hidden_size"), patch_of(c)
    ratio = c.value("downsample_ratio", 0.5)
    if c.flag("use_swiglu_ffn") or c.whole("vision_hidden_size", width) != width:
        raise ValueError("use_swiglu_ffn, vision_hidden_size: expected false, and the width of the encoder")
    if not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise ValueError(f"downsample_ratio: expected a number above 0, at most 1, got {ratio!r}")
    c.skip("num_attention_heads", "image_size", "summary_idxs", "patch_dim", "video_patch_dim", "norm_mean", "norm_std")
    c.skip("video_pruning_rate", "layerscale_value")
    mlp = c.value("mlp_ratio", 4.0)
    layer = block(width, int(width * float(mlp))) + 2 * width - 3 * width * (not c.flag("qkv_bias", default=True))
    places = (c.whole("max_img_size") // c.whole("patch_size")) ** 2
    tokens = c.whole("num_cls_tokens") + c.whole("num_registers")
    video = patch * c.whole("video_temporal_patch_size") if c.whole("video_temporal_patch_size", 0) else 0
    merged = int(1 / ratio) ** 2 * width
    ends = width * (places + tokens + patch + video)
    return ends + c.layers() * layer + merged + _network(merged, c.whole("projector_hidden_size"), text, bias=False)


def hunyuan(c: ConfigReader, text: int) -> int:
    """Return Hunyuan-VL's encoder, and convolutions that merge its patches between two norms."""
    width, patch, merge = c.whole("hidden_size"), c.whole("patch_size"), c.whole("spatial_merge_size")
    if not patch or c.whole("max_image_size") < patch:
        raise ValueError(f"patch_size: {patch} does not fit max_image_size {c.whole('max_image_size')}")
    c.skip(*HUNYUAN_PASSED)
    places = (c.whole("max_image_size") // patch) ** 2 + 1
    merged = 2 * width * (merge * merge * width + 1) + 4 * width * (2 * width + 1) + text * (4 * width + 1)
    return width * (patch_of(c) + 1 + places) + layers_of(c) + merged + 4 * width + 3 * text + width + text


HUNYUAN_PASSED = (
    *("interpolate_mode", "out_hidden_size", "img_max_token_num", "min_image_size", "max_vit_seq_len"),
    *("text_hidden_size", "temporal_patch_size", "num_key_value_heads"),  # which the class takes from the text model
)
