"""Decoders whose attention is gated or convolved, in windows in most layers, with experts in most of them."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Dense, LayerKind, Network, runs_of
from .decoders import Traits, attention_of_config, experts_of, made
from .pattern import head_norms_of, layer_types
from .reader import ConfigReader


def step3p5(c: ConfigReader) -> Architecture:
    """Return Step 3.5: windows with heads of their own, each head gated, experts behind the first layers."""
    count, hidden, further = c.layers(), c.whole("hidden_size"), c.whole("num_nextn_predict_layers", 0)
    other = c.part("attention_other_setting").get("num_attention_heads")
    heads = c.whole("num_attention_heads")
    few = c.whole("num_sliding_attention_heads", other or heads)
    kinds = layer_types(c, count, ["full_attention"] * count, "sliding_attention", further=further)
    window, width = c.whole("sliding_window", 0), c.whole("share_expert_dim")
    sparse = _step_sparse(c, count, further)
    routed = msgspec.structs.replace(experts_of(c, Traits(), gated=True), shared=width)
    dense = Dense(width=c.whole("intermediate_size"))
    c.skip("swiglu_limits", "swiglu_limits_shared", "mtp_layer_types", "mtp_mlp_layer_types", "partial_rotary_factors")
    if c.flag("mlp_bias"):
        raise ValueError("mlp_bias: expected false")
    layers = []
    for i, kind in enumerate(kinds):
        one = c.of_layer(i)
        plain = attention_of_config(one)
        mixer = plain
        if kind == "sliding_attention":
            many = few if one.whole("num_attention_heads") == heads else plain.heads
            mixer = Attention(heads=many, kv_heads=plain.kv_heads, head_dim=plain.head_dim, window=window)
        biases = (mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim + hidden
        small = 2 * hidden + head_norms_of(mixer) + biases * c.flag("attention_bias")
        network: Network = routed if sparse[i] else dense
        layers.append(LayerKind(mixer=mixer, network=network, small=small, more=hidden * mixer.heads))
    return made(c, Traits(), layers)


def _step_sparse(c: ConfigReader, count: int, further: int) -> list[bool]:
    """Return which layers have experts: by words, by older files' list of their numbers, or all but the first three."""
    listed = c.value("moe_layers_enum")
    words = c.words("mlp_layer_types", count, further)
    if words is not None:
        return [word == "sparse" for word in words]
    if listed is None:
        return [i >= 3 for i in range(count)]
    numbers = listed.split(",") if isinstance(listed, str) else listed
    try:
        chosen = {int(number) for number in numbers if str(number).strip()}
    except (TypeError, ValueError):
        raise ValueError(f"moe_layers_enum: expected the numbers of layers, got {listed!r}") from None
    return [i in chosen for i in range(count)]


HEAD_SIZES = ("num_attention_heads", "num_key_value_heads", "head_dim")


def _inkling_kinds(c: ConfigReader, count: int) -> list[str]:
    local = c.numbers("local_layer_ids") if c.given("local_layer_ids") else None
    near = set(range(count)) - set(range(5, count, 6)) if local is None else set(local)
    usual = ["hybrid_sliding" if i in near else "hybrid" for i in range(count)]
    c.skip(
        *HEAD_SIZES, *(f"swa_{name}" for name in HEAD_SIZES), "sliding_window_size", "rel_extent"
    )  # one kind may have no layer
    return layer_types(c, count, usual, "hybrid_sliding", "hybrid")


def _inkling_attention(c: ConfigReader, kind: str) -> Attention:
    before = "swa_" if kind == "hybrid_sliding" else ""
    heads, kv_heads, dim = (c.whole(before + name) for name in HEAD_SIZES)
    return Attention(
        heads=heads, kv_heads=kv_heads, head_dim=dim, window=c.whole("sliding_window_size") if before else 0
    )


def inkling(c: ConfigReader) -> Architecture:
    """Return Inkling: scores of distance from the queries, short convolutions around both halves, experts."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kernel, rank = c.whole("conv_kernel_size"), c.whole("d_rel")
    width, dense_width = c.whole("moe_intermediate_size"), c.whole("intermediate_size")
    if c.given("dense_intermediate_size"):
        width, dense_width = c.whole("intermediate_size"), c.whole("dense_intermediate_size")
    first = c.whole("dense_mlp_idx", 0)
    words = c.words("mlp_layer_types", count) or ["dense" if i < first else "sparse" for i in range(count)]
    shared = c.whole("shared_experts")
    sink = c.flag("shared_expert_sink", default=True)
    if not sink or not shared:
        raise ValueError("n_shared_experts, shared_expert_sink: expected 1 or more shared experts in the router")
    plain = experts_of(c.changed({"moe_intermediate_size": width}), Traits(), gated=True)
    routed = msgspec.structs.replace(plain, router=plain.count + shared)
    c.skip("unpadded_vocab_size", "log_scaling_n_floor", "log_scaling_alpha", "number_of_conv_states")
    c.skip("logits_mup_width_multiplier", "rms_norm_eps_moe_gate", "route_scale")
    c.skip("chain_hidden_post_norm", "mtp_hidden_states_first", "mtp_local_layer_ids", "layer_types")
    layers = []
    for kind, word in zip(_inkling_kinds(c, count), words, strict=True):
        mixer = _inkling_attention(c, kind)
        extent = mixer.window or c.whole("rel_extent")
        mixer = msgspec.structs.replace(mixer, places=mixer.heads * rank * extent)
        convolved = kernel * 2 * (mixer.kv_heads * mixer.head_dim + hidden)
        small = 2 * hidden + head_norms_of(mixer) + rank * extent + convolved + 1
        network: Network = routed if word == "sparse" else Dense(width=dense_width)
        layers.append(LayerKind(mixer=mixer, network=network, small=small, more=hidden * mixer.heads * rank))
    further = msgspec.structs.replace(layers[-1], network=Dense(width=dense_width))  # of the modules, never experts
    return made(c, Traits(), layers, beside_parameters=hidden, mtp_stack=runs_of([further]))


def inkling2(c: ConfigReader) -> Architecture:
    """Return Inkling 2: gates, sinks, scores of distance, convolutions, sums over blocks of layers."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kernel, rank = c.whole("conv_kernel_size"), c.whole("d_rel")
    routed = experts_of(c, Traits(), gated=True)
    c.skip("unpadded_vocab_size", "log_scaling_n_floor", "log_scaling_alpha", "qk_l2_clip_threshold")
    c.skip("rel_l2_clip_threshold", "n_layers_per_attn_res_block", "mlp_gate_softcap", "mlp_up_softcap", "route_scale")
    layers = []
    for i, kind in enumerate(_inkling_kinds(c, count)):
        mixer = msgspec.structs.replace(_inkling_attention(c, kind), gate=True)
        whole, keys = kind == "hybrid", mixer.kv_heads * mixer.head_dim
        extent = mixer.window or c.whole("rel_extent")
        mixer = msgspec.structs.replace(mixer, places=mixer.heads * rank * extent)
        small = rank * extent + kernel * 2 * (keys + hidden)
        small += mixer.heads * (mixer.head_dim + rank) + hidden * (4 if whole else 2)  # norms: keys, values apart
        small += hidden * (1 + (i > 0) * (3 if whole else 1))  # queries of the sums
        more = hidden * mixer.heads * (rank + 1) + whole * 2 * hidden * mixer.kv_heads * kernel
        layers.append(LayerKind(mixer=mixer, network=routed, small=small, more=more))
    return made(c, Traits(), layers, beside_parameters=2 * hidden)


def muse(c: ConfigReader) -> Architecture:
    """Return Muse: gated attention in windows, each fourth layer from the last full, experts in a narrower stream."""
    count, hidden = c.layers(), c.whole("hidden_size")
    usual = ["full_attention" if (count - 1 - i) % 4 == 0 else "sliding_attention" for i in range(count)]
    kinds = layer_types(c, count, usual, "sliding_attention")
    plain, window = attention_of_config(c), c.whole("sliding_window", 0)
    stream = c.whole("moe_hidden_size", 0)
    words = c.words("mlp_layer_types", count) or ["sparse" if stream else "dense"] * count
    dense, small = Dense(width=c.whole("intermediate_size")), 4 * hidden
    network: dict[str, tuple[Network, int]] = {"dense": (dense, 0)}
    if stream:
        small = 5 * hidden  # norms before both halves and behind the network, and a gate of each residual
        routed = msgspec.structs.replace(experts_of(c, Traits(), gated=True), latent=stream)
        network["sparse"] = (routed, 2 * stream)
    c.skip("layer_rope_theta", "residual_gate_temperature", "qk_scale_factor", "post_norm_eps")
    biases = (plain.heads + 2 * plain.kv_heads) * plain.head_dim + hidden
    small += biases * c.flag("attention_bias")
    layers = []
    for kind, word in zip(kinds, words, strict=True):
        if word not in network:
            raise ValueError(f"mlp_layer_types: expected {', '.join(network)}, got {word!r}")
        near = window if kind == "sliding_attention" else 0
        of_network, norms = network[word]
        mixer = msgspec.structs.replace(plain, gate=True, window=near)
        layers.append(LayerKind(mixer=mixer, network=of_network, small=small + norms))
    return made(c, Traits(), layers)
