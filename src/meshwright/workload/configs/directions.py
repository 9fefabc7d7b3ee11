"""Directions of attention that a file says otherwise than its class: both ways in a decoder, ahead alone in BERT."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..architecture import Architecture
from ..kinds import Attention, LayerKind
from .others import PAIRS

BOTH_WAYS = "{key} = {value!r}: each token meets those after it too"
# what says it: of the library's masks (masking_utils.py, create_causal_mask), and of Gemma's classes
SWITCHES: dict[str, tuple[object, ...]] = {"is_causal": (False,), "use_bidirectional_attention": (True, "all")}


def directed(config: Mapping[str, Any], model: Architecture) -> tuple[Architecture, tuple[str, ...]]:
    """Return an architecture whose attention looks the way that the keys of its text model say, and what to say of it.

    Raises ValueError where layers that are none of plain attention would have to look both ways.
    """
    if config.get("model_type") in PAIRS:
        return model, ()
    found = [(key, config[key]) for key, values in SWITCHES.items() if _among(config.get(key), values)]
    if found:
        key, value = found[0]
        if not all(isinstance(mixer, Attention) for run in model.runs for mixer in run.layer.mixers):
            raise ValueError(f"{key}: {value!r}: layers that are no plain attention are counted in one direction alone")
        return _masked(model, masked=False), (BOTH_WAYS.format(key=key, value=value),)
    # bert: modeling_bert.py, BertModel.forward masks what comes after a token where is_decoder says so
    return (_masked(model, masked=True) if config.get("is_decoder") is True else model), ()


def _among(value: object, values: tuple[object, ...]) -> bool:
    """Return whether a value is one of some, 0 and 1 being no switches."""
    return any(type(value) is type(other) and value == other for other in values)


def _masked(model: Architecture, *, masked: bool) -> Architecture:
    runs = tuple(msgspec.structs.replace(run, layer=_layer(run.layer, masked=masked)) for run in model.runs)
    return model if runs == model.runs else msgspec.structs.replace(model, stack=runs)


def _layer(layer: LayerKind, *, masked: bool) -> LayerKind:
    changed = {
        name: msgspec.structs.replace(mixer, masked=masked)
        for name, mixer in (("mixer", layer.mixer), ("beside", layer.beside))
        if isinstance(mixer, Attention) and not mixer.reads
    }
    return msgspec.structs.replace(layer, **changed)
