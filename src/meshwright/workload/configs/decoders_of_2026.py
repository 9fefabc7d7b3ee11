"""Decoders of 2026 whose layers differ in windows, heads and gates, beside experts in most of them."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, Compressed, Dense, Experts, GatedDelta, Latent, LayerKind, ShortConv
from .decoders import Traits, attention_of_config, decoder, experts_of, latent, made, networks_of
from .pattern import every_full, head_norms_of, layer_types
from .reader import ConfigReader

FLINT = Traits(experts="by_step", head_norms=True, network_bias=False, sinks=True)
LAGUNA = Traits(
    experts="after_first", first_dense=1, head_norms=True, network_bias=False, passed=("moe_router_logit_softcapping",)
)
GATES = {True: "per-head", False: "per-element", None: "per-head"}


def flint(c: ConfigReader) -> Architecture:
    """Return Flint: full attention in the first two, every fourth and the last layer, windows in the others."""
    count = c.layers()
    full = [i < 2 or i % 4 == 1 or i == count - 1 for i in range(count)]
    kinds = layer_types(
        c, count, ["full_attention" if whole else "sliding_attention" for whole in full], "sliding_attention"
    )
    window = c.whole("sliding_window", 0)
    found = [
        _with(layer, window=window) if kind == "sliding_attention" else layer
        for layer, kind in zip(_layers(decoder(c, FLINT)), kinds, strict=True)
    ]
    return made(c, FLINT, found)


def laguna(c: ConfigReader) -> Architecture:
    """Return Laguna: attention whose heads differ by layer, each gated by a number a head or an element."""
    count, hidden = c.layers(), c.whole("hidden_size")
    heads = c.numbers("num_attention_heads_per_layer") or [c.whole("num_attention_heads")] * count
    if len(heads) != count:
        raise ValueError(f"num_attention_heads_per_layer: expected a number for each of the {count} layers")
    said = c.value("gating", True)
    gating = GATES[said] if isinstance(said, bool) else said
    if gating not in {"per-head", "per-element"}:
        raise ValueError(f"gating: expected true, per-head or per-element, got {said!r}")
    if c.flag("moe_apply_router_weight_on_input"):
        raise ValueError("moe_apply_router_weight_on_input: expected false")
    biased, usual = c.flag("attention_bias"), c.whole("num_attention_heads")
    found = []
    for layer, many in zip(_layers(decoder(c, LAGUNA)), heads, strict=True):
        layer = _with(layer, heads=many, gate=gating == "per-element")
        small = layer.small + (many - usual) * c.whole("head_dim") * biased  # biases of the queries
        found.append(msgspec.structs.replace(layer, more=hidden * many * (gating == "per-head"), small=small))
    return made(c, LAGUNA, found)


def axk2(c: ConfigReader) -> Architecture:
    """Return A.X-K2: latent attention with an indexer and an output gate, norms that low ranks gate, experts."""
    hidden, rank = c.whole("hidden_size"), c.whole("gated_norm_rank", 16)
    traits = Traits(latent=True, experts="after_first", first_dense=1, network_bias=False)
    if not c.whole("q_lora_rank", 0):
        raise ValueError("q_lora_rank: expected 1 or more: indexer and gate read it")
    found = []
    for layer in _layers(decoder(c, traits)):
        mixer = layer.mixer
        assert isinstance(mixer, Latent)
        # queries and gate in one product, of the rank before and behind its norm
        wide = mixer.nope_dim + mixer.rope_dim + 2 * mixer.value_dim
        gates = 2 * hidden * rank * (2 if isinstance(layer.network, Experts) else 1)
        found.append(msgspec.structs.replace(layer, more=mixer.q_rank * mixer.heads * wide + gates))
    return made(c, traits, found)


def bailing_hybrid(c: ConfigReader) -> Architecture:
    """Return Ling 3.0: delta rule with a decay a channel, and latent attention in the last layer of each group."""
    count, hidden, heads = c.layers(), c.whole("hidden_size"), c.whole("num_attention_heads")
    kinds = layer_types(c, count, every_full(c, count, c.whole("layer_group_size", 6)))
    if c.flag("tied"):
        raise ValueError("tie_word_embeddings: expected false")
    if c.whole("q_lora_rank", 0):
        raise ValueError("q_lora_rank: expected none: its class projects queries directly")
    # names of the class come first where a config has them; its own default of head_dim is that of the rotary part
    width = "linear_head_dim" if c.given("linear_head_dim") or not c.given("head_dim") else "head_dim"
    kernel = "linear_conv_kernel_dim" if c.given("linear_conv_kernel_dim") else "short_conv_kernel_size"
    many, dim = c.whole("linear_num_heads") if c.given("linear_num_heads") else heads, c.whole(width, 128)
    delta = GatedDelta(key_heads=many, value_heads=many, key_dim=dim, value_dim=dim, conv_kernel=c.whole(kernel, 4))
    of_delta = many * dim + many + 3 * many * dim * delta.conv_kernel + dim
    full = latent(c)
    of_full = full.kv_rank + (full.kv_rank + full.rope_dim + hidden) * c.flag("attention_bias")
    c.skip("kda_safe_gate", "kda_lower_bound", "head_dim", "short_conv_kernel_size")
    layers = [
        LayerKind(mixer=delta, network=network, small=2 * hidden + of_delta, more=hidden * many * (dim - 1))
        if kind == "linear_attention"
        else LayerKind(mixer=full, network=network, small=2 * hidden + of_full, more=hidden * heads)
        for kind, network in zip(kinds, networks_of(c, Traits(experts="after_first"), count), strict=True)
    ]
    return made(c, Traits(), layers)


def lfm3(c: ConfigReader) -> Architecture:
    """Return LFM3: short convolutions, windows and full attention whose heads are gated, norms on both sides."""
    count, hidden = c.layers(), c.whole("hidden_size")
    usual = [
        "full_attention" if i % 4 == 2 else "sliding_attention" if i and i % 4 == 0 else "conv" for i in range(count)
    ]
    kinds = layer_types(c, count, usual, "sliding_attention", "conv")
    plain, conv = attention_of_config(c), ShortConv(width=hidden, kernel=c.whole("conv_L_cache", 7))
    window, dense = c.whole("sliding_window", 0), Dense(width=c.whole("intermediate_size"))
    norms = hidden * (4 if c.flag("use_sandwich_norm", default=True) else 2)
    of_conv = hidden * (conv.kernel + (5 if c.flag("conv_bias") else 0))
    biases = (plain.heads + 2 * plain.kv_heads) * plain.head_dim + hidden
    of_full = head_norms_of(plain) + biases * c.flag("attention_bias")
    gate = hidden * plain.heads * c.flag("use_attention_gate", default=True)
    layers = []
    for kind in kinds:
        if kind == "conv":
            layers.append(LayerKind(mixer=conv, network=dense, small=norms + of_conv))
            continue
        mixer = msgspec.structs.replace(plain, window=window if kind == "sliding_attention" else 0)
        layers.append(LayerKind(mixer=mixer, network=dense, small=norms + of_full, more=gate))
    return made(c, Traits(tied=True), layers)


RATES = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def deepseek_v4(c: ConfigReader) -> Architecture:
    """Return DeepSeek-V4: attention over a window and means of tokens, experts in every layer, several streams."""
    count, hidden = c.layers(), c.whole("hidden_size")
    rates = _rates(c)
    kinds, streams = _compressed_kinds(c, count), c.whole("hc_mult", 4)
    if c.flag("attention_bias") or c.flag("mlp_bias"):
        raise ValueError("attention_bias, mlp_bias: expected false")
    c.skip("mlp_layer_types", "num_hash_layers", "hc_sinkhorn_iters", "qk_rope_head_dim", "compress_rope_theta")
    c.skip("expert_dtype", "intermediate_size", "num_key_value_heads")
    words = c.words("mlp_layer_types", count) or []
    if not set(words) <= {"hash_moe", "moe"}:
        raise ValueError(f"mlp_layer_types: expected hash_moe or moe for each of the {count} layers")
    if c.whole("shared_experts", 1) != 1:
        raise ValueError("n_shared_experts: expected 1")
    routed = experts_of(c, Traits(one_shared=True), gated=True)
    if streams > 1:
        c.assumed.append(f"{streams} residual streams: checkpoints and sends between stages are counted as of one")
    mixes = (2 + streams) * streams  # what a layer's halves read of the streams, write to them, and mix among them
    layers = []
    for kind in kinds:
        mixer = _compressed(c, kind, rates[kind])
        small = 2 * hidden + mixer.q_rank + mixer.head_dim + mixer.heads + 2 * (mixes + 3)
        if mixer.rate:  # norms of means, and a weight for each place in a group
            small += mixer.head_dim * (1 + mixer.rate * (2 if mixer.overlap else 1))
            small += mixer.index_dim * (1 + 2 * mixer.rate)
        layers.append(
            LayerKind(
                mixer=mixer,
                network=routed,
                small=small,
                more=2 * mixes * streams * hidden,
                streams=(streams - 1) * hidden,
            )
        )
    return made(c, Traits(), layers, beside_weights=streams * streams * hidden, beside_parameters=streams + 1)


def _rates(c: ConfigReader) -> dict[str, int]:
    """Return how many tokens a mean is over, by the kind of a layer."""
    old = {"compressed_sparse_attention": "compress_rate_csa", "heavily_compressed_attention": "compress_rate_hca"}
    given = c.part("compress_rates")
    found = {kind: c.whole(old[kind], given.get(kind, rate)) if rate else 0 for kind, rate in RATES.items()}
    for kind, rate in found.items():
        if kind in old and (isinstance(rate, bool) or not isinstance(rate, int) or rate < 1):
            raise ValueError(f"compress_rates: {kind}: expected 1 or more, got {rate!r}")
    return found


def _compressed_kinds(c: ConfigReader, count: int) -> list[str]:
    """Return the kind of each layer: by name, by the rates of older files, or each second one alternating."""
    named, listed = c.words("layer_types", count), c.numbers("compress_ratios")
    if named is None and listed is not None:
        words = {rate: kind for kind, rate in RATES.items()}
        if len(listed) < count or not set(listed) <= words.keys():
            raise ValueError(f"compress_ratios: expected 0, 4 or 128 for each of the {count} layers")
        named = [words[rate] for rate in listed[:count]]
    kinds = ("heavily_compressed_attention", "compressed_sparse_attention")
    found = named or [kinds[i % 2 if i >= 2 else 0] for i in range(count)]
    if not set(found) <= RATES.keys():
        raise ValueError(f"layer_types: expected {', '.join(RATES)} for each of the {count} layers")
    return found


def _compressed(c: ConfigReader, kind: str, rate: int) -> Compressed:
    sparse = kind == "compressed_sparse_attention"
    names = {"index_heads": "index_n_heads", "index_dim": "index_head_dim", "index_top": "index_topk"}
    index = {name: c.whole(key) for name, key in names.items()}
    found = Compressed(
        heads=c.whole("num_attention_heads"),
        head_dim=c.whole("head_dim"),
        q_rank=c.whole("q_lora_rank"),
        groups=c.whole("o_groups"),
        group_rank=c.whole("o_lora_rank"),
        window=c.whole("sliding_window"),
        rate=rate,
        overlap=sparse,
        **(index if sparse else {}),
    )
    if not found.groups or found.heads % found.groups:
        raise ValueError(f"o_groups: {found.groups} does not divide num_attention_heads {found.heads}")
    return found


def _layers(model: Architecture) -> list[LayerKind]:
    return [run.layer for run in model.runs for _ in range(run.count)]


def _with(layer: LayerKind, **changed: int | bool) -> LayerKind:
    """Return a layer whose attention is changed."""
    mixer = layer.mixer
    assert isinstance(mixer, Attention)
    other = msgspec.structs.replace(mixer, **changed)
    return msgspec.structs.replace(layer, mixer=other)
