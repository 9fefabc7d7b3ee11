"""The table of model types: how the config.json of each is read."""

from collections.abc import Callable
from functools import partial

from ..architecture import Architecture
from .classes import OWN
from .decoders import Traits, decoder
from .hybrids import HYBRIDS
from .others import OTHERS, molmo2, openai_gpt, realtime_text
from .reader import ConfigReader
from .remote import REMOTE
from .windows import gpt_neo, unlimited_ocr_text

Recipe = Callable[[ConfigReader], Architecture]


def _old(**changed: object) -> Traits:
    """Return the traits of a decoder in the style of GPT-2: LayerNorm, biases, two matrices in the network."""
    style = {"gated": False, "layer_norm": True, "qkv_bias": True, "out_bias": True, "network_bias": True, "inner": 4.0}
    return Traits(**(style | changed))  # type: ignore[arg-type]


PLAIN = Traits()
MISTRAL = Traits(windowed=True, qkv_bias=False, out_bias=False, network_bias=False)
GLM4V = Traits(qkv_bias=True, out_bias=False, network_bias=False, norms=4)
QWEN2 = Traits(qkv_bias=True, out_bias=False, network_bias=False)
QWEN3 = Traits(head_norms=True, network_bias=False)
QWEN3_EXPERTS = Traits(experts="by_step", head_norms=True, network_bias=False)
GEMMA2 = Traits(
    tied=True, norms=4, every=("sliding_window_pattern", 2), network_bias=False, passed=("sliding_window_size",)
)
GEMMA3 = Traits(tied=True, norms=4, every=("sliding_window_pattern", 6), head_norms=True, network_bias=False)
MINIMAX_M2 = (
    *("mlp_intermediate_size", "use_qk_norm", "qk_norm_type", "use_routing_bias", "layernorm_mlp_beta"),
    *("layernorm_full_attention_beta", "layernorm_linear_attention_beta", "max_model_len"),
    *("use_mtp", "num_mtp_modules", "mtp_transformer_layers"),  # which predict further tokens: left out
)
# keys of Command R7B's and Command A's files, and of Hunyuan's, which hold what their classes do anyway
COHERE2 = (
    *("layer_switch", "order_of_interleaved_layers", "use_embedding_sharing", "use_parallel_block"),
    *("use_parallel_embedding", "use_gated_activation"),
)
HUNYUAN = (
    *("pool_type", "use_mixed_mlp_moe", "use_qk_norm", "use_rotary_pos_emb", "org_vocab_size", "num_media_embeds"),
    *("dense_list", "anyres_pooling_size"),  # of a classifier, and of images
)
# keys of BLOOM's files, which are those of the program that trained it
BLOOM = (
    *("masked_softmax_fusion", "bias_dropout_fusion", "skip_bias_add", "skip_bias_add_qkv", "offset_alibi"),
    *("slow_but_exact", "apply_residual_connection_post_layernorm", "seq_length"),
)
DEEPSEEK = Traits(latent=True, experts="after_first", network_bias=False)

DECODERS: dict[str, Traits] = {
    # dense, RMSNorm and a gate
    "llama": PLAIN,
    "mistral": MISTRAL,
    "ministral3": MISTRAL,
    "qwen2": QWEN2,
    # XiaomiMiMo/MiMo-7B-Base:modeling_mimo.py, layers of Qwen 2 with biases of queries, keys and values
    "mimo": Traits(qkv_bias=True, out_bias=False, network_bias=False, fixed=(("attention_bias", True),)),
    "qwen2_vl_text": QWEN2,
    **dict.fromkeys(("qwen2_5_vl_text", "qwen2_5_omni_text"), QWEN2),
    "qwen3": QWEN3,
    "qwen3_vl_text": QWEN3,
    "gemma": Traits(tied=True, network_bias=False),
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "phi3": Traits(
        windowed=True,
        qkv_bias=False,
        out_bias=False,
        network_bias=False,
        passed=("full_attn_mod", "interpolate_factor", "lm_head_bias", "attention_bias", "mlp_bias"),
    ),
    "glm": Traits(out_bias=False, network_bias=False),
    "glm4": Traits(out_bias=False, network_bias=False, norms=4),
    "olmo": Traits(norm_weights=False, network_bias=False),
    "olmo2": Traits(wide_norms=True, network_bias=False),
    "olmo3": Traits(wide_norms=True, network_bias=False, every=("sliding_window_pattern", 4)),
    "smollm3": PLAIN,
    **dict.fromkeys(("granite", "granite4_vision_text", "emu3_text_model"), PLAIN),
    **dict.fromkeys(("arcee", "cosmos3_edge_text"), Traits(gated=False)),
    "exaone4": Traits(
        head_norms=True, qkv_bias=False, out_bias=False, network_bias=False, every=("sliding_window_pattern", 4)
    ),
    "seed_oss": Traits(out_bias=("attention_out_bias",)),
    "hunyuan_v1_dense": Traits(
        head_norms=True,
        passed=HUNYUAN,
        switched=(("use_cla", "cla_share_factor"),),
        fixed=(("num_experts", 1), ("num_shared_expert", 1), ("moe_topk", 1)),
    ),
    "hunyuan_vl_text": Traits(head_norms=True, network_bias=False, passed=HUNYUAN),
    **dict.fromkeys(
        ("ernie4_5", "paddleocr_vl_text"),
        Traits(
            qkv_bias=("use_bias",), out_bias=("use_bias",), network_bias=("use_bias",), passed=("compression_ratio",)
        ),
    ),
    "apertus": Traits(gated=False, head_norms=True, passed=("qk_norm", "post_norm")),
    # InternLM 2 and 2.5 keep queries, keys and values in one matrix (internlm/internlm2-7b:modeling_internlm2.py)
    "internlm2": Traits(qkv_bias=("bias",), out_bias=("bias",), network_bias=False),
    # Baichuan 1 and 2: as Llama; of 13 B with ALiBi (baichuan-inc/Baichuan2-13B-Base:modeling_baichuan.py)
    # Aquila 1 and 2 (BAAI/Aquila2-7B:modeling_aquila.py) and XVERSE (xverse/XVERSE-7B:modeling_xverse.py): as Llama too
    **dict.fromkeys(("baichuan", "aquila", "xverse"), Traits(qkv_bias=False, out_bias=False, network_bias=False)),
    # internlm/internlm-7b:modeling_internlm.py
    "internlm": Traits(qkv_bias=("bias",), out_bias=("bias",), network_bias=False),
    # OrionStarAI/Orion-14B-Base:modeling_orion.py
    "orion": Traits(layer_norm=True, network_bias=False),
    # Dream-org/Dream-v0-Base-7B:modeling_dream.py, layers of Qwen 2 that look both ways
    "Dream": Traits(qkv_bias=True, out_bias=False, network_bias=False, masked=False),
    "internlm3": Traits(qkv_bias=("qkv_bias",), out_bias=("bias",), network_bias=("bias",)),
    "minicpm3": Traits(latent=True, passed=("dim_model_base",)),
    "ministral": MISTRAL,
    "cwm": Traits(every=("", 4), every_at=0, qkv_bias=False, out_bias=False),
    "youtu": Traits(latent=True, network_bias=False, tied=True),
    "helium": Traits(out_bias=False, square=True),
    "bitnet": Traits(inner_norms=True, network_bias=False),
    "vaultgemma": Traits(tied=True, every=("", 2), network_bias=False),
    "iquestcoder": PLAIN,
    "hyperclovax": Traits(post_norms=("use_post_norm",)),
    "granite_swa": Traits(sinks=True, every=("", 4), every_at=0),
    "nanochat": Traits(gated=False, norm_weights=False, network_bias=False),
    "glm4v_text": GLM4V,
    "glm_ocr_text": Traits(out_bias=False, qkv_bias=False, network_bias=False, norms=4),
    "eurobert": Traits(masked=False, passed=("classifier_pooling",)),
    # dense, LayerNorm
    "jais2": Traits(layer_norm=True, gated=False),
    "cohere": Traits(
        layer_norm=True, norm_bias=False, norms=1, tied=True, network_bias=False, wide_norms=("use_qk_norm",)
    ),
    "cohere_compass_text": Traits(
        layer_norm=True, norm_bias=False, norms=1, tied=True, network_bias=False, square=True, passed=("pooling",)
    ),
    "cohere2": Traits(
        layer_norm=True,
        norm_bias=False,
        norms=1,
        tied=True,
        every=("sliding_window_pattern", 4),
        passed=COHERE2,
    ),
    "cohere2_moe": Traits(
        experts="after_first",
        dense_key="prefix_dense_intermediate_size",
        prefix_every="prefix_dense_sliding_window_pattern",
        passed=("shared_expert_combination_strategy",),
        layer_norm=True,
        norm_bias=False,
        norms=1,
        tied=True,
        every=("sliding_window_pattern", 4),
        network_bias=False,
    ),
    "starcoder2": Traits(
        layer_norm=True,
        gated=False,
        qkv_bias=("use_bias",),
        out_bias=("use_bias",),
        network_bias=("use_bias",),
        windowed=True,
        tied=True,
        fixed=(("mlp_type", "default"), ("norm_type", "layer_norm")),
    ),
    "stablelm": Traits(
        layer_norm=True,
        qkv_bias=("use_qkv_bias",),
        out_bias=False,
        network_bias=False,
        wide_norms=("qk_layernorm",),
        one_norm=("use_parallel_residual",),
    ),
    "nemotron": Traits(layer_norm=True, gated=False),
    **dict.fromkeys(("gpt2", "gpt-sw3"), _old(tied=True, positions="learned")),
    "gpt_neox": _old(qkv_bias=("attention_bias",), out_bias=("attention_bias",), passed=("use_parallel_residual",)),
    "gptj": _old(qkv_bias=False, out_bias=False, norms=1, head_bias=True),
    "codegen": _old(qkv_bias=False, out_bias=False, norms=1, head_bias=True),
    "bloom": _old(tied=True, positions="alibi", embedding_norm=True, passed=BLOOM),
    "phi": _old(norms=1, head_bias=True, head_norms=("qk_layernorm",)),
    "persimmon": _old(head_norms=("qk_layernorm",)),
    "xglm": _old(tied=True, positions="none"),
    "ctrl": _old(tied=True, positions="none", head_bias=True),
    "biogpt": _old(tied=True, positions="learned", extra_positions=2),
    # experts
    "mixtral": Traits(experts="all", windowed=True, qkv_bias=False, out_bias=False, network_bias=False),
    "qwen2_moe": Traits(
        experts="by_step", shared_gate=True, qkv_bias=("qkv_bias",), out_bias=False, network_bias=False
    ),
    "qwen3_moe": QWEN3_EXPERTS,
    **dict.fromkeys(("qwen3_vl_moe_text", "qwen3_omni_moe_text"), QWEN3_EXPERTS),
    "aria_text": Traits(experts="all"),
    "olmoe": Traits(experts="all", wide_norms=True, network_bias=False),
    "phimoe": Traits(
        top=2, experts="all", layer_norm=True, head_bias=("lm_head_bias",), windowed=True, network_bias=False
    ),
    "granitemoe": Traits(experts="all", network_bias=False),
    "granitemoeshared": Traits(experts="all", network_bias=False),
    "gpt_oss": Traits(
        experts="all",
        every=("sliding_window_pattern", 2),
        sinks=True,
        network_bias=False,
        router_bias=True,
        expert_bias=True,
        passed=("initial_context_length",),
    ),
    # DeepSeekMoE 16B, before latent attention (deepseek-ai/deepseek-moe-16b-base:modeling_deepseek.py)
    "deepseek": Traits(experts="after_first", network_bias=False),
    # norms before and behind attention and experts (hpcai-tech/grok-1:modeling_grok1.py, DecoderLayer)
    "grok-1": Traits(
        experts="all", norms=4, qkv_bias=False, out_bias=False, network_bias=False, passed=("max_attn_value",)
    ),
    "deepseek_v2": Traits(latent=True, experts="after_first", network_bias=False),
    "deepseek_v3": DEEPSEEK,
    "kimi_k2": DEEPSEEK,
    "deepseek_v32": DEEPSEEK,
    "mistral4": DEEPSEEK,
    "axk1": Traits(latent=True, experts="after_first", network_bias=False, first_dense=1, expert_norm=True),
    "hy_v3": Traits(
        experts="after_first", first_dense=1, head_norms=True, must_share=True, passed=("enable_moe_fp32_combine",)
    ),
    "mellum": Traits(experts="after_first", head_norms=True, network_bias=False),
    "kolibri1": Traits(
        experts="all", head_norms=True, qkv_bias=False, out_bias=False, network_bias=False, norms=4, every=("", 5)
    ),
    "granitemoe_swa": Traits(experts="all", network_bias=False, sinks=True, every=("", 4), every_at=0),
    "glm4v_moe_text": Traits(experts="after_first", out_bias=False, network_bias=False),
    "glm_moe_dsa": DEEPSEEK,
    "glm4_moe_lite": Traits(latent=True, experts="after_first", network_bias=False, first_dense=1),
    "glm4_moe": Traits(experts="after_first", head_norms=("use_qk_norm",), out_bias=False, network_bias=False),
    "dots1": Traits(experts="after_first", head_norms=True, network_bias=False),
    "solar_open": Traits(experts="after_first", network_bias=False),
    # Ling 1 and 1.5 (inclusionAI/Ling:models/modeling_bailing_moe.py)
    "bailing_moe": Traits(
        experts="after_first",
        qkv_bias=("use_qkv_bias",),
        out_bias=False,
        network_bias=False,
        fixed=(("use_bias", False),),
        passed=("norm_head", "norm_softmax"),
    ),
    # Ling 2.0 and Ring 2.0 (inclusionAI/Ling-V2:models/modeling_bailing_moe_v2.py)
    "bailing_moe_v2": Traits(
        experts="after_first",
        head_norms=("use_qk_norm",),
        qkv_bias=("use_qkv_bias",),
        out_bias=("use_bias",),
        network_bias=False,
        passed=("use_rmsnorm", "rotary_type"),
    ),
    "ernie4_5_moe": Traits(
        experts="between",
        qkv_bias=("use_bias",),
        out_bias=("use_bias",),
        network_bias=("use_bias",),
        head_bias=("use_bias",),
        router_bias=True,
        passed=("moe_capacity", "moe_gate", "moe_use_aux_free", "moe_norm_min", "compression_ratio"),
    ),
    "minimax_m2": Traits(
        experts="all",
        wide_norms=True,
        qkv_bias=False,
        out_bias=False,
        network_bias=False,
        passed=MINIMAX_M2,
        switched=(("shared_intermediate_size", "shared_moe_mode"),),
    ),
    "flex_olmo": Traits(experts="all", wide_norms=True, network_bias=False),
    "hunyuan_v1_moe": Traits(
        experts="all",
        one_shared=True,
        head_norms=True,
        network_bias=False,
        passed=("moe_drop_tokens", *HUNYUAN),
        switched=(("use_cla", "cla_share_factor"),),
    ),
    "llama4_text": Traits(
        experts="interleaved",
        dense_key="intermediate_size_mlp",
        one_shared=True,
        network_bias=False,
        passed=("use_qk_norm", "for_llm_compressor"),  # its norm of queries and keys has no weights
    ),
    "exaone_moe": Traits(
        experts="after_first", head_norms=True, qkv_bias=False, out_bias=False, every=("sliding_window_pattern", 4)
    ),
}
RECIPES: dict[str, Recipe] = {
    **{name: partial(decoder, traits=traits) for name, traits in DECODERS.items()},
    "openai-gpt": partial(openai_gpt, traits=_old(tied=True, positions="learned")),
    "voxtral_realtime_text": partial(realtime_text, traits=MISTRAL),
    "gpt_neo": partial(gpt_neo, traits=_old(qkv_bias=False, tied=True, positions="learned")),
    "unlimited_ocr_text": partial(
        unlimited_ocr_text, traits=Traits(experts="after_first", first_dense=1, network_bias=("mlp_bias",))
    ),
    "molmo2_text": partial(molmo2, traits=Traits(head_norms=True, out_bias=False, network_bias=False)),
    **HYBRIDS,
    **OTHERS,
    **REMOTE,
    **{kind: next(iter(classes.values())) for kind, classes in OWN.items()},
}
