"""Encoders of images whose features a resampler, a table or a second encoder brings to the text model.

Each function takes the keys of `vision_config` and the width of the text model.
"""

from .reader import ConfigReader
from .vision import block, sam, sam_neck, sight
from .vision_of_2026 import patch_of


def idefics2(c: ConfigReader, text: int) -> int:
    """Return Idefics2's encoder, a gated projection as wide as the text model's networks, and its resampler."""
    width, patch, inner = c.whole("hidden_size"), c.whole("patch_size"), c.whole("text_intermediate_size", 14336)
    c.whole("num_attention_heads")
    if not patch or c.whole("image_size") < patch:
        raise ValueError(f"patch_size: {patch} does not fit image_size {c.whole('image_size')}")
    places = (c.whole("image_size") // patch) ** 2
    tower = width * (patch_of(c) + 1 + places + 2) + c.layers() * block(width, c.whole("intermediate_size"))
    resampler = c.inside("perceiver_config")
    resampler.skip("hidden_size", "model_type", "resampler_n_heads")  # as wide as the text model whatever it says
    queries = resampler.whole("resampler_n_heads") * resampler.whole("resampler_head_dim")
    keys = resampler.whole("num_key_value_heads") * resampler.whole("resampler_head_dim")
    layer = 2 * text * (queries + keys) + 3 * text * 4 * text + 3 * text
    rows = resampler.whole("resampler_n_latents") + 1  # and the norm behind the layers
    return tower + inner * (2 * width + text) + resampler.whole("resampler_depth") * layer + rows * text


def ovis2(c: ConfigReader, text: int) -> int:
    """Return Ovis2's encoder, the output over its words for what is seen, and their table."""
    width, inner, words = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("vocab_size")
    patch, image, shown = c.whole("patch_size"), c.whole("image_size"), c.whole("num_visual_indicator_tokens")
    c.whole("num_attention_heads")
    if not patch or image < patch:
        raise ValueError(f"patch_size: {patch} does not fit image_size {image}")
    c.skip("tokenize_function")
    plain = block(width, inner, bias=False, gated=True, norm_bias=False)
    layer = plain + 4 * width * c.flag("qkv_bias") + (2 * inner + width) * c.flag("mlp_bias")
    ends = width * (patch_of(c) + 1 + (image // patch) ** 2) + 2 * width
    output = (words - shown) * (width * c.whole("hidden_stride") ** 2 + 2)
    return ends + c.layers() * layer + output + words * text


def deepseek_vl_hybrid(c: ConfigReader, text: int) -> int:
    """Return an encoder, SigLIP's where none is named, that of Segment Anything beside it, and what joins both."""
    high = c.inside("high_res_vision_config")
    high.skip("model_type", "num_pos_feats", "scale", "use_neck")
    width, out, ratio = high.whole("hidden_size"), high.whole("output_channels"), high.value("mlp_ratio", 4.0)
    if not isinstance(ratio, int | float):
        raise ValueError(f"high_res_vision_config: mlp_ratio: expected a number, got {ratio!r}")
    inner = high.whole("mlp_dim") if high.given("mlp_dim") else int(width * ratio)
    if text % 2:
        raise ValueError(f"text_config: hidden_size: expected an even number, got {text}")
    convolved = sam_neck(width, out) + 9 * (2 * out * out + 8 * out * out) + 1
    joined = text // 2 * (c.whole("hidden_size") + 1 + 4 * out + 1) + text * (text + 1)
    return sight(c, "siglip_vision_model") + sam(high, inner) + convolved + joined


# Perception Encoders as timm has them (huggingface/pytorch-image-models:timm/models/eva.py), which the file only names
PERCEPTION: dict[str, dict[str, float]] = {
    "vit_pe_lang_large_patch14_448": {"embed_dim": 1024, "depth": 23, "mlp_ratio": 4.0, "class_token": 1},
    "vit_pe_lang_gigantic_patch14_448": {"embed_dim": 1536, "depth": 47, "mlp_ratio": 8960 / 1536, "class_token": 0},
}


def perception(c: ConfigReader, text: int) -> int:
    """Return the Perception Encoder that `architecture` names, changed as `model_args` say, and two projections."""
    named, args = c.value("architecture"), c.inside("model_args")
    if not isinstance(named, str) or named not in PERCEPTION:
        raise ValueError(f"architecture: expected {' or '.join(PERCEPTION)}, an encoder of timm, got {named!r}")
    if c.whole("num_classes", 0) or args.value("global_pool", "") == "map":
        raise ValueError("num_classes, model_args.global_pool: expected 0, and no pooling by attention")
    usual = PERCEPTION[named]
    width, ratio = args.whole("embed_dim", int(usual["embed_dim"])), args.value("mlp_ratio", usual["mlp_ratio"])
    count, patch = args.whole("depth", int(usual["depth"])), args.whole("patch_size", 14)
    image, first = args.value("img_size", 448), args.flag("class_token", default=bool(usual["class_token"]))
    sides = image if isinstance(image, list) else [image, image]
    if not patch or not isinstance(ratio, int | float) or [type(side) for side in sides] != [int, int]:
        raise ValueError(f"model_args: expected numbers, and two sides, got {patch}, {ratio!r}, {image!r}")
    args.skip("ref_feat_shape", "num_heads", "rope_grid_offset", "rope_grid_indexing", "num_classes", "global_pool")
    c.skip("global_pool", "do_pooling", "label_names", *PERCEPTION_BESIDE)
    scaled = args.value("init_values", 0.1) is not None
    layers = count * (block(width, int(width * float(ratio))) + 2 * width * scaled)
    norms = 2 * width * (1 + args.flag("use_post_transformer_norm"))
    places: int = (sides[0] // patch) * (sides[1] // patch) + first
    return layers + norms + width * (3 * patch * patch + first + places) + text * (width + 1 + text + 1)


PERCEPTION_BESIDE = ("vision_use_cls_token", "projector_pooling_ratio")  # which vectors the text model gets
