"""Files whose keys are not those of the library's class for the same model, under the keys of that class."""

from collections.abc import Callable, Mapping
from typing import Any

from .reader import SIZES

# of the Conformer of Phi-4-multimodal: the file's names, and those of the class
CONFORMER = {
    "attention_dim": "hidden_size",
    "attention_heads": "num_attention_heads",
    "linear_units": "intermediate_size",
    "depthwise_seperable_out_channel": "depthwise_separable_out_channel",
}
# what the class has whatever a file says; with another value the sizes would differ
FIXED = {"batch_norm": False, "bias_in_glu": True, "cnn_layer_norm": True, "ext_pw_kernel_size": 1} | {
    "input_layer": "nemo_conv",
    "projection_cls": "mlp",
    "use_qformer": False,
    "use_conv_downsample": False,
    "with_learnable_separator": True,
    "use_hd_transform": True,
}
SAME = frozenset(
    {
        *("activation_checkpointing", "causal", "compression_rate", "crop_size", "embedding_cls", "hd_transform_order"),
        *("enable_gradient_checkpointing", "image_token_compression_cls", "encoder_embedding_config"),
    }
)


def phi4mm(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of Phi-4-multimodal (microsoft/Phi-4-multimodal-instruct) under the keys of phi4_multimodal.

    Its adapters, which tokens beside images and sound pass, are counted with the encoder that they belong to.
    """
    inside = {"audio_processor", "embd_layer", "vision_lora", "speech_lora"}
    found = {key: value for key, value in config.items() if key not in inside}
    layer = _part(config, "embd_layer")
    sound = dict(_part(_part(config, "audio_processor"), "config"))
    bias, convolutions = (_part(sound, key) for key in ("relative_attention_bias_args", "nemo_conv_settings"))
    for key in ("relative_attention_bias_args", "nemo_conv_settings"):
        del sound[key]
    sound |= {"bias_max_distance": bias.get("t5_bias_max_distance"), "bias_symmetric": bias.get("t5_bias_symmetric")}
    sound |= {"nemo_conv_channels": convolutions.get("conv_channels"), **_part(layer, "audio_embd_layer")}
    parts = {"vision_config": dict(_part(layer, "image_embd_layer")), "audio_config": sound}
    for (name, part), adapters in zip(parts.items(), ("vision_lora", "speech_lora"), strict=True):
        wrong = next((key for key, value in FIXED.items() if part.get(key, value) != value), None)
        if wrong is not None:
            raise ValueError(f"{wrong}: expected {FIXED[wrong]!r}, got {part[wrong]!r}")
        named = {CONFORMER.get(key, key): value for key, value in part.items() if key not in {*FIXED, *SAME}}
        found[name] = named | {"adapter_weights": _adapters(config, _part(config, adapters).get("r"), adapters)}
    return found


def _part(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object inside a file."""
    found = config.get(key)
    if not isinstance(found, Mapping):
        raise ValueError(f"{key}: expected an object, got {found!r}")
    return found


def _adapters(config: Mapping[str, Any], rank: object, where: str) -> int:
    """Return the weights of adapters of a rank on all matrices of the layers, queries, keys and values in one."""
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    sizes = [config.get(name) for name in names]
    hidden, inner, layers, heads, few = (size if type(size) is int else 0 for size in sizes)
    if type(rank) is not int or rank < 1 or 0 in sizes or None in sizes or not heads:
        raise ValueError(f"{where}: expected a rank r of 1 or more, and {', '.join(names)} beside it")
    columns = (heads + 2 * few) * (hidden // heads)
    return layers * rank * (hidden + columns + 2 * hidden + hidden + 2 * inner + inner + hidden)


ENCODERS_LAYERS = {"num_hidden_layers": "encoder_layers", "num_attention_heads": "encoder_attention_heads"}
HEARS = ENCODERS_LAYERS | {"intermediate_size": "encoder_ffn_dim"}  # of encoders of sound that are Whisper's
# of the code beside the weights (nomic-ai/nomic-bert-2048:configuration_hf_nomic_bert.py), after GPT-2's
NOMIC = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"} | {
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
}
TIED, WIDTH_OF_EXPERTS = {"tie_embedding": "tie_word_embeddings"}, {"intermediate_size": "moe_intermediate_size"}
OF_KEYS, OF_WORDS = {"head_dim": "d_kv"}, {"n_words": "vocab_size"}
# of the code that Zamba2 was first published with (Zyphra/transformers_zamba2: configuration_zamba2.py)
ZAMBA2 = {"conv_dimension": "mamba_d_conv", "state_size": "mamba_d_state", "expansion_factor": "mamba_expand"} | {
    "lora_rank": "adapter_rank",
    "use_shared_block_lora": "use_shared_mlp_adapter",
    "use_shared_attention_lora": "use_shared_attention_adapter",
}
OF_SOUND = {"encoder_config": "audio_config"}  # where other types keep what hears
# names that the class takes for today's
OTHER_NAMES: dict[str, Mapping[str, str]] = {
    **dict.fromkeys(("lfm2", "lfm2_moe", "lfm2_vl"), TIED),
    **dict.fromkeys(("bart", "plbart", "mvp", "blenderbot", "blenderbot-small", "mbart", "pegasus"), ENCODERS_LAYERS),
    **dict.fromkeys(("m2m_100", "marian", "whisper", "nllb-moe", "led"), ENCODERS_LAYERS),
    **dict.fromkeys(("bigbird_pegasus", "pegasus_x", "fsmt", "speech_to_text"), ENCODERS_LAYERS),
    **dict.fromkeys(("deepseek_v4", "inkling2_text"), WIDTH_OF_EXPERTS),
    **dict.fromkeys(("granite_speech", "granite_speech_plus"), OF_SOUND),
    **dict.fromkeys((f"{kind}/audio" for kind in ("qwen2_audio", "qwen2_5_omni_thinker", "qwen3_asr")), HEARS),
    "qwen3_omni_moe_thinker/audio": HEARS,
    "voxtral_realtime/audio": {name: other for other, name in HEARS.items()},
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5"), OF_KEYS),
    "nomic_bert": NOMIC,
    **dict.fromkeys(("xlm", "flaubert"), OF_WORDS),
    "eurobert": {"clf_pooling": "classifier_pooling"},  # of the code beside the weights
    "emu3": {"vq_config": "vision_config"},
    "glm4_moe_lite": {"head_dim": "qk_rope_head_dim"},
    "zamba2": ZAMBA2,
    "nemotron_h": {"mamba_conv_bias": "use_conv_bias"},
}


def by_todays_names(config: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a file of a model type with today's names in place of others; ValueError where both say different."""
    found = dict(config)
    for other, name in OTHER_NAMES.get(kind, {}).items():
        if other in found and found[other] is None and name in SIZES:  # no class takes its default for it
            found.setdefault(name, None)
        value = found.pop(other, None)
        if value is not None and found.setdefault(name, value) != value:
            raise ValueError(f"{other} and {name}: expected one value, got {[value, found[name]]}")
    return found


def with_text_width(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of Idefics2 that says the width of the text model's networks, and of a projection, beside it."""
    text = config.get("text_config")
    width = text.get("intermediate_size") if isinstance(text, Mapping) else None
    return {**config, "text_intermediate_size": width} if width is not None else dict(config)


def with_own_widths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of Ovis2 with the sizes of its class that must be those of its text model, where it says none."""
    own = {"hidden_size": 1536} | ({"vocab_size": 151643} if config.get("tie_word_embeddings") is False else {})
    return own | dict(config)


def without_patches(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of MiniCPM-V without the size of its encoder's patches, which its class takes from there."""
    said, sight = config.get("patch_size"), config.get("vision_config")
    if said is not None and isinstance(sight, Mapping) and sight.get("patch_size", said) != said:
        raise ValueError(f"patch_size: {said!r} beside vision_config, {sight['patch_size']!r} inside")
    return {key: value for key, value in config.items() if key != "patch_size"}


def first_florence(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of Florence-2 as first published (microsoft/Florence-2-base) under the keys of the library's class.

    What else its encoder may be there is left in the file, which is then refused for it.
    """
    text, sight = config.get("text_config"), config.get("vision_config")
    if not isinstance(text, Mapping) or not isinstance(sight, Mapping) or "dim_embed" not in sight:
        return dict(config)
    seen = {key: value for key, value in sight.items() if key != "dim_embed"} | {"embed_dim": sight["dim_embed"]}
    for key, kind, size, name in PLACES:
        inside = seen.get(key)
        if isinstance(inside, Mapping) and inside.get("type") == kind and inside.keys() <= {"type", size}:
            seen |= {name: inside[size]} if size in inside else {}
            del seen[key]
    kind = "bart" if text.get("model_type") == "florence2_language" else text.get("model_type", "bart")
    return dict(config) | {"text_config": dict(text) | {"model_type": kind}, "vision_config": seen}


PLACES = (
    ("image_pos_embed", "learned_abs_2d", "max_pos_embeddings", "max_position_embeddings"),
    ("visual_temporal_embedding", "COSINE", "max_temporal_embeddings", "max_temporal_embeddings"),
)


def with_text_inside(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of Hunyuan-VL with the sizes of its text model in text_config, which its first files have beside.

    What it says there of tied embeddings is not of the text model, whose class ties them.
    """
    if isinstance(config.get("text_config"), Mapping):
        return dict(config)
    outside = {"model_type", "architectures", "vision_config", "tie_word_embeddings", "quantization_config"}
    text = {key: value for key, value in config.items() if key not in outside}
    return {key: value for key, value in config.items() if key in outside} | {"text_config": text}


# the model type of such a file, that of the class, and what makes the one of the other
FORMS: dict[str, tuple[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "phi4mm": ("phi4_multimodal", phi4mm),
    "idefics2": ("idefics2", with_text_width),
    **{kind: (kind, without_patches) for kind in ("minicpmv4_6", "minicpmv4_7")},
    "florence2": ("florence2", first_florence),
    "hunyuan_vl": ("hunyuan_vl", with_text_inside),
    "ovis2": ("ovis2", with_own_widths),
}


FALCON = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
# former names of model types, with what their classes had that today's has by a key, and the former names of keys
FORMER: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "RefinedWebModel": ("falcon", {}, FALCON),
    # 01-ai/Yi-34B and stabilityai/stablelm-3b-4e1t as first published, with code that the library has since
    "Yi": ("llama", {}, {}),
    "stablelm_epoch": ("stablelm", {}, {}),
    "RefinedWeb": ("falcon", {"new_decoder_architecture": True}, FALCON | {"n_head_kv": "num_kv_heads"}),
}
# types whose files name the class of another
OF_CLASS = {("bailing_moe", "BailingMoeV2ForCausalLM"): "bailing_moe_v2"}
READ_AS = "model_type {kind} of {named} is read as {found}"


def under_todays_type(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return a file under the model type that is known for its former type or its class, and what to say of that."""
    kind, given = config.get("model_type"), config.get("architectures")
    named = given[0] if isinstance(given, list) and given and isinstance(given[0], str) else "no class"
    if not isinstance(kind, str):
        return config, ()
    found, more, names = FORMER.get(kind, (OF_CLASS.get((kind, named), kind), {}, {}))
    if found == kind:
        return config, ()
    today = dict(config)
    for other, name in names.items():
        if other in today and today.setdefault(name, today[other]) == today[other]:
            del today[other]
    return today | more | {"model_type": found}, (READ_AS.format(kind=kind, named=named, found=found),)
