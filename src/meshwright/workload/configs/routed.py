"""Decoders whose experts are found or fed in a way of their own: JetMoE, Zaya, ERNIE's vision models; and Doge."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Dense, Experts, LayerKind, Network
from .decoders import Traits, attention_of_config, decoder, experts_of, made
from .pattern import layer_types
from .reader import ConfigReader


def jetmoe(c: ConfigReader) -> Architecture:
    """Return JetMoE: experts of queries and outputs over shared keys, and experts of the network."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kv_heads, dim = c.whole("num_key_value_heads"), c.whole("kv_channels")
    routed = experts_of(c, Traits(), gated=True)
    if c.given("num_attention_heads") and c.whole("num_attention_heads") != kv_heads * routed.top:
        raise ValueError(
            f"num_attention_heads: expected key-value heads x experts of a token = {kv_heads * routed.top}"
        )
    mixer = Attention(heads=kv_heads * routed.top, kv_heads=kv_heads, head_dim=dim)
    idle = (routed.count - routed.top) * 2 * hidden * kv_heads * dim  # queries and outputs of the other experts
    layer = LayerKind(
        mixer=mixer,
        network=msgspec.structs.replace(routed, unused=idle),
        small=2 * hidden + 2 * hidden,  # norms, and a bias behind each of both
        more=hidden * routed.count,
    )
    return made(c, Traits(tied=True), [layer] * count)


def zaya(c: ConfigReader) -> Architecture:
    """Return Zaya: convolved queries and keys, values half of the token before, a router of layers, scaled sums."""
    count, hidden, rank = c.layers(), c.whole("hidden_size"), c.whole("router_hidden_size")
    kinds = layer_types(c, count, ["hybrid"] * count, "hybrid_sliding", "hybrid")
    plain, window = attention_of_config(c), c.whole("sliding_window", 0)
    first, second = c.whole("cca_time0"), c.whole("cca_time1")
    routed = msgspec.structs.replace(experts_of(c, Traits(), gated=True), router=rank)  # the first of its layers
    channels = (plain.heads + plain.kv_heads) * plain.head_dim
    of_router = rank + rank + 2 * rank  # biases, and a norm
    small = 2 * hidden + channels * (first + 2) + plain.kv_heads + of_router + 8 * hidden
    small += (channels + plain.kv_heads * plain.head_dim) * c.flag("attention_bias")
    small += hidden * c.flag("attention_bias")
    mixed = channels * plain.head_dim * second + 2 * rank * rank + rank * (routed.count + 1)  # one expert does nothing
    layers = [
        LayerKind(
            mixer=msgspec.structs.replace(plain, window=window if kind == "hybrid_sliding" else 0),
            network=routed,
            small=small + rank * (i > 0),
            more=mixed,
        )
        for i, kind in enumerate(kinds)
    ]
    beside = c.whole("vocab_size") * c.flag("lm_head_bias")
    return made(c, Traits(tied=True), layers, beside_parameters=2 * hidden + beside)


def ernie_vl(c: ConfigReader) -> Architecture:
    """Return ERNIE 4.5 of images: experts of text, beside as many of images, narrower, that no token of text visits."""
    widths = c.numbers("moe_intermediate_size") or [1536, 512]
    if len(widths) != 2:
        raise ValueError(f"moe_intermediate_size: expected a width of each kind of experts, got {widths}")
    text, image = widths
    hidden, count = c.whole("hidden_size"), c.layers()
    words = c.words("mlp_layer_types", count) or ["sparse" if i else "dense" for i in range(count)]
    plain = experts_of(c.changed({"moe_intermediate_size": text}), Traits(), gated=True)
    routed = msgspec.structs.replace(plain, unused=plain.count * (3 * hidden * image + hidden))
    dense, mixer, biased = Dense(width=c.whole("intermediate_size")), attention_of_config(c), c.flag("use_bias")
    c.skip("moe_norm_min")
    layers = []
    for word in words:
        network: Network = routed if word == "sparse" else dense
        small = 2 * hidden
        small += ((mixer.heads + 2 * mixer.kv_heads) * mixer.head_dim + hidden) * biased
        width = routed.shared if isinstance(network, Experts) else dense.width
        small += (2 * width + hidden) * (biased and width > 0) + (2 * routed.count if word == "sparse" else 0)
        layers.append(LayerKind(mixer=mixer, network=network, small=small))
    return made(c, Traits(tied=True), layers)


def doge(c: ConfigReader) -> Architecture:
    """Return Doge: attention whose mask is drawn from the values, a scale a channel of each residual."""
    if c.flag("is_moe"):
        raise ValueError("is_moe: expected false; experts of single columns are not counted")
    c.skip("keep_window_size", "experts", "experts_per_token", "sliding_window")
    traits, hidden = Traits(head_norms=True), c.whole("hidden_size")
    found = []
    for layer in (run.layer for run in decoder(c, traits).runs for _ in range(run.count)):
        mixer = layer.mixer
        assert isinstance(mixer, Attention)
        small = layer.small + 2 * hidden + mixer.kv_heads * (1 + c.flag("attention_bias"))
        mask = mixer.kv_heads * mixer.head_dim * mixer.kv_heads
        found.append(msgspec.structs.replace(layer, small=small, more=mask))
    return made(c, traits, found)
