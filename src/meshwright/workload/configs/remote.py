"""Decoders of code beside their weights (`auto_map`), such as ChatGLM, Qwen 1, Arctic, Jais and Molmo."""

from collections.abc import Callable
from functools import partial

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind
from .decoders import Traits, attention_of_config, decoder, even, experts_of, made
from .layerwise import nemotron_nas, openelm
from .reader import ConfigReader


def chatglm(c: ConfigReader) -> Architecture:
    """Return ChatGLM 2 and 3 and GLM-4 as first published (THUDM/glm-4-9b:modeling_chatglm.py)."""
    heads, grouped = c.whole("num_attention_heads"), c.flag("multi_query_attention")
    groups = c.whole("multi_query_group_num", 1)
    if c.whole("pre_seq_len", 0) or c.flag("prefix_projection"):
        raise ValueError("pre_seq_len: expected none: prefixes that are trained are not counted")
    if not c.flag("post_layer_norm", default=True) or not c.flag("rmsnorm", default=True):
        raise ValueError("post_layer_norm, rmsnorm: expected true")
    c.skip("apply_residual_connection_post_layernorm", "apply_query_key_layer_scaling", "original_rope")
    c.skip("bias_dropout_fusion", "fp32_residual_connection", "vocab_size", "classifier_dropout", "quantization_bit")
    sizes = {
        "vocab_size": c.whole("padded_vocab_size"),
        "head_dim": c.whole("kv_channels", even(c.whole("hidden_size"), heads)),
        "num_key_value_heads": groups if grouped else heads,
    }
    biased = c.flag("add_bias_linear")
    return decoder(
        c.changed(sizes), Traits(qkv_bias=c.flag("add_qkv_bias") or biased, out_bias=biased, network_bias=biased)
    )


def qwen(c: ConfigReader) -> Architecture:
    """Return Qwen of 2023, whose file says gate and up together (Qwen/Qwen-7B:modeling_qwen.py, QWenMLP)."""
    both = c.whole("intermediate_size")
    if both % 2:
        raise ValueError(f"intermediate_size: {both}: expected an even number, of gate and up together")
    c.skip("onnx_safe", "use_dynamic_ntk", "use_logn_attn", "use_cache_kernel", "seq_length")
    biased = not c.flag("no_bias", default=True)
    sizes = {"intermediate_size": both // 2, "head_dim": c.whole("kv_channels", 128), "seq_length": None}
    return decoder(c.changed(sizes), Traits(qkv_bias=True, out_bias=biased, network_bias=biased))


def arctic(c: ConfigReader) -> Architecture:
    """Return Arctic: experts, and beside them a dense network as wide as the stream (Snowflake: modeling_arctic.py)."""
    count, hidden, every = c.layers(), c.whole("hidden_size"), max(c.whole("moe_layer_frequency", 2), 1)
    beside = c.flag("use_residual") and c.flag("parallel_attn_mlp_res")
    if beside != c.flag("use_residual"):
        raise ValueError("parallel_attn_mlp_res: expected what use_residual says")
    c.skip("enc_index", "moe_eval_capacity_factor", "moe_train_capacity_factor", "moe_min_capacity", "quantization")
    c.skip("moe_token_dropping", "enable_expert_tensor_parallelism", "num_kv_heads_per_group")
    window = c.whole("sliding_window", 0)
    full = msgspec.structs.replace(attention_of_config(c), window=window)
    routed = msgspec.structs.replace(experts_of(c, Traits(), gated=True), shared=hidden * beside)
    dense = Dense(width=c.whole("intermediate_size"))
    layers = [
        LayerKind(mixer=full, network=routed, small=(2 + beside) * hidden)
        if (i + 1) % every == 0
        else LayerKind(mixer=full, network=dense, small=2 * hidden)
        for i in range(count)
    ]
    return made(c, Traits(), layers)


PHI3_SMALL = Traits(layer_norm=True, qkv_bias=True, out_bias=True, network_bias=True, tied=True)
BLOCK_SPARSE = "block-sparse attention in {count} layers is counted as if each token met all before it"


def phi3_small(c: ConfigReader) -> Architecture:
    """Return Phi-3-small (microsoft/Phi-3-small-8k-instruct:modeling_phi3_small.py)."""
    hidden, count = c.whole("hidden_size"), c.layers()
    width, factor = c.whole("ff_intermediate_size", 0), c.whole("ff_dim_multiplier", 0)
    if width and factor:
        raise ValueError("ff_dim_multiplier: expected none beside ff_intermediate_size")
    if c.value("hidden_act", "gegelu") != "gegelu":
        raise ValueError("hidden_act: expected gegelu")
    whole = c.whole("dense_attention_every_n_layers", 0)
    c.skip(*(f"blocksparse_{what}" for what in SPARSE), "gegelu_limit", "gegelu_pad_to_256", "reorder_weights")
    c.skip("mup_use_scaling", "mup_attn_multiplier", "pad_sequence_to_multiple_of_64", "attention_bias")
    sparse = count - (count // whole if whole else 0)
    if sparse:
        c.assumed.append(BLOCK_SPARSE.format(count=sparse))
    mixer: Attention = attention_of_config(c)
    network = Dense(width=width or factor * hidden)
    biases = (mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim + hidden + 2 * network.width + hidden
    layer = LayerKind(mixer=mixer, network=network, small=4 * hidden + biases)
    return made(c, PHI3_SMALL, [layer] * count)


SPARSE = ("block_size", "homo_head_pattern", "num_local_blocks", "triton_kernel_block_size", "vert_stride")


SCALES = ("scale_emb", "dim_model_base", "scale_depth", "hidden_act_param", "mup_denominator")
BLOCKS = "attention that picks blocks of keys (sparse_config) is counted as if each token met all before it"


def minicpm(c: ConfigReader) -> Architecture:
    """Return MiniCPM 1 and 4 (openbmb/MiniCPM-2B-sft-bf16, MiniCPM-MoE-8x2B and MiniCPM4-8B: modeling_minicpm.py)."""
    if c.part("sparse_config"):
        c.assumed.append(BLOCKS)
    routed = "all" if c.whole("experts", 0) else ""
    return decoder(c, Traits(tied=True, network_bias=False, experts=routed, passed=SCALES))


NO_MORE = {"include_bias": False, "include_qkv_bias": False, "attention_layer_norm": False, "input_emb_norm": False} | {
    **{"bias_for_layer_norm": False, "alibi": False, "rope": True, "block_group_size": 1},
}


def olmo_of_its_own(c: ConfigReader, *, masked: bool) -> Architecture:
    """Return OLMo 1 and LLaDA under the keys of the code that trained them (allenai/OLMo: olmo/config.py, model.py).

    `mlp_hidden_size`: gate and up together in a sequential block, each in a block of Llama's kind.
    """
    c.fixed(NO_MORE)
    c.skip(
        "mlp_ratio", "vocab_size", "flash_attention", "precision", "clip_qkv", "scale_logits", "multi_query_attention"
    )
    c.skip(
        "attention_layer_norm_with_affine", "init_device", "init_cutoff_factor", "layer_norm_type", "activation_type"
    )
    block, norm, acts = c.alone("block_type"), c.alone("layer_norm_type"), c.alone("activation_type")
    c.skip("block_type", "layer_norm_with_affine", "alibi_bias_max", "init_fn")
    if (block, acts) not in (("sequential", "swiglu"), ("llama", "silu")):
        raise ValueError(
            f"block_type: expected sequential with swiglu, or llama with silu, got {block!r} with {acts!r}"
        )
    if norm not in ("default", "low_precision", "rms"):
        raise ValueError(f"layer_norm_type: expected default, low_precision or rms, got {norm!r}")
    both, heads = c.whole("mlp_hidden_size"), c.whole("num_attention_heads")
    sizes = {
        "intermediate_size": both if block == "llama" else both // 2,
        "vocab_size": c.whole("embedding_size", c.whole("vocab_size")),
        "num_key_value_heads": 1 if c.flag("multi_query_attention") else c.whole("num_key_value_heads", heads),
        "tie_word_embeddings": c.flag("weight_tying", default=True),
    }
    weighed = c.flag("layer_norm_with_affine", default=True)
    return decoder(
        c.changed(sizes),
        Traits(qkv_bias=False, out_bias=False, network_bias=False, norm_weights=weighed, masked=masked),
    )


MOLMOS_IMAGES = (
    "the text model alone is counted: the encoder of images, what joins it to the text, and {rows} rows for its tokens "
    "are in the code beside the weights, and in no key"
)


def molmo(c: ConfigReader) -> Architecture:
    """Return the text model of Molmo, whose file says gate and up together (allenai/Molmo-7B-D-0924)."""
    both = c.whole("intermediate_size")
    if both % 2:
        raise ValueError(f"intermediate_size: {both}: expected an even number, of gate and up together")
    c.fixed({"layer_norm_type": "rms", "moe_num_experts": 0})
    c.skip("norm_after", "clip_qkv", "use_position_ids", "vocab_size", "max_position_embeddings")
    if (tied := c.flag("weight_tying")) != c.flag("tied", default=tied):
        raise ValueError("weight_tying, tie_word_embeddings: expected both to say the same")
    c.assumed.append(MOLMOS_IMAGES.format(rows=c.whole("additional_vocab_size", 128)))
    sizes = {
        "intermediate_size": both // 2,
        "vocab_size": c.whole("embedding_size", c.whole("vocab_size")),
        "tie_word_embeddings": tied,
    }
    traits = Traits(qkv_bias=("qkv_bias",), out_bias=False, network_bias=False, wide_norms=("attention_layer_norm",))
    return decoder(c.changed(sizes), traits)


# EXAONE 3 and 3.5 (LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct: configuration_exaone.py, modeling_exaone.py)
EXAONE = Traits(tied=True, qkv_bias=False, out_bias=False, network_bias=False, inner=4.0)
# Jais 1: GPT-2 with a gate and ALiBi (inceptionai/jais-13b: configuration_jais.py, modeling_jais.py)
JAIS = Traits(
    layer_norm=True,
    qkv_bias=True,
    out_bias=True,
    network_bias=True,
    inner=4.0,
    tied=True,
    positions="alibi",
    passed=("alibi_scaling",),
    fixed=(("activation_function", "swiglu"), ("position_embedding_type", "alibi")),
)
REMOTE: dict[str, Callable[[ConfigReader], Architecture]] = {
    "chatglm": chatglm,
    "qwen": qwen,
    "arctic": arctic,
    "phi3small": phi3_small,
    "minicpm": minicpm,
    "exaone": partial(decoder, traits=EXAONE),
    "hf_olmo": partial(olmo_of_its_own, masked=True),
    "llada": partial(olmo_of_its_own, masked=False),
    "jais": partial(decoder, traits=JAIS),
    "molmo": molmo,
    "openelm": openelm,
    "nemotron-nas": nemotron_nas,
}
