"""Files without a model type, which other code than the library's wrote, under a type and keys of the library's."""

from collections.abc import Mapping
from typing import Any

READ_AS = "the file names no model_type; its keys are those of {whose}, and it is read as {kind}"
UNTIED = "an output with weights of its own is counted, as that code has it: the file does not say"
MAMBA = frozenset({"d_model", "n_layer", "ssm_cfg"})
PARAMS = frozenset({"dim", "n_layers", "n_heads", "vocab_size"})
# what mamba_ssm assumes of ssm_cfg, under the names of the library (mamba_ssm: modules/mamba_simple.py, mamba2.py)
LAYERS: dict[str, tuple[str, dict[str, tuple[str, Any]]]] = {
    "Mamba1": (
        "mamba",
        {
            **{"d_state": ("state_size", 16), "d_conv": ("conv_kernel", 4), "expand": ("expand", 2)},
            **{"dt_rank": ("time_step_rank", "auto"), "conv_bias": ("use_conv_bias", True)},
            "bias": ("use_bias", False),
        },
    ),
    "Mamba2": (
        "mamba2",
        {
            **{"d_state": ("state_size", 128), "d_conv": ("conv_kernel", 4), "expand": ("expand", 2)},
            **{"headdim": ("head_dim", 64), "ngroups": ("n_groups", 1), "chunk_size": ("chunk_size", 256)},
            **{"conv_bias": ("use_conv_bias", True), "bias": ("use_bias", False)},
        },
    ),
}


def under_a_type(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return a file that names no type under the one that it describes, and what to say of that; others as they are.

    Raises ValueError at a size that such a file does not have.
    """
    if "model_type" in config:
        return config, ()
    if config.keys() >= MAMBA and isinstance(config["ssm_cfg"], Mapping):
        found = of_mamba_ssm(config)
        return found, (READ_AS.format(whose="mamba_ssm", kind=found["model_type"]),)
    if config.keys() >= PARAMS and "multiple_of" in config:
        return of_meta(config), (READ_AS.format(whose="Meta's params.json", kind="llama"), UNTIED)
    if config.keys() >= PARAMS and "hidden_dim" in config:
        found, tied = of_mistral(config), () if "tied_embeddings" in config else (UNTIED,)
        return found, (READ_AS.format(whose="Mistral's params.json", kind=found["model_type"]), *tied)
    return config, ()


def of_mamba_ssm(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of state-spaces/mamba (mamba_ssm: models/config_mamba.py) as one of mamba or mamba2.

    Its vocabulary is padded as the class does it (models/mixer_seq_simple.py); keys of ssm_cfg that are not known, and
    layers of attention or networks between those of Mamba, stay in the file, which is then refused for them.
    """
    ssm = dict(config["ssm_cfg"])
    layer = ssm.pop("layer", "Mamba1")
    if not isinstance(layer, str) or layer not in LAYERS:
        raise ValueError(f"ssm_cfg: layer: expected {' or '.join(LAYERS)}, got {layer!r}")
    if config.get("rms_norm", True) is not True:
        raise ValueError("rms_norm: expected true: other norms are not counted")
    kind, names = LAYERS[layer]
    sizes = {name: ssm.pop(key, usual) for key, (name, usual) in names.items()}
    hidden, vocab, pad = (
        _whole(config, key, usual) for key, usual in (("d_model", 2560), ("vocab_size", 50277), (PAD, 8))
    )
    if kind == "mamba2":
        inner, dim = _whole(sizes, "expand", 2) * hidden, _whole(sizes, "head_dim", 64)
        if inner % dim:
            raise ValueError(f"ssm_cfg: headdim: {dim} does not divide the inner width {inner}")
        sizes["num_heads"] = inner // dim
    read = {*MAMBA, PAD, "vocab_size", "tie_embeddings", "rms_norm", "residual_in_fp32", "fused_add_norm"}
    read |= set() if config.get("attn_layer_idx") else {"attn_layer_idx", "attn_cfg"}
    rest = {key: value for key, value in config.items() if key not in read}
    rest |= {f"ssm_cfg.{key}": value for key, value in ssm.items()}
    tied = config.get("tie_embeddings", True)
    count = {"hidden_size": hidden, "num_hidden_layers": config["n_layer"], "vocab_size": -(-vocab // pad) * pad}
    return {"model_type": kind, **rest, **sizes, **count, "tie_word_embeddings": tied}


PAD = "pad_vocab_size_multiple"


def of_meta(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a params.json of Meta's Llama as a llama: two thirds of 4 widths, times a factor, up to a multiple.

    Formula: meta-llama/llama:llama/model.py, FeedForward and TransformerBlock.
    """
    width, step, factor = int(8 * _whole(config, "dim") / 3), _whole(config, "multiple_of"), config.get(FACTOR)
    if factor is not None:
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor > 0:
            raise ValueError(f"{FACTOR}: expected a number above 0, got {factor!r}")
        width = int(factor * width)
    rest = {key: value for key, value in config.items() if key not in {"multiple_of", FACTOR, "use_scaled_rope"}}
    return _named(rest, "llama") | {"intermediate_size": -(-width // step) * step}


FACTOR = "ffn_dim_multiplier"


def of_mistral(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a params.json of Mistral as a mistral, or a mixtral where it has experts (mistral-inference: args.py)."""
    if config.get("vision_encoder"):
        return _with_sight(config, config["vision_encoder"])
    experts = config.get("moe")
    inside = {"moe", "hidden_dim", "tied_embeddings", "causal", "llama_4_scaling"}  # the last scales queries by place
    rest = {key: value for key, value in config.items() if key not in inside}
    rest |= {"is_causal": config["causal"]} if "causal" in config else {}
    rest |= {"intermediate_size": config["hidden_dim"], "sliding_window": config.get("sliding_window")}
    if "tied_embeddings" in config:
        rest["tie_word_embeddings"] = config["tied_embeddings"]
    if not experts:
        return _named(rest, "mistral")
    if not isinstance(experts, Mapping):
        raise ValueError(f"moe: expected an object, got {experts!r}")
    names = {"num_experts": "num_local_experts", "num_experts_per_tok": "num_experts_per_tok"}
    return _named(rest, "mixtral") | {names.get(key, f"moe.{key}"): value for key, value in experts.items()}


TOKENS = frozenset({"image_token_id", "image_break_token_id", "image_end_token_id", "max_image_size"})
SIGHT = ("hidden_size", "num_channels", "patch_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
MERGED = ("mm_projector_id", "spatial_merge_size", "add_pre_mm_projector_layer_norm", "adapter_bias")


def _with_sight(config: Mapping[str, Any], encoder: object) -> dict[str, Any]:
    """Return a params.json of Mistral with an encoder of images as a llava, or a mistral3 where patches are merged.

    Source: mistralai/mistral-inference:src/mistral_inference/args.py, VisionEncoderArgs, and vision_encoder.py. The
    library has a norm before the projections exactly where it merges patches, which are the forms that are published.
    """
    if not isinstance(encoder, Mapping):
        raise ValueError(f"vision_encoder: expected an object, got {encoder!r}")
    missing = [key for key in SIGHT if encoder.get(key) is None]
    if missing:
        raise ValueError(f"vision_encoder: {', '.join(missing)}: missing")
    merger, size, normed, bias = (encoder.get(key) for key in MERGED)
    merges, size = merger == "patch_merge", 1 if size is None else size
    if (merger and not merges) or bool(normed) is not merges or (size != 1 and not merges):
        told = "expected patch_merge, spatial_merge_size and add_pre_mm_projector_layer_norm together, or none of them"
        raise ValueError(f"vision_encoder: mm_projector_id: {told}, got {merger!r}, {size!r} and {normed!r}")
    text = of_mistral({key: value for key, value in config.items() if key != "vision_encoder"})
    sizes = {key: value for key, value in encoder.items() if key not in {*TOKENS, *MERGED}}
    beside = {"spatial_merge_size": size} if merges else {}
    return {
        "model_type": "mistral3" if merges else "llava",
        **{"text_config": text, "vision_config": {"model_type": "pixtral", **sizes}},
        **{"multimodal_projector_bias": True if bias is None else bias, **beside},
        "tie_word_embeddings": text["tie_word_embeddings"],
    }


NAMES = {
    **{"dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads"},
    **{"n_kv_heads": "num_key_value_heads", "norm_eps": "rms_norm_eps", "max_seq_len": "max_position_embeddings"},
}


def _named(config: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return a params.json under the library's names; untied, unless it says so."""
    if config["vocab_size"] == -1:
        raise ValueError(
            "vocab_size: -1: the tokenizer has it (Llama 2's has 32,000 words); give it in a copy of the file, or take "
            "the config.json"
        )
    found = {NAMES.get(key, key): value for key, value in config.items()}
    return {"tie_word_embeddings": False, **found, "model_type": kind}


def _whole(config: Mapping[str, Any], key: str, usual: int | None = None) -> int:
    value = config.get(key, usual)
    if type(value) is not int or value < 1:
        raise ValueError(f"{key}: expected a whole number of 1 or more, got {value!r}")
    return value
