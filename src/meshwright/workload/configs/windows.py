"""Decoders of attention whose layers differ in windows, heads, networks or what they share."""

from typing import Any

import msgspec

from ...errors import InputError
from ..architecture import MOST_LAYERS, Architecture
from ..kinds import Attention, Dense, Experts, LayerKind, Network
from .decoders import Traits, attention_of_config, decoder, experts_of, inner, latent, made, networks_of
from .pattern import layer_types
from .reader import ConfigReader


def gemma4(c: ConfigReader) -> Architecture:
    """Return Gemma 4: windows and full attention with heads of their own, experts beside a network, inputs a layer."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = layer_types(
        c, count, ["full_attention" if (i + 1) % 6 == 0 else "sliding" for i in range(count)], "sliding_attention"
    )
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
    c.skip("num_global_key_value_heads", "use_double_wide_mlp")
    if c.flag("attention_bias"):
        raise ValueError("attention_bias: expected false")
    local = Attention(heads=heads, kv_heads=kv_heads, head_dim=c.whole("head_dim"), window=window)
    whole = Attention(heads=heads, kv_heads=global_kv, head_dim=c.whole("global_head_dim", 512), key_matrices=keys)
    for place, changed in c.of_layers().items():
        if kinds[place] != "full_attention" or changed != {"head_dim": whole.head_dim}:
            raise ValueError(f"per_layer_config: {place}: expected global_head_dim for a layer of full attention")
    double = c.flag("use_double_wide_mlp")
    width = c.whole("intermediate_size")
    routed = _gemma4_experts(c, width) if c.flag("enable_moe_block") else None
    c.skip("experts", "experts_per_token", "expert_size")
    norms = hidden * (8 if routed else 4) + (routed.count if routed else 0) + hidden * (per_layer > 0)

    def layer(i: int, kind: str) -> LayerKind:
        mixer, shares = (whole if kind == "full_attention" else local), few > 0 and i >= count - few
        network: Network = routed or Dense(width=width * (2 if shares and double else 1))
        small = norms + mixer.head_dim * (1 if shares else 2)
        if shares:
            mixer = _sharing(mixer)
        return LayerKind(mixer=mixer, network=network, small=small, more=2 * hidden * per_layer)

    layers = [layer(i, kind) for i, kind in enumerate(kinds)]
    return made(c, Traits(tied=True), layers, **_per_layer_inputs(c, hidden, per_layer, count))


def _sharing(mixer: Attention, **changed: Any) -> Attention:
    fields = {name: getattr(mixer, name) for name in mixer.__struct_fields__} | {"key_matrices": 0} | changed
    return Attention(**fields)


def _gemma4_experts(c: ConfigReader, width: int) -> Experts:
    return Experts(
        count=c.whole("experts"), top=c.whole("experts_per_token"), width=c.whole("expert_size"), shared=width
    )


def _per_layer_inputs(c: ConfigReader, hidden: int, per_layer: int, count: int, more: int = 0) -> dict[str, int]:
    """Return the table of a vector a layer and token, and the projection beside it."""
    rows = c.whole("vocab_size_per_layer_input", 0)
    table = rows * count * per_layer + per_layer if per_layer else 0
    return {"beside_parameters": table, "beside_weights": hidden * count * per_layer + more}


def gemma3n(c: ConfigReader) -> Architecture:
    """Return Gemma 3n: alternating updates of four streams, low-rank residuals, inputs a layer, shared keys."""
    count, hidden = c.layers(), c.whole("hidden_size")
    kinds = layer_types(
        c, count, ["full_attention" if (i + 1) % 5 == 0 else "sliding" for i in range(count)], "sliding_attention"
    )
    plain, window = attention_of_config(c), c.whole("sliding_window")
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
        widths = [c.worked_out("intermediate_size", 16384, "of each layer")] * count
    if len(widths) != count:
        raise ValueError(f"intermediate_size: expected one width for each of the {count} layers")
    more = hidden * (2 * per_layer + 2 * rank + streams) + streams**2 + streams**3
    layers = []
    for i, (kind, width) in enumerate(zip(kinds, widths, strict=True)):
        shares = few > 0 and i >= count - few
        changed = {"window": 0 if kind == "full_attention" else window, "key_matrices": 0 if shares else 2}
        small = 8 * hidden + plain.head_dim * (1 if shares else 2)
        layers.append(
            LayerKind(mixer=_sharing(plain, **changed), network=Dense(width=int(width)), small=small, more=more)
        )
    around = 2 * (streams - 1) * hidden * hidden
    return made(c, Traits(tied=True), layers, **_per_layer_inputs(c, hidden, per_layer, count, around))


def afmoe(c: ConfigReader) -> Architecture:
    """Return Arcee's experts: gated attention in windows, each fourth layer full, the first layers dense."""
    count, hidden = c.layers(), c.whole("hidden_size")
    period = c.whole("global_attn_every_n_layers", 4)
    kinds = layer_types(
        c,
        count,
        ["full_attention" if period and (i + 1) % period == 0 else "sliding" for i in range(count)],
        "sliding_attention",
    )
    plain, window = attention_of_config(c), c.whole("sliding_window")
    dense, routed = Dense(width=inner(c, Traits(), hidden)), experts_of(c, Traits(), gated=True)
    first = c.whole("first_k_dense_replace", 0)
    c.skip("mup_enabled", "num_expert_groups", "num_limited_groups", "load_balance_coeff", "route_norm", "route_scale")
    layers = [
        LayerKind(
            mixer=_sharing(plain, key_matrices=2, gate=True, window=0 if kind == "full_attention" else window),
            network=dense if i < first else routed,
            small=4 * hidden + 2 * plain.head_dim + (0 if i < first else routed.count),
        )
        for i, kind in enumerate(kinds)
    ]
    return made(c, Traits(), layers)


def _mimos_pattern(c: ConfigReader, count: int) -> list[str]:
    """Return the kinds of MiMo-V2's layers: 1 stands for a window, 0 for full attention."""
    pattern = c.numbers("hybrid_layer_pattern")
    if pattern is None:
        pattern = [0 if i % 6 == 5 or i == 0 else 1 for i in range(count)]
    if len(pattern) != count or not {*pattern} <= {0, 1}:
        raise InputError(f"{c.where}: hybrid_layer_pattern: expected 0 or 1 for each of the {count} layers")
    return ["sliding" if one else "full_attention" for one in pattern]


def mimo_v2(c: ConfigReader) -> Architecture:
    """Return MiMo-V2: windows with sinks and more key heads, full attention in few layers, values narrower."""
    count, hidden = c.layers(), c.whole("hidden_size")
    plain, window = attention_of_config(c), c.whole("sliding_window")
    values = c.whole("v_head_dim")
    kinds = layer_types(c, count, _mimos_pattern(c, count), "sliding_attention")
    # the class has these sizes of windows and no others
    fixed = {
        "sliding_window_size": window, "swa_num_attention_heads": plain.heads, "swa_head_dim": plain.head_dim,
        "swa_num_key_value_heads": 2 * plain.kv_heads, "swa_v_head_dim": values, "add_swa_attention_sink_bias": True,
        "add_full_attention_sink_bias": False,
    }  # fmt: skip
    for name, expected in fixed.items():
        if c.value(name, expected) != expected:
            raise InputError(f"{c.where}: {name}: expected {expected}, as the model type has it, got {c.value(name)!r}")
    networks = networks_of(c, Traits(experts="after_first", first_dense=1), count)
    full = _sharing(plain, key_matrices=2, value_dim=values)
    local = _sharing(full, key_matrices=2, window=window, kv_heads=2 * plain.kv_heads)
    layers = [
        LayerKind(
            mixer=full if kind == "full_attention" else local,
            network=network,
            small=2 * hidden + (0 if kind == "full_attention" else plain.heads),
        )
        for kind, network in zip(kinds, networks, strict=True)
    ]
    return made(c, Traits(), layers)


def gpt_neo(c: ConfigReader, traits: Traits) -> Architecture:
    """Return GPT-Neo: every second layer in a window, or as `attention_types` repeats words."""
    count, window = c.layers(), c.whole("window_size")
    repeated = c.value("attention_types", [[["global", "local"], count // 2 + count % 2]])
    try:
        kinds = [kind for words, times in repeated for _ in range(min(times, count + 1)) for kind in words]
    except (TypeError, ValueError):
        raise ValueError("attention_types: expected pairs of words and how often they come") from None
    if not c.given("attention_types"):
        kinds = (c.words("attention_layers", count) if c.given("attention_layers") else None) or kinds[:count]
    c.skip("attention_layers")
    if len(kinds) != count or any(kind not in ("global", "local") for kind in kinds):
        raise ValueError(f"attention_types: expected global or local for each of the {count} layers")
    whole = decoder(c, traits)
    layers = [
        msgspec.structs.replace(layer, mixer=_sharing(layer.mixer, key_matrices=2, window=window))
        if kind == "local" and isinstance(layer.mixer, Attention)
        else layer
        for kind, layer in zip(kinds, (run.layer for run in whole.runs for _ in range(run.count)), strict=True)
    ]
    return made(c, traits, layers)


REFERENCE = (
    "a token meets all before it: reference_sliding_attention leaves the last {window} and all of prompt and images, "
    "and no key says how many those are"
)


def unlimited_ocr_text(c: ConfigReader, traits: Traits) -> Architecture:
    """Return the text model of Unlimited-OCR: windows beside which prompt and images stay in sight."""
    count, word = c.layers(), "reference_sliding_attention"
    kinds = layer_types(c, count, [word] * count, word)
    if word in kinds:
        c.assumed.append(REFERENCE.format(window=c.whole("sliding_window")))
    c.fixed({"head_dim": c.whole("hidden_size") // max(c.whole("num_attention_heads"), 1)})
    c.skip("sliding_window")
    return decoder(c.changed({"layer_types": ["full_attention"] * count}), traits)


def _longcats_layers(c: ConfigReader) -> int:
    """Return LongCat's layers: half of num_hidden_layers where it is there, since each layer counts twice in it."""
    doubled = c.alone("num_hidden_layers")
    if doubled is None:
        return c.layers()
    c.skip("num_hidden_layers")
    if not isinstance(doubled, int) or not 2 <= doubled <= 2 * MOST_LAYERS:
        raise InputError(f"{c.where}: num_hidden_layers: expected 2 to {2 * MOST_LAYERS}, got {doubled!r}")
    return doubled // 2


EMPTY = (
    "a token picks {picked} of {total} experts, {top} of them with weights on average under an even router: active "
    "parameters and FLOPs are of that mean"
)


def longcat(c: ConfigReader) -> Architecture:
    """Return LongCat-Flash: two latent attentions and two networks a layer, experts beside them, some of them empty."""
    count, hidden = _longcats_layers(c), c.whole("hidden_size")
    mixer, width = latent(c), c.whole("intermediate_size")
    real, empty = c.whole("experts"), c.whole("zero_expert_num", 0)
    c.skip("zero_expert_type")
    if str(kind := c.value("attention_method", "MLA")).upper() != "MLA":
        raise InputError(f"{c.where}: attention_method: expected MLA, got {kind!r}")
    # a token picks among all, so that under a balanced router real / (real + empty) of its choice compute
    picked = c.whole("experts_per_token")
    top = max(1, round(picked * real / max(1, real + empty)))
    if empty:
        c.assumed.append(EMPTY.format(picked=picked, total=real + empty, top=top))
    size = c.whole("expert_size")
    routed = Experts(
        count=real, top=top, width=size, router=real + empty, shared=2 * width,
        # the library allocates gate and up of each empty expert (transformers 5.23: modeling_longcat_flash.py,
        # LongcatFlashExperts); published files of weights have none (meituan-longcat/LongCat-Flash-Chat: 560 B)
        empty=empty * 2 * hidden * size,
    )  # fmt: skip
    small = 4 * hidden + 2 * (mixer.q_rank + mixer.kv_rank)
    layer = LayerKind(mixer=mixer, beside=mixer, network=routed, small=small)
    return made(c, Traits(), [layer] * count)
