"""Models of text with encoders of images or sound: which text model they hold, and which encoders.

An encoder's sizes come from `vision_config` and `audio_config`; its parameters and those of what projects it are
counted, its time is not: tokens of text do not pass through it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import sound, vision, vision_joined, vision_of_2026
from .reader import ConfigReader

Tower = Callable[[ConfigReader, int], int]  # the keys of an encoder's config, the width of the text model: parameters


@dataclass(frozen=True, slots=True)
class Composite:
    """A model type with a text model and an encoder of images, of sound or of both."""

    text: str  # its text model's type, where the config does not say
    tower: Tower | None = None
    sound: Tower | None = None
    tied: bool = False  # unless the config says
    # word on tied embeddings the class listens to; first: the text model's where its own says nothing
    whose: Literal["own", "first", "either", "text", "nobody"] = "own"
    optional: tuple[str, ...] = ()  # vision_config, audio_config: without it there is no such encoder
    sizes: tuple[tuple[str, int], ...] = ()  # of its text model, where text_config leaves some out
    beside: tuple[str, ...] = ()  # keys beside vision_config that change the size of what joins both
    passed: tuple[str, ...] = ()  # keys of published text_configs that the class passes over


PROJECTED = ("multimodal_projector_bias", "vision_feature_layer")  # which change the size of two projections
MUSE = ("out_hidden_size", "projector_hidden_size")
IDEFICS3 = ("is_llama_config", "perceiver_config", "pixel_shuffle_factor")  # of a resampler that it does not have
VOXTRAL = (
    *(("hidden_size", 3072), ("intermediate_size", 8192), ("num_hidden_layers", 30), ("num_key_value_heads", 8)),
    *(("head_dim", 128), ("vocab_size", 131072), ("max_position_embeddings", 131072)),
)
VOXTRAL_REALTIME = (
    *(("hidden_size", 3072), ("intermediate_size", 9216), ("num_hidden_layers", 26), ("num_attention_heads", 32)),
    *(("num_key_value_heads", 8), ("head_dim", 128), ("vocab_size", 131072), ("max_position_embeddings", 131072)),
    ("sliding_window", 8192),
)
GLM_ASR = (
    *(("hidden_size", 2048), ("intermediate_size", 6144), ("num_hidden_layers", 28), ("num_attention_heads", 16)),
    *(("num_key_value_heads", 4), ("vocab_size", 59264), ("max_position_embeddings", 8192)),
)
PHI4 = (
    *(("hidden_size", 3072), ("intermediate_size", 8192), ("num_hidden_layers", 32), ("num_attention_heads", 32)),
    *(("num_key_value_heads", 8), ("vocab_size", 200064), ("max_position_embeddings", 131072)),
)
COMPOSITES: dict[str, Composite] = {
    "llava": Composite("llama", vision.llava, whose="either", beside=PROJECTED),
    "llava_next": Composite("llama", vision.llava_next, beside=PROJECTED),
    "llava_next_video": Composite(
        *("llama", vision.llava_next_video),
        whose="either",
        beside=("spatial_pool_mode", "spatial_pool_stride", *PROJECTED),
    ),
    "llava_onevision": Composite("qwen2", vision.llava_onevision, whose="either", beside=PROJECTED),
    "vipllava": Composite("llama", vision.vipllava, beside=("vision_feature_layer",)),
    "cohere2_vision": Composite(
        "cohere2", vision.cohere2, tied=True, beside=("downsample_factor", "alignment_intermediate_size")
    ),
    "lfm2_vl": Composite(
        "lfm2",
        vision.lfm2,
        tied=True,
        beside=(
            *("downsample_factor", "projector_hidden_size", "projector_bias", "projector_use_layernorm"),
            *vision.LFM2_PASSED,
        ),
    ),
    **dict.fromkeys(
        ("idefics3", "smolvlm"),
        Composite("llama", vision.idefics3, beside=("scale_factor",), passed=IDEFICS3),
    ),
    "gemma3": Composite("gemma3_text", vision.gemma3, tied=True),
    "gemma4": Composite("gemma4_text", vision.gemma4, tied=True, optional=("vision_config",)),
    "paligemma": Composite("gemma", vision.paligemma, tied=True, beside=("projection_dim",)),
    "mistral3": Composite("mistral", vision.pixtral, tied=True, beside=("spatial_merge_size", *PROJECTED)),
    "qwen2_vl": Composite("qwen2_vl_text", vision.qwen2_vl, whose="either"),
    "qwen2_5_vl": Composite("qwen2_5_vl_text", vision.qwen2_5_vl, whose="either"),
    "qwen3_vl": Composite("qwen3_vl_text", vision.qwen3_vl),
    "qwen3_vl_moe": Composite("qwen3_vl_moe_text", vision.qwen3_vl),
    "qwen3_5": Composite("qwen3_5_text", vision.qwen3_vl),
    "qwen3_5_moe": Composite("qwen3_5_moe_text", vision.qwen3_vl),
    "llama4": Composite("llama4_text", vision.llama4, whose="text"),
    "glm4v": Composite("glm4v_text", vision.glm4v, whose="either"),
    "glm4v_moe": Composite("glm4v_moe_text", vision.glm4v, whose="either"),
    "glm46v": Composite("glm4v_text", vision.glm4v, whose="either"),
    "glm_ocr": Composite("glm_ocr_text", vision.glm_ocr, whose="either"),
    "exaone4_5": Composite("exaone4", vision.exaone4_5),
    "glmga": Composite("glm4v_text", vision.glm4v, whose="either"),
    "cosmos3_omni": Composite("qwen3_vl_text", vision.qwen3_vl),
    "deepseek_vl": Composite("llama", vision.deepseek_vl, tied=True),
    "lighton_ocr": Composite("qwen3", vision.pixtral, tied=True, beside=("spatial_merge_size",)),
    "qianfan_ocr": Composite("qwen3", vision.internvl, beside=("downsample_ratio",)),
    "kimi_k25": Composite("deepseek_v3", vision.kimi_k25, tied=True, beside=("projection_hidden_size",)),
    "kimi_vl": Composite("deepseek_v3", vision.kimi_vl),
    "internvl": Composite("qwen2", vision.internvl, tied=True, beside=("downsample_ratio",)),
    "internvl_chat": Composite("internlm2", vision.internvl_chat, whose="text", beside=vision.INTERN_BESIDE),
    # of 2026
    "gemma4_unified": Composite(
        "gemma4_unified_text",
        vision_of_2026.gemma4_unified,
        vision_of_2026.gemma4_frames,
        tied=True,
        optional=("vision_config", "audio_config"),
    ),
    "qwen4_exp": Composite("qwen4_exp_text", vision.qwen3_vl),
    "mistral_large4": Composite("mistral_large4_text", vision.pixtral, beside=("spatial_merge_size", *PROJECTED)),
    "minimax_m3_vl": Composite(
        "minimax_m3_vl_text",
        vision_of_2026.minimax_m3_tower,
        whose="either",
        beside=("projector_hidden_size", "merged_hidden_size"),
    ),
    "glm5_next": Composite("glm5_next_text", vision_of_2026.glm5_next_tower),
    "step3p7": Composite("step3p5", vision_of_2026.step3p7, beside=("projector_bias",)),
    "inkling2": Composite("inkling2_text", vision_of_2026.inkling2_tower, whose="nobody"),
    "cohere_compass": Composite("cohere_compass_text", vision.qwen3_vl),
    "muse_spark": Composite(
        "muse_spark_text", vision_of_2026.muse_tower, sound.muse_spark, whose="nobody", beside=MUSE
    ),
    "muse_glimmer": Composite("muse_glimmer_text", vision_of_2026.muse_tower, beside=MUSE),
    "lfm3_vl": Composite(
        "lfm3", vision_of_2026.lfm3_tower, tied=True, beside=("projector_hidden_size", "projector_bias")
    ),
    "molmo2": Composite(
        "molmo2_text", vision_of_2026.molmo2_tower, whose="nobody", beside=("adapter_config", "image_patch_id")
    ),
    "nemotron_h_omni": Composite(
        "nemotron_h",
        vision_of_2026.radio,
        whose="nobody",
        beside=("downsample_ratio", "projector_hidden_size", "vision_hidden_size", "video_pruning_rate"),
    ),
    # of sound, of both, and older ones
    "qwen2_5_omni_thinker": Composite("qwen2_5_omni_text", vision.qwen2_5_vl, sound.qwen2_5_omni),
    "qwen3_omni_moe_thinker": Composite("qwen3_omni_moe_text", vision.qwen3_vl, sound.qwen3_omni),
    "qwen2_audio": Composite("qwen2", sound=sound.qwen2_audio, whose="nobody"),
    "voxtral": Composite("llama", sound=sound.voxtral, whose="nobody", sizes=VOXTRAL),
    "audioflamingo3": Composite("qwen2", sound=sound.audio_flamingo, whose="nobody", beside=("projector_bias",)),
    "musicflamingo": Composite(
        "qwen2", sound=sound.audio_flamingo, whose="nobody", beside=("projector_bias", *sound.OF_TIME)
    ),
    "glmasr": Composite("llama", sound=sound.glm_asr, tied=True, sizes=GLM_ASR),
    "qwen3_asr": Composite("qwen3", sound=sound.qwen3_asr, tied=True),
    "voxtral_realtime": Composite(
        "voxtral_realtime_text",
        sound=sound.realtime_sound,
        tied=True,
        sizes=VOXTRAL_REALTIME,
        beside=("downsample_factor", "audio_length_per_tok", "default_num_delay_tokens"),
    ),
    **dict.fromkeys(
        ("phi4_multimodal", "phi4mm"),
        Composite("phi3", vision_of_2026.phi4_tower, sound.phi4_sound, sizes=PHI4),
    ),
    "hyperclovax_vision_v2": Composite("hyperclovax", vision.hyperclovax, tied=True),
    "gemma3n": Composite("gemma3n_text", vision_of_2026.gemma3n_tower, sound.gemma3n_sound, tied=True),
    "video_llama_3": Composite("qwen2", vision.video_llama, whose="either"),
    "cosmos3_edge": Composite(
        "cosmos3_edge_text", vision_of_2026.cosmos3_tower, whose="nobody", beside=("projector_hidden_size",)
    ),
    "ernie4_5_vl_moe": Composite("ernie4_5_vl_moe_text", vision.ernie_vl_tower, tied=True),
    "paddleocr_vl": Composite("paddleocr_vl_text", vision.paddleocr, tied=True, whose="either"),
    "aya_vision": Composite(
        "cohere2", vision.aya_vision, tied=True, beside=("downsample_factor", "alignment_intermediate_size")
    ),
    "idefics2": Composite("mistral", vision_joined.idefics2, beside=("perceiver_config", "text_intermediate_size")),
    "perception_lm": Composite(
        "llama", vision_joined.perception, whose="first", beside=vision_joined.PERCEPTION_BESIDE
    ),
    "ovis2": Composite("qwen2", vision_joined.ovis2, tied=True),
    "deepseek_vl_hybrid": Composite(
        "llama", vision_joined.deepseek_vl_hybrid, tied=True, beside=("high_res_vision_config",)
    ),
    "aria": Composite("aria_text", vision.aria, beside=("projector_patch_to_query_dict", vision.ARIA_MOST)),
    "got_ocr2": Composite("qwen2", vision.got_ocr2, tied=True),
    "modernvbert": Composite("modernbert", vision.modernvbert, beside=("pixel_shuffle_factor", "classifier_pooling")),
    "janus": Composite("llama", vision_joined.janus, tied=True, beside=("vq_config",)),
    "emu3": Composite("emu3_text_model", vision_joined.emu3, beside=("vocabulary_map",)),
    "unlimited_ocr": Composite("unlimited_ocr_text", vision_joined.unlimited_ocr),
    **dict.fromkeys(
        ("minicpmv4_6", "minicpmv4_7"),
        Composite(
            "qwen3_5_text",
            vision_joined.minicpmv4_7,
            beside=("merger_times", "merge_kernel_size", "insert_layer_id", "downsample_mode"),
        ),
    ),
    **dict.fromkeys(
        ("granite_speech", "granite_speech_plus"),
        Composite("granite", sound=sound.granite_speech, tied=True, beside=sound.GRANITE_BESIDE),
    ),
    "blip-2": Composite("opt", vision_joined.blip2, whose="text", beside=vision_joined.BLIP2_BESIDE),
    **dict.fromkeys(
        ("instructblip", "instructblipvideo"),
        Composite("opt", vision_joined.instructblip, whose="text", beside=vision_joined.BLIP2_BESIDE),
    ),
    "video_llava": Composite("llama", vision_joined.video_llava, beside=PROJECTED),
    "granite4_vision": Composite("granite4_vision_text", vision_joined.granite4, beside=vision_joined.GRANITE4_BESIDE),
    "florence2": Composite("bart", vision_joined.florence2, tied=True),
    "hunyuan_vl": Composite("hunyuan_vl_text", vision_of_2026.hunyuan, tied=True, whose="either"),
    "mllama": Composite("mllama_text_model", vision.mllama_tower, whose="nobody"),
}


SHARED_OUTPUT = "the output has the embedding's weights, as the class of {kind} has it; {which}"
SILENT = "no tie_word_embeddings says so"
AGAINST = "tie_word_embeddings of text_config says otherwise, and is passed over: set it beside text_config"
BEFORE = (
    "the output has {own}, as version 4 of transformers, which wrote the file, reads its text_config; version 5 passes "
    "over that where no tie_word_embeddings stands beside it"
)


def tied_by(
    config: Mapping[str, Any], composite: Composite, kind: str, *, of_text: bool
) -> tuple[bool, tuple[str, ...]]:
    """Return whether the output has the embedding's weights, and what is assumed of that.

    `of_text`: what text_config says, or its class where it says nothing. Before version 5 of transformers that alone
    decided (4.57: modeling_utils.py, PreTrainedModel.tie_weights asks get_text_config), and a key beside it that is
    true, the default then, was not written; since then the class of the whole model has a default of its own.
    """
    said = config.get("tie_word_embeddings")
    tied = bool(composite.tied if "tie_word_embeddings" not in config else said)
    found = {
        "own": tied,
        "first": tied if said is not None else of_text,
        "either": tied or of_text,
        "text": of_text,
        "nobody": False,
    }[composite.whose]
    if composite.whose not in {"own", "either"} or "tie_word_embeddings" in config:
        return found, ()
    if found != of_text and str(config.get("transformers_version")).startswith("4."):
        return of_text, (BEFORE.format(own="the embedding's weights" if of_text else "weights of its own"),)
    inside = config.get("text_config")
    against = isinstance(inside, Mapping) and inside.get("tie_word_embeddings") is False
    which = AGAINST if against else SILENT
    return found, (SHARED_OUTPUT.format(kind=kind, which=which),) if tied else ()
