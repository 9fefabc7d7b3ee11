"""Decoders: how the config of a stack of attention and networks is read; what sets families apart is in `Traits`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from ..architecture import MOST_LAYERS, Architecture, Positions
from ..kinds import Attention, Dense, Experts, Latent, LayerKind, Mixer, Network, runs_of
from .reader import ConfigReader

NORMED = ("use_qk_norm", "qk_norm", "qk_layernorm", "use_qk_layernorm")  # say that queries and keys are normed
Switch = bool | tuple[str, ...]  # fixed, or the keys that say it
WHOLE = frozenset({"full_attention", "full", "attention", "global"})
WINDOWED = frozenset({"sliding_attention", "sliding", "local", "swa"})
INDEXED = frozenset({"indexed_attention", "deepseek_sparse_attention"})
CHUNKED = frozenset({"chunked_attention"})
LEARNED = {"xielu": 2, "prelu": 1}  # numbers that an activation function learns


@dataclass(frozen=True, slots=True)
class Traits:
    """The differences of a family from Llama."""

    gated: Switch = True
    layer_norm: bool = False  # weight and bias
    norm_weights: bool = True  # norms without any parameters: False
    norm_bias: bool | None = None  # None: as layer_norm
    norms: int = 2  # of the residual stream, a layer
    one_norm: Switch = False  # one less: attention and network read the same
    post_norms: Switch = False  # two more behind attention and network
    expert_norm: bool = False  # one more behind the experts
    inner_norms: bool = False  # one before each output projection, as wide as what enters it
    qkv_bias: Switch = ("attention_bias",)
    out_bias: Switch = ("attention_bias",)
    network_bias: Switch = ("mlp_bias",)
    head_bias: Switch = False
    head_norms: Switch = False  # norms of queries and keys, a head wide
    wide_norms: Switch = False  # norms of queries and keys, as wide as they are
    sinks: bool = False  # a learned logit a head
    tied: bool = False  # unless the config says
    positions: Positions = "rotary"
    extra_positions: int = 0  # rows of a learned table beyond max_position_embeddings
    inner: float = 0.0  # intermediate_size over hidden_size, where the config does not say; 0: it must
    every: tuple[str, int] | None = None  # key ("": none) and default of a pattern: each so-many-th layer is full
    every_at: int = -1  # which layer of such a period is full, others being windowed
    prefix_every: str = ""  # key of another such pattern, of the first layers without experts (1)
    windowed: bool = False  # sliding_window, where it is given, holds for all layers
    first_dense: int = 0  # layers without experts, where the config does not say
    dense_key: str = "intermediate_size"  # of the dense network
    top: int = 0  # experts of a token, whatever a key says (0: as it says)
    must_share: bool = False  # where no width of a shared network is said, the class takes the dense network's
    one_shared: bool = False  # a shared network as wide as an expert, though no key says so
    masked: bool = True
    window_key: str = "sliding_window"
    experts: str = ""  # how layers with experts are found; "": there are none
    shared_gate: bool = False
    router_bias: bool = False  # that is learned by gradient
    expert_bias: bool = False
    latent: bool = False
    square: bool = False  # heads together are as wide as the residual stream
    embedding_norm: bool = False
    passed: tuple[str, ...] = ()  # keys of published configs that the class passes over
    fixed: tuple[tuple[str, Any], ...] = ()  # such keys, which hold what the class does, or would change a size
    switched: tuple[tuple[str, str], ...] = ()  # switches, and the key that means nothing while one is off


def decoder(c: ConfigReader, traits: Traits) -> Architecture:
    """Return the architecture of a decoder."""
    count = c.layers()
    c.fixed(dict(traits.fixed))
    c.skip(*traits.passed, *(key for switch, key in traits.switched if not c.alone(switch)))
    mixers, networks = mixers_of(c, traits, count), networks_of(c, traits, count)
    layers = [
        LayerKind(mixer=mixer, network=network, small=_small(c, traits, mixer, network))
        for mixer, network in zip(mixers, networks, strict=True)
    ]
    return made(c, traits, layers)


def made(c: ConfigReader, traits: Traits, layers: list[LayerKind], **more: Any) -> Architecture:
    """Return an architecture of these layers, with the embedding, the output and the last norm around them."""
    hidden, vocab = c.whole("hidden_size"), c.whole("vocab_size")
    positions = c.whole("max_position_embeddings", 0)
    c.skip(*(() if traits.positions == "learned" else ("max_position_embeddings",)))
    c.skip(*(key for key in NORMED if True in (traits.head_norms, traits.wide_norms) and c.alone(key) is True))
    beside = traits.extra_positions * hidden + vocab * switch(c, traits.head_bias)
    norm = hidden * (1 + _norm_bias(traits)) if traits.norm_weights else 0
    beside += norm * traits.embedding_norm + norm - hidden * (2 if traits.layer_norm else 1)
    values: dict[str, Any] = {
        **summary(layers),
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": len(layers),
        "max_position_embeddings": positions,
        "norm": "layer" if traits.layer_norm else "rms",
        "tied": c.flag("tied", default=traits.tied),
        "positions": traits.positions,
        "head_norms": any(isinstance(layer.mixer, Attention) for layer in layers) and switch(c, traits.head_norms),
        **further_tokens(c, layers),
        "beside_parameters": beside,
        "stack": runs_of(layers),
    } | more
    whole = Architecture(**values)
    if not (whole.intermediate_size or whole.experts):
        return whole
    plain = Architecture(**{**values, "stack": ()})
    return plain if plain.runs == whole.stack else whole


def further_tokens(c: ConfigReader, layers: list[LayerKind]) -> dict[str, Any]:
    """Return how many modules predict further tokens, and the layers of one where it has several."""
    count = c.whole("num_nextn_predict_layers", 0) or c.whole("mtp_num_hidden_layers", 0)
    if count or not c.flag("use_mtp"):
        return {"mtp_layers": count}
    each = c.whole("mtp_transformer_layers", 1)  # of MiniMax's modules
    stack = runs_of([layers[-1]] * min(each, MOST_LAYERS)) if each > 1 else ()
    return {"mtp_layers": c.whole("num_mtp_modules", 0), "mtp_stack": stack}


def summary(layers: list[LayerKind]) -> dict[str, Any]:
    """Return the heads, widths and experts of the commonest attention and network, as `Architecture` names them."""
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    networks = [layer.network for layer in layers if layer.network is not None]
    found: dict[str, Any] = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 1}
    chosen = most([mixer for mixer in mixers if isinstance(mixer, Attention | Latent)] or mixers)
    if isinstance(chosen, Attention):
        found = {"num_attention_heads": chosen.heads, "num_key_value_heads": chosen.kv_heads}
        found |= {"head_dim": chosen.head_dim, "value_dim": chosen.value_dim}
    elif isinstance(chosen, Latent):
        found = {"num_attention_heads": chosen.heads, "num_key_value_heads": chosen.heads, "q_rank": chosen.q_rank}
        found |= {"head_dim": chosen.nope_dim + chosen.rope_dim, "value_dim": chosen.value_dim}
        found |= {"kv_rank": chosen.kv_rank, "rope_dim": chosen.rope_dim}
    elif chosen is not None:
        heads = getattr(chosen, "heads", 0) or getattr(chosen, "value_heads", 0) or 1
        found = {"num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": chosen.out_width // heads}
    dense, routed = most([n for n in networks if isinstance(n, Dense)]), [n for n in networks if isinstance(n, Experts)]
    found |= {"intermediate_size": dense.width if isinstance(dense, Dense) else 0}
    experts = most(routed)
    if isinstance(experts, Experts):
        found |= {"experts": experts.count, "experts_per_token": experts.top, "expert_size": experts.width}
        found |= {"expert_groups": experts.groups, "top_groups": experts.top_groups}
        found |= {"shared_size": experts.shared, "dense_layers": len(layers) - len(routed)}
    gated = experts or dense
    return found | {"gated": gated.gated if isinstance(gated, Dense | Experts) else True}


def most(items: list[Any]) -> Any:
    """Return the commonest of some kinds, the first of several, None of none."""
    return max(items, key=items.count, default=None)


def switch(c: ConfigReader, value: Switch) -> bool:
    """Return a switch that a family fixes, or that keys say."""
    return value if isinstance(value, bool) else c.flag(*value)


def mixers_of(c: ConfigReader, traits: Traits, count: int) -> list[Mixer]:
    """Return the attention of each layer."""
    if traits.latent:
        return [*latents(c, count)]
    plain = msgspec.structs.replace(attention_of_config(c), masked=traits.masked)
    if traits.square and plain.out_width != c.whole("hidden_size"):
        raise ValueError(f"head_dim: expected hidden_size / num_attention_heads, got {plain.head_dim}")
    window = c.whole(traits.window_key, 0)
    chunk = c.whole("attention_chunk_size", 0)
    kinds = c.words("layer_types", count)
    if any(number != 1 for number in c.numbers("attn_type_list") or []):
        raise ValueError("attn_type_list: expected 1, full attention, for every layer")
    if kinds is None:
        kinds = _chunked(c, count) if chunk else _pattern(c, traits, count, window)
    elif traits.every is not None:
        c.skip(traits.every[0], traits.prefix_every)
    by_kind = dict.fromkeys(WHOLE, plain)
    by_kind |= dict.fromkeys(WINDOWED, Attention(**_fields(plain, window=window)))
    by_kind |= dict.fromkeys(CHUNKED, Attention(**_fields(plain, chunk=chunk)))
    for kind in kinds:
        if kind not in by_kind:
            raise ValueError(f"layer_types: expected {', '.join(sorted(by_kind))}, got {kind!r}")
    return [by_kind[kind] for kind in kinds]


def _pattern(c: ConfigReader, traits: Traits, count: int, window: int) -> list[str]:
    if traits.every is not None:
        key, default = traits.every
        letters = c.value(key)
        if isinstance(letters, str):  # a letter a layer, over again: L local, G global
            if not letters or set(letters) > {"L", "G"}:
                raise ValueError(f"{key}: expected a number, or letters L and G, got {letters!r}")
            return ["full" if letters[i % len(letters)] == "G" else "sliding" for i in range(count)]
        period = c.whole(key, default)
        at = traits.every_at % period if period else 0
        first = min(c.whole("first_k_dense_replace", 0), count) if traits.prefix_every else 0
        own = c.whole(traits.prefix_every, 1) if traits.prefix_every else 0
        before = ["full" if own and (i + 1) % own == 0 else "sliding" for i in range(first)]
        return before + ["full" if period and i % period == at else "sliding" for i in range(count - first)]
    if c.flag("use_sliding_window"):
        first = c.whole("max_window_layers", 0)
        return ["sliding" if i >= first else "full" for i in range(count)]
    c.skip("max_window_layers")
    return ["sliding" if traits.windowed and window else "full"] * count


def _chunked(c: ConfigReader, count: int) -> list[str]:
    """Return the layers of Llama 4: those with rotary positions attend in chunks; all but every fourth, or a list."""
    period = c.whole("no_rope_layer_interval", 4)
    rotary = c.numbers("no_rope_layers") or [int(not period or (i + 1) % period != 0) for i in range(count)]
    if len(rotary) != count:
        raise ValueError(f"no_rope_layers: expected a number for each of the {count} layers")
    return ["chunked_attention" if each else "full" for each in rotary]


def attention_of_config(c: ConfigReader) -> Attention:
    """Return the attention that the heads of a config describe."""
    hidden, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
    groups = c.whole("num_key_value_heads", heads)
    if heads and not groups:
        raise ValueError(f"{c.found('num_key_value_heads')}: expected 1 or more, got 0")
    return Attention(heads=heads, kv_heads=groups, head_dim=head_dim(c, hidden, heads))


def head_dim(c: ConfigReader, hidden: int, heads: int) -> int:
    """Return the width of a head."""
    if c.given("head_dim") and not c.whole("head_dim"):
        raise ValueError(f"{c.found('head_dim')}: expected 1 or more, got 0")
    return c.whole("head_dim", 0) or even(hidden, heads)


def even(hidden: int, heads: int) -> int:
    """Return the width of a head where the heads share the residual stream's width."""
    if not heads or hidden % heads:
        raise ValueError(f"num_attention_heads: {heads} does not divide hidden_size {hidden}")
    return hidden // heads


def latent(c: ConfigReader) -> Latent:
    """Return the multi-latent attention of a config, with the indexer that it may have."""
    c.skip("num_key_value_heads", "head_dim")
    wide = c.whole("qk_nope_head_dim") + c.whole("qk_rope_head_dim")
    if c.given("qk_head_dim") and c.whole("qk_head_dim") != wide:
        raise ValueError(f"qk_head_dim: expected qk_nope_head_dim + qk_rope_head_dim = {wide}")
    heads = c.whole("num_attention_heads")
    return Latent(
        heads=heads,
        q_rank=c.whole("q_lora_rank", 0),
        kv_rank=c.whole("kv_lora_rank"),
        nope_dim=c.whole("qk_nope_head_dim"),
        rope_dim=c.whole("qk_rope_head_dim"),
        value_dim=c.worked_out("v_head_dim", c.whole("hidden_size") // max(heads, 1), "hidden_size / heads"),
        index_heads=c.whole("index_n_heads", 0),
        index_dim=c.whole("index_head_dim", 0),
        index_top=c.whole("index_topk", 0) if c.whole("index_n_heads", 0) else 0,
    )


def latents(c: ConfigReader, count: int, *, every: int = 1) -> list[Latent]:
    """Return the latent attention of each layer: some may take the keys that an earlier layer's indexer picked.

    `every`: which layers after the second pick, where the config does not say.
    """
    plain = latent(c)
    if not plain.index_heads:
        return [plain] * count
    kinds = c.words("layer_types", count) or []
    other = next((kind for kind in kinds if kind not in INDEXED), None)
    if other is not None:
        raise ValueError(f"layer_types: expected indexed_attention for every layer, got {other!r}")
    reused = msgspec.structs.replace(plain, index_heads=0, index_dim=0)
    return [plain if picks else reused for picks in picking(c, count, every=every)]


def picking(c: ConfigReader, count: int, *, every: int = 1) -> list[bool]:
    """Return which layers run an indexer of their own."""
    freq, offset = max(c.whole("index_topk_freq", every), 1), c.whole("index_skip_topk_offset", 2)
    pattern, words = c.value("index_topk_pattern"), {"F": "full", "S": "shared"}
    if isinstance(pattern, str):
        pattern = [words.get(letter, letter) for letter in pattern]
    kinds = c.value("indexer_types", pattern)
    if kinds is None:
        return [max(i - offset + 1, 0) % freq == 0 for i in range(count)]
    if not isinstance(kinds, list) or len(kinds) != count or not {*map(str, kinds)} <= {*words.values()}:
        raise ValueError(f"indexer_types: expected full or shared for each of the {count} layers")
    if kinds[0] != "full":
        raise ValueError("indexer_types: expected full for the first layer")
    return [kind == "full" for kind in kinds]


def _fields(plain: Attention, **changed: Any) -> dict[str, Any]:
    return {name: getattr(plain, name) for name in plain.__struct_fields__} | changed


def networks_of(c: ConfigReader, traits: Traits, count: int) -> list[Network]:
    """Return the network of each layer."""
    gated = switch(c, traits.gated)
    hidden = c.whole("hidden_size")
    if not traits.experts:
        return [Dense(width=inner(c, traits, hidden), gated=gated)] * count
    routed = experts_of(c, traits, gated=gated)
    sparse = SPARSE[traits.experts](c, count, traits.first_dense)
    c.skip(traits.dense_key)
    if all(sparse):
        return [routed] * count
    dense = Dense(width=inner(c, traits, hidden), gated=gated)
    return [routed if some else dense for some in sparse]


def inner(c: ConfigReader, traits: Traits, hidden: int) -> int:
    """Return the width of a dense network."""
    return c.whole(traits.dense_key, int(traits.inner * hidden) or None)


def experts_of(c: ConfigReader, traits: Traits, *, gated: bool) -> Experts:
    """Return the experts of a layer."""
    width = c.whole("expert_size", 0)
    width = width if c.given("expert_size") else width or c.whole("intermediate_size")
    if not width:
        raise ValueError(f"{c.found('expert_size')}: expected 1 or more, got {width}")
    c.skip("intermediate_size")
    c.repeats("expert_size", width)
    shared = _shared(c, width, traits)
    top = c.whole("experts_per_token")
    if traits.top not in {0, top}:
        raise ValueError(
            f"{c.found('experts_per_token')}: expected {traits.top}, which the class takes whatever it says"
        )
    if traits.must_share and not shared:
        raise ValueError(f"{c.found('shared_experts')}: expected 1 or more: none has the width of a dense network")
    found = Experts(
        count=c.whole("experts"),
        top=top,
        width=width,
        gated=gated,
        shared=shared,
        shared_gate=traits.shared_gate and shared > 0,
        biases=(width * (2 if gated else 1) + c.whole("hidden_size")) * traits.expert_bias,
        **_groups(c),
    )
    if not 1 <= found.top <= found.count:
        raise ValueError(
            f"{c.found('experts_per_token')}: experts_per_token: expected 1 to {found.count}, got {found.top}"
        )
    return found


def _shared(c: ConfigReader, width: int, traits: Traits) -> int:
    """Return the width of the shared network: the one that is said, or that of its number of experts."""
    said = c.whole("shared_size", 0)
    if not said:
        many = c.whole("shared_experts", int(traits.one_shared))
        c.repeats("shared_experts", many)  # under a name that the class passes over
        return many * width
    many = c.alone(c.found("shared_experts"))
    if many == 1 or (isinstance(many, int) and many * width == said):
        c.skip("shared_experts")  # it says the same
    return said


def _groups(c: ConfigReader) -> dict[str, int]:
    """Return into how many groups a router divides its experts, and in how many of them those of a token may lie."""
    groups, chosen = c.whole("n_group", 1), c.whole("topk_group", 1)
    if c.value("topk_method") == "greedy" or not 1 <= chosen < groups:
        return {}
    return {"groups": groups, "top_groups": chosen}


def _after_first(c: ConfigReader, count: int, first_dense: int) -> list[bool]:
    words = c.words("mlp_layer_types", count)
    if words is not None:
        c.skip("first_k_dense_replace", "moe_layer_freq")
        return [word == "sparse" for word in words]
    listed = c.value("moe_layer_freq")
    if isinstance(listed, list):
        if len(listed) != count or not all(item in (0, 1) for item in listed):
            raise ValueError(f"moe_layer_freq: expected a number, or 0 or 1 for each of the {count} layers")
        c.skip("first_k_dense_replace")
        return [item == 1 for item in listed]
    first, every = c.whole("first_k_dense_replace", first_dense), c.whole("moe_layer_freq", 1)
    c.repeats("first_k_dense_replace", first)
    return [i >= first and i % max(every, 1) == 0 for i in range(count)]


def _by_step(c: ConfigReader, count: int, _: int) -> list[bool]:
    only, step = c.numbers("mlp_only_layers") or [], max(c.whole("decoder_sparse_step", 1), 1)
    return [i not in only and (i + 1) % step == 0 for i in range(count)]


def _interleaved(c: ConfigReader, count: int, _: int) -> list[bool]:
    step, listed = c.whole("interleave_moe_layer_step", 1), c.numbers("moe_layers")
    if listed is not None and c.given("moe_layers"):
        return [i in listed for i in range(count)]
    return [(i + 1) % max(step, 1) == 0 for i in range(count)]


def _between(c: ConfigReader, count: int, _: int) -> list[bool]:
    first, step = c.whole("moe_layer_start_index", 0), max(c.whole("moe_layer_interval", 1), 1)
    last = c.value("moe_layer_end_index", -1)
    last = count - 1 if last in (-1, None) else int(last)
    return [first <= i <= last and (i + 1) % step == 0 for i in range(count)]


def _by_period(c: ConfigReader, count: int, _: int) -> list[bool]:
    period, offset = max(c.whole("expert_layer_period", 1), 1), c.whole("expert_layer_offset", 0)
    return [i % period == offset for i in range(count)]


SPARSE: dict[str, Callable[[ConfigReader, int, int], list[bool]]] = {
    "all": lambda _, count, __: [True] * count,
    "after_first": _after_first,
    "by_step": _by_step,
    "interleaved": _interleaved,
    "between": _between,
    "by_period": _by_period,
}


def _norm_bias(traits: Traits) -> bool:
    return traits.layer_norm if traits.norm_bias is None else traits.norm_bias


def _small(c: ConfigReader, traits: Traits, mixer: Mixer | None, network: Network | None) -> int:
    """Return norms and biases of one layer."""
    hidden = c.whole("hidden_size")
    norms = (
        traits.norms
        - switch(c, traits.one_norm)
        + 2 * switch(c, traits.post_norms)
        + (traits.expert_norm and isinstance(network, Experts))
    )
    found = norms * hidden * (1 + _norm_bias(traits)) if traits.norm_weights else 0
    if traits.inner_norms and mixer is not None and isinstance(network, Dense):
        found += mixer.out_width + network.width
    if isinstance(mixer, Attention):
        queries, keys = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
        found += (queries + 2 * keys) * switch(c, traits.qkv_bias) + hidden * switch(c, traits.out_bias)
        found += 2 * mixer.head_dim * (1 + _norm_bias(traits)) * switch(c, traits.head_norms)
        found += (queries + keys) * switch(c, traits.wide_norms)
        found += mixer.heads * traits.sinks
    elif isinstance(mixer, Latent):
        found += mixer.q_rank + mixer.kv_rank + 2 * mixer.index_dim
        found += (mixer.q_rank + mixer.kv_rank + mixer.rope_dim) * switch(c, traits.qkv_bias)
        found += hidden * switch(c, traits.out_bias)
    biased = switch(c, traits.network_bias)
    if isinstance(network, Dense):
        found += (network.width * (2 if network.gated else 1) + hidden) * biased
        found += LEARNED.get(str(c.value("hidden_act")), 0)
    elif isinstance(network, Experts):
        found += network.count * traits.router_bias
        found += (network.shared * (2 if network.gated else 1) + hidden) * (biased and network.shared > 0)
        found += network.count * network.biases
    return found
