"""Decoders whose layers mix tokens in several ways: recurrences beside attention, and networks on their own."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..architecture import Architecture
from ..kinds import Attention, Dense, Experts, GatedDelta, Layer, Lightning, Mamba1, Mamba2, Mixer, Network, ShortConv
from .decoders import Traits, attention, experts_of, inner, latent, made, networks_of
from .reader import Reader

LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}  # of a pattern in one word


def _layer_types(c: Reader, count: int, default: list[str]) -> list[str]:
    c.skip("full_attention_interval")
    return c.words("layer_types", count) or default


def _every(c: Reader, count: int, period: int, offset: int = -1) -> list[str]:
    """Return layer types of which each so-many-th is full attention, the last of each period or that at `offset`."""
    at = offset % period if period else 0
    return ["full_attention" if period and i % period == at else "linear_attention" for i in range(count)]


def _head_norms(mixer: Attention) -> int:
    return 2 * mixer.head_dim


def gated_delta(c: Reader) -> tuple[GatedDelta, int]:
    """Return the gated delta rule of Qwen's hybrids, and its norms and convolution."""
    mixer = GatedDelta(
        key_heads=c.whole("linear_num_key_heads"),
        value_heads=c.whole("linear_num_value_heads"),
        key_dim=c.whole("linear_key_head_dim"),
        value_dim=c.whole("linear_value_head_dim"),
        conv_kernel=c.whole("linear_conv_kernel_dim", 4),
    )
    channels = 2 * mixer.key_heads * mixer.key_dim + mixer.out_width
    return mixer, 2 * mixer.value_heads + channels * mixer.conv_kernel + mixer.value_dim


def qwen_hybrid(c: Reader, traits: Traits) -> Architecture:
    """Return Qwen3-Next and Qwen3.5: delta rule, and gated attention in each fourth layer."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = _layer_types(c, count, _every(c, count, c.whole("full_attention_interval", 4)))
    plain = attention(c)
    gate = c.flag("attn_output_gate", default=True)
    full = Attention(heads=plain.heads, kv_heads=plain.kv_heads, head_dim=plain.head_dim, gate=gate)
    delta, small = gated_delta(c)
    biases = (full.heads * (1 + gate) + 2 * full.kv_heads) * full.head_dim + hidden
    of_full = _head_norms(full) + biases * c.flag("attention_bias")
    layers = [
        Layer(mixer=delta, network=network, small=2 * hidden + small)
        if kind == "linear_attention"
        else Layer(mixer=full, network=network, small=2 * hidden + of_full)
        for kind, network in zip(kinds, networks_of(c, traits, count), strict=True)
    ]
    c.skip("mtp_use_dedicated_embeddings", "mlp_only_layers", "decoder_sparse_step")
    return made(c, traits, layers)


def olmo_hybrid(c: Reader) -> Architecture:
    """Return OLMo's hybrid: delta rule, and attention with wide norms in each fourth layer."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = _layer_types(c, count, _every(c, count, 4))
    full, (delta, small) = attention(c), gated_delta(c)
    dense = Dense(width=c.whole("intermediate_size"))
    wide = (full.heads + full.kv_heads) * full.head_dim
    layers = [
        Layer(mixer=delta, network=dense, small=2 * hidden + small)
        if kind == "linear_attention"
        else Layer(mixer=full, network=dense, small=2 * hidden + wide)
        for kind in kinds
    ]
    c.skip("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_allow_neg_eigval")
    return made(c, Traits(), layers)


def kimi_linear(c: Reader) -> Architecture:
    """Return Kimi Linear: delta rule with a decay a channel, and latent attention in each fourth layer."""
    count, hidden = c.layers(), c.whole("hidden_size")
    inside = c.part("linear_attn_config")
    kinds = _layer_types(c, count, _every(c, count, 4))
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
        Layer(mixer=delta, network=network, small=2 * hidden + of_delta)
        if kind == "linear_attention"
        else Layer(mixer=full_mixer, network=network, small=2 * hidden + of_full)
        for kind, network in zip(kinds, networks, strict=True)
    ]
    return made(c, Traits(), layers)


def minimax(c: Reader) -> Architecture:
    """Return MiniMax-01: lightning attention, and full attention in some layers."""
    count, hidden = c.layers(), c.whole("hidden_size")
    listed = c.numbers("attn_type_list")
    kinds = ["full_attention" if i % 2 == 0 else "linear_attention" for i in range(count)]
    if listed is not None:
        kinds = ["full_attention" if kind else "linear_attention" for kind in listed]
    kinds = _layer_types(c, count, kinds)
    if len(kinds) != count:
        raise ValueError(f"attn_type_list: expected a number for each of the {count} layers")
    full = attention(c)
    linear = Lightning(heads=full.heads, head_dim=full.head_dim)
    routed = experts_of(c, Traits(), gated=True)
    c.skip("block_size", "shared_intermediate_size", "postnorm", "layernorm_full_attention_alpha", "shared_moe_mode")
    layers = [
        Layer(mixer=full, network=routed, small=2 * hidden)
        if kind == "full_attention"
        else Layer(mixer=linear, network=routed, small=2 * hidden + linear.out_width)
        for kind in kinds
    ]
    return made(c, Traits(), layers)


def mamba2(c: Reader, prefix: str, *, norm: bool = True) -> tuple[Mamba2, int]:
    """Return the Mamba-2 mixer under one family's keys, and its norms, biases and convolution."""
    names = MAMBA_KEYS[prefix]
    wide = c.whole("mamba_expand", 2) * c.whole("hidden_size") if prefix == "mamba" else 0
    spread = wide // max(c.whole(names["heads"]), 1) or None  # of a head, where the config does not say
    values = {key: c.whole(name, spread if key == "head_dim" else None) for key, name in names.items()}
    mixer = Mamba2(**values)
    channels = mixer.out_width + 2 * mixer.groups * mixer.state
    small = 3 * mixer.heads + channels * (mixer.conv_kernel + c.flag(*CONV_BIAS, default=True))
    c.skip("expand", "mamba_expand", "time_step_rank", "mamba_ssm_cache_dtype", "mamba_hidden_act")
    return mixer, small + mixer.out_width * norm


MAMBA_KEYS: dict[str, dict[str, str]] = {
    "mamba": {
        **{"heads": "mamba_n_heads", "head_dim": "mamba_d_head", "groups": "mamba_n_groups", "state": "mamba_d_state"},
        **{"chunk": "mamba_chunk_size", "conv_kernel": "mamba_d_conv"},
    },
    "nemotron": {
        **{"heads": "mamba_num_heads", "head_dim": "mamba_head_dim", "groups": "n_groups", "state": "ssm_state_size"},
        **{"chunk": "chunk_size", "conv_kernel": "conv_kernel"},
    },
    "plain": {
        **{"heads": "num_heads", "head_dim": "head_dim", "groups": "n_groups", "state": "state_size"},
        **{"chunk": "chunk_size", "conv_kernel": "conv_kernel"},
    },
}
CONV_BIAS = ("use_conv_bias", "mamba_conv_bias")


def _refuse_bias(c: Reader, *names: str) -> None:
    for name in names:
        if c.flag(name):
            raise ValueError(f"{name}: expected false; biases of these projections are not counted")


def nemotron_h(c: Reader) -> Architecture:
    """Return Nemotron-H: each layer is one of Mamba-2, attention, a dense network and experts."""
    hidden = c.whole("hidden_size")
    pattern = c.value("hybrid_override_pattern")
    kinds = c.value("layers_block_type") if pattern is None else [LETTERS.get(letter) for letter in str(pattern)]
    c.skip("num_hidden_layers", "layers_block_type", "mtp_layers_block_type", "moe_shared_expert_overlap")
    c.skip("mamba_num_groups", "moe_latent_overlap")
    names = {"mamba": "linear_attention", "attention": "full_attention"}
    kinds = [names.get(kind, kind) for kind in kinds] if isinstance(kinds, list) else [None]
    if not kinds or not all(kind in LETTERS.values() for kind in kinds):
        key = "hybrid_override_pattern" if pattern is not None else "layers_block_type"
        raise ValueError(f"{key}: expected a letter or word for each layer, of {', '.join(LETTERS)}")
    if c.given("num_hidden_layers") and c.whole("num_hidden_layers") != len(kinds):
        raise ValueError(f"num_hidden_layers: expected {len(kinds)}, the layers of the pattern")
    _refuse_bias(c, "use_bias", "mlp_bias", "attention_bias", "mamba_proj_bias")
    if c.flag("tied"):
        raise ValueError("tie_word_embeddings: expected false")
    used = set(kinds)
    layer_of: dict[str, Layer] = {}
    if "linear_attention" in used:
        mamba, small = mamba2(c, "nemotron")
        layer_of["linear_attention"] = Layer(mixer=mamba, small=hidden + small)
    if "full_attention" in used:
        layer_of["full_attention"] = Layer(mixer=attention(c), small=hidden)
    if "mlp" in used:
        layer_of["mlp"] = Layer(network=Dense(width=c.whole("intermediate_size"), gated=False), small=hidden)
    if "moe" in used:
        layer_of["moe"] = Layer(network=_latent_experts(c), small=hidden)
    c.skip(*MAMBA_KEYS["nemotron"].values(), "num_attention_heads", "num_key_value_heads", "head_dim", "experts")
    c.skip("intermediate_size", "expert_size", "shared_size", "shared_experts", "experts_per_token", "sliding_window")
    return made(c, Traits(), [layer_of[str(kind)] for kind in kinds])


def _latent_experts(c: Reader) -> Experts:
    plain = experts_of(c, Traits(), gated=False)
    return Experts(
        count=plain.count,
        top=plain.top,
        width=plain.width,
        gated=False,
        shared=plain.shared if c.whole("shared_experts", 1) else 0,
        latent=c.whole("moe_latent_size", 0),
    )


def granite_hybrid(c: Reader) -> Architecture:
    """Return Granite 4: Mamba-2 or attention, with experts and a shared network, or the shared network alone."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = _layer_types(c, count, ["linear_attention"] * count)
    _refuse_bias(c, "mamba_proj_bias", "attention_bias")
    c.skip("intermediate_size", "experts", "experts_per_token")
    network: Network = Dense(width=c.whole("shared_size"))
    if c.whole("experts", 0):
        network = experts_of(c, Traits(), gated=True)
    layer = partial(Layer, network=network)
    attends = any(kind not in {"linear_attention", "mamba"} for kind in kinds)
    full = attention(c) if attends else None
    mamba, small = mamba2(c, "mamba")
    c.skip("num_attention_heads", "num_key_value_heads", "normalization_function")
    layers = [
        layer(mixer=mamba, small=2 * hidden + small)
        if kind in {"linear_attention", "mamba"}
        else layer(mixer=full, small=2 * hidden)
        for kind in kinds
    ]
    return made(c, Traits(), layers)


def bamba(c: Reader) -> Architecture:
    """Return Bamba: Mamba-2 with a dense network, attention in the layers that are listed."""
    count, hidden = c.layers(), c.whole("hidden_size")
    full_at = c.numbers("attn_layer_indices") or []
    _refuse_bias(c, "mamba_proj_bias", "attention_bias", "mlp_bias")
    dense, full = Dense(width=c.whole("intermediate_size")), attention(c)
    mamba, small = mamba2(c, "mamba")
    layers = [
        Layer(mixer=full, network=dense, small=2 * hidden)
        if i in full_at
        else Layer(mixer=mamba, network=dense, small=2 * hidden + small)
        for i in range(count)
    ]
    return made(c, Traits(), layers)


def falcon_h1(c: Reader) -> Architecture:
    """Return Falcon-H1: attention and Mamba-2 beside each other in every layer."""
    count, hidden = c.layers(), c.whole("hidden_size")
    _refuse_bias(c, "mamba_proj_bias", "attention_bias", "mlp_bias", "projectors_bias")
    mamba, small = mamba2(c, "mamba", norm=c.flag("mamba_rms_norm"))
    if c.value("mamba_d_ssm") not in (None, mamba.out_width):
        raise ValueError(f"mamba_d_ssm: expected mamba_n_heads x mamba_d_head = {mamba.out_width}")
    c.skip("mamba_use_mlp", "attn_layer_indices", "mlp_expansion_factor")
    layer = Layer(
        mixer=attention(c), beside=mamba, network=Dense(width=c.whole("intermediate_size")), small=2 * hidden + small
    )
    return made(c, Traits(), [layer] * count)


def jamba(c: Reader) -> Architecture:
    """Return Jamba: Mamba, attention in each eighth layer, experts in each second."""
    count, hidden = c.layers(), c.whole("hidden_size")
    _refuse_bias(c, "mamba_proj_bias")
    kinds = _every(c, count, c.whole("attn_layer_period", 8), c.whole("attn_layer_offset", 4))
    scan, small = mamba1(c, inner=c.whole("mamba_expand", 2) * hidden, keys="mamba_d_state mamba_dt_rank mamba_d_conv")
    small += scan.rank + 2 * scan.state
    full = attention(c)
    networks: list[Network] = networks_of(c, Traits(experts="by_period"), count)
    one = c.whole("experts") < 2
    networks = [Dense(width=c.whole("intermediate_size"))] * count if one else networks
    mixers: list[Mixer] = [full if kind == "full_attention" else scan for kind in kinds]
    layers = [
        Layer(mixer=mixer, network=network, small=2 * hidden + (small if mixer is scan else 0))
        for mixer, network in zip(mixers, networks, strict=True)
    ]
    return made(c, Traits(), layers)


def mamba1(c: Reader, *, inner: int, keys: str) -> tuple[Mamba1, int]:
    """Return the selective scan, and its convolution, decay and biases."""
    state, rank, kernel = keys.split()
    hidden = c.whole("hidden_size")
    given = c.value(rank)
    found = Mamba1(
        inner=inner,
        state=c.whole(state),
        rank=-(-hidden // 16) if given in (None, "auto") else c.whole(rank),
        conv_kernel=c.whole(kernel),
    )
    bias = c.flag("use_conv_bias", "mamba_conv_bias", default=True)
    return found, inner * (found.state + found.conv_kernel + bias + 2)


def mamba(c: Reader) -> Architecture:
    """Return Mamba and Falcon-Mamba: layers of one selective scan."""
    _refuse_bias(c, "use_bias")
    hidden = c.whole("hidden_size")
    width = c.whole("intermediate_size", 0) if c.given("intermediate_size") else c.whole("expand", 2) * hidden
    scan, small = mamba1(c, inner=width, keys="state_size time_step_rank conv_kernel")
    c.skip("intermediate_size", "expand")
    return made(c, Traits(tied=True), [Layer(mixer=scan, small=hidden + small)] * c.layers())


def plain_mamba2(c: Reader) -> Architecture:
    """Return Mamba-2: layers of one state-space mixer."""
    _refuse_bias(c, "use_bias")
    mixer, small = mamba2(c, "plain")
    return made(c, Traits(), [Layer(mixer=mixer, small=c.whole("hidden_size") + small)] * c.layers())


def lfm2(c: Reader, traits: Traits) -> Architecture:
    """Return LFM2: short convolutions, and attention in some layers."""
    count, hidden = c.layers(), c.whole("hidden_size")
    listed = c.numbers("full_attn_idxs") if c.given("full_attn_idxs") else None
    kinds = ["full_attention" if listed is None or i in listed else "conv" for i in range(count)]
    kinds = _layer_types(c, count, kinds)
    full = attention(c)
    conv = ShortConv(width=hidden, kernel=c.whole("conv_L_cache", 3))
    of_conv = hidden * (conv.kernel + (5 if c.flag("conv_bias") else 0))
    c.skip("conv_dim", "conv_dim_out", "conv_use_xavier_init", "block_mlp_init_scale", "block_out_init_scale")
    c.skip("block_use_swiglu", "block_dim", "block_use_xavier_init", "use_pos_enc", "block_norm_eps")
    networks = networks_of(c, traits, count) if traits.experts else [Dense(width=_lfm2_width(c))] * count
    layers = [
        Layer(mixer=full, network=network, small=2 * hidden + _head_norms(full))
        if kind == "full_attention"
        else Layer(mixer=conv, network=network, small=2 * hidden + of_conv)
        for kind, network in zip(kinds, networks, strict=True)
    ]
    return made(c, traits, layers)


def _lfm2_width(c: Reader) -> int:
    width = c.whole("block_ff_dim", 0) or c.whole("intermediate_size")
    c.skip("intermediate_size", "block_ff_dim")
    adjusted, factor = c.flag("block_auto_adjust_ff_dim", default=True), c.value("block_ffn_dim_multiplier", 1.0)
    multiple = c.whole("block_multiple_of", 256)
    if not adjusted:
        return width
    width = int(float(factor) * int(2 * width / 3))
    return multiple * -(-width // multiple)


def gemma4(c: Reader) -> Architecture:
    """Return Gemma 4: windows and full attention with heads of their own, experts beside a network, inputs a layer."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = _layer_types(c, count, ["full_attention" if (i + 1) % 6 == 0 else "sliding" for i in range(count)])
    kinds = [*kinds[:-1], "full_attention"]  # the last one always is
    heads, per_layer, window = (
        c.whole("num_attention_heads"),
        c.whole("hidden_size_per_layer_input", 0),
        c.whole("sliding_window"),
    )
    few = c.whole("num_kv_shared_layers", 0)
    keys = 1 if c.flag("attention_k_eq_v") else 2
    kv_heads = c.whole("num_key_value_heads")
    global_kv = c.whole("num_global_key_value_heads", kv_heads) if keys == 1 else kv_heads
    c.skip("num_global_key_value_heads", "per_layer_config", "use_double_wide_mlp")
    if c.flag("attention_bias"):
        raise ValueError("attention_bias: expected false")
    local = Attention(heads=heads, kv_heads=kv_heads, head_dim=c.whole("head_dim"), window=window)
    whole = Attention(heads=heads, kv_heads=global_kv, head_dim=c.whole("global_head_dim", 512), key_matrices=keys)
    double = c.flag("use_double_wide_mlp")
    width = c.whole("intermediate_size")
    routed = _gemma4_experts(c, width) if c.flag("enable_moe_block") else None
    c.skip("experts", "experts_per_token", "expert_size")
    norms = hidden * (8 if routed else 4) + (routed.count if routed else 0) + hidden * (per_layer > 0)

    def layer(i: int, kind: str) -> Layer:
        mixer, shares = (whole if kind == "full_attention" else local), few > 0 and i >= count - few
        network: Network = routed or Dense(width=width * (2 if shares and double else 1))
        small = norms + mixer.head_dim * (1 if shares else 2)
        if shares:
            mixer = _sharing(mixer)
        return Layer(mixer=mixer, network=network, small=small, more=2 * hidden * per_layer)

    layers = [layer(i, kind) for i, kind in enumerate(kinds)]
    return made(c, Traits(tied=True), layers, **_per_layer_inputs(c, hidden, per_layer, count))


def _sharing(mixer: Attention, **changed: Any) -> Attention:
    fields = {name: getattr(mixer, name) for name in mixer.__struct_fields__} | {"key_matrices": 0} | changed
    return Attention(**fields)


def _gemma4_experts(c: Reader, width: int) -> Experts:
    return Experts(
        count=c.whole("experts"), top=c.whole("experts_per_token"), width=c.whole("expert_size"), shared=width
    )


def _per_layer_inputs(c: Reader, hidden: int, per_layer: int, count: int, more: int = 0) -> dict[str, int]:
    """Return the table of a vector a layer and token, and the projection beside it."""
    rows = c.whole("vocab_size_per_layer_input", 0)
    table = rows * count * per_layer + per_layer if per_layer else 0
    return {"beside_parameters": table, "beside_weights": hidden * count * per_layer + more}


def gemma3n(c: Reader) -> Architecture:
    """Return Gemma 3n: alternating updates of four streams, low-rank residuals, inputs a layer, shared keys."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = _layer_types(c, count, ["full_attention" if (i + 1) % 5 == 0 else "sliding" for i in range(count)])
    plain, window = attention(c), c.whole("sliding_window")
    few, per_layer = c.whole("num_kv_shared_layers", 0), c.whole("hidden_size_per_layer_input")
    streams, rank = c.whole("altup_num_inputs"), c.whole("laurel_rank")
    c.skip(
        "altup_active_idx",
        "altup_coef_clip",
        "altup_correct_scale",
        "activation_sparsity_pattern",
        "altup_lr_multiplier",
    )
    widths = c.value("intermediate_size")
    if isinstance(widths, list) and len(widths) > count and not c.given("intermediate_size"):
        widths = widths[:count]
    if not isinstance(widths, list):
        widths = [c.whole("intermediate_size")] * count
    if len(widths) != count:
        raise ValueError(f"intermediate_size: expected one width for each of the {count} layers")
    more = hidden * (2 * per_layer + 2 * rank + streams) + streams**2 + streams**3
    layers = []
    for i, (kind, width) in enumerate(zip(kinds, widths, strict=True)):
        shares = few > 0 and i >= count - few
        changed = {"window": 0 if kind == "full_attention" else window, "key_matrices": 0 if shares else 2}
        small = 8 * hidden + plain.head_dim * (1 if shares else 2)
        layers.append(Layer(mixer=_sharing(plain, **changed), network=Dense(width=int(width)), small=small, more=more))
    around = 2 * (streams - 1) * hidden * hidden
    return made(c, Traits(tied=True), layers, **_per_layer_inputs(c, hidden, per_layer, count, around))


def afmoe(c: Reader) -> Architecture:
    """Return Arcee's experts: gated attention in windows, each fourth layer full, the first layers dense."""
    count, hidden = c.layers(), c.whole("hidden_size")
    period = c.whole("global_attn_every_n_layers", 4)
    kinds = _layer_types(c, count, ["full_attention" if (i + 1) % period == 0 else "sliding" for i in range(count)])
    plain, window = attention(c), c.whole("sliding_window")
    dense, routed = Dense(width=inner(c, Traits(), hidden)), experts_of(c, Traits(), gated=True)
    first = c.whole("num_dense_layers", 0)
    c.skip("mup_enabled", "num_expert_groups", "num_limited_groups", "load_balance_coeff", "route_norm", "route_scale")
    layers = [
        Layer(
            mixer=_sharing(plain, key_matrices=2, gate=True, window=0 if kind == "full_attention" else window),
            network=dense if i < first else routed,
            small=4 * hidden + 2 * plain.head_dim + (0 if i < first else routed.count),
        )
        for i, kind in enumerate(kinds)
    ]
    return made(c, Traits(), layers)


def mimo_v2(c: Reader) -> Architecture:
    """Return MiMo-V2: windows with sinks and more key heads, full attention in few layers, values narrower."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = _layer_types(c, count, ["full_attention" if i % 6 == 5 or i == 0 else "sliding" for i in range(count)])
    plain, window = attention(c), c.whole("sliding_window")
    values = c.whole("v_head_dim")
    networks = networks_of(c, Traits(experts="after_first", first_dense=1), count)
    full = _sharing(plain, key_matrices=2, value_dim=values)
    local = _sharing(full, key_matrices=2, window=window, kv_heads=2 * plain.kv_heads)
    layers = [
        Layer(
            mixer=full if kind == "full_attention" else local,
            network=network,
            small=2 * hidden + (0 if kind == "full_attention" else plain.heads),
        )
        for kind, network in zip(kinds, networks, strict=True)
    ]
    return made(c, Traits(), layers)


def longcat(c: Reader) -> Architecture:
    """Return LongCat-Flash: two latent attentions and two networks a layer, experts beside them, some of them empty."""
    count, hidden = c.layers(), c.whole("hidden_size")
    mixer, width = latent(c), c.whole("intermediate_size")
    real, empty = c.whole("experts"), c.whole("zero_expert_num", 0)
    c.skip("zero_expert_type")
    # a token picks `top` of all, so that on average real / (real + empty) of them compute
    top = c.whole("experts_per_token")
    routed = Experts(count=real, top=top, width=c.whole("expert_size"), router=real + empty, shared=2 * width)
    small = 4 * hidden + 2 * (mixer.q_rank + mixer.kv_rank)
    held_empty = empty * 2 * hidden * routed.width  # the library allocates half of each empty expert
    layer = Layer(mixer=mixer, beside=mixer, network=routed, small=small + held_empty)
    return made(c, Traits(), [layer] * count)


QWEN_DENSE = Traits(network_bias=False)
QWEN_EXPERTS = Traits(network_bias=False, experts="by_step", shared_gate=True)
HYBRIDS: dict[str, Callable[[Reader], Architecture]] = {
    "qwen3_next": partial(qwen_hybrid, traits=QWEN_EXPERTS),
    "qwen3_5_text": partial(qwen_hybrid, traits=QWEN_DENSE),
    "qwen3_5_moe_text": partial(qwen_hybrid, traits=QWEN_EXPERTS),
    "olmo_hybrid": olmo_hybrid,
    "kimi_linear": kimi_linear,
    "minimax": minimax,
    "nemotron_h": nemotron_h,
    "granitemoehybrid": granite_hybrid,
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "jamba": jamba,
    "mamba": mamba,
    "falcon_mamba": mamba,
    "mamba2": plain_mamba2,
    "lfm2": partial(lfm2, traits=Traits(tied=True)),
    "gemma4_text": gemma4,
    "gemma3n_text": gemma3n,
    "afmoe": afmoe,
    "mimo_v2_flash": mimo_v2,
    "longcat_flash": longcat,
}
