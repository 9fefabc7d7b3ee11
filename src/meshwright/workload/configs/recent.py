"""Decoders of 2026 whose layers differ in windows, heads and gates, beside experts in most of them."""

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, LayerKind
from .decoders import Traits, decoder, made
from .pattern import layer_types
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


def _layers(model: Architecture) -> list[LayerKind]:
    return [run.layer for run in model.runs for _ in range(run.count)]


def _with(layer: LayerKind, **changed: int | bool) -> LayerKind:
    """Return a layer whose attention is changed."""
    mixer = layer.mixer
    assert isinstance(mixer, Attention)
    other = msgspec.structs.replace(mixer, **changed)
    return msgspec.structs.replace(layer, mixer=other)
