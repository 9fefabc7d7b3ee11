"""Decoders of attention that picks its keys by an indexer, in several residual streams in some of them."""

from math import ceil
from typing import Any

import msgspec

from ..architecture import Architecture
from ..kinds import Experts, GatedDelta, Latent, LayerKind, Mixer
from .decoders import Traits, attention_of_config, experts_of, latent, latents, made, networks_of, picking
from .linear import gated_delta
from .pattern import every_full, head_norms_of, layer_types
from .reader import ConfigReader

SPARSE = {
    "index_n_heads": "sparse_num_index_heads",
    "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size",
    "index_topk_blocks": "sparse_topk_blocks",
}


def streams_of(c: ConfigReader, count: int, columns: int, gates: int) -> dict[str, int]:
    """Return what hyper-connections of `count` streams add to a layer: two mixers of `columns`, a bias each, `gates`.

    Raises nothing; says that checkpoints and sends are counted as of one stream.
    """
    hidden = c.whole("hidden_size")
    if count > 1:
        c.assumed.append(f"{count} residual streams: checkpoints and sends between stages are counted as of one")
    return {"small": 2 * (columns + gates), "more": 2 * columns * count * hidden, "streams": (count - 1) * hidden}


def minimax_m3(c: ConfigReader) -> Architecture:
    """Return MiniMax-M3: grouped attention that picks blocks of keys in the layers that are listed, experts."""
    count, hidden = c.layers(), c.whole("hidden_size")
    inside = c.part("sparse_attention_config")
    listed = inside.get("sparse_attention_freq")
    kinds = ["minimax_m3_sparse" if flag else "full_attention" for flag in listed or [0] * count]
    if len(kinds) != count:
        raise ValueError(f"sparse_attention_config: expected sparse_attention_freq for each of {count} layers")
    kinds = layer_types(c, count, kinds, "minimax_m3_sparse")
    sizes = {key: inside.get(old) or c.whole(key) for key, old in SPARSE.items()}
    c.skip("index_local_blocks", "rotary_dim")  # local blocks are among the blocks picked
    plain = attention_of_config(c)
    sparse = msgspec.structs.replace(
        plain,
        index_heads=sizes["index_n_heads"],
        index_dim=sizes["index_head_dim"],
        index_top=sizes["index_topk_blocks"] * sizes["index_block_size"],
    )
    networks = networks_of(c, Traits(experts="after_first", dense_key="dense_intermediate_size"), count)
    small = 2 * hidden + head_norms_of(plain)
    layers = [
        LayerKind(mixer=plain, network=network, small=small)
        if kind == "full_attention"
        else LayerKind(mixer=sparse, network=network, small=small + 2 * sparse.index_dim)
        for kind, network in zip(kinds, networks, strict=True)
    ]
    return made(c, Traits(), layers)


QSA = ("indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio")


def qwen4_exp(c: ConfigReader) -> Architecture:
    """Return Qwen4: delta rule, attention that picks keys by means of blocks, streams, tables of n-grams, experts."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = layer_types(
        c, count, every_full(c, count, c.whole("full_attention_interval", 4)), "indexed_attention", "linear_attention"
    )
    heads, keys, dim, budget, rate = (c.whole(name) for name in QSA)
    if keys != 1 or not rate or budget % rate:
        raise ValueError("indexer_kv_heads, indexer_budget: expected 1 key head, and whole blocks of keys")
    plain = attention_of_config(c)
    index = {"index_heads": heads, "index_dim": dim, "index_top": budget, "index_rate": rate}
    full = msgspec.structs.replace(plain, gate=True, **index)
    biases = (2 * full.heads + 2 * full.kv_heads) * full.head_dim + hidden
    of_full = head_norms_of(full) + 2 * dim + biases * c.flag("attention_bias")
    delta, of_delta = gated_delta(c)
    routed = experts_of(c, Traits(shared_gate=True), gated=True)
    streams, rank = c.whole("hc_count"), c.whole("hc_lowrank")
    wide = streams * hidden
    hyper = streams_of(c, streams, 2 * rank + streams, 0) | {"small": 2 * wide}  # norms alone, no biases
    c.skip("output_gate_type", "number_of_conv_states")
    tables = _ngrams(c, wide, count)

    def layer(i: int, kind: str) -> LayerKind:
        mixer: Mixer = delta if kind == "linear_attention" else full
        small, more = tables.get(i, (0, 0))
        small += hyper["small"] + (of_delta if kind == "linear_attention" else of_full)
        return LayerKind(mixer=mixer, network=routed, small=small, more=hyper["more"] + more, streams=hyper["streams"])

    layers = [layer(i, kind) for i, kind in enumerate(kinds)]
    return made(c, Traits(), layers, beside_parameters=wide - hidden, beside_weights=2 * rank * wide)


def _ngrams(c: ConfigReader, wide: int, count: int) -> dict[int, tuple[int, int]]:
    """Return the small parameters and the weights of layers that look up n-grams; a table has a prime of rows."""
    listed = sorted(set(c.numbers("ple_layer_ids") or []))
    hidden, heads = c.whole("hidden_size"), (c.whole("ngram_size") - 1) * c.whole("heads_per_ngram")
    dim, least = c.whole("ple_embed_dim", hidden), c.whole("ngram_vocab_size_base")
    kernel, parts = c.whole("ple_conv_kernel_size"), c.whole("make_ngram_vocab_size_divisible_by")
    c.skip("seed", "split_ngram_parts")
    if not listed:
        return {}
    if not heads or dim % heads or not parts or any(not 1 <= i <= count for i in listed):
        raise ValueError("ple_layer_ids, ple_embed_dim: expected layers from 1 on, and as much for every n-gram head")
    sizes = _primes(least, heads * len(listed))
    found = {}
    for place, i in enumerate(listed):
        rows = ceil(sum(sizes[place * heads : (place + 1) * heads]) / parts) * parts
        found[i - 1] = (rows * (dim // heads) + wide * (3 + kernel), dim * (wide + hidden))
    return found


def _primes(least: int, count: int) -> list[int]:
    """Return the first primes that are not below `least`."""
    found: list[int] = []
    number = max(least, 2)
    while len(found) < count:
        if all(number % factor for factor in range(2, int(number**0.5) + 1)):
            found.append(number)
        number += 1
    return found


def mistral_large4(c: ConfigReader) -> Architecture:
    """Return Mistral Large 4: latent attention without a query rank, an indexer, keys that layers share, experts."""
    count, hidden = c.layers(), c.whole("hidden_size")
    plain = latent(c)
    if plain.q_rank:
        raise ValueError("q_lora_rank: expected none: its class projects queries directly")
    rotary = c.numbers("no_rope_layers") if c.given("no_rope_layers") else None
    period = c.whole("no_rope_layer_interval", 4)
    if rotary is None:
        rotary = [int(not period or (i + 1) % period != 0) for i in range(count)]
    sources = c.numbers("kv_source_layers") if c.given("kv_source_layers") else None
    sources = list(range(count)) if sources is None else sources
    if len(rotary) != count or len(sources) != count:
        raise ValueError(f"no_rope_layers, kv_source_layers: expected a number for each of the {count} layers")
    networks = networks_of(c, Traits(experts="after_first", first_dense=1, network_bias=False), count)
    biased, layers = c.flag("attention_bias"), []
    for i, (mixer, network) in enumerate(zip(latents(c, count), networks, strict=True)):
        assert isinstance(mixer, Latent)
        if not rotary[i]:
            nope = mixer.nope_dim + mixer.rope_dim
            mixer = msgspec.structs.replace(mixer, nope_dim=nope, rope_dim=0)
        down = mixer.kv_rank + mixer.rope_dim
        own = sources[i] == i
        small = 2 * hidden + 2 * mixer.heads + mixer.kv_rank * own + biased * (hidden + down * own)
        if mixer.index_heads:
            small += 2 * hidden + 2 * mixer.index_dim + 2 * mixer.index_heads
        layers.append(LayerKind(mixer=mixer, network=network, small=small, more=-hidden * down * (not own)))
    return made(c, Traits(), layers)


def hy_v4(c: ConfigReader) -> Architecture:
    """Return Hunyuan 4: latent attention with an indexer, sinks and a gate, several streams, experts."""
    count, hidden, streams = c.layers(), c.whole("hidden_size"), c.whole("hc_mult")
    hyper = streams_of(c, streams, 2 * streams, 2)
    c.skip("hc_magnitude", "learnable_sink_init")
    networks = networks_of(c, Traits(experts="after_first", first_dense=1, network_bias=False), count)
    layers = [
        _with_streams(_of_latent(c, mixer, network, more=hidden * mixer.out_width, small=mixer.heads), hyper)
        for mixer, network in zip(latents(c, count, every=4), networks, strict=True)
    ]
    beside = {"beside_weights": streams * streams * hidden, "beside_parameters": streams + 1}
    return made(c, Traits(), layers, **beside)


def glm5_next(c: ConfigReader) -> Architecture:
    """Return GLM-5.3: delta rule with a decay a channel, latent attention that picks pools of keys, streams."""
    count, hidden, inside = c.layers(), c.whole("hidden_size"), c.part("linear_attn_config")
    words = c.words("layer_types", count) or []
    kinds = ["indexed_attention" if i % 4 == 3 else "linear_attention" for i in range(count)]
    kinds = layer_types(c, count, kinds, "indexed_attention", "linear_attention") if words else kinds
    heads = inside.get("num_heads") or c.whole("linear_num_heads")
    dim = inside.get("head_dim") or c.whole("linear_head_dim")
    kernel = inside.get("short_conv_kernel_size") or c.whole("linear_conv_kernel_dim")
    delta = GatedDelta(key_heads=heads, value_heads=heads, key_dim=dim, value_dim=dim, conv_kernel=kernel)
    delta = msgspec.structs.replace(delta, gate_rank=dim, decay_rank=dim)
    of_delta = 2 * hidden + heads * dim + heads + 3 * heads * dim * kernel + dim
    plain, pool = latent(c), c.whole("index_kpool")
    if not plain.q_rank or plain.rope_dim or not pool or plain.index_top % pool:
        raise ValueError("q_lora_rank, qk_rope_head_dim, index_kpool: expected a rank, no rotary part, and whole pools")
    c.skip("linear_lower_bound", "hc_sinkhorn_iters", "index_kpool_always_select_tail", "head_dim")
    picks = picking(c, count)
    streams = c.whole("hc_mult")
    hyper = streams_of(c, streams, (2 + streams) * streams, 3)
    networks = networks_of(c, Traits(experts="after_first", first_dense=3, network_bias=False), count)
    layers = []
    for kind, own, network in zip(kinds, picks, networks, strict=True):
        if kind == "linear_attention":
            layer = LayerKind(mixer=delta, network=network, small=of_delta)
        elif own:
            mixer = msgspec.structs.replace(plain, index_rate=pool)
            pooled = mixer.index_dim
            layer = _of_latent(c, mixer, network, more=hidden * pooled, small=pool * pooled)
        else:
            layer = _of_latent(c, msgspec.structs.replace(plain, index_heads=0, index_dim=0), network)
        layers.append(_with_streams(layer, hyper))
    return made(c, Traits(), layers)


def _of_latent(c: ConfigReader, mixer: Mixer, network: Any, *, more: int = 0, small: int = 0) -> LayerKind:
    """Return a layer of latent attention with its norms and biases, and what a family adds to them."""
    assert isinstance(mixer, Latent)
    hidden = c.whole("hidden_size")
    small += 2 * hidden + mixer.q_rank + mixer.kv_rank + 2 * mixer.index_dim
    small += (mixer.q_rank + mixer.kv_rank + mixer.rope_dim + hidden) * c.flag("attention_bias")
    return LayerKind(mixer=mixer, network=network, small=small, more=more)


def _with_streams(layer: LayerKind, hyper: dict[str, int]) -> LayerKind:
    return msgspec.structs.replace(
        layer, small=layer.small + hyper["small"], more=layer.more + hyper["more"], streams=hyper["streams"]
    )


WINDOWED_SIZES = {  # of Dots 3's layers in windows, where its config says nothing under swa_
    "num_attention_heads": 64,
    "q_lora_rank": 1024,
    "kv_lora_rank": 1024,
    "head_dim": 256,
    "qk_nope_head_dim": 192,
    "v_head_dim": 128,
}


def dots3_note(c: ConfigReader) -> Architecture:
    """Return Dots 3: latent attention with an indexer or in a window, of sizes of their own, gated heads, experts."""
    count, hidden = c.layers(), c.whole("hidden_size")
    windows, listed = c.flag("use_sliding_window", default=True), bool(c.part("per_layer_config"))
    usual = ["indexed_attention" if not windows or i < 2 or i % 4 == 1 else "sliding_attention" for i in range(count)]
    kinds = layer_types(c, count, usual, "indexed_attention", "sliding_attention")
    dense = c.says("use_dsa") and not c.flag("use_dsa")
    if (any(kind == "full_attention" for kind in kinds) and listed) or dense:
        raise ValueError("use_dsa: expected true; full attention without an indexer is not counted")
    window = c.whole("sliding_window", c.whole("sliding_window_size", 512))
    c.skip(*(f"swa_{name}" for name in WINDOWED_SIZES), "swa_num_key_value_heads", "swa_rope_theta", "head_dim")
    c.skip("sliding_window_size", "shared_experts_intermediate_size", "num_key_value_heads")
    networks = [
        msgspec.structs.replace(network, shared=c.whole("shared_experts") * _dots_shared(c))
        if isinstance(network, Experts)
        else network
        for network in networks_of(c, Traits(experts="after_first", first_dense=1, network_bias=False), count)
    ]
    if c.flag("mlp_bias"):
        raise ValueError("mlp_bias: expected false")
    layers = []
    for i, (kind, network) in enumerate(zip(kinds, networks, strict=True)):
        one = c.of_layer(i)
        if kind == "sliding_attention":
            one = one if listed else _windowed(c)
            mixer = msgspec.structs.replace(latent(one), window=window, index_heads=0, index_dim=0, index_top=0)
        else:
            mixer = latent(one)
        layers.append(_of_latent(c, mixer, network, more=hidden * mixer.heads, small=mixer.rope_dim))
    return made(c, Traits(), layers)


def _dots_shared(c: ConfigReader) -> int:
    return c.whole("moe_shared_expert_intermediate_size", 0) or c.whole("shared_experts_intermediate_size")


def _windowed(c: ConfigReader) -> ConfigReader:
    """Return the reader of Dots 3's layers in windows, whose sizes stand under swa_."""
    sizes = {name: c.whole(f"swa_{name}", usual) for name, usual in WINDOWED_SIZES.items()}
    rotary = c.whole("swa_qk_rope_head_dim", sizes["head_dim"] - sizes["qk_nope_head_dim"])
    return c.changed(sizes | {"qk_rope_head_dim": rotary})
