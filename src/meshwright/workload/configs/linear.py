"""Decoders with linear attention or short convolutions in most layers: the delta rule, lightning attention, LFM2."""

from ..architecture import Architecture
from ..kinds import Attention, Dense, GatedDelta, LayerKind, Lightning, ShortConv
from .decoders import Traits, attention_of_config, experts_of, latent, made, networks_of
from .pattern import every_full, head_norms_of, layer_types
from .reader import ConfigReader


def gated_delta(c: ConfigReader) -> tuple[GatedDelta, int]:
    """Return the gated delta rule of Qwen's hybrids, and its norms and convolution."""
    heads, as_many = c.whole("num_attention_heads", 0), "num_attention_heads"
    key_heads = c.worked_out("linear_num_key_heads", heads, as_many)
    wide = 3 * c.whole("hidden_size") // (4 * max(key_heads, 1))
    key_dim = c.worked_out("linear_key_head_dim", wide, "0.75 x hidden_size / linear_num_key_heads")
    mixer = GatedDelta(
        key_heads=key_heads,
        value_heads=c.worked_out("linear_num_value_heads", heads, as_many),
        key_dim=key_dim,
        value_dim=c.worked_out("linear_value_head_dim", 2 * key_dim, "2 x linear_key_head_dim"),
        conv_kernel=c.whole("linear_conv_kernel_dim", 4),
    )
    channels = 2 * mixer.key_heads * mixer.key_dim + mixer.out_width
    return mixer, 2 * mixer.value_heads + channels * mixer.conv_kernel + mixer.value_dim


def qwen_hybrid(c: ConfigReader, traits: Traits) -> Architecture:
    """Return Qwen3-Next and Qwen3.5: delta rule, and gated attention in each fourth layer."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = layer_types(c, count, every_full(c, count, c.whole("full_attention_interval", 4)))
    plain = attention_of_config(c)
    gate = c.flag("attn_output_gate", default=True)
    full = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, gate=gate)
    delta, small = gated_delta(c)
    biases = (full.heads * (1 + gate) + 2 * full.kv_heads) * full.head_dim + hidden
    of_full = head_norms_of(full) + biases * c.flag("attention_bias")
    layers = [
        LayerKind(mixer=delta, network=network, small=2 * hidden + small)
        if kind == "linear_attention"
        else LayerKind(mixer=full, network=network, small=2 * hidden + of_full)
        for kind, network in zip(kinds, networks_of(c, traits, count), strict=True)
    ]
    c.skip("mtp_use_dedicated_embeddings", "mlp_only_layers", "decoder_sparse_step")
    return made(c, traits, layers)


def olmo_hybrid(c: ConfigReader) -> Architecture:
    """Return OLMo's hybrid: delta rule, and attention with wide norms in each fourth layer."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = layer_types(c, count, every_full(c, count, 4))
    full, (delta, small) = attention_of_config(c), gated_delta(c)
    dense = Dense(width=c.whole("intermediate_size"))
    wide = (full.heads + full.kv_heads) * full.head_dim
    layers = [
        LayerKind(mixer=delta, network=dense, small=2 * hidden + small)
        if kind == "linear_attention"
        else LayerKind(mixer=full, network=dense, small=2 * hidden + wide)
        for kind in kinds
    ]
    c.skip("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_allow_neg_eigval")
    return made(c, Traits(), layers)


def kimi_linear(c: ConfigReader) -> Architecture:
    """Return Kimi Linear: delta rule with a decay a channel, and latent attention in each fourth layer."""
    count, hidden = c.layers(), c.whole("hidden_size")
    inside = c.part("linear_attn_config")
    kinds = layer_types(c, count, ["linear_attention", *every_full(c, count, 4, 0)[1:]])
    if inside:
        full = inside.get("full_attn_layers")
        if not isinstance(full, list):
            raise ValueError("linear_attn_config: full_attn_layers: expected the numbers of layers from 1 on")
        kinds = ["full_attention" if i + 1 in full else "linear_attention" for i in range(count)]
    heads = int(inside.get("num_heads", 0)) or c.whole("linear_num_heads")
    dim = int(inside.get("head_dim", 0)) or c.whole("linear_head_dim")
    kernel = int(inside.get("short_conv_kernel_size", 0)) or c.whole("linear_conv_kernel_dim", 4)
    delta = GatedDelta(
        key_heads=heads,
        value_heads=heads,
        key_dim=dim,
        value_dim=dim,
        conv_kernel=kernel,
        gate_rank=dim,
        decay_rank=dim,
    )
    of_delta = heads * dim + heads + 3 * heads * dim * kernel + dim
    if c.flag("tied"):
        raise ValueError("tie_word_embeddings: expected false")
    full_mixer = latent(c)
    of_full = full_mixer.q_rank + full_mixer.kv_rank
    networks = networks_of(c, Traits(experts="after_first", first_dense=1), count)
    c.skip("use_grouped_topk", "mla_use_nope")
    layers = [
        LayerKind(mixer=delta, network=network, small=2 * hidden + of_delta)
        if kind == "linear_attention"
        else LayerKind(mixer=full_mixer, network=network, small=2 * hidden + of_full)
        for kind, network in zip(kinds, networks, strict=True)
    ]
    return made(c, Traits(), layers)


NORMED = ("full_attention", "linear_attention", "mlp")


def minimax(c: ConfigReader) -> Architecture:
    """Return MiniMax-01: lightning attention, and full attention in some layers."""
    count, hidden = c.layers(), c.whole("hidden_size")
    listed = c.numbers("attn_type_list")
    kinds = ["full_attention" if i % 2 == 0 else "linear_attention" for i in range(count)]
    if listed is not None:
        kinds = ["full_attention" if kind else "linear_attention" for kind in listed]
    kinds = layer_types(c, count, kinds)
    if len(kinds) != count:
        raise ValueError(f"attn_type_list: expected a number for each of the {count} layers")
    full = attention_of_config(c)
    linear = Lightning(heads=full.heads, head_dim=full.head_dim)
    routed = experts_of(c, Traits(), gated=True)
    c.skip("block_size", "shared_intermediate_size", "postnorm", "layernorm_full_attention_alpha", "shared_moe_mode")
    c.skip(*(f"layernorm_{part}_{name}" for part in NORMED for name in ("alpha", "beta")))
    c.skip(*(f"{part}_{name}_factor" for part in ("full_attn", "linear_attn", "mlp") for name in ("alpha", "beta")))
    layers = [
        LayerKind(mixer=full, network=routed, small=2 * hidden)
        if kind == "full_attention"
        else LayerKind(mixer=linear, network=routed, small=2 * hidden + linear.out_width)
        for kind in kinds
    ]
    return made(c, Traits(), layers)


def lfm2(c: ConfigReader, traits: Traits) -> Architecture:
    """Return LFM2: short convolutions, and attention in some layers."""
    count, hidden = c.layers(), c.whole("hidden_size")
    listed = c.numbers("full_attn_idxs") if c.given("full_attn_idxs") else None
    kinds = ["full_attention" if listed is None or i in listed else "conv" for i in range(count)]
    kinds = layer_types(c, count, kinds, "conv")
    full = attention_of_config(c)
    conv = ShortConv(width=hidden, kernel=c.whole("conv_L_cache", 3))
    of_conv = hidden * (conv.kernel + (5 if c.flag("conv_bias") else 0))
    c.skip("conv_dim", "conv_dim_out", "conv_use_xavier_init", "block_mlp_init_scale", "block_out_init_scale")
    c.skip("use_expert_bias", "block_use_swiglu", "block_dim", "block_use_xavier_init", "use_pos_enc", "block_norm_eps")
    networks = networks_of(c, traits, count) if traits.experts else [Dense(width=_lfm2_width(c))] * count
    layers = [
        LayerKind(mixer=full, network=network, small=2 * hidden + head_norms_of(full))
        if kind == "full_attention"
        else LayerKind(mixer=conv, network=network, small=2 * hidden + of_conv)
        for kind, network in zip(kinds, networks, strict=True)
    ]
    return made(c, traits, layers)


def _lfm2_width(c: ConfigReader) -> int:
    width = c.whole("block_ff_dim", 0) or c.whole("intermediate_size")
    c.skip("intermediate_size", "block_ff_dim")
    adjusted, factor = c.flag("block_auto_adjust_ff_dim", default=True), c.value("block_ffn_dim_multiplier", 1.0)
    multiple = c.whole("block_multiple_of", 256)
    if not multiple:
        raise ValueError("block_multiple_of: expected 1 or more, got 0")
    if not adjusted:
        return width
    width = int(float(factor) * int(2 * width / 3))
    return multiple * -(-width // multiple)
