"""Encoders of images whose features a resampler, a table or a second encoder brings to the text model.

Each function takes the keys of `vision_config` and the width of the text model.
"""

from .reader import ConfigReader
from .sound import q_former
from .vision import block, clip, llava, sam, sam_neck, sight, tower
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


def minicpmv4_7(c: ConfigReader, text: int) -> int:
    """Return MiniCPM-V 4.7's encoder, SigLIP's without pooling, its merger of windows, and what projects them."""
    width, window = c.whole("hidden_size"), c.numbers("window_kernel_size") or [2, 2]
    cells, c_inner = window[0] * window[-1], c.whole("intermediate_size")
    merged, inner = cells * width, cells * c_inner
    c.skip("insert_layer_id", "merge_kernel_size", "downsample_mode")
    within = 4 * width * (width + 1) + 2 * width + 2 * merged + inner * (merged + 1) + width * (inner + 1)
    joined, times = 4 * width, c.whole("merger_times", 1)  # the class joins four patches whatever a key says
    if not times:
        raise ValueError("merger_times: expected 1 or more, got 0")
    each = 2 * joined + joined * (joined + 1)
    return tower(c) + within + times * each + ((times - 1) * width + text) * (joined + 1)


def unlimited_ocr(c: ConfigReader, text: int) -> int:
    """Return the encoder of Segment Anything, CLIP's over its features, and a projection of both."""
    high, clips = c.inside("sam_config"), c.inside("encoder_config")
    high.skip("model_type")
    clips.skip("model_type")
    channels = high.numbers("downsample_channels") or [512, 1024]
    ends = [high.whole("output_channels"), *channels]
    shrunk = sum(9 * before * after for before, after in zip(ends, channels, strict=False))
    width, patch = clips.whole("hidden_size"), clips.whole("patch_size")
    unused = (clips.whole("channels", 3) * patch * patch + 2) * width  # its patches, and the norm behind its layers
    both = (channels[-1] + width + 1) * text
    return sam(high, high.whole("mlp_dim")) + shrunk + clip(clips) - unused + both + 2 * text


def janus(c: ConfigReader, text: int) -> int:
    """Return Janus's encoder of images and its projection, and what makes images: a codebook with both its sides."""
    del text  # projections are as wide as their own keys say
    width, inner = c.whole("hidden_size"), int(c.whole("hidden_size") * c.value("mlp_ratio", 4.0))
    out, bias, normed = c.whole("projection_dim"), c.flag("attention_bias", default=True), c.flag("use_qk_norm")
    deep = c.changed({"num_hidden_layers": None}).whole("depth", 2)  # of the projection
    c = c.changed({"depth": None})
    c.skip("num_image_tokens", "hidden_dropout_rate", "depth")
    patches = tower(c.changed({"intermediate_size": inner})) + c.layers() * (
        4 * width * normed - 3 * width * (not bias)
    )
    projected = out * (width + 1) + (deep - 1) * out * (out + 1)
    made = c.inside("vq_config")
    made.skip("num_patches", "model_type")
    codes, narrow, wide = (made.whole(name) for name in ("num_embeddings", "embed_dim", "projection_dim"))
    aligned = wide * (narrow + 1) + (made.whole("num_hidden_layers") - 1) * wide * (wide + 1)
    head = wide * (made.whole("image_token_embed_dim") + 1) + codes * (wide + 1)
    return patches + projected + codebook(made) + codes * narrow + aligned + head


def codebook(c: ConfigReader) -> int:
    """Return the parameters of a VQ model: convolutions to a codebook and from it, attention in the narrowest stage."""
    base, ratios, depth = c.whole("base_channels"), c.numbers("channel_multiplier") or [], c.whole("num_res_blocks")
    latent, narrow = c.whole("latent_channels"), c.whole("embed_dim")
    if not ratios or not depth:
        raise ValueError("channel_multiplier, num_res_blocks: expected numbers of 1 or more")
    widths = [base * ratio for ratio in ratios]
    last = widths[-1]
    middle = 2 * _residual(last, last) + _attending(last)
    found = (
        _conv(c.whole("channels", 3), base) + middle + 2 * last + _conv(last, latent * (1 + c.flag("double_latent")))
    )
    for place, (before, width) in enumerate(zip([base, *widths], widths, strict=False)):
        found += _residual(before, width) + (depth - 1) * _residual(width, width)
        found += depth * _attending(width) if place == len(widths) - 1 else _conv(width, width)
    found += _conv(latent, last) + middle + 2 * widths[0] + _conv(widths[0], c.whole("out_channels"))
    for place, (before, width) in enumerate(zip([last, *reversed(widths)], reversed(widths), strict=False)):
        found += _residual(before, width) + depth * _residual(width, width)
        found += (depth + 1) * _attending(width) * (place == 0) + _conv(width, width) * (place < len(widths) - 1)
    return found + c.whole("num_embeddings") * narrow + narrow * (latent + 1) + latent * (narrow + 1)


def emu3(c: ConfigReader, text: int) -> int:
    """Return what turns images and videos into words for Emu3, and back: a VQ model with convolutions over time.

    The norms of its decoder have two convolutions of the codebook's vectors each.
    """
    del text
    ratios, depth, latent = c.numbers("channel_multiplier") or [], c.whole("num_res_blocks"), c.whole("latent_channels")
    narrow, frames = c.whole("embed_dim"), c.whole("temporal_downsample_factor")
    widths = [c.whole("base_channels") * ratio for ratio in ratios]
    if not widths or frames < 1 or c.flag("double_latent") or c.numbers("attn_resolutions") != [len(widths) - 1]:
        raise ValueError(
            "channel_multiplier, temporal_downsample_factor, double_latent, attn_resolutions: expected numbers of 1 or "
            "more, false, and attention in the last stage alone"
        )
    c.fixed({"hidden_size": widths[-1]})
    c.skip("vocabulary_map", "num_attention_heads")
    images = codebook(c.changed({"num_embeddings": c.whole("codebook_size")}))
    around = 5 * widths[-1] + (depth + 1) * widths[-1] + widths[0]  # of the middle, of attention, and the last
    for before, width in zip([widths[-1], *reversed(widths)], reversed(widths), strict=False):
        around += before + width + 2 * depth * width
    normed = 2 * around * (narrow + 1)
    steps = frames.bit_length() - 1  # each halves the frames
    squeezed = latent * (36 * latent + 1) + latent * (27 * latent + 1)
    within = 2 * (2 * latent + latent * (27 * latent + 1))
    over_time = steps * squeezed + 2 * depth * within
    return images + normed + over_time + 2 * 2 * narrow * latent  # the two projections are over three frames


def _conv(before: int, width: int, kernel: int = 3) -> int:
    return width * (before * kernel * kernel + 1)


def _residual(before: int, width: int) -> int:
    """Return two convolutions with norms, and the projection past them where the widths differ."""
    past = _conv(before, width, 1) if before != width else 0
    return 2 * before + _conv(before, width) + 2 * width + _conv(width, width) + past


def _attending(width: int) -> int:
    return 2 * width + 4 * _conv(width, width, 1)


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


def blip2(c: ConfigReader, text: int) -> int:
    """Return BLIP-2's encoder, and the Q-Former that asks it and is projected to the text."""
    queries = c.inside("qformer_config")
    return _eva(c) + q_former(queries, c.whole("num_query_tokens"), c.whole("hidden_size"), text, follows=True)


def instructblip(c: ConfigReader, text: int) -> int:
    """Return InstructBLIP's encoder, and a Q-Former that reads the instruction beside its queries."""
    former, width = c.inside("qformer_config"), c.whole("hidden_size")
    if (kind := former.value("model_type")) not in (None, "instructblip_qformer", "instructblipvideo_qformer"):
        raise ValueError(f"qformer_config: model_type: expected instructblip_qformer, got {kind!r}")
    reads = former.changed({"model_type": "blip_2_qformer", "use_qformer_text_input": True})
    words = (former.whole("vocab_size") + former.whole("max_position_embeddings")) * former.whole("hidden_size")
    return _eva(c) + q_former(reads, c.whole("num_query_tokens"), width, text, follows=True) + words


def _eva(c: ConfigReader) -> int:
    """Return the encoder of BLIP-2 and InstructBLIP, where a bias of keys is held, if a constant one, with the others.

    Both classes keep queries, keys and values in one matrix.
    """
    width, patch, image = (c.whole(name) for name in ("hidden_size", "patch_size", "image_size"))
    if not patch or image < patch:
        raise ValueError(f"patch_size: {patch} does not fit image_size {image}")
    c.whole("num_attention_heads")
    c.skip("image_text_hidden_size", "use_decoder_only_language_model", "projection_dim")
    biases = 3 * width * (not c.flag("qkv_bias", default=True))
    layers = c.layers() * (block(width, c.whole("intermediate_size")) - biases)
    return width * (c.whole("channels", 3) * patch * patch + 1 + 1 + (image // patch) ** 2 + 1 + 2) + layers


BLIP2_BESIDE = ("qformer_config", "num_query_tokens", "image_text_hidden_size", "use_decoder_only_language_model")


def video_llava(c: ConfigReader, text: int) -> int:
    """Return an encoder of images, one more of videos with the same sizes, and two projections of either's features."""
    return llava(c, text) + sight(c, "clip_vision_model")


def granite4(c: ConfigReader, text: int) -> int:
    """Return Granite 4's encoder, and a Q-Former over windows for each layer that it reads and for four offsets."""
    width, (asked, window) = c.whole("hidden_size"), _share(c)
    read = c.value("deepstack_layer_map")
    if not isinstance(read, list):
        raise ValueError(f"deepstack_layer_map: expected a list of pairs of layers, got {read!r}")
    c.skip("spatial_vision_layer", "spatial_target_layers", "projector_dropout", "vision_feature_layer")
    former = c.inside("qformer_config")
    former.skip("num_attention_heads", "hidden_size", "encoder_hidden_size")  # the class has the encoder's
    said = c.alone("qformer_config")
    said = {**Q_FORMER, **said} if isinstance(said, dict) else {}
    former = former.changed({**said, "hidden_size": width, "encoder_hidden_size": width})
    each = q_former(former, asked * asked, width, text, follows=True) + 2 * width + window * window * width
    return sight(c, "clip_vision_model") + (len(read) + 4) * each + text


# what a Q-Former's own class assumes beside what a file says of it; where that says nothing, Granite 4's has its own
Q_FORMER = {"num_hidden_layers": 12, "intermediate_size": 3072, "cross_attention_frequency": 2}
GRANITE4_BESIDE = (
    *("qformer_config", "downsample_rate", "deepstack_layer_map", "spatial_vision_layer", "spatial_target_layers"),
    *("projector_dropout", "vision_feature_layer"),
)


def _share(c: ConfigReader) -> tuple[int, int]:
    """Return the sides of a window of queries and of one of patches, which stand as "3/8"."""
    sides = str(c.value("downsample_rate")).split("/")
    if len(sides) != 2 or not all(side.isdecimal() and 0 < int(side) < 1024 for side in sides):
        raise ValueError(f'downsample_rate: expected two numbers such as "1/4", got {c.value("downsample_rate")!r}')
    return int(sides[0]), int(sides[1])


def florence2(c: ConfigReader, text: int) -> int:
    """Return Florence-2's encoder (DaViT): stages of attention in windows and over channels, and its projection."""
    widths, depths, patches = (c.numbers(name) or [] for name in ("embed_dim", "depths", "patch_size"))
    before, ratio = c.value("patch_prenorm"), c.value("mlp_ratio", 4.0)
    stages = len(widths)
    if not stages or {len(depths), len(patches), len(before or [])} != {stages} or not isinstance(ratio, int | float):
        raise ValueError("embed_dim, depths, patch_size, patch_prenorm, mlp_ratio: expected as many stages in each")
    c.fixed({"projection_dim": text})
    c.skip("num_heads", "num_groups", "patch_stride", "patch_padding", "window_size", "max_temporal_embeddings")
    c.skip("image_feature_source")
    biases, found = 3 * c.flag("qkv_bias", default=True), 0
    channels = [c.whole("in_channels", 3), *widths[:-1]]
    for width, depth, patch, read, first in zip(widths, depths, patches, channels, before, strict=True):
        half = 4 * width * width + (biases + 1) * width + 2 * width * (10 + 2)  # two convolutions and two norms
        half += 2 * width * int(width * ratio) + int(width * ratio) + width
        found += width * (read * patch * patch + 1) + 2 * (read if first else width) + depth * 2 * half
    return found + widths[-1] * text + 2 * text + c.whole("max_position_embeddings") * widths[-1]
