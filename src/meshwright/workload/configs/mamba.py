"""Decoders with state-space layers: Mamba, Mamba-2, and both beside attention and networks."""

from functools import partial

from ..architecture import Architecture
from ..kinds import Attention, Dense, Experts, LayerKind, Mamba1, Mamba2, Mixer, Network, runs_of
from .decoders import Traits, attention_of_config, experts_of, made, networks_of
from .pattern import every_full, layer_types
from .reader import ConfigReader

LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}  # of a pattern in one word


def mamba2(c: ConfigReader, prefix: str, *, norm: bool = True) -> tuple[Mamba2, int]:
    """Return the Mamba-2 mixer under one family's keys, and its norms, biases and convolution."""
    names = MAMBA_KEYS[prefix]
    wide = c.whole("mamba_expand", 2) * c.whole("hidden_size") if prefix in {"mamba", "zamba"} else 0
    spread = wide // max(c.whole(names["heads"]), 1) or None  # of a head, where the config does not say
    if c.alone(names["head_dim"]) == "auto":
        wide = c.whole("mamba_d_ssm", 0) or wide
        c = c.changed({names["head_dim"]: wide // max(c.whole(names["heads"]), 1)})
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
    "zamba": {
        **{"heads": "n_mamba_heads", "head_dim": "mamba_headdim", "groups": "mamba_ngroups", "state": "mamba_d_state"},
        **{"chunk": "chunk_size", "conv_kernel": "mamba_d_conv"},
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


def _check_width(c: ConfigReader, mixer: Mamba2, prefix: str, expand: str) -> None:
    """Raise ValueError for heads that are not together as wide as the class expands the residual stream."""
    inner, names = c.whole(expand, 2) * c.whole("hidden_size"), MAMBA_KEYS[prefix]
    if mixer.out_width != inner:
        raise ValueError(
            f"{names['heads']}, {names['head_dim']}: {mixer.heads} x {mixer.head_dim} = {mixer.out_width}; "
            f"expected {expand} x hidden_size = {inner}"
        )


def _refuse_bias(c: ConfigReader, *names: str) -> None:
    for name in names:
        if c.flag(name):
            raise ValueError(f"{name}: expected false; biases of these projections are not counted")


def nemotron_h(c: ConfigReader) -> Architecture:
    """Return Nemotron-H: each layer is one of Mamba-2, attention, a dense network and experts."""
    hidden = c.whole("hidden_size")
    pattern = c.value("hybrid_override_pattern")
    kinds = c.value("layers_block_type") if pattern is None else [LETTERS.get(letter) for letter in str(pattern)]
    c.skip("num_hidden_layers", "layers_block_type", "moe_shared_expert_overlap")
    c.skip("mamba_num_groups", "moe_latent_overlap")
    kinds = _kinds(kinds)
    if not kinds or not all(kind in LETTERS.values() for kind in kinds):
        key = "hybrid_override_pattern" if pattern is not None else "layers_block_type"
        raise ValueError(f"{key}: expected a letter or word for each layer, of {', '.join(LETTERS)}")
    if c.given("num_hidden_layers") and c.whole("num_hidden_layers") != len(kinds):
        raise ValueError(f"num_hidden_layers: expected {len(kinds)}, the layers of the pattern")
    _refuse_bias(c, "use_bias", "mlp_bias", "attention_bias", "mamba_proj_bias")
    if c.flag("tied"):
        raise ValueError("tie_word_embeddings: expected false")
    further = _further_kinds(c)
    used = {*kinds, *further}
    layer_of: dict[str, LayerKind] = {}
    if "linear_attention" in used:
        mamba, small = mamba2(c, "nemotron")
        layer_of["linear_attention"] = LayerKind(mixer=mamba, small=hidden + small)
    if "full_attention" in used:
        layer_of["full_attention"] = LayerKind(mixer=attention_of_config(c), small=hidden)
    if "mlp" in used:
        layer_of["mlp"] = LayerKind(network=Dense(width=c.whole("intermediate_size"), gated=False), small=hidden)
    if "moe" in used:
        layer_of["moe"] = LayerKind(network=_latent_experts(c), small=hidden)
    c.skip(*MAMBA_KEYS["nemotron"].values(), "num_attention_heads", "num_key_value_heads", "head_dim", "experts")
    c.skip("intermediate_size", "expert_size", "shared_size", "shared_experts", "experts_per_token", "sliding_window")
    layers, module = ([layer_of[str(kind)] for kind in some] for some in (kinds, further))
    return made(c, Traits(), layers, mtp_stack=runs_of(module))


def _kinds(told: object) -> list[object]:
    """Return the kinds of layers by the names that this module has for them."""
    names = {"mamba": "linear_attention", "attention": "full_attention"}
    return [names.get(str(kind), kind) for kind in told] if isinstance(told, list) else [None]


def _further_kinds(c: ConfigReader) -> list[object]:
    """Return the kinds of layers of one module that predicts a further token; none where the config has none."""
    pattern, told = c.value("mtp_hybrid_override_pattern"), c.value("mtp_layers_block_type")
    if not c.whole("num_nextn_predict_layers", 0):
        return []
    found = _kinds(told if pattern is None else [LETTERS.get(letter) for letter in str(pattern)])
    if not found or not all(kind in LETTERS.values() for kind in found):
        key = "mtp_layers_block_type" if pattern is None else "mtp_hybrid_override_pattern"
        raise ValueError(f"{key}: expected a letter or word for each layer, of {', '.join(LETTERS)}")
    return found


def _latent_experts(c: ConfigReader) -> Experts:
    if c.given("shared_size") and not c.whole("shared_size"):
        raise ValueError(f"{c.found('shared_size')}: expected 1 or more: 0 stands for the width of a dense network")
    plain = experts_of(c, Traits(), gated=False)
    return Experts(
        count=plain.count,
        top=plain.top,
        width=plain.width,
        gated=False,
        shared=plain.shared,
        latent=c.whole("moe_latent_size", 0),
    )


def granite_hybrid(c: ConfigReader) -> Architecture:
    """Return Granite 4: Mamba-2 or attention, with experts and a shared network, or the shared network alone."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = layer_types(c, count, ["linear_attention"] * count, "mamba", "attention")
    _refuse_bias(c, "mamba_proj_bias", "attention_bias")
    c.skip("intermediate_size", "experts", "experts_per_token")
    network: Network = Dense(width=c.whole("shared_size"))
    if c.whole("experts", 0):
        network = experts_of(c, Traits(), gated=True)
    layer = partial(LayerKind, network=network)
    attends = any(kind not in {"linear_attention", "mamba"} for kind in kinds)
    full = attention_of_config(c) if attends else None
    mamba, small = mamba2(c, "mamba")
    _check_width(c, mamba, "mamba", "mamba_expand")
    c.skip("num_attention_heads", "num_key_value_heads", "normalization_function")
    layers = [
        layer(mixer=mamba, small=2 * hidden + small)
        if kind in {"linear_attention", "mamba"}
        else layer(mixer=full, small=2 * hidden)
        for kind in kinds
    ]
    return made(c, Traits(), layers)


def bamba(c: ConfigReader) -> Architecture:
    """Return Bamba: Mamba-2 with a dense network, attention in the layers that are listed."""
    count, hidden = c.layers(), c.whole("hidden_size")
    full_at = c.numbers("attn_layer_indices") or []
    _refuse_bias(c, "mamba_proj_bias", "attention_bias", "mlp_bias")
    dense, full = Dense(width=c.whole("intermediate_size")), attention_of_config(c)
    mamba, small = mamba2(c, "mamba")
    _check_width(c, mamba, "mamba", "mamba_expand")
    layers = [
        LayerKind(mixer=full, network=dense, small=2 * hidden)
        if i in full_at
        else LayerKind(mixer=mamba, network=dense, small=2 * hidden + small)
        for i in range(count)
    ]
    return made(c, Traits(), layers)


def falcon_h1(c: ConfigReader) -> Architecture:
    """Return Falcon-H1: attention and Mamba-2 beside each other in every layer."""
    count, hidden = c.layers(), c.whole("hidden_size")
    _refuse_bias(c, "mamba_proj_bias", "attention_bias", "mlp_bias", "projectors_bias")
    mamba, small = mamba2(c, "mamba", norm=c.flag("mamba_rms_norm"))
    if c.value("mamba_d_ssm", c.whole("mamba_expand", 2) * hidden) != mamba.out_width:
        raise ValueError(f"mamba_d_ssm: expected mamba_n_heads x mamba_d_head = {mamba.out_width}")
    c.skip("mamba_use_mlp", "attn_layer_indices", "mlp_expansion_factor")
    layer = LayerKind(
        mixer=attention_of_config(c),
        beside=mamba,
        network=Dense(width=c.whole("intermediate_size")),
        small=2 * hidden + small,
    )
    return made(c, Traits(), [layer] * count)


def jamba(c: ConfigReader) -> Architecture:
    """Return Jamba: Mamba, attention in each eighth layer, experts in each second."""
    count, hidden = c.layers(), c.whole("hidden_size")
    _refuse_bias(c, "mamba_proj_bias")
    c.fixed({"mamba_inner_layernorms": True})  # of ai21labs/Jamba-v0.1: norms of the steps, counted below
    kinds = every_full(c, count, c.whole("attn_layer_period", 8), c.whole("attn_layer_offset", 4))
    scan, small = mamba1(c, inner=c.whole("mamba_expand", 2) * hidden, keys="mamba_d_state mamba_dt_rank mamba_d_conv")
    small += scan.rank + 2 * scan.state
    full = attention_of_config(c)
    networks: list[Network] = networks_of(c, Traits(experts="by_period"), count)
    one = c.whole("experts") < 2
    networks = [Dense(width=c.whole("intermediate_size"))] * count if one else networks
    mixers: list[Mixer] = [full if kind == "full_attention" else scan for kind in kinds]
    layers = [
        LayerKind(mixer=mixer, network=network, small=2 * hidden + (small if mixer is scan else 0))
        for mixer, network in zip(mixers, networks, strict=True)
    ]
    return made(c, Traits(), layers)


def mamba1(c: ConfigReader, *, inner: int, keys: str) -> tuple[Mamba1, int]:
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


def mamba(c: ConfigReader) -> Architecture:
    """Return Mamba and Falcon-Mamba: layers of one selective scan."""
    _refuse_bias(c, "use_bias")
    hidden = c.whole("hidden_size")
    width = c.whole("intermediate_size", 0) if c.given("intermediate_size") else c.whole("expand", 2) * hidden
    scan, small = mamba1(c, inner=width, keys="state_size time_step_rank conv_kernel")
    c.skip("intermediate_size", "expand")
    c.fixed({"d_inner": width, "fused_add_norm": True, "rms_norm": True, "ssm_cfg": {}})  # of the authors' own files
    return made(c, Traits(tied=True), [LayerKind(mixer=scan, small=hidden + small)] * c.layers())


def plain_mamba2(c: ConfigReader) -> Architecture:
    """Return Mamba-2: layers of one state-space mixer."""
    _refuse_bias(c, "use_bias")
    mixer, small = mamba2(c, "plain")
    _check_width(c, mixer, "plain", "expand")
    c.fixed(dict.fromkeys(("intermediate_size", "d_inner"), mixer.out_width))  # of versions that wrote it down
    return made(c, Traits(), [LayerKind(mixer=mixer, small=c.whole("hidden_size") + small)] * c.layers())


ZAMBAS_KINDS = [
    *("mamba", *("mamba", "mamba", "mamba", "mamba", "mamba", "hybrid") * 7, *("mamba",) * 4, "hybrid"),
    *("mamba", "mamba", "mamba", "hybrid", "mamba", "mamba"),
]


def zamba2(c: ConfigReader) -> Architecture:
    """Return Zamba2: Mamba-2, in some layers behind a block of attention and network whose weights they share in turn.

    The block reads its input beside the embedding, and each layer adds adapters of its own to the block's matrices.
    """
    count, hidden, turns = c.layers(), c.whole("hidden_size"), c.whole("num_mem_blocks")
    given = "layers_block_type" if c.given("layers_block_type") else "layer_types"
    kinds = c.words(given, count) or (ZAMBAS_KINDS if count == len(ZAMBAS_KINDS) else [])
    if not kinds or not {*kinds} <= {"mamba", "linear_attention", "hybrid"}:
        raise ValueError(f"layers_block_type: expected mamba or hybrid for each of the {count} layers")
    _refuse_bias(c, "add_bias_linear")
    if not c.flag("tied", default=True):
        raise ValueError("tie_word_embeddings: expected true; without it the class shares no block either")
    mamba, small = mamba2(_with_zambas_heads(c, hidden), "zamba")
    if mamba.out_width != c.whole("mamba_expand", 2) * hidden:
        raise ValueError(f"mamba_headdim: expected mamba_expand x hidden_size / n_mamba_heads, got {mamba.head_dim}")
    c.fixed({"kv_channels": hidden // max(c.whole("num_attention_heads"), 1)})
    block = _zambas_block(c, hidden)
    width, rank = block.network.weights(1) // 3 if block.network else 0, c.whole("adapter_rank")
    c.fixed({"num_query_groups": c.whole("num_attention_heads"), "ffn_hidden_size": width})
    c.fixed({"use_shared_mlp_adapter": True, "gated_linear_unit": True})
    c.skip("use_mem_eff_path", "use_mem_rope", "use_long_context", "hybrid_layer_ids")
    adapters = rank * (hidden + 2 * width) + 3 * rank * 4 * hidden * c.flag("use_shared_attention_adapter")
    plain = LayerKind(mixer=mamba, small=hidden + small)
    return made(c, Traits(tied=True), _in_turns(kinds, plain, block, hidden, adapters, turns))


def _with_zambas_heads(c: ConfigReader, hidden: int) -> ConfigReader:
    """Return a file of Zamba2 with its heads of Mamba where it says their width alone, as its first code had it."""
    if not c.given("mamba_headdim") or c.given("n_mamba_heads"):
        return c
    wide, each = c.whole("mamba_expand", 2) * hidden, c.whole("mamba_headdim")
    if not each or wide % each:
        raise ValueError(f"mamba_headdim: {each} does not divide mamba_expand x hidden_size = {wide}")
    c.assumed.append(f"n_mamba_heads = {wide // each}, mamba_expand x hidden_size / mamba_headdim: the file names none")
    return c.changed({"n_mamba_heads": wide // each})


def zamba(c: ConfigReader) -> Architecture:
    """Return Zamba: Mamba, in some layers behind one block of attention and network, which all of them share."""
    count, hidden = c.layers(), c.whole("hidden_size")
    period, offset = c.whole("attn_layer_period"), c.whole("attn_layer_offset")
    usual = [
        "mamba",
        "mamba",
        "hybrid",
        *("hybrid" if period and i % period == offset else "mamba" for i in range(count - 3)),
    ]
    given = "layers_block_type" if c.given("layers_block_type") else "layer_types"
    kinds = (c.words(given, count) if c.given(given) else None) or usual[:count]
    if not {*kinds} <= {"mamba", "linear_attention", "hybrid"}:
        raise ValueError(f"layers_block_type: expected mamba or hybrid for each of the {count} layers")
    if not c.flag("tied", default=True):
        raise ValueError("tie_word_embeddings: expected true; without it the class shares no block either")
    _refuse_bias(c, "mamba_proj_bias")
    wide, heads = c.whole("mamba_expand") * hidden, c.whole("n_mamba_heads")
    if not heads or wide % heads:
        raise ValueError(f"n_mamba_heads: {heads} does not divide mamba_expand x hidden_size = {wide}")
    scan, small = mamba1(c, inner=wide, keys="mamba_d_state mamba_dt_rank mamba_d_conv")
    c.skip("use_mamba_kernels", "hidden_mamba_act")
    plain = LayerKind(mixer=scan, small=hidden + small)
    return made(c, Traits(tied=True), _in_turns(kinds, plain, _zambas_block(c, hidden), hidden, 0, 1))


def _in_turns(
    kinds: list[str], plain: LayerKind, block: LayerKind, hidden: int, adapters: int, turns: int
) -> list[LayerKind]:
    """Return layers of which the hybrid ones have a block before them, the first of `turns` of them and then again."""
    layers, blocks, shared = [], 0, block.parameters(hidden)
    for kind in kinds:
        if kind != "hybrid":
            layers.append(plain)
            continue
        more = block.more + hidden * hidden + adapters
        held = {"small": block.small + plain.small, "more": more, "borrowed": shared if blocks >= turns else 0}
        layers.append(LayerKind(mixer=block.mixer, beside=plain.mixer, network=block.network, **held))
        blocks += 1
    return layers


def _zambas_block(c: ConfigReader, hidden: int) -> LayerKind:
    """Return a block of attention and network that layers of Zamba share."""
    heads = c.whole("num_attention_heads")
    if not heads or 2 * hidden % heads or not c.whole("num_mem_blocks", 1):
        raise ValueError(f"num_attention_heads, num_mem_blocks: {heads} does not divide {2 * hidden}, or no block")
    dim, width = 2 * hidden // heads, c.whole("intermediate_size", 4 * hidden)
    c.fixed({"attention_hidden_size": 2 * hidden, "attention_head_dim": dim})
    full = Attention(heads=heads, kv_heads=c.whole("num_key_value_heads", heads), head_dim=dim)
    columns = (full.heads + 2 * full.kv_heads) * dim  # of queries, keys and values, from an input twice as wide
    return LayerKind(mixer=full, network=Dense(width=width), small=3 * hidden, more=hidden * columns)
