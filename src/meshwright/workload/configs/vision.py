"""Encoders of images and what projects them to the text model: how many parameters each has.

Each function takes the keys of `vision_config` and the width of the text model.
"""

from collections.abc import Callable, Mapping
from typing import Any

from .reader import ConfigReader


def block(width: int, inner: int, *, bias: bool = True, gated: bool = False, norm_bias: bool = True) -> int:
    """Return the parameters of one layer of an encoder: attention, network and two norms."""
    biases = (4 * width + (2 if gated else 1) * inner + width) * bias
    return 4 * width * width + (3 if gated else 2) * width * inner + biases + 2 * width * (1 + norm_bias)


def told_of_encoder(what: str, parameters: int) -> str:
    """Return what to say of an encoder that is counted and not planned."""
    return (
        f"{what} encoder: {parameters / 1e9:.3g} B parameters are counted, in memory as frozen weights, with "
        "neither gradients nor moments; tokens of text do not pass through it"
    )


def _patches(c: ConfigReader) -> tuple[int, int]:
    """Return the elements of a patch, and the patches of an image."""
    patch, image = c.whole("patch_size"), c.whole("image_size")
    if not patch or image < patch:
        raise ValueError(f"patch_size: {patch} does not fit image_size {image}")
    return c.whole("channels", 3) * patch * patch, (image // patch) ** 2


def siglip(c: ConfigReader) -> int:
    """Return the parameters of a SigLIP encoder."""
    width, inner = c.whole("hidden_size"), c.whole("intermediate_size")
    pixels, patches = _patches(c)
    found = width * (pixels + 1 + patches) + c.layers() * block(width, inner) + 2 * width
    c.whole("num_attention_heads")
    c.skip("projection_dim", "num_image_tokens", "projector_hidden_act", "num_positions", "vocab_size")
    if not c.flag("vision_use_head", default=True):
        return found
    return found + pooling(width, inner)


def pooling(width: int, inner: int) -> int:
    """Return the parameters of SigLIP's head: a query, its attention over the patches, a norm and a network."""
    return width + 4 * width * width + 4 * width + 2 * width + 2 * width * inner + inner + width


def clip(c: ConfigReader) -> int:
    """Return the parameters of a CLIP encoder."""
    width = c.whole("hidden_size")
    pixels, patches = _patches(c)
    c.whole("num_attention_heads")
    c.skip("projection_dim", "vocab_size")
    return width * (1 + pixels + patches + 1 + 4) + c.layers() * block(width, c.whole("intermediate_size"))


def _pixtral_alone(c: ConfigReader) -> int:
    """Return the parameters of Mistral's encoder without what merges its patches."""
    width = c.whole("hidden_size")
    pixels, _ = _patches(c)
    c.whole("num_attention_heads")
    c.skip("head_dim", "vocab_size", "tie_word_embeddings")
    layers = c.layers() * block(width, c.whole("intermediate_size"), bias=False, gated=True, norm_bias=False)
    return width * (pixels + 1) + layers


SIGHTS = {"clip_vision_model": clip, "siglip_vision_model": siglip, "pixtral": _pixtral_alone}
SIGHT_DEFAULTS = {"siglip_vision_model": "deepseek_vl/vision", "pixtral": "mistral3/vision"}  # in defaults.json
OTHER_SIGHTS = ("siglip2_vision_model", "dinov2", "dinov2_with_registers", "internvl_vision", "vit", "beit")


def sight(c: ConfigReader, usual: str) -> int:
    """Return the parameters of an encoder of the type that `vision_config` names, of the `usual` one where it does not.

    Raises ValueError at a type that is not counted.
    """
    kind = c.alone("model_type") or usual
    if not isinstance(kind, str) or kind not in SIGHTS:
        raise ValueError(f"vision_config: model_type: expected {', '.join(SIGHTS)}, got {kind!r}")
    return SIGHTS[kind](c)


def sight_defaults(tower: Callable[[ConfigReader, int], int], own: Mapping[str, Any]) -> str | None:
    """Return where the defaults of the encoder's own type stand, None where those of the model's type hold."""
    if tower not in CHOOSE or not own:
        return None
    named = own.get("model_type") or CHOOSE[tower]
    return SIGHT_DEFAULTS.get(named) if isinstance(named, str) else None


def only(c: ConfigReader, usual: str) -> None:
    """Raise ValueError where `vision_config` names an encoder other than the one that is counted."""
    kind = c.alone("model_type")
    if kind != usual and kind in (*SIGHTS, *OTHER_SIGHTS):
        raise ValueError(f"vision_config: model_type: expected {usual}, got {kind!r}")


def llava(c: ConfigReader, text: int) -> int:
    """Return an encoder, CLIP's where none is named, and two projections."""
    return sight(c, "clip_vision_model") + _projected(c, text)


def _projected(c: ConfigReader, text: int, *, bias: bool = True) -> int:
    """Return two projections, the first of what one of the encoder's layers puts out, or several beside each other."""
    layers = c.value("vision_feature_layer", -2)
    width = c.whole("hidden_size") * (len(layers) if isinstance(layers, list) else 1)
    return text * (width + text + 2 * c.flag("multimodal_projector_bias", default=bias))


def deepseek_vl(c: ConfigReader, text: int) -> int:
    """Return an encoder, SigLIP's where none is named, and two projections."""
    return sight(c, "siglip_vision_model") + text * (c.whole("hidden_size") + 1 + text + 1)


def llava_next(c: ConfigReader, text: int) -> int:
    """Return what LLaVA has, and the vector that ends a row of patches."""
    return llava(c, text) + text


def llava_next_video(c: ConfigReader, text: int) -> int:
    """Return what LLaVA-NeXT has; frames of a video are pooled without parameters, or by a convolution."""
    mode, stride, width = c.value("spatial_pool_mode"), c.whole("spatial_pool_stride", 2), c.whole("hidden_size")
    pooled = width * (width * stride**2 + 1) if mode == "conv" else 0
    return llava_next(c, text) + pooled


def llava_onevision(c: ConfigReader, text: int) -> int:
    """Return an encoder, SigLIP's where none is named, two projections and the vector that ends a row of patches."""
    return sight(c, "siglip_vision_model") + _projected(c, text) + text


def vipllava(c: ConfigReader, text: int) -> int:
    """Return an encoder as LLaVA's, a norm over the features of several of its layers, and two projections."""
    layers = c.value("vision_feature_layer", [-2, -5, -8, -11, 6])
    width = c.whole("hidden_size") * (len(layers) if isinstance(layers, list) else 1)
    return sight(c, "clip_vision_model") + 2 * width + text * (width + 1 + text + 1)


def cohere2(c: ConfigReader, text: int) -> int:
    """Return a SigLIP encoder and a gated projection of patches that are joined."""
    joined, inner = (
        c.whole("downsample_factor", 2) ** 2 * c.whole("hidden_size"),
        c.whole("alignment_intermediate_size", 36864),
    )
    if inner % 2:
        raise ValueError(f"alignment_intermediate_size: expected an even number, got {inner}")
    return sight(c, "siglip_vision_model") + inner * (joined + 1) + text * (inner // 2 + 1)


def lfm2(c: ConfigReader, text: int) -> int:
    """Return a SigLIP 2 encoder, whose table of positions is stretched over an image, and its projector."""
    only(c, "siglip2_vision_model")
    width, inner = c.whole("hidden_size"), c.whole("intermediate_size")
    c.whole("num_attention_heads")
    c.skip(*LFM2_PASSED)
    pixels = c.whole("channels", 3) * c.whole("patch_size") ** 2
    found = width * (pixels + 1 + c.whole("num_patches")) + c.layers() * block(width, inner) + 2 * width
    if c.flag("vision_use_head", default=True):
        found += pooling(width, inner)
    joined, middle = c.whole("downsample_factor", 2) ** 2 * width, c.whole("projector_hidden_size", 2560)
    biases = (middle + text) * c.flag("projector_bias", default=True)
    normed = 2 * joined * c.flag("projector_use_layernorm", default=True)
    return found + normed + middle * (joined + text) + biases


LFM2_PASSED = (
    *("encoder_patch_size", "max_image_tokens", "min_image_tokens", "do_image_splitting", "tile_size"),
    *("use_thumbnail", "max_tiles", "min_tiles", "max_num_patches", "max_pixels_tolerance", "projector_hidden_act"),
    *("use_image_special_tokens",),
)


def idefics3(c: ConfigReader, text: int) -> int:
    """Return a SigLIP encoder without pooling, and the projection of patches that are joined."""
    width, inner = c.whole("hidden_size"), c.whole("intermediate_size")
    pixels, patches = _patches(c)
    c.whole("num_attention_heads")
    c.skip("use_base_siglip", "max_image_size", "size", "tie_word_embeddings", "video_sampling")
    tower = width * (pixels + 1 + patches) + c.layers() * block(width, inner) + 2 * width
    return tower + c.whole("scale_factor", 2) ** 2 * width * text


def video_llama(c: ConfigReader, text: int) -> int:
    """Return VideoLLaMA 3's encoder, SigLIP's with rotary positions and no pooling, and two projections."""
    only(c, "video_llama_3_vision")
    width, pixels = c.whole("hidden_size"), c.whole("channels", 3) * c.whole("patch_size") ** 2
    c.whole("num_attention_heads")
    tower = width * (pixels + 1) + c.layers() * block(width, c.whole("intermediate_size")) + 2 * width
    return tower + text * (width + 1 + text + 1)


def gemma3(c: ConfigReader, text: int) -> int:
    """Return a SigLIP encoder and a projection behind a norm."""
    only(c, "siglip_vision_model")
    width = c.whole("hidden_size")
    return siglip(c) + width * text + width


def paligemma(c: ConfigReader, text: int) -> int:
    """Return a SigLIP encoder and one projection."""
    del text
    only(c, "siglip_vision_model")
    return siglip(c) + (c.whole("hidden_size") + 1) * c.whole("projection_dim", 2048)


def pixtral(c: ConfigReader, text: int) -> int:
    """Return Mistral's encoder, its merger of patches and two projections."""
    only(c, "pixtral")
    width, merged = c.whole("hidden_size"), c.whole("spatial_merge_size", 2) ** 2
    return _pixtral_alone(c) + width + merged * width * width + _projected(c, text, bias=False)


def _qwen_patch(c: ConfigReader, width: int) -> int:
    c.skip("in_chans", "spatial_patch_size", "window_size", "fullatt_block_indexes")
    return width * c.whole("in_channels", 3) * c.whole("temporal_patch_size", 2) * c.whole("patch_size") ** 2


def qwen2_vl(c: ConfigReader, text: int) -> int:
    """Return the encoder of Qwen2-VL and its merger."""
    width, out = c.whole("embed_dim"), c.whole("hidden_size")
    del text
    inner = c.whole("mlp_ratio", 4) * width
    merged = width * c.whole("spatial_merge_size", 2) ** 2
    layers = c.whole("num_hidden_layers") * block(width, inner)
    c.whole("num_attention_heads")
    return _qwen_patch(c, width) + layers + 2 * width + merged * (merged + 1) + out * (merged + 1)


def qwen2_5_vl(c: ConfigReader, text: int) -> int:
    """Return the encoder of Qwen2.5-VL and its merger."""
    width, out = c.whole("hidden_size"), c.whole("out_hidden_size")
    del text
    merged = width * c.whole("spatial_merge_size", 2) ** 2
    layers = c.whole("num_hidden_layers") * block(width, c.whole("intermediate_size"), gated=True, norm_bias=False)
    c.whole("num_attention_heads")
    return _qwen_patch(c, width) + layers + width + merged * (merged + 1) + out * (merged + 1)


def hyperclovax(c: ConfigReader, text: int) -> int:
    """Return the encoder of HyperCLOVA X Vision 2: that of Qwen2.5-VL, and one projection."""
    return qwen2_5_vl(c, text) + text * (c.whole("out_hidden_size") + 1)


def exaone4_5(c: ConfigReader, text: int) -> int:
    """Return the encoder of EXAONE 4.5: that of Qwen2.5-VL with grouped heads."""
    heads, width = c.whole("num_attention_heads"), c.whole("hidden_size")
    few = c.whole("num_key_value_heads", heads)
    if not heads or width % heads:
        raise ValueError(f"num_heads: {heads} does not divide hidden_size {width}")
    spared = 2 * (heads - few) * (width // heads)  # columns of keys and values
    return qwen2_5_vl(c, text) - c.whole("num_hidden_layers") * spared * (width + 1)


def glm_ocr(c: ConfigReader, text: int) -> int:
    """Return the encoder of GLM-OCR: gated networks, norms of queries and keys, the merger of GLM-4.1V."""
    width, out, merge = c.whole("hidden_size"), c.whole("out_hidden_size"), c.whole("spatial_merge_size")
    heads, bias, channels = c.whole("num_attention_heads"), c.flag("attention_bias"), c.whole("channels", 3)
    del text
    if not heads or width % heads:
        raise ValueError(f"num_heads: {heads} does not divide hidden_size {width}")
    c.skip("image_size")
    inner = c.whole("intermediate_size")
    layer = block(width, inner, gated=True, norm_bias=False) - (4 * width + 2 * inner + width) * (not bias)
    layer += 2 * (width // heads)
    merger = out * out + 2 * out + 3 * out * channels * out
    pixels = channels * c.whole("temporal_patch_size", 2) * c.whole("patch_size") ** 2
    return width * (pixels + 1) + c.layers() * layer + width + out * (merge * merge * width + 1) + merger


def qwen3_vl(c: ConfigReader, text: int) -> int:
    """Return the encoder of Qwen3-VL, its merger, and those of the layers whose features join deeper ones."""
    width, out = c.whole("hidden_size"), c.whole("out_hidden_size")
    del text
    merged = width * c.whole("spatial_merge_size", 2) ** 2
    layers = c.whole("num_hidden_layers") * block(width, c.whole("intermediate_size"))
    c.whole("num_attention_heads")
    merger = merged * (merged + 1) + out * (merged + 1)
    deep = len(c.numbers("deepstack_visual_indexes") or []) * (merger + 2 * merged)
    return (
        _qwen_patch(c, width) + width + c.whole("num_position_embeddings") * width + layers + 2 * width + merger + deep
    )


def glm4v(c: ConfigReader, text: int) -> int:
    """Return the encoder of GLM-4.1V: gated networks, positions by table, a convolution that merges patches."""
    only(c, "glm4v_vision")
    width, out, merge = c.whole("hidden_size"), c.whole("out_hidden_size"), c.whole("spatial_merge_size")
    pixels, patches = _patches(c)
    c.whole("num_attention_heads")
    del text
    layer = 4 * width * width + 3 * width * c.flag("attention_bias") + 3 * width * out + 2 * width
    merger = out * out + 2 * out + 3 * out * c.whole("intermediate_size")
    ends = width * (pixels * c.whole("temporal_patch_size", 2) + 1) + 2 * width + out * (merge * merge * width + 1)
    return ends + patches * width + c.layers() * layer + merger


KIMI = {  # names of the published files, and those of the library's class
    **{f"vt_{name}": name for name in ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")},
    **{f"init_{name}": name for name in ("pos_emb_height", "pos_emb_width", "pos_emb_time")},
    "mm_hidden_size": "projection_hidden_size",
}


def _published_kimi(c: ConfigReader, text: int) -> ConfigReader:
    """Return the reader of Kimi K2.5's encoder by the class's names, whichever the file has."""
    if c.value("mm_projector_type", "patchmerger") != "patchmerger" or c.value("text_hidden_size", text) != text:
        raise ValueError(f"vision_config: mm_projector_type, text_hidden_size: expected patchmerger, and {text}")
    given = {name: c.value(old) for old, name in KIMI.items() if c.given(old)}
    c.skip("merge_type", "pos_emb_type", "video_attn_type", "projector_ln_eps")
    return c.changed(given)


def kimi_k25(c: ConfigReader, text: int) -> int:
    """Return the encoder of Kimi K2.5 (MoonViT), a table of positions, and two projections of merged patches."""
    c = _published_kimi(c, text)
    width, patch = c.whole("hidden_size"), c.whole("patch_size")
    merge = c.numbers("merge_kernel_size") or [2, 2]
    c.whole("num_attention_heads")
    c.skip("pos_emb_time", "projection_layer_norm_eps")
    merged, rows = merge[0] * merge[-1] * width, c.whole("pos_emb_height") * c.whole("pos_emb_width")
    tower = width * (3 * patch * patch + 1 + rows) + c.layers() * block(width, c.whole("intermediate_size")) + 2 * width
    return tower + 2 * c.whole("projection_hidden_size", 1152) + merged * (merged + 1) + text * (merged + 1)


def kimi_vl(c: ConfigReader, text: int) -> int:
    """Return the encoder of Kimi-VL, that of Kimi K2.5 of single images (moonshotai/Kimi-VL-A3B-Instruct)."""
    return kimi_k25(c.changed({"projection_hidden_size": c.whole("hidden_size")}), text)


def llama4(c: ConfigReader, text: int) -> int:
    """Return the encoder of Llama 4, its adapter and the projection."""
    width, inner = c.whole("hidden_size"), c.whole("intermediate_size")
    pixels, patches = _patches(c)
    c.whole("num_attention_heads")
    adapter, out = c.whole("projector_input_dim"), c.whole("projector_output_dim", 4096)
    ends = c.whole("vision_output_dim", 7680)
    c.skip(
        "pixel_shuffle_ratio", "vision_feature_layer", "vision_feature_select_strategy", "multi_modal_projector_bias"
    )
    tables = width * (1 + patches + 1 + pixels + 4)
    return tables + c.layers() * block(width, inner) + inner * adapter + out * out + ends * text


def gemma4(c: ConfigReader, text: int) -> int:
    """Return the encoder of Gemma 4: gated networks, four norms a layer, tables of positions by row and column."""
    width, inner = c.whole("hidden_size"), c.whole("intermediate_size")
    heads, dim = c.whole("num_attention_heads"), c.whole("head_dim")
    kv_heads = c.whole("num_key_value_heads", heads)
    c.skip("global_head_dim", "max_position_embeddings", "pooling_kernel_size", "standardize", "use_clipped_linears")
    attention = width * dim * (2 * heads + 2 * kv_heads) + 2 * dim
    layer = attention + 3 * width * inner + 4 * width
    patch = 3 * c.whole("patch_size") ** 2 * width
    return patch + 2 * c.whole("position_embedding_size") * width + c.layers() * layer + width * text


def internvl(c: ConfigReader, text: int) -> int:
    """Return the encoder of InternVL and its projector."""
    width, inner = c.whole("hidden_size"), c.whole("intermediate_size")
    image, patch = (c.value(name) for name in ("image_size", "patch_size"))
    image, patch = (max(size) if isinstance(size, list) else size for size in (image, patch))
    bias, normed = c.flag("attention_bias"), c.flag("use_qk_norm")
    rms = c.value("norm_type", "layer_norm") == "rms_norm"
    c.skip("use_mask_token", "use_absolute_position_embeddings", "use_mean_pooling", "num_attention_heads")
    patches = int(image // patch) ** 2
    layer = block(width, inner, norm_bias=not rms) - 3 * width * (not bias) + 2 * width + 2 * width * normed
    tables = width * (1 + patches + 1 + c.whole("num_channels", 3) * int(patch) ** 2 + 1)
    ratio = c.value("downsample_ratio", 0.5)
    if not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise ValueError(f"downsample_ratio: expected a number above 0, at most 1, got {ratio!r}")
    merged = int(1 / ratio) ** 2 * width
    return tables + c.layers() * layer + 2 * merged + text * (merged + 1) + text * (text + 1)


# what OpenGVLab's files call the same switches (OpenGVLab/InternVL2_5-2B: configuration_intern_vit.py)
INTERN_VIT = {"qk_normalization": "use_qk_norm", "qkv_bias": "attention_bias"}
INTERN_BESIDE = ("downsample_ratio", "select_layer", "use_thumbnail", "pad2square")


def internvl_chat(c: ConfigReader, text: int) -> int:
    """Return the encoder of InternVL as first published, and its projector (modeling_internvl_chat.py, mlp1)."""
    if (kind := c.alone("model_type")) not in (None, "intern_vit_6b"):
        raise ValueError(f"vision_config: model_type: expected intern_vit_6b, got {kind!r}")
    c.skip(*INTERN_VIT, *INTERN_BESIDE[1:])
    return internvl(c.changed({name: c.flag(key) for key, name in INTERN_VIT.items()}), text)


def aya_vision(c: ConfigReader, text: int) -> int:
    """Return a SigLIP encoder, a norm of patches that are joined, and a gated projection of them."""
    joined, inner = (
        c.whole("downsample_factor", 2) ** 2 * c.whole("hidden_size"),
        c.whole("alignment_intermediate_size", text),
    )
    if inner % 2:
        raise ValueError(f"alignment_intermediate_size: expected an even number, got {inner}")
    return sight(c, "siglip_vision_model") + 2 * joined + inner * (joined + 1) + text * (inner // 2 + 1)


def aria(c: ConfigReader, text: int) -> int:
    """Return a SigLIP encoder without pooling, queries that attend to the patches, and a projection."""
    width = c.whole("hidden_size")
    queries = c.part("projector_patch_to_query_dict").values()
    most = max((count for count in queries if isinstance(count, int)), default=256)
    c.skip(ARIA_MOST)
    cross = 3 * width * width + 4 * width * (width + 1) + width * (width + 1) + 4 * width
    return tower(c) + most * width + cross + 2 * width + text * (width + text)


ARIA_MOST = "max_value_projector_patch_to_query_dict"  # which the class works out itself


def tower(c: ConfigReader) -> int:
    """Return the parameters of a SigLIP encoder without pooling."""
    width, inner = c.whole("hidden_size"), c.whole("intermediate_size")
    pixels, patches = _patches(c)
    c.whole("num_attention_heads")
    return width * (pixels + 1 + patches) + c.layers() * block(width, inner) + 2 * width


def paddleocr(c: ConfigReader, text: int) -> int:
    """Return a SigLIP encoder without pooling, a norm, and two projections of patches that are merged."""
    width = c.whole("hidden_size")
    merged = width * c.whole("spatial_merge_size") ** 2
    return tower(c) + 2 * width + merged * (merged + 1) + text * (merged + 1)


def ernie_vl_tower(c: ConfigReader, text: int) -> int:
    """Return the encoder of ERNIE 4.5, and projections of patches merged in space and in time."""
    width, inner, many = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("temporal_merge_size")
    merged = width * c.whole("spatial_merge_size") ** 2
    c.whole("num_attention_heads")
    c.skip("image_size")
    layers = c.layers() * block(width, inner) + 2 * width
    within = 2 * merged * (merged + 1) + 2 * merged
    across = merged * (merged * many + 1) + merged * (merged + 1) + 2 * merged
    return width * c.whole("channels", 3) * c.whole("patch_size") ** 2 + layers + within + across + text * (merged + 2)


def modernvbert(c: ConfigReader, text: int) -> int:
    """Return a SigLIP encoder and the projection of patches that are joined."""
    c.skip("classifier_pooling")
    return siglip(c) + text * c.whole("hidden_size") * c.whole("pixel_shuffle_factor") ** 2


def sam(c: ConfigReader, inner: int) -> int:
    """Return the encoder of Segment Anything: tables of relative places in each layer, and the neck behind them."""
    width, heads, patch = c.whole("hidden_size"), c.whole("num_attention_heads"), c.whole("patch_size")
    window, out, count = c.whole("window_size"), c.whole("output_channels"), c.layers()
    whole = {place for place in c.numbers("global_attn_indexes") or [] if place < count}
    if not heads or width % heads or not patch or not c.flag("qkv_bias", default=True):
        raise ValueError(
            f"num_attention_heads, patch_size, qkv_bias: {heads} does not divide {width}, or no patch or bias"
        )
    side, dim = c.whole("image_size") // patch, width // heads
    places = c.flag("use_rel_pos", default=True) * 2 * dim
    tables = places * (len(whole) * (2 * side - 1) + (count - len(whole)) * (2 * window - 1))
    ends = width * (c.whole("channels", 3) * patch * patch + 1 + side * side * c.flag("use_abs_pos", default=True))
    return ends + count * block(width, inner) + tables + sam_neck(width, out)


def sam_neck(width: int, out: int) -> int:
    """Return two convolutions, each with a norm."""
    return out * width + 2 * out + 9 * out * out + 2 * out


def got_ocr2(c: ConfigReader, text: int) -> int:
    """Return the encoder of Segment Anything, and convolutions that merge its patches."""
    out = c.whole("output_channels")
    return sam(c, c.whole("mlp_dim")) + 18 * out * out + 18 * out * text + text * (text + 1)


def mllama_tower(c: ConfigReader, text: int) -> int:
    """Return the encoder of Llama 3.2 Vision: tiles, each with a gated table of positions, layers over all of them."""
    width, inner, tiles = c.whole("hidden_size"), c.whole("intermediate_size"), c.whole("max_num_tiles")
    pixels, patches = _patches(c)
    c.whole("num_attention_heads")
    c.skip("intermediate_layers_indices")
    ratios = c.value("supported_aspect_ratios", [])
    rows = (len(ratios) if isinstance(ratios, list) else 8) + 1
    layer = 4 * width * width + 2 * width * inner + inner + width + 4 * width
    layers = c.layers() * layer + c.whole("num_global_layers") * (layer + 2)
    tables = 3 + (patches + 1) * width * (1 + rows * tiles) + 2 * rows * tiles * width
    return width * (1 + pixels + 4) + tables + layers + text * (c.whole("vision_output_dim") + 1)


# encoders that take the type that `vision_config` names, and the type of each where it names none
CHOOSE: dict[Callable[[ConfigReader, int], int], str] = {
    **dict.fromkeys((llava, llava_next, llava_next_video, vipllava), "clip_vision_model"),
    **dict.fromkeys((llava_onevision, deepseek_vl, cohere2, aya_vision), "siglip_vision_model"),
}
